//! A cache for the results of a tool: [`Cached`], a tool that wraps another one.
//!
//! Nothing is spawned. The callers that wait for a run poll it, and it ends when none of them waits any more.

mod key;
mod lru_cache;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::lru_cache::{Bounds, LruCache};
use crate::caller::{CallAgent, Caller, ToolWork};
use crate::content::Content;
use crate::error::CallError;
use crate::event::EventKind;
use crate::message::Forward;
use crate::name::Name;
use crate::run_context::Admission;
use crate::tool_call::{Arguments, ToolError};
use crate::tool_interface::{Tool, ToolContext};
use crate::tools::wrapper::{InnerTool, ToolWrapper};

/// A tool that keeps the results of another tool for a while: the same call gets the same result, and the tool is not
/// run again.
///
/// Use it for tools that look something up and give every caller the same result. Do not use it for tools that change
/// something, or that call agents which may make the same call: that call would wait for itself.
///
/// ```
/// use std::time::Duration;
/// use agentouto::ToolExt as _;
/// use agentouto::tool::{self, NoArguments};
///
/// let weather = tool::function("weather", "The weather.", |_: NoArguments| async { "sunny" });
/// let weather = weather.cached(Duration::from_secs(60));
/// # let _: &dyn agentouto::Tool = &weather;
/// ```
///
/// **Values that callers [lend](crate::Call::with)**, such as a tenant, are not seen by the tool, nor by the agents
/// that it calls, so the result of one tenant cannot reach another. [`keyed_by`](Self::keyed_by) says how a result
/// depends on them.
///
/// **The same call** has equal arguments as JSON. The order of keys does not matter, and neither does the notation of a
/// number: `1`, `1.0` and `1e0` are one number. A missing key is not the same as a key that is null.
///
/// **Concurrent calls** that are the same share one run of the tool. The run lasts as long as one of the callers waits;
/// cancelling one caller does not affect the others.
///
/// **Failures are not kept.** All callers that wait for a run that fails get its error; the next call runs the tool
/// again. A panic is such an error.
///
/// **The [`ToolContext`]** is that of the caller that began the run, without the lent values. Progress is reported to
/// that caller's observers alone, and agents are called in that caller's name and within its
/// [budget](crate::Call::budget); a kept result costs nothing. When that caller is cancelled, its calls of agents end.
/// If an agent's call was cancelled in a run, or its budget refused something to an agent or to one below it, the
/// result of the run, success or failure, is not kept and not given to the other callers: one of them begins a run of
/// its own. So it does where that caller was cancelled before a function that [blocks](crate::tool::blocking) had its
/// thread. Any other run is not affected by a cancellation of that caller.
///
/// **Each caller is [authorized](Tool::authorize)** by the tool inside before it gets a result.
///
/// **Observers** see [`EventKind::ToolCacheHit`] when a caller gets a kept result, or that of a run that another caller
/// began.
///
/// **The limits** are 1,000 results and 64 MiB of texts, attachments and arguments. The least recently used results are
/// removed first, and a result that is larger than the limit by itself is not kept. An expired result is removed when
/// it is asked for or when there is no more room.
pub struct Cached {
    tool: InnerTool,
    bounds: Bounds,
    group: Option<Box<GroupOf>>,
    store: Arc<Mutex<Store>>,
}

type GroupOf = dyn Fn(&ToolContext) -> String + Send + Sync;

impl Cached {
    /// Wraps a tool, and keeps its results for 5 minutes.
    pub fn around(tool: impl Tool) -> Self {
        let bounds = Bounds { time_to_live: Duration::from_secs(5 * 60), results: 1_000, bytes: 64 << 20 };
        Self { tool: InnerTool::new(tool), bounds, group: None, store: Arc::default() }
    }

    /// Keeps separate results for each text that `key` returns, and shares no run between them. The tool, and the
    /// agents that it calls, then see the lent values.
    ///
    /// The text must differ wherever the result may differ: by the values that the tool reads from its context, by the
    /// agent, by the user. Default: all callers share their results, and the tool sees no lent values.
    ///
    /// ```
    /// use std::time::Duration;
    /// use agentouto::tool::{self, NoArguments};
    /// use agentouto::{ToolContext, ToolExt as _};
    ///
    /// struct Tenant(String);
    ///
    /// fn tenant(context: &ToolContext) -> String {
    ///     context.get::<Tenant>().map_or_else(String::new, |tenant| tenant.0.clone())
    /// }
    ///
    /// let orders = tool::function_with("orders", "Lists the orders.", |_: NoArguments, context| async move {
    ///     format!("the orders of {}", tenant(&context))
    /// });
    /// let orders = orders.cached(Duration::from_secs(60)).keyed_by(tenant);
    /// # let _: &dyn agentouto::Tool = &orders;
    /// ```
    #[must_use]
    pub fn keyed_by(mut self, key: impl Fn(&ToolContext) -> String + Send + Sync + 'static) -> Self {
        self.group = Some(Box::new(key));
        self
    }

    /// Sets the time that a result is kept, counted from its arrival, on tokio's clock. Default: 5 minutes.
    #[must_use]
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.bounds.time_to_live = time;
        self
    }

    /// Sets the maximum number of results. Default: 1,000. With 0, only concurrent calls share a result.
    #[must_use]
    pub fn capacity(mut self, results: usize) -> Self {
        self.bounds.results = results;
        self
    }

    /// Sets the maximum size of texts, attachments and arguments, in bytes. Default: 64 MiB.
    #[must_use]
    pub fn capacity_bytes(mut self, bytes: usize) -> Self {
        self.bounds.bytes = bytes;
        self
    }

    async fn result(&self, arguments: Arguments, context: ToolContext) -> Result<Content, ToolError> {
        self.tool.authorize(&context)?;
        let group = self.group.as_ref().map(|group| group(&context));
        let key = key::of(group.as_deref(), &arguments);
        let hit = || {
            let (id, name) = (Arc::clone(&context.tool_call_id), Arc::clone(self.tool.name()));
            context.caller.0.emit(EventKind::ToolCacheHit { id, name });
        };
        loop {
            let run = match self.find(&key, &arguments, &context) {
                Found::Kept(content) => {
                    hit();
                    return Ok(content);
                }
                Found::New(run) => return run.await.result,
                Found::UnderWay(run) => run,
            };
            let Ended { result, is_cancelled } = run.await;
            if !is_cancelled {
                if result.is_ok() {
                    hit();
                }
                return result;
            }
        }
    }

    /// Returns the kept result, or the run that is under way, or a new run, which begins when it is first polled.
    fn find(&self, key: &Arc<str>, arguments: &Arguments, context: &ToolContext) -> Found {
        let mut store = self.store.lock();
        if let Some(content) = store.shelf.get(key, Instant::now()) {
            return Found::Kept(content);
        }
        if let Some(run) = store.runs.get(key).and_then(|(_, run)| run.upgrade()) {
            return Found::UnderWay(run);
        }
        store.begun += 1;
        let number = store.begun;
        let entry = Entry { store: Arc::clone(&self.store), key: Arc::clone(key), number };
        let (tool, bounds, arguments) = (self.tool.clone(), self.bounds, arguments.clone());
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let context = self.context_of_run(context.clone(), &is_cancelled);
        let running = async move {
            let result = tool.call(arguments, context).await;
            let is_cancelled = is_cancelled.load(Ordering::Relaxed);
            if let (Ok(content), false) = (&result, is_cancelled) {
                entry.store.lock().shelf.insert(&entry.key, content, &bounds, Instant::now());
            }
            Ended { result, is_cancelled }
        };
        let run = running.boxed().shared();
        if let Some(weak) = run.downgrade() {
            store.runs.insert(Arc::clone(key), (number, weak));
        }
        Found::New(run)
    }
}

impl Cached {
    /// The context of a run that this caller begins. Without a group it has no lent values.
    fn context_of_run(&self, mut context: ToolContext, is_cancelled: &Arc<AtomicBool>) -> ToolContext {
        let lends = self.group.is_some();
        if !lends {
            Arc::make_mut(&mut context.run).values.clear();
        }
        let caller = WatchedCaller {
            caller: context.caller.clone(),
            lends,
            admission: context.run.admission.clone(),
            is_cancelled: Arc::clone(is_cancelled),
        };
        ToolContext { caller: Caller(Arc::new(caller)), ..context }
    }
}

enum Found {
    Kept(Content),
    New(Run),
    UnderWay(Run),
}

/// One run of the tool, shared by all callers that wait for it.
type Run = Shared<Running>;
type Running = BoxFuture<'static, Ended>;

/// The end of a run.
#[derive(Clone)]
struct Ended {
    result: Result<Content, ToolError>,
    /// `true` if the caller that began the run was cancelled or limited in it, see [`WatchedCaller`]. The result is then
    /// meant for that caller, if for any.
    is_cancelled: bool,
}

/// The caller that began a run. It notes when a call of an agent was cancelled or its budget refused something below,
/// because the tool or an agent may turn that error into text, and then the result does not show it. It also notes when
/// work that blocks never began.
struct WatchedCaller {
    caller: Caller,
    /// `true` if the agents that it calls see the values that its own callers lent.
    lends: bool,
    /// Its limits, if it has any.
    admission: Option<Arc<dyn Admission>>,
    is_cancelled: Arc<AtomicBool>,
}

impl CallAgent for WatchedCaller {
    fn forward(&self, agent: Name, content: Content) -> Forward {
        let mut forward = self.caller.0.forward(agent, content);
        if !self.lends {
            forward.run_mut().values.clear();
        }
        forward
    }

    fn send(&self, forward: Forward) -> BoxFuture<'static, Result<Content, CallError>> {
        let (is_cancelled, admission) = (Arc::clone(&self.is_cancelled), self.admission.clone());
        let refusals = move || admission.as_ref().map_or(0, |admission| admission.refusals());
        let before = refusals();
        let see = move |answer: &Result<_, CallError>| {
            use CallError::{BudgetExceeded, Cancelled, ShutDown};
            let is_refused = matches!(answer, Err(Cancelled | ShutDown | BudgetExceeded { .. }));
            if is_refused || refusals() != before {
                is_cancelled.store(true, Ordering::Relaxed);
            }
        };
        self.caller.0.send(forward).inspect(see).boxed()
    }

    fn emit(&self, kind: EventKind) {
        self.caller.0.emit(kind);
    }

    fn run_blocking(&self, work: ToolWork) -> ToolWork {
        let (is_cancelled, has_begun) = (Arc::clone(&self.is_cancelled), Arc::new(AtomicBool::new(false)));
        let begun = Arc::clone(&has_begun);
        let work = async move {
            begun.store(true, Ordering::Relaxed);
            work.await
        };
        let see = move |_: &_| {
            if !has_begun.load(Ordering::Relaxed) {
                is_cancelled.store(true, Ordering::Relaxed);
            }
        };
        self.caller.0.run_blocking(Box::pin(work)).inspect(see).boxed()
    }
}

/// The results that are kept, and the runs that are under way. No foreign code runs, and no run is dropped, while it is
/// locked.
#[derive(Default)]
struct Store {
    shelf: LruCache,
    /// The runs by key, each with its number. The callers that wait for a run own it.
    runs: HashMap<Arc<str>, (u64, WeakShared<Running>)>,
    begun: u64,
}

/// The entry of a run in the store. It is removed on drop: when the run is over, or when no caller waits for it any
/// more.
struct Entry {
    store: Arc<Mutex<Store>>,
    key: Arc<str>,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let runs = &mut self.store.lock().runs;
        if runs.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            runs.remove(&self.key);
        }
    }
}

impl ToolWrapper for Cached {
    fn inner(&self) -> &InnerTool {
        &self.tool
    }

    /// Runs the tool or waits for its run.
    fn run(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        Box::pin(self.result(arguments, context))
    }
}

impl fmt::Debug for Cached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached").field("tool", &self.tool).field("bounds", &self.bounds).finish_non_exhaustive()
    }
}
