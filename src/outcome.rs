//! The outcome of a Forward: one Return, recorded once, whatever becomes of its callee and its caller.
//!
//! A call is over when no part of it is alive any more: neither its invocation, nor any of its tools, nor a call that it
//! made. Then, and nowhere else, its Return is made. No event of the call follows it, and nothing waits for a caller to
//! be polled.

use std::ops::Deref;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

use crate::error::CallError;
use crate::event::EventKind;
use crate::message::{Content, Forward};
use crate::scope::{Open, Scope};

/// A Forward that was sent, and what came of it.
pub(crate) struct Outcome {
    forward: Arc<Forward>,
    scope: Scope,
    /// The number of [`Lease`]s.
    leases: AtomicUsize,
    /// The first result that was given.
    result: OnceLock<Result<Content, CallError>>,
    phase: AtomicU8,
    caller: AtomicWaker,
    /// The call that made this one, of which this one is a part until it is over.
    parent: Mutex<Option<Arc<Outcome>>>,
    /// The place among those that are alive.
    place: OnceLock<usize>,
}

/// The Forward is not sent, and perhaps never will be.
const UNSENT: u8 = 0;
const OPEN: u8 = 1;
/// The Return is being recorded.
const ENDING: u8 = 2;
const OVER: u8 = 3;

impl Outcome {
    /// A Forward that is about to be sent, for a call that it is a part of. It is over when the last lease is dropped.
    pub(crate) fn open(forward: Arc<Forward>, scope: Scope, parent: Option<Lease>) -> Lease {
        let parent = parent.map(|lease| {
            lease.leases.fetch_add(1, Ordering::Relaxed);
            Arc::clone(&lease.0)
        });
        let outcome = Arc::new(Self {
            forward,
            scope,
            leases: AtomicUsize::new(1),
            result: OnceLock::new(),
            phase: AtomicU8::new(UNSENT),
            caller: AtomicWaker::new(),
            parent: Mutex::new(parent),
            place: OnceLock::new(),
        });
        let open = Arc::downgrade(&outcome) as Weak<dyn Open>;
        let _ = outcome.place.set(outcome.scope.tracker().enter(open));
        Lease(outcome)
    }

    /// Sends the Forward: logs and streams are told.
    pub(crate) fn send(&self) {
        self.phase.store(OPEN, Ordering::Release);
        self.emit(|| EventKind::Forward { forward: Arc::clone(&self.forward) });
    }

    /// Answers with an error instead of sending the Forward: its log is told, but no stream of the runtime, which may
    /// end before the Return.
    pub(crate) fn refuse(&self, error: CallError) {
        self.scope.emit_to_log(&self.forward, || EventKind::Forward { forward: Arc::clone(&self.forward) });
        self.answer(Err(error));
    }

    pub(crate) fn forward(&self) -> &Arc<Forward> {
        &self.forward
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// One more part of the call, unless it is over.
    pub(crate) fn lease(self: &Arc<Self>) -> Option<Lease> {
        let more = |leases| (leases > 0).then_some(leases + 1);
        self.leases.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let lease = Lease(Arc::clone(self));
        (lease.phase.load(Ordering::Acquire) == OPEN).then_some(lease)
    }

    /// Gives the result, unless there is one. A late one is dropped, and observers are told.
    pub(crate) fn answer(&self, result: Result<Content, CallError>) {
        if let Err(late) = self.result.set(result)
            && late != Err(CallError::Cancelled)
        {
            self.scope.show(&self.forward, || EventKind::LateReturn { sender: Arc::clone(&self.forward.receiver) });
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
    pub(crate) fn show(&self, kind: impl FnOnce() -> EventKind) {
        if self.scope.is_streamed() {
            self.emit(kind);
        }
    }

    /// Ends the call if the only part that is alive is that of the one who says so.
    pub(crate) fn end_if_alone(&self) {
        if self.leases.load(Ordering::Acquire) <= 1 {
            self.end();
        }
    }

    /// Whether more than one part of the call is alive.
    pub(crate) fn has_leftovers(&self) -> bool {
        self.leases.load(Ordering::Acquire) > 1
    }

    /// Ends the call, whatever is alive of it.
    pub(crate) fn end(&self) {
        release_all(self.record());
    }

    /// Records the Return, once. Gives the parent, which has one part less to wait for.
    fn record(&self) -> Option<Arc<Self>> {
        let end = |phase| (phase < ENDING).then_some(ENDING);
        let before = self.phase.fetch_update(Ordering::AcqRel, Ordering::Acquire, end).ok()?;
        let result = self.result.get_or_init(|| match self.scope.is_cancelled() {
            true => Err(CallError::Cancelled),
            false => Err(CallError::Unanswered { name: Arc::clone(&self.forward.receiver) }),
        });
        let answer = || EventKind::Return { answer: Arc::new(self.forward.answer(result.clone())) };
        match before {
            UNSENT => self.scope.emit_to_log(&self.forward, answer),
            _ => self.scope.emit(&self.forward, answer),
        }
        if let Some(place) = self.place.get() {
            self.scope.tracker().leave(*place);
        }
        self.phase.store(OVER, Ordering::Release);
        self.caller.wake();
        self.parent.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Gives up one part. Gives the parent if it was the last.
    fn release(&self) -> Option<Arc<Self>> {
        self.scope.tracker().progressed();
        (self.leases.fetch_sub(1, Ordering::AcqRel) == 1).then(|| self.record()).flatten()
    }
}

/// Ends the calls of which the last part is gone, one after the other, because a chain of calls may be long.
fn release_all(mut next: Option<Arc<Outcome>>) {
    while let Some(call) = next {
        next = call.release();
    }
}

impl Open for Outcome {
    fn close(&self) {
        self.withdraw();
        self.end();
    }
}

/// A part of a call that is alive. When the last one is dropped, the call is over.
pub(crate) struct Lease(Arc<Outcome>);

impl Lease {
    pub(crate) fn outcome(&self) -> &Arc<Outcome> {
        &self.0
    }
}

impl Deref for Lease {
    type Target = Outcome;

    fn deref(&self) -> &Outcome {
        &self.0
    }
}

impl Clone for Lease {
    fn clone(&self) -> Self {
        self.0.leases.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        release_all(self.0.release());
    }
}
