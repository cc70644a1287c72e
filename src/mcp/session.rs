//! One connection to a server, from its start to its end.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    CancelledNotificationParam, ClientCapabilities, ClientConfig, ClientRequest, ClientResult, ErrorCode, ErrorData,
    Implementation, ListToolsRequest, PaginatedRequestParams, PingRequest, ProtocolVersion, RequestId,
    ServerNotification, ServerRequest, ServerResult, SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, NotificationContext, Peer, RequestContext,
    RunningService, Service, ServiceError,
};
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::catalogue::MOST_TOOLS;
use super::child::Child;
use super::error::{causes, is_about_the_key};
use super::redacted::Redacted;
use super::remote::{Reached, Server};
use super::stdio::Stdio;
use super::streamable_http::{self, IsUnreached};
use super::tap::Tap;
use crate::message::Name;

/// How long a process that has exited may take to be read to its end.
const DRAIN: Duration = Duration::from_millis(200);
/// How long a server that seems gone may take to say that it is not.
const PING: Duration = Duration::from_secs(5);
/// How long a server may take to say which tools it has now.
const LISTING: Duration = Duration::from_secs(10);
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
    _tasks: [AbortOnDropHandle<()>; 2],
}

/// What a connection is made of.
struct Opened {
    running: RunningService<RoleClient, Client>,
    signals: Signals,
    is_unreached: IsUnreached,
}

/// Why there is no connection.
struct Failed {
    reason: String,
    /// Whether the server is there, and does not want to be spoken to in this way.
    is_refusal: bool,
}

impl Live {
    /// Starts or reaches a server, and asks what tools it has.
    pub(super) async fn open(name: &Name, server: &Server) -> Result<(Self, Vec<Value>), String> {
        let (limit, mut child) = (server.settings.connect_timeout, None);
        let opening = async {
            let opened = open(name, server, &mut child).await.map_err(|failed| failed.reason)?;
            let listed = list(opened.running.peer()).await;
            Ok((opened, listed.map_err(|error| format!("could not list its tools: {}", causes(&error)))?))
        };
        let opened = timeout(limit, opening).await.unwrap_or_else(|_| Err(format!("not ready within {limit:?}")));
        match (opened, child) {
            (Ok((opened, listed)), child) => Ok((Self::new(opened, child), listed)),
            (Err(reason), Some(child)) => Err(format!("{reason}; {}", child.end().await)),
            (Err(reason), None) => Err(reason),
        }
    }

    fn new(opened: Opened, child: Option<Child>) -> Self {
        let Opened { running, signals, is_unreached } = opened;
        let (withdraw, withdrawn) = mpsc::unbounded_channel();
        let peer = running.peer().clone();
        let withdrawing = AbortOnDropHandle::new(tokio::spawn(pass_on(withdrawn, peer.clone())));
        let listening = AbortOnDropHandle::new(tokio::spawn(listen(peer.clone())));
        let (ended, suspected) = (signals.ended.clone(), Arc::clone(&signals.suspected));
        let session = Session { peer, withdraw, ended, suspected, is_unreached };
        Self { session, running, child, signals, _tasks: [withdrawing, listening] }
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

/// Connects in the way that most servers speak, and if they refuse in that of servers since 2026-07-28, which know of no
/// `initialize`.
async fn open(name: &Name, server: &Server, child: &mut Option<Child>) -> Result<Opened, Failed> {
    match connect(name, server, child, ClientLifecycleMode::Initialize).await {
        Err(failed) if failed.is_refusal => {
            let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
            let again = connect(name, server, child, ClientLifecycleMode::Discover { preferred_versions }).await;
            again.map_err(|_| failed)
        }
        connected => connected,
    }
}

async fn connect(
    name: &Name,
    server: &Server,
    child: &mut Option<Child>,
    lifecycle: ClientLifecycleMode,
) -> Result<Opened, Failed> {
    let (signals, longest) = (Signals::default(), server.settings.longest_message);
    let failed = |reason: String| Failed { reason, is_refusal: false };
    let (running, is_unreached) = match &server.reached {
        Reached::Command(command) => {
            let (started, input, output) = Child::start(name, command)
                .map_err(|error| failed(format!("could not start {}: {error}", command.program.display())))?;
            *child = Some(started);
            // A process that refuses something is there nevertheless.
            let signals = Signals { bounced: Arc::default(), ..signals.clone() };
            let stdio = Redacted::new(Stdio::new(Arc::clone(name), input, output, longest), server.redaction());
            let stdio = Tap::new(stdio, signals);
            (Client.serve_with_lifecycle(stdio, lifecycle).await, streamable_http::never as IsUnreached)
        }
        Reached::Address(address) => {
            let http = streamable_http::transport(address, longest, &signals.suspected).map_err(failed)?;
            let is_unreached = streamable_http::is_unreached_by(&http);
            let http = Tap::new(Redacted::new(http, server.redaction()), signals.clone());
            (Client.serve_with_lifecycle(http, lifecycle).await, is_unreached)
        }
    };
    let is_refusal = |error: &ClientInitializeError| match error {
        ClientInitializeError::JsonRpcError(_) | ClientInitializeError::NoCompatibleProtocolVersion { .. } => true,
        ClientInitializeError::TransportError { error, .. } => child.is_none() && !is_unreached(&*error.error),
        _ => false,
    };
    match running {
        Ok(running) => Ok(Opened { running, signals, is_unreached }),
        Err(ClientInitializeError::TransportError { error, .. }) if is_about_the_key(&*error.error) => {
            let said = causes(&*error.error);
            Err(failed(format!("authentication failed: {said}; check its bearer token or headers")))
        }
        Err(error) => {
            Err(Failed { reason: format!("could not connect: {}", causes(&error)), is_refusal: is_refusal(&error) })
        }
    }
}

/// Has a server since 2026-07-28 tell of changes of its tools, which earlier ones do by themselves. That they come is
/// seen as they pass.
async fn listen(peer: Peer<RoleClient>) {
    if peer.peer_info().is_none_or(|info| info.protocol_version < ProtocolVersion::V_2026_07_28) {
        return;
    }
    match peer.listen(SubscriptionFilter::builder().tools_list_changed().build()).await {
        Ok(mut changes) => while let Ok(Some(_)) = changes.next().await {},
        Err(error) => tracing::debug!(error = %causes(&error), "an MCP server does not tell of changes"),
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
        match timeout(LISTING, list(peer)).await {
            Ok(Ok(listed)) => relisted(&listed),
            Ok(Err(error)) => tracing::warn!(error = %causes(&error), "an MCP server did not list its changed tools"),
            Err(_) => tracing::warn!("an MCP server did not list its changed tools within {LISTING:?}"),
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
