//! What all calls below one held call have in common: they are cancelled together and observed together.
//!
//! A cancellation reaches every call of a scope at once, however deep. Observing never waits: whoever
//! reads too slowly loses events and is told how many.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::Notify;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::event::{Event, EventKind};
use crate::message::{CallId, Forward};
use crate::trace::{Entry, Log};

/// Cancellation and observers of a held call and all below it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Scope(Arc<Shared>);

struct Shared {
    cancellation: CancellationToken,
    sinks: Arc<[Sink]>,
    population: Arc<Population>,
    hub: Arc<Hub>,
}

impl Scope {
    /// A scope that nothing is above.
    pub(crate) fn root(hub: Hub) -> Self {
        let (cancellation, sinks, population) = (CancellationToken::new(), Arc::default(), Arc::default());
        Self(Arc::new(Shared { cancellation, sinks, population, hub: Arc::new(hub) }))
    }

    /// A scope that is cancelled with this one, or alone.
    pub(crate) fn child(&self) -> Self {
        let Shared { cancellation, sinks, population, .. } = &*self.0;
        self.with(cancellation.child_token(), Arc::clone(sinks), Arc::clone(population))
    }

    /// Like [`Scope::child`], with a population that is counted by itself.
    pub(crate) fn populated_child(&self) -> Self {
        let Shared { cancellation, sinks, population, .. } = &*self.0;
        self.with(cancellation.child_token(), Arc::clone(sinks), Population::under(population))
    }

    /// The same scope, observed by one more.
    pub(crate) fn observed_by(&self, sink: Sink) -> Self {
        let Shared { cancellation, sinks, population, .. } = &*self.0;
        self.with(cancellation.clone(), sinks.iter().cloned().chain([sink]).collect(), Arc::clone(population))
    }

    fn with(&self, cancellation: CancellationToken, sinks: Arc<[Sink]>, population: Arc<Population>) -> Self {
        Self(Arc::new(Shared { cancellation, sinks, population, hub: Arc::clone(&self.0.hub) }))
    }

    /// The observers of the whole runtime.
    pub(crate) fn hub(&self) -> &Hub {
        &self.0.hub
    }

    /// The invocations in this scope.
    pub(crate) fn population(&self) -> &Arc<Population> {
        &self.0.population
    }

    pub(crate) fn cancel(&self) {
        self.0.cancellation.cancel();
    }

    /// Cancels when dropped.
    pub(crate) fn cancel_on_drop(&self) -> DropGuard {
        self.0.cancellation.clone().drop_guard()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.cancellation.is_cancelled()
    }

    pub(crate) async fn cancelled(&self) {
        self.0.cancellation.cancelled().await;
    }

    /// Runs `future` unless and until the scope is cancelled; `None` if it is. Once it is, `future` is not polled
    /// again, so that nothing new begins.
    pub(crate) async fn unless_cancelled<F: Future>(&self, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            () = self.0.cancellation.cancelled() => None,
            output = future => Some(output),
        }
    }

    /// Whether anybody sees every step, as a log does not.
    pub(crate) fn is_streamed(&self) -> bool {
        self.0.hub.observers.load(Ordering::Relaxed) > 0
            || self.0.sinks.iter().any(|sink| matches!(sink, Sink::Stream(_)))
    }

    pub(crate) fn records_content(&self) -> bool {
        self.0.hub.records_content
    }

    /// Tells logs and streams of a step of the call that `forward` began. Without any it costs nothing.
    pub(crate) fn emit(&self, forward: &Forward, kind: impl FnOnce() -> EventKind) {
        if !self.0.sinks.is_empty() || self.0.hub.observers.load(Ordering::Relaxed) > 0 {
            let sequence = self.0.hub.sequence.fetch_add(1, Ordering::Relaxed);
            let event = Event { sequence, call_id: forward.call_id, parent: forward.parent, kind: kind() };
            self.0.hub.observe(&event);
            for sink in &*self.0.sinks {
                sink.observe(&event);
            }
        }
    }

    /// Tells streams of a step that no log has use for.
    pub(crate) fn show(&self, forward: &Forward, kind: impl FnOnce() -> EventKind) {
        if self.is_streamed() {
            self.emit(forward, kind);
        }
    }
}

/// The observers of a whole runtime, and the count of its events.
#[derive(Default)]
pub(crate) struct Hub {
    sequence: AtomicU64,
    observers: AtomicUsize,
    streams: RwLock<Vec<Sink>>,
    records_content: bool,
}

impl Hub {
    /// A hub; with `records_content`, spans carry what was said.
    pub(crate) fn new(records_content: bool) -> Self {
        Self { records_content, ..Self::default() }
    }

    /// One more stream of all events.
    pub(crate) fn stream(&self, capacity: usize) -> Events {
        let (sink, events) = Events::bounded(capacity);
        self.change(|streams| streams.push(sink));
        events
    }

    /// Ends all streams of all events.
    pub(crate) fn close(&self) {
        self.change(Vec::clear);
    }

    fn observe(&self, event: &Event) {
        if self.observers.load(Ordering::Relaxed) > 0 {
            let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
            streams.iter().for_each(|stream| stream.observe(event));
            if !streams.iter().all(Sink::is_read) {
                drop(streams);
                self.change(|streams| streams.retain(Sink::is_read));
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Sink>)) {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut streams);
        self.observers.store(streams.len(), Ordering::Relaxed);
    }
}

/// Where events go.
#[derive(Clone)]
pub(crate) enum Sink {
    /// Into a log, if the log has use for them.
    Log(Arc<Mutex<Log>>),
    /// Into a stream.
    Stream(StreamSink),
}

impl Sink {
    fn observe(&self, event: &Event) {
        match self {
            Self::Log(log) => {
                if let Some(entry) = Entry::of(event) {
                    log.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
                }
            }
            Self::Stream(stream) => stream.observe(event),
        }
    }

    fn is_read(&self) -> bool {
        !matches!(self, Self::Stream(stream) if stream.sender.is_closed())
    }
}

#[derive(Clone)]
pub(crate) struct StreamSink {
    sender: mpsc::Sender<Event>,
    lost: Arc<AtomicU64>,
}

impl StreamSink {
    fn observe(&self, event: &Event) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.sender.try_send(event.clone()) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A bounded stream of events.
///
/// It never holds up what it observes: when it is full, further events are lost and counted. Memory is
/// taken for the events that wait to be read, not for the capacity.
#[derive(Debug)]
pub struct Events {
    receiver: mpsc::Receiver<Event>,
    lost: Arc<AtomicU64>,
}

impl Events {
    pub(crate) fn bounded(capacity: usize) -> (Sink, Self) {
        let (sender, receiver) = mpsc::channel(capacity.max(1));
        let lost = Arc::default();
        (Sink::Stream(StreamSink { sender, lost: Arc::clone(&lost) }), Self { receiver, lost })
    }

    /// The next event; `None` when there will be no more. Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Event> {
        self.receiver.recv().await
    }

    /// The next event, if one is waiting to be read.
    pub fn try_next(&mut self) -> Option<Event> {
        self.receiver.try_recv().ok()
    }

    /// How many events were lost so far because the stream was full.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    pub(crate) fn poll_next(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Option<Event>> {
        self.receiver.poll_recv(context)
    }
}

/// How many invocations are alive, and a way to wait until none is.
#[derive(Default)]
pub(crate) struct Population {
    alive: AtomicUsize,
    empty: Notify,
    /// The population that this one is a part of.
    whole: Option<Arc<Population>>,
}

impl Population {
    fn under(whole: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self { whole: Some(Arc::clone(whole)), ..Self::default() })
    }

    /// One more, until the value is dropped.
    pub(crate) fn join(self: &Arc<Self>) -> Alive {
        self.enter();
        Alive(Arc::clone(self))
    }

    fn enter(&self) {
        self.alive.fetch_add(1, Ordering::Relaxed);
        self.whole.iter().for_each(|whole| whole.enter());
    }

    /// Leaves the whole first: when the part is empty, the whole is known to be without it.
    fn leave(&self) {
        self.whole.iter().for_each(|whole| whole.leave());
        if self.alive.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.empty.notify_waiters();
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.alive.load(Ordering::Acquire)
    }

    pub(crate) async fn none(&self) {
        loop {
            let emptied = self.empty.notified();
            if self.count() == 0 {
                return;
            }
            emptied.await;
        }
    }
}

/// An invocation that is alive.
pub(crate) struct Alive(Arc<Population>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Calls under a parent, numbered in the order in which they are made.
pub(crate) struct CallIds {
    parent: CallId,
    drawn: AtomicU64,
}

impl CallIds {
    pub(crate) fn under(parent: CallId) -> Self {
        Self { parent, drawn: AtomicU64::new(0) }
    }

    pub(crate) fn draw(&self) -> CallId {
        self.parent.child(self.drawn.fetch_add(1, Ordering::Relaxed))
    }
}
