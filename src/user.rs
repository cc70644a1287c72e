//! The user: a peer without a model. It sends Forwards in the same way as every peer, and gets Returns.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, Stream};
use ractor::ActorId;
use tokio_util::sync::DropGuard;

use crate::answer_type::{self, Decode};
use crate::call_id::CallId;
use crate::caller::{CallAgent, Caller};
use crate::content::{Attachment, Content};
use crate::context::ChatMessage;
use crate::delivery::{Deliver as _, Delivery, check_tokio, cooperative};
use crate::error::CallError;
use crate::event::Event;
use crate::log::Log;
use crate::message::Forward;
use crate::name::Name;
use crate::observers::Events;
use crate::router::Router;
use crate::run_context::RunContext;
use crate::scope::Scope;
use crate::threads::waited_for;

/// The number of events of a call that may wait to be read before further ones are lost.
const EVENTS_WAITING: usize = 65_536;

/// A user of a runtime, with a name. Cheap to clone; several users may have the same name.
#[derive(Clone)]
pub struct User {
    pub(crate) router: Arc<Router>,
    pub(crate) name: Name,
    /// The actor that calls, if it is no user.
    pub(crate) actor: Option<ActorId>,
}

impl User {
    /// Returns a call of `agent`, to await or to observe. Like every future, it does nothing until then.
    pub fn forward(&self, agent: impl Into<Name>, content: impl Into<Content>) -> Call {
        let forward = self.compose(agent.into(), content.into());
        let scope = self.router.root.held_child();
        Call {
            forward: Arc::new(forward),
            state: State::Unsent(self.clone()),
            _cancellation: scope.cancel_on_drop(),
            scope,
            events: None,
            decode: answer_type::text,
        }
    }

    /// Returns a handle that calls agents without keeping a log, for services that make very many calls.
    #[must_use]
    pub fn caller(&self) -> Caller {
        Caller(Arc::new(self.clone()))
    }

    fn compose(&self, receiver: Name, content: Content) -> Forward {
        Forward::of_user(self.router.call_ids.draw(), &self.name, receiver, content)
    }

    /// Returns whether the name is valid and free for this caller.
    pub(crate) fn is_allowed(&self) -> bool {
        self.router.may_call(&self.name, self.actor)
    }

    /// Sends a Forward. Its id is in use as long as the call is running.
    fn deliver(&self, forward: Forward, scope: &Scope) -> Delivery {
        let checked = match self.is_allowed() {
            true => check_tokio(&forward.receiver).and_then(|()| self.router.parent(forward.call_id)),
            false => Err(CallError::NameTaken { name: Arc::clone(&forward.sender) }),
        };
        match checked {
            Ok(parent) => Arc::clone(&self.router).deliver(forward, scope, parent),
            Err(error) => Delivery::refused(|| error),
        }
    }
}

impl CallAgent for User {
    fn forward(&self, agent: Name, content: Content) -> Forward {
        self.compose(agent, content)
    }

    fn send(&self, forward: Forward) -> BoxFuture<'static, Result<Content, CallError>> {
        let user = self.clone();
        let calling = async move {
            let scope = user.router.root.child();
            let _below = scope.cancel_on_drop();
            user.deliver(forward, &scope).in_scope(&scope).await
        };
        Box::pin(cooperative(waited_for(calling)))
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A call that a user makes. Awaiting it gives a [`Report`]; dropping it cancels it.
///
/// The call is sent when it is first awaited or [observed](Call::next_event). From then on the callee runs on its own,
/// whether or not the call is polled.
///
/// Cancelling the call, by dropping it or by [`Call::cancel`], ends everything below it: requests to models are
/// dropped, tools end where they wait or [next yield](crate::Tool), calls of actors end and the actors are told. A call
/// that is awaited, cancelled or not, is over when all calls below it have their outcomes and their tools have ended. A
/// function that [blocks](crate::tool::blocking) is not waited for once its call is cancelled. Other parts may not end,
/// because they block an async thread or because their tokio runtime is not driven. They are waited for as long as
/// other calls keep ending, and one to two seconds more, on tokio's clock.
///
/// A call that is awaited again gives the same result.
#[must_use = "a call does nothing unless it is awaited"]
pub struct Call<T = Arc<str>> {
    forward: Arc<Forward>,
    state: State,
    pub(crate) scope: Scope,
    events: Option<Events>,
    decode: Decode<T>,
    _cancellation: DropGuard,
}

enum State {
    Unsent(User),
    Sent(BoxFuture<'static, Result<Content, CallError>>),
    Over(Result<Content, CallError>, Log),
}

impl<T> Call<T> {
    /// The id of the call.
    #[must_use]
    pub fn call_id(&self) -> CallId {
        self.forward.call_id
    }

    /// Sets the conversation before this call. It has no effect once the call is sent.
    pub fn history(mut self, history: impl Into<Arc<[ChatMessage]>>) -> Self {
        if let Some(forward) = self.forward_mut() {
            forward.history = history.into();
        }
        self
    }

    /// Lends a value to everything below this call. Tools, actors and people read it by its type: with
    /// [`ToolContext::get`](crate::ToolContext::get) and [`RunContext::get`](crate::RunContext::get). A call below may
    /// lend another value of the same type to what is below itself. It has no effect once the call is sent.
    ///
    /// Whatever has a [`Forward`] of the run keeps the value: the [`Report`], its log, an event.
    ///
    /// ```
    /// # use agentouto::{Agent, Reply, Runtime, providers::scripted::Scripted, tool::{self, NoArguments}};
    /// struct Tenant(&'static str);
    ///
    /// let whose = tool::function_with("whose", "Names the tenant.", |_: NoArguments, context| async move {
    ///     context.get::<Tenant>().map_or("nobody", |tenant| tenant.0)
    /// });
    /// # let model = Scripted::new().replies_to_any("clerk", [Reply::tool("whose", serde_json::json!({})), Reply::text("done")]);
    /// # let runtime = Runtime::builder().provider("script", model).agent(Agent::new("clerk", "Works.")).tool(whose).build()?;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// runtime.user("web").forward("clerk", "whose is it?").with(Tenant("acme")).await?;
    /// # Ok::<(), agentouto::RunError>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with<V: Send + Sync + 'static>(mut self, value: V) -> Self {
        if let Some(forward) = self.forward_mut() {
            forward.run_mut().lend(value);
        }
        self
    }

    /// Returns the call with another output.
    pub(crate) fn decode_by<A>(self, decode: Decode<A>) -> Call<A> {
        let Self { forward, state, scope, events, _cancellation, .. } = self;
        Call { forward, state, scope, events, decode, _cancellation }
    }

    /// The Forward, unless it is sent.
    pub(crate) fn forward_mut(&mut self) -> Option<&mut Forward> {
        matches!(self.state, State::Unsent(_)).then(|| Arc::make_mut(&mut self.forward))
    }

    /// Cancels the call and everything below it, at once. The call may still be awaited, for its log.
    pub fn cancel(&self) {
        self.scope.cancel();
    }

    /// Cancels one call below this one, and everything below it. Returns whether there was such a call.
    ///
    /// Its caller gets [`CallError::Cancelled`] and goes on. The call ends when its caller is polled next, which an
    /// agent is at once; a tool or an actor that holds the call without polling it ends it later. What blocks an async
    /// thread below the call is waited for one second and no longer.
    pub fn cancel_below(&self, call_id: CallId) -> bool {
        let found = self.scope.tracker().find(call_id).filter(|_| call_id != self.call_id());
        found.iter().for_each(|call| call.cancel());
        found.is_some()
    }

    /// Returns the next event of the call or of any call below it; `None` when the call is over.
    ///
    /// Events are kept from the first call of this method on, so call it first to see all. Up to 65,536 wait to be
    /// read; further ones are lost, and [counted](Call::lost_events). Dropping the future loses no event.
    pub async fn next_event(&mut self) -> Option<Event> {
        std::future::poll_fn(|context| self.poll_event(context)).await
    }

    fn poll_event(&mut self, context: &mut TaskContext<'_>) -> Poll<Option<Event>> {
        if self.events.is_none() && !matches!(self.state, State::Over(..)) {
            self.events = self.scope.call_observers().map(|observers| observers.stream(EVENTS_WAITING));
        }
        let is_over = self.poll_result(context).is_ready();
        let Some(events) = &mut self.events else { return Poll::Ready(None) };
        match is_over {
            true => Poll::Ready(events.try_next()),
            false => events.poll_recv(context),
        }
    }

    /// The number of events that were lost because [`Call::next_event`] did not read them in time.
    #[must_use]
    pub fn lost_events(&self) -> u64 {
        self.events.as_ref().map_or(0, Events::lost)
    }

    /// Sends the Forward if it is unsent, and returns the result once everything below has ended as well.
    fn poll_result(&mut self, context: &mut TaskContext<'_>) -> Poll<(&Result<Content, CallError>, &Log)> {
        if let State::Unsent(user) = &self.state {
            let delivery = user.deliver(Forward::clone(&self.forward), &self.scope);
            self.state = State::Sent(Box::pin(waited_for(settle(delivery, self.scope.clone()))));
        }
        if let State::Sent(settling) = &mut self.state {
            let result = ready!(settling.poll_unpin(context));
            let log = self.scope.call_observers().map(|observers| observers.take_log()).unwrap_or_default();
            self.state = State::Over(result, log);
        }
        match &self.state {
            State::Over(result, log) => Poll::Ready((result, log)),
            State::Unsent(_) | State::Sent(_) => Poll::Pending,
        }
    }
}

/// Waits for the result of a held call, and for the end of everything below it.
async fn settle(mut delivery: Delivery, scope: Scope) -> Result<Content, CallError> {
    let withdrawn = async {
        scope.cancelled().await;
        scope.tracker().wait_or_stalled().await;
    };
    let result = tokio::select! {
        biased;
        result = &mut delivery => result,
        () = withdrawn => delivery.await,
    };
    // Ends what tools and actors left running.
    scope.cancel();
    scope.tracker().wait_or_stalled().await;
    result
}

/// The events, as [`Call::next_event`] returns them.
impl<T> Stream for Call<T> {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Option<Event>> {
        self.poll_event(context)
    }
}

impl<T> Future for Call<T> {
    type Output = Result<Report<T>, RunError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let (result, log) = ready!(self.poll_result(context));
        let (result, log, forward) = (result.clone(), log.clone(), Arc::clone(&self.forward));
        let report = |answer: Content| match (self.decode)(forward.answer_type.as_ref(), Arc::clone(&answer.text)) {
            Ok(output) => Ok((output, answer)),
            Err(problem) => Err(forward.misfit(problem)),
        };
        Poll::Ready(match result.and_then(report) {
            Ok((output, Content { text, attachments })) => Ok(Report { output, attachments, log, text, forward }),
            Err(error) => Err(RunError { error, log, forward }),
        })
    }
}

impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("call_id", &self.forward.call_id).finish_non_exhaustive()
    }
}

/// The result of a call that has an answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report<T = Arc<str>> {
    /// The text of the answer, or the value of the [expected type](Call::typed).
    pub output: T,
    /// The images, sounds and documents of the answer. From an agent: all that its model attached in this call.
    pub attachments: Vec<Attachment>,
    /// Every message, the usage of the models, and the tree of calls.
    pub log: Log,
    /// The text of the answer.
    text: Arc<str>,
    forward: Arc<Forward>,
}

impl<T> Report<T> {
    /// Returns the conversation with this question and this answer, for the [`Call::history`] of the next question. The
    /// answer's attachments are not in it, because few models take them in a reply: attach one to the next question to
    /// show it again.
    #[must_use]
    pub fn history(&self) -> Arc<[ChatMessage]> {
        let question = ChatMessage::User(self.forward.content.clone());
        let answer = ChatMessage::assistant(Arc::clone(&self.text));
        self.forward.history.iter().cloned().chain([question, answer]).collect()
    }

    pub(crate) fn run(&self) -> &RunContext {
        &self.forward.run
    }
}

impl<T> fmt::Display for Report<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The error of a call that has no answer, with the log until then.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct RunError {
    /// The error of the call.
    pub error: CallError,
    /// Every message, the usage of the models, and the tree of calls.
    pub log: Log,
    forward: Arc<Forward>,
}

impl RunError {
    pub(crate) fn run(&self) -> &RunContext {
        &self.forward.run
    }
}
