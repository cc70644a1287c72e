//! Cancellation and observers of a held call and of all calls below it, and the tracker of the calls that are alive.
//!
//! A cancellation reaches every call of a scope at once, at any depth.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use slab::Slab;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::call_id::CallId;
use crate::event::{Event, EventKind};
use crate::message::Forward;
use crate::observers::{CallObservers, RuntimeObservers};
use crate::panics::catch_panic;
use crate::run_context::{Notice, Notifier};
use crate::telemetry::Telemetry;
use crate::threads::BlockingThreads;

/// Cancellation and observers of a held call and all below it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Scope(Arc<Shared>);

struct Shared {
    cancellation: CancellationToken,
    observers: Option<Arc<CallObservers>>,
    tracker: Arc<Tracker>,
    root: Arc<Root>,
}

/// The parts that all scopes of a runtime share.
struct Root {
    observers: Arc<RuntimeObservers>,
    threads: BlockingThreads,
    cancellation: CancellationToken,
    telemetry: Arc<dyn Telemetry>,
}

impl Scope {
    /// A scope without a parent.
    pub(crate) fn root(threads: BlockingThreads, telemetry: Arc<dyn Telemetry>) -> Self {
        let cancellation = CancellationToken::new();
        let root = Root { observers: Arc::default(), threads, cancellation: cancellation.clone(), telemetry };
        Self(Arc::new(Shared { cancellation, observers: None, tracker: Arc::default(), root: Arc::new(root) }))
    }

    /// A scope that is cancelled with this one, or on its own.
    pub(crate) fn child(&self) -> Self {
        self.with(self.0.observers.clone(), Arc::clone(&self.0.tracker))
    }

    /// Like [`Scope::child`], with a log and a tracker of its own.
    pub(crate) fn held_child(&self) -> Self {
        self.with(Some(Arc::default()), Tracker::under(&self.0.tracker))
    }

    fn with(&self, observers: Option<Arc<CallObservers>>, tracker: Arc<Tracker>) -> Self {
        let Shared { cancellation, root, .. } = &*self.0;
        Self(Arc::new(Shared { cancellation: cancellation.child_token(), observers, tracker, root: Arc::clone(root) }))
    }

    /// The observers of the whole runtime.
    pub(crate) fn runtime_observers(&self) -> &Arc<RuntimeObservers> {
        &self.0.root.observers
    }

    /// The observers of the held call, if it is one.
    pub(crate) fn call_observers(&self) -> Option<&Arc<CallObservers>> {
        self.0.observers.as_ref()
    }

    /// The threads of tools that block.
    pub(crate) fn threads(&self) -> &BlockingThreads {
        &self.0.root.threads
    }

    /// The calls in this scope.
    pub(crate) fn tracker(&self) -> &Arc<Tracker> {
        &self.0.tracker
    }

    pub(crate) fn cancellation(&self) -> &CancellationToken {
        &self.0.cancellation
    }

    pub(crate) fn cancel(&self) {
        self.0.cancellation.cancel();
    }

    /// Returns a guard that cancels the scope when it is dropped.
    pub(crate) fn cancel_on_drop(&self) -> DropGuard {
        self.0.cancellation.clone().drop_guard()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.cancellation.is_cancelled()
    }

    /// Returns whether the whole runtime has been shut down.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.0.root.cancellation.is_cancelled()
    }

    pub(crate) async fn cancelled(&self) {
        self.0.cancellation.cancelled().await;
    }

    /// Runs `future` until it completes or the scope is cancelled; `None` if the scope is cancelled first. After that
    /// `future` is not polled again, so that nothing new begins.
    pub(crate) async fn unless_cancelled<F: Future>(&self, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            () = self.0.cancellation.cancelled() => None,
            output = future => Some(output),
        }
    }

    /// Returns whether a stream observes every step; a log alone does not.
    pub(crate) fn is_streamed(&self) -> bool {
        self.runtime_observers().is_observed()
            || self.0.observers.as_ref().is_some_and(|observers| observers.is_streamed())
    }

    pub(crate) fn telemetry(&self) -> &dyn Telemetry {
        &*self.0.root.telemetry
    }

    /// Emits an event of the call that `forward` began, to the log and to streams. Without observers it costs nothing.
    pub(crate) fn emit(&self, forward: &Forward, kind: impl FnOnce() -> EventKind) {
        if self.0.observers.is_some() || self.runtime_observers().is_observed() {
            self.observe(forward.call_id, forward.parent, kind());
        }
    }

    /// Emits an event to the observers of the held call, but not to the streams of the whole runtime.
    pub(crate) fn emit_to_log(&self, forward: &Forward, kind: impl FnOnce() -> EventKind) {
        if let Some(observers) = &self.0.observers {
            observers.observe(&self.event(forward.call_id, forward.parent, kind()));
        }
    }

    /// Returns a function that emits the use of a limit of the call that `forward` begins, to streams. It does not keep
    /// the scope.
    pub(crate) fn notifier(&self, forward: &Forward) -> Notifier {
        let (scope, call_id, parent) = (Arc::downgrade(&self.0), forward.call_id, forward.parent);
        Arc::new(move |Notice { what, used, limit }| {
            if let Some(scope) = scope.upgrade().map(Self) {
                scope.observe(call_id, parent, EventKind::Budget { what, used, limit });
            }
        })
    }

    fn event(&self, call_id: CallId, parent: Option<CallId>, kind: EventKind) -> Event {
        Event { sequence: self.runtime_observers().next_sequence(), call_id, parent, kind }
    }

    fn observe(&self, call_id: CallId, parent: Option<CallId>, kind: EventKind) {
        let event = self.event(call_id, parent, kind);
        self.runtime_observers().observe(&event);
        if let Some(observers) = &self.0.observers {
            observers.observe(&event);
        }
    }

    /// Emits an event that no log keeps, if there is a stream.
    pub(crate) fn emit_to_streams(&self, forward: &Forward, kind: impl FnOnce() -> EventKind) {
        if self.is_streamed() {
            self.emit(forward, kind);
        }
    }
}

/// A call without an outcome yet, as its tracker sees it.
pub(crate) trait Open: Send + Sync {
    fn call_id(&self) -> CallId;

    /// Has the caller of the call withdraw it.
    fn cancel(&self);

    /// Records the call as cancelled, without waiting for the callee.
    fn close(&self);
}

/// The calls that are alive, and a way to wait until there are none. A tracker may be a part of another one, the whole,
/// which counts its calls too.
#[derive(Default)]
pub(crate) struct Tracker {
    /// The calls of this tracker that none of its parts counts.
    open: Mutex<Slab<Weak<dyn Open>>>,
    alive: AtomicUsize,
    /// The number of parts of calls that have ended so far.
    ended: AtomicUsize,
    empty: Notify,
    whole: Option<Part>,
    parts: Mutex<Slab<Weak<Tracker>>>,
}

/// The time after which cancelled calls are no longer waited for, if no part of a call ends within it.
pub(crate) const STALLED: Duration = Duration::from_secs(1);

impl Tracker {
    fn under(whole: &Arc<Self>) -> Arc<Self> {
        Arc::new_cyclic(|part| {
            let place = whole.parts.lock().insert(Weak::clone(part));
            Self { whole: Some(Part { whole: Arc::clone(whole), place }), ..Self::default() }
        })
    }

    /// Adds a call, and returns its key.
    pub(crate) fn insert(&self, call: Weak<dyn Open>) -> usize {
        self.count_in();
        self.open.lock().insert(call)
    }

    fn count_in(&self) {
        self.alive.fetch_add(1, Ordering::Relaxed);
        self.whole.iter().for_each(|part| part.whole.count_in());
    }

    /// Removes the call with that key, which has ended.
    pub(crate) fn remove(&self, place: usize) {
        let call = self.open.lock().try_remove(place);
        drop(call);
        self.count_out();
    }

    /// Subtracts from the whole first: when the part is empty, the whole no longer counts its calls.
    fn count_out(&self) {
        self.whole.iter().for_each(|part| part.whole.count_out());
        if self.alive.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.empty.notify_waiters();
        }
    }

    /// Notes that a part of a call has ended.
    pub(crate) fn progressed(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of calls that are alive.
    pub(crate) fn count(&self) -> usize {
        self.alive.load(Ordering::Acquire)
    }

    /// Waits until no call is alive.
    pub(crate) async fn wait(&self) {
        loop {
            let emptied = self.empty.notified();
            if self.count() == 0 {
                return;
            }
            emptied.await;
        }
    }

    /// Waits until no call is alive, after all were cancelled. Calls that do not end, because their tokio runtime is
    /// not driven or their thread is blocked, get their outcome here.
    pub(crate) async fn wait_or_stalled(&self) {
        tokio::select! {
            biased;
            () = self.wait() => {}
            () = self.stalled() => self.close(),
        }
    }

    /// Waits until no part of a call has ended for [`STALLED`].
    async fn stalled(&self) {
        let mut before = None;
        loop {
            let ended = self.progress();
            if before.replace(ended) == Some(ended) {
                return;
            }
            // Without a tokio runtime, or without its time driver, calls are never taken for stalled.
            if catch_panic(async { tokio::time::sleep(STALLED).await }).await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    fn progress(&self) -> usize {
        let ended = |tracker: &Self| tracker.ended.load(Ordering::Relaxed);
        self.parts().iter().fold(ended(self), |sum, part| sum.wrapping_add(ended(part)))
    }

    /// Returns the parts that still exist. Drop them without the lock, because dropping the last reference to one takes
    /// it.
    fn parts(&self) -> Vec<Arc<Self>> {
        self.parts.lock().iter().filter_map(|(_, part)| part.upgrade()).collect()
    }

    /// Returns the call with this id, if it is one of this tracker.
    pub(crate) fn find(&self, call_id: CallId) -> Option<Arc<dyn Open>> {
        let open: Vec<_> = self.open.lock().iter().filter_map(|(_, call)| call.upgrade()).collect();
        open.into_iter().find(|call| call.call_id() == call_id)
    }

    fn close(&self) {
        self.parts().iter().for_each(|part| part.close());
        let open: Vec<_> = self.open.lock().iter().filter_map(|(_, call)| call.upgrade()).collect();
        open.iter().for_each(|call| call.close());
    }
}

/// The key of a tracker in the one that it is a part of, which is removed on drop.
struct Part {
    whole: Arc<Tracker>,
    place: usize,
}

impl Drop for Part {
    fn drop(&mut self) {
        let part = self.whole.parts.lock().try_remove(self.place);
        drop(part);
    }
}
