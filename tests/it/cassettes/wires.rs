//! Reads request bodies, the recorded ones and ours, each wire in a file of its own.
//!
//! Nothing is passed over in silence: a body with something that agentouto cannot say is not read, and the error says
//! what that is. Left out are only settings, and marks that say nothing to the model.

mod anthropic;
mod google;
mod openai;
mod responses;

use agentouto::{Attachment, AttachmentKind, AttachmentSource, Content, Effort, Reasoning, ToolSpec};
use serde_json::{Value, json};

use super::case::Wire;
use super::conversation::{Conversation, Turn};

/// The conversation in a request to `path`, or what in it cannot be said.
pub(super) fn read(wire: Wire, path: &str, body: &Value) -> Result<Conversation, String> {
    let mut conversation = Conversation { model: text(&body["model"]).to_owned(), ..Conversation::default() };
    match wire {
        Wire::Chat => openai::read(body, &mut conversation)?,
        Wire::Responses => responses::read(body, &mut conversation)?,
        Wire::Messages => anthropic::read(body, &mut conversation)?,
        Wire::Gemini => google::read(path, body, &mut conversation)?,
    }
    conversation.turns.retain(|turn| match turn {
        Turn::User { texts, attachments } => !(texts.is_empty() && attachments.is_empty()),
        Turn::Assistant(said) => !said.is_empty(),
        Turn::Result { .. } => true,
    });
    match conversation.turns.first() {
        Some(_) => Ok(conversation),
        None => Err("it asks nothing".to_owned()),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn owned(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// Whichever of two spellings there is.
fn either<'v>(value: &'v Value, one: &str, other: &str) -> &'v Value {
    value.get(one).unwrap_or(&value[other])
}

/// A part of a content.
enum Part {
    Text(String),
    Attachment(Attachment),
}

/// A string, or a list of parts. Texts in a list are lines.
fn content(value: &Value, part: impl Fn(&Value) -> Result<Part, String>) -> Result<Content, String> {
    let mut texts = Vec::from_iter(owned(value));
    let mut attachments = Vec::new();
    for item in items(value) {
        match part(item)? {
            Part::Text(text) => texts.push(text),
            Part::Attachment(attachment) => attachments.push(attachment),
        }
    }
    Ok(Content { text: texts.join("\n").into(), attachments })
}

/// The parts of a user's message, each by itself.
fn contents(value: &Value, part: impl Fn(&Value) -> Result<Part, String>) -> Result<Vec<Content>, String> {
    match value {
        Value::Array(list) => list.iter().map(|item| content(&json!([item]), &part)).collect(),
        _ => Ok(vec![content(value, part)?]),
    }
}

/// What stands at an address, which may be a `data:` URL.
fn attachment(kind: AttachmentKind, url: &str) -> Part {
    let inline = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    Part::Attachment(match inline {
        Some((media_type, base64)) => bytes(kind, media_type, base64),
        None => Attachment::url(kind, url),
    })
}

fn bytes(kind: AttachmentKind, media_type: &str, base64: &str) -> Attachment {
    let source = AttachmentSource::Inline { media_type: media_type.into(), base64: base64.into() };
    Attachment { kind, source, name: None }
}

fn kind_of(media_type: &str) -> AttachmentKind {
    match media_type.split('/').next() {
        Some("image") => AttachmentKind::Image,
        Some("audio") => AttachmentKind::Audio,
        _ => AttachmentKind::Document,
    }
}

/// The media type of a sound in OpenAI's word for it.
fn sound(format: &str) -> &'static str {
    if format == "wav" { "audio/wav" } else { "audio/mpeg" }
}

fn tool(name: &Value, description: &Value, parameters: &Value) -> ToolSpec {
    let parameters = match parameters {
        Value::Null => json!({ "type": "object", "properties": {} }),
        parameters => parameters.clone(),
    };
    ToolSpec { name: text(name).into(), description: text(description).into(), parameters }
}

/// Written arguments; what is no JSON stays a string.
fn arguments(written: &Value) -> Value {
    match written {
        Value::String(written) => serde_json::from_str(written).unwrap_or_else(|_| written.as_str().into()),
        json => json.clone(),
    }
}

fn effort(word: &str) -> Option<Reasoning> {
    Some(Reasoning::from(match word {
        "" => return None,
        "none" => Effort::None,
        "minimal" | "low" => Effort::Low,
        "medium" => Effort::Medium,
        _ => Effort::High,
    }))
}

fn unknown<T>(what: &str, value: &Value) -> Result<T, String> {
    Err(format!("agentouto has no {what} `{}`", text(value)))
}
