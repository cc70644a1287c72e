//! The outcome of a Forward: one Return, recorded once, whatever happens to its callee and its caller.
//!
//! A call is over when no part of it is alive: neither its invocation, nor any of its tools, nor a call that it made.
//! Its Return is made then, or earlier if parts that should end do not. The only event of the call that can follow is
//! that of a Return which came too late. Nothing waits for a caller to be polled.

use std::ops::Deref;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

use crate::call_id::CallId;
use crate::call_id_source::ReservedId;
use crate::content::Content;
use crate::error::CallError;
use crate::event::EventKind;
use crate::message::Forward;
use crate::observers::OpenStreams;
use crate::panics::catch_and_log;
use crate::scope::{Open, Scope};

/// A Forward, its result, and the count of the running parts of its call.
pub(crate) struct Outcome {
    pub(crate) forward: Arc<Forward>,
    pub(crate) scope: Scope,
    /// The number of [`CallToken`]s.
    tokens: AtomicUsize,
    /// The first result that was set.
    result: OnceLock<Result<Content, CallError>>,
    phase: AtomicU8,
    caller: AtomicWaker,
    parent: Mutex<Option<Parent>>,
    /// The key of the call in its tracker.
    place: usize,
}

/// The value that a call holds until it is over.
pub(crate) enum Parent {
    /// The token of the call that made it, of which it is a part.
    Call(CallToken),
    /// The streams of the runtime, and the call's reserved id if a source gave it.
    Runtime { _streams: Arc<OpenStreams>, _id: Option<Box<ReservedId>> },
}

/// The Forward is not sent, and may never be.
const UNSENT: u8 = 0;
const OPEN: u8 = 1;
/// The Return is being recorded.
const ENDING: u8 = 2;
const OVER: u8 = 3;

impl Outcome {
    /// Opens the call of a Forward that is about to be sent. The call is over when the last token is dropped.
    pub(crate) fn open(forward: Arc<Forward>, scope: Scope, parent: Parent) -> CallToken {
        CallToken(Arc::new_cyclic(|outcome: &Weak<Self>| {
            // The tracker counts the call from here on. It has no use for a call that is not sent yet.
            let place = scope.tracker().insert(Weak::<Self>::clone(outcome));
            Self {
                forward,
                scope,
                tokens: AtomicUsize::new(1),
                result: OnceLock::new(),
                phase: AtomicU8::new(UNSENT),
                caller: AtomicWaker::new(),
                parent: Mutex::new(Some(parent)),
                place,
            }
        }))
    }

    /// Marks the Forward as sent, and emits its event to the log and to streams.
    pub(crate) fn send(&self) {
        if self.phase.compare_exchange(UNSENT, OPEN, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.emit(|| EventKind::Forward { forward: Arc::clone(&self.forward) });
        }
    }

    /// Ends with an error instead of sending the Forward. Its event goes to the log, but to no stream of the runtime,
    /// which may end before the Return.
    pub(crate) fn refuse(&self, error: CallError) {
        self.scope.emit_to_log(&self.forward, || EventKind::Forward { forward: Arc::clone(&self.forward) });
        self.resolve(Err(error));
    }

    /// Returns a token for one more part of the call, unless the call is over.
    pub(crate) fn token(self: &Arc<Self>) -> Option<CallToken> {
        let more = |tokens| (tokens > 0).then_some(tokens + 1);
        self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let token = CallToken(Arc::clone(self));
        (token.phase.load(Ordering::Acquire) == OPEN).then_some(token)
    }

    /// Sets the result, unless there is one. A late result is dropped, and observers are notified.
    pub(crate) fn resolve(&self, result: Result<Content, CallError>) {
        if let Err(late) = self.result.set(result)
            && late != Err(self.forward.run.cancelled())
        {
            self.scope.emit_to_streams(&self.forward, || EventKind::LateReturn {
                sender: Arc::clone(&self.forward.receiver),
            });
        }
    }

    /// Withdraws the call, because the caller no longer waits. Unless there is a result, it becomes
    /// [`CallError::Cancelled`].
    pub(crate) fn withdraw(&self) {
        let _ = self.result.set(Err(self.forward.run.cancelled()));
    }

    /// The result, once it is set.
    pub(crate) fn result(&self) -> Option<&Result<Content, CallError>> {
        self.result.get()
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        matches!(self.result.get(), Some(Err(CallError::Cancelled | CallError::BudgetExceeded { .. })))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase.load(Ordering::Acquire) == OVER
    }

    /// Polls for the result, which is ready once the Return is recorded.
    pub(crate) fn poll_result(&self, context: &mut Context<'_>) -> Poll<Result<Content, CallError>> {
        self.caller.register(context.waker());
        match (self.phase.load(Ordering::Acquire), self.result.get()) {
            (OVER, Some(result)) => Poll::Ready(result.clone()),
            _ => Poll::Pending,
        }
    }

    /// Emits an event of this call to the log and to streams, unless the call is over.
    pub(crate) fn emit(&self, kind: impl FnOnce() -> EventKind) {
        if self.phase.load(Ordering::Acquire) == OPEN {
            self.scope.emit(&self.forward, kind);
        }
    }

    /// Emits an event that no log keeps to streams, unless the call is over.
    pub(crate) fn emit_to_streams(&self, kind: impl FnOnce() -> EventKind) {
        if self.scope.is_streamed() {
            self.emit(kind);
        }
    }

    /// Returns whether more than one part of the call is alive.
    pub(crate) fn has_leftovers(&self) -> bool {
        self.tokens.load(Ordering::Acquire) > 1
    }

    /// Ends the call, even if parts of it are alive.
    pub(crate) fn end(&self) {
        record_all(self.record());
    }

    /// Records the Return, once. Returns the parent call if this was its last part.
    fn record(&self) -> Option<Arc<Self>> {
        let end = |phase| (phase < ENDING).then_some(ENDING);
        let before = self.phase.fetch_update(Ordering::AcqRel, Ordering::Acquire, end).ok()?;
        let result = self.result.get_or_init(|| match self.scope.is_cancelled() {
            true => Err(self.forward.run.cancelled()),
            false => Err(CallError::Unanswered { name: Arc::clone(&self.forward.receiver) }),
        });
        let answer = || EventKind::Return { answer: Arc::new(self.forward.return_with(result.clone())) };
        match before {
            UNSENT => self.scope.emit_to_log(&self.forward, answer),
            _ => self.scope.emit(&self.forward, answer),
        }
        self.scope.tracker().remove(self.place);
        // Before the caller is woken, because it would see a part that is still alive.
        let next = match self.parent.lock().take() {
            Some(Parent::Call(token)) => token.give_up(),
            Some(Parent::Runtime { .. }) | None => None,
        };
        self.phase.store(OVER, Ordering::Release);
        catch_and_log("in a waker", || self.caller.wake());
        next
    }
}

/// Records the Returns of calls whose last part has ended. It is a loop, because a chain of calls may be long.
fn record_all(mut next: Option<Arc<Outcome>>) {
    while let Some(call) = next {
        next = call.record();
    }
}

impl Open for Outcome {
    fn call_id(&self) -> CallId {
        self.forward.call_id
    }

    fn cancel(&self) {
        self.withdraw();
        catch_and_log("in a waker", || self.caller.wake());
    }

    fn close(&self) {
        // A call that is not sent yet checks for the cancellation before it is sent.
        if self.phase.load(Ordering::Acquire) != UNSENT {
            self.withdraw();
            self.end();
        }
    }
}

/// One part of a call that is still running. When the last token is dropped, the call is over.
pub(crate) struct CallToken(Arc<Outcome>);

impl CallToken {
    pub(crate) fn outcome(&self) -> &Arc<Outcome> {
        &self.0
    }

    /// Gives up the part. Returns the call if this was the last part, for the caller to record: a drop would record it
    /// recursively.
    fn give_up(self) -> Option<Arc<Outcome>> {
        let call = Arc::clone(&self.0);
        call.tokens.fetch_add(1, Ordering::Relaxed);
        drop(self);
        release(call)
    }
}

impl Deref for CallToken {
    type Target = Outcome;

    fn deref(&self) -> &Outcome {
        &self.0
    }
}

impl Clone for CallToken {
    fn clone(&self) -> Self {
        self.0.tokens.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl Drop for CallToken {
    fn drop(&mut self) {
        record_all(release(Arc::clone(&self.0)));
    }
}

/// Counts one part less. Returns the call if this was the last part.
fn release(call: Arc<Outcome>) -> Option<Arc<Outcome>> {
    // The end of a call that was not sent does not count: any number of them must not extend the wait for calls that
    // are stalled.
    if call.phase.load(Ordering::Relaxed) != UNSENT {
        call.scope.tracker().progressed();
    }
    (call.tokens.fetch_sub(1, Ordering::AcqRel) == 1).then_some(call)
}
