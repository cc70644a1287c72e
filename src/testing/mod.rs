//! Helpers for tests of your own tools, actors and agents.
//!
//! - [`TestCall`] gives a tool its [`ToolContext`] and an actor its [`Incoming`], without a runtime.
//! - [`Log::assert_calls`](crate::Log::assert_calls) compares the calls of a run with those that a test expects.
//! - [`Scripted`](crate::providers::scripted::Scripted) is a model that follows a script.
//! - [`Runtime::prompt_of`](crate::Runtime::prompt_of) returns the system prompt and the tools of an agent.

mod calls;
mod difference;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::actor_peer::{Incoming, ReplyPort};
use crate::agent::Agent;
use crate::call_id::CallId;
use crate::call_id_source::ChildIds;
use crate::caller::{Answerer, CallAgent, Caller, ToolWork};
use crate::content::Content;
use crate::context::ChatMessage;
use crate::delivery::{ActorPart, Deliver, Delivery, ScopedCaller};
use crate::error::CallError;
use crate::event::EventKind;
use crate::invocation::Callee;
use crate::message::Forward;
use crate::name::{Name, USER};
use crate::observers::{Events, OpenStreams};
use crate::outcome::{Outcome, Parent};
use crate::scope::Scope;
use crate::spans::Spans;
use crate::threads::{BlockingThreads, DEFAULT_THREADS};
use crate::tool_call::Progress;
use crate::tool_interface::ToolContext;

/// A call in which a tool or an actor is tested, without a runtime, agents or models.
///
/// Calls that the tool or the actor makes get their answers from [`TestCall::answered_by`], whatever name they call.
/// They end as real calls do: when they are dropped, when the actor has answered, and with [`TestCall::cancel`]. Limits
/// of a [budget](crate::Call::budget) do not apply.
///
/// A tool:
///
/// ```
/// use agentouto::testing::TestCall;
/// use agentouto::tool::{self, NoArguments};
/// use agentouto::{Arguments, CallError, Forward, Tool};
/// use std::sync::Arc;
///
/// struct Tenant(&'static str);
///
/// let ask = tool::function_with("ask", "Asks the writer.", |_: NoArguments, context| async move {
///     let tenant = context.get::<Tenant>().map_or("nobody", |tenant| tenant.0);
///     context.caller.call_agent("writer", format!("write for {tenant}")).await
/// });
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let test = TestCall::new("researcher", "a report, please")
///     .with(Tenant("acme"))
///     .answered_by(|forward: Arc<Forward>| async move { Ok::<_, CallError>(format!("done: {}", forward.content)) });
/// let output = ask.call(Arguments::new(), test.context()).await.unwrap();
/// assert_eq!(&*output.text, "done: write for acme");
/// assert_eq!(&*test.forwards()[0].receiver, "writer");
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// An actor, with a task in its place:
///
/// ```
/// use agentouto::testing::TestCall;
/// use agentouto::{CallError, Content};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let test = TestCall::new("librarian", "Which book?");
/// let incoming = test.incoming();
/// tokio::spawn(async move {
///     incoming.reply.send(Ok::<_, CallError>(format!("{} Dune.", incoming.forward.content)));
/// });
/// assert_eq!(test.answer().await, Ok(Content::from("Which book? Dune.")));
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TestCall {
    forward: Forward,
    answerer: Arc<dyn Answerer>,
    served: OnceLock<Arc<Served>>,
}

impl TestCall {
    /// A call of `agent` by the user `user`. The name is that of the agent which calls the tool, or of the actor.
    pub fn new(agent: impl Into<Name>, content: impl Into<Content>) -> Self {
        let forward = Forward::of_user(CallId::random(), &USER.into(), agent.into(), content.into());
        Self { forward, answerer: Arc::new(no_answers), served: OnceLock::new() }
    }

    /// Sets the conversation before the call.
    #[must_use]
    pub fn history(mut self, history: impl Into<Arc<[ChatMessage]>>) -> Self {
        self.forward.history = history.into();
        self
    }

    /// Lends a value to the tool or the actor, see [`Call::with`](crate::Call::with).
    #[must_use]
    pub fn with<V: Send + Sync + 'static>(mut self, value: V) -> Self {
        self.forward.run_mut().lend(value);
        self
    }

    /// Expects an answer of type `A` from an actor, see [`Call::typed`](crate::Call::typed).
    #[must_use]
    pub fn typed<A: DeserializeOwned + JsonSchema>(mut self) -> Self {
        self.forward.answer_type = Agent::new("test", "").answers::<A>().answer_type;
        self
    }

    /// Sets what answers the calls that the tool or the actor makes. Default: every call fails.
    #[must_use]
    pub fn answered_by(mut self, answerer: impl Answerer) -> Self {
        self.answerer = Arc::new(answerer);
        self
    }

    /// Returns the context of a tool call within this call. Each has an id of its own. Options that are set later have
    /// no effect.
    #[must_use]
    pub fn context(&self) -> ToolContext {
        let served = self.served();
        let forward = &served.outcome.forward;
        let nth = served.contexts.fetch_add(1, Ordering::Relaxed);
        let inner = served.caller(&served.scope.child(), forward.call_id.child(nth));
        ToolContext {
            call_id: forward.call_id,
            agent: Arc::clone(&forward.receiver),
            tool_call_id: format!("call_{nth}").into(),
            caller: Caller(Arc::new(TestCaller { inner, served: Arc::clone(served) })),
            run: Arc::clone(&forward.run),
        }
    }

    /// Returns the call as an actor gets it. The actor's answer is what [`TestCall::answer`] returns. Options that are
    /// set later have no effect.
    #[must_use]
    pub fn incoming(&self) -> Incoming {
        let served = self.served();
        let (call, scope) = (Arc::clone(&served.outcome), served.below.clone());
        let caller = served.caller(&scope, call.forward.call_id);
        let _below = scope.cancel_on_drop();
        Incoming {
            forward: Arc::clone(&call.forward),
            caller: Caller(Arc::new(caller)),
            reply: ReplyPort { call, scope, part: Arc::downgrade(&served.part), _below },
        }
    }

    /// Waits for the answer of the actor that got [`TestCall::incoming`]; without an actor it waits forever.
    ///
    /// # Errors
    ///
    /// The actor's error; [`CallError::Unanswered`] if the port was dropped unused; [`CallError::Cancelled`] after
    /// [`TestCall::cancel`].
    pub async fn answer(&self) -> Result<Content, CallError> {
        self.served().answer.clone().await
    }

    /// Cancels the call, as its caller would. Calls that are running end, and [`ReplyPort::cancelled`] returns.
    pub fn cancel(&self) {
        let served = self.served();
        served.scope.cancel();
        served.outcome.withdraw();
        served.part.end();
    }

    /// The progress that the tool has reported so far.
    #[must_use]
    pub fn progress(&self) -> Vec<Progress> {
        self.served().observed(|kind| match kind {
            EventKind::ToolProgress { progress, .. } => Some(progress.clone()),
            _ => None,
        })
    }

    /// The Forwards that the tool or the actor has sent so far.
    #[must_use]
    pub fn forwards(&self) -> Vec<Arc<Forward>> {
        let served = self.served();
        served.observed(|kind| match kind {
            EventKind::Forward { forward } if forward.call_id != served.outcome.forward.call_id => {
                Some(Arc::clone(forward))
            }
            _ => None,
        })
    }

    fn served(&self) -> &Arc<Served> {
        self.served.get_or_init(|| Arc::new(Served::new(self.forward.clone(), Arc::clone(&self.answerer))))
    }
}

impl fmt::Debug for TestCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestCall").field("forward", &self.forward).finish_non_exhaustive()
    }
}

impl ToolContext {
    /// A context for the test of a tool, of an agent `test`. To set what it holds, see [`TestCall`].
    #[must_use]
    pub fn for_test() -> Self {
        TestCall::new("test", "").context()
    }
}

impl Incoming {
    /// A message for the test of an actor, and the call in which it is sent, to await the actor's answer. To set what
    /// it holds, see [`TestCall`].
    pub fn for_test(content: impl Into<Content>) -> (Self, TestCall) {
        let test = TestCall::new("test", content);
        (test.incoming(), test)
    }
}

async fn no_answers(forward: Arc<Forward>) -> Result<Content, CallError> {
    let reason = "in a `TestCall`, only `TestCall::answered_by` answers calls".into();
    Err(CallError::Unreachable { name: Arc::clone(&forward.receiver), reason })
}

/// A test call that has begun.
struct Served {
    outcome: Arc<Outcome>,
    /// The result of the call, for any number of tasks.
    answer: Shared<BoxFuture<'static, Result<Content, CallError>>>,
    scope: Scope,
    /// The scope of what an actor does for the call.
    below: Scope,
    part: Arc<ActorPart>,
    deliver: Arc<dyn Deliver>,
    /// The number of tool contexts.
    contexts: AtomicU64,
    events: Mutex<(Option<Events>, Vec<EventKind>)>,
}

/// The number of events that may wait until they are read.
const EVENTS_WAITING: usize = 1 << 20;

impl Served {
    fn new(forward: Forward, answerer: Arc<dyn Answerer>) -> Self {
        let scope = Scope::root(BlockingThreads::new(DEFAULT_THREADS), Arc::new(Spans::new(false))).held_child();
        let events = scope.call_observers().map(|observers| observers.stream(EVENTS_WAITING));
        let streams = Arc::new(OpenStreams(Arc::clone(scope.runtime_observers())));
        let parent = Parent::Runtime { _streams: streams, _id: None };
        let call = Outcome::open(Arc::new(forward), scope.clone(), parent);
        call.send();
        let (outcome, below) = (Arc::clone(call.outcome()), scope.child());
        let deliver: Arc<dyn Deliver> = Arc::new(Answers(answerer));
        let part = Arc::new(ActorPart::new(call, below.clone(), Arc::clone(&deliver)));
        let events = Mutex::new((events, Vec::new()));
        let answered = Arc::clone(&outcome);
        let answer = std::future::poll_fn(move |context| answered.poll_result(context)).boxed().shared();
        Self { outcome, answer, scope, below, part, deliver, contexts: AtomicU64::new(0), events }
    }

    fn caller(&self, scope: &Scope, id: CallId) -> ScopedCaller {
        let (deliver, call) = (Arc::downgrade(&self.deliver), Arc::clone(&self.outcome));
        ScopedCaller { deliver, scope: scope.clone(), call, ids: ChildIds::under(id) }
    }

    fn observed<T>(&self, part: impl Fn(&EventKind) -> Option<T>) -> Vec<T> {
        let (events, kinds) = &mut *self.events.lock();
        while let Some(event) = events.as_mut().and_then(Events::try_next) {
            kinds.push(event.kind);
        }
        kinds.iter().filter_map(part).collect()
    }
}

/// The peer that is found under every name.
struct Answers(Arc<dyn Answerer>);

impl Deliver for Answers {
    fn deliver(self: Arc<Self>, forward: Forward, scope: &Scope, parent: Parent) -> Delivery {
        let call = Outcome::open(Arc::new(forward), scope.clone(), parent);
        call.send();
        Delivery::to(Box::new(Callee::User(Arc::clone(&self.0))), call)
    }
}

/// The caller of a tool under test. It keeps the call alive, so that a context may outlive its [`TestCall`].
struct TestCaller {
    inner: ScopedCaller,
    served: Arc<Served>,
}

impl CallAgent for TestCaller {
    fn forward(&self, agent: Name, content: Content) -> Forward {
        self.inner.forward(agent, content)
    }

    fn send(&self, forward: Forward) -> BoxFuture<'static, Result<Content, CallError>> {
        let (sending, served) = (self.inner.send(forward), Arc::clone(&self.served));
        Box::pin(async move {
            let _served = served;
            sending.await
        })
    }

    fn emit(&self, kind: EventKind) {
        self.inner.emit(kind);
    }

    fn run_blocking(&self, work: ToolWork) -> ToolWork {
        self.inner.run_blocking(work)
    }
}
