//! Whether one thing of a recorded request is kept in ours, which may say more or say it in another form.

use agentouto::{Attachment, AttachmentKind, AttachmentSource, ToolSpec};
use serde_json::Value;

use super::case::Wire;

/// A text as JSON: without the object that a wire puts around a result, and without the string around JSON.
pub(super) fn plain(text: &str) -> Value {
    fn unwrapped(value: Value) -> Value {
        match value {
            Value::String(text) => match serde_json::from_str(&text) {
                Ok(inner) => unwrapped(inner),
                Err(_) => Value::String(text),
            },
            Value::Object(entries) if entries.len() == 1 => {
                entries.into_values().next().map(unwrapped).unwrap_or_default()
            }
            other => other,
        }
    }
    unwrapped(Value::String(text.to_owned()))
}

pub(super) fn is_kept(recorded: &Option<String>, ours: &Option<String>) -> bool {
    recorded.is_none() || recorded == ours
}

pub(super) fn sources(attachments: &[Attachment]) -> impl Iterator<Item = (AttachmentKind, &AttachmentSource)> {
    attachments.iter().map(|attachment| (attachment.kind, &attachment.source))
}

pub(super) fn is_tool_kept(recorded: &ToolSpec, ours: &ToolSpec, wire: Wire) -> bool {
    let has_parameters = match wire {
        // Gemini has several dialects of schema; all of them have the names of the parameters.
        Wire::Gemini => names(&recorded.parameters) == names(&ours.parameters),
        _ => carries(&ours.parameters, &recorded.parameters),
    };
    recorded.name == ours.name && recorded.description == ours.description && has_parameters
}

fn names(schema: &Value) -> Vec<&String> {
    schema["properties"].as_object().into_iter().flat_map(|all| all.keys()).collect()
}

/// Whether all of `recorded` is in `ours`, which may say more.
fn carries(ours: &Value, recorded: &Value) -> bool {
    match (ours, recorded) {
        (Value::Object(ours), Value::Object(recorded)) => {
            recorded.iter().all(|(key, value)| ours.get(key).is_some_and(|ours| carries(ours, value)))
        }
        _ => ours == recorded,
    }
}
