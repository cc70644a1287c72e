//! The interface to a model: a [`Request`] goes out, a [`Reply`] or a [`ProviderError`] comes back, and a [`DeltaSink`]
//! takes the pieces on the way.

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

/// The interface to a model: a server, a script, or a wrapper around another provider.
///
/// Retries, recording and prompt-based tool calling are providers that wrap a provider. Such a provider implements
/// [`ProviderWrapper`](crate::ProviderWrapper) in place of this trait.
///
/// When the call is cancelled, the provider's future is dropped at its next await, and it must close its connection
/// with it. A panic becomes the error of that call. A provider that waits for a server needs a timeout of its own.
pub trait Provider: Send + Sync + 'static {
    /// Sends one request to the model.
    ///
    /// A reply that is streamed may be passed to `deltas` piece by piece. The returned reply is complete all the same. A
    /// request that fails after a piece was shown is not sent again; put that part into
    /// [`partial`](ProviderError::partial).
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>>;

    /// Returns whether a model can call functions; `None` if that is not known. Default: not known.
    fn function_calling(&self, _model: &str) -> Option<bool> {
        None
    }

    /// Returns what is known of the server, for spans and metrics. Read once, when an agent joins. Default: nothing. A
    /// provider around another one returns the other's.
    fn info(&self) -> ProviderInfo {
        ProviderInfo::default()
    }
}

/// The server of a provider, as spans and metrics name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProviderInfo {
    /// The name in the [OpenTelemetry
    /// conventions](https://opentelemetry.io/docs/specs/semconv/registry/attributes/gen-ai/#gen-ai-provider-name), such as
    /// `openai` or `aws.bedrock`. Default: the name under which the provider is registered.
    pub name: Option<Arc<str>>,
    /// The host name or the IP address. Neither a path nor a query.
    pub address: Option<Arc<str>>,
    /// The port.
    pub port: Option<u16>,
    /// `true` if every reply is streamed, `false` if none is. Default: streamed if the call has an observer.
    pub streams: Option<bool>,
}

/// A request to a model. One value serves all requests of an invocation; only its context grows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// The id of the call that the agent serves.
    pub call_id: CallId,
    /// The agent, with the settings for its model.
    pub agent: Arc<Agent>,
    /// The conversation that the model reads.
    pub context: Context,
    /// The tools that the model is offered.
    pub tools: Arc<[ToolSpec]>,
}

impl Request {
    /// A request with a random call id, for tests of a provider.
    pub fn new(agent: impl Into<Arc<Agent>>, context: Context, tools: impl Into<Arc<[ToolSpec]>>) -> Self {
        Self { call_id: CallId::random(), agent: agent.into(), context, tools: tools.into() }
    }
}

/// A piece of a reply that is being streamed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Delta {
    /// More of the text.
    Text(Arc<str>),
    /// More of the reasoning.
    Reasoning(Arc<str>),
    /// The start of a tool call, or more of its arguments.
    ToolCall {
        /// The index of the tool call in the reply, from 0.
        index: usize,
        /// The tool's name, as far as it is known.
        name: Name,
        /// The next piece of the arguments, which are JSON once they are complete.
        arguments: Arc<str>,
    },
    /// More of the answer's text, whether the model ends by text or by `finish`. The runtime adds it to the other
    /// pieces; a provider makes none. A typed answer has no such pieces.
    ///
    /// Text may be followed by tool calls, or by another attempt, and is no answer then. So the answer is the text since
    /// the last piece that begins it. A `finish` whose message is no text, or whose arguments are no JSON, may have other
    /// pieces than the answer or none.
    Answer {
        /// The next piece of the text.
        text: Arc<str>,
        /// `true` if the answer begins here: what was taken for it before is none.
        begins: bool,
    },
}

/// A sink for the pieces of a reply while it is streamed. It passes them to an [`Observer`], if it has one.
pub struct DeltaSink<'a> {
    observer: Option<&'a mut dyn Observer>,
    usage: Option<Usage>,
    pub(crate) attempts: Option<&'a dyn Attempts>,
    /// `true` while another provider is asked at once if this one fails.
    pub(crate) has_fallback: bool,
    /// `true` once the present attempt has shown a piece of the reply to the observer.
    pub(crate) has_shown: bool,
}

/// The attempts of one request to a model, as the call that makes it sees them.
pub(crate) trait Attempts: Send + Sync {
    /// Ends the present attempt and begins the next one, which the limits of callers must admit.
    fn next<'a>(&'a self, next: NextAttempt<'a>) -> BoxFuture<'a, Result<(), ProviderError>>;

    /// The usage of the attempts that have ended, as far as it is known.
    fn settled(&self) -> Option<Usage>;

    /// Records the usage of the present attempt so far.
    fn usage_so_far(&self, usage: Usage);

    /// Records the body that is sent for the present attempt.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "nothing is sent"))]
    fn sent(&self, body: &[u8]);
}

/// The next attempt of a request.
pub(crate) struct NextAttempt<'a> {
    /// The error of the attempt before.
    pub(crate) error: &'a ProviderError,
    /// The part of its usage that is settled: that of attempts of a wrapper inside.
    pub(crate) settled: Usage,
    /// The time until the next attempt begins. `None`: another provider is asked.
    pub(crate) pause: Option<Duration>,
}

/// An observer of a reply while it is streamed: a closure that takes each [`Delta`], or a provider that passes on the
/// deltas of another one.
pub trait Observer: Send {
    /// Takes one more piece of the reply.
    fn delta(&mut self, delta: Delta);

    /// Takes the usage so far, see [`DeltaSink::usage_so_far`]. Default: ignored.
    fn usage_so_far(&mut self, _usage: Usage) {}
}

impl<F: FnMut(Delta) + Send> Observer for F {
    fn delta(&mut self, delta: Delta) {
        self(delta);
    }
}

impl<'a> DeltaSink<'a> {
    /// Returns a sink that passes the pieces to `observer`.
    pub fn to(observer: &'a mut dyn Observer) -> Self {
        Self { observer: Some(observer), ..Self::none() }
    }

    /// Returns a sink that drops the pieces.
    #[must_use]
    pub fn none() -> Self {
        Self { observer: None, usage: None, attempts: None, has_fallback: false, has_shown: false }
    }

    /// Returns a sink for a provider that a wrapper asks for the same reply. It drops the pieces, unless it gets an
    /// observer with [`observed_by`](Self::observed_by). Attempts count for the call all the same.
    ///
    /// It does not borrow this sink, so the observer may pass the pieces on to it:
    ///
    /// ```
    /// use agentouto::{Delta, DeltaSink, Provider, ProviderError, Reply, Request};
    ///
    /// async fn shout(
    ///     inner: &dyn Provider,
    ///     request: &Request,
    ///     deltas: &mut DeltaSink<'_>,
    /// ) -> Result<Reply, ProviderError> {
    ///     let sink = deltas.inner();
    ///     let mut observer = |delta| match delta {
    ///         Delta::Text(piece) => deltas.delta(Delta::Text(piece.to_uppercase().into())),
    ///         other => deltas.delta(other),
    ///     };
    ///     inner.reply(request, &mut sink.observed_by(&mut observer)).await
    /// }
    /// ```
    #[must_use]
    pub fn inner(&self) -> Self {
        Self { observer: None, usage: self.usage, has_shown: false, ..*self }
    }

    /// The same sink, which passes the pieces to `observer`.
    #[must_use]
    pub fn observed_by<'b>(self, observer: &'b mut dyn Observer) -> DeltaSink<'b>
    where
        'a: 'b,
    {
        DeltaSink { observer: Some(observer), ..self }
    }

    /// Announces that the request is sent again after this error and this pause, which has not begun. The usage of the
    /// failed attempt is that of the error's [`partial`](ProviderError::partial). The next attempt counts as one more
    /// request, and observers see [`EventKind::ModelRetry`](crate::EventKind::ModelRetry).
    ///
    /// # Errors
    ///
    /// When a caller's [budget](crate::Call::budget) does not allow one more request. It must not be sent then.
    pub async fn retry(&mut self, error: &ProviderError, pause: Duration) -> Result<(), ProviderError> {
        self.next_attempt(NextAttempt { error, settled: Usage::default(), pause: Some(pause) }).await
    }

    /// Announces that another provider is asked after this error. The attempt counts as one more request, and observers
    /// see [`EventKind::ModelFallback`](crate::EventKind::ModelFallback).
    ///
    /// # Errors
    ///
    /// When a caller's [budget](crate::Call::budget) does not allow one more request. It must not be sent then.
    pub async fn fall_back(&mut self, error: &ProviderError) -> Result<(), ProviderError> {
        self.next_attempt(NextAttempt { error, settled: Usage::default(), pause: None }).await
    }

    pub(crate) async fn next_attempt(&mut self, next: NextAttempt<'_>) -> Result<(), ProviderError> {
        match self.attempts {
            Some(attempts) => attempts.next(next).await,
            None => Ok(()),
        }
    }

    /// Reports the attempts of the request to its call.
    pub(crate) fn attempts(mut self, attempts: &'a dyn Attempts) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// Returns whether the sink has an observer. If not, the reply may as well be requested in one piece.
    #[must_use]
    pub fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    /// Passes on one more piece of the reply.
    pub fn delta(&mut self, delta: Delta) {
        if let Some(observer) = &mut self.observer {
            self.has_shown = true;
            observer.delta(delta);
        }
    }

    /// Records the usage so far, so that it is known even when the call is cancelled before the reply is complete. Each
    /// value replaces the one before.
    pub fn usage_so_far(&mut self, usage: Usage) {
        self.usage = Some(usage);
        if let Some(attempts) = self.attempts {
            attempts.usage_so_far(usage);
        }
        if let Some(observer) = &mut self.observer {
            observer.usage_so_far(usage);
        }
    }

    /// The last value of [`DeltaSink::usage_so_far`].
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

/// The error of a request to a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ProviderError {
    /// The kind of failure.
    pub kind: ProviderErrorKind,
    /// The description of the failure, in the server's words where it sent any. Never contains a key.
    pub message: Arc<str>,
    /// The HTTP status, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The server's id of the request, which its support asks for. The message contains it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Arc<str>>,
    /// The time that the server asked to wait before a retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Duration>,
    /// The part of the reply that arrived before the failure: text and usage that were paid for. Its tool calls may be
    /// cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Box<Reply>>,
    /// `true` if a retry may help, `false` if not, where the server says so itself. `None`: the kind decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub should_retry: Option<bool>,
}

impl ProviderError {
    /// An error of this kind, with this message.
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

    /// The usage that was paid for before the failure, as far as it is known.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.partial.as_ref().and_then(|partial| partial.usage)
    }
}

/// The kind of a [`ProviderError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProviderErrorKind {
    /// The key is missing, wrong or not allowed to do this.
    Authentication,
    /// Too many requests or tokens for now. A later retry may succeed.
    RateLimited,
    /// The account's quota or credit is used up. A retry does not help.
    QuotaExceeded,
    /// The server rejects this request. A retry fails again.
    InvalidRequest,
    /// The request has more tokens than the model can read.
    ContextTooLong,
    /// A filter of the server rejected the request, or all of the reply.
    ContentFilter,
    /// The server or the model is overloaded. A later retry may succeed.
    Overloaded,
    /// The server failed. A later retry may succeed.
    Unavailable,
    /// No connection could be made, or it broke.
    Connection,
    /// Nothing arrived for too long.
    Timeout,
    /// The reply ended before it was complete.
    Truncated,
    /// The server's answer was empty.
    EmptyResponse,
    /// The server's answer could not be understood.
    InvalidResponse,
    /// Any other failure.
    Other,
}
