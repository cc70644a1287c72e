//! An HTTP client that POSTs JSON and returns the response, as JSON or as events. The only file that uses `reqwest`.
//!
//! It never retries, never follows a redirect to another origin, never waits without a timeout, and never shows a
//! secret in an error message.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Url, Version};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::{Instant, timeout_at};

use super::error_body::{ErrorBody, of_status};
use super::retry_after;
use super::sse::Decoder;
use crate::error_chain::error_chain;
use crate::provider::{ProviderError, ProviderErrorKind};
use crate::redirects::same_origin_only;
use crate::secrets::Secrets;

/// A client for one server. All requests share its connections.
pub(crate) struct HttpClient {
    connections: Mutex<Vec<Connection>>,
    /// `true` once the server has answered with HTTP/1.1, where each request has a connection of its own.
    is_http1: AtomicBool,
    headers: Result<HeaderMap, ProviderError>,
    /// The header whose value is requested before each request.
    source: Option<(HeaderName, HeaderSource)>,
    secrets: Secrets,
    /// The timeout for connecting.
    pub(crate) connect_timeout: Duration,
    /// The longest time without new data once a reply has begun.
    pub(crate) idle_timeout: Duration,
    /// The timeout of the whole attempt.
    pub(crate) total_timeout: Duration,
}

/// A source of a header's value.
pub(crate) type HeaderSource = Box<dyn Fn() -> BoxFuture<'static, Result<SecretString, ProviderError>> + Send + Sync>;

/// The form in which a reply is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseMode {
    /// One JSON body, sent when the model is done. Until then nothing arrives.
    Json,
    /// A stream of events.
    EventStream,
}

impl Default for HttpClient {
    fn default() -> Self {
        let json = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        Self {
            connections: Mutex::default(),
            is_http1: AtomicBool::new(false),
            headers: Ok(json),
            source: None,
            secrets: Secrets::default(),
            connect_timeout: CONNECT_TIMEOUT,
            idle_timeout: IDLE_TIMEOUT,
            total_timeout: TOTAL_TIMEOUT,
        }
    }
}

impl HttpClient {
    /// Sends a header with every request. It replaces a header of the same name.
    pub(crate) fn header(&mut self, name: &str, value: &str) {
        if let Ok(headers) = &mut self.headers {
            match HeaderName::from_bytes(name.as_bytes()).ok().zip(sensitive(value)) {
                Some((name, value)) => drop(headers.insert(name, value)),
                None => self.headers = Err(no_header(name)),
            }
        }
    }

    /// Sends a header with every request, with a value that is requested from `source` each time.
    pub(crate) fn header_source(&mut self, name: &str, source: HeaderSource) {
        match HeaderName::from_bytes(name.as_bytes()) {
            Ok(name) => self.source = Some((name, source)),
            Err(_) => self.headers = Err(no_header(name)),
        }
    }

    /// Treats the credentials in an address as secrets.
    pub(crate) fn secret_address(&mut self, address: &str) {
        let Ok(url) = Url::parse(address) else { return };
        let is_secret = |key: &str| {
            let key = key.to_ascii_lowercase();
            ["key", "token", "secret", "sig", "auth", "pass", "code"].iter().any(|word| key.contains(word))
        };
        // Both decoded and as written.
        let query = url.query_pairs().filter(|(key, _)| is_secret(key)).map(|(_, value)| value.into_owned());
        let pairs = address.split(['?', '&', '#']).skip(1).filter_map(|pair| pair.split_once('='));
        let written = pairs.filter(|(key, _)| is_secret(key)).map(|(_, value)| value.to_owned());
        let user = url.password().or(Some(url.username())).into_iter().flat_map(|user| {
            // Decoded by parsing it as a query, which has the same encoding.
            let meant = Url::parse(&format!("http://x/?x={}", user.replace('+', "%2B"))).ok();
            let meant = meant.and_then(|url| Some(url.query_pairs().next()?.1.into_owned()));
            [Some(user.to_owned()), meant].into_iter().flatten()
        });
        query.chain(written).chain(user).for_each(|secret| self.secrets.add(secret.into()));
    }

    /// Sends a header like [`header`](Self::header), with a secret value. `prefix` is not part of the secret.
    pub(crate) fn secret_header(&mut self, name: &str, prefix: &str, secret: SecretString) {
        self.header(name, &format!("{prefix}{}", secret.expose_secret()));
        // In an authorization, a scheme precedes the secret.
        let parts: Vec<_> = secret.expose_secret().split_whitespace().map(SecretString::from).collect();
        parts.into_iter().chain([secret]).for_each(|secret| self.secrets.add(secret));
    }

    /// Sends `body` and waits for the head of the response. A response whose status is not 2xx is an error.
    pub(crate) async fn post(&self, url: &str, body: Bytes) -> Result<Response<'_>, ProviderError> {
        let deadline = deadline_after(self.total_timeout);
        let connection = self.connection(url)?;
        let mut headers = self.headers.clone()?;
        let mut secrets = Secrets::default();
        if let Some((name, source)) = &self.source {
            let value = with_deadline(deadline, self.total_timeout, "no value for a header came", source()).await?;
            headers.insert(name, sensitive(value.expose_secret().trim()).ok_or_else(|| no_header(name.as_str()))?);
            value.expose_secret().split_whitespace().for_each(|part| secrets.add(part.into()));
        }
        let request = connection.client.post(url).headers(headers).body(body);
        let sending = async { request.send().await.map_err(|error| self.transport_error(error)) };
        let response = with_deadline(deadline, self.total_timeout, "no answer began", sending).await?;
        if response.version() < Version::HTTP_2 {
            self.is_http1.store(true, Ordering::Relaxed);
        }
        let request_id = request_id(&response);
        let answer = Response {
            request_id,
            response,
            http: self,
            secrets,
            _connection: connection,
            deadline,
            has_begun: false,
            received: 0,
        };
        match answer.response.status().is_success() {
            true => Ok(answer),
            false => Err(answer.status_error().await),
        }
    }

    /// Returns a connection with room for one more request.
    fn connection(&self, url: &str) -> Result<Connection, ProviderError> {
        // Without TLS, HTTP/2 is not negotiated.
        let is_multiplexed = url.starts_with("https:") && !self.is_http1.load(Ordering::Relaxed);
        let most = if is_multiplexed { MAX_STREAMS } else { usize::MAX };
        let mut connections = self.connections.lock();
        // The number of clones is counted: one for the connection itself, and one for each request.
        if let Some(connection) = connections.iter().find(|connection| Arc::strong_count(&connection.requests) <= most)
        {
            return Ok(connection.clone());
        }
        let connection = Connection { client: self.client()?, requests: Arc::default() };
        connections.push(connection.clone());
        Ok(connection)
    }

    fn client(&self) -> Result<reqwest::Client, ProviderError> {
        reqwest::Client::builder()
            .connect_timeout(self.connect_timeout)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .tcp_keepalive(KEEP_ALIVE)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .http2_adaptive_window(true)
            .redirect(same_origin_only())
            .referer(false)
            .user_agent(concat!("agentouto/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| ProviderError::new(ProviderErrorKind::Other, error_chain(&error)))
    }

    fn transport_error(&self, error: reqwest::Error) -> ProviderError {
        let host = error.url().and_then(|url| url.host_str()).map(|host| format!("`{host}`: ")).unwrap_or_default();
        let kind = if error.is_builder() {
            ProviderErrorKind::InvalidRequest
        } else if error.is_timeout() && !error.is_connect() {
            ProviderErrorKind::Timeout
        } else {
            ProviderErrorKind::Connection
        };
        // The URL is left out of the error chain, because it may contain a secret.
        ProviderError::new(kind, self.secrets.redact(&format!("{host}{}", error_chain(&error.without_url()))))
    }
}

/// A `reqwest` client with a connection pool of its own.
///
/// For HTTP/1.1 one is enough. But with HTTP/2 a client has one connection to a server, on which servers allow about a
/// hundred concurrent requests; further requests would wait for those.
#[derive(Clone)]
struct Connection {
    client: reqwest::Client,
    requests: Arc<()>,
}

/// A response that has begun. Dropping it drops the connection.
pub(crate) struct Response<'h> {
    http: &'h HttpClient,
    /// The secrets of this request only.
    secrets: Secrets,
    _connection: Connection,
    response: reqwest::Response,
    request_id: Option<String>,
    deadline: Instant,
    /// `true` once a part of the reply has arrived.
    has_begun: bool,
    received: usize,
}

impl Response<'_> {
    /// Returns whether the server declares an event stream.
    pub(crate) fn is_events(&self) -> bool {
        self.content_type().trim_start().to_ascii_lowercase().starts_with("text/event-stream")
    }

    /// Waits for the next [event](super::sse) of the response; `false` if the response has ended.
    pub(crate) async fn advance(&mut self, events: &mut Decoder) -> Result<bool, ProviderError> {
        while !events.advance()? {
            match self.chunk().await? {
                Some(chunk) => events.feed(&chunk),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Starts the idle timeout, because a part of the reply has arrived.
    ///
    /// Until then the model is working, and the time until it begins must not depend on observers.
    pub(crate) fn begin(&mut self) {
        self.has_begun = true;
    }

    /// Waits briefly for the end of the body after the last event, so that the connection can be reused.
    pub(crate) async fn finish(&mut self) {
        let ending = async { while let Ok(Some(_)) = self.chunk().await {} };
        let _in_time = timeout_at(deadline_after(MAX_DRAIN), ending).await;
    }

    /// The content type that the server declares.
    pub(crate) fn content_type(&self) -> &str {
        self.header(CONTENT_TYPE.as_str()).unwrap_or("none")
    }

    /// An error that the server reported in its own words.
    pub(crate) fn reported_error(&self, failure: &ErrorBody) -> ProviderError {
        let status = Some(self.response.status()).filter(|status| !status.is_success());
        let status = status.map(|status| status.as_u16()).or(failure.status);
        let said = head(&self.redact(&failure.message), MAX_MESSAGE);
        let message = status.map_or_else(|| said.clone(), |status| format!("HTTP {status}: {said}"));
        let error = ProviderError::new(failure.kind(status), message);
        let request_id = failure.request_id.as_deref().map(|id| head(&self.redact(id), MAX_SHOWN_BODY).into());
        let should_retry = failure.is_sampling().then_some(true);
        ProviderError { status, retry_after: failure.retry_after, request_id, should_retry, ..error }
    }

    /// The error for a response of an unexpected form.
    pub(crate) fn unexpected_error(&self, what: impl fmt::Display, body: &[u8]) -> ProviderError {
        let message = match body {
            [] => format!("{what}; it is empty"),
            _ => format!("{what}; it begins: {}", self.head(body)),
        };
        ProviderError::new(ProviderErrorKind::InvalidResponse, self.redact(&message))
    }

    /// Adds the request's id, and what the headers say about retries.
    pub(crate) fn with_request_id(&self, error: ProviderError) -> ProviderError {
        let request_id = error.request_id.or_else(|| self.request_id.as_deref().map(Into::into));
        let message = match &request_id {
            Some(id) => format!("{} (request {id})", error.message).into(),
            None => error.message,
        };
        // Some servers send the same headers with a successful response.
        let is_refusal = !self.response.status().is_success();
        let told = |name: &str| self.header(name).filter(|_| is_refusal);
        let retry_after = retry_after::read(told, SystemTime::now()).or(error.retry_after);
        // The vendors' own clients read this header: https://github.com/openai/openai-python
        let should_retry = told("x-should-retry").and_then(|word| word.parse().ok()).or(error.should_retry);
        ProviderError { message, request_id, retry_after, should_retry, ..error }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// The error for a response whose status is not 2xx.
    async fn status_error(mut self) -> ProviderError {
        // No model is working, so the idle timeout starts now.
        self.begin();
        let status = self.response.status();
        let location = self.header(LOCATION.as_str()).and_then(|to| self.response.url().join(to).ok());
        let (kind, what) = match location.filter(|_| status.is_redirection()) {
            Some(location) => {
                let host = location.host_str().unwrap_or_default();
                (ProviderErrorKind::InvalidResponse, format!("a redirect to `{host}` is not followed"))
            }
            None => {
                let mut body = Vec::new();
                // If the body breaks off, the part that has arrived is shown.
                let _cut = self.read_into(&mut body).await;
                match serde_json::from_slice(&body).ok().and_then(|body| ErrorBody::read(&body)) {
                    Some(failure) => return self.with_request_id(self.reported_error(&failure)),
                    None => (of_status(status.as_u16()), self.head(&body)),
                }
            }
        };
        let error = ProviderError::new(kind, format!("HTTP {}: {what}", status.as_u16()));
        self.with_request_id(ProviderError { status: Some(status.as_u16()), ..error })
    }

    /// Reads the body to its end. On an error, `body` contains the part that has arrived.
    pub(crate) async fn read_into(&mut self, body: &mut Vec<u8>) -> Result<(), ProviderError> {
        while let Some(chunk) = self.chunk().await? {
            // Some servers send white space while the model is working.
            if !chunk.trim_ascii().is_empty() {
                self.begin();
            }
            body.extend_from_slice(&chunk);
        }
        Ok(())
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, ProviderError> {
        let http = self.http;
        let arriving = async { self.response.chunk().await.map_err(|error| http.transport_error(error)) };
        let idle = deadline_after(http.idle_timeout);
        let (deadline, limit) = match self.has_begun && idle < self.deadline {
            true => (idle, http.idle_timeout),
            false => (self.deadline, http.total_timeout),
        };
        let chunk = with_deadline(deadline, limit, "nothing arrived", arriving).await?;
        self.received += chunk.as_ref().map_or(0, Bytes::len);
        match self.received > MAX_BODY_BYTES {
            true => {
                let message = format!("the answer is larger than {MAX_BODY_BYTES} bytes");
                Err(ProviderError::new(ProviderErrorKind::InvalidResponse, message))
            }
            false => Ok(chunk),
        }
    }

    fn head(&self, body: &[u8]) -> String {
        head(&self.redact(&String::from_utf8_lossy(body)), MAX_SHOWN_BODY)
    }

    fn redact(&self, text: &str) -> String {
        self.secrets.redact(&self.http.secrets.redact(text)).into_owned()
    }
}

/// A header's value, marked as sensitive so that no log shows it.
fn sensitive(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn no_header(name: &str) -> ProviderError {
    let message = format!("the header `{name}` holds characters that no header can carry");
    ProviderError::new(ProviderErrorKind::Authentication, message)
}

async fn with_deadline<T>(
    deadline: Instant,
    limit: Duration,
    what: &str,
    future: impl Future<Output = Result<T, ProviderError>>,
) -> Result<T, ProviderError> {
    timeout_at(deadline, future)
        .await
        .unwrap_or_else(|_| Err(ProviderError::new(ProviderErrorKind::Timeout, format!("{what} within {limit:?}"))))
}

/// The moment after a limit, which may be too long for the clock to represent.
fn deadline_after(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit).unwrap_or(now + FAR_FUTURE)
}

/// The id that the server gave the request.
fn request_id(response: &reqwest::Response) -> Option<String> {
    let id = REQUEST_IDS.iter().find_map(|name| response.headers().get(*name)?.to_str().ok())?;
    Some(head(id, MAX_SHOWN_BODY))
}

/// The first `limit` bytes of a text, or a few less, so that no character is cut.
fn head(text: &str, limit: usize) -> String {
    text[..text.floor_char_boundary(limit)].to_owned()
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const TOTAL_TIMEOUT: Duration = Duration::from_secs(600);
const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
/// Shorter than the time after which servers close an idle connection, so that no request is sent on a closed one.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(25);
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// The number of requests that share an HTTP/2 connection: the
/// [standard](https://www.rfc-editor.org/rfc/rfc9113#SETTINGS_MAX_CONCURRENT_STREAMS) recommends that servers allow at
/// least this many.
const MAX_STREAMS: usize = 100;
/// The longest wait for the end of a stream after its last event.
const MAX_DRAIN: Duration = Duration::from_millis(50);
/// The most bytes of a response, decompressed.
const MAX_BODY_BYTES: usize = 64 << 20;
const MAX_SHOWN_BODY: usize = 512;
const MAX_MESSAGE: usize = 4096;
/// The headers in which vendors send the request's id.
const REQUEST_IDS: [&str; 4] = ["x-request-id", "request-id", "apim-request-id", "cf-ray"];
