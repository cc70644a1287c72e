//! The `tracing` spans of a run, with the names of the OpenTelemetry conventions for generative AI
//! (<https://opentelemetry.io/docs/specs/semconv/gen-ai/>).
//!
//! An invocation's span has no parent; otherwise a chain of calls would be an equally long chain of spans. The parent
//! call's id is a field. Content is recorded only on request, keys never.

use tracing::Span;
use tracing::field::{Empty, display};

use crate::content::Content;
use crate::error::CallError;
use crate::message::Forward;
use crate::name::Name;
use crate::provider::{ProviderError, Request};
use crate::reply::Reply;
use crate::scope::Scope;
use crate::tool_call::{ToolCall, ToolOutput};

/// The span of one invocation. A span that ends without a result was cancelled.
pub(crate) struct InvocationSpan {
    pub(crate) span: Span,
    is_over: bool,
}

impl InvocationSpan {
    pub(crate) fn new(forward: &Forward, scope: &Scope) -> Self {
        let span = tracing::info_span!(
            parent: None,
            "invoke_agent",
            otel.name = %format_args!("invoke_agent {}", forward.receiver),
            gen_ai.operation.name = "invoke_agent",
            gen_ai.agent.name = %forward.receiver,
            gen_ai.input.messages = Empty,
            gen_ai.output.messages = Empty,
            agentouto.call.id = %forward.call_id,
            agentouto.call.parent = forward.parent.map(display),
            agentouto.call.sender = %forward.sender,
            error.type = Empty,
        );
        if scope.records_content() {
            span.record("gen_ai.input.messages", display(&forward.content));
        }
        Self { span, is_over: false }
    }

    /// Records how the invocation ended.
    pub(crate) fn record_result(mut self, result: &Result<Content, CallError>, scope: &Scope) {
        self.is_over = true;
        match result {
            Ok(content) if scope.records_content() => {
                self.span.record("gen_ai.output.messages", display(content));
            }
            Ok(_) => {}
            Err(error) => {
                self.span.record("error.type", error_type(error));
            }
        }
    }
}

impl Drop for InvocationSpan {
    fn drop(&mut self) {
        if !self.is_over {
            let how = if std::thread::panicking() { "panicked" } else { "cancelled" };
            self.span.record("error.type", how);
        }
    }
}

/// The span of one request to a model.
pub(crate) fn chat_span(request: &Request, provider: &Name) -> Span {
    let agent = &request.agent;
    tracing::info_span!(
        "chat",
        otel.name = %format_args!("chat {}", agent.model),
        otel.kind = "client",
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = %provider,
        gen_ai.request.model = %agent.model,
        gen_ai.request.temperature = agent.temperature,
        gen_ai.request.max_tokens = agent.max_output_tokens,
        gen_ai.response.finish_reasons = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        agentouto.call.id = %request.call_id,
        error.type = Empty,
    )
}

/// Records a model's reply.
pub(crate) fn record_reply(span: &Span, reply: &Result<Reply, ProviderError>) {
    if span.is_disabled() {
        return;
    }
    match reply {
        Ok(reply) => {
            span.record("gen_ai.response.finish_reasons", display(&reply.stop_reason));
            if let Some(usage) = reply.usage {
                span.record("gen_ai.usage.input_tokens", usage.input_tokens);
                span.record("gen_ai.usage.output_tokens", usage.output_tokens);
            }
        }
        Err(error) => {
            span.record("error.type", tracing::field::debug(error.kind));
        }
    }
}

/// The span of one tool call.
pub(crate) fn tool_span(call: &ToolCall, scope: &Scope) -> Span {
    let span = tracing::info_span!(
        "execute_tool",
        otel.name = %format_args!("execute_tool {}", call.name),
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = %call.name,
        gen_ai.tool.type = "function",
        gen_ai.tool.call.id = %call.id,
        gen_ai.tool.call.arguments = Empty,
        gen_ai.tool.call.result = Empty,
        error.type = Empty,
    );
    if scope.records_content() {
        span.record("gen_ai.tool.call.arguments", display(&call.arguments));
    }
    span
}

/// Records a tool's output.
pub(crate) fn record_output(span: &Span, output: &ToolOutput, scope: &Scope) {
    if output.is_error {
        span.record("error.type", "tool_error");
    }
    if scope.records_content() {
        span.record("gen_ai.tool.call.result", display(&output.content));
    }
}

/// Returns one word for an error, from a small set of words.
fn error_type(error: &CallError) -> &'static str {
    match error {
        CallError::UnknownAgent { .. } => "unknown_agent",
        CallError::Provider { .. } => "provider_error",
        CallError::Panicked { .. } => "panicked",
        CallError::Cancelled => "cancelled",
        CallError::Unanswered { .. } => "unanswered",
        CallError::Unreachable { .. } => "unreachable",
        CallError::ShutDown => "shut_down",
        CallError::NameTaken { .. } => "name_taken",
        CallError::IdInUse { .. } => "id_in_use",
        CallError::BudgetExceeded { .. } => "budget_exceeded",
        CallError::Misfit { .. } => "misfit",
        CallError::Failed(_) => "failed",
    }
}
