//! The log of a run: the part of its events that is kept.

use std::fmt;
use std::sync::Arc;

use crate::call_id::CallId;
use crate::event::{Approval, Event, EventKind};
use crate::message::{Forward, Return};
use crate::reply::Usage;

/// The log of a run: every [`Forward`] and [`Return`] in the order in which they happened, and the usage of the models.
/// After [`Call::log_details`](crate::Call::log_details) also the tool calls. Cheap to clone.
#[derive(Clone, Default)]
pub struct Log {
    /// The entries, shared by the clones of the log.
    pub(crate) entries: Arc<Vec<LogEntry>>,
}

/// The part of an event that a log keeps. Small, because there are several for each call.
#[derive(Clone)]
pub(crate) enum LogEntry {
    Forward(Arc<Forward>),
    Return(Arc<Return>),
    /// The usage of one request to a model.
    Usage(CallId, Box<Usage>),
    /// An event that is kept on request.
    Detail(Box<Event>),
    Approval(Arc<Approval>),
}

impl LogEntry {
    /// Returns the part of an event that a log keeps, if any.
    pub(crate) fn of(event: &Event) -> Option<Self> {
        match &event.kind {
            EventKind::Forward { forward } => Some(Self::Forward(Arc::clone(forward))),
            EventKind::Return { answer } => Some(Self::Return(Arc::clone(answer))),
            EventKind::ToolApproval(approval) => Some(Self::Approval(Arc::clone(approval))),
            kind => request_usage(kind).flatten().map(|usage| Self::Usage(event.call_id, Box::new(usage))),
        }
    }
}

impl Log {
    pub(crate) fn push(&mut self, entry: LogEntry) {
        Arc::make_mut(&mut self.entries).push(entry);
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("entries", &self.entries.len()).finish()
    }
}

/// The usage that a request to a model ended with. `None`: the event ends no request. `Some(None)`: the server reported
/// no usage.
pub(crate) fn request_usage(kind: &EventKind) -> Option<Option<Usage>> {
    match kind {
        EventKind::ModelReply { usage, .. } | EventKind::ModelAborted { usage, .. } => Some(*usage),
        EventKind::ModelError { error, .. } => Some(error.usage()),
        _ => None,
    }
}
