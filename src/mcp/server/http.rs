//! Streamable HTTP for the agents: authentication, timeouts and size limits of requests.
//!
//! Nothing here knows of agents. An accepted request goes to the SDK, which checks its `Host` and `Origin`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use subtle::ConstantTimeEq as _;
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::sessions::Sessions;
use super::{AgentServer, ServeError};

const PATH: &str = "/mcp";
const SCHEME: &[u8] = b"Bearer ";
/// The largest body of a request, in bytes.
const MAX_BODY: usize = 1 << 20;
/// The timeout of a request's head, and of a connection without a request.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// The timeout of a request's body.
const BODY_TIME: Duration = Duration::from_secs(30);
/// The maximum number of sessions.
const MAX_SESSIONS: usize = 1_000;
/// The maximum number of connections: half of the usual limit of open files of a process.
const MAX_CONNECTIONS: usize = 512;
/// The time for which an idle session is kept.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// An [`AgentServer`] over HTTP, to be bound to its address.
///
/// Any program that can reach the address can call the agents. So a loopback address is open to the programs of this
/// machine, but not to web pages in its browsers: `Origin` and `Host` are checked, as the protocol
/// [requires](https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#security-warning). Any other
/// address requires a [bearer token](HttpServer::bearer_token). For encryption, put a TLS proxy in front.
///
/// Limits: 1 MiB per request, 10 s for its head and 30 s for its body; 1,000 sessions; and a [maximum number of
/// connections](HttpServer::max_connections).
#[must_use = "nothing is served until it is bound"]
pub struct HttpServer {
    server: AgentServer,
    address: String,
    origins: Vec<String>,
    hosts: Vec<String>,
    token: Option<String>,
    patience: Duration,
    max_connections: usize,
}

impl HttpServer {
    pub(super) fn new(server: AgentServer, address: String) -> Self {
        let hosts = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
        Self {
            server,
            address,
            origins: Vec::new(),
            hosts,
            token: None,
            patience: PATIENCE,
            max_connections: MAX_CONNECTIONS,
        }
    }

    /// Adds the origins of web pages that may call the server. Default: only pages of this very address.
    ///
    /// An origin has a scheme, host and port, such as `https://app.example.com:443`; `:*` is any port. Requests without
    /// an `Origin`, which do not come from a page, are always allowed.
    pub fn allowed_origins<O: Into<String>>(mut self, origins: impl IntoIterator<Item = O>) -> Self {
        self.origins.extend(origins.into_iter().map(Into::into));
        self
    }

    /// Adds host names of the server, besides `localhost` and the address itself, with or without a port.
    pub fn allowed_hosts<H: Into<String>>(mut self, hosts: impl IntoIterator<Item = H>) -> Self {
        self.hosts.extend(hosts.into_iter().map(Into::into));
        self
    }

    /// Sets the token that every request must contain, as `Authorization: Bearer …`. Default: none.
    pub fn bearer_token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// The time for which an idle session is kept: no open request, no open event stream. Closing it cancels its calls.
    /// Default: 5 minutes.
    pub fn session_idle_timeout(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The maximum number of open connections. Default: 512.
    ///
    /// A further connection waits until another one closes; one without a request is closed after 10 s. A host has one
    /// connection for each call, and one for its event stream.
    pub fn max_connections(mut self, most: usize) -> Self {
        self.max_connections = most.max(1);
        self
    }

    /// Binds the address.
    ///
    /// # Errors
    ///
    /// When the address cannot be bound, when it can be reached from other machines and there is no token, or when the
    /// token cannot be sent in a header.
    pub async fn bind(self) -> Result<BoundServer, ServeError> {
        if self
            .token
            .as_ref()
            .is_some_and(|token| token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            return Err(ServeError::Token);
        }
        let failed = |error| ServeError::Address { address: self.address.clone(), error };
        let addresses: Vec<SocketAddr> = lookup_host(&self.address).await.map_err(failed)?.collect();
        if self.token.is_none() && !addresses.iter().all(|address| address.ip().is_loopback()) {
            return Err(ServeError::Unguarded { address: self.address });
        }
        let listener = TcpListener::bind(&addresses[..]).await.map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let sessions = Arc::new(Sessions::new(MAX_SESSIONS, self.patience));
        let stop = CancellationToken::new();
        let config = self.config(local).with_cancellation_token(stop.clone());
        let server = self.server;
        let service = StreamableHttpService::new(move || Ok(server.clone()), Arc::clone(&sessions), config);
        let gate = Arc::new(Auth { token: self.token });
        let routes = Router::new().route_service(PATH, service).layer(from_fn_with_state(gate, pass));
        Ok(BoundServer { listener, local, routes, sessions, stop, max_connections: self.max_connections })
    }

    fn config(&self, local: SocketAddr) -> StreamableHttpServerConfig {
        let own = ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("http://{host}:{}", local.port()));
        let hosts = self.hosts.iter().cloned().chain((!local.ip().is_unspecified()).then(|| local.ip().to_string()));
        StreamableHttpServerConfig::default()
            .with_allowed_origins(self.origins.iter().cloned().chain(own))
            .enforce_origin_validation()
            .with_allowed_hosts(hosts)
            .with_max_request_body_bytes(MAX_BODY)
    }
}

/// An [`AgentServer`] that is bound to an address. Hosts may connect; their requests are answered once it is
/// [served](BoundServer::serve).
#[must_use = "nobody is answered until it is served"]
pub struct BoundServer {
    listener: TcpListener,
    local: SocketAddr,
    routes: Router,
    sessions: Arc<Sessions>,
    stop: CancellationToken,
    max_connections: usize,
}

impl BoundServer {
    /// The bound address, with the port that was chosen if none was given.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The URL for hosts on this machine.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.local)
    }

    /// Serves until the future is dropped, which closes all connections and cancels all calls. It does not end by
    /// itself.
    pub async fn serve(self) {
        let _stops_when_dropped = self.stop.drop_guard();
        let mut connections = JoinSet::new();
        let mut cleaning = std::pin::pin!(self.sessions.close_abandoned());
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if connections.len() < self.max_connections => match accepted {
                    Ok((stream, _)) => { connections.spawn(serve_connection(stream, self.routes.clone())); }
                    Err(error) => {
                        // Such as too many open files, which is temporary.
                        tracing::warn!(%error, "a connection could not be accepted");
                        sleep(Duration::from_secs(1)).await;
                    }
                },
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                () = &mut cleaning => {}
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, routes: Router) {
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    if let Err(error) = serving.await {
        tracing::debug!(%error, "a connection failed");
    }
}

/// The authentication that a request must pass.
struct Auth {
    token: Option<String>,
}

impl Auth {
    /// Returns whether the request has the token, in the same time for every token of the right length. The name of the
    /// scheme is [case-insensitive](https://www.rfc-editor.org/rfc/rfc9110#section-11.1).
    fn admits(&self, headers: &HeaderMap) -> bool {
        self.token.as_ref().is_none_or(|token| {
            let shown = headers.get(AUTHORIZATION).map_or(&[][..], |shown| shown.as_bytes());
            let (scheme, shown) = shown.split_at(shown.len().min(SCHEME.len()));
            scheme.eq_ignore_ascii_case(SCHEME) && bool::from(shown.trim_ascii_start().ct_eq(token.as_bytes()))
        })
    }
}

async fn pass(State(gate): State<Arc<Auth>>, request: Request, next: Next) -> Response {
    // A proxy in front may have checked another `Host` than the SDK does:
    // https://www.rfc-editor.org/rfc/rfc9112#section-3.2
    if request.headers().get_all(HOST).iter().nth(1).is_some() {
        return (StatusCode::BAD_REQUEST, "a request has one `Host` header").into_response();
    }
    if !gate.admits(request.headers()) {
        let demand = [(WWW_AUTHENTICATE, "Bearer")];
        return (StatusCode::UNAUTHORIZED, demand, "a valid `Authorization: Bearer` header is needed").into_response();
    }
    let (head, body) = request.into_parts();
    let ends = head.method == Method::DELETE;
    let body = match timeout(BODY_TIME, to_bytes(body, MAX_BODY)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return (StatusCode::PAYLOAD_TOO_LARGE, "a request may have 1 MiB").into_response(),
        Err(_) => return (StatusCode::REQUEST_TIMEOUT, "the request's body took too long").into_response(),
    };
    let is_json = head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let response = next.run(Request::from_parts(head, Body::from(body.clone()))).await;
    match response.status() {
        // The SDK's answer to JSON that is not a message.
        StatusCode::UNSUPPORTED_MEDIA_TYPE if is_json => malformed(&body),
        // The SDK's answer to the end of a session, which hosts treat as an error.
        StatusCode::ACCEPTED if ends => StatusCode::NO_CONTENT.into_response(),
        _ => response,
    }
}

/// The [JSON-RPC](https://www.jsonrpc.org/specification#error_object) error for a body that is not a message.
fn malformed(body: &Bytes) -> Response {
    let (code, message) = match serde_json::from_slice::<serde::de::IgnoredAny>(body) {
        Ok(_) => (-32600, "invalid request: the body is not one JSON-RPC message"),
        Err(_) => (-32700, "parse error: the body is not JSON"),
    };
    let error = serde_json::json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": message } });
    (StatusCode::BAD_REQUEST, [(CONTENT_TYPE, "application/json")], error.to_string()).into_response()
}
