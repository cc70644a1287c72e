//! One word for an error, from a small set of words: the HTTP status where there is one, otherwise the kind.

use std::borrow::Cow;

use serde_json::Value;

use crate::error::CallError;
use crate::provider::ProviderError;
use crate::tool_call::ToolErrorKind;

pub(super) fn of_call(error: &CallError) -> Cow<'static, str> {
    match error {
        CallError::Provider { error, .. } => return of_provider(error),
        CallError::UnknownAgent { .. } => "unknown_agent",
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
    .into()
}

pub(super) fn of_provider(error: &ProviderError) -> Cow<'static, str> {
    match (error.status, serde_json::to_value(error.kind)) {
        (Some(status), _) => status.to_string().into(),
        (None, Ok(Value::String(kind))) => kind.into(),
        (None, _) => "_OTHER".into(),
    }
}

pub(super) fn of_tool(kind: ToolErrorKind) -> Cow<'static, str> {
    match kind {
        ToolErrorKind::Network => "network",
        ToolErrorKind::Authentication => "authentication",
        ToolErrorKind::Timeout => "timeout",
        ToolErrorKind::Panicked => "panicked",
        ToolErrorKind::Other => "tool_error",
    }
    .into()
}
