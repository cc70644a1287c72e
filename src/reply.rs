//! A model's reply, its stop reason and its usage. Pure.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::Attachment;
use crate::tool_call::ToolCall;

/// The reply of a model.
///
/// The constructors make replies for [scripts](crate::providers::scripted) and tests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reply {
    /// The text, if any.
    pub text: Option<Arc<str>>,
    /// The text of a refusal, where the server keeps it apart from the reply's text.
    pub refusal: Option<Arc<str>>,
    /// The reasoning, where the server returns it.
    pub reasoning: Option<Arc<str>>,
    /// The images, sounds and documents that the model made. The answer of the call has those of all replies, in order,
    /// whether the last reply calls `finish` or is text alone.
    pub attachments: Vec<Attachment>,
    /// The tool calls, in order.
    pub tool_calls: Vec<ToolCall>,
    /// The reason why the model stopped.
    pub stop_reason: StopReason,
    /// The usage; `None` if the server does not report it.
    pub usage: Option<Usage>,
    /// The data that the provider must get back in the next request, such as signatures of reasoning. It is an object
    /// with one key, the wire format, so that no other provider takes it for its own. The
    /// [`ChatMessage`](crate::ChatMessage) carries it; no other code reads it.
    pub opaque: Option<Arc<Value>>,
    /// The server's id of the reply; `None` if it gives none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Arc<str>>,
    /// The name of the model that replied, as the server gives it; `None` if it gives none. It may be more exact than
    /// the name that the agent has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
}

impl Reply {
    /// The text, or the refusal if there is no text.
    pub(crate) fn text_or_refusal(&self) -> Option<&Arc<str>> {
        self.text.as_ref().filter(|text| !text.is_empty()).or(self.refusal.as_ref())
    }
}

/// The reason why a model stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The reply is complete.
    #[default]
    Stop,
    /// The model waits for the outputs of its tool calls.
    ToolCalls,
    /// The reply reached the limit of output tokens. None of its tool calls is carried out, not even a complete one,
    /// because it is not known what would have followed. The model is told so for each call.
    Length,
    /// A filter stopped the reply, or the model declined.
    ContentFilter,
    /// Any other reason, as the server names it.
    #[serde(untagged)]
    Other(Arc<str>),
}

impl StopReason {
    /// Returns whether the model continues where it stopped when it is asked again: Anthropic pauses a [long
    /// turn](https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons) with tools of its own.
    pub(crate) fn is_pause(&self) -> bool {
        matches!(self, Self::Other(word) if &**word == "pause_turn")
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::ContentFilter => "content_filter",
            Self::Other(word) => word,
        })
    }
}

/// The number of tokens used. Sums do not overflow: they stop at the largest number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// The input tokens, those read from a cache and written to it included.
    pub input_tokens: u64,
    /// The output tokens, reasoning included.
    pub output_tokens: u64,
    /// The input tokens that came from the server's cache.
    pub cached_tokens: u64,
    /// The input tokens that were written to the server's cache, where the server reports them.
    pub cache_write_tokens: u64,
    /// The output tokens that were reasoning.
    pub reasoning_tokens: u64,
}

impl Usage {
    /// Returns this usage without a part of it.
    pub(crate) fn without(self, part: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_sub(part.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(part.output_tokens),
            cached_tokens: self.cached_tokens.saturating_sub(part.cached_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_sub(part.cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_sub(part.reasoning_tokens),
        }
    }
}

impl std::ops::Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cached_tokens: self.cached_tokens.saturating_add(other.cached_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(other.reasoning_tokens),
        }
    }
}

impl std::iter::Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), std::ops::Add::add)
    }
}
