//! A [`Request`] as the [body](https://platform.openai.com/docs/api-reference/responses/create) of a response,
//! written straight from what it borrows.
//!
//! Nothing here asks a server.

use std::borrow::Cow;

use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::OPAQUE;
use crate::agent::Effort;
use crate::context::ChatMessage;
use crate::message::{Attachment, AttachmentKind, AttachmentSource, Content};
use crate::provider::Request;
use crate::providers::body::{Address, Fields, List, sound, with_attached};
use crate::providers::http::Expect;
use crate::tool::{ToolCall, ToolSpec};

/// Writes the settings, the system prompt and the tools.
pub(super) fn fields(request: &Request, expect: Expect, fields: &mut Fields<'_>) -> serde_json::Result<()> {
    let Request { agent, context, tools, .. } = request;
    let effort = agent.reasoning.map(|reasoning| reasoning.effort);
    let reasons = effort.is_some_and(|effort| effort != Effort::None);
    fields.set("model", Some(&agent.model).filter(|model| !model.is_empty()))?;
    fields.set("instructions", Some(context.system()).filter(|system| !system.is_empty()))?;
    fields.set("tools", (!tools.is_empty()).then_some(Tools(tools)))?;
    fields.set("max_output_tokens", agent.max_output_tokens)?;
    fields.set("reasoning", effort.map(|effort| Reasoning { effort }))?;
    // Lists are joined with those of the agent's `extra`.
    fields.set("include", (reasons && !includes(request, ENCRYPTED)).then_some([ENCRYPTED]))?;
    fields.set("temperature", agent.temperature.filter(|_| effort.is_none()))?;
    fields.set("stream", (expect == Expect::Events).then_some(true))
}

/// Writes the messages behind the first `encoded`.
pub(super) fn messages(request: &Request, encoded: usize, list: &mut List<'_>) -> serde_json::Result<()> {
    let is_stored = request.agent.extra.get("store") != Some(&Value::Bool(false));
    for message in request.context.messages().skip(encoded) {
        match message {
            ChatMessage::User(content) => list.push(&Item::Message { role: "user", content: Text::of(content)? })?,
            ChatMessage::Assistant { text, attachments, tool_calls, opaque, .. } => {
                let items = opaque.as_ref().and_then(|opaque| opaque.get(OPAQUE)?.as_array());
                match items.filter(|items| is_stored || items.iter().all(is_self_contained)) {
                    Some(items) => again(items, tool_calls, list)?,
                    None => plain(with_attached(text.as_deref(), attachments), tool_calls, list)?,
                }
            }
            ChatMessage::Tool { id, output, .. } => {
                list.push(&Item::FunctionCallOutput { call_id: id, output: Text::of(&output.content)? })?;
            }
        }
    }
    Ok(())
}

/// Writes a reply as the items that the server sent.
fn again(items: &[Value], tool_calls: &[ToolCall], list: &mut List<'_>) -> serde_json::Result<()> {
    let mut calls = tool_calls.iter();
    for item in items {
        match (kind(item), item) {
            ("function_call", Value::Object(fields)) => {
                let Some(call) = calls.next() else { continue };
                // What was recorded counts: an id that came twice has been changed.
                let mut fields = fields.clone();
                fields.insert("call_id".to_owned(), (*call.id).into());
                fields.insert("name".to_owned(), (*call.name).into());
                fields.insert("arguments".to_owned(), sound(&call.arguments).into());
                list.push(&fields)?;
            }
            _ => list.push(item)?,
        }
    }
    plain(None, calls.as_slice(), list)
}

/// Writes a reply that came from anywhere.
fn plain(text: Option<Cow<'_, str>>, tool_calls: &[ToolCall], list: &mut List<'_>) -> serde_json::Result<()> {
    if let Some(text) = text {
        list.push(&Item::Message { role: "assistant", content: Text::Plain(text) })?;
    }
    for ToolCall { id, name, arguments, .. } in tool_calls {
        list.push(&Item::FunctionCall { call_id: id, name, arguments: sound(arguments) })?;
    }
    Ok(())
}

/// What makes reasoning understood by a server that has not kept it.
const ENCRYPTED: &str = "reasoning.encrypted_content";

/// Whether the agent itself asks for `word` to be included.
fn includes(request: &Request, word: &str) -> bool {
    let asked = request.agent.extra.get("include").and_then(Value::as_array);
    asked.is_some_and(|asked| asked.iter().any(|asked| asked == word))
}

/// Whether a server understands an item that it has not kept. It
/// [refuses](https://community.openai.com/t/requests-api-does-not-support-manual-context-management/1269225) reasoning
/// of which there is only an id.
fn is_self_contained(item: &Value) -> bool {
    kind(item) != "reasoning" || item["encrypted_content"].is_string()
}

fn kind(item: &Value) -> &str {
    item["type"].as_str().unwrap_or_default()
}

#[derive(Serialize)]
struct Reasoning {
    effort: Effort,
}

struct Tools<'a>(&'a [ToolSpec]);

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|spec| Tool::Function { spec, strict: false }))
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Tool<'a> {
    Function {
        #[serde(flatten)]
        spec: &'a ToolSpec,
        strict: bool,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message { role: &'static str, content: Text<'a> },
    FunctionCall { call_id: &'a str, name: &'a str, arguments: &'a str },
    FunctionCallOutput { call_id: &'a str, output: Text<'a> },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Text<'a> {
    Plain(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

impl<'a> Text<'a> {
    fn of(content: &'a Content) -> serde_json::Result<Self> {
        if content.attachments.is_empty() {
            return Ok(Self::Plain(Cow::Borrowed(&content.text)));
        }
        let text = Some(&*content.text).filter(|text| !text.is_empty()).map(|text| Ok(Part::text(text)));
        let attachments = content.attachments.iter().map(Part::attachment);
        text.into_iter().chain(attachments).collect::<Result<_, _>>().map(Self::Parts)
    }
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum Part<'a> {
    #[serde(rename = "input_text")]
    Text { text: Cow<'a, str> },
    #[serde(rename = "input_image")]
    Image { image_url: Address<'a>, detail: &'static str },
    #[serde(rename = "input_file")]
    File { filename: &'a str, file_data: Address<'a> },
    #[serde(rename = "input_file")]
    FileElsewhere { file_url: &'a str },
}

impl<'a> Part<'a> {
    fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text { text: text.into() }
    }

    fn attachment(attachment: &'a Attachment) -> serde_json::Result<Self> {
        use AttachmentKind::{Audio, Document, Image};
        use AttachmentSource::{Inline, Url};
        Ok(match (attachment.kind, &attachment.source) {
            // The schema wants the `detail` in a message, even if it is the default.
            (Image, source) => Self::Image { image_url: Address(source), detail: "auto" },
            (Document, source @ Inline { .. }) => {
                let filename = attachment.name.as_deref().unwrap_or("document");
                Self::File { filename, file_data: Address(source) }
            }
            (Document, Url { url }) => Self::FileElsewhere { file_url: url },
            (Audio, Inline { .. }) => {
                return Err(serde_json::Error::custom("the Responses API takes no sounds, and one is attached"));
            }
            (Audio, Url { url }) => Self::text(format!("Attached sound: {url}")),
        })
    }
}
