//! The decoder of a [message](https://docs.anthropic.com/en/api/messages): a complete one, or the
//! [events](https://docs.anthropic.com/en/api/messages-streaming) of a stream.
//!
//! Unknown blocks are ignored, or kept unchanged if the server needs them back. Nothing here sends a request or repairs
//! the model's output.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::OPAQUE;
use crate::providers::http::error_body::ErrorBody;
use crate::providers::http::reply_builder::{PartialCall, ReplyBuilder};
use crate::providers::http::sse::Event;
use crate::providers::http::wire_format::{self, DecodeError, Decoded, Str, Tokens, lenient, owned};
use crate::reply::{StopReason, Usage};

/// A complete message, or an error in place of it.
#[derive(Debug, Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    stop_reason: Option<Str<'a>>,
    #[serde(borrow)]
    stop_details: Option<StopDetails<'a>>,
    usage: Option<TokenCounts>,
    #[serde(borrow, default, deserialize_with = "lenient")]
    id: Option<Str<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient")]
    model: Option<Str<'a>>,
    error: Option<Value>,
}

/// The reason why a model declined.
#[derive(Debug, Deserialize)]
struct StopDetails<'a> {
    #[serde(borrow)]
    explanation: Option<Str<'a>>,
}

/// One event of a stream; its fields depend on its type.
#[derive(Debug, Deserialize)]
struct StreamEvent<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Str<'a>>,
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    message: Option<Begun<'a>>,
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    usage: Option<TokenCounts>,
}

/// The message in the first event, still without content.
#[derive(Debug, Deserialize)]
struct Begun<'a> {
    usage: Option<TokenCounts>,
    #[serde(borrow, default, deserialize_with = "lenient")]
    id: Option<Str<'a>>,
    #[serde(borrow, default, deserialize_with = "lenient")]
    model: Option<Str<'a>>,
    #[serde(borrow)]
    content: Option<Vec<&'a RawValue>>,
}

#[derive(Debug, Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    text: Option<Str<'a>>,
    #[serde(borrow)]
    thinking: Option<Str<'a>>,
    #[serde(borrow)]
    signature: Option<Str<'a>>,
    #[serde(borrow)]
    partial_json: Option<Str<'a>>,
    #[serde(borrow)]
    stop_reason: Option<Str<'a>>,
    #[serde(borrow)]
    stop_details: Option<StopDetails<'a>>,
}

/// The known fields of a content block.
#[derive(Debug, Deserialize)]
struct RawBlock<'a> {
    #[serde(rename = "type", borrow)]
    kind: Str<'a>,
    #[serde(borrow)]
    text: Option<Str<'a>>,
    #[serde(borrow)]
    thinking: Option<Str<'a>>,
    #[serde(borrow)]
    signature: Option<Str<'a>>,
    #[serde(borrow)]
    id: Option<Str<'a>>,
    #[serde(borrow)]
    name: Option<Str<'a>>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

/// [Usage](https://docs.anthropic.com/en/api/messages#response-usage). In a stream, a field that an event omits keeps
/// its value.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct TokenCounts {
    input_tokens: Tokens,
    output_tokens: Tokens,
    cache_creation_input_tokens: Tokens,
    cache_read_input_tokens: Tokens,
    #[serde(deserialize_with = "lenient")]
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    thinking_tokens: Tokens,
}

/// The decoder of one response.
#[derive(Debug, Default)]
pub struct Decoder {
    blocks: Vec<Block>,
    usage: TokenCounts,
}

#[derive(Debug)]
struct Block {
    index: u64,
    content: BlockContent,
}

#[derive(Debug)]
enum BlockContent {
    Text(String),
    Thinking {
        thinking: String,
        signature: String,
    },
    /// A tool call, by its index among those of the builder.
    Call(usize),
    /// Any other block, with the pieces of its input.
    Other(Value, String),
}

impl wire_format::Decoder for Decoder {
    fn whole(&mut self, body: &[u8], builder: &mut ReplyBuilder<'_, '_>) -> Result<(), DecodeError> {
        let message: Message<'_> = serde_json::from_slice(body)?;
        if let Some(error) = message.error {
            return Err(DecodeError::Reported(ErrorBody::reported(&json!({ "error": error }))));
        }
        builder.identify(message.id.as_deref(), message.model.as_deref());
        if let Some(content) = message.content {
            builder.begin();
            for (block, index) in content.into_iter().zip(0..) {
                self.block(index, block, builder)?;
                self.close(index, builder);
            }
        }
        self.used(message.usage, builder);
        ended(message.stop_reason, message.stop_details, builder)
    }

    fn event(&mut self, event: Event<'_>, builder: &mut ReplyBuilder<'_, '_>) -> Result<Decoded, DecodeError> {
        if event.name == "error" {
            return Err(failed(event.data));
        }
        // Some gateways end the stream as in Chat Completions.
        if matches!(event.data.trim(), "" | "[DONE]") {
            return Ok(Decoded::More);
        }
        let StreamEvent { kind, index, message, content_block, delta, usage } = match serde_json::from_str(event.data) {
            Ok(event) => event,
            Err(error) if KINDS.contains(&event.name) => return Err(error.into()),
            // A new type of event may have other fields under the same names.
            Err(_) => return Ok(Decoded::Unknown),
        };
        match kind.as_deref().unwrap_or(event.name) {
            "message_start" => {
                builder.begin();
                if let Some(Begun { usage, id, model, content }) = message {
                    builder.identify(id.as_deref(), model.as_deref());
                    self.used(usage, builder);
                    for (block, index) in content.into_iter().flatten().zip(0..) {
                        self.block(index, block, builder)?;
                    }
                }
            }
            "content_block_start" => {
                if let Some(block) = content_block {
                    self.block(index, block, builder)?;
                }
            }
            "content_block_delta" => {
                if let Some(delta) = delta {
                    self.grow(index, delta, builder);
                }
            }
            "content_block_stop" => self.close(index, builder),
            "message_delta" => {
                self.used(usage, builder);
                if let Some(Delta { stop_reason, stop_details, .. }) = delta {
                    ended(stop_reason, stop_details, builder)?;
                }
            }
            "message_stop" => {
                builder.set_complete();
                return Ok(Decoded::Last);
            }
            "error" => return Err(failed(event.data)),
            "ping" => {}
            _ => return Ok(Decoded::Unknown),
        }
        Ok(Decoded::More)
    }

    fn opaque(self) -> Option<Value> {
        let is_plain = |block: &Block| matches!(block.content, BlockContent::Text(_) | BlockContent::Call(_));
        if self.blocks.iter().all(is_plain) {
            return None;
        }
        let blocks: Vec<_> = self.blocks.into_iter().filter_map(|block| block.content.into_kept()).collect();
        Some(json!({ OPAQUE: blocks }))
    }
}

impl Decoder {
    /// Adds a block, which may still be empty.
    fn block(&mut self, index: u64, raw: &RawValue, builder: &mut ReplyBuilder<'_, '_>) -> serde_json::Result<()> {
        let block: RawBlock<'_> = serde_json::from_str(raw.get())?;
        let content = match &*block.kind {
            "text" => {
                builder.push_text(block.text.as_deref().unwrap_or_default());
                BlockContent::Text(owned(block.text))
            }
            "thinking" => {
                builder.push_reasoning(block.thinking.as_deref().unwrap_or_default());
                BlockContent::Thinking { thinking: owned(block.thinking), signature: owned(block.signature) }
            }
            "tool_use" => {
                // In a stream the input is `{}` here, and arrives in pieces.
                let written = block.input.map(RawValue::get).filter(|input| *input != "{}");
                let arguments = written.unwrap_or_default().to_owned();
                BlockContent::Call(builder.add_call(PartialCall {
                    id: owned(block.id),
                    name: owned(block.name),
                    arguments,
                }))
            }
            _ => BlockContent::Other(serde_json::from_str(raw.get())?, String::new()),
        };
        self.blocks.push(Block { index, content });
        Ok(())
    }

    /// Adds more of a block.
    fn grow(&mut self, index: u64, delta: Delta<'_>, builder: &mut ReplyBuilder<'_, '_>) {
        let Some(block) = self.blocks.iter_mut().rfind(|block| block.index == index) else { return };
        let json = delta.partial_json.as_deref().unwrap_or_default();
        match &mut block.content {
            BlockContent::Text(text) => {
                let piece = delta.text.as_deref().unwrap_or_default();
                text.push_str(piece);
                builder.push_text(piece);
            }
            BlockContent::Thinking { thinking, signature } => {
                let piece = delta.thinking.as_deref().unwrap_or_default();
                thinking.push_str(piece);
                builder.push_reasoning(piece);
                signature.push_str(delta.signature.as_deref().unwrap_or_default());
            }
            BlockContent::Call(place) => builder.push_arguments(*place, json),
            BlockContent::Other(_, input) => input.push_str(json),
        }
    }

    /// Completes a block. A tool call without arguments has arrived without any piece of them.
    fn close(&mut self, index: u64, builder: &mut ReplyBuilder<'_, '_>) {
        let block = self.blocks.iter().rfind(|block| block.index == index);
        if let Some(Block { content: BlockContent::Call(place), .. }) = block
            && builder.calls().get(*place).is_some_and(|call| call.arguments.is_empty())
        {
            builder.push_arguments(*place, "{}");
        }
    }

    fn used(&mut self, told: Option<TokenCounts>, builder: &mut ReplyBuilder<'_, '_>) {
        let Some(told) = told else { return };
        let known = &mut self.usage;
        let latest = |known: &mut Tokens, told: Tokens| *known = Tokens(told.0.or(known.0));
        latest(&mut known.input_tokens, told.input_tokens);
        latest(&mut known.output_tokens, told.output_tokens);
        latest(&mut known.cache_creation_input_tokens, told.cache_creation_input_tokens);
        latest(&mut known.cache_read_input_tokens, told.cache_read_input_tokens);
        known.output_tokens_details = told.output_tokens_details.or(known.output_tokens_details);
        // The input tokens are only those after the last breakpoint:
        // https://platform.claude.com/docs/en/build-with-claude/prompt-caching
        let (cached, written) = (known.cache_read_input_tokens.count(), known.cache_creation_input_tokens.count());
        let beside = cached.saturating_add(written);
        builder.set_usage(Usage {
            input_tokens: known.input_tokens.count().saturating_add(beside),
            output_tokens: known.output_tokens.count(),
            cached_tokens: cached,
            cache_write_tokens: written,
            reasoning_tokens: known.output_tokens_details.unwrap_or_default().thinking_tokens.count(),
        });
    }
}

/// The error that an error event reports.
fn failed(data: &str) -> DecodeError {
    serde_json::from_str(data)
        .map_or_else(DecodeError::Unreadable, |error| DecodeError::Reported(ErrorBody::reported(&error)))
}

/// The types of events that are read.
const KINDS: [&str; 8] = [
    "",
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "error",
];

/// Records why the model stopped. A refusal before any content is an error, with the server's explanation.
fn ended(
    word: Option<Str<'_>>,
    details: Option<StopDetails<'_>>,
    builder: &mut ReplyBuilder<'_, '_>,
) -> Result<(), DecodeError> {
    let Some(word) = word else { return Ok(()) };
    builder.set_stop_reason(match &*word {
        "end_turn" | "stop_sequence" => StopReason::Stop,
        "tool_use" => StopReason::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "refusal" => StopReason::ContentFilter,
        other => StopReason::Other(Arc::from(other)),
    });
    match details.and_then(|details| details.explanation) {
        Some(explanation) if &*word == "refusal" && builder.is_empty() => {
            Err(DecodeError::Reported(ErrorBody::new(&*explanation, "content_filter")))
        }
        _ => Ok(()),
    }
}

impl BlockContent {
    /// The block as it is sent back to the server; `None` for a blank text, which the server refuses.
    fn into_kept(self) -> Option<Value> {
        match self {
            Self::Text(text) => (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text })),
            Self::Thinking { thinking, signature } => {
                Some(json!({ "type": "thinking", "thinking": thinking, "signature": signature }))
            }
            // The call itself is in the context's message.
            Self::Call(_) => Some(json!({ "type": "tool_use" })),
            Self::Other(mut block, input) => {
                if let Ok(input) = serde_json::from_str::<Value>(&input) {
                    block["input"] = input;
                }
                Some(block)
            }
        }
    }
}
