//! OpenAI's Chat Completions, and the many servers that speak it too.
//!
//! Follows the [API reference](https://platform.openai.com/docs/api-reference/chat), and reads what other
//! servers make of it. It never tries a request twice; that is for a provider around it.

mod reply;
mod request;

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};

use self::reply::{Completion, Draft};
use super::http::{Events, Expect, Http, Key};
use crate::error::{ProviderError, ProviderErrorKind};
use crate::provider::{Growth, Provider, Reply, Request};

/// A server that speaks Chat Completions.
///
/// ```
/// use agentouto::providers::openai::OpenAi;
///
/// let openai = OpenAi::new("sk-…");
/// let llama = OpenAi::keyless("http://localhost:8080/v1");
/// ```
///
/// What an attachment becomes: an image an `image_url`, a sound an `input_audio`, a document a `file`. The
/// API takes sounds and documents as bytes only; of those that have an address, the model is told the
/// address. It takes no attachments in the result of a tool either: they follow in a user message, after
/// the results of the same turn.
///
/// Of [`Reasoning`](crate::Reasoning) the effort is sent, the budget is not.
pub struct OpenAi {
    http: Http,
    url: String,
    streaming: Streaming,
}

/// When a reply is asked for piece by piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streaming {
    /// When somebody looks on.
    #[default]
    WhenObserved,
    /// Always: what has arrived is known even when the rest fails.
    Always,
    /// Never, for servers that cannot.
    Never,
}

impl OpenAi {
    /// OpenAI itself, with a key. Space around the key is dropped.
    pub fn new(api_key: impl Into<SecretString>) -> Self {
        let secret = api_key.into().expose_secret().trim().into();
        Self::with(Some(Key { header: "authorization", prefix: "Bearer ", secret }), BASE_URL)
    }

    /// A server that asks for no key.
    #[must_use]
    pub fn keyless(base_url: &str) -> Self {
        Self::with(None, base_url)
    }

    /// With the key in `OPENAI_API_KEY`, at the address in `OPENAI_BASE_URL` if there is one.
    ///
    /// # Errors
    ///
    /// When `OPENAI_API_KEY` is not set or empty.
    pub fn from_env() -> Result<Self, ProviderError> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let key = variable("OPENAI_API_KEY").ok_or_else(|| {
            ProviderError::new(ProviderErrorKind::Authentication, "the environment variable OPENAI_API_KEY is not set")
        })?;
        let openai = Self::new(key);
        Ok(match variable("OPENAI_BASE_URL") {
            Some(base_url) => openai.base_url(&base_url),
            None => openai,
        })
    }

    /// Another server, by the address before `/chat/completions`. Default: `https://api.openai.com/v1`.
    #[must_use]
    pub fn base_url(mut self, base_url: &str) -> Self {
        self.url = format!("{}/chat/completions", base_url.trim().trim_end_matches('/'));
        self
    }

    /// When to ask for the reply piece by piece. Default: when somebody looks on.
    #[must_use]
    pub fn streaming(mut self, streaming: Streaming) -> Self {
        self.streaming = streaming;
        self
    }

    /// For how long nothing may arrive before the request has failed. Default: 60 seconds.
    ///
    /// Ten times as long may pass before a reply that comes in one piece begins and before it is complete,
    /// and between two events of a stream while the server shows otherwise that it is alive.
    #[must_use]
    pub fn idle_timeout(mut self, idle: Duration) -> Self {
        self.http.set_idle_timeout(idle);
        self
    }

    fn with(key: Option<Key>, base_url: &str) -> Self {
        Self { http: Http::new(key), url: String::new(), streaming: Streaming::default() }.base_url(base_url)
    }

    async fn ask(&self, request: &Request, growth: &mut Growth<'_>) -> Result<Reply, ProviderError> {
        let expect = match self.streaming {
            Streaming::WhenObserved if growth.is_observed() => Expect::Events,
            Streaming::Always => Expect::Events,
            Streaming::WhenObserved | Streaming::Never => Expect::Whole,
        };
        let body = request::encode(request, expect)?;
        let answer = self.http.post(&self.url, body, expect).await?;
        // A server may answer in the other way than it was asked to.
        let mut draft = Draft::default();
        let arrived = match answer.is_events() {
            true => self.stream(answer.into_events(), &mut draft, growth).await,
            false => answer.json().await.and_then(|completion| self.grow(&mut draft, completion, growth)),
        };
        match arrived {
            Ok(()) => draft.into_reply(),
            Err(error) => Err(ProviderError { partial: draft.into_partial(), ..error }),
        }
    }

    async fn stream(
        &self,
        mut events: Events<'_>,
        draft: &mut Draft,
        growth: &mut Growth<'_>,
    ) -> Result<(), ProviderError> {
        loop {
            let event = match events.next().await {
                Ok(Some(event)) => event,
                // After the finish reason only the usage may be missing.
                Ok(None) | Err(_) if draft.is_finished() => return Ok(()),
                Ok(None) => return Err(self.cut(events)),
                Err(error) => return Err(error),
            };
            match event.data.trim() {
                "[DONE]" => return Ok(()),
                "" => {}
                data => {
                    let completion = Completion::read(&event.name, data).map_err(|error| {
                        self.http.unexpected(format!("an event cannot be read: {error}"), data.as_bytes())
                    })?;
                    self.grow(draft, completion, growth)?;
                }
            }
        }
    }

    fn grow(&self, draft: &mut Draft, completion: Completion, growth: &mut Growth<'_>) -> Result<(), ProviderError> {
        let failure = completion.failure();
        draft.take(completion, growth);
        failure.map_or(Ok(()), |failure| Err(self.http.failure(None, &failure)))
    }

    /// The error of a stream that ended too early: what the server wrote in place of the rest, if anything.
    fn cut(&self, events: Events<'_>) -> ProviderError {
        events.stray_failure().map_or_else(
            || ProviderError::new(ProviderErrorKind::Truncated, "the stream ended before the reply was complete"),
            |failure| self.http.failure(None, &failure),
        )
    }
}

impl Provider for OpenAi {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        growth: &'a mut Growth<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(self.ask(request, growth))
    }
}

impl fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without a password or a query, which may be secrets.
        let url = self.url.split('?').next().and_then(|url| url.rsplit('@').next());
        f.debug_struct("OpenAi").field("url", &url).field("streaming", &self.streaming).finish_non_exhaustive()
    }
}

const BASE_URL: &str = "https://api.openai.com/v1";
