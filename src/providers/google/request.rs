//! A [`Request`] as the [body](https://ai.google.dev/api/generate-content#request-body) of `generateContent`, written
//! straight from what it borrows.
//!
//! Nothing here asks a server.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::OPAQUE;
use crate::agent::{Effort, Reasoning};
use crate::context::{ChatMessage, Context};
use crate::message::{self, Attachment, AttachmentSource};
use crate::provider::Request;
use crate::providers::body::{Fields, List, sound_json};
use crate::tool::{ToolCall, ToolOutput, ToolSpec};

/// Writes the system prompt, the tools and the settings.
pub(super) fn fields(request: &Request, fields: &mut Fields<'_>) -> serde_json::Result<()> {
    let Request { agent, context, tools, .. } = request;
    let system = Some(context.system()).filter(|system| !system.is_empty());
    let config = GenerationConfig {
        temperature: agent.temperature,
        max_output_tokens: agent.max_output_tokens,
        thinking_config: agent.reasoning.map(ThinkingConfig::from),
    };
    fields.set("systemInstruction", system.map(|system| Instruction { parts: [Part::text(system)] }))?;
    fields.set("tools", (!tools.is_empty()).then_some([Tool { function_declarations: Declarations(tools) }]))?;
    fields.set("generationConfig", Some(config).filter(|config| *config != GenerationConfig::default()))
}

/// Writes the messages behind the first `encoded`. The results of one turn are one message.
pub(super) fn messages(context: &Context, encoded: usize, list: &mut List<'_>) -> serde_json::Result<()> {
    let mut results = Results::default();
    for message in context.messages().skip(encoded) {
        if !matches!(message, ChatMessage::Tool { .. }) {
            std::mem::take(&mut results).write(list)?;
        }
        match message {
            ChatMessage::User(content) => list.push(&Content { role: "user", parts: Part::all(content) })?,
            ChatMessage::Assistant { text, attachments, tool_calls, opaque, .. } => {
                let kept = opaque.as_ref().and_then(|opaque| opaque.get(OPAQUE)?.as_array());
                let parts = match kept {
                    Some(kept) => kept.iter().map(Part::Kept).collect(),
                    None => said(text.as_deref(), attachments, tool_calls)?,
                };
                results.ids = kept.map(|kept| ids(kept).collect()).unwrap_or_default();
                // The API refuses a message without parts.
                if !parts.is_empty() {
                    list.push(&Content { role: "model", parts })?;
                }
            }
            ChatMessage::Tool { name, output, .. } => results.add(name, output),
        }
    }
    results.write(list)
}

/// The parts of a reply that was plain, or another provider's.
fn said<'a>(
    text: Option<&'a str>,
    attachments: &'a [Attachment],
    calls: &'a [ToolCall],
) -> serde_json::Result<Vec<Part<'a>>> {
    let text = text.filter(|text| !text.is_empty()).map(|text| Ok(Part::text(text)));
    let attached = attachments.iter().map(|attachment| Ok(Part::attachment(attachment)));
    text.into_iter().chain(attached).chain(calls.iter().map(Part::call)).collect()
}

/// The ids of the tool calls among the parts of a reply, as the server gave them: the context may have changed its own.
fn ids(kept: &[Value]) -> impl Iterator<Item = Option<&str>> {
    kept.iter().filter_map(|part| part.get("functionCall")).map(|call| call.get("id")?.as_str())
}

/// The results of one turn, until the last one is there.
#[derive(Default)]
struct Results<'a> {
    /// The ids of the calls, in their order.
    ids: Vec<Option<&'a str>>,
    responses: Vec<Part<'a>>,
    attached: Vec<Part<'a>>,
}

impl<'a> Results<'a> {
    fn add(&mut self, name: &'a str, ToolOutput { content, is_error }: &'a ToolOutput) {
        let id = self.ids.get(self.responses.len()).copied().flatten();
        let response = match is_error {
            true => Outcome::Error(&content.text),
            false => Outcome::Output(&content.text),
        };
        self.responses.push(Part::FunctionResponse(FunctionResponse { id, name, response }));
        if !content.attachments.is_empty() {
            self.attached.push(Part::text(format!("Attached to the result of `{name}`:")));
            self.attached.extend(content.attachments.iter().map(Part::attachment));
        }
    }

    fn write(self, list: &mut List<'_>) -> serde_json::Result<()> {
        let Self { mut responses, attached, .. } = self;
        responses.extend(attached);
        match responses.is_empty() {
            true => Ok(()),
            false => list.push(&Content { role: "user", parts: responses }),
        }
    }
}

#[derive(PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<ThinkingConfig>,
}

/// A budget, because all models know one: `thinkingLevel` is an error for those before Gemini 3.
#[derive(PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ThinkingConfig {
    thinking_budget: u32,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    include_thoughts: bool,
}

impl From<Reasoning> for ThinkingConfig {
    fn from(Reasoning { effort, budget }: Reasoning) -> Self {
        let thinking_budget = match effort {
            Effort::None => 0,
            Effort::Low => budget.unwrap_or(1_024),
            Effort::Medium => budget.unwrap_or(8_192),
            Effort::High => budget.unwrap_or(24_576),
        };
        Self { thinking_budget, include_thoughts: thinking_budget > 0 }
    }
}

#[derive(Serialize)]
struct Instruction<'a> {
    parts: [Part<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tool<'a> {
    function_declarations: Declarations<'a>,
}

struct Declarations<'a>(&'a [ToolSpec]);

impl Serialize for Declarations<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|ToolSpec { name, description, parameters }| FunctionDeclaration {
            name,
            description,
            parameters_json_schema: parameters,
        }))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FunctionDeclaration<'a> {
    name: &'a str,
    description: &'a str,
    parameters_json_schema: &'a Value,
}

#[derive(Serialize)]
struct Content<'a> {
    role: &'static str,
    parts: Vec<Part<'a>>,
}

/// A [part](https://ai.google.dev/api/caching#Part) of a message.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Part<'a> {
    Text(Cow<'a, str>),
    InlineData(Blob<'a>),
    FileData(FileData<'a>),
    FunctionCall(FunctionCall<'a>),
    FunctionResponse(FunctionResponse<'a>),
    #[serde(untagged)]
    Kept(&'a Value),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Blob<'a> {
    mime_type: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FileData<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'static str>,
    file_uri: &'a str,
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    name: &'a str,
    args: &'a RawValue,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    response: Outcome<'a>,
}

/// The two keys that the API knows in a [response](https://ai.google.dev/api/caching#FunctionResponse).
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome<'a> {
    Output(&'a str),
    Error(&'a str),
}

impl<'a> Part<'a> {
    fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text(text.into())
    }

    /// The text, unless it is empty and there is something else, and then the attachments.
    fn all(content: &'a message::Content) -> Vec<Self> {
        let has_text = !content.text.is_empty() || content.attachments.is_empty();
        let text = has_text.then(|| Self::text(&*content.text));
        text.into_iter().chain(content.attachments.iter().map(Self::attachment)).collect()
    }

    fn call(call: &'a ToolCall) -> serde_json::Result<Self> {
        let args = sound_json(&call.arguments)?;
        Ok(Self::FunctionCall(FunctionCall { name: &call.name, args }))
    }

    fn attachment(attachment: &'a Attachment) -> Self {
        match &attachment.source {
            AttachmentSource::Inline { media_type, base64 } => {
                Self::InlineData(Blob { mime_type: media_type, data: base64 })
            }
            AttachmentSource::Url { url } => Self::FileData(FileData { mime_type: media_type(url), file_uri: url }),
        }
    }
}

/// The media type of a file that can be told from its name, for those that the API
/// [takes](https://ai.google.dev/gemini-api/docs/generate-content/file-input-methods).
fn media_type(url: &str) -> Option<&'static str> {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let (_, ending) = path.rsplit('/').next()?.rsplit_once('.')?;
    Some(match ending.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "heic" => "image/heic",
        "heif" => "image/heif",
        "wav" => "audio/wav",
        "mp3" => "audio/mp3",
        "aiff" => "audio/aiff",
        "aac" => "audio/aac",
        "ogg" => "audio/ogg",
        "flac" => "audio/flac",
        "pdf" => "application/pdf",
        "txt" => "text/plain",
        "md" => "text/markdown",
        "html" => "text/html",
        "csv" => "text/csv",
        "xml" => "text/xml",
        "json" => "application/json",
        _ => return None,
    })
}
