//! The seam to spans and metrics: what the runtime tells of an invocation while it goes on. The core names no field.

use std::sync::Arc;

use tracing::Span;

use crate::content::Content;
use crate::error::CallError;
use crate::message::Forward;
use crate::name::Name;
use crate::provider::{ProviderError, Request};
use crate::reply::{Reply, Usage};
use crate::snapshot::AgentEntry;
use crate::tool_call::{ToolCall, ToolError};

/// The receiver of what the invocations of a runtime do.
pub(crate) trait Telemetry: Send + Sync {
    /// Returns whether content may be told at all.
    fn records_content(&self) -> bool;

    /// Notes, in a Forward that is about to be sent, the span in which its sender is.
    fn place(&self, forward: &Forward);

    /// Begins the trace of the invocation that serves a Forward. `None`: no subscriber and no meter asks for it.
    /// `agent` is `None` for users and actors.
    fn invocation(&self, forward: &Arc<Forward>, agent: Option<&Arc<AgentEntry>>) -> Option<InvocationTrace>;
}

/// The trace of one invocation.
pub(crate) type InvocationTrace = Arc<dyn TraceInvocation>;

/// The trace of a request to a model.
pub(crate) type RequestTrace = Box<dyn Traced<Result<Reply, ProviderError>>>;

/// The trace of a tool call.
pub(crate) type ToolTrace = Box<dyn Traced<Result<Content, ToolError>>>;

/// The trace of a call that an agent makes.
pub(crate) type TransferTrace = Box<dyn Traced<Result<Content, CallError>>>;

/// Work that is traced. If it is dropped before its end, it was cancelled, or it panicked.
pub(crate) trait Traced<R>: Send + Sync {
    /// The span in which the work runs.
    fn span(&self) -> Span;

    /// Notes that a piece of the result has arrived.
    fn piece(&self) {}

    /// Ends work that is dropped, with what it used so far. Never panics.
    fn abort(&self, _used: Option<Usage>) {}

    /// Ends the work.
    fn end(&self, result: &R);
}

/// The trace of an invocation, and of each step in it.
pub(crate) trait TraceInvocation: Traced<Result<Content, CallError>> {
    fn request(&self, request: &Request, is_typed: bool, is_observed: bool) -> RequestTrace;

    fn tool(&self, call: &ToolCall) -> ToolTrace;

    /// `target` is `None` if no peer has the name that the model wrote.
    fn transfer(&self, call: &ToolCall, target: Option<&Name>) -> TransferTrace;
}
