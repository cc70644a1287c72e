//! Content as the JSON of the published schemas: `gen-ai-input-messages.json`, `gen-ai-output-messages.json`,
//! `gen-ai-system-instructions.json` and `gen-ai-tool-definitions.json` in
//! <https://github.com/open-telemetry/semantic-conventions-genai/tree/main/model/gen-ai>.

use serde_json::{Value, json};

use crate::content::{Attachment, AttachmentKind, AttachmentSource, Content};
use crate::context::ChatMessage;
use crate::reply::{Reply, StopReason};
use crate::tool_call::{ToolCall, ToolSpec};

/// The messages that a model reads, or that a call begins with.
pub(super) fn input<'a>(messages: impl Iterator<Item = &'a ChatMessage>) -> String {
    Value::from_iter(messages.map(message)).to_string()
}

/// The reply of a model.
pub(super) fn output(reply: &Reply) -> String {
    let parts = spoken(
        reply.text_or_refusal().map(|text| &**text),
        reply.reasoning.as_deref(),
        &reply.attachments,
        &reply.tool_calls,
    );
    let reason = match &reply.stop_reason {
        StopReason::ToolCalls => "tool_call".to_owned(),
        other => other.to_string(),
    };
    json!([{"role": "assistant", "parts": parts, "finish_reason": reason}]).to_string()
}

/// The answer of a call.
pub(super) fn answer(content: &Content) -> String {
    json!([{"role": "assistant", "parts": parts(content), "finish_reason": "stop"}]).to_string()
}

/// A system prompt.
pub(super) fn system(text: &str) -> String {
    json!([{"type": "text", "content": text}]).to_string()
}

/// The tools that a model is offered.
pub(super) fn definitions(tools: &[ToolSpec]) -> String {
    let definition = |ToolSpec { name, description, parameters }: &ToolSpec| json!({"type": "function", "name": name, "description": description, "parameters": parameters});
    Value::from_iter(tools.iter().map(definition)).to_string()
}

fn message(message: &ChatMessage) -> Value {
    match message {
        ChatMessage::User(content) => json!({"role": "user", "parts": parts(content)}),
        ChatMessage::Assistant { text, reasoning, attachments, tool_calls, .. } => {
            json!({"role": "assistant", "parts": spoken(text.as_deref(), reasoning.as_deref(), attachments, tool_calls)})
        }
        ChatMessage::Tool { id, output, .. } => {
            let response = json!({"type": "tool_call_response", "id": id, "response": output.content.text});
            let attached = output.content.attachments.iter().map(attachment);
            let parts: Vec<Value> = [response].into_iter().chain(attached).collect();
            json!({"role": "tool", "parts": parts})
        }
    }
}

/// The parts of a message from a model.
fn spoken(text: Option<&str>, reasoning: Option<&str>, attachments: &[Attachment], calls: &[ToolCall]) -> Vec<Value> {
    let reasoning = reasoning.map(|content| json!({"type": "reasoning", "content": content}));
    let text = text.map(|content| json!({"type": "text", "content": content}));
    let call = |call: &ToolCall| {
        // Arguments that are not JSON are shown as the model wrote them.
        let arguments = serde_json::from_str(&call.arguments).unwrap_or_else(|_| Value::from(&*call.arguments));
        json!({"type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments})
    };
    reasoning.into_iter().chain(text).chain(attachments.iter().map(attachment)).chain(calls.iter().map(call)).collect()
}

fn parts(content: &Content) -> Vec<Value> {
    let text = json!({"type": "text", "content": content.text});
    [text].into_iter().chain(content.attachments.iter().map(attachment)).collect()
}

fn attachment(attachment: &Attachment) -> Value {
    let modality = match attachment.kind {
        AttachmentKind::Image => "image",
        AttachmentKind::Audio => "audio",
        AttachmentKind::Document => "document",
    };
    match &attachment.source {
        AttachmentSource::Inline { media_type, base64 } => {
            json!({"type": "blob", "mime_type": media_type, "modality": modality, "content": base64})
        }
        AttachmentSource::Url { url } => json!({"type": "uri", "modality": modality, "uri": url}),
    }
}
