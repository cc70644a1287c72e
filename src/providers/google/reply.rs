//! The decoder of a [response](https://ai.google.dev/api/generate-content#generatecontentresponse): a complete one, or
//! the chunks of a stream, which have the same form.
//!
//! Unknown parts are ignored, or kept unchanged if the server needs them back. Nothing here sends a request or repairs
//! the model's output.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::OPAQUE;
use crate::content::{Attachment, AttachmentKind};
use crate::providers::http::error_body::ErrorBody;
use crate::providers::http::reply_builder::{PartialCall, ReplyBuilder};
use crate::providers::http::sse::Event;
use crate::providers::http::wire_format::{self, DecodeError, Decoded, Str, Tokens, lenient, owned};
use crate::reply::{StopReason, Usage};

/// A response, a chunk of one, or an error in place of it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    #[serde(borrow)]
    candidates: Option<Vec<Candidate<'a>>>,
    #[serde(borrow)]
    prompt_feedback: Option<PromptFeedback<'a>>,
    usage_metadata: Option<TokenCounts>,
    #[serde(borrow, default, deserialize_with = "lenient")]
    response_id: Option<Str<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient")]
    model_version: Option<Str<'a>>,
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    content: Option<Content<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Str<'a>>,
}

#[derive(Debug, Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    parts: Option<Vec<&'a RawValue>>,
}

/// The reason why there are no candidates.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback<'a> {
    #[serde(borrow)]
    block_reason: Option<Str<'a>>,
    #[serde(borrow)]
    block_reason_message: Option<Str<'a>>,
}

/// The known fields of a [part](https://ai.google.dev/api/caching#Part).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(borrow)]
    text: Option<Str<'a>>,
    thought: Option<bool>,
    #[serde(borrow)]
    thought_signature: Option<Str<'a>>,
    #[serde(borrow)]
    function_call: Option<FunctionCall<'a>>,
    #[serde(borrow)]
    inline_data: Option<Blob<'a>>,
}

#[derive(Debug, Deserialize)]
struct FunctionCall<'a> {
    #[serde(borrow)]
    id: Option<Str<'a>>,
    #[serde(borrow)]
    name: Option<Str<'a>>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Blob<'a> {
    #[serde(borrow)]
    mime_type: Str<'a>,
    #[serde(borrow)]
    data: Str<'a>,
}

/// [Usage](https://ai.google.dev/api/generate-content#UsageMetadata); in a stream, the total so far.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TokenCounts {
    prompt_token_count: Tokens,
    tool_use_prompt_token_count: Tokens,
    cached_content_token_count: Tokens,
    candidates_token_count: Tokens,
    thoughts_token_count: Tokens,
}

/// The decoder of one response.
#[derive(Debug, Default)]
pub struct Decoder {
    parts: Vec<Kept>,
    /// `true` if a part contains more than a text or a tool call.
    is_special: bool,
}

/// A part as it is sent back to the server.
#[derive(Debug)]
enum Kept {
    /// A text without a signature.
    Text(String),
    /// Any other part, unchanged: a signature must stay in its part.
    Whole(Box<RawValue>),
}

impl wire_format::Decoder for Decoder {
    fn whole(&mut self, body: &[u8], builder: &mut ReplyBuilder<'_, '_>) -> Result<(), DecodeError> {
        // A stream that is not requested as events is a list of its chunks; errors come in a list, too.
        match body.trim_ascii_start().starts_with(b"[") {
            true => {
                let chunks: Vec<Response<'_>> = serde_json::from_slice(body)?;
                chunks.into_iter().try_for_each(|chunk| self.take(chunk, builder))
            }
            false => self.take(serde_json::from_slice(body)?, builder),
        }
    }

    fn event(&mut self, event: Event<'_>, builder: &mut ReplyBuilder<'_, '_>) -> Result<Decoded, DecodeError> {
        // Some gateways end the stream as in Chat Completions.
        if !matches!(event.data.trim(), "" | "[DONE]") {
            self.whole(event.data.as_bytes(), builder)?;
        }
        // The stream has no last event.
        Ok(Decoded::More)
    }

    fn opaque(self) -> Option<Value> {
        if !self.is_special {
            return None;
        }
        let parts: serde_json::Result<Vec<_>> = self.parts.into_iter().map(Kept::into_value).collect();
        // Arguments that cannot be parsed, because they are nested too deeply, are sent back as none.
        Some(json!({ OPAQUE: parts.ok()? }))
    }
}

impl Decoder {
    /// Reads a response, or one more chunk of it.
    fn take(&mut self, response: Response<'_>, builder: &mut ReplyBuilder<'_, '_>) -> Result<(), DecodeError> {
        let Response { candidates, prompt_feedback, usage_metadata, response_id, model_version, error } = response;
        builder.identify(response_id.as_deref(), model_version.as_deref());
        if let Some(usage) = usage_metadata.and_then(Option::<Usage>::from) {
            builder.set_usage(usage);
        }
        // More than one candidate is sent only on request.
        let candidate = candidates.into_iter().flatten().find(|candidate| candidate.index.unwrap_or(0) == 0);
        let is_missing = candidate.is_none();
        if let Some(candidate) = candidate {
            self.take_candidate(candidate, builder)?;
        }
        match (error, prompt_feedback) {
            (Some(error), _) => Err(DecodeError::Reported(ErrorBody::reported(&json!({ "error": error })))),
            (None, Some(PromptFeedback { block_reason: Some(reason), block_reason_message })) if is_missing => {
                let message = block_reason_message.map(|message| format!(": {}", &*message)).unwrap_or_default();
                let message = format!("the prompt was blocked: {}{message}", &*reason);
                Err(DecodeError::Reported(ErrorBody::new(message, "content_filter")))
            }
            _ => Ok(()),
        }
    }

    fn take_candidate(
        &mut self,
        candidate: Candidate<'_>,
        builder: &mut ReplyBuilder<'_, '_>,
    ) -> serde_json::Result<()> {
        builder.begin();
        let parts = candidate.content.and_then(|content| content.parts);
        parts.into_iter().flatten().try_for_each(|part| self.take_part(part, builder))?;
        let word = candidate.finish_reason.filter(|word| !matches!(&**word, "" | "FINISH_REASON_UNSPECIFIED"));
        if let Some(word) = word {
            builder.set_stop_reason(stop_reason(&word));
            builder.set_complete();
        }
        Ok(())
    }

    fn take_part(&mut self, raw: &RawValue, builder: &mut ReplyBuilder<'_, '_>) -> serde_json::Result<()> {
        let Part { text, thought, thought_signature, function_call, inline_data } = serde_json::from_str(raw.get())?;
        let is_signed = thought_signature.is_some_and(|signature| !signature.is_empty());
        let is_special = match (text, function_call) {
            (text, _) if thought == Some(true) => {
                builder.push_reasoning(text.as_deref().unwrap_or_default());
                if !is_signed {
                    return Ok(());
                }
                true
            }
            (Some(text), None) => {
                builder.push_text(&text);
                if !is_signed {
                    self.keep_text(&text);
                    return Ok(());
                }
                true
            }
            (_, Some(call)) => {
                let call = PartialCall::from(call);
                let has_id = !call.id.is_empty();
                builder.add_call(call);
                is_signed || has_id
            }
            (None, None) => {
                inline_data.into_iter().for_each(|data| builder.add_attachment(data.into()));
                true
            }
        };
        self.is_special |= is_special;
        self.parts.push(Kept::Whole(raw.to_owned()));
        Ok(())
    }

    /// Joins a text that the stream has split into pieces.
    fn keep_text(&mut self, piece: &str) {
        match self.parts.last_mut() {
            Some(Kept::Text(text)) => text.push_str(piece),
            _ if piece.is_empty() => {}
            _ => self.parts.push(Kept::Text(piece.to_owned())),
        }
    }
}

impl Kept {
    fn into_value(self) -> serde_json::Result<Value> {
        match self {
            Self::Text(text) => Ok(json!({ "text": text })),
            Self::Whole(part) => serde_json::from_str(part.get()),
        }
    }
}

impl From<FunctionCall<'_>> for PartialCall {
    fn from(call: FunctionCall<'_>) -> Self {
        let arguments = call.args.map_or("{}", RawValue::get).to_owned();
        Self { id: owned(call.id), name: owned(call.name), arguments }
    }
}

impl From<Blob<'_>> for Attachment {
    fn from(blob: Blob<'_>) -> Self {
        let kind = match blob.mime_type.split('/').next() {
            Some("image") => AttachmentKind::Image,
            Some("audio") => AttachmentKind::Audio,
            _ => AttachmentKind::Document,
        };
        Self::encoded(kind, &blob.mime_type, &blob.data)
    }
}

/// Reads a [finish reason](https://ai.google.dev/api/generate-content#FinishReason).
fn stop_reason(word: &str) -> StopReason {
    match word {
        "STOP" => StopReason::Stop,
        "MAX_TOKENS" => StopReason::Length,
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "MODEL_ARMOR"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => StopReason::ContentFilter,
        _ => StopReason::Other(Arc::from(word)),
    }
}

impl From<TokenCounts> for Option<Usage> {
    fn from(counts: TokenCounts) -> Self {
        let TokenCounts {
            prompt_token_count: prompt,
            tool_use_prompt_token_count: tool_use,
            cached_content_token_count: cached,
            candidates_token_count: candidates,
            thoughts_token_count: thoughts,
        } = counts;
        prompt.0.or(tool_use.0).or(candidates.0).or(thoughts.0)?;
        // The tokens of thoughts are not included in those of the candidates.
        Some(Usage {
            input_tokens: prompt.count().saturating_add(tool_use.count()),
            output_tokens: candidates.count().saturating_add(thoughts.count()),
            cached_tokens: cached.count(),
            // Written caches are not reported: https://ai.google.dev/api/generate-content#UsageMetadata
            cache_write_tokens: 0,
            reasoning_tokens: thoughts.count(),
        })
    }
}
