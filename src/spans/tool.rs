//! The span of a tool call, and of a call of an agent, which is a tool call too.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;
#[cfg(feature = "otel")]
use std::time::Instant;

use tracing::Span;
use tracing::field::Empty;

use super::invocation::Shared;
use super::{End, OwnSpan, dropped, error_type, fail};
use crate::content::Content;
use crate::error::CallError;
use crate::name::Name;
use crate::panics::catch;
use crate::telemetry::Traced;
use crate::tool_call::{ToolCall, ToolError};

/// One tool call.
pub(super) struct ToolStep {
    span: OwnSpan,
    shared: Arc<Shared>,
    #[cfg(feature = "otel")]
    tool: Name,
    #[cfg(feature = "otel")]
    begun: Instant,
    end: End,
}

impl ToolStep {
    /// Begins a tool call.
    pub(super) fn begin(shared: &Arc<Shared>, call: &ToolCall, transfer: Option<Transfer<'_>>) -> Self {
        shared.sums.lock().tool_calls += 1;
        let span = shared.step(|| span(shared, call, transfer));
        if shared.records_content {
            span.record("gen_ai.tool.call.arguments", &*call.arguments);
        }
        Self {
            span,
            shared: Arc::clone(shared),
            #[cfg(feature = "otel")]
            tool: Arc::clone(&call.name),
            #[cfg(feature = "otel")]
            begun: Instant::now(),
            end: End::default(),
        }
    }

    fn ended(&self, result: Result<&Content, (Cow<'static, str>, &dyn Display)>) {
        if !self.end.is_first() {
            return;
        }
        let records_content = self.shared.records_content;
        match result {
            Ok(content) => {
                if records_content {
                    self.span.record("gen_ai.tool.call.result", &*content.text);
                }
                self.finish(None, None);
            }
            Err((error, description)) => self.finish(Some(error), records_content.then_some(description)),
        }
    }

    fn finish(&self, error: Option<Cow<'static, str>>, description: Option<&dyn Display>) {
        // The layer for OpenTelemetry takes for the end of a span the last time that it was left, and no code runs in the
        // span of a call of an agent.
        let _within = self.span.enter();
        if let Some(error) = &error {
            fail(&self.span, error, description);
        }
        #[cfg(feature = "otel")]
        if let Some(instruments) = &self.shared.instruments {
            instruments.tool(&self.shared, &self.tool, self.begun.elapsed(), error);
        }
    }
}

/// A call of an agent.
#[derive(Clone, Copy)]
pub(super) struct Transfer<'a> {
    /// The agent. `None` if there is none of the name that the model wrote, which is content.
    pub(super) target: Option<&'a Name>,
}

fn span(shared: &Shared, call: &ToolCall, transfer: Option<Transfer<'_>>) -> Span {
    let target = transfer.and_then(|transfer| transfer.target);
    let space = if target.is_some() { " " } else { "" };
    let forward = &shared.forward;
    tracing::info_span!(
        "execute_tool",
        otel.name = %format_args!("execute_tool {}{space}{}", call.name, target.map_or("", |target| target)),
        otel.kind = "internal",
        otel.status_code = Empty,
        otel.status_description = Empty,
        gen_ai.operation.name = "execute_tool",
        gen_ai.agent.name = &*forward.receiver,
        gen_ai.tool.name = &*call.name,
        gen_ai.tool.type = "function",
        gen_ai.tool.call.id = &*call.id,
        gen_ai.transfer.mode = transfer.map(|_| "return_to_caller"),
        gen_ai.transfer.target.name = target.map(|target| &**target),
        gen_ai.conversation.id = shared.conversation(),
        session.id = shared.conversation(),
        user.id = &**forward.run.user(),
        gen_ai.tool.call.arguments = Empty,
        gen_ai.tool.call.result = Empty,
        agentouto.run.id = %forward.run.root(),
        agentouto.call.id = %forward.call_id,
        error.type = Empty,
    )
}

impl Traced<Result<Content, ToolError>> for ToolStep {
    fn span(&self) -> Span {
        self.span.0.clone()
    }

    fn end(&self, result: &Result<Content, ToolError>) {
        self.ended(match result {
            Ok(content) => Ok(content),
            Err(error) => Err((error_type::of_tool(error.kind), &error.message)),
        });
    }
}

impl Traced<Result<Content, CallError>> for ToolStep {
    fn span(&self) -> Span {
        self.span.0.clone()
    }

    fn end(&self, result: &Result<Content, CallError>) {
        self.ended(match result {
            Ok(content) => Ok(content),
            Err(error) => Err((error_type::of_call(error), error)),
        });
    }
}

impl Drop for ToolStep {
    fn drop(&mut self) {
        if self.end.is_first() {
            let _ = catch(|| self.finish(Some(dropped(&self.shared.forward)), None));
        }
    }
}
