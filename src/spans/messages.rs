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

#[cfg(test)]
mod tests {
    use super::*;

    /// What the published schemas say of the messages, with only those parts that this crate writes.
    fn schema(of: &str) -> Value {
        let part = |kind: &str, fields: Value| {
            let mut properties = fields;
            let required: Vec<_> = properties.as_object().unwrap().keys().cloned().chain(["type".to_owned()]).collect();
            properties["type"] = json!({"const": kind});
            json!({"type": "object", "properties": properties, "required": required})
        };
        let modality = json!({"enum": ["image", "video", "audio", "document"]});
        let text = json!({"type": "string"});
        let parts = json!([
            part("text", json!({"content": text})),
            part("reasoning", json!({"content": text})),
            part("tool_call", json!({"id": {"type": ["string", "null"]}, "name": text, "arguments": {}})),
            part("tool_call_response", json!({"id": {"type": ["string", "null"]}, "response": {}})),
            part("blob", json!({"mime_type": {"type": ["string", "null"]}, "modality": modality, "content": text})),
            part("uri", json!({"modality": modality, "uri": text})),
        ]);
        let role = json!({"enum": ["system", "user", "assistant", "tool"]});
        let parts = json!({"type": "array", "items": {"oneOf": parts}});
        let item = match of {
            "input" => {
                json!({"type": "object", "properties": {"role": role, "parts": parts}, "required": ["role", "parts"]})
            }
            "output" => json!({
                "type": "object",
                "properties": {"role": role, "parts": parts, "finish_reason": text},
                "required": ["role", "parts", "finish_reason"],
            }),
            "system" => parts["items"].clone(),
            _ => json!({
                "type": "object",
                "properties": {"type": {"enum": ["function", "custom"]}, "name": text, "description": text},
                "required": ["type", "name", "description"],
            }),
        };
        json!({"type": "array", "items": item})
    }

    fn check(of: &str, written: &str, expected: &Value) {
        let written: Value = serde_json::from_str(written).unwrap();
        assert_eq!(&written, expected);
        let problem = jsonschema::validate(&schema(of), &written).err().map(|problem| problem.to_string());
        assert_eq!(problem, None, "{written}");
    }

    #[test]
    fn every_kind_of_message_is_as_the_published_schema_says() {
        let image = Attachment::inline(AttachmentKind::Image, "image/png", b"x");
        let blob = json!({"type": "blob", "mime_type": "image/png", "modality": "image", "content": "eA=="});
        let paper = Attachment::url(AttachmentKind::Document, "https://example.com/a.pdf");
        let uri = json!({"type": "uri", "modality": "document", "uri": "https://example.com/a.pdf"});
        let text = |content: &str| json!({"type": "text", "content": content});
        let calls = vec![ToolCall::new("1", "search", r#"{"q": 1}"#), ToolCall::new("2", "search", "{cut")];
        let called = [
            json!({"type": "tool_call", "id": "1", "name": "search", "arguments": {"q": 1}}),
            json!({"type": "tool_call", "id": "2", "name": "search", "arguments": "{cut"}),
        ];
        let reply = Reply {
            reasoning: Some("hm".into()),
            tool_calls: calls.clone(),
            stop_reason: StopReason::ToolCalls,
            ..Reply::text("look")
        };
        let thought = json!({"type": "reasoning", "content": "hm"});
        let parts = json!([thought, text("look"), called[0], called[1]]);
        let expected = json!([{"role": "assistant", "parts": parts, "finish_reason": "tool_call"}]);
        check("output", &output(&reply), &expected);
        let said = ChatMessage::Assistant {
            text: Some("look".into()),
            reasoning: Some("hm".into()),
            attachments: Vec::new(),
            tool_calls: calls,
            opaque: None,
        };
        let found = crate::tool_call::ToolOutput { content: Content::from("found").attach(image), is_error: false };
        let messages = [
            ChatMessage::User(Content::from("read").attach(paper)),
            said,
            ChatMessage::Tool { id: "1".into(), name: "search".into(), output: found },
        ];
        let response = json!({"type": "tool_call_response", "id": "1", "response": "found"});
        let expected = json!([
            {"role": "user", "parts": [text("read"), uri]},
            {"role": "assistant", "parts": parts},
            {"role": "tool", "parts": [response, blob]},
        ]);
        check("input", &input(messages.iter()), &expected);
        let expected = json!([{"role": "assistant", "parts": [text("done")], "finish_reason": "stop"}]);
        check("output", &answer(&"done".into()), &expected);
        check("system", &system("Work."), &json!([text("Work.")]));
        let parameters = json!({"type": "object"});
        let spec = ToolSpec { name: "search".into(), description: "Looks.".into(), parameters: parameters.clone() };
        let definition =
            json!({"type": "function", "name": "search", "description": "Looks.", "parameters": parameters});
        check("tools", &definitions(&[spec]), &json!([definition]));
    }
}
