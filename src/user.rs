//! The user: an actor without a model. It sends Forwards through the same door as everybody, and gets Returns.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll, ready};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio_util::sync::DropGuard;

use crate::context::ChatMessage;
use crate::error::CallError;
use crate::event::Event;
use crate::invocation::{Deliver, held};
use crate::message::{Attachment, CallAgent, CallId, Caller, Content, Forward, Name, Return};
use crate::router::Router;
use crate::scope::{Events, Scope, Sink};
use crate::trace::Log;

/// How many events of a call may wait to be read before further ones are lost.
const EVENTS_WAITING: usize = 65_536;

/// A user of a runtime, by name. Cheap to clone; several may have the same name.
#[derive(Clone)]
pub struct User {
    router: Arc<Router>,
    name: Name,
}

impl User {
    pub(crate) fn new(router: Arc<Router>, name: Name) -> Self {
        Self { router, name }
    }

    /// A call of `agent`, to be awaited or observed. Like every future it does nothing until then.
    pub fn forward(&self, agent: impl Into<Name>, content: impl Into<Content>) -> Call {
        let forward = self.compose(agent.into(), content.into());
        let log = Arc::default();
        let scope = self.router.root().populated_child().observed_by(Sink::Log(Arc::clone(&log)));
        let cancellation = scope.cancel_on_drop();
        Call {
            call_id: forward.call_id,
            state: State::Unsent(forward, Arc::clone(&self.router)),
            scope,
            events: None,
            log,
            _cancellation: cancellation,
        }
    }

    /// Calls agents without keeping a log, for services that make very many calls.
    #[must_use]
    pub fn caller(&self) -> Caller {
        Caller(Arc::new(self.clone()))
    }

    fn compose(&self, receiver: Name, content: Content) -> Forward {
        Forward::new(self.router.draw_call_id(), None, &self.name, receiver, content)
    }
}

impl CallAgent for User {
    fn call_agent(&self, agent: Name, content: Content) -> BoxFuture<'static, Result<Content, CallError>> {
        let scope = self.router.root().child();
        Box::pin(held(send(self.compose(agent, content), &self.router, &scope), scope))
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A call that a user holds: awaited it gives a [`Report`], dropped it is cancelled.
///
/// Nothing is sent before it is first awaited or [observed](Call::next_event).
/// Cancelling, by dropping or [`Call::cancel`], ends everything below it: requests to models are
/// dropped, tools end at their next await, actors are told. A call that is awaited, cancelled or not, is
/// over when every invocation below it has ended.
#[must_use = "a call does nothing unless it is awaited"]
pub struct Call {
    call_id: CallId,
    state: State,
    scope: Scope,
    events: Option<Events>,
    log: Arc<Mutex<Log>>,
    _cancellation: DropGuard,
}

enum State {
    Unsent(Forward, Arc<Router>),
    Waiting(BoxFuture<'static, Return>),
    Over(Option<Return>),
}

impl Call {
    /// The id of the call.
    #[must_use]
    pub fn call_id(&self) -> CallId {
        self.call_id
    }

    /// The same call with what was said before. To be set before the call is sent.
    pub fn history(mut self, history: impl Into<Arc<[ChatMessage]>>) -> Self {
        if let State::Unsent(forward, _) = &mut self.state {
            forward.history = history.into();
        }
        self
    }

    /// Cancels the call and everything below it, at once. The call may still be awaited, for its log.
    pub fn cancel(&self) {
        self.scope.cancel();
    }

    /// The next event of the call or of any call below it; `None` when the call is over.
    ///
    /// Up to 65,536 events wait to be read; further ones are lost, and [counted](Call::lost_events). Events
    /// are kept only if this is called before the call is first awaited. Dropping the future loses no event.
    pub async fn next_event(&mut self) -> Option<Event> {
        if let State::Unsent(..) = self.state {
            let (sink, events) = Events::bounded(EVENTS_WAITING);
            self.scope = self.scope.observed_by(sink);
            self.events = Some(events);
        }
        std::future::poll_fn(|context| {
            let is_over = self.poll_return(context).is_ready();
            let Some(events) = &mut self.events else { return Poll::Ready(None) };
            match is_over {
                true => Poll::Ready(events.try_next()),
                false => events.poll_next(context),
            }
        })
        .await
    }

    /// How many events [`Call::next_event`] could not give because they were not read in time.
    #[must_use]
    pub fn lost_events(&self) -> u64 {
        self.events.as_ref().map_or(0, Events::lost)
    }

    /// Sends what is unsent, and takes the Return once everything below has ended as well.
    fn poll_return(&mut self, context: &mut TaskContext<'_>) -> Poll<()> {
        self.state = match std::mem::replace(&mut self.state, State::Over(None)) {
            State::Unsent(forward, router) => {
                let scope = self.scope.clone();
                State::Waiting(Box::pin(async move {
                    let answer = send(forward, &router, &scope).await;
                    // What tools and actors left running.
                    scope.cancel();
                    scope.population().none().await;
                    answer
                }))
            }
            state => state,
        };
        if let State::Waiting(answering) = &mut self.state {
            let answer = ready!(answering.poll_unpin(context));
            self.state = State::Over(Some(answer));
        }
        Poll::Ready(())
    }
}

fn send(forward: Forward, router: &Arc<Router>, scope: &Scope) -> BoxFuture<'static, Return> {
    match router.is_free_for_a_user(&forward.sender) {
        true => Arc::clone(router).deliver(forward, scope),
        false => {
            let name = Arc::clone(&forward.sender);
            Box::pin(std::future::ready(forward.answer(Err(CallError::NameTaken { name }))))
        }
    }
}

impl Future for Call {
    type Output = Result<Report, RunError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        ready!(self.poll_return(context));
        let log = std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner));
        let State::Over(answer) = &mut self.state else { return Poll::Pending };
        let result = answer.take().map_or(Err(CallError::Cancelled), |answer| answer.result);
        Poll::Ready(match result {
            Ok(Content { text, attachments }) => Ok(Report { output: text, attachments, log }),
            Err(error) => Err(RunError { error, log }),
        })
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("call_id", &self.call_id).finish_non_exhaustive()
    }
}

/// What came of a call, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The answer.
    pub output: Arc<str>,
    /// The images, sounds and documents that came with it: of an agent, all that its model attached in this call.
    pub attachments: Vec<Attachment>,
    /// Every message, what the models cost, and the tree of calls.
    pub log: Log,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.output)
    }
}

/// Why a call has no answer, and what had been said until then.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct RunError {
    /// Why.
    pub error: CallError,
    /// Every message, what the models cost, and the tree of calls.
    pub log: Log,
}
