//! A [`Request`] as the [body](https://platform.openai.com/docs/api-reference/responses/create) of a response, written
//! directly from borrowed data.
//!
//! Nothing here sends a request.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::OPAQUE;
use crate::agent::Effort;
use crate::content::{Attachment, AttachmentKind, AttachmentSource, Content};
use crate::context::ChatMessage;
use crate::provider::Request;
use crate::providers::http::client::ResponseMode;
use crate::providers::http::encode::{self, DataUrl, MessageList, RequestFields, object_or_empty, with_attached};
use crate::providers::models;
use crate::providers::offer::{self, OfferedTool, References};
use crate::tool_call::{ToolCall, ToolSpec};

/// Writes the settings, the system prompt and the tools.
pub(super) fn fields(
    request: &Request,
    expect: ResponseMode,
    fields: &mut RequestFields<'_>,
) -> serde_json::Result<()> {
    let Request { agent, context, tools, .. } = request;
    let gpt = models::gpt(&agent.model);
    let effort = agent.reasoning.map(|reasoning| reasoning.effort);
    let reasons = effort.is_some_and(|effort| effort != Effort::None);
    fields.set("model", Some(&agent.model).filter(|model| !model.is_empty()))?;
    fields.set("instructions", Some(context.system()).filter(|system| !system.is_empty()))?;
    fields.set("tools", (!tools.is_empty()).then_some(Tools(tools)))?;
    fields.set("max_output_tokens", agent.max_output_tokens)?;
    fields.set("reasoning", effort.map(|effort| Reasoning { effort: models::effort(effort, gpt) }))?;
    // Lists are joined with those of the agent's `extra`.
    fields.set("include", (reasons && !includes(request, ENCRYPTED)).then_some([ENCRYPTED]))?;
    fields.set("temperature", agent.temperature.filter(|_| effort.is_none() && gpt.is_none()))?;
    fields.set("stream", (expect == ResponseMode::EventStream).then_some(true))
}

/// Writes the messages after the first `encoded`.
pub(super) fn messages(request: &Request, encoded: usize, list: &mut MessageList<'_>) -> serde_json::Result<()> {
    let is_stored = request.agent.extra.get("store") != Some(&Value::Bool(false));
    for message in request.context.messages().skip(encoded) {
        match message {
            ChatMessage::User(content) => list.push(&Item::Message { role: "user", content: Text::of(content) })?,
            ChatMessage::Assistant { text, attachments, tool_calls, opaque, .. } => {
                let items = opaque.as_ref().and_then(|opaque| opaque.get(OPAQUE)?.as_array());
                match items.filter(|items| is_stored || items.iter().all(is_self_contained)) {
                    Some(items) => write_kept_items(items, tool_calls, list)?,
                    None => write_items(with_attached(text.as_deref(), attachments), tool_calls, list)?,
                }
            }
            ChatMessage::Tool { id, output, .. } => {
                list.push(&Item::FunctionCallOutput { call_id: call_id(id), output: Text::of(&output.content) })?;
            }
        }
    }
    Ok(())
}

/// Writes a reply as the items that the server sent.
fn write_kept_items(items: &[Value], tool_calls: &[ToolCall], list: &mut MessageList<'_>) -> serde_json::Result<()> {
    let mut calls = tool_calls.iter();
    for item in items {
        match (kind(item), item) {
            ("function_call", Value::Object(fields)) => {
                let Some(call) = calls.next() else { continue };
                // The recorded id is used: an id that occurred twice has been replaced.
                let mut fields = fields.clone();
                fields.insert("call_id".to_owned(), call_id(&call.id).into());
                fields.insert("name".to_owned(), offer::name(&call.name).into());
                fields.insert("arguments".to_owned(), object_or_empty(&call.arguments).into());
                list.push(&fields)?;
            }
            _ => list.push(item)?,
        }
    }
    write_items(None, calls.as_slice(), list)
}

/// Writes a reply of any provider.
fn write_items(
    text: Option<Cow<'_, str>>,
    tool_calls: &[ToolCall],
    list: &mut MessageList<'_>,
) -> serde_json::Result<()> {
    if let Some(text) = text {
        list.push(&Item::Message { role: "assistant", content: Text::Plain(text) })?;
    }
    for ToolCall { id, name, arguments, .. } in tool_calls {
        let (call_id, arguments) = (call_id(id), object_or_empty(arguments));
        list.push(&Item::FunctionCall { call_id, name: offer::name(name), arguments })?;
    }
    Ok(())
}

/// The id of a tool call. The API [accepts](https://platform.openai.com/docs/api-reference/responses/create) 1 to 64
/// characters.
fn call_id(id: &str) -> Cow<'_, str> {
    offer::call_id(id, (1..=offer::MAX_CALL_ID).contains(&id.chars().count()))
}

/// The value of `include` that makes a server understand reasoning that it has not stored.
const ENCRYPTED: &str = "reasoning.encrypted_content";

/// Returns whether the agent's own settings include `word`.
fn includes(request: &Request, word: &str) -> bool {
    let asked = request.agent.extra.get("include").and_then(Value::as_array);
    asked.is_some_and(|asked| asked.iter().any(|asked| asked == word))
}

/// Returns whether a server understands an item that it has not stored. It
/// [refuses](https://community.openai.com/t/requests-api-does-not-support-manual-context-management/1269225) reasoning
/// that consists only of an id.
fn is_self_contained(item: &Value) -> bool {
    kind(item) != "reasoning" || item["encrypted_content"].is_string()
}

fn kind(item: &Value) -> &str {
    item["type"].as_str().unwrap_or_default()
}

#[derive(Serialize)]
struct Reasoning {
    effort: &'static str,
}

struct Tools<'a>(&'a [ToolSpec]);

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            self.0.iter().map(|tool| Tool::Function { tool: OfferedTool::new(tool, References::Kept), strict: false }),
        )
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Tool<'a> {
    Function {
        #[serde(flatten)]
        tool: OfferedTool<'a>,
        strict: bool,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message { role: &'static str, content: Text<'a> },
    FunctionCall { call_id: Cow<'a, str>, name: Cow<'a, str>, arguments: &'a str },
    FunctionCallOutput { call_id: Cow<'a, str>, output: Text<'a> },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Text<'a> {
    Plain(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

impl<'a> Text<'a> {
    fn of(content: &'a Content) -> Self {
        if content.attachments.is_empty() {
            return Self::Plain(Cow::Borrowed(&content.text));
        }
        let text = Some(&*content.text).filter(|text| !text.is_empty()).map(Part::text);
        Self::Parts(text.into_iter().chain(content.attachments.iter().map(Part::attachment)).collect())
    }
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum Part<'a> {
    #[serde(rename = "input_text")]
    Text { text: Cow<'a, str> },
    #[serde(rename = "input_image")]
    Image { image_url: DataUrl<'a>, detail: &'static str },
    #[serde(rename = "input_file")]
    File { filename: &'a str, file_data: DataUrl<'a> },
    #[serde(rename = "input_file")]
    FileElsewhere { file_url: &'a str },
}

impl<'a> Part<'a> {
    fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text { text: text.into() }
    }

    fn attachment(attachment: &'a Attachment) -> Self {
        use AttachmentKind::{Audio, Document, Image};
        use AttachmentSource::{Inline, Url};
        let not_shown = |why| Self::text(encode::not_shown(attachment, why));
        // The schema requires `detail` in a message, even for the default value.
        let picture = |source| Self::Image { image_url: DataUrl(source), detail: "auto" };
        match (attachment.kind, &attachment.source) {
            (Image, source @ Inline { media_type, base64 }) => {
                encode::picture_problem(media_type, base64).map_or_else(|| picture(source), not_shown)
            }
            (Image, source) => picture(source),
            (Document, source @ Inline { media_type, base64 }) => {
                let filename = attachment.name.as_deref().unwrap_or("document");
                let flaw = encode::too_large(base64).or_else(|| document_problem(media_type));
                flaw.map_or_else(|| Self::File { filename, file_data: DataUrl(source) }, not_shown)
            }
            (Document, Url { url }) => Self::FileElsewhere { file_url: url },
            (Audio, Inline { .. }) => not_shown("the model takes no sounds"),
            (Audio, Url { url }) => Self::text(format!("Attached sound: {url}")),
        }
    }
}

/// The reason why the API does not accept such a [file](https://developers.openai.com/api/docs/guides/file-inputs);
/// `None` if it does.
fn document_problem(media_type: &str) -> Option<&'static str> {
    let kind = &*encode::essence(media_type);
    let is_other = ["application/", "video/", "font/", "model/"].iter().any(|other| kind.starts_with(other));
    let readable = ["pdf", "json", "xml", "yaml", "rtf", "word", "officedocument", "ms-", "opendocument", "csv"];
    let is_readable = !is_other || readable.iter().any(|format| kind.contains(format));
    (!is_readable).then_some("the model takes text, PDF and office documents only")
}
