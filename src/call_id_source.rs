//! Sources of call ids: one for calls that users begin, and numbered ids for calls below a tool or an actor.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use crate::call_id::CallId;
use crate::error::CallError;
use parking_lot::Mutex;

/// The source of the ids of calls that have no parent: random ones, unless a source was given.
pub(crate) struct CallIdSource(Option<Given>);

struct Given {
    source: Mutex<DrawId>,
    /// The thread on which the source is running now.
    running: Mutex<Option<ThreadId>>,
    /// The ids of the calls that are running.
    open: Mutex<HashSet<CallId>>,
}

/// A source of ids that the program provides.
pub(crate) type DrawId = Box<dyn FnMut() -> CallId + Send>;

impl CallIdSource {
    pub(crate) fn new(given: Option<DrawId>) -> Self {
        Self(given.map(|source| Given {
            source: Mutex::new(source),
            running: Mutex::default(),
            open: Mutex::default(),
        }))
    }

    /// Returns the next id, or a random one if the source itself makes the call.
    pub(crate) fn draw(&self) -> CallId {
        let Some(Given { source, running, .. }) = &self.0 else { return CallId::random() };
        let this = Some(thread::current().id());
        if *running.lock() == this {
            return CallId::random();
        }
        let mut draw = source.lock();
        let _running = Running::set(running, this);
        draw()
    }

    /// Reserves the id of a running call until the returned value is dropped. Random ids are not reserved.
    ///
    /// # Errors
    ///
    /// When the id is reserved already.
    pub(crate) fn reserve(self: &Arc<Self>, id: CallId) -> Result<Option<Box<ReservedId>>, CallError> {
        match &self.0 {
            None => Ok(None),
            Some(given) if given.open.lock().insert(id) => {
                Ok(Some(Box::new(ReservedId { source: Arc::clone(self), id })))
            }
            Some(_) => Err(CallError::IdInUse { call_id: id }),
        }
    }
}

/// A guard that records the thread on which a source runs, and clears the record even after a panic.
struct Running<'a>(&'a Mutex<Option<ThreadId>>);

impl<'a> Running<'a> {
    fn set(running: &'a Mutex<Option<ThreadId>>, thread: Option<ThreadId>) -> Self {
        *running.lock() = thread;
        Self(running)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

/// The id of a call that a user began, reserved until this is dropped.
pub(crate) struct ReservedId {
    source: Arc<CallIdSource>,
    id: CallId,
}

impl Drop for ReservedId {
    fn drop(&mut self) {
        if let Some(given) = &self.source.0 {
            given.open.lock().remove(&self.id);
        }
    }
}

/// Ids under a parent, numbered in the order in which they are drawn.
pub(crate) struct ChildIds {
    parent: CallId,
    drawn: AtomicU64,
}

impl ChildIds {
    pub(crate) fn under(parent: CallId) -> Self {
        Self { parent, drawn: AtomicU64::new(0) }
    }

    pub(crate) fn draw(&self) -> CallId {
        self.parent.child(self.drawn.fetch_add(1, Ordering::Relaxed))
    }
}
