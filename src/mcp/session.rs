//! One connection to a server, from its start to its end.

use std::collections::HashSet;
use std::error::Error as StdError;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use rmcp::RoleClient;
use rmcp::model::{
    CancelledNotificationParam, ClientCapabilities, ClientConfig, ClientRequest, ClientResult, ErrorCode, ErrorData,
    Implementation, ListToolsRequest, PaginatedRequestParams, PingRequest, RequestId, ServerNotification,
    ServerRequest, ServerResult,
};
use rmcp::service::{
    NotificationContext, Peer, RequestContext, RunningService, Service, ServiceError, ServiceExt as _,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::SseRetryPolicy;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
};
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::catalogue::MOST_TOOLS;
use super::child::Child;
use super::remote::{Address, Reached, Server};
use super::stdio::Stdio;
use super::tap::Tap;
use crate::message::Name;

/// How many requests go over HTTP at once.
const MOST_POSTS: usize = 256;
/// How long a process that has exited may take to be read to its end.
const DRAIN: Duration = Duration::from_millis(200);
/// How long a server that seems gone may take to say that it is not.
const PING: Duration = Duration::from_secs(5);
/// How long a server that is asked to end may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// What calls use of a connection. Cheap to clone.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) peer: Peer<RoleClient>,
    /// Withdraws a request.
    pub(super) withdraw: mpsc::UnboundedSender<RequestId>,
    /// Cancelled when nothing more comes.
    pub(super) ended: CancellationToken,
    /// Told when the server seems gone.
    pub(super) suspected: Arc<Notify>,
    /// Whether an error in sending means that nothing was sent.
    pub(super) is_unreached: IsUnreached,
}

type IsUnreached = fn(&(dyn StdError + 'static)) -> bool;

/// What is noticed of a connection by those through whom its messages go.
#[derive(Clone, Default)]
pub(super) struct Signals {
    /// Nothing more comes.
    pub(super) ended: CancellationToken,
    /// The tools are others.
    pub(super) changed: Arc<Notify>,
    /// The server seems gone.
    pub(super) suspected: Arc<Notify>,
    /// The server has refused a message without saying which.
    pub(super) bounced: Arc<Notify>,
}

/// A connection, and what holds it. Dropped, the server is killed or let go.
pub(super) struct Live {
    pub(super) session: Session,
    running: RunningService<RoleClient, Client>,
    child: Option<Child>,
    signals: Signals,
    _withdrawing: AbortOnDropHandle<()>,
}

impl Live {
    /// Starts or reaches a server, and asks what tools it has.
    pub(super) async fn open(name: &Name, server: &Server) -> Result<(Self, Vec<Value>), String> {
        let limit = server.settings.connect_timeout;
        let (signals, mut child) = (Signals::default(), None);
        let opening = async {
            let (running, is_unreached) = match &server.reached {
                Reached::Command(command) => {
                    let (started, input, output) = Child::start(name, command)
                        .map_err(|error| format!("could not start {}: {error}", command.program.display()))?;
                    child = Some(started);
                    let stdio = Stdio::new(Arc::clone(name), input, output, server.settings.longest_message);
                    (Client.serve(Tap::new(stdio, signals.clone())).await, never as IsUnreached)
                }
                Reached::Address(address) => {
                    let http = http(address, server.settings.longest_message, &signals.suspected)?;
                    let is_unreached = is_unreached_by(&http);
                    (Client.serve(Tap::new(http, signals.clone())).await, is_unreached)
                }
            };
            let running = running.map_err(|error| format!("could not connect: {}", causes(&error)))?;
            let listed = list(running.peer()).await.map_err(|error| format!("could not list its tools: {error}"))?;
            Ok((running, is_unreached, listed))
        };
        let opened = timeout(limit, opening).await.unwrap_or_else(|_| Err(format!("not ready within {limit:?}")));
        match (opened, child) {
            (Ok((running, is_unreached, listed)), child) => {
                Ok((Self::new(running, child, signals, is_unreached), listed))
            }
            (Err(reason), Some(child)) => Err(format!("{reason}; {}", child.end().await)),
            (Err(reason), None) => Err(reason),
        }
    }

    fn new(
        running: RunningService<RoleClient, Client>,
        child: Option<Child>,
        signals: Signals,
        is_unreached: IsUnreached,
    ) -> Self {
        let (withdraw, withdrawn) = mpsc::unbounded_channel();
        let peer = running.peer().clone();
        let withdrawing = AbortOnDropHandle::new(tokio::spawn(pass_on(withdrawn, peer.clone())));
        let (ended, suspected) = (signals.ended.clone(), Arc::clone(&signals.suspected));
        let session = Session { peer, withdraw, ended, suspected, is_unreached };
        Self { session, running, child, signals, _withdrawing: withdrawing }
    }

    /// Waits until the server has ended, and says how; or until it is to end, and ends it. Meanwhile `relisted` is told
    /// of every new list of tools.
    pub(super) async fn watch(mut self, closing: &CancellationToken, relisted: impl Fn(&[Value])) -> Option<String> {
        let Self { session, child, signals, .. } = &mut self;
        let gone = tokio::select! {
            () = ended(session, child) => None,
            reason = upkeep(&session.peer, signals, relisted) => Some(reason),
            () = closing.cancelled() => {
                self.close().await;
                return None;
            }
        };
        self.session.ended.cancel();
        Some(match (gone, self.child.take()) {
            (Some(reason), _) => reason,
            (None, Some(child)) => child.end().await,
            (None, None) => "it closed the connection".to_owned(),
        })
    }

    /// Asks the server to end, and gives it a moment.
    async fn close(mut self) {
        let closing = async {
            let _ = self.running.close().await;
            if let Some(child) = &mut self.child {
                child.exited().await;
            }
        };
        let _ = timeout(FAREWELL, closing).await;
    }
}

/// Waits until nothing more comes: the output has ended, or the process has, whose output something else may hold.
async fn ended(session: &Session, child: &mut Option<Child>) {
    let Some(child) = child else { return session.ended.cancelled().await };
    tokio::select! {
        () = session.ended.cancelled() => {}
        () = child.exited() => drop(timeout(DRAIN, session.ended.cancelled()).await),
    }
}

/// Lists the tools whenever they have changed; ends with a reason when a server that seemed gone is.
async fn upkeep(peer: &Peer<RoleClient>, signals: &Signals, relisted: impl Fn(&[Value])) -> String {
    loop {
        tokio::select! {
            () = signals.changed.notified() => {}
            () = signals.suspected.notified() => {
                if let Err(reason) = ping(peer, signals).await {
                    return reason;
                }
            }
            () = signals.bounced.notified() => {
                if let Err(reason) = ping(peer, signals).await {
                    return reason;
                }
            }
        }
        match list(peer).await {
            Ok(listed) => relisted(&listed),
            Err(error) => tracing::warn!(error = %causes(&error), "an MCP server did not list its changed tools"),
        }
    }
}

/// Asks a server that seems gone whether it is there. Whatever it answers, it is.
async fn ping(peer: &Peer<RoleClient>, signals: &Signals) -> Result<(), String> {
    let ping = peer.send_request(ClientRequest::PingRequest(PingRequest::default()));
    tokio::select! {
        answer = timeout(PING, ping) => match answer {
            Ok(Ok(_) | Err(ServiceError::McpError(_))) => Ok(()),
            Ok(Err(error)) => Err(format!("it is not there: {}", causes(&error))),
            Err(_) => Err(format!("it did not answer within {PING:?}")),
        },
        () = signals.bounced.notified() => Err("it does not know us any more".to_owned()),
    }
}

/// All entries of `tools/list`, as they are. Ends with the last page, a page that was there before, or when there are
/// more than anybody is offered.
async fn list(peer: &Peer<RoleClient>) -> Result<Vec<Value>, ServiceError> {
    if peer.peer_info().is_some_and(|info| info.capabilities.tools.is_none()) {
        return Ok(Vec::new());
    }
    let (mut listed, mut cursors) = (Vec::new(), HashSet::new());
    let mut cursor = None;
    loop {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let request =
            ListToolsRequest { method: Default::default(), params: Some(params), extensions: Default::default() };
        let (page, next) = match peer.send_request(ClientRequest::ListToolsRequest(request)).await? {
            ServerResult::ListToolsResult(result) => {
                let tools = result.tools.iter().map(serde_json::to_value);
                (
                    tools.collect::<Result<Vec<_>, _>>().map_err(|_| ServiceError::UnexpectedResponse)?,
                    result.next_cursor,
                )
            }
            // One that cannot be read does not take the others along.
            ServerResult::CustomResult(mut other) => {
                let next = other.0["nextCursor"].as_str().map(str::to_owned);
                match other.0["tools"].take() {
                    Value::Array(tools) => (tools, next),
                    _ => return Err(ServiceError::UnexpectedResponse),
                }
            }
            _ => return Err(ServiceError::UnexpectedResponse),
        };
        listed.extend(page);
        cursor = next.filter(|next| listed.len() <= MOST_TOOLS && cursors.insert(next.clone()));
        if cursor.is_none() {
            return Ok(listed);
        }
    }
}

/// Tells the server which requests nobody waits for any more.
async fn pass_on(mut withdrawn: mpsc::UnboundedReceiver<RequestId>, peer: Peer<RoleClient>) {
    let mut telling = JoinSet::new();
    while let Some(id) = withdrawn.recv().await {
        while telling.try_join_next().is_some() {}
        let peer = peer.clone();
        telling.spawn(async move {
            let params = CancelledNotificationParam::new(Some(id), Some("nobody waits for it any more".to_owned()));
            let _ = peer.notify_cancelled(params).await;
        });
    }
}

fn http(
    address: &Address,
    longest: usize,
    suspected: &Arc<Notify>,
) -> Result<StreamableHttpClientTransport<impl StreamableHttpClient + use<>>, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &address.headers {
        let parsed = HeaderName::try_from(name).ok().zip(HeaderValue::try_from(value).ok());
        let (header, mut value) = parsed.ok_or_else(|| format!("header `{name}` cannot be sent"))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    let mut config = StreamableHttpClientTransportConfig::with_uri(address.url.as_str())
        .max_concurrent_requests(MOST_POSTS)
        .max_sse_event_size(longest)
        .custom_headers(headers.into_iter().filter_map(|(name, value)| Some((name?, value))).collect());
    config.auth_header = address.bearer.clone();
    config.retry_config = Arc::new(Resume { suspected: Arc::clone(suspected) });
    Ok(StreamableHttpClientTransport::from_config(config))
}

/// When a stream that has broken off is resumed: soon; and if that fails, the server is suspected of being gone.
#[derive(Debug)]
struct Resume {
    suspected: Arc<Notify>,
}

impl SseRetryPolicy for Resume {
    fn retry(&self, failed: usize) -> Option<Duration> {
        if failed > 0 {
            self.suspected.notify_one();
        }
        Some(Duration::from_millis(100 << failed.min(8)))
    }
}

/// Whether errors of this transport mean that no server was reached.
fn is_unreached_by<C: StreamableHttpClient>(_: &StreamableHttpClientTransport<C>) -> IsUnreached {
    |error| match error.downcast_ref::<StreamableHttpError<C::Error>>() {
        Some(StreamableHttpError::Client(error)) => matches!(
            io_kind(error),
            Some(ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable)
        ),
        _ => false,
    }
}

fn never(_: &(dyn StdError + 'static)) -> bool {
    false
}

/// What the operating system said, if that is what an error comes from.
pub(super) fn io_kind(error: &(dyn StdError + 'static)) -> Option<ErrorKind> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return Some(error.kind());
        }
        next = error.source();
    }
    None
}

/// An error with what caused it.
pub(super) fn causes(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

/// Us, to a server. It may ask whether we are there, and for nothing else: no sampling, no questions to the user, no
/// roots.
struct Client;

impl Service<RoleClient> for Client {
    async fn handle_request(
        &self,
        request: ServerRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        match request {
            ServerRequest::PingRequest(_) => Ok(ClientResult::empty(())),
            _ => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "this client answers no requests", None)),
        }
    }

    async fn handle_notification(
        &self,
        _: ServerNotification,
        _: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
    }
}
