//! What a run of a program shares: counts, signals, what was kept, and the failures that were seen.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use agentouto::{BoxFuture, CallError, CallId, Caller, Content, Runtime, ToolContext};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::parts::Parts;
use crate::program::{Behaviour, Holding, Moment, Payload, Place, Program, Who};

/// The longest wait for a [`Moment`].
const LONGEST_MOMENT: Duration = Duration::from_millis(3);

pub(crate) type Answering = BoxFuture<'static, Result<Content, CallError>>;

pub(crate) struct World {
    pub(crate) program: Program,
    pub(crate) parts: Parts,
    /// The runtime under test, until the run is over.
    runtime: Mutex<Option<Runtime>>,
    /// Of all roots, and last of the call that is in none of the trees.
    pub(crate) roots: Vec<RootState>,
    /// Counts starts and ends, so that they can be put in order.
    clock: AtomicU64,
    begun: watch::Sender<usize>,
    /// Whether the run is over, so that other tokio runtimes may end.
    is_over: watch::Sender<bool>,
    /// Whether a shutdown has begun.
    is_shutting: AtomicBool,
    /// Set for loops of ready awaits.
    is_stopped: AtomicBool,
    /// Set when the run has failed by a hang: loops end, so that no thread goes on.
    is_abandoned: AtomicBool,
    release: Release,
    /// Blocking functions, from first to last.
    blocking_runs: Mutex<Vec<BlockingRun>>,
    kept: Mutex<Vec<Kept>>,
    /// Tasks that tools and actors spawned.
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// The newest version of the instructions whose agent has joined.
    pub(crate) version: AtomicUsize,
    /// Held while the agent is replaced.
    pub(crate) replacing: Mutex<()>,
    /// Threads with tokio runtimes of their own.
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
    /// The calls in the logs of the roots, and whether the log was whole before any shutdown began.
    logs: Mutex<Vec<(usize, Vec<CallId>, bool)>>,
    failures: Mutex<Vec<String>>,
    stage: Mutex<String>,
}

/// What is known of one call from outside, and of everything below it.
#[derive(Default)]
pub(crate) struct RootState {
    /// How often something began: requests to models, tools, users.
    pub(crate) started: AtomicUsize,
    /// How many futures of models, tools and users have not been dropped.
    pub(crate) alive: AtomicUsize,
    /// Whether it has been polled to the end of one poll.
    pub(crate) is_polled: AtomicBool,
    /// Whether it has been cancelled or dropped, or is about to be.
    pub(crate) is_withdrawn: AtomicBool,
    pub(crate) is_over: AtomicBool,
    /// Where the clock stood when it had ended, and how often something had begun in it.
    pub(crate) end: Mutex<Option<(u64, usize)>>,
}

/// One run of a blocking function.
pub(crate) struct BlockingRun {
    node: usize,
    thread: ThreadId,
    start: u64,
    /// When it ended, and on which thread.
    finish: Option<(u64, ThreadId)>,
}

/// What a tool or an actor kept beyond its end.
pub(crate) enum Kept {
    Unpolled(usize, Answering),
    PolledOnce(usize, Answering),
    Caller(usize, Caller),
    Context(usize, ToolContext),
}

impl Kept {
    fn node(&self) -> usize {
        let (Self::Unpolled(node, _) | Self::PolledOnce(node, _) | Self::Caller(node, _) | Self::Context(node, _)) =
            self;
        *node
    }
}

#[derive(Default)]
struct Release {
    is_released: Mutex<bool>,
    changed: Condvar,
    channels: Mutex<Vec<oneshot::Sender<()>>>,
}

impl World {
    pub(crate) fn new(program: Program, parts: Parts) -> Arc<Self> {
        let roots: Vec<_> = (0..=program.roots.len()).map(|_| RootState::default()).collect();
        let spare = &roots[program.roots.len()];
        spare.is_polled.store(true, Ordering::SeqCst);
        spare.is_over.store(true, Ordering::SeqCst);
        Arc::new(Self {
            program,
            parts,
            runtime: Mutex::default(),
            roots,
            clock: AtomicU64::new(1),
            begun: watch::Sender::new(0),
            is_over: watch::Sender::new(false),
            is_shutting: AtomicBool::default(),
            is_stopped: AtomicBool::default(),
            is_abandoned: AtomicBool::default(),
            release: Release::default(),
            blocking_runs: Mutex::default(),
            kept: Mutex::default(),
            tasks: Mutex::default(),
            version: AtomicUsize::new(0),
            replacing: Mutex::default(),
            threads: Mutex::default(),
            logs: Mutex::default(),
            failures: Mutex::default(),
            stage: Mutex::default(),
        })
    }

    pub(crate) fn set_runtime(&self, runtime: Runtime) {
        *lock(&self.runtime) = Some(runtime);
    }

    /// The end of the run: the runtime and all that was kept are dropped, which would keep this world for good.
    pub(crate) fn drop_runtime(&self) {
        let runtime = lock(&self.runtime).take();
        drop((runtime, self.take_kept(None)));
    }

    pub(crate) fn runtime(&self) -> Option<Runtime> {
        lock(&self.runtime).clone()
    }

    pub(crate) fn root_of(&self, node: usize) -> &RootState {
        &self.roots[self.program.nodes[node].root]
    }

    /// The clock, which goes on by this.
    pub(crate) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// What was seen that must not be.
    pub(crate) fn fail(&self, what: impl Into<String>) {
        lock(&self.failures).push(what.into());
    }

    pub(crate) fn failures(&self) -> Vec<String> {
        lock(&self.failures).clone()
    }

    /// Says what the run does next, for the account of a hang.
    pub(crate) fn stage(&self, what: impl Into<String>) {
        *lock(&self.stage) = what.into();
    }

    /// What the run waits for.
    pub(crate) fn hang_report(&self) -> String {
        let open = self.roots.iter().enumerate().filter(|(_, root)| !root.is_over.load(Ordering::SeqCst));
        let open: Vec<_> = open.map(|(nth, root)| (nth, root.alive.load(Ordering::SeqCst))).collect();
        let blocking_runs = lock(&self.blocking_runs);
        let running = blocking_runs.iter().filter(|run| run.finish.is_none()).map(|run| run.node);
        let running: Vec<_> = running.collect();
        let invocations = self.runtime().map(|runtime| runtime.invocations());
        format!(
            "it waits for: {}; roots that are not over, each with its living futures: {open:?}; blocking functions of \
             the nodes {running:?} run; {} invocations",
            lock(&self.stage),
            invocations.unwrap_or_default(),
        )
    }

    pub(crate) fn begin_shutdown(&self) {
        self.is_shutting.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_shutting(&self) -> bool {
        self.is_shutting.load(Ordering::SeqCst)
    }

    /// The root is cancelled or dropped right after this.
    pub(crate) fn withdraw(&self, root: usize) {
        self.roots[root].is_withdrawn.store(true, Ordering::SeqCst);
    }

    /// The root is over: nothing may begin below it from now on.
    pub(crate) fn record_end(&self, root: usize) {
        let RootState { end, started, .. } = &self.roots[root];
        let now = (self.now(), started.load(Ordering::SeqCst));
        lock(end).get_or_insert(now);
    }

    /// Whether the root is on a tokio runtime that is left alone.
    pub(crate) fn may_be_undriven(&self, root: usize) -> bool {
        self.program.roots.get(root).is_some_and(|root| root.place == Place::Undriven)
    }

    /// Whether the tokio runtime of the root is dropped under it: its calls may fail in any way.
    pub(crate) fn is_lost(&self, root: usize) -> bool {
        self.program.roots.get(root).is_some_and(|root| root.place.is_lost())
    }

    pub(crate) fn add_thread(&self, thread: std::thread::JoinHandle<()>) {
        lock(&self.threads).push(thread);
    }

    /// Waits until other tokio runtimes may end.
    pub(crate) fn over(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut is_over = self.is_over.subscribe();
        async move { drop(is_over.wait_for(|is_over| *is_over).await) }
    }

    pub(crate) fn end(&self) {
        self.is_over.send_replace(true);
    }

    /// Forgets the threads, if all have ended.
    pub(crate) fn take_threads_if_over(&self) -> bool {
        let mut threads = lock(&self.threads);
        let are_over = threads.iter().all(std::thread::JoinHandle::is_finished);
        if are_over {
            threads.clear();
        }
        are_over
    }

    pub(crate) fn keep_log(&self, root: usize, calls: Vec<CallId>) {
        let is_whole = !self.is_shutting();
        lock(&self.logs).push((root, calls, is_whole));
    }

    pub(crate) fn take_logs(&self) -> Vec<(usize, Vec<CallId>, bool)> {
        std::mem::take(&mut *lock(&self.logs))
    }

    /// Whether a call may end as cancelled.
    pub(crate) fn may_be_cancelled(&self, node: usize) -> bool {
        let is_withdrawn = self.root_of(node).is_withdrawn.load(Ordering::SeqCst);
        is_withdrawn || self.is_shutting() || self.program.nodes[node].fragile
    }

    /// Something begins in the tree of the node: counted now, alive until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>, node: usize) -> AliveGuard {
        let root = self.root_of(node);
        root.alive.fetch_add(1, Ordering::SeqCst);
        root.started.fetch_add(1, Ordering::SeqCst);
        self.tick();
        AliveGuard { world: Arc::clone(self), node }
    }

    /// A blocking function begins.
    pub(crate) fn enter_blocking(self: &Arc<Self>, node: usize) -> BlockingGuard {
        let start = self.now();
        let place = {
            let mut blocking_runs = lock(&self.blocking_runs);
            blocking_runs.push(BlockingRun { node, thread: std::thread::current().id(), start, finish: None });
            blocking_runs.len() - 1
        };
        self.tick();
        BlockingGuard { world: Arc::clone(self), place }
    }

    pub(crate) fn tick(&self) {
        self.begun.send_modify(|begun| *begun += 1);
    }

    pub(crate) async fn moment(&self, moment: Moment) {
        match moment {
            Moment::Yields(yields) => yield_now(yields).await,
            Moment::Begun(wanted) => {
                let mut begun = self.begun.subscribe();
                let _ = tokio::time::timeout(LONGEST_MOMENT, begun.wait_for(|begun| *begun >= wanted)).await;
            }
        }
    }

    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst) || self.is_abandoned()
    }

    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::SeqCst);
        self.release();
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::SeqCst)
    }

    /// Lets blocked functions go on.
    pub(crate) fn release(&self) {
        *lock(&self.release.is_released) = true;
        self.release.changed.notify_all();
        for channel in lock(&self.release.channels).drain(..) {
            let _ = channel.send(());
        }
    }

    /// Blocks this thread until the release.
    pub(crate) fn block(&self) {
        let released = lock(&self.release.is_released);
        drop(self.release.changed.wait_while(released, |released| !*released));
    }

    /// A channel that gives a value at the release.
    pub(crate) fn released(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let is_released = lock(&self.release.is_released);
        if *is_released {
            let _ = sender.send(());
        } else {
            lock(&self.release.channels).push(sender);
        }
        drop(is_released);
        receiver
    }

    pub(crate) fn is_blocking(&self) -> bool {
        lock(&self.blocking_runs).iter().any(|run| run.finish.is_none())
    }

    /// The blocking functions that began after the end of the call that they belong to. A thread may have been just about
    /// to begin one; that is told from a late beginning by what the thread did at the end: it ran another function.
    pub(crate) fn late_blocking_runs(&self) -> Vec<usize> {
        let blocking_runs = lock(&self.blocking_runs);
        // One that awaits may end on another thread than that on which it began.
        let freed = |thread, since, until| {
            let mut finishes = blocking_runs.iter().filter_map(|run| run.finish);
            finishes.any(|(finish, on)| on == thread && since < finish && finish < until)
        };
        let is_late = |run: &&BlockingRun| {
            let end = lock(&self.root_of(run.node).end).map(|(end, _)| end);
            end.is_some_and(|end| freed(run.thread, end, run.start))
        };
        blocking_runs.iter().filter(is_late).map(|run| run.node).collect()
    }

    pub(crate) fn keep(&self, kept: Kept) {
        // An actor that comes late to its Forward, and a function that blocks, may do so after the run.
        let runtime = lock(&self.runtime);
        if runtime.is_some() {
            lock(&self.kept).push(kept);
        }
    }

    /// What was kept in the tree of a root, or in all.
    pub(crate) fn take_kept(&self, root: Option<usize>) -> Vec<Kept> {
        let mut kept = lock(&self.kept);
        let is_wanted = |kept: &Kept| root.is_none_or(|root| self.program.nodes[kept.node()].root == root);
        let (wanted, rest) = kept.drain(..).partition(is_wanted);
        *kept = rest;
        wanted
    }

    /// Spawns a task that is awaited at the end of the run.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = tokio::spawn(task);
        lock(&self.tasks).push(task);
    }

    pub(crate) fn take_tasks(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *lock(&self.tasks))
    }

    /// The name and the content with which a node is called.
    pub(crate) fn address(&self, node: usize) -> (&'static str, String) {
        (self.program.nodes[node].who.name(), format!("n{node} v{}", self.version.load(Ordering::SeqCst)))
    }

    /// Compares what came of a call with what the program says.
    pub(crate) fn check_result(&self, node: usize, result: &Result<Content, CallError>) {
        let is_cancelled = matches!(result, Err(CallError::Cancelled | CallError::ShutDown));
        let is_excused = (is_cancelled && self.may_be_cancelled(node)) || self.is_lost(self.program.nodes[node].root);
        if is_excused {
            return;
        }
        let is_right = match (&self.expected(node), result) {
            (Expected::Anything, Ok(content)) => *content.text == *format!("n{node}"),
            (Expected::Anything, Err(error)) => is_of_one_that_left(error),
            (Expected::Text, Ok(content)) => *content.text == *format!("n{node}"),
            (Expected::Failure(words), Err(error)) => error.to_string().contains(words),
            _ => false,
        };
        if !is_right && self.parts.checks("results") {
            let shown = result.as_ref().map(ToString::to_string);
            self.fail(format!("the call of n{node} was to give {:?}, and gave {shown:?}", self.expected(node)));
        }
    }

    /// What a node gives that is not cancelled.
    pub(crate) fn expected(&self, node: usize) -> Expected {
        let node = &self.program.nodes[node];
        match (node.who, node.behaviour) {
            (Who::CrashingActor | Who::Versioned | Who::ReplacedTool, _) => Expected::Anything,
            (Who::UnknownPeer, _) => Expected::Failure("Unknown agent"),
            (Who::UnknownTool, _) => Expected::Failure("unknown_tool"),
            (_, Behaviour::Fail) => Expected::Failure("drawn"),
            (_, Behaviour::Panic(_) | Behaviour::ReturnHolding) => Expected::Failure("panicked"),
            (_, Behaviour::Drop) => Expected::Failure("without an answer"),
            _ => Expected::Text,
        }
    }
}

/// What a node gives that is not cancelled.
#[derive(Debug)]
pub(crate) enum Expected {
    Text,
    /// An error with these words.
    Failure(&'static str),
    /// The text, or the error of a peer that is dead or has left.
    Anything,
}

/// Whether a call of a peer that may be dead, or may have left, may end so.
fn is_of_one_that_left(error: &CallError) -> bool {
    matches!(error, CallError::Unanswered { .. } | CallError::Unreachable { .. } | CallError::UnknownAgent { .. })
}

/// A future of a model, tool or user that has not been dropped.
pub(crate) struct AliveGuard {
    world: Arc<World>,
    node: usize,
}

impl Drop for AliveGuard {
    fn drop(&mut self) {
        self.world.root_of(self.node).alive.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A blocking function that runs.
pub(crate) struct BlockingGuard {
    world: Arc<World>,
    place: usize,
}

impl Drop for BlockingGuard {
    fn drop(&mut self) {
        let finish = (self.world.now(), std::thread::current().id());
        lock(&self.world.blocking_runs)[self.place].finish = Some(finish);
    }
}

/// A value whose drop panics, unless that would abort the process.
pub(crate) struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "drawn: a panic in a drop");
    }
}

impl Holding {
    pub(crate) fn take(self) -> Option<PanicOnDrop> {
        (self == Self::PanicOnDrop).then(|| PanicOnDrop)
    }
}

impl Payload {
    pub(crate) fn panic(self) -> ! {
        match self {
            Self::Text => panic!("drawn: a panic"),
            Self::Number => std::panic::panic_any(42_u8),
            Self::PanicOnDrop => std::panic::panic_any(PanicOnDrop),
        }
    }
}

pub(crate) async fn yield_now(times: usize) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

/// Waits until a condition holds, with an end.
pub(crate) fn settles(limit: Duration, condition: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !condition() {
        if begun.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Locks, whatever became of the thread that held the lock before.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
