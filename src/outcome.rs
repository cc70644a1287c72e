//! The outcome of a Forward: one Return, recorded once, whatever becomes of its callee and its caller.
//!
//! A call is over when no part of it is alive any more: neither its invocation, nor any of its tools, nor a call that it
//! made. Then its Return is made; sooner only if parts that were to end do not. No event of the call follows it but that
//! of a Return which comes too late, and nothing waits for a caller to be polled.

use std::ops::Deref;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

use crate::call_id_source::ReservedId;
use crate::content::Content;
use crate::error::CallError;
use crate::event::EventKind;
use crate::message::Forward;
use crate::observers::OpenStreams;
use crate::panics::catch_and_log;
use crate::scope::{Open, Scope};

/// A Forward that was sent, and what came of it.
pub(crate) struct Outcome {
    forward: Arc<Forward>,
    scope: Scope,
    /// The number of [`CallToken`]s.
    tokens: AtomicUsize,
    /// The first result that was given.
    result: OnceLock<Result<Content, CallError>>,
    phase: AtomicU8,
    caller: AtomicWaker,
    parent: Mutex<Option<Parent>>,
    /// The place among those that are alive.
    place: OnceLock<usize>,
}

/// What a call holds until it is over.
pub(crate) enum Parent {
    /// The call that made it, of which it is a part.
    Call(CallToken),
    /// The streams of the runtime, and its id where a source gave it.
    Runtime { _streams: Arc<OpenStreams>, _id: Option<Box<ReservedId>> },
}

/// The Forward is not sent, and perhaps never will be.
const UNSENT: u8 = 0;
const OPEN: u8 = 1;
/// The Return is being recorded.
const ENDING: u8 = 2;
const OVER: u8 = 3;

impl Outcome {
    /// A Forward that is about to be sent. It is over when the last token is dropped.
    pub(crate) fn open(forward: Arc<Forward>, scope: Scope, parent: Parent) -> CallToken {
        let outcome = Arc::new(Self {
            forward,
            scope,
            tokens: AtomicUsize::new(1),
            result: OnceLock::new(),
            phase: AtomicU8::new(UNSENT),
            caller: AtomicWaker::new(),
            parent: Mutex::new(Some(parent)),
            place: OnceLock::new(),
        });
        let open = Arc::downgrade(&outcome) as Weak<dyn Open>;
        let _ = outcome.place.set(outcome.scope.tracker().insert(open));
        CallToken(outcome)
    }

    /// Sends the Forward: logs and streams are told.
    pub(crate) fn send(&self) {
        if self.phase.compare_exchange(UNSENT, OPEN, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.emit(|| EventKind::Forward { forward: Arc::clone(&self.forward) });
        }
    }

    /// Answers with an error instead of sending the Forward: its log is told, but no stream of the runtime, which may
    /// end before the Return.
    pub(crate) fn refuse(&self, error: CallError) {
        self.scope.emit_to_log(&self.forward, || EventKind::Forward { forward: Arc::clone(&self.forward) });
        self.resolve(Err(error));
    }

    pub(crate) fn forward(&self) -> &Arc<Forward> {
        &self.forward
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// One more part of the call, unless it is over.
    pub(crate) fn token(self: &Arc<Self>) -> Option<CallToken> {
        let more = |tokens| (tokens > 0).then_some(tokens + 1);
        self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let token = CallToken(Arc::clone(self));
        (token.phase.load(Ordering::Acquire) == OPEN).then_some(token)
    }

    /// Gives the result, unless there is one. A late one is dropped, and observers are told.
    pub(crate) fn resolve(&self, result: Result<Content, CallError>) {
        if let Err(late) = self.result.set(result)
            && late != Err(CallError::Cancelled)
        {
            self.scope.emit_to_streams(&self.forward, || EventKind::LateReturn {
                sender: Arc::clone(&self.forward.receiver),
            });
        }
    }

    /// The caller no longer waits: unless there is a result, it is that the call was cancelled.
    pub(crate) fn withdraw(&self) {
        let _ = self.result.set(Err(CallError::Cancelled));
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase.load(Ordering::Acquire) == OVER
    }

    /// The result, once it is recorded.
    pub(crate) fn poll_result(&self, context: &mut Context<'_>) -> Poll<Result<Content, CallError>> {
        self.caller.register(context.waker());
        match (self.phase.load(Ordering::Acquire), self.result.get()) {
            (OVER, Some(result)) => Poll::Ready(result.clone()),
            _ => Poll::Pending,
        }
    }

    /// Tells logs and streams of a step of this call, unless it is over.
    pub(crate) fn emit(&self, kind: impl FnOnce() -> EventKind) {
        if self.phase.load(Ordering::Acquire) == OPEN {
            self.scope.emit(&self.forward, kind);
        }
    }

    /// Tells streams of a step that no log has use for, unless the call is over.
    pub(crate) fn emit_to_streams(&self, kind: impl FnOnce() -> EventKind) {
        if self.scope.is_streamed() {
            self.emit(kind);
        }
    }

    /// Whether more than one part of the call is alive.
    pub(crate) fn has_leftovers(&self) -> bool {
        self.tokens.load(Ordering::Acquire) > 1
    }

    /// Ends the call, whatever is alive of it.
    pub(crate) fn end(&self) {
        record_all(self.record());
    }

    /// Records the Return, once. Gives the parent call, if this was its last part.
    fn record(&self) -> Option<Arc<Self>> {
        let end = |phase| (phase < ENDING).then_some(ENDING);
        let before = self.phase.fetch_update(Ordering::AcqRel, Ordering::Acquire, end).ok()?;
        let result = self.result.get_or_init(|| match self.scope.is_cancelled() {
            true => Err(CallError::Cancelled),
            false => Err(CallError::Unanswered { name: Arc::clone(&self.forward.receiver) }),
        });
        let answer = || EventKind::Return { answer: Arc::new(self.forward.return_with(result.clone())) };
        match before {
            UNSENT => self.scope.emit_to_log(&self.forward, answer),
            _ => self.scope.emit(&self.forward, answer),
        }
        if let Some(place) = self.place.get() {
            self.scope.tracker().remove(*place);
        }
        // Before the caller is woken, who would see a part that is alive still.
        let next = match self.parent.lock().take() {
            Some(Parent::Call(token)) => token.give_up(),
            Some(Parent::Runtime { .. }) | None => None,
        };
        self.phase.store(OVER, Ordering::Release);
        catch_and_log("in a waker", || self.caller.wake());
        next
    }
}

/// Records the Returns of calls of which the last part is gone, one after the other, because a chain of calls may be
/// long.
fn record_all(mut next: Option<Arc<Outcome>>) {
    while let Some(call) = next {
        next = call.record();
    }
}

impl Open for Outcome {
    fn close(&self) {
        // One that is not sent yet is about to look whether it may be.
        if self.phase.load(Ordering::Acquire) != UNSENT {
            self.withdraw();
            self.end();
        }
    }
}

/// A part of a call that is alive. When the last one is dropped, the call is over.
pub(crate) struct CallToken(Arc<Outcome>);

impl CallToken {
    pub(crate) fn outcome(&self) -> &Arc<Outcome> {
        &self.0
    }

    /// Gives up the part. Gives the call if it was the last, to be recorded: a drop would record it within.
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

/// One part less. Gives the call if it was the last.
fn release(call: Arc<Outcome>) -> Option<Arc<Outcome>> {
    // One that is not sent holds nobody up, however many of them there are.
    if call.phase.load(Ordering::Relaxed) != UNSENT {
        call.scope.tracker().progressed();
    }
    (call.tokens.fetch_sub(1, Ordering::AcqRel) == 1).then_some(call)
}
