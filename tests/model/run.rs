//! Runs a program, and looks at what it left.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use agentouto::{CallError, CallId, Content, Event, Events, Log, Runtime};
use futures_util::{FutureExt as _, poll};
use ractor::{Actor as _, ActorRef};
use tokio::sync::oneshot;

use crate::check;
use crate::program::{Mode, Place, Replacement, Root, Shutdown, Who};
use crate::team::{self, ACTORS, ActorMessage, TestActor, replace_versioned, use_kept};
use crate::world::{Answering, World, yield_now};

/// Which kind of tokio runtime a program runs on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Flavour {
    CurrentThread,
    MultiThread,
}

impl Flavour {
    pub(crate) fn build(self, pool: Option<usize>) -> tokio::runtime::Runtime {
        let mut builder = match self {
            Self::CurrentThread => tokio::runtime::Builder::new_current_thread(),
            Self::MultiThread => tokio::runtime::Builder::new_multi_thread(),
        };
        if self == Self::MultiThread {
            builder.worker_threads(2);
        }
        if let Some(threads) = pool {
            builder.max_blocking_threads(threads);
        }
        builder.enable_all().build().expect("a tokio runtime")
    }
}

/// The most events of one program.
const MAX_EVENTS: usize = 1 << 20;

/// Runs the program of a world, and gives everything that was seen and must not be.
pub(crate) fn execute(world: &Arc<World>, flavour: Flavour) -> Vec<String> {
    let tokio = flavour.build(world.program.pool);
    tokio.block_on(run(world));
    world.stage("the end of the tokio runtime");
    drop(tokio);
    world.failures()
}

async fn run(world: &Arc<World>) {
    let mut actors = Vec::new();
    for who in ACTORS {
        let member = TestActor { world: Arc::clone(world), who };
        actors.push(TestActor::spawn(None, member, ()).await.expect("an actor"));
    }
    let refs: Vec<_> = actors.iter().map(|(actor, _)| actor.clone()).collect();
    let runtime = match team::runtime(world, &refs) {
        Ok(runtime) => runtime,
        Err(error) => return world.fail(format!("the team could not be built: {error}")),
    };
    world.set_runtime(runtime.clone());
    let streams = Streams::open(world, &runtime);
    let held = Held::default();
    let resume = Resume::default();

    run_roots(world, &runtime, &held, &resume).await;
    last_shutdown(world, &runtime).await;

    world.stage("calls on a tokio runtime that was left alone");
    resume.all().await;
    for (root, calling) in held.take() {
        world.stage(format!("root {root}, which was kept until after the shutdown"));
        let result = calling.await;
        world.check_result(world.program.roots[root].node, &result);
    }
    for kept in world.take_kept(None) {
        world.stage("what was kept in a tool or an actor until after the shutdown");
        use_kept(world, kept).await;
    }
    world.stage("tasks that tools and actors spawned");
    for task in world.take_tasks() {
        let _ = task.await;
    }
    after_shutdown(world, &runtime).await;
    streams.check(world).await;
    late_stream(world, &runtime).await;
    stop_actors(world, actors).await;
    check_ends(world);
    world.drop_runtime();
}

/// Makes the calls, and does to them what the program says. It ends when all calls have ended that end by themselves.
async fn run_roots(world: &Arc<World>, runtime: &Runtime, held: &Held, resume: &Resume) {
    if world.program.shutdown == Shutdown::Before {
        shut_down(world, runtime).await;
    }
    let roots = (0..world.program.roots.len()).map(|root| start(world, runtime, root, held, resume));
    let roots: Vec<_> = roots.collect();
    let background = [
        tokio::spawn(signal(Arc::clone(world))),
        tokio::spawn(change(Arc::clone(world), runtime.clone())),
        tokio::spawn(shut_down_meanwhile(Arc::clone(world), runtime.clone())),
    ];
    for (nth, root) in roots.into_iter().enumerate() {
        world.stage(format!("root {nth}, which ends by itself"));
        match world.program.nodes[world.program.roots[nth].node].parks && world.program.roots[nth].mode.is_awaited() {
            // It may wait for the shutdown.
            true => drop(tokio::time::timeout(Duration::from_millis(2), root).await),
            false => drop(root.await),
        }
    }
    for task in background {
        world.stage("signals, changes of the team, and the shutdown meanwhile");
        if let Err(error) = task.await {
            world.fail(format!("a task of the model itself failed: {error}"));
        }
    }
}

/// Starts a root where the program says; the receiver hears of its end.
fn start(world: &Arc<World>, runtime: &Runtime, root: usize, held: &Held, resume: &Resume) -> oneshot::Receiver<()> {
    let (end, ended) = oneshot::channel();
    let calling = call_root(Arc::clone(world), runtime.clone(), root, held.clone());
    let whole = async move {
        calling.await;
        let _ = end.send(());
    };
    let flavour = match world.program.roots[root].place {
        Place::Here => {
            world.spawn(whole);
            return ended;
        }
        Place::SecondCurrentThread | Place::LostCurrentThread => Flavour::CurrentThread,
        Place::SecondMultiThread | Place::LostMultiThread => Flavour::MultiThread,
        Place::Undriven => {
            let (go_on, may_go_on) = mpsc::channel();
            let (rest, is_left) = (Box::pin(whole), oneshot::channel());
            world.add_thread(std::thread::spawn(move || drive_now_and_then(rest, is_left.0, &may_go_on)));
            resume.add(go_on, ended);
            return is_left.1;
        }
    };
    if world.program.roots[root].place.is_lost() {
        let moment = Arc::clone(world);
        world.add_thread(std::thread::spawn(move || {
            let tokio = flavour.build(None);
            tokio.spawn(whole);
            tokio.block_on(moment.moment(moment.program.stop));
        }));
        return ended;
    }
    let over = world.over();
    world.add_thread(std::thread::spawn(move || {
        flavour.build(None).block_on(async {
            whole.await;
            over.await;
        });
    }));
    ended
}

/// Drives a future for a moment, leaves it alone, and drives it to its end.
fn drive_now_and_then(
    mut future: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
    left: oneshot::Sender<()>,
    may_go_on: &mpsc::Receiver<()>,
) {
    let tokio = Flavour::CurrentThread.build(None);
    let is_over = tokio.block_on(async { tokio::time::timeout(Duration::from_millis(1), &mut future).await.is_ok() });
    let _ = left.send(());
    let _ = may_go_on.recv();
    if !is_over {
        tokio.block_on(future);
    }
}

/// The calls that go on after the shutdown: how to let them, and how to hear of their end.
#[derive(Default)]
struct Resume(Mutex<Vec<(mpsc::Sender<()>, oneshot::Receiver<()>)>>);

impl Resume {
    fn add(&self, go_on: mpsc::Sender<()>, ended: oneshot::Receiver<()>) {
        crate::world::lock(&self.0).push((go_on, ended));
    }

    async fn all(&self) {
        let all = std::mem::take(&mut *crate::world::lock(&self.0));
        for (go_on, ended) in all {
            let _ = go_on.send(());
            let _ = ended.await;
        }
    }
}

/// Calls of `User::caller` that are kept until after the shutdown.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<Vec<(usize, Answering)>>>);

impl Held {
    fn add(&self, root: usize, calling: Answering) {
        crate::world::lock(&self.0).push((root, calling));
    }

    fn take(&self) -> Vec<(usize, Answering)> {
        std::mem::take(&mut *crate::world::lock(&self.0))
    }
}

async fn call_root(world: Arc<World>, runtime: Runtime, root: usize, held: Held) {
    let Root { node, mode, delay, .. } = world.program.roots[root];
    yield_now(delay).await;
    let (name, content) = world.address(node);
    let user = runtime.user("tester");
    match mode {
        Mode::Run => {
            let call = pin!(runtime.run(name, content));
            let ended = noted(&world, root, call).await;
            over(
                &world,
                root,
                ended.map(|report| (report.output, report.log)).map_err(|error| (error.error, error.log)),
            );
        }
        Mode::Caller | Mode::CallerDrop(_) | Mode::CallerUnpolled | Mode::CallerPolledOnce => {
            let calling = user.caller().call_agent(name, content);
            call_without_log(&world, root, calling, held).await;
        }
        _ => call_with_log(&world, root, user.forward(name, content)).await,
    }
    world.roots[root].is_polled.store(true, Ordering::SeqCst);
    world.roots[root].is_over.store(true, Ordering::SeqCst);
    // A call without a log may be over before all is that is below it.
    if mode.is_held_to_its_end() && !world.may_be_undriven(root) {
        for kept in world.take_kept(Some(root)) {
            use_kept(&world, kept).await;
        }
    }
}

async fn call_without_log(world: &Arc<World>, root: usize, mut calling: Answering, held: Held) {
    let Root { node, mode, .. } = world.program.roots[root];
    match mode {
        Mode::CallerDrop(moment) => {
            let moment = pin!(world.moment(moment));
            tokio::select! {
                biased;
                result = noted(world, root, &mut calling) => return world.check_result(node, &result),
                () = moment => {}
            }
            world.withdraw(root);
        }
        Mode::CallerUnpolled => held.add(root, calling),
        Mode::CallerPolledOnce => match poll!(&mut calling) {
            Poll::Ready(result) => world.check_result(node, &result),
            Poll::Pending => held.add(root, calling),
        },
        _ => world.check_result(node, &noted(world, root, calling).await),
    }
}

async fn call_with_log(world: &Arc<World>, root: usize, mut call: agentouto::Call) {
    let mut events = Vec::new();
    let call_id = call.call_id();
    match world.program.roots[root].mode {
        Mode::Events => read(world, root, &mut call, &mut events, usize::MAX).await,
        Mode::CancelAfterEvents(count) => {
            let moment = pin!(tokio::time::sleep(Duration::from_millis(2)));
            tokio::select! {
                () = read(world, root, &mut call, &mut events, count) => {}
                () = moment => {}
            }
            world.withdraw(root);
            call.cancel();
            read(world, root, &mut call, &mut events, usize::MAX).await;
        }
        Mode::CancelUnsent => {
            world.withdraw(root);
            call.cancel();
        }
        Mode::Cancel(moment) => {
            let moment = pin!(world.moment(moment));
            tokio::select! {
                biased;
                ended = noted(world, root, &mut call) => return end(world, root, call, ended).await,
                () = moment => {}
            }
            world.withdraw(root);
            call.cancel();
        }
        Mode::Drop(moment) => {
            let moment = pin!(world.moment(moment));
            tokio::select! {
                biased;
                ended = noted(world, root, &mut call) => return end(world, root, call, ended).await,
                () = moment => {}
            }
            world.withdraw(root);
            return;
        }
        _ => {}
    }
    let ended = noted(world, root, &mut call).await;
    if matches!(world.program.roots[root].mode, Mode::Events | Mode::CancelAfterEvents(_)) {
        check::stream(world, &events, &format!("what root {root} read by next_event"));
        let is_sent = world.program.roots[root].mode == Mode::Events && !world.is_shutting();
        if is_sent && !events.iter().any(|event| event.call_id == call_id) {
            world.fail(format!("root {root} read no event of its own"));
        }
        if call.lost_events() > 0 {
            world.fail(format!("root {root} lost {} events", call.lost_events()));
        }
    }
    end(world, root, call, ended).await;
}

/// Reads so many events, or all that there are.
async fn read(world: &World, root: usize, call: &mut agentouto::Call, events: &mut Vec<Event>, count: usize) {
    while events.len() < count {
        let next = pin!(call.next_event());
        match noted(world, root, next).await {
            Some(event) => events.push(event),
            None => return,
        }
    }
}

type Ended = Result<agentouto::Report, agentouto::RunError>;

/// Looks at the end of a call, and polls it again.
async fn end(world: &Arc<World>, root: usize, call: agentouto::Call, ended: Ended) {
    let parts =
        |ended: Ended| ended.map(|report| (report.output, report.log)).map_err(|error| (error.error, error.log));
    let shown = |ended: &Ended| match ended {
        Ok(report) => format!("{:?} with {} messages", report.output, report.log.messages().count()),
        Err(error) => format!("{:?} with {} messages", error.error, error.log.messages().count()),
    };
    let before = shown(&ended);
    over(world, root, parts(ended));
    if world.parts.checks("again") {
        let after = shown(&call.await);
        if before != after {
            world.fail(format!("root {root} gave {before}, and polled again {after}"));
        }
    }
}

/// Looks at the outcome of a call with a log.
fn over(world: &Arc<World>, root: usize, ended: Result<(Arc<str>, Log), (CallError, Log)>) {
    let state = &world.roots[root];
    if !world.may_be_undriven(root) {
        let alive = state.alive.load(Ordering::SeqCst);
        if alive > 0 {
            world.fail(format!("root {root} is over, and {alive} futures below it live"));
        }
        world.record_end(root);
    }
    let (result, log) = match ended {
        Ok((text, log)) => (Ok(Content::from(text)), log),
        Err((error, log)) => (Err(error), log),
    };
    world.check_result(world.program.roots[root].node, &result);
    check::log(world, &log, &format!("the log of root {root}"));
    world.keep_log(root, calls_of(&log));
}

/// The same future; that it has been polled is noted.
async fn noted<F: Future + Unpin>(world: &World, root: usize, mut future: F) -> F::Output {
    std::future::poll_fn(|context| {
        let polled = future.poll_unpin(context);
        world.roots[root].is_polled.store(true, Ordering::SeqCst);
        polled
    })
    .await
}

/// Stops loops and releases what blocks, when the program says so.
async fn signal(world: Arc<World>) {
    let stop = async {
        world.moment(world.program.stop).await;
        world.stop();
    };
    let release = async {
        if let Some(moment) = world.program.release {
            world.moment(moment).await;
            world.release();
        }
    };
    tokio::join!(stop, release);
}

/// Lets an agent and a tool leave and join.
async fn change(world: Arc<World>, runtime: Runtime) {
    for replacement in &world.program.replacements {
        match replacement {
            Replacement::After(yields) => {
                yield_now(*yields).await;
                replace_versioned(&world, &runtime);
            }
            Replacement::InWaker => replace_in_waker(&world, &runtime).await,
        }
        // A call that is made now must be told the new instructions.
        call_versioned(&world, &runtime).await;
    }
    for _ in 0..world.program.tool_changes {
        runtime.remove_tool(Who::ReplacedTool.name());
        tokio::task::yield_now().await;
        if let Err(error) = runtime.add_tool(team::function(&world, Who::ReplacedTool.name())) {
            world.fail(format!("the guest could not join: {error}"));
        }
    }
}

/// Calls the agent of many versions, whose model compares its instructions with the newest.
async fn call_versioned(world: &Arc<World>, runtime: &Runtime) {
    let (name, content) = world.address(world.program.spare);
    let result = runtime.user("tester").caller().call_agent(name, content).await;
    world.check_result(world.program.spare, &result);
}

/// Replaces the agent when an event is told, which may be in the middle of a call's beginning.
async fn replace_in_waker(world: &Arc<World>, runtime: &Runtime) {
    struct Replace(Mutex<Option<(Arc<World>, Runtime)>>);

    impl Wake for Replace {
        fn wake(self: Arc<Self>) {
            let replacing = crate::world::lock(&self.0).take();
            if let Some((world, runtime)) = replacing {
                // As another thread might do just then.
                let _ = std::thread::spawn(move || replace_versioned(&world, &runtime)).join();
            }
        }
    }

    let mut events = runtime.events(1);
    let replace = Arc::new(Replace(Mutex::new(Some((Arc::clone(world), runtime.clone())))));
    let is_waiting = {
        let mut next = pin!(events.next());
        next.as_mut().poll(&mut Context::from_waker(&Arc::clone(&replace).into())).is_pending()
    };
    if is_waiting {
        call_versioned(world, runtime).await;
    }
    drop(events);
    // If nothing was told: at once.
    if crate::world::lock(&replace.0).take().is_some() {
        replace_versioned(world, runtime);
    }
}

async fn shut_down_meanwhile(world: Arc<World>, runtime: Runtime) {
    match world.program.shutdown {
        Shutdown::At(moment) => {
            world.moment(moment).await;
            shut_down(&world, &runtime).await;
        }
        Shutdown::DroppedAt(moment) => {
            world.moment(moment).await;
            world.begin_shutdown();
            let _ = poll!(pin!(runtime.shutdown()));
        }
        Shutdown::After | Shutdown::Before => {}
    }
}

/// The shutdown that every program ends with.
async fn last_shutdown(world: &Arc<World>, runtime: &Runtime) {
    let is_polled = |root: &crate::world::RootState| root.is_polled.load(Ordering::SeqCst);
    let all_polled = world.roots.iter().all(is_polled);
    shut_down(world, runtime).await;
    if all_polled {
        check_invocations(world, runtime).await;
    }
    world.stage("the end of all roots after the shutdown");
    let is_over = |root: usize| {
        let is_elsewhere = world.may_be_undriven(root) || world.is_lost(root);
        world.roots[root].is_over.load(Ordering::SeqCst) || is_elsewhere
    };
    while !(0..world.roots.len()).all(is_over) {
        tokio::time::sleep(Duration::from_micros(50)).await;
    }
}

async fn shut_down(world: &Arc<World>, runtime: &Runtime) {
    world.stage("the shutdown");
    world.begin_shutdown();
    runtime.shutdown().await;
    for (nth, root) in world.roots.iter().enumerate() {
        let alive = root.alive.load(Ordering::SeqCst);
        if alive > 0 && !world.may_be_undriven(nth) {
            world.fail(format!("the shutdown has returned, and {alive} futures below root {nth} live"));
        }
        if !world.may_be_undriven(nth) {
            world.record_end(nth);
        }
    }
}

/// What holds from the end of the shutdown on.
async fn after_shutdown(world: &Arc<World>, runtime: &Runtime) {
    check_invocations(world, runtime).await;
    world.stage("a call after the shutdown");
    let (name, content) = world.address(world.program.spare);
    let result = runtime.run(name, content).await;
    match result {
        Err(error) if error.error == CallError::ShutDown => {
            check::log(world, &error.log, "the log of a call after the shutdown")
        }
        other => world.fail(format!("a call after the shutdown gave {:?}", other.map(|report| report.output))),
    }
    world.stage("a second shutdown");
    runtime.shutdown().await;
}

async fn check_invocations(world: &Arc<World>, runtime: &Runtime) {
    let mut seen = runtime.invocations();
    // Calls that tools left behind are refused as they come; they may be counted for that moment.
    for _ in 0..1_000 {
        if seen == 0 || world.program.roots.iter().any(|root| root.place == Place::Undriven) {
            return;
        }
        tokio::time::sleep(Duration::from_micros(100)).await;
        seen = runtime.invocations();
    }
    world.fail(format!("after the shutdown, {seen} invocations are counted"));
}

async fn late_stream(world: &Arc<World>, runtime: &Runtime) {
    if world.parts.checks("late_streams") {
        world.stage("the end of a stream that was opened after the shutdown");
        match tokio::time::timeout(Duration::from_secs(2), runtime.events(8).next()).await {
            Ok(None) => {}
            Ok(Some(event)) => world.fail(format!("a stream that was opened after the shutdown shows {event:?}")),
            Err(_) => world.fail("a stream that was opened after the shutdown does not end"),
        }
    }
}

/// Finds all actors free, and ends them; then releases what still blocks.
async fn stop_actors(world: &Arc<World>, actors: Vec<(ActorRef<ActorMessage>, tokio::task::JoinHandle<()>)>) {
    for (who, (actor, ended)) in ACTORS.iter().zip(actors) {
        world.stage(format!("the actor `{}`, which must be free when all calls are over", who.name()));
        let (free, is_free) = oneshot::channel();
        if actor.cast(ActorMessage::Ping(free)).is_ok() && is_free.await.is_err() && *who != Who::CrashingActor {
            world.fail(format!("the actor `{}` died", who.name()));
        }
        world.stage(format!("the end of the actor `{}`", who.name()));
        actor.kill();
        let _ = ended.await;
    }
    for task in world.take_tasks() {
        let _ = task.await;
    }
    let marks: Vec<_> = world.roots.iter().map(|root| root.started.load(Ordering::SeqCst)).collect();
    world.stop();
    world.release();
    world.stage("blocking functions that were released");
    while world.is_blocking() {
        tokio::time::sleep(Duration::from_micros(50)).await;
    }
    world.stage("threads with a tokio runtime of their own");
    world.end();
    while !world.take_threads_if_over() {
        tokio::time::sleep(Duration::from_micros(50)).await;
    }
    yield_now(3).await;
    for (nth, (root, mark)) in world.roots.iter().zip(marks).enumerate() {
        let started = root.started.load(Ordering::SeqCst);
        if started > mark {
            world.fail(format!("{} things began below root {nth} after all was over", started - mark));
        }
    }
}

/// What held when a call was over still holds.
fn check_ends(world: &World) {
    for (nth, root) in world.roots.iter().enumerate() {
        let end = *crate::world::lock(&root.end);
        let started = root.started.load(Ordering::SeqCst);
        if let Some((_, mark)) = end.filter(|(_, mark)| started > *mark) {
            world.fail(format!("{} models, tools or users began below root {nth} after its end", started - mark));
        }
    }
    for node in world.late_blocking_runs() {
        world.fail(format!("the blocking function of n{node} began after its call was over"));
    }
}

/// The streams of all events that were opened at the start.
struct Streams {
    whole: Whole,
    small: Vec<(usize, Events)>,
}

/// The stream that loses nothing.
enum Whole {
    Unread(Events),
    Reading(tokio::task::JoinHandle<(Vec<Event>, u64)>),
}

impl Streams {
    fn open(world: &World, runtime: &Runtime) -> Self {
        let events = runtime.events(MAX_EVENTS);
        let whole = match world.program.reads_at_once {
            true => Whole::Reading(tokio::spawn(read_all(events))),
            false => Whole::Unread(events),
        };
        Self { whole, small: world.program.streams.iter().map(|size| (*size, runtime.events(*size))).collect() }
    }

    async fn check(self, world: &Arc<World>) {
        world.stage("the end of the stream of all events");
        let (events, lost) = match self.whole {
            Whole::Unread(events) => read_all(events).await,
            Whole::Reading(reading) => reading.await.expect("it only reads"),
        };
        if lost > 0 {
            world.fail(format!("a stream with room for all events lost {lost}"));
        }
        check::stream(world, &events, "the stream of all events");
        check::logs_are_in(world, &events);
        for (size, small) in self.small {
            world.stage(format!("the end of a stream with room for {size}"));
            let (read, lost) = read_all(small).await;
            if read.len() as u64 + lost != events.len() as u64 {
                world.fail(format!(
                    "a stream with room for {size} gave {} events and lost {lost}; there were {}",
                    read.len(),
                    events.len()
                ));
            }
        }
    }
}

async fn read_all(mut events: Events) -> (Vec<Event>, u64) {
    let mut all = Vec::new();
    while let Some(event) = events.next().await {
        all.push(event);
    }
    (all, events.lost())
}

/// The calls of a log, in order of their Forwards.
fn calls_of(log: &Log) -> Vec<CallId> {
    let ids = log.messages().filter_map(|message| match message {
        agentouto::Message::Forward(forward) => Some(forward.call_id),
        agentouto::Message::Return(_) => None,
    });
    ids.collect()
}
