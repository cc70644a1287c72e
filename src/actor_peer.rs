//! Actors as peers: an actor gets a Forward as a message of its own type, and its answer becomes the Return.

use std::fmt;
use std::sync::{Arc, Weak};

use ractor::{ActorCell, ActorId};
use tokio_util::sync::DropGuard;

use crate::call_id_source::ChildIds;
use crate::caller::Caller;
use crate::content::Content;
use crate::delivery::{ActorPart, Deliver, ScopedCaller, Serve, StopHandle, end_after_grace};
use crate::error::CallError;
use crate::message::Forward;
use crate::outcome::{CallToken, Outcome};
use crate::panics::catch;
use crate::scope::Scope;

/// An actor that serves Forwards, with its message type erased.
#[derive(Clone)]
pub(crate) struct ActorPeer {
    find: Arc<dyn Fn() -> Option<ActorCell> + Send + Sync>,
    send: fn(&ActorCell, Incoming) -> bool,
}

impl ActorPeer {
    /// An actor that is looked for at each Forward.
    pub(crate) fn new<M: ractor::Message + From<Incoming>>(
        find: impl Fn() -> Option<ActorCell> + Send + Sync + 'static,
    ) -> Self {
        Self { find: Arc::new(find), send: |actor, incoming| actor.send_message::<M>(incoming.into()).is_ok() }
    }

    /// Returns whether this is the peer at present.
    pub(crate) fn is(&self, actor: ActorId) -> bool {
        (self.find)().is_some_and(|present| present.get_id() == actor)
    }
}

/// An actor that is about to get a Forward.
pub(crate) struct ActorCall {
    pub(crate) actor: ActorPeer,
    pub(crate) deliver: Arc<dyn Deliver>,
}

impl Serve for ActorCall {
    /// Sends the Forward to the actor, and spawns a task that waits for the actor's answer or end, so that the call
    /// ends even if its caller is not polled.
    fn start(self: Box<Self>, call: CallToken) -> Option<StopHandle> {
        let Self { actor, deliver } = *self;
        let scope = call.scope.child();
        // Begun before the actor can make calls, which belong below it.
        let trace = catch(|| call.scope.telemetry().invocation(&call.forward, None)).unwrap_or_default();
        let (forward, outcome) = (Arc::clone(&call.forward), Arc::clone(call.outcome()));
        let ids = ChildIds::under(forward.call_id);
        let caller =
            ScopedCaller { deliver: Arc::downgrade(&deliver), scope: scope.clone(), call: Arc::clone(&outcome), ids };
        // A port that does not reach the actor is dropped, which must not become the call's outcome.
        let _underway = call.clone();
        let part = Arc::new(ActorPart::new(call, scope.clone(), deliver));
        let _below = scope.cancel_on_drop();
        let reply = ReplyPort { call: Arc::clone(&outcome), scope: scope.clone(), part: Arc::downgrade(&part), _below };
        let name = || Arc::clone(&outcome.forward.receiver);
        let incoming = Incoming { forward, caller: Caller(Arc::new(caller)), reply };
        let unreachable = |reason: &str| CallError::Unreachable { name: name(), reason: reason.into() };
        let sent = match (actor.find)() {
            None => Err(unreachable("no actor of its type is registered")),
            Some(cell) => match catch(|| (actor.send)(&cell, incoming)) {
                Ok(true) => Ok(cell),
                Ok(false) => Err(unreachable("the actor has stopped")),
                Err(message) => Err(CallError::Panicked { name: name(), message }),
            },
        };
        let cell = match sent {
            Ok(cell) => cell,
            Err(error) => {
                trace.iter().for_each(|trace| trace.end(&Err(error.clone())));
                outcome.resolve(Err(error));
                return None;
            }
        };
        let stop = StopHandle::Forget(Arc::downgrade(&part));
        tokio::spawn(async move {
            tokio::select! {
                () = scope.cancelled() => {}
                // The state of a dead actor may still hold the port, which is then neither used nor dropped.
                _ = cell.wait(None) => {}
            }
            part.end();
            let _ = catch(|| trace.iter().zip(outcome.result()).for_each(|(trace, result)| trace.end(result)));
            drop(trace);
            // Calls that the actor made and that cannot end are not waited for.
            if !outcome.is_over() && !outcome.scope.is_cancelled() {
                drop(part);
                end_after_grace(outcome).await;
            }
        });
        Some(stop)
    }
}

/// A [`Forward`] that has reached an actor, with the port for its answer.
///
/// An actor that others may call takes this as a message: `impl From<Incoming> for MyMessage`.
///
/// To call agents for a Forward, spawn a task that makes the call and sends the reply, and go on with the next message.
/// An actor handles one message at a time: if it awaits a call in its handler, it answers no other Forward meanwhile,
/// and if the callee calls it back, both wait until the call is cancelled.
#[derive(Debug)]
#[non_exhaustive]
pub struct Incoming {
    /// The Forward to answer.
    pub forward: Arc<Forward>,
    /// The handle that calls agents on behalf of this Forward. Calls that are still running when it is answered are
    /// cancelled.
    pub caller: Caller,
    /// The port for the answer.
    pub reply: ReplyPort,
}

/// The port for an actor's answer to a [`Forward`]. If it is dropped unused, the caller gets an error.
pub struct ReplyPort {
    pub(crate) call: Arc<Outcome>,
    /// Cancelled when the caller has cancelled the call, and when there is an answer.
    pub(crate) scope: Scope,
    pub(crate) part: Weak<ActorPart>,
    pub(crate) _below: DropGuard,
}

impl ReplyPort {
    /// Sends the answer. If the caller has cancelled the call, the answer is dropped and observers are notified.
    pub fn send(self, result: Result<impl Into<Content>, CallError>) {
        if self.call.scope.is_cancelled() {
            self.call.withdraw();
            self.end_part();
        }
        let forward = &self.call.forward;
        self.call.resolve(result.and_then(|answer| forward.fit(answer.into())));
    }

    fn end_part(&self) {
        self.part.upgrade().iter().for_each(|part| part.end());
    }

    /// Waits until the call is cancelled or the actor has ended. Work for the call may stop then.
    pub async fn cancelled(&self) {
        self.scope.cancelled().await;
    }
}

impl Drop for ReplyPort {
    fn drop(&mut self) {
        self.end_part();
    }
}

impl fmt::Debug for ReplyPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyPort").field("call_id", &self.call.forward.call_id).finish_non_exhaustive()
    }
}
