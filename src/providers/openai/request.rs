//! A [`Request`] as the [body](https://platform.openai.com/docs/api-reference/chat/create) of a chat completion,
//! written directly from borrowed data.
//!
//! Nothing here sends a request.

use std::borrow::Cow;

use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::{OPAQUE, Profile};
use crate::agent::Effort;
use crate::content::{Attachment, AttachmentKind, AttachmentSource, Content};
use crate::context::ChatMessage;
use crate::provider::Request;
use crate::providers::http::client::ResponseMode;
use crate::providers::http::encode::{self, DataUrl, MessageList, RequestFields, object_or_empty, with_attached};
use crate::providers::models::{self, ChatTools, Gpt};
use crate::providers::offer::{self, OfferedTool, References};
use crate::tool_call::{ToolCall, ToolSpec};

/// Writes the settings and the tools.
pub(super) fn fields(
    request: &Request,
    expect: ResponseMode,
    profile: Profile,
    fields: &mut RequestFields<'_>,
) -> serde_json::Result<()> {
    let Request { agent, tools, .. } = request;
    let gpt = models::gpt(&agent.model);
    let effort = effort(request, gpt)?;
    let streams = (expect == ResponseMode::EventStream).then_some(true);
    fields.set("model", Some(&agent.model).filter(|model| !model.is_empty()))?;
    fields.set("tools", (!tools.is_empty()).then_some(Tools(tools)))?;
    fields.set(profile.limit_field(), agent.max_output_tokens)?;
    fields.set("reasoning_effort", effort)?;
    fields.set("temperature", agent.temperature.filter(|_| effort.is_none() && gpt.is_none()))?;
    fields.set("stream", streams)?;
    fields.set("stream_options", streams.map(|include_usage| StreamOptions { include_usage }))
}

/// The effort to send. Some models refuse one together with tools, or require it to be `none`.
fn effort(Request { agent, tools, .. }: &Request, gpt: Option<Gpt>) -> serde_json::Result<Option<&'static str>> {
    let asked = agent.reasoning.map(|reasoning| reasoning.effort);
    let is_overridden = tools.is_empty() || agent.extra.contains_key("reasoning_effort");
    let chat_tools = gpt.filter(|_| !is_overridden).map(|gpt| gpt.chat_tools);
    match (chat_tools, asked) {
        (None | Some(ChatTools::Accepted), asked) => Ok(asked.map(|effort| models::effort(effort, gpt))),
        (Some(ChatTools::WithoutEffort), None | Some(Effort::None)) => Ok(None),
        (Some(ChatTools::WithEffortNone), None | Some(Effort::None)) => Ok(Some("none")),
        (Some(_), Some(_)) => Err(serde_json::Error::custom(format_args!(
            "`{}` takes tools beside reasoning in the Responses API only: use the provider `OpenAiResponses` for agent \
             `{}`, or `Effort::None`",
            agent.model, agent.name
        ))),
    }
}

/// Writes the messages after the first `encoded`.
pub(super) fn messages(
    request: &Request,
    encoded: usize,
    profile: Profile,
    list: &mut MessageList<'_>,
) -> serde_json::Result<()> {
    let context = &request.context;
    let returns_reasoning = profile.returns_reasoning(&request.agent.model);
    let attach = |attached: Vec<Part<'_>>, list: &mut MessageList<'_>| {
        if let Some(said) = profile.before_user() {
            list.push(&Message::said(said))?;
        }
        list.push(&Message::User { content: UserContent::Parts(attached) })
    };
    if encoded == 0 && !context.system().is_empty() {
        list.push(&Message::System { content: context.system() })?;
    }
    // The attachments of tool results, until the last result of the turn is written.
    let mut attached = Vec::new();
    let mut is_behind_result = matches!(context.messages().take(encoded).last(), Some(ChatMessage::Tool { .. }));
    for message in context.messages().skip(encoded) {
        let is_result = matches!(message, ChatMessage::Tool { .. });
        if !attached.is_empty() && !is_result {
            attach(std::mem::take(&mut attached), list)?;
        } else if is_behind_result
            && matches!(message, ChatMessage::User(_))
            && let Some(said) = profile.before_user()
        {
            list.push(&Message::said(said))?;
        }
        is_behind_result = is_result;
        if let ChatMessage::Tool { id, name, output } = message
            && !output.content.attachments.is_empty()
        {
            attached.push(Part::text(format!("Attached to the result of `{name}` ({id}):")));
            attached.extend(output.content.attachments.iter().map(Part::attachment));
        }
        list.push(&Message::of(message, profile, returns_reasoning))?;
    }
    if !attached.is_empty() {
        attach(attached, list)?;
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
        serializer.collect_seq(
            self.0.iter().map(|tool| Typed::Function { function: OfferedTool::new(tool, References::Kept) }),
        )
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
        tool_call_id: Cow<'a, str>,
        content: &'a str,
    },
}

impl<'a> Message<'a> {
    fn said(text: &'a str) -> Self {
        let (reasoning_content, reasoning, reasoning_details, tool_calls) = Default::default();
        Self::Assistant { content: Some(text.into()), reasoning_content, reasoning, reasoning_details, tool_calls }
    }

    fn of(message: &'a ChatMessage, profile: Profile, returns_reasoning: bool) -> Self {
        match message {
            ChatMessage::User(content) => Self::User { content: content.into() },
            ChatMessage::Assistant { text, reasoning, attachments, tool_calls, opaque } => {
                let kept = opaque.as_ref().and_then(|opaque| opaque.get(OPAQUE));
                let kept = |key| kept.and_then(|kept| kept.get(key));
                let is_in = |field| returns_reasoning && kept("reasoning") == Some(&Value::from(field));
                let thought_in = |field| reasoning.as_deref().filter(|_| is_in(field));
                let extra = |place| kept("extra_content").and_then(|extras| extras.get(place));
                Self::Assistant {
                    // Without tool calls the content is required.
                    content: with_attached(text.as_deref().or(tool_calls.is_empty().then_some("")), attachments),
                    reasoning_content: thought_in("reasoning_content"),
                    reasoning: thought_in("reasoning"),
                    reasoning_details: kept("reasoning_details").filter(|_| returns_reasoning),
                    tool_calls: tool_calls
                        .iter()
                        .enumerate()
                        .map(|(nth, call)| Typed::call(call, profile, extra(nth)))
                        .collect(),
                }
            }
            ChatMessage::Tool { id, output, .. } => {
                Self::Tool { tool_call_id: profile.id(id), content: &output.content.text }
            }
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
    url: DataUrl<'a>,
}

#[derive(Serialize)]
struct InputAudio<'a> {
    data: &'a str,
    format: &'a str,
}

#[derive(Serialize)]
struct File<'a> {
    filename: &'a str,
    file_data: DataUrl<'a>,
}

impl<'a> Part<'a> {
    fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text { text: text.into() }
    }

    fn attachment(attachment: &'a Attachment) -> Self {
        use AttachmentKind::{Audio, Document, Image};
        use AttachmentSource::{Inline, Url};
        let not_shown = |why| Self::text(encode::not_shown(attachment, why));
        match (attachment.kind, &attachment.source) {
            (Image, Inline { media_type, base64 }) if let Some(flaw) = encode::picture_problem(media_type, base64) => {
                not_shown(flaw)
            }
            (Image, source) => Self::ImageUrl { image_url: ImageUrl { url: DataUrl(source) } },
            (_, Inline { base64, .. }) if let Some(flaw) = encode::too_large(base64) => not_shown(flaw),
            (Audio, Inline { media_type, base64 }) => {
                Self::InputAudio { input_audio: InputAudio { data: base64, format: audio_format(media_type) } }
            }
            (Document, source @ Inline { media_type, base64 }) => {
                let filename = attachment.name.as_deref().unwrap_or("document");
                match encode::text_of(media_type, base64) {
                    Some(text) => Self::text(format!("Attached {filename}:\n{text}")),
                    None if encode::essence(media_type) == "application/pdf" => {
                        Self::File { file: File { filename, file_data: DataUrl(source) } }
                    }
                    None => not_shown("the model takes text and PDF only"),
                }
            }
            (Audio, Url { url }) => Self::text(format!("Attached sound: {url}")),
            (Document, Url { url }) => Self::text(format!("Attached document: {url}")),
        }
    }
}

/// The API's word for an audio format: `wav` or `mp3`; for others, the subtype of the media type.
fn audio_format(media_type: &str) -> &str {
    match media_type.split(';').next().unwrap_or_default().trim().trim_start_matches("audio/") {
        "wave" | "x-wav" | "vnd.wave" => "wav",
        "mpeg" => "mp3",
        other => other,
    }
}

/// The values that the API wraps in `"type": "function"`: a tool, or a call of one.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Typed<'a> {
    #[serde(rename = "function")]
    Function { function: OfferedTool<'a> },
    #[serde(rename = "function")]
    Call {
        id: Cow<'a, str>,
        function: Function<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        extra_content: Option<&'a Value>,
    },
}

#[derive(Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    arguments: &'a str,
}

impl<'a> Typed<'a> {
    fn call(call: &'a ToolCall, profile: Profile, extra_content: Option<&'a Value>) -> Self {
        let function = Function { name: offer::name(&call.name), arguments: object_or_empty(&call.arguments) };
        Self::Call { id: profile.id(&call.id), function, extra_content: extra_content.filter(|extra| !extra.is_null()) }
    }
}
