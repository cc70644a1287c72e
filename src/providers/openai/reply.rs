//! The decoder of chat completions: a complete one, or the chunks of a stream.
//!
//! Servers differ from OpenAI and from each other; fields that they agree on are read, unknown ones are ignored.
//! Nothing here sends a request or repairs the model's output.

use std::sync::Arc;

use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::OPAQUE;
use crate::content::{Attachment, AttachmentKind};
use crate::providers::http::error_body::ErrorBody;
use crate::providers::http::reply_builder::{PartialCall, ReplyBuilder};
use crate::providers::http::sse::Event;
use crate::providers::http::wire_format::{
    self, DecodeError, Decoded, Index, Lenient, Str, Tokens, error_in, lenient, owned,
};
use crate::reply::{StopReason, Usage};

/// A [chat completion](https://platform.openai.com/docs/api-reference/chat/object) or a
/// [chunk](https://platform.openai.com/docs/api-reference/chat-streaming) of one, or an error in place of it.
#[derive(Debug, Deserialize)]
struct Completion<'a> {
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<TokenCounts>,
    #[serde(borrow, default, deserialize_with = "lenient")]
    id: Option<Str<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient")]
    model: Option<Str<'a>>,
    error: Option<Value>,
    // Some servers send an error without a wrapper, with `error` as the value of `object`.
    #[serde(borrow)]
    object: Option<Str<'a>>,
    message: Option<Value>,
    code: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: Index,
    #[serde(borrow)]
    message: Option<Message<'a>>,
    #[serde(borrow)]
    delta: Option<Message<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient")]
    finish_reason: Option<Str<'a>>,
    // Moonshot puts the usage of a stream here.
    #[serde(default, deserialize_with = "lenient")]
    usage: Option<TokenCounts>,
    // OpenRouter puts an error of the server behind it here.
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: Option<Text<'a>>,
    #[serde(borrow)]
    refusal: Option<Text<'a>>,
    #[serde(borrow)]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow)]
    reasoning: Option<Text<'a>>,
    // OpenRouter's form of reasoning.
    #[serde(default, deserialize_with = "lenient")]
    reasoning_details: Option<Vec<Map<String, Value>>>,
    #[serde(borrow, default, deserialize_with = "calls")]
    tool_calls: Option<Vec<CallPiece<'a>>>,
    // The predecessor of `tool_calls`.
    #[serde(borrow, default, deserialize_with = "lenient")]
    function_call: Option<FunctionPiece<'a>>,
    // OpenRouter's form of images.
    #[serde(borrow, default, deserialize_with = "lenient")]
    images: Option<Vec<Lenient<Image<'a>>>>,
    #[serde(borrow, default, deserialize_with = "lenient")]
    audio: Option<Audio<'a>>,
}

/// A text, or its parts: Mistral sends a list in which some parts are the model's thinking.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Text<'a> {
    Plain(#[serde(borrow)] Str<'a>),
    Parts(#[serde(borrow)] Vec<Part<'a>>),
    Other(IgnoredAny),
}

#[derive(Debug, Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    text: Option<Str<'a>>,
    #[serde(borrow)]
    thinking: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
struct Image<'a> {
    #[serde(borrow)]
    image_url: ImageUrl<'a>,
}

#[derive(Debug, Deserialize)]
struct ImageUrl<'a> {
    #[serde(borrow)]
    url: Str<'a>,
}

#[derive(Debug, Deserialize)]
struct Audio<'a> {
    #[serde(borrow)]
    data: Option<Str<'a>>,
    #[serde(borrow)]
    transcript: Option<Str<'a>>,
}

/// Reads calls. Some servers send an empty object or text instead of no calls.
fn calls<'de, D: Deserializer<'de>>(field: D) -> Result<Option<Vec<CallPiece<'de>>>, D::Error> {
    let raw = <&RawValue>::deserialize(field)?.get();
    if raw.starts_with('[') { serde_json::from_str(raw).map(Some).map_err(D::Error::custom) } else { Ok(None) }
}

#[derive(Debug, Default, Deserialize)]
struct CallPiece<'a> {
    #[serde(default)]
    index: Index,
    #[serde(borrow)]
    id: Option<Id<'a>>,
    #[serde(borrow)]
    function: Option<FunctionPiece<'a>>,
    extra_content: Option<Value>,
}

/// The id of a call, which some servers write as a number.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Id<'a> {
    Text(#[serde(borrow)] Str<'a>),
    Other(Value),
}

#[derive(Debug, Default, Deserialize)]
struct FunctionPiece<'a> {
    #[serde(borrow)]
    name: Option<Str<'a>>,
    #[serde(borrow)]
    arguments: Option<Arguments<'a>>,
}

/// The arguments as JSON text; some servers send the object itself.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Arguments<'a> {
    Text(#[serde(borrow)] Str<'a>),
    Object(Value),
}

/// [Usage](https://platform.openai.com/docs/api-reference/completions/object#completions-object-usage), with the
/// variants of other servers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TokenCounts {
    prompt_tokens: Tokens,
    completion_tokens: Tokens,
    total_tokens: Tokens,
    #[serde(deserialize_with = "lenient")]
    prompt_tokens_details: Option<PromptDetails>,
    #[serde(deserialize_with = "lenient")]
    completion_tokens_details: Option<CompletionDetails>,
    prompt_cache_hit_tokens: Tokens,
    num_cached_tokens: Tokens,
    // Moonshot: https://platform.kimi.ai/docs/api/chat
    cached_tokens: Tokens,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Tokens,
    // OpenRouter: https://openrouter.ai/docs/use-cases/usage-accounting
    cache_write_tokens: Tokens,
    // Alibaba: https://www.alibabacloud.com/help/en/model-studio/qwen-api-via-openai-chat-completions
    cache_creation_input_tokens: Tokens,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    reasoning_tokens: Tokens,
}

/// The decoder of one response.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The index of the choice that is read.
    choice: u64,
    has_tool_calls: bool,
    /// Further data about each call.
    calls: Vec<Marks>,
    /// The field in which reasoning arrived.
    reasoning: Option<&'static str>,
    reasoning_details: Vec<Map<String, Value>>,
}

#[derive(Debug)]
struct Marks {
    index: Option<u64>,
    extra_content: Option<Value>,
}

impl wire_format::Decoder for Decoder {
    fn whole(&mut self, body: &[u8], builder: &mut ReplyBuilder<'_, '_>) -> Result<(), DecodeError> {
        let mut completion: Completion<'_> = serde_json::from_slice(body)?;
        // Some servers send an empty delta together with the message, and some count choices from 1.
        let indices = completion.choices.iter().flatten().filter_map(|choice| choice.index.0);
        self.choice = indices.min().unwrap_or(0);
        let choices = completion.choices.iter_mut().flatten();
        choices.filter(|choice| choice.message.is_some()).for_each(|choice| choice.delta = None);
        self.take(completion, "", builder).map(drop)
    }

    fn event(&mut self, event: Event<'_>, builder: &mut ReplyBuilder<'_, '_>) -> Result<Decoded, DecodeError> {
        match event.data.trim() {
            "[DONE]" => {
                builder.set_complete();
                Ok(Decoded::Last)
            }
            "" => Ok(Decoded::More),
            data => self.take(serde_json::from_str(data)?, event.name, builder),
        }
    }

    fn opaque(mut self) -> Option<Value> {
        if self.calls.is_empty() {
            return None;
        }
        let mut kept = Map::new();
        let extras = self.calls.iter_mut().map(|call| call.extra_content.take().unwrap_or_default());
        let extras: Vec<_> = extras.collect();
        if extras.iter().any(|extra| !extra.is_null()) {
            kept.insert("extra_content".to_owned(), extras.into());
        }
        if !self.reasoning_details.is_empty() {
            kept.insert("reasoning_details".to_owned(), json!(self.reasoning_details));
        } else if let Some(field) = self.reasoning {
            kept.insert("reasoning".to_owned(), field.into());
        }
        (!kept.is_empty()).then(|| json!({ OPAQUE: kept }))
    }
}

impl Decoder {
    /// Reads a completion, or one more chunk of it, from an event of the type `name`.
    fn take(
        &mut self,
        completion: Completion<'_>,
        name: &str,
        builder: &mut ReplyBuilder<'_, '_>,
    ) -> Result<Decoded, DecodeError> {
        let Completion { choices, usage, id, model, error, object, message, code } = completion;
        builder.identify(id.as_deref(), model.as_deref());
        let is_known = choices.is_some() || usage.is_some();
        // More than one choice is sent only on request.
        let mut choice = choices.into_iter().flatten().find(|choice| choice.index.0.unwrap_or(0) == self.choice);
        let usage = usage.or_else(|| choice.as_mut()?.usage.take());
        if let Some(usage) = usage.and_then(Option::<Usage>::from) {
            builder.set_usage(usage);
        }
        let failed = choice.and_then(|choice| self.take_choice(choice, builder));
        match error_in(error).or(failed) {
            Some(error) => Err(DecodeError::Reported(ErrorBody::reported(&json!({ "error": error })))),
            None if name == "error" || object.as_deref() == Some("error") => {
                Err(DecodeError::Reported(ErrorBody::reported(&json!({ "message": message, "code": code }))))
            }
            None if is_known => Ok(Decoded::More),
            None => Ok(Decoded::Unknown),
        }
    }

    /// Reads a choice, and returns the error in it, if any.
    fn take_choice(&mut self, choice: Choice<'_>, builder: &mut ReplyBuilder<'_, '_>) -> Option<Value> {
        builder.begin();
        // Chunks of some servers contain the message so far as well as the delta.
        if let Some(message) = choice.delta {
            self.take_message(message, builder, Self::grow_call);
        } else if let Some(message) = choice.message {
            // In a stream, audio arrives in pieces without a header; it is sent only on request.
            if let Some(sound) = message.audio.as_ref().and_then(|audio| audio.data.as_deref()) {
                builder.add_attachment(Attachment::encoded(AttachmentKind::Audio, "audio/wav", sound));
            }
            self.take_message(message, builder, Self::add_call);
        }
        if let Some(word) = choice.finish_reason.filter(|word| !word.is_empty()) {
            builder.set_stop_reason(stop_reason(&word));
            builder.set_complete();
        }
        error_in(choice.error)
    }

    fn take_message<'a>(
        &mut self,
        message: Message<'a>,
        builder: &mut ReplyBuilder<'_, '_>,
        take_call: impl Fn(&mut Self, CallPiece<'a>, &mut ReplyBuilder<'_, '_>),
    ) {
        let thoughts = [("reasoning_content", message.reasoning_content), ("reasoning", message.reasoning)];
        if let Some((field, thought)) = thoughts.into_iter().find_map(|(field, text)| Some((field, text?))) {
            if !thought.is_empty() {
                self.reasoning = Some(field);
            }
            thought.each(&mut |piece| builder.push_reasoning(piece));
        }
        message.reasoning_details.into_iter().flatten().for_each(|detail| self.add_detail(detail));
        match message.content {
            Some(Text::Parts(parts)) => {
                for part in parts {
                    if let Some(thinking) = part.thinking {
                        thinking.each(&mut |piece| builder.push_reasoning(piece));
                    }
                    builder.push_text(part.text.as_deref().unwrap_or_default());
                }
            }
            Some(text) => text.each(&mut |piece| builder.push_text(piece)),
            None => {}
        }
        if let Some(refusal) = message.refusal {
            refusal.each(&mut |piece| builder.push_refusal(piece));
        }
        for image in message.images.into_iter().flatten().filter_map(|image| image.0) {
            builder.add_attachment(picture(&image.image_url.url));
        }
        if let Some(transcript) = message.audio.and_then(|audio| audio.transcript) {
            builder.push_text(&transcript);
        }
        let function =
            message.function_call.map(|function| CallPiece { function: Some(function), ..CallPiece::default() });
        let calls = message.tool_calls.unwrap_or_default();
        self.has_tool_calls |= !calls.is_empty();
        // Some servers send a call in both forms, or an empty one.
        let is_named = |call: &CallPiece<'_>| {
            call.function.as_ref().is_some_and(|function| function.name.as_deref().is_some_and(|name| !name.is_empty()))
        };
        let is_more = !self.calls.is_empty();
        let has_tool_calls = self.has_tool_calls;
        let function = function.filter(|call| !has_tool_calls && (is_named(call) || is_more));
        calls.into_iter().chain(function).for_each(|piece| take_call(self, piece, builder));
    }

    fn add_call(&mut self, piece: CallPiece<'_>, builder: &mut ReplyBuilder<'_, '_>) {
        let (call, marks) = piece.into_call();
        self.calls.push(marks);
        builder.add_call(call);
    }

    fn grow_call(&mut self, piece: CallPiece<'_>, builder: &mut ReplyBuilder<'_, '_>) {
        let (piece, marks) = piece.into_call();
        match self.continued(&piece, marks.index, builder.calls()) {
            None => {
                self.calls.push(marks);
                builder.add_call(piece);
            }
            Some(place) => {
                let call = &mut builder.calls()[place];
                if call.id.is_empty() {
                    call.id = piece.id;
                }
                // A name arrives in pieces, or is repeated with every piece of the arguments.
                if call.name != piece.name {
                    call.name.push_str(&piece.name);
                }
                let extra = &mut self.calls[place].extra_content;
                *extra = extra.take().or(marks.extra_content);
                builder.push_arguments(place, &piece.arguments);
            }
        }
    }

    /// The call that a piece of a stream belongs to; `None` if the piece begins a new one.
    ///
    /// The index should identify it, but some servers give all calls the same index or none, and some give every piece
    /// of one call another id. The first piece of a call has a name.
    fn continued(&self, piece: &PartialCall, index: Option<u64>, calls: &[PartialCall]) -> Option<usize> {
        let here = |place: &usize| index.is_none() || self.calls[*place].index == index;
        let same = |place: &usize| here(place) && !piece.id.is_empty() && calls[*place].id == piece.id;
        let latest = || (0..calls.len()).rev();
        let place = latest().find(same).or_else(|| latest().find(here))?;
        let call = &calls[place];
        let is_named_anew = !piece.name.is_empty() && !call.name.is_empty() && piece.name != call.name;
        let is_begun = !call.arguments.is_empty();
        let begins = if piece.name.is_empty() {
            false
        } else if piece.id.is_empty() && call.id.is_empty() {
            // The last piece of a name arrives before the arguments.
            is_whole(&call.arguments) || is_named_anew && !is_begun && !piece.arguments.is_empty()
        } else if piece.id.is_empty() || call.id.is_empty() {
            is_whole(&call.arguments)
        } else {
            // Some servers give every piece another id, and repeat the name.
            let is_rest = !piece.arguments.is_empty() && !piece.arguments.trim_start().starts_with('{');
            let goes_on = !is_named_anew && is_begun && !is_whole(&call.arguments) && is_rest;
            call.id != piece.id && !goes_on
        };
        (!begins).then_some(place)
    }

    /// Adds one more [detail of the reasoning](https://openrouter.ai/docs/use-cases/reasoning-tokens), or more of the
    /// last one.
    fn add_detail(&mut self, detail: Map<String, Value>) {
        let last = self.reasoning_details.last_mut();
        let Some(last) =
            last.filter(|last| ["type", "index", "id"].iter().all(|key| last.get(*key) == detail.get(*key)))
        else {
            return self.reasoning_details.push(detail);
        };
        for (key, value) in detail {
            match (last.get_mut(&key), value) {
                (Some(Value::String(text)), Value::String(more)) if ["text", "summary", "data"].contains(&&*key) => {
                    text.push_str(&more);
                }
                (Some(old), value) if old.is_null() => *old = value,
                (None, value) => drop(last.insert(key, value)),
                (Some(_), _) => {}
            }
        }
    }
}

impl CallPiece<'_> {
    fn into_call(self) -> (PartialCall, Marks) {
        let function = self.function.unwrap_or_default();
        let arguments = match function.arguments {
            None | Some(Arguments::Object(Value::Null)) => String::new(),
            Some(Arguments::Text(written)) => written.0.into_owned(),
            Some(Arguments::Object(object)) => object.to_string(),
        };
        let id = match self.id {
            Some(Id::Text(id)) => id.0.into_owned(),
            Some(Id::Other(Value::Number(id))) => id.to_string(),
            Some(Id::Other(_)) | None => String::new(),
        };
        let call = PartialCall { id, name: owned(function.name), arguments };
        (call, Marks { index: self.index.0, extra_content: self.extra_content })
    }
}

/// An image at an address, or in a [data URL](https://www.rfc-editor.org/rfc/rfc2397).
fn picture(url: &str) -> Attachment {
    let inline = url.strip_prefix("data:").and_then(|data| data.split_once(";base64,"));
    inline.map_or_else(
        || Attachment::url(AttachmentKind::Image, url),
        |(media_type, base64)| Attachment::encoded(AttachmentKind::Image, media_type, base64),
    )
}

fn is_whole(arguments: &str) -> bool {
    let arguments = arguments.trim_end();
    arguments == "null" || arguments.ends_with('}') && serde_json::from_str::<IgnoredAny>(arguments).is_ok()
}

impl Text<'_> {
    fn is_empty(&self) -> bool {
        match self {
            Self::Plain(text) => text.is_empty(),
            Self::Parts(parts) => parts.is_empty(),
            Self::Other(_) => true,
        }
    }

    fn each(&self, take: &mut impl FnMut(&str)) {
        match self {
            Self::Plain(text) => take(text),
            Self::Parts(parts) => parts.iter().filter_map(|part| part.text.as_deref()).for_each(take),
            Self::Other(_) => {}
        }
    }
}

fn stop_reason(word: &str) -> StopReason {
    match word {
        "stop" => StopReason::Stop,
        "tool_calls" | "function_call" => StopReason::ToolCalls,
        "length" | "model_length" => StopReason::Length,
        "content_filter" => StopReason::ContentFilter,
        _ => StopReason::Other(Arc::from(word)),
    }
}

impl From<TokenCounts> for Option<Usage> {
    fn from(counts: TokenCounts) -> Self {
        counts.prompt_tokens.0.or(counts.completion_tokens.0)?;
        let (input, output) = (counts.prompt_tokens.count(), counts.completion_tokens.count());
        let details = counts.prompt_tokens_details.unwrap_or_default();
        let beside = [counts.prompt_cache_hit_tokens, counts.num_cached_tokens, counts.cached_tokens];
        let cached = details.cached_tokens.0.or_else(|| beside.into_iter().find_map(|tokens| tokens.0));
        let written = details.cache_write_tokens.0.or(details.cache_creation_input_tokens.0);
        let reasoning = counts.completion_tokens_details.unwrap_or_default().reasoning_tokens.count();
        // xAI does not include the tokens of reasoning in those of the completion.
        let with_reasoning = output.saturating_add(reasoning);
        let is_beside = counts.total_tokens.0 == Some(input.saturating_add(with_reasoning));
        Some(Usage {
            input_tokens: input,
            output_tokens: if is_beside { with_reasoning } else { output },
            cached_tokens: cached.unwrap_or(0),
            cache_write_tokens: written.unwrap_or(0),
            reasoning_tokens: reasoning,
        })
    }
}
