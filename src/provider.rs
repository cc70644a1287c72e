//! The boundary to a model: a [`Request`] out, a [`Reply`] back, and what was seen of it while it grew.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent::Agent;
use crate::context::Context;
use crate::error::{ProviderError, ProviderErrorKind};
use crate::message::{Attachment, CallId, Name};
use crate::tool::{ToolCall, ToolSpec};

/// Whatever answers for a model: a server, a script, another provider with something added.
///
/// Retrying, recording and prompt-based tool calling are providers around a provider.
///
/// A provider's future is dropped at its next await when the call that it serves is cancelled; with it
/// must go the connection. A panic becomes the error of that call. A provider that waits for a server
/// must end that wait itself.
pub trait Provider: Send + Sync + 'static {
    /// Asks the model once.
    ///
    /// What arrives piece by piece may be shown to `deltas` on the way; the reply is whole all the same.
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>>;

    /// Whether a model can call functions; `None` if that is not known. Default: not known.
    fn function_calling(&self, _model: &str) -> Option<bool> {
        None
    }
}

/// What a model is asked. It lives as long as its invocation; only its context grows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// The call that the agent serves.
    pub call_id: CallId,
    /// For whom the model speaks, and with which settings.
    pub agent: Arc<Agent>,
    /// What it is shown.
    pub context: Context,
    /// The tools that it is offered.
    pub tools: Arc<[ToolSpec]>,
}

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

    /// The reason why text that ended so is no whole answer, if it is none.
    pub(crate) fn failure(&self) -> Option<(ProviderErrorKind, String)> {
        match self {
            Self::Length => Some((ProviderErrorKind::Truncated, CUT.to_owned())),
            Self::Other(word) if ["max_tokens", "incomplete"].contains(&&**word) => {
                Some((ProviderErrorKind::Truncated, CUT.to_owned()))
            }
            Self::ContentFilter => Some((
                ProviderErrorKind::ContentFilter,
                "a filter, or the model itself, cut the reply short".to_owned(),
            )),
            Self::Other(word) if FAILED.contains(&&**word) => {
                Some((ProviderErrorKind::InvalidResponse, format!("the reply ended with `{word}`")))
            }
            Self::Stop | Self::ToolCalls | Self::Other(_) => None,
        }
    }
}

const CUT: &str =
    "the reply was cut at a limit of tokens: `max_output_tokens` of the agent, or what the model can write or read";

/// What servers say of a reply that failed on the way: [Gemini](https://ai.google.dev/api/generate-content#FinishReason),
/// OpenRouter, DeepSeek, GLM, SGLang.
const FAILED: [&str; 11] = [
    "MALFORMED_FUNCTION_CALL",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
    "MISSING_THOUGHT_SIGNATURE",
    "MALFORMED_RESPONSE",
    "OTHER",
    "error",
    "insufficient_system_resource",
    "network_error",
    "sensitive",
    "abort",
];

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

/// A piece of a reply that is still growing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delta {
    /// More of the text.
    Text(Arc<str>),
    /// More of the reasoning.
    Reasoning(Arc<str>),
    /// A tool call begins, or there is more of its arguments.
    ToolCall {
        /// Which of the reply's tool calls, counted from 0.
        index: usize,
        /// The tool's name, as far as it is known.
        name: Name,
        /// The next piece of the arguments, which are JSON once they are complete.
        arguments: Arc<str>,
    },
}

/// Shows a growing reply to whoever observes the call.
pub struct DeltaSink<'a> {
    observer: Option<&'a mut dyn Observer>,
    usage: Option<Usage>,
}

/// Whoever sees a reply grow: a closure that takes each [`Delta`], or a provider that shows what another one shows.
pub trait Observer: Send {
    /// One more piece of the reply.
    fn delta(&mut self, delta: Delta);

    /// What the reply has cost so far, see [`DeltaSink::usage_so_far`]. Default: nobody wants to know.
    fn usage_so_far(&mut self, _usage: Usage) {}
}

impl<F: FnMut(Delta) + Send> Observer for F {
    fn delta(&mut self, delta: Delta) {
        self(delta);
    }
}

impl<'a> DeltaSink<'a> {
    /// Shows the pieces to `observer`.
    pub fn to(observer: &'a mut dyn Observer) -> Self {
        Self { observer: Some(observer), usage: None }
    }

    /// Shows the pieces to nobody.
    #[must_use]
    pub fn none() -> Self {
        Self { observer: None, usage: None }
    }

    /// Whether anybody looks on. If not, a reply may as well come in one piece.
    #[must_use]
    pub fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    /// Shows one more piece of the reply.
    pub fn delta(&mut self, delta: Delta) {
        if let Some(observer) = &mut self.observer {
            observer.delta(delta);
        }
    }

    /// Says what the reply has cost so far, so that it is known even when the call is cancelled before
    /// the reply is whole. Each figure takes the place of the one before.
    pub fn usage_so_far(&mut self, usage: Usage) {
        self.usage = Some(usage);
        if let Some(observer) = &mut self.observer {
            observer.usage_so_far(usage);
        }
    }

    /// The last figure of [`DeltaSink::usage_so_far`].
    #[must_use]
    pub fn known_usage(&self) -> Option<Usage> {
        self.usage
    }
}

impl fmt::Debug for DeltaSink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaSink").field("is_observed", &self.is_observed()).field("usage", &self.usage).finish()
    }
}
