//! Sources of call ids: one for calls that users begin, and numbered ids for calls below a tool or an actor.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, ReentrantMutex};

use crate::call_id::CallId;
use crate::error::CallError;

/// The source of the ids of calls that have no parent: random ones, unless a source was given.
pub(crate) struct CallIdSource(Option<Arc<Given>>);

struct Given {
    /// Borrowed while it runs. A call that it makes itself finds it borrowed.
    source: ReentrantMutex<RefCell<DrawId>>,
    /// The ids of the calls that are running.
    open: Mutex<HashSet<CallId>>,
}

/// A source of ids that the program provides.
pub(crate) type DrawId = Box<dyn FnMut() -> CallId + Send>;

impl CallIdSource {
    pub(crate) fn new(given: Option<DrawId>) -> Self {
        let source = |source| Given { source: ReentrantMutex::new(RefCell::new(source)), open: Mutex::default() };
        Self(given.map(source).map(Arc::new))
    }

    /// Returns the next id, or a random one if the source itself makes the call.
    pub(crate) fn draw(&self) -> CallId {
        let Some(given) = &self.0 else { return CallId::random() };
        let source = given.source.lock();
        source.try_borrow_mut().map_or_else(|_| CallId::random(), |mut draw| draw())
    }

    /// Reserves the id of a running call until the returned value is dropped. Random ids are not reserved.
    ///
    /// # Errors
    ///
    /// When the id is reserved already.
    pub(crate) fn reserve(&self, id: CallId) -> Result<Option<Box<ReservedId>>, CallError> {
        match &self.0 {
            None => Ok(None),
            Some(given) if given.open.lock().insert(id) => {
                Ok(Some(Box::new(ReservedId { given: Arc::clone(given), id })))
            }
            Some(_) => Err(CallError::IdInUse { call_id: id }),
        }
    }
}

/// The id of a call that a user began, reserved until this is dropped.
pub(crate) struct ReservedId {
    given: Arc<Given>,
    id: CallId,
}

impl Drop for ReservedId {
    fn drop(&mut self) {
        self.given.open.lock().remove(&self.id);
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
