//! A [`Request`] as the [body](https://platform.openai.com/docs/api-reference/chat/create) of a chat completion,
//! written straight from what it borrows.
//!
//! Nothing here asks a server.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::OPAQUE;
use crate::context::{ChatMessage, Context};
use crate::message::{Attachment, AttachmentKind, AttachmentSource, Content};
use crate::provider::Request;
use crate::providers::body::{Address, Fields, List, sound, with_attached};
use crate::providers::http::Expect;
use crate::tool::{ToolCall, ToolSpec};

/// Writes the settings and the tools.
pub(super) fn fields(request: &Request, expect: Expect, fields: &mut Fields<'_>) -> serde_json::Result<()> {
    let Request { agent, tools, .. } = request;
    let effort = agent.reasoning.map(|reasoning| reasoning.effort);
    let streams = (expect == Expect::Events).then_some(true);
    fields.set("model", Some(&agent.model).filter(|model| !model.is_empty()))?;
    fields.set("tools", (!tools.is_empty()).then_some(Tools(tools)))?;
    fields.set("max_completion_tokens", agent.max_output_tokens)?;
    fields.set("reasoning_effort", effort)?;
    fields.set("temperature", agent.temperature.filter(|_| effort.is_none()))?;
    fields.set("stream", streams)?;
    fields.set("stream_options", streams.map(|include_usage| StreamOptions { include_usage }))
}

/// Writes the messages behind the first `encoded`.
pub(super) fn messages(context: &Context, encoded: usize, list: &mut List<'_>) -> serde_json::Result<()> {
    if encoded == 0 && !context.system().is_empty() {
        list.push(&Message::System { content: context.system() })?;
    }
    // The attachments of tool results, until the last result of the turn is written.
    let mut attached = Vec::new();
    for message in context.messages().skip(encoded) {
        if !attached.is_empty() && !matches!(message, ChatMessage::Tool { .. }) {
            list.push(&Message::User { content: UserContent::Parts(std::mem::take(&mut attached)) })?;
        }
        if let ChatMessage::Tool { id, name, output } = message
            && !output.content.attachments.is_empty()
        {
            attached.push(Part::text(format!("Attached to the result of `{name}` ({id}):")));
            attached.extend(output.content.attachments.iter().map(Part::attachment));
        }
        list.push(&Message::from(message))?;
    }
    if !attached.is_empty() {
        list.push(&Message::User { content: UserContent::Parts(attached) })?;
    }
    Ok(())
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

struct Tools<'a>(&'a [ToolSpec]);

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|function| Typed::Function { function }))
    }
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum Message<'a> {
    System {
        content: &'a str,
    },
    User {
        content: UserContent<'a>,
    },
    Assistant {
        content: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_details: Option<&'a Value>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Typed<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: &'a str,
    },
}

impl<'a> From<&'a ChatMessage> for Message<'a> {
    fn from(message: &'a ChatMessage) -> Self {
        match message {
            ChatMessage::User(content) => Self::User { content: content.into() },
            ChatMessage::Assistant { text, reasoning, attachments, tool_calls, opaque } => {
                let kept = opaque.as_ref().and_then(|opaque| opaque.get(OPAQUE));
                let kept = |key| kept.and_then(|kept| kept.get(key));
                let thought_in =
                    |field| reasoning.as_deref().filter(|_| kept("reasoning") == Some(&Value::from(field)));
                let extra = |place| kept("extra_content").and_then(|extras| extras.get(place));
                Self::Assistant {
                    // Without tool calls the content is required.
                    content: with_attached(text.as_deref().or(tool_calls.is_empty().then_some("")), attachments),
                    reasoning_content: thought_in("reasoning_content"),
                    reasoning: thought_in("reasoning"),
                    reasoning_details: kept("reasoning_details"),
                    tool_calls: tool_calls
                        .iter()
                        .enumerate()
                        .map(|(nth, call)| Typed::call(call, extra(nth)))
                        .collect(),
                }
            }
            ChatMessage::Tool { id, output, .. } => Self::Tool { tool_call_id: id, content: &output.content.text },
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum UserContent<'a> {
    Text(&'a str),
    Parts(Vec<Part<'a>>),
}

impl<'a> From<&'a Content> for UserContent<'a> {
    fn from(content: &'a Content) -> Self {
        if content.attachments.is_empty() {
            return Self::Text(&content.text);
        }
        let text = Some(&*content.text).filter(|text| !text.is_empty()).map(Part::text);
        Self::Parts(text.into_iter().chain(content.attachments.iter().map(Part::attachment)).collect())
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl<'a> },
    InputAudio { input_audio: InputAudio<'a> },
    File { file: File<'a> },
}

#[derive(Serialize)]
struct ImageUrl<'a> {
    url: Address<'a>,
}

#[derive(Serialize)]
struct InputAudio<'a> {
    data: &'a str,
    format: &'a str,
}

#[derive(Serialize)]
struct File<'a> {
    filename: &'a str,
    file_data: Address<'a>,
}

impl<'a> Part<'a> {
    fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text { text: text.into() }
    }

    fn attachment(attachment: &'a Attachment) -> Self {
        use AttachmentKind::{Audio, Document, Image};
        use AttachmentSource::{Inline, Url};
        match (attachment.kind, &attachment.source) {
            (Image, source) => Self::ImageUrl { image_url: ImageUrl { url: Address(source) } },
            (Audio, Inline { media_type, base64 }) => {
                Self::InputAudio { input_audio: InputAudio { data: base64, format: audio_format(media_type) } }
            }
            (Document, source @ Inline { .. }) => {
                let filename = attachment.name.as_deref().unwrap_or("document");
                Self::File { file: File { filename, file_data: Address(source) } }
            }
            (Audio, Url { url }) => Self::text(format!("Attached sound: {url}")),
            (Document, Url { url }) => Self::text(format!("Attached document: {url}")),
        }
    }
}

/// The API's word for a sound's format: `wav` or `mp3`; for others, what the media type says.
fn audio_format(media_type: &str) -> &str {
    match media_type.split(';').next().unwrap_or_default().trim().trim_start_matches("audio/") {
        "wave" | "x-wav" | "vnd.wave" => "wav",
        "mpeg" => "mp3",
        other => other,
    }
}

/// What the API wraps in `"type": "function"`: a tool, and a call of one.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Typed<'a> {
    #[serde(rename = "function")]
    Function { function: &'a ToolSpec },
    #[serde(rename = "function")]
    Call {
        id: &'a str,
        function: Function<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        extra_content: Option<&'a Value>,
    },
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl<'a> Typed<'a> {
    fn call(call: &'a ToolCall, extra_content: Option<&'a Value>) -> Self {
        let function = Function { name: &call.name, arguments: sound(&call.arguments) };
        Self::Call { id: &call.id, function, extra_content: extra_content.filter(|extra| !extra.is_null()) }
    }
}
