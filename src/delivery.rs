//! The delivery of a Forward to its callee, and of the result back to its caller: [`Delivery`].
//!
//! The callee starts when the delivery is first polled, unless the call is cancelled, and needs no further poll to end.
//! Dropping a delivery withdraws the Forward.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use ractor::ActorCell;
use tokio::runtime::Handle;
use tokio::task::coop;

use crate::call_id_source::ChildIds;
use crate::caller::{CallAgent, ToolWork};
use crate::content::Content;
use crate::error::CallError;
use crate::event::EventKind;
use crate::message::Forward;
use crate::name::Name;
use crate::outcome::{CallToken, Outcome, Parent};
use crate::scope::{STALLED, Scope};
use crate::threads::waited_for;

/// The way to send a Forward; the router implements it.
pub(crate) trait Deliver: Send + Sync {
    /// Sends a Forward at once.
    fn deliver(self: Arc<Self>, forward: Forward, scope: &Scope, parent: Parent) -> Delivery;
}

/// A callee that has not started.
pub(crate) trait Serve: Send {
    /// Starts to serve the call. Returns the handle to stop it, or `None` if the call is over already.
    fn start(self: Box<Self>, call: CallToken) -> Option<StopHandle>;
}

/// The pending result of a Forward. Awaiting it gives the result of the Return.
pub(crate) enum Delivery {
    /// The Forward was not sent. The error is made when the delivery is polled, because the search for similar names
    /// takes time.
    Refused(Option<Box<dyn FnOnce() -> CallError + Send>>),
    /// The Forward was sent, or has its result already.
    Sent { call: Arc<Outcome>, waiting: Option<(CallToken, Box<dyn Serve>)>, stop: Option<StopHandle> },
}

impl Delivery {
    /// A Forward that is not sent.
    pub(crate) fn refused(error: impl FnOnce() -> CallError + Send + 'static) -> Self {
        Self::Refused(Some(Box::new(error)))
    }

    /// A Forward whose callee starts when this is first polled.
    pub(crate) fn to(callee: Box<dyn Serve>, call: CallToken) -> Self {
        Self::Sent { call: Arc::clone(call.outcome()), waiting: Some((call, callee)), stop: None }
    }

    /// A Forward that has its result already.
    pub(crate) fn resolved(call: CallToken) -> Self {
        Self::Sent { call: Arc::clone(call.outcome()), waiting: None, stop: None }
    }

    /// Awaits the result of a call that has this scope for itself. A limit that cancels the scope withdraws the call.
    pub(crate) async fn in_scope(mut self, scope: &Scope) -> Result<Content, CallError> {
        if let Self::Sent { call, .. } = &self
            && call.forward.run.admission.is_some()
        {
            let call = Arc::clone(call);
            match Box::pin(scope.unless_cancelled(&mut self)).await {
                Some(result) => return result,
                None => call.withdraw(),
            }
        }
        self.await
    }
}

impl Future for Delivery {
    type Output = Result<Content, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Refused(error) => error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error()))),
            Self::Sent { call, waiting, stop } => {
                if let Some((token, callee)) = waiting.take() {
                    match token.scope.is_cancelled() || token.is_withdrawn() {
                        true => token.withdraw(),
                        false => *stop = callee.start(token),
                    }
                }
                let polled = call.poll_result(context);
                // Something above may have withdrawn the call.
                if polled.is_pending()
                    && call.is_withdrawn()
                    && let Some(stop) = stop.take()
                {
                    stop.stop(call);
                    // What blocks below is not waited for without a limit.
                    tokio::spawn(end_after_grace(Arc::clone(call)));
                }
                polled
            }
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Self::Sent { call, stop, .. } = self
            && !call.is_over()
        {
            call.withdraw();
            if let Some(stop) = stop.take() {
                stop.stop(call);
            }
        }
    }
}

/// A handle to stop the callee of a call.
pub(crate) enum StopHandle {
    /// Kills an invocation. The call is over when the invocation has ended.
    Kill(ActorCell),
    /// Cancels what an actor does for the call as a peer, without waiting for the actor's answer.
    Forget(Weak<ActorPart>),
}

impl StopHandle {
    fn stop(self, call: &Outcome) {
        match self {
            // The cancellation of the scope has stopped the invocation already.
            Self::Kill(_) if call.scope.is_cancelled() => {}
            Self::Kill(invocation) => invocation.kill(),
            Self::Forget(part) => {
                if let Some(part) = part.upgrade() {
                    part.end();
                    part.below.cancel();
                }
            }
        }
    }
}

/// The part of a call that an actor serves as a peer. It ends with the first of these: the actor's answer, the actor's
/// end, the cancellation of the call.
pub(crate) struct ActorPart {
    token: Mutex<Option<CallToken>>,
    /// The scope of what the actor does for the call.
    below: Scope,
    _deliver: Arc<dyn Deliver>,
}

impl ActorPart {
    pub(crate) fn new(call: CallToken, below: Scope, deliver: Arc<dyn Deliver>) -> Self {
        Self { token: Mutex::new(Some(call)), below, _deliver: deliver }
    }

    /// Ends the part, if it has not ended. The calls below it may continue.
    pub(crate) fn end(&self) {
        let token = self.token.lock().take();
        drop(token);
    }
}

impl Drop for ActorPart {
    /// Cancels the calls below: the task that waits for the actor is over, or tokio has dropped it.
    fn drop(&mut self) {
        self.below.cancel();
    }
}

/// Awaits a call in such a way that the caller yields even if every call is refused at once.
pub(crate) async fn cooperative<T>(calling: impl Future<Output = T>) -> T {
    let result = calling.await;
    coop::consume_budget().await;
    result
}

/// Waits for [`STALLED`], and then ends a call that has its result already, even if parts of it have not ended.
pub(crate) async fn end_after_grace(call: Arc<Outcome>) {
    tokio::time::sleep(STALLED).await;
    call.end();
}

/// Returns an error if there is no tokio runtime here, without which nothing can start.
pub(crate) fn check_tokio(callee: &Name) -> Result<(), CallError> {
    let reason = || "a call must be polled within a tokio runtime".into();
    Handle::try_current().map(drop).map_err(|_| CallError::Unreachable { name: Arc::clone(callee), reason: reason() })
}

/// The caller of a tool or an actor, which calls agents in its name as long as its own call goes on.
pub(crate) struct ScopedCaller {
    /// Weak, because the part that serves the call owns it: a caller that is kept for longer does not keep the runtime.
    pub(crate) deliver: Weak<dyn Deliver>,
    /// Cancelled when the tool ends, or when the actor answers.
    pub(crate) scope: Scope,
    /// The call that is served.
    pub(crate) call: Arc<Outcome>,
    pub(crate) ids: ChildIds,
}

impl CallAgent for ScopedCaller {
    fn forward(&self, agent: Name, content: Content) -> Forward {
        self.call.forward.below(self.ids.draw(), agent, content)
    }

    fn send(&self, forward: Forward) -> BoxFuture<'static, Result<Content, CallError>> {
        let (deliver, call, scope) = (Weak::clone(&self.deliver), Arc::clone(&self.call), self.scope.clone());
        let calling = async move {
            check_tokio(&forward.receiver)?;
            // Nothing is sent for a call that is over.
            let parent = call.token().filter(|_| !scope.is_cancelled()).ok_or(CallError::Cancelled)?;
            let deliver = deliver.upgrade().ok_or(CallError::Cancelled)?;
            let below = scope.child();
            let _below = below.cancel_on_drop();
            deliver.deliver(forward, &below, Parent::Call(parent)).in_scope(&below).await
        };
        Box::pin(cooperative(waited_for(calling)))
    }

    fn emit(&self, kind: EventKind) {
        // A decision is recorded even if the call was cancelled meanwhile, because the tool may still begin.
        let is_kept = matches!(kind, EventKind::ToolApproval(_));
        if (is_kept || self.scope.is_streamed() && !self.scope.is_cancelled())
            && let Some(token) = self.call.token()
        {
            token.emit(|| kind);
        }
    }

    fn run_blocking(&self, work: ToolWork) -> ToolWork {
        // The thread may run this before the tokio runtime has dropped the cancelled task.
        let scope = self.scope.clone();
        let running = self
            .scope
            .threads()
            .run(async move { if scope.is_cancelled() { Err(CallError::Cancelled.into()) } else { work.await } });
        Box::pin(async move { running.await.unwrap_or_else(|| Err(NO_THREAD.into())) })
    }
}

const NO_THREAD: &str = "no thread could be started for a tool that blocks";
