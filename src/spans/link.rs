//! The link between invocations in OpenTelemetry: a child needs the ids of its parent, and no span that is alive.

use std::borrow::Cow;

use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use opentelemetry::{Array, Context, StringValue, Value};
use tracing::Span;
use tracing::level_filters::LevelFilter;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::message::Forward;
use crate::trace_place::SpanIds;

/// Notes the present span as the one above a call. A call within a run stays in its trace: the present span counts only
/// if it belongs to that, because an actor may be in a span of its own life.
pub(super) fn place(forward: &Forward) {
    let Some(current) = current() else { return };
    let is_of_the_run = || forward.place.get().is_none_or(|above| above.trace == current.trace);
    if forward.parent.is_none() || is_of_the_run() {
        forward.place.set(current);
    }
}

/// Makes a span a child of the one above the call.
pub(super) fn adopt(span: &Span, forward: &Forward) {
    if let Some(above) = forward.place.get() {
        let (trace, id) = (TraceId::from_bytes(above.trace), SpanId::from_bytes(above.span));
        let state = above.state.and_then(|state| state.parse().ok()).unwrap_or(TraceState::NONE);
        let above = SpanContext::new(trace, id, TraceFlags::new(above.flags), false, state);
        // It fails where no layer for OpenTelemetry takes the span.
        let _ = span.set_parent(Context::new().with_remote_span_context(above));
    }
}

/// Makes an invocation's span the one above the calls below. Returns whether a layer for OpenTelemetry takes it.
pub(super) fn lead(span: &Span, forward: &Forward) -> bool {
    let own = ids(span);
    let is_taken = own.is_some();
    own.into_iter().for_each(|own| forward.place.set(own));
    is_taken
}

/// The ids of a span, if a layer for OpenTelemetry takes it.
pub(super) fn ids(span: &Span) -> Option<SpanIds> {
    if span.is_disabled() {
        return None;
    }
    of(span.context().span().span_context())
}

/// The ids of the span in which this thread is: the innermost one, whichever way it was made. A layer that does not
/// make its spans the current ones of OpenTelemetry is asked itself.
fn current() -> Option<SpanIds> {
    let traced = || (LevelFilter::current() != LevelFilter::OFF).then(|| ids(&Span::current())).flatten();
    Context::map_current(|context| of(context.span().span_context())).or_else(traced)
}

fn of(context: &SpanContext) -> Option<SpanIds> {
    context.is_valid().then(|| SpanIds {
        trace: context.trace_id().to_bytes(),
        span: context.span_id().to_bytes(),
        flags: context.trace_flags().to_u8(),
        state: Some(context.trace_state().header()).filter(|state| !state.is_empty()).map(Into::into),
    })
}

pub(super) fn set_list(span: &Span, field: &'static str, list: &[Cow<'_, str>]) {
    let list = list.iter().map(|text| StringValue::from(text.clone().into_owned())).collect();
    span.set_attribute(field, Value::Array(Array::String(list)));
}
