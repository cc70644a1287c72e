//! The transport to a server at an address.
//!
//! The SDK logs, so it never gets the address or an error that shows it: it uses a client that knows the address. That
//! client also hides ids that contain a secret, and passes on only those messages of event streams that the SDK can
//! read.

mod ids;
mod muted;

use std::borrow::Cow;
use std::collections::HashMap;
use std::error::Error;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use http::{HeaderMap, HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::{BoxedSseResponse, SseRetryPolicy};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, InsufficientScopeError, StreamableHttpClient, StreamableHttpClientTransportConfig,
    StreamableHttpError, StreamableHttpPostResponse,
};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::error_chain::error_chain;
use crate::mcp::client::config::Address;
use crate::mcp::client::error::io_kind;
use crate::mcp::client::redaction::Redaction;
use crate::mcp::transport::stdio;
use crate::redirects::same_origin_only;
use ids::Ids;
use muted::Muted;

/// The maximum number of concurrent POST requests.
const MAX_POSTS: usize = 256;
/// The shortest pause before a stream is reopened, even if the server asks for a shorter one.
const PAUSE: Duration = Duration::from_millis(100);

/// Creates the transport. It notifies `maybe_gone` when the server may be gone.
pub(crate) fn transport(
    address: &Address,
    longest: usize,
    maybe_gone: &Arc<Notify>,
) -> Result<StreamableHttpClientTransport<impl StreamableHttpClient + use<>>, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &address.headers {
        let header = HeaderName::try_from(name).map_err(|_| format!("`{name}` cannot be the name of a header"))?;
        let mut value = HeaderValue::try_from(value).map_err(|_| unfit(&format!("the value of header `{name}`")))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    if address.bearer.as_ref().is_some_and(|token| HeaderValue::try_from(token).is_err()) {
        return Err(unfit("the bearer token"));
    }
    let mut config = StreamableHttpClientTransportConfig::with_uri(address.shown())
        .max_concurrent_requests(MAX_POSTS)
        .max_sse_event_size(longest)
        // Requests in a session that has expired fail at once, and a new session begins.
        .reinit_on_expired_session(false)
        .custom_headers(headers.into_iter().filter_map(|(name, value)| Some((name?, value))).collect());
    config.auth_header = address.bearer.clone();
    config.retry_config = Arc::new(Resume { maybe_gone: Arc::clone(maybe_gone) });
    Ok(StreamableHttpClientTransport::with_client(Client::new(address)?, config))
}

/// The error for a value that cannot be sent. It does not show the value.
fn unfit(value: &str) -> String {
    format!("{value} cannot be sent, because it has a character that no header may have, such as the end of a line")
}

/// The SDK's client for one address. Its errors show no secret.
#[derive(Clone)]
struct Client {
    http: reqwest::Client,
    url: Arc<str>,
    redaction: Arc<Redaction>,
    muted: Muted,
    sessions: Arc<Ids>,
    events: Arc<Ids>,
    has_opened: Arc<AtomicBool>,
}

impl Client {
    fn new(address: &Address) -> Result<Self, String> {
        let http = reqwest::Client::builder()
            // The SDK does not read every response to its end, and waiting for that is slower than a new connection.
            .pool_max_idle_per_host(0)
            .redirect(same_origin_only())
            .build()
            .map_err(|error| format!("no HTTP client could be made: {}", error_chain(&error)))?;
        let (url, redaction) = (address.url.as_str().into(), Arc::new(Redaction::of_address(address)));
        Ok(Self {
            http,
            url,
            redaction,
            muted: Muted::default(),
            sessions: Arc::default(),
            events: Arc::default(),
            has_opened: Arc::default(),
        })
    }

    /// A response as the SDK sees it.
    fn seen(&self, answer: StreamableHttpPostResponse, is_first: bool) -> StreamableHttpPostResponse {
        use StreamableHttpPostResponse as P;
        let shown = |session: Option<String>| self.sessions.shown(session?, |id| self.is_secret(id));
        match answer {
            P::Json(message, session) => P::Json(message, shown(session)),
            P::Sse(events, session) => P::Sse(self.seen_events(events, is_first), shown(session)),
            other => other,
        }
    }

    /// The events of a stream as the SDK sees them.
    fn seen_events(&self, events: BoxedSseResponse, is_first: bool) -> BoxedSseResponse {
        let client = self.clone();
        let seen = events.map(move |event| {
            event.map(|mut event| {
                event.id = event.id.and_then(|id| client.events.shown(id, |id| client.is_secret(id)));
                event.data = event.data.and_then(|data| readable(data, is_first));
                event
            })
        });
        seen.boxed()
    }

    fn is_secret(&self, id: &str) -> bool {
        matches!(self.redaction.of_failure(id), Cow::Owned(_))
    }

    fn failed(&self, error: StreamableHttpError<reqwest::Error>) -> StreamableHttpError<Failed> {
        use StreamableHttpError as E;
        let redact = |text: &str| self.redaction.of_failure(text).into_owned();
        match error {
            E::Client(error) => {
                let kind = io_kind(&error).map(io::Error::from);
                E::Client(Failed { said: redact(&error_chain(&error.without_url())), kind })
            }
            E::AuthRequired(error) => E::AuthRequired(AuthRequiredError::new(redact(&error.www_authenticate_header))),
            E::InsufficientScope(error) => E::InsufficientScope(InsufficientScopeError::new(
                redact(&error.www_authenticate_header),
                error.required_scope.as_deref().map(redact),
            )),
            E::HttpStatus(error) => E::HttpStatus(error),
            E::Io(error) => E::Io(error),
            E::ResponseBodyTooLarge { max_size } => E::ResponseBodyTooLarge { max_size },
            E::ServerDoesNotSupportSse => E::ServerDoesNotSupportSse,
            E::ServerDoesNotSupportDeleteSession => E::ServerDoesNotSupportDeleteSession,
            E::SessionExpired => E::SessionExpired,
            E::UnexpectedServerResponse(said) => E::UnexpectedServerResponse(redact(&said).into()),
            E::UnexpectedContentType(kind) => E::UnexpectedContentType(kind.as_deref().map(redact)),
            other => E::UnexpectedServerResponse(redact(&error_chain(&other)).into()),
        }
    }
}

/// The error of a request that could not be sent, or whose response could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{said}")]
struct Failed {
    said: String,
    #[source]
    kind: Option<io::Error>,
}

impl StreamableHttpClient for Client {
    type Error = Failed;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<Failed>> {
        self.post_message_with_max_sse_event_size(uri, message, session, token, headers, usize::MAX).await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        _: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        longest: usize,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<Failed>> {
        let (url, session) = (Arc::clone(&self.url), session.map(|session| self.sessions.sent(&session).into()));
        let is_first = is_first(&message);
        let sending = self.http.post_message_with_max_sse_event_size(url, message, session, token, headers, longest);
        let answer = self.muted.mute(sending).await.map_err(|error| self.failed(error))?;
        Ok(self.seen(answer, is_first))
    }

    async fn delete_session(
        &self,
        _: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), StreamableHttpError<Failed>> {
        let session = self.sessions.sent(&session).into();
        let sending = self.http.delete_session(Arc::clone(&self.url), session, token, headers);
        self.muted.mute(sending).await.map_err(|error| self.failed(error))
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxedSseResponse, StreamableHttpError<Failed>> {
        self.get_stream_with_max_sse_event_size(uri, session, last_event, token, headers, usize::MAX).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        _: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        longest: usize,
    ) -> Result<BoxedSseResponse, StreamableHttpError<Failed>> {
        let (url, session) = (Arc::clone(&self.url), session.map(|session| self.sessions.sent(&session).into()));
        let last_event = last_event.map(|id| self.events.sent(&id));
        if self.has_opened.swap(true, Ordering::Relaxed) {
            sleep(PAUSE).await;
        }
        let opening = self.http.get_stream_with_max_sse_event_size(url, session, last_event, token, headers, longest);
        let events = self.muted.mute(opening).await.map_err(|error| self.failed(error))?;
        Ok(self.seen_events(events, false))
    }
}

/// Returns whether a message is the first of a session.
fn is_first(message: &ClientJsonRpcMessage) -> bool {
    use ClientRequest as R;
    matches!(message, JsonRpcMessage::Request(sent) if matches!(sent.request, R::InitializeRequest(_) | R::DiscoverRequest(_)))
}

/// The data of an event, if the SDK can read it. Before a session has begun, the SDK logs and drops each message that
/// is not a response, so these are removed here, like those that cannot be parsed.
fn readable(data: String, is_first: bool) -> Option<String> {
    let (message, data) = match serde_json::from_str::<ServerJsonRpcMessage>(&data) {
        Ok(message) => (message, data),
        Err(_) => {
            let message = stdio::message(data.as_bytes()).ok()?;
            let data = serde_json::to_string(&message).ok()?;
            (message, data)
        }
    };
    let is_answer = matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_));
    (is_answer || !is_first).then_some(data)
}

/// The pauses before a broken stream is resumed, each after [`PAUSE`]: none at first; after a failure, increasing ones,
/// and `maybe_gone` is notified.
#[derive(Debug)]
struct Resume {
    maybe_gone: Arc<Notify>,
}

impl SseRetryPolicy for Resume {
    fn retry(&self, failed: usize) -> Option<Duration> {
        if failed == 0 {
            return Some(Duration::ZERO);
        }
        self.maybe_gone.notify_one();
        Some(PAUSE * (1 << failed.min(8)))
    }
}

/// Returns whether a send error means that no server was reached, so that nothing was sent.
pub(crate) fn is_unreached(error: &(dyn Error + 'static)) -> bool {
    match error.downcast_ref::<StreamableHttpError<Failed>>() {
        Some(StreamableHttpError::Client(error)) => matches!(
            io_kind(error),
            Some(ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable)
        ),
        Some(StreamableHttpError::SessionExpired) => true,
        _ => false,
    }
}
