//! One connection to a server, from its start to its end.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CancelledNotificationParam, ClientCapabilities, ClientConfig, ClientRequest, Implementation, ListToolsRequest,
    PingRequest, ProtocolVersion, RequestId, ServerResult, SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, Peer, RunningService, ServiceError,
};
use rmcp::{ClientHandler, RoleClient};
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::error_chain::error_chain;
use crate::mcp::client::catalogue::MAX_TOOLS;
use crate::mcp::client::config::{Endpoint, ServerConfig};
use crate::mcp::client::error::is_about_the_key;
use crate::mcp::client::pages::{self, Limits};
use crate::mcp::transport::child::Child;
use crate::mcp::transport::redacted::Redacted;
use crate::mcp::transport::stdio::Stdio;
use crate::mcp::transport::streamable_http::{self, is_unreached};
use crate::mcp::transport::tap::{Signals, Tap};
use crate::name::Name;

/// The longest time to read the remaining output of a process that has exited.
const DRAIN: Duration = Duration::from_millis(200);
/// The timeout of the ping to a server that may be gone.
const PING: Duration = Duration::from_secs(5);
/// The timeout of a new list of the tools.
const LISTING: Duration = Duration::from_secs(10);
/// The shortest time between two lists of the tools.
const PAUSE: Duration = Duration::from_secs(1);
/// The timeout of closing a connection.
const FAREWELL: Duration = Duration::from_secs(2);

/// The part of a session that requests use. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SessionHandle {
    pub(crate) peer: Peer<RoleClient>,
    /// Cancels the request with this id.
    pub(crate) withdraw: mpsc::UnboundedSender<RequestId>,
    /// Cancelled when no more messages can arrive.
    pub(crate) ended: CancellationToken,
    /// Notified when the server may be gone.
    pub(crate) maybe_gone: Arc<Notify>,
}

/// A connection, with its process and its tasks. Dropping it ends the process in the background, or closes the
/// connection.
pub(crate) struct Session {
    pub(crate) session: SessionHandle,
    running: RunningService<RoleClient, Client>,
    child: Option<Child>,
    signals: Signals,
    max_message_bytes: usize,
    _tasks: [AbortOnDropHandle<()>; 2],
}

/// The result of a successful connection attempt.
struct Opened {
    running: RunningService<RoleClient, Client>,
    signals: Signals,
}

/// The result of a failed connection attempt.
struct Failed {
    reason: String,
    /// `true` if the server is available, but refuses this way of connecting.
    is_refusal: bool,
}

impl Session {
    /// Connects to a server, which starts it if it is a command, and lists its tools.
    pub(crate) async fn open(name: &Name, server: &ServerConfig) -> Result<(Self, Vec<Value>), String> {
        let (limit, mut child) = (server.settings.connect_timeout, None);
        let opening = async {
            let opened = open(name, server, &mut child).await.map_err(|failed| failed.reason)?;
            let listed = list(opened.running.peer(), server.settings.max_message_bytes).await;
            Ok((opened, listed.map_err(|reason| format!("could not list its tools: {reason}"))?))
        };
        let opened = timeout(limit, opening).await.unwrap_or_else(|_| Err(format!("not ready within {limit:?}")));
        match (opened, child) {
            (Ok((opened, listed)), child) => Ok((Self::new(server, opened, child), listed)),
            (Err(reason), Some(child)) => Err(format!("{reason}; {}", child.end().await)),
            (Err(reason), None) => Err(reason),
        }
    }

    fn new(server: &ServerConfig, opened: Opened, child: Option<Child>) -> Self {
        let Opened { running, signals } = opened;
        let (withdraw, withdrawn) = mpsc::unbounded_channel();
        let peer = running.peer().clone();
        let withdrawing = AbortOnDropHandle::new(tokio::spawn(send_cancellations(withdrawn, peer.clone())));
        let listening = AbortOnDropHandle::new(tokio::spawn(subscribe_to_changes(peer.clone())));
        let (ended, maybe_gone) = (signals.ended.clone(), Arc::clone(&signals.maybe_gone));
        let session = SessionHandle { peer, withdraw, ended, maybe_gone };
        let max_message_bytes = server.settings.max_message_bytes;
        Self { session, running, child, signals, max_message_bytes, _tasks: [withdrawing, listening] }
    }

    /// Waits until the server has ended, and returns the reason; or until `closing` is cancelled, and ends it.
    /// Meanwhile calls `relisted` with every new list of tools.
    pub(crate) async fn watch(mut self, closing: &CancellationToken, relisted: impl Fn(&[Value])) -> Option<String> {
        let Self { session, child, signals, max_message_bytes, .. } = &mut self;
        let gone = tokio::select! {
            () = ended(session, child) => None,
            reason = maintain(&session.peer, *max_message_bytes, signals, relisted) => Some(reason),
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

    /// Closes the session, and ends the server if it is a process.
    async fn close(mut self) {
        let _ = timeout(FAREWELL, self.running.close()).await;
        if let Some(child) = self.child.take() {
            child.close().await;
        }
    }
}

/// Connects in the way that most servers support. If they refuse, connects as the revision 2026-07-28 says, which has
/// no `initialize`.
async fn open(name: &Name, server: &ServerConfig, child: &mut Option<Child>) -> Result<Opened, Failed> {
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
    server: &ServerConfig,
    child: &mut Option<Child>,
    lifecycle: ClientLifecycleMode,
) -> Result<Opened, Failed> {
    let (signals, max_message_bytes) = (Signals::default(), server.settings.max_message_bytes);
    let failed = |reason: String| Failed { reason, is_refusal: false };
    let running = match &server.endpoint {
        Endpoint::Command(command) => {
            let (started, input, output) = Child::start(name, command).map_err(failed)?;
            *child = Some(started);
            // A process that refuses a request is available nevertheless.
            let signals = Signals { rejected: Arc::default(), ..signals.clone() };
            let stdio =
                Redacted::new(Stdio::new(Arc::clone(name), input, output, max_message_bytes), server.redaction());
            let stdio = Tap::new(stdio, signals);
            Client.serve_with_lifecycle(stdio, lifecycle).await
        }
        Endpoint::Address(address) => {
            let http = streamable_http::transport(address, max_message_bytes, &signals.maybe_gone).map_err(failed)?;
            let http = Tap::new(Redacted::new(http, server.redaction()), signals.clone());
            Client.serve_with_lifecycle(http, lifecycle).await
        }
    };
    let is_refusal = |error: &ClientInitializeError| match error {
        ClientInitializeError::JsonRpcError(_) | ClientInitializeError::NoCompatibleProtocolVersion { .. } => true,
        ClientInitializeError::TransportError { error, .. } => child.is_none() && !is_unreached(&*error.error),
        _ => false,
    };
    match running {
        Ok(running) => Ok(Opened { running, signals }),
        Err(ClientInitializeError::TransportError { error, .. }) if is_about_the_key(&*error.error) => {
            let said = error_chain(&*error.error);
            Err(failed(format!("authentication failed: {said}; check its bearer token or headers")))
        }
        Err(error) => Err(Failed {
            reason: format!("could not connect: {}", error_chain(&error)),
            is_refusal: is_refusal(&error),
        }),
    }
}

/// Subscribes to changes of the tools at a server of revision 2026-07-28 or later; older servers send them unasked. The
/// notifications themselves are handled by the [`Tap`].
async fn subscribe_to_changes(peer: Peer<RoleClient>) {
    if peer.peer_info().is_none_or(|info| info.protocol_version < ProtocolVersion::V_2026_07_28) {
        return;
    }
    match peer.listen(SubscriptionFilter::builder().tools_list_changed().build()).await {
        Ok(mut changes) => while let Ok(Some(_)) = changes.next().await {},
        Err(error) => tracing::debug!(error = %error_chain(&error), "an MCP server does not tell of changes"),
    }
}

/// Waits until no more messages can arrive: the output has ended; or the process has exited, while another process may
/// still hold its output open.
async fn ended(session: &SessionHandle, child: &mut Option<Child>) {
    let Some(child) = child else { return session.ended.cancelled().await };
    tokio::select! {
        () = session.ended.cancelled() => {}
        () = child.exited() => drop(timeout(DRAIN, session.ended.cancelled()).await),
    }
}

/// Lists the tools after every change, with a minimum pause. Returns a reason when a server that might be gone is gone.
async fn maintain(
    peer: &Peer<RoleClient>,
    max_message_bytes: usize,
    signals: &Signals,
    relisted: impl Fn(&[Value]),
) -> String {
    let mut next = Instant::now();
    loop {
        tokio::select! {
            () = changed(next, signals) => {}
            () = gone_signal(signals) => match ping(peer, signals).await {
                Ok(()) => {
                    signals.changed.notify_one();
                    continue;
                }
                Err(reason) => return reason,
            },
        }
        match timeout(LISTING, list(peer, max_message_bytes)).await {
            Ok(Ok(listed)) => relisted(&listed),
            Ok(Err(error)) => tracing::warn!(error, "an MCP server did not list its changed tools"),
            Err(_) => tracing::warn!("an MCP server did not list its changed tools within {LISTING:?}"),
        }
        next = Instant::now() + PAUSE;
    }
}

/// Waits until the tools have changed, once or more often, and may be listed again.
async fn changed(next: Instant, signals: &Signals) {
    sleep_until(next).await;
    signals.changed.notified().await;
}

/// Waits until the server may be gone.
async fn gone_signal(signals: &Signals) {
    tokio::select! {
        () = signals.maybe_gone.notified() => {}
        () = signals.rejected.notified() => {}
    }
}

/// Pings a server that may be gone. Any answer means that it is available.
async fn ping(peer: &Peer<RoleClient>, signals: &Signals) -> Result<(), String> {
    let ping = peer.send_request(ClientRequest::PingRequest(PingRequest::default()));
    tokio::select! {
        answer = timeout(PING, ping) => match answer {
            Ok(Ok(_) | Err(ServiceError::McpError(_))) => Ok(()),
            Ok(Err(error)) => Err(format!("it is not there: {}", error_chain(&error))),
            Err(_) => Err(format!("it did not answer within {PING:?}")),
        },
        () = signals.rejected.notified() => Err("it does not know us any more".to_owned()),
    }
}

/// All entries of `tools/list`, unchanged, or at least more than can be offered.
async fn list(peer: &Peer<RoleClient>, max_message_bytes: usize) -> Result<Vec<Value>, String> {
    if peer.peer_info().is_some_and(|info| info.capabilities.tools.is_none()) {
        return Ok(Vec::new());
    }
    let ask = async |params| {
        let request =
            ListToolsRequest { method: Default::default(), params: Some(params), extensions: Default::default() };
        peer.send_request(ClientRequest::ListToolsRequest(request)).await.map_err(|error| error_chain(&error))
    };
    let read = |answer| match answer {
        ServerResult::ListToolsResult(result) => {
            let tools = result.tools.iter().map(serde_json::to_value).collect::<Result<_, _>>();
            Some((tools.ok()?, result.next_cursor))
        }
        // One entry that cannot be parsed does not affect the others.
        ServerResult::CustomResult(mut other) => {
            let next = other.0["nextCursor"].as_str().map(str::to_owned);
            match other.0["tools"].take() {
                Value::Array(tools) => Some((tools, next)),
                _ => None,
            }
        }
        _ => None,
    };
    pages::all(Limits { entries: MAX_TOOLS, bytes: max_message_bytes }, ask, read).await
}

/// Sends the server a cancellation for each request that was cancelled.
async fn send_cancellations(mut withdrawn: mpsc::UnboundedReceiver<RequestId>, peer: Peer<RoleClient>) {
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

/// The client as the server sees it. The server's requests have been answered before they get here.
struct Client;

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
    use rmcp::transport::Transport;
    use serde_json::json;

    use super::*;

    /// A server that reports a change of its tools after each of its first thousand lists.
    struct Restless {
        lists: Arc<AtomicUsize>,
        says: mpsc::UnboundedSender<Value>,
        said: mpsc::UnboundedReceiver<Value>,
    }

    impl Restless {
        fn new(lists: &Arc<AtomicUsize>) -> Self {
            let (says, said) = mpsc::unbounded_channel();
            Self { lists: Arc::clone(lists), says, said }
        }

        fn answer(&self, id: &Value, result: Value) {
            self.says.send(json!({"jsonrpc": "2.0", "id": id, "result": result})).unwrap();
        }
    }

    impl Transport<RoleClient> for Restless {
        type Error = io::Error;

        fn send(
            &mut self,
            message: TxJsonRpcMessage<RoleClient>,
        ) -> impl Future<Output = io::Result<()>> + Send + 'static {
            let message = serde_json::to_value(message).unwrap();
            match message["method"].as_str() {
                Some("initialize") => {
                    let info = json!({"name": "restless", "version": "1"});
                    let version = &message["params"]["protocolVersion"];
                    let capabilities = json!({"tools": {}});
                    let result = json!({"protocolVersion": version, "capabilities": capabilities, "serverInfo": info});
                    self.answer(&message["id"], result);
                }
                Some("tools/list") => {
                    self.answer(&message["id"], json!({"tools": []}));
                    if self.lists.fetch_add(1, Ordering::Relaxed) < 1_000 {
                        let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                        self.says.send(changed).unwrap();
                    }
                }
                _ => {}
            }
            std::future::ready(Ok(()))
        }

        async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
            serde_json::from_value(self.said.recv().await?).unwrap()
        }

        async fn close(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tools_that_change_without_end_are_listed_once_a_second() {
        let (lists, signals) = (Arc::default(), Signals::default());
        let tap = Tap::new(Restless::new(&lists), signals.clone());
        let running = Client.serve_with_lifecycle(tap, ClientLifecycleMode::Initialize).await.unwrap();
        signals.changed.notify_one();
        let listing = maintain(running.peer(), 1 << 20, &signals, |_| ());
        assert!(timeout(Duration::from_millis(9_500), listing).await.is_err());
        assert_eq!(lists.load(Ordering::Relaxed), 10);
    }
}
