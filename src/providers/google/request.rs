//! A [`Request`] as the [body](https://ai.google.dev/api/generate-content#request-body) of `generateContent`, written
//! directly from borrowed data.
//!
//! Nothing here sends a request.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::OPAQUE;
use crate::agent::{Effort, Reasoning};
use crate::content::{self, Attachment, AttachmentSource};
use crate::context::ChatMessage;
use crate::provider::Request;
use crate::providers::http::encode::{self, MessageList, RequestFields, json_object_or_empty};
use crate::providers::models::{self, Gemini};
use crate::providers::offer::{self, OfferedTool, References};
use crate::tool_call::{ToolCall, ToolOutput, ToolSpec};

/// Writes the system prompt, the tools and the settings.
pub(super) fn fields(request: &Request, fields: &mut RequestFields<'_>) -> serde_json::Result<()> {
    let Request { agent, context, tools, .. } = request;
    let system = Some(context.system()).filter(|system| !system.is_empty());
    let config = GenerationConfig {
        temperature: agent.temperature,
        max_output_tokens: agent.max_output_tokens,
        thinking_config: agent.reasoning.and_then(|reasoning| ThinkingConfig::of(&agent.model, reasoning)),
    };
    fields.set("systemInstruction", system.map(|system| Instruction { parts: [Part::text(system)] }))?;
    fields.set("tools", (!tools.is_empty()).then_some([Tool { function_declarations: Declarations(tools) }]))?;
    fields.set("generationConfig", Some(config).filter(|config| *config != GenerationConfig::default()))
}

/// Writes the messages after the first `encoded`. The results of one turn are one message.
pub(super) fn messages(request: &Request, encoded: usize, list: &mut MessageList<'_>) -> serde_json::Result<()> {
    let context = &request.context;
    // From Gemini 3 on, a result contains its attachments, and calls must be signed.
    let is_within = matches!(models::gemini(&request.agent.model), Gemini::Level { .. });
    let signature = is_within.then_some(NO_SIGNATURE);
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
                    None => assistant_parts(text.as_deref(), attachments, tool_calls, signature)?,
                };
                results.calls = kept.map(|kept| calls(kept).collect()).unwrap_or_default();
                // The API refuses a message without parts.
                if !parts.is_empty() {
                    list.push(&Content { role: "model", parts })?;
                }
            }
            ChatMessage::Tool { name, output, .. } => results.add(name, output, is_within),
        }
    }
    results.write(list)
}

/// The parts of a reply without special parts, or of another provider's reply.
fn assistant_parts<'a>(
    text: Option<&'a str>,
    attachments: &'a [Attachment],
    calls: &'a [ToolCall],
    mut signature: Option<&'static str>,
) -> serde_json::Result<Vec<Part<'a>>> {
    let text = text.filter(|text| !text.is_empty()).map(|text| Ok(Part::text(text)));
    let attached = attachments.iter().map(|attachment| Ok(Part::attachment(attachment)));
    // Only the first call of a reply is signed.
    let calls = calls.iter().map(|call| Part::call(call, signature.take()));
    text.into_iter().chain(attached).chain(calls).collect()
}

/// The signature of a call that another model made, which is not
/// [validated](https://ai.google.dev/gemini-api/docs/thought-signatures#faqs). A call without a signature is refused.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// The ids and names of the tool calls among the parts of a reply, as the server gave them; those of the context may
/// differ.
fn calls(kept: &[Value]) -> impl Iterator<Item = (Option<&str>, Option<&str>)> {
    let calls = kept.iter().filter_map(|part| part.get("functionCall"));
    calls.map(|call| (call.get("id").and_then(Value::as_str), call.get("name").and_then(Value::as_str)))
}

/// The results of one turn, collected until the last one.
#[derive(Default)]
struct Results<'a> {
    /// The ids and names of the calls, in their order.
    calls: Vec<(Option<&'a str>, Option<&'a str>)>,
    responses: Vec<Part<'a>>,
    attached: Vec<Part<'a>>,
}

impl<'a> Results<'a> {
    fn add(&mut self, name: &'a str, ToolOutput { content, is_error }: &'a ToolOutput, is_within: bool) {
        let (id, kept) = self.calls.get(self.responses.len()).copied().unwrap_or_default();
        let response = match is_error {
            true => FunctionResult::Error(&content.text),
            false => FunctionResult::Output(&content.text),
        };
        let attached = content.attachments.iter().map(Part::attachment);
        // For any other media type it is not known if the API accepts it inside a result.
        let is_media = |part: &Part<'_>| {
            is_within
                && matches!(part, Part::InlineData(Blob { mime_type, .. })
                    if mime_type.starts_with("image/") || mime_type == "application/pdf")
        };
        let (parts, beside): (Vec<_>, Vec<_>) = attached.partition(is_media);
        let offered = kept.map_or_else(|| offer::name(name), Cow::Borrowed);
        self.responses.push(Part::FunctionResponse(FunctionResponse { id, name: offered, response, parts }));
        if !beside.is_empty() {
            self.attached.push(Part::text(format!("Attached to the result of `{name}`:")));
            self.attached.extend(beside);
        }
    }

    fn write(self, list: &mut MessageList<'_>) -> serde_json::Result<()> {
        let Self { responses, attached, .. } = self;
        // In the same message as the results, the API would count attachments as additional results.
        for parts in [responses, attached] {
            if !parts.is_empty() {
                list.push(&Content { role: "user", parts })?;
            }
        }
        Ok(())
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

/// The amount of thinking: a budget, or the level that replaced it with Gemini 3.
#[derive(PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ThinkingConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'static str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    include_thoughts: bool,
}

impl ThinkingConfig {
    fn of(model: &str, Reasoning { effort, budget }: Reasoning) -> Option<Self> {
        let include_thoughts = effort != Effort::None;
        Some(match models::gemini(model) {
            Gemini::Never => return None,
            Gemini::Level { least, has_medium } => {
                let level = match effort {
                    Effort::None => least,
                    Effort::Low => "low",
                    Effort::Medium if has_medium => "medium",
                    Effort::Medium | Effort::High => "high",
                };
                Self { thinking_budget: None, thinking_level: Some(level), include_thoughts }
            }
            Gemini::Budget { can_be_none, least, most } => {
                let tokens = match effort {
                    Effort::None => 0,
                    Effort::Low => budget.unwrap_or(1_024),
                    Effort::Medium => budget.unwrap_or(8_192),
                    Effort::High => budget.unwrap_or(24_576),
                };
                let budget = if tokens == 0 && can_be_none { 0 } else { tokens.clamp(least, most) };
                let include_thoughts = include_thoughts && budget > 0;
                Self { thinking_budget: Some(budget), thinking_level: None, include_thoughts }
            }
        })
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
        serializer.collect_seq(self.0.iter().map(|tool| {
            let OfferedTool { name, description, parameters } = OfferedTool::new(tool, References::Resolved);
            FunctionDeclaration { name, description, parameters_json_schema: parameters }
        }))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FunctionDeclaration<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    parameters_json_schema: Cow<'a, Value>,
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
    Signed(SignedCall<'a>),
    #[serde(untagged)]
    Kept(&'a Value),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SignedCall<'a> {
    function_call: FunctionCall<'a>,
    thought_signature: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Blob<'a> {
    mime_type: Cow<'a, str>,
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
    name: Cow<'a, str>,
    args: &'a RawValue,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: Cow<'a, str>,
    response: FunctionResult<'a>,
    /// [Media](https://ai.google.dev/gemini-api/docs/function-calling#multimodal-function-responses).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Part<'a>>,
}

/// The two keys that the API knows in a [response](https://ai.google.dev/api/caching#FunctionResponse).
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum FunctionResult<'a> {
    Output(&'a str),
    Error(&'a str),
}

impl<'a> Part<'a> {
    fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text(text.into())
    }

    /// The text, unless it is empty and there is an attachment, and then the attachments.
    fn all(content: &'a content::Content) -> Vec<Self> {
        let has_text = !content.text.is_empty() || content.attachments.is_empty();
        let text = has_text.then(|| Self::text(encode::or_blank(&content.text)));
        text.into_iter().chain(content.attachments.iter().map(Self::attachment)).collect()
    }

    fn call(call: &'a ToolCall, signature: Option<&'static str>) -> serde_json::Result<Self> {
        let args = json_object_or_empty(&call.arguments)?;
        let function_call = FunctionCall { name: offer::name(&call.name), args };
        Ok(match signature {
            Some(thought_signature) => Self::Signed(SignedCall { function_call, thought_signature }),
            None => Self::FunctionCall(function_call),
        })
    }

    fn attachment(attachment: &'a Attachment) -> Self {
        match &attachment.source {
            AttachmentSource::Inline { media_type, base64 } => {
                let mime_type = encode::essence(media_type);
                let is_taken = match mime_type.split_once('/') {
                    Some(("image", format)) => ["png", "jpeg", "webp", "heic", "heif"].contains(&format),
                    Some(("audio" | "video" | "text", _)) => true,
                    _ => mime_type == "application/pdf",
                };
                match (encode::too_large(base64), encode::text_of(media_type, base64)) {
                    (None, _) if is_taken => Self::InlineData(Blob { mime_type, data: base64 }),
                    (None, Some(text)) => Self::text(text),
                    (flaw, _) => {
                        Self::text(encode::not_shown(attachment, flaw.unwrap_or("the model takes no such files")))
                    }
                }
            }
            AttachmentSource::Url { url } => Self::FileData(FileData { mime_type: media_type(url), file_uri: url }),
        }
    }
}

/// The media type of a file, derived from its name, for the types that the API
/// [accepts](https://ai.google.dev/gemini-api/docs/generate-content/file-input-methods).
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
