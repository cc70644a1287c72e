//! The place of a call in a distributed trace: the ids of a span, which keep no span alive.

use std::sync::Arc;

use parking_lot::Mutex;

/// The ids of a span, as in a [`traceparent`](https://www.w3.org/TR/trace-context/#traceparent-header).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpanIds {
    pub(crate) trace: [u8; 16],
    pub(crate) span: [u8; 8],
    pub(crate) flags: u8,
    /// The [`tracestate`](https://www.w3.org/TR/trace-context/#tracestate-header), unless it is empty.
    pub(crate) state: Option<Arc<str>>,
}

/// The span above a call: that of its caller; and from the start of its invocation on, its own, for the calls below it.
#[derive(Debug, Default)]
pub(crate) struct TracePlace(Mutex<Option<SpanIds>>);

impl TracePlace {
    pub(crate) fn get(&self) -> Option<SpanIds> {
        self.0.lock().clone()
    }

    pub(crate) fn set(&self, ids: SpanIds) {
        *self.0.lock() = Some(ids);
    }
}

impl Clone for TracePlace {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.get()))
    }
}

impl PartialEq for TracePlace {
    /// All are equal: a Forward is the same wherever it is traced.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
