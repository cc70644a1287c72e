//! The span of one invocation, and the sums of its requests.

use std::borrow::Cow;
use std::iter;
use std::sync::Arc;
#[cfg(feature = "otel")]
use std::time::Instant;

use parking_lot::Mutex;
use tracing::Span;
use tracing::field::Empty;

use super::chat::Chat;
#[cfg(feature = "otel")]
use super::metrics::Instruments;
use super::tool::{ToolStep, Transfer};
use super::{End, OwnSpan, Spans, dropped, error_type, fail, messages, record_list};
use crate::content::Content;
use crate::context::ChatMessage;
use crate::error::CallError;
use crate::message::Forward;
use crate::name::Name;
use crate::panics::{catch, drop_catching};
use crate::provider::Request;
use crate::reply::{StopReason, Usage};
use crate::snapshot::AgentEntry;
use crate::telemetry::{InvocationTrace, RequestTrace, ToolTrace, TraceInvocation, Traced, TransferTrace};
use crate::tool_call::ToolCall;

/// The data that the spans of one invocation share.
pub(super) struct Shared {
    pub(super) forward: Arc<Forward>,
    pub(super) agent: Option<Arc<AgentEntry>>,
    /// `false` if a subscriber takes no span of the invocation. It takes none of its steps either, which would be traces
    /// of their own: it may have come after the start.
    is_traced: bool,
    /// `false` if no layer for OpenTelemetry takes the span of the invocation. Its steps then have the parent that it would
    /// have.
    #[cfg(feature = "otel")]
    is_linked: bool,
    pub(super) records_content: bool,
    pub(super) sums: Mutex<Sums>,
    #[cfg(feature = "otel")]
    pub(super) instruments: Option<Arc<Instruments>>,
}

/// What the requests and tool calls of one invocation come to.
#[derive(Default)]
pub(super) struct Sums {
    pub(super) usage: Option<Usage>,
    /// The reason why the model stopped last.
    pub(super) stop_reason: Option<StopReason>,
    pub(super) requests: u64,
    pub(super) tool_calls: u64,
}

impl Drop for Shared {
    /// Catches a panic of the provider, which is foreign code: the trace may be the last that holds it.
    fn drop(&mut self) {
        drop_catching(self.agent.take());
    }
}

impl Shared {
    /// Returns the span of a step, unless the invocation has none.
    pub(super) fn step(&self, span: impl FnOnce() -> Span) -> OwnSpan {
        if !self.is_traced {
            return OwnSpan(Span::none());
        }
        let span = OwnSpan(span());
        #[cfg(feature = "otel")]
        {
            if !self.is_linked {
                super::link::adopt(&span, &self.forward);
            }
            // Starts it here, where it is not entered: a sampler that panics while it is would do so again when it is left.
            super::link::ids(&span);
        }
        span
    }

    /// Adds a request that has ended.
    pub(super) fn add(&self, used: Option<Usage>, stop_reason: Option<&StopReason>) {
        let mut sums = self.sums.lock();
        if let Some(used) = used {
            sums.usage = Some(sums.usage.unwrap_or_default() + used);
        }
        sums.stop_reason = stop_reason.cloned().or(sums.stop_reason.take());
    }

    /// The name of the model's provider, if an agent is invoked.
    pub(super) fn provider(&self) -> Option<&str> {
        self.agent.as_deref().map(provider)
    }

    /// The name of the model; `None` if its provider serves only one.
    pub(super) fn model(&self) -> Option<&str> {
        self.agent.as_deref().and_then(model)
    }

    /// The ids of the conversation and its user, see [`Call::conversation`](crate::Call::conversation).
    pub(super) fn conversation(&self) -> Option<&str> {
        self.forward.run.conversation().map(|id| &**id)
    }
}

fn provider(agent: &AgentEntry) -> &str {
    agent.info.name.as_deref().unwrap_or(&agent.provider_name)
}

fn model(entry: &AgentEntry) -> Option<&str> {
    Some(&*entry.agent.model).filter(|model| !model.is_empty())
}

/// Begins the trace of an invocation, if it is asked for.
pub(super) fn begin(spans: &Spans, forward: &Arc<Forward>, agent: Option<&Arc<AgentEntry>>) -> Option<InvocationTrace> {
    let span = OwnSpan(span(forward, agent.map(|agent| &**agent)));
    #[cfg(feature = "otel")]
    let instruments = spans.metrics.instruments();
    #[cfg(feature = "otel")]
    let is_metered = instruments.is_some();
    #[cfg(not(feature = "otel"))]
    let is_metered = false;
    if span.is_disabled() && !is_metered {
        return None;
    }
    #[cfg(feature = "otel")]
    super::link::adopt(&span, forward);
    #[cfg(feature = "otel")]
    let is_linked = super::link::lead(&span, forward);
    if spans.records_content && !span.is_disabled() {
        let question = ChatMessage::User(forward.content.clone());
        let input = messages::input(forward.history.iter().chain(iter::once(&question)));
        span.record("gen_ai.input.messages", input);
    }
    let shared = Shared {
        forward: Arc::clone(forward),
        agent: agent.cloned(),
        is_traced: !span.is_disabled(),
        #[cfg(feature = "otel")]
        is_linked,
        records_content: spans.records_content && !span.is_disabled(),
        sums: Mutex::default(),
        #[cfg(feature = "otel")]
        instruments,
    };
    Some(Arc::new(Invocation {
        span,
        shared: Arc::new(shared),
        #[cfg(feature = "otel")]
        begun: Instant::now(),
        end: End::default(),
    }))
}

fn span(forward: &Forward, agent: Option<&AgentEntry>) -> Span {
    tracing::info_span!(
        parent: None,
        "invoke_agent",
        otel.name = %format_args!("invoke_agent {}", forward.receiver),
        otel.kind = "internal",
        otel.status_code = Empty,
        otel.status_description = Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.provider.name = agent.map(provider),
        gen_ai.agent.name = &*forward.receiver,
        gen_ai.agent.description = agent.and_then(|entry| entry.agent.role.as_deref()),
        gen_ai.request.model = agent.and_then(model),
        gen_ai.conversation.id = forward.run.conversation().map(|id| &**id),
        session.id = forward.run.conversation().map(|id| &**id),
        user.id = &**forward.run.user(),
        gen_ai.response.finish_reasons = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        gen_ai.usage.cache_read.input_tokens = Empty,
        gen_ai.usage.cache_write.input_tokens = Empty,
        gen_ai.usage.reasoning.output_tokens = Empty,
        gen_ai.input.messages = Empty,
        gen_ai.output.messages = Empty,
        agentouto.run.id = %forward.run.root(),
        agentouto.call.id = %forward.call_id,
        agentouto.call.parent = forward.parent.map(display),
        agentouto.call.sender = &*forward.sender,
        error.type = Empty,
    )
}

/// One invocation.
struct Invocation {
    span: OwnSpan,
    shared: Arc<Shared>,
    #[cfg(feature = "otel")]
    begun: Instant,
    end: End,
}

impl Invocation {
    fn finish(&self, error: Option<Cow<'static, str>>, description: Option<&CallError>) {
        let Shared { records_content, sums, .. } = &*self.shared;
        let sums = std::mem::take(&mut *sums.lock());
        if let Some(usage) = sums.usage {
            record_usage(&self.span, usage);
        }
        if let Some(reason) = &sums.stop_reason {
            record_list(&self.span, "gen_ai.response.finish_reasons", &[reason.to_string().into()]);
        }
        if let Some(error) = &error {
            let description = description.filter(|_| *records_content);
            fail(&self.span, error, description.map(|error| error as &dyn std::fmt::Display));
        }
        #[cfg(feature = "otel")]
        if let Some(instruments) = &self.shared.instruments {
            instruments.invocation(&self.shared, &sums, self.begun.elapsed(), error);
        }
    }
}

/// Records the tokens that were used. As signed numbers: the layer for OpenTelemetry makes text of the others.
pub(super) fn record_usage(span: &Span, usage: Usage) {
    let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    span.record("gen_ai.usage.input_tokens", count(usage.input_tokens));
    span.record("gen_ai.usage.output_tokens", count(usage.output_tokens));
    let parts = [
        ("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens),
        ("gen_ai.usage.cache_write.input_tokens", usage.cache_write_tokens),
        ("gen_ai.usage.reasoning.output_tokens", usage.reasoning_tokens),
    ];
    for (field, tokens) in parts.into_iter().filter(|(_, tokens)| *tokens > 0) {
        span.record(field, count(tokens));
    }
}

impl Traced<Result<Content, CallError>> for Invocation {
    fn span(&self) -> Span {
        self.span.0.clone()
    }

    fn end(&self, result: &Result<Content, CallError>) {
        if !self.end.is_first() {
            return;
        }
        match result {
            Ok(answer) if self.shared.records_content => {
                self.span.record("gen_ai.output.messages", messages::answer(answer));
                self.finish(None, None);
            }
            Ok(_) => self.finish(None, None),
            Err(error) => self.finish(Some(error_type::of_call(error)), Some(error)),
        }
    }
}

impl TraceInvocation for Invocation {
    fn request(&self, request: &Request, is_typed: bool, is_observed: bool) -> RequestTrace {
        Box::new(Chat::begin(&self.shared, request, is_typed, is_observed))
    }

    fn tool(&self, call: &ToolCall) -> ToolTrace {
        Box::new(ToolStep::begin(&self.shared, call, None))
    }

    fn transfer(&self, call: &ToolCall, target: Option<&Name>) -> TransferTrace {
        Box::new(ToolStep::begin(&self.shared, call, Some(Transfer { target })))
    }
}

impl Drop for Invocation {
    fn drop(&mut self) {
        if self.end.is_first() {
            let _ = catch(|| self.finish(Some(dropped(&self.shared.forward)), None));
        }
    }
}
