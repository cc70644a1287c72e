//! Observers of calls: the streams of a whole runtime, and the log and stream of one held call.
//!
//! Observation never waits: a stream whose reader is too slow loses events, which are counted. No code of a reader (its
//! waker, its drop) runs under a lock.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};

use futures_util::Stream;
use parking_lot::Mutex;
use slab::Slab;
use tokio::sync::{Semaphore, mpsc};

use crate::event::Event;
use crate::log::{Log, LogEntry};
use crate::panics::catch_and_log;

/// The observers of a whole runtime, and the count of its events.
#[derive(Default)]
pub(crate) struct RuntimeObservers {
    sequence: AtomicU64,
    observers: AtomicUsize,
    streams: Mutex<Streams>,
}

#[derive(Default)]
struct Streams {
    sinks: Slab<Sink>,
    /// The sinks as a list, built when the next event is observed.
    list: Option<Arc<[Sink]>>,
    is_closed: bool,
}

impl RuntimeObservers {
    /// The number of the next event.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn is_observed(&self) -> bool {
        self.observers.load(Ordering::Relaxed) > 0
    }

    /// Opens one more stream of all events. It ends at once if the streams are closed.
    pub(crate) fn stream(self: &Arc<Self>, capacity: usize) -> Events {
        let (sink, mut events) = Events::bounded(capacity);
        let key = self.change(|streams| (!streams.is_closed).then(|| streams.sinks.insert(sink)));
        events.place = key.map(|key| (Arc::downgrade(self), key));
        events
    }

    /// Ends all streams of all events, and those opened later.
    pub(crate) fn close(&self) {
        drop(self.change(|streams| {
            streams.is_closed = true;
            std::mem::take(&mut streams.sinks)
        }));
    }

    pub(crate) fn observe(&self, event: &Event) {
        if self.is_observed() {
            let list = {
                let Streams { sinks, list, .. } = &mut *self.streams.lock();
                Arc::clone(list.get_or_insert_with(|| sinks.iter().map(|(_, sink)| sink.clone()).collect()))
            };
            list.iter().for_each(|sink| sink.observe(event));
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Streams) -> T) -> T {
        let mut streams = self.streams.lock();
        let changed = change(&mut streams);
        let list = streams.list.take();
        self.observers.store(streams.sinks.len(), Ordering::Relaxed);
        drop(streams);
        drop(list);
        changed
    }
}

/// A guard that keeps the streams of a runtime open. They end when the last guard is dropped. The runtime holds one,
/// and so does each call without a parent while it is running. A value kept from a call that is over holds none, so it
/// keeps no stream open.
pub(crate) struct OpenStreams(pub(crate) Arc<RuntimeObservers>);

impl Drop for OpenStreams {
    fn drop(&mut self) {
        // Ending a stream wakes its reader, which is foreign code.
        catch_and_log("in a waker", || self.0.close());
    }
}

/// The observers of one held call: its log, and its stream once one is asked for.
#[derive(Default)]
pub(crate) struct CallObservers {
    log: Mutex<Log>,
    stream: OnceLock<Sink>,
    details: OnceLock<Details>,
}

/// A function that returns what a log keeps of an event beyond messages and usage.
pub(crate) type Details = Box<dyn Fn(&Event) -> Option<LogEntry> + Send + Sync>;

impl CallObservers {
    /// Opens the stream for events from now on.
    pub(crate) fn stream(&self, capacity: usize) -> Events {
        let (sink, events) = Events::bounded(capacity);
        // On a second call, the first stream keeps its events and this one ends at once.
        let _ = self.stream.set(sink);
        events
    }

    /// Keeps more in the log from now on. Only the first function counts.
    pub(crate) fn log_details(&self, details: Details) {
        let _ = self.details.set(details);
    }

    /// Returns whether every step is observed, for a stream or for a detailed log.
    pub(crate) fn is_streamed(&self) -> bool {
        self.stream.get().is_some() || self.details.get().is_some()
    }

    pub(crate) fn observe(&self, event: &Event) {
        let detail = self.details.get().and_then(|details| details(event));
        for entry in LogEntry::of(event).into_iter().chain(detail) {
            self.log.lock().push(entry);
        }
        if let Some(stream) = self.stream.get() {
            stream.observe(event);
        }
    }

    /// Takes the log so far.
    pub(crate) fn take_log(&self) -> Log {
        std::mem::take(&mut *self.log.lock())
    }
}

/// The writing end of a stream.
#[derive(Clone)]
struct Sink {
    sender: mpsc::Sender<Event>,
    lost: Arc<AtomicU64>,
}

impl Sink {
    fn observe(&self, event: &Event) {
        // Sending wakes the reader, which is foreign code.
        catch_and_log("in a waker", || {
            if let Err(mpsc::error::TrySendError::Full(_)) = self.sender.try_send(event.clone()) {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}

/// A bounded stream of events.
///
/// A full stream never delays the calls that it observes: further events are lost and counted. Memory is used for the
/// events that wait to be read, not for the capacity.
#[derive(Debug)]
pub struct Events {
    receiver: mpsc::Receiver<Event>,
    lost: Arc<AtomicU64>,
    /// The observers and the key of this stream there, which is removed on drop.
    place: Option<(Weak<RuntimeObservers>, usize)>,
}

impl Events {
    fn bounded(capacity: usize) -> (Sink, Self) {
        let (sender, receiver) = mpsc::channel(capacity.clamp(1, Semaphore::MAX_PERMITS));
        let lost = Arc::default();
        (Sink { sender, lost: Arc::clone(&lost) }, Self { receiver, lost, place: None })
    }

    /// Returns the next event, or `None` when the stream has ended. Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Event> {
        self.receiver.recv().await
    }

    /// Returns the next event, if one is waiting to be read.
    pub fn try_next(&mut self) -> Option<Event> {
        self.receiver.try_recv().ok()
    }

    /// The number of events lost so far because the stream was full.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    pub(crate) fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.receiver.poll_recv(context)
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.poll_recv(context)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if let Some((observers, key)) = self.place.take()
            && let Some(observers) = observers.upgrade()
        {
            drop(observers.change(|streams| streams.sinks.try_remove(key)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_is_dropped_takes_no_place_though_no_event_follows() {
        let observers = Arc::<RuntimeObservers>::default();
        let kept = observers.stream(10);
        for _ in 0..1_000 {
            drop(observers.stream(10));
        }
        assert_eq!((observers.streams.lock().sinks.len(), observers.is_observed()), (1, true));
        assert!(observers.streams.lock().sinks.capacity() < 10, "places are used again");
        drop(kept);
        assert_eq!((observers.streams.lock().sinks.len(), observers.is_observed()), (0, false));
    }
}
