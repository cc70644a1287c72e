//! What a model answered, and what it cost. Pure.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::Attachment;
use crate::tool_call::ToolCall;

/// What a model answered.
///
/// The constructors make replies for scripts and tests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reply {
    /// Its text, if any.
    pub text: Option<Arc<str>>,
    /// The words in which it declines, where the server keeps them apart from its text.
    pub refusal: Option<Arc<str>>,
    /// Its reasoning, where the server tells it.
    pub reasoning: Option<Arc<str>>,
    /// The images, sounds and documents that it made. The answer of the call carries those of all its replies, in
    /// order, whether the last one calls `finish` or is text alone.
    pub attachments: Vec<Attachment>,
    /// The tools that it calls, in order.
    pub tool_calls: Vec<ToolCall>,
    /// Why it stopped.
    pub stop_reason: StopReason,
    /// What it cost; `None` when the server does not say.
    pub usage: Option<Usage>,
    /// Whatever the provider needs to see again in the next request, such as signatures of reasoning: an
    /// object with one key, the wire format, so that no other provider takes it for its own. Carried in the
    /// [`ChatMessage`](crate::ChatMessage); read by nobody else.
    pub opaque: Option<Arc<Value>>,
}

impl Reply {
    /// A reply of text alone, which ends the call.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// A reply that calls `finish`.
    pub fn finish(message: &str) -> Self {
        #[derive(Serialize)]
        struct Finish<'a> {
            message: &'a str,
        }
        Self::default().and_call("finish", &Finish { message })
    }

    /// A reply that calls an agent.
    pub fn call_agent(agent: &str, message: &str) -> Self {
        Self::default().and_call_agent(agent, message)
    }

    /// A reply that calls a tool.
    pub fn tool(name: &str, arguments: Value) -> Self {
        Self::default().and_tool(name, arguments)
    }

    /// The same reply, calling one more agent.
    #[must_use]
    pub fn and_call_agent(self, agent: &str, message: &str) -> Self {
        #[derive(Serialize)]
        struct CallAgent<'a> {
            agent_name: &'a str,
            message: &'a str,
        }
        self.and_call("call_agent", &CallAgent { agent_name: agent, message })
    }

    /// The same reply, calling one more tool.
    #[must_use]
    pub fn and_tool(self, name: &str, arguments: Value) -> Self {
        self.and_call(name, &arguments)
    }

    fn and_call(mut self, name: &str, arguments: &impl Serialize) -> Self {
        let id = format!("call_{}", self.tool_calls.len());
        // A value and a struct of texts can always be written.
        let arguments = serde_json::to_string(arguments).unwrap_or_default();
        self.tool_calls.push(ToolCall::new(id, name, arguments));
        self.stop_reason = StopReason::ToolCalls;
        self
    }

    /// Its text, or the words of its refusal where it has none.
    pub(crate) fn text_or_refusal(&self) -> Option<&Arc<str>> {
        self.text.as_ref().filter(|text| !text.is_empty()).or(self.refusal.as_ref())
    }

    /// The same reply, with what it cost.
    #[must_use]
    pub fn usage(mut self, input_tokens: u64, output_tokens: u64) -> Self {
        self.usage = Some(Usage { input_tokens, output_tokens, ..Usage::default() });
        self
    }
}

/// Why a model stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It had said everything.
    #[default]
    Stop,
    /// It waits for tools.
    ToolCalls,
    /// It reached the limit of output tokens. None of its tool calls is carried out, not even one that is complete:
    /// what would have followed is not known. The model is told so for each.
    Length,
    /// A filter stopped it, or the model declined.
    ContentFilter,
    /// Anything else, in the server's word.
    #[serde(untagged)]
    Other(Arc<str>),
}

impl StopReason {
    /// Whether the model goes on where it stopped when it is asked again: Anthropic pauses a
    /// [long turn](https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons) with tools of its own.
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

/// Tokens. Sums never overflow: they stay at the largest number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens read, cached ones included.
    pub input_tokens: u64,
    /// Tokens written, reasoning included.
    pub output_tokens: u64,
    /// Of those read, the ones that came from the server's cache.
    pub cached_tokens: u64,
    /// Of those written, the ones that were reasoning.
    pub reasoning_tokens: u64,
}

impl std::ops::Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cached_tokens: self.cached_tokens.saturating_add(other.cached_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(other.reasoning_tokens),
        }
    }
}

impl std::iter::Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), std::ops::Add::add)
    }
}
