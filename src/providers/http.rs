//! POSTs JSON and hands back what the server sends, whole or as events. The only file that knows `reqwest`.
//!
//! It never tries twice, never follows a redirect to another origin, never waits without an end, and never
//! lets the key into a message.

use std::fmt;
use std::time::{Duration, SystemTime};

use reqwest::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::redirect::Policy;
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::failure::{Failure, of_status};
use super::retry_after;
use super::sse::{Decoder, Event};
use crate::error::{ProviderError, ProviderErrorKind};

/// A client for one server and one key.
pub(crate) struct Http {
    client: Result<reqwest::Client, ProviderError>,
    key: Option<Key>,
    idle: Duration,
}

/// A key, and the header that carries it.
pub(crate) struct Key {
    /// The header's name.
    pub(crate) header: &'static str,
    /// What stands before the key, such as `Bearer `.
    pub(crate) prefix: &'static str,
    /// The key.
    pub(crate) secret: SecretString,
}

/// How a reply is expected, which says how long its beginning may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// All at once, when the model is done: it has [`PATIENCE`] times the idle timeout.
    Whole,
    /// Piece by piece.
    Events,
}

impl Http {
    /// A client that gives up when nothing arrives for a minute.
    pub(crate) fn new(key: Option<Key>) -> Self {
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(same_origin_only())
            .referer(false)
            .user_agent(concat!("agentouto/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| ProviderError::new(ProviderErrorKind::Other, chain(&error)));
        Self { client, key, idle: IDLE_TIMEOUT }
    }

    /// Sets for how long nothing may arrive.
    pub(crate) fn set_idle_timeout(&mut self, idle: Duration) {
        self.idle = idle;
    }

    /// Sends `body` and waits until the answer begins. An answer that is not a success is an error.
    pub(crate) async fn post(&self, url: &str, body: Vec<u8>, expect: Expect) -> Result<Answer<'_>, ProviderError> {
        let json = HeaderValue::from_static("application/json");
        let mut request = self.client.clone()?.post(url).header(CONTENT_TYPE, json).body(body);
        if let Some(key) = &self.key {
            request = request.header(key.header, key.value()?);
        }
        let limit = match expect {
            Expect::Whole => self.patience(),
            Expect::Events => self.idle,
        };
        let sent = async { request.send().await.map_err(|error| self.broken(error)) };
        let answer = Answer { response: within(limit, "no answer began", sent).await?, http: self, received: 0 };
        match answer.response.status().is_success() {
            true => Ok(answer),
            false => Err(answer.refusal().await),
        }
    }

    /// An error in the server's own words.
    pub(crate) fn failure(&self, status: Option<u16>, failure: &Failure) -> ProviderError {
        let status = status.or(failure.status);
        let said = head(&self.redact(&failure.message), LONGEST_MESSAGE);
        let message = status.map_or_else(|| said.clone(), |status| format!("HTTP {status}: {said}"));
        ProviderError { status, ..ProviderError::new(failure.kind(status), message) }
    }

    /// An answer that was expected to be something else.
    pub(crate) fn unexpected(&self, what: impl fmt::Display, body: &[u8]) -> ProviderError {
        let message = match body {
            [] => format!("{what}; it is empty"),
            _ => format!("{what}; it begins: {}", self.head(body)),
        };
        ProviderError::new(ProviderErrorKind::InvalidResponse, self.redact(&message))
    }

    fn broken(&self, error: reqwest::Error) -> ProviderError {
        let host = error.url().and_then(|url| url.host_str()).map(|host| format!("`{host}`: ")).unwrap_or_default();
        let kind = if error.is_builder() {
            ProviderErrorKind::InvalidRequest
        } else if error.is_timeout() && !error.is_connect() {
            ProviderErrorKind::Timeout
        } else {
            ProviderErrorKind::Connection
        };
        // The URL is left out of the rest, for it may hold a secret.
        ProviderError::new(kind, self.redact(&format!("{host}{}", chain(&error.without_url()))))
    }

    /// The most that a wait for something useful may take, while bytes keep arriving.
    fn patience(&self) -> Duration {
        self.idle.saturating_mul(PATIENCE)
    }

    fn head(&self, body: &[u8]) -> String {
        head(&self.redact(&String::from_utf8_lossy(body)), LONGEST_HEAD)
    }

    fn redact(&self, text: &str) -> String {
        match &self.key {
            // Placeholders such as `none` are not secrets, but words that a message may need.
            Some(key) if key.secret.expose_secret().len() >= SHORTEST_SECRET => {
                text.replace(key.secret.expose_secret(), "[redacted]")
            }
            _ => text.to_owned(),
        }
    }
}

impl Key {
    fn value(&self) -> Result<HeaderValue, ProviderError> {
        let mut value =
            HeaderValue::from_str(&format!("{}{}", self.prefix, self.secret.expose_secret())).map_err(|_| {
                ProviderError::new(
                    ProviderErrorKind::Authentication,
                    "the key holds characters that no header can carry",
                )
            })?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// An answer that has begun. Dropping it drops the connection.
pub(crate) struct Answer<'h> {
    http: &'h Http,
    response: reqwest::Response,
    received: usize,
}

impl<'h> Answer<'h> {
    /// Whether the server says that it sends events.
    pub(crate) fn is_events(&self) -> bool {
        self.content_type().trim_start().to_ascii_lowercase().starts_with("text/event-stream")
    }

    /// The answer as events.
    pub(crate) fn into_events(self) -> Events<'h> {
        Events { answer: self, decoder: Decoder::default() }
    }

    /// The answer as JSON.
    pub(crate) async fn json<T: DeserializeOwned>(mut self) -> Result<T, ProviderError> {
        let content_type = self.content_type().to_owned();
        let mut body = Vec::new();
        within(self.http.patience(), "the answer was not complete", self.read_into(&mut body)).await?;
        serde_json::from_slice(&body).map_err(|error| {
            let what = format!("the answer (content type `{content_type}`) cannot be read: {error}");
            self.http.unexpected(what, &body)
        })
    }

    fn content_type(&self) -> &str {
        self.header(CONTENT_TYPE.as_str()).unwrap_or("none")
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    async fn refusal(mut self) -> ProviderError {
        let status = self.response.status().as_u16();
        let retry_after = retry_after::read(|name| self.header(name), SystemTime::now());
        let location = self.header(LOCATION.as_str()).and_then(|to| self.response.url().join(to).ok());
        if let Some(location) = location.filter(|_| self.response.status().is_redirection()) {
            let host = location.host_str().unwrap_or_default();
            let message = format!("HTTP {status}: a redirect to `{host}` is not followed");
            return ProviderError {
                status: Some(status),
                ..ProviderError::new(ProviderErrorKind::InvalidResponse, message)
            };
        }
        let mut body = Vec::new();
        // What has arrived is all there is to tell of.
        let _cut = within(self.http.idle, "the answer was not complete", self.read_into(&mut body)).await;
        let failure = serde_json::from_slice(&body).ok().and_then(|body| Failure::read(&body));
        let error = failure.map_or_else(
            || {
                let message = format!("HTTP {status}: {}", self.http.head(&body));
                ProviderError { status: Some(status), ..ProviderError::new(of_status(status), message) }
            },
            |failure| self.http.failure(Some(status), &failure),
        );
        ProviderError { retry_after, ..error }
    }

    async fn read_into(&mut self, body: &mut Vec<u8>) -> Result<(), ProviderError> {
        while let Some(chunk) = self.chunk().await? {
            body.extend_from_slice(chunk.as_ref());
        }
        Ok(())
    }

    async fn chunk(&mut self) -> Result<Option<impl AsRef<[u8]> + use<>>, ProviderError> {
        let http = self.http;
        let arriving = async { self.response.chunk().await.map_err(|error| http.broken(error)) };
        let chunk = within(http.idle, "nothing arrived", arriving).await?;
        self.received += chunk.as_ref().map_or(0, |chunk| chunk.len());
        match self.received > LARGEST_BODY {
            true => {
                let message = format!("the answer is larger than {LARGEST_BODY} bytes");
                Err(ProviderError::new(ProviderErrorKind::InvalidResponse, message))
            }
            false => Ok(chunk),
        }
    }
}

/// An answer that arrives as [server-sent events](super::sse).
pub(crate) struct Events<'h> {
    answer: Answer<'h>,
    decoder: Decoder,
}

impl Events<'_> {
    /// The next event, or `None` when the stream has ended.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, ProviderError> {
        let patience = self.answer.http.patience();
        let arriving = async {
            loop {
                if let Some(event) = self.decoder.event()? {
                    return Ok(Some(event));
                }
                match self.answer.chunk().await? {
                    Some(chunk) => self.decoder.feed(chunk.as_ref()),
                    None => return Ok(None),
                }
            }
        };
        within(patience, "no event arrived", arriving).await
    }

    /// The failure that stood in the stream outside of events, once the stream has ended.
    pub(crate) fn stray_failure(self) -> Option<Failure> {
        let stray = self.decoder.into_stray();
        let json = serde_json::Deserializer::from_str(&stray[stray.find('{')?..]).into_iter().next()?.ok()?;
        Failure::read(&json)
    }
}

/// Follows a redirect that keeps the request as it is, within one scheme, host and port. All others are
/// handed back: they would change the request, or carry it and its key elsewhere.
fn same_origin_only() -> Policy {
    Policy::custom(|attempt| {
        let keeps = matches!(attempt.status().as_u16(), 307 | 308);
        let stays = attempt.previous().iter().all(|url| url.origin() == attempt.url().origin());
        match keeps && stays && attempt.previous().len() <= MOST_REDIRECTS {
            true => attempt.follow(),
            false => attempt.stop(),
        }
    })
}

async fn within<T>(
    limit: Duration,
    what: &str,
    future: impl Future<Output = Result<T, ProviderError>>,
) -> Result<T, ProviderError> {
    timeout(limit, future)
        .await
        .unwrap_or_else(|_| Err(ProviderError::new(ProviderErrorKind::Timeout, format!("{what} within {limit:?}"))))
}

/// An error and its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The first `limit` bytes of a text, or a few less, so that no letter is cut.
fn head(text: &str, limit: usize) -> String {
    text[..text.floor_char_boundary(limit)].to_owned()
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How many idle timeouts a wait may last while bytes keep arriving, or while a model thinks.
const PATIENCE: u32 = 10;
/// The most bytes of an answer, decompressed.
const LARGEST_BODY: usize = 64 << 20;
const LONGEST_HEAD: usize = 512;
const LONGEST_MESSAGE: usize = 4096;
const SHORTEST_SECRET: usize = 8;
const MOST_REDIRECTS: usize = 3;
