//! The boundary to a model: a [`Request`] out, a [`Reply`] or a [`ProviderError`] back, and what was seen of it on the way.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::call_id::CallId;
use crate::context::Context;
use crate::name::Name;
use crate::reply::{Reply, Usage};
use crate::tool_call::ToolSpec;

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

impl Request {
    /// A request with a random call id, for tests of a provider.
    pub fn new(agent: impl Into<Arc<Agent>>, context: Context, tools: impl Into<Arc<[ToolSpec]>>) -> Self {
        Self { call_id: CallId::random(), agent: agent.into(), context, tools: tools.into() }
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

/// Why a provider gave no reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ProviderError {
    /// What kind of failure it is.
    pub kind: ProviderErrorKind,
    /// What happened, in words; the server's own where it gave any. Never holds a key.
    pub message: Arc<str>,
    /// The HTTP status, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The server's id of the request, which its support asks for. It stands in the message too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Arc<str>>,
    /// How long the server asked to wait before the next try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Duration>,
    /// What had arrived before the failure: text and usage that were paid for. Its tool calls may be cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Box<Reply>>,
    /// Whether trying again may help, where the server says so itself; else the kind tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub should_retry: Option<bool>,
}

impl ProviderError {
    /// An error of a kind, with a text.
    pub fn new(kind: ProviderErrorKind, message: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            message: message.into(),
            status: None,
            request_id: None,
            retry_after: None,
            partial: None,
            should_retry: None,
        }
    }
}

/// What kind of failure a [`ProviderError`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProviderErrorKind {
    /// The key is missing, wrong or not allowed to do this.
    Authentication,
    /// Too many requests or tokens for now. Later may go well.
    RateLimited,
    /// The account's quota or credit is used up. Later does not help.
    QuotaExceeded,
    /// The server does not accept this request. The same request fails again.
    InvalidRequest,
    /// The request has more tokens than the model can read.
    ContextTooLong,
    /// A filter of the server's refused the request, or all of the reply.
    ContentFilter,
    /// The server or the model is overloaded. Later may go well.
    Overloaded,
    /// The server failed. Later may go well.
    Unavailable,
    /// No connection, or it broke.
    Connection,
    /// Nothing arrived for too long.
    Timeout,
    /// The reply ended before it was complete.
    Truncated,
    /// The server answered, with nothing in it.
    EmptyResponse,
    /// The server's answer could not be understood.
    InvalidResponse,
    /// Anything else.
    Other,
}
