//! The spans of a run, with the names of the [OpenTelemetry conventions for generative
//! AI](https://github.com/open-telemetry/semantic-conventions-genai), as of 2026-11-22; and their metrics.
//!
//! | span | from | to |
//! |---|---|---|
//! | `invoke_agent {agent}` | the start of an invocation, or a Forward to an actor | its result |
//! | `chat {model}` | a request to a model | the reply, all attempts included |
//! | `execute_tool {tool}` | the start of a tool | its output, all attempts included |
//! | `execute_tool call_agent {agent}` | a Forward that a model sends | the result of the call |
//!
//! The span of an invocation has no parent in `tracing`; otherwise a chain of calls would be an equally long chain of
//! spans that are alive. With the feature `otel` it has a parent in OpenTelemetry all the same: see `link`. The ids of
//! the run and of the call are fields of every span.
//!
//! A span that is dropped before its end was cancelled, or its code panicked. A panic of a subscriber is caught there,
//! and where a span is closed: a drop may be part of another panic. Content is recorded only on request, keys never.
//! The name of an agent that a model made up is content.

mod chat;
mod error_type;
mod invocation;
#[cfg(feature = "otel")]
mod link;
mod messages;
#[cfg(feature = "otel")]
mod metrics;
mod tool;

use std::borrow::Cow;
use std::fmt::Display;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::Span;
use tracing::field::display;

use crate::message::Forward;
use crate::panics::catch;
use crate::snapshot::AgentEntry;
use crate::telemetry::{InvocationTrace, Telemetry};

/// The spans and metrics of one runtime.
pub(crate) struct Spans {
    records_content: bool,
    #[cfg(feature = "otel")]
    metrics: metrics::Metrics,
}

impl Spans {
    pub(crate) fn new(records_content: bool) -> Self {
        Self {
            records_content,
            #[cfg(feature = "otel")]
            metrics: metrics::Metrics::default(),
        }
    }
}

impl Telemetry for Spans {
    fn records_content(&self) -> bool {
        self.records_content
    }

    #[cfg(not(feature = "otel"))]
    fn place(&self, _: &Forward) {}

    #[cfg(feature = "otel")]
    fn place(&self, forward: &Forward) {
        // The caller may be outside of any call that a panic of a subscriber could be the error of.
        let _ = catch(|| link::place(forward));
    }

    fn invocation(&self, forward: &Arc<Forward>, agent: Option<&Arc<AgentEntry>>) -> Option<InvocationTrace> {
        invocation::begin(self, forward, agent)
    }
}

/// The end of a span, which comes once: by a result, or by its drop.
#[derive(Default)]
struct End(AtomicBool);

impl End {
    /// Returns `true` the first time.
    fn is_first(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }
}

/// The error type of work that was dropped before its end.
fn dropped(forward: &Forward) -> Cow<'static, str> {
    match std::thread::panicking() {
        true => "panicked".into(),
        false => error_type::of_call(&forward.run.cancelled()),
    }
}

/// Marks a span as failed.
fn fail(span: &Span, error_type: &str, description: Option<&dyn Display>) {
    span.record("error.type", error_type);
    span.record("otel.status_code", "ERROR");
    if let Some(description) = description {
        span.record("otel.status_description", display(description));
    }
}

/// A span that this crate made. A panic of a subscriber when it is closed is caught.
struct OwnSpan(Span);

impl Deref for OwnSpan {
    type Target = Span;

    fn deref(&self) -> &Span {
        &self.0
    }
}

impl Drop for OwnSpan {
    fn drop(&mut self) {
        let _ = catch(|| drop(std::mem::replace(&mut self.0, Span::none())));
    }
}

/// Records a list of texts: as a list where a layer for OpenTelemetry takes it, otherwise as JSON.
fn record_list(span: &Span, field: &'static str, list: &[Cow<'_, str>]) {
    #[cfg(feature = "otel")]
    if link::ids(span).is_some() {
        return link::set_list(span, field, list);
    }
    span.record(field, serde_json::to_string(list).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_id::CallId;

    #[test]
    fn without_a_subscriber_and_a_meter_nothing_is_traced() {
        let spans = Spans::new(true);
        let forward = Arc::new(Forward::of_user(CallId::random(), &"user".into(), "a".into(), "go".into()));
        spans.place(&forward);
        assert!(spans.invocation(&forward, None).is_none());
        #[cfg(feature = "otel")]
        assert_eq!(forward.place.get(), None);
    }
}
