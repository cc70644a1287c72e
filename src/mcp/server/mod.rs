//! An MCP server for a runtime's agents: every agent is a tool, with a message as argument and the answer as result.
//!
//! A host is one more user of the runtime, and its calls are the same as those of any user. Nothing here limits or
//! changes a call. When a host cancels a call or disconnects, the call is dropped.

mod answer;
mod http;
mod line;
mod names;
mod sessions;
mod steps;

use std::mem;
use std::sync::Arc;

use rmcp::model::{
    CallToolRequestMethod, CallToolRequestParams, CallToolResponse, ConstString as _, CustomRequest, CustomResult,
    ErrorCode, Implementation, JsonObject, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ProgressToken, ServerCapabilities, ServerConfig, SubscriptionFilter, Tool, ToolListChangedNotification,
};
use rmcp::service::{
    NotificationContext, Peer, QuitReason, RequestContext, ServerInitializeError, SubscriptionContext,
    serve_server_with_ct,
};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::io::stdio_pipes;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use http::{BoundServer, HttpServer};

use crate::content::Content;
use crate::error::{CallError, list};
use crate::name::Name;
use crate::prompt::Roster;
use crate::router;
use crate::runtime::Runtime;
use crate::spelling::Spellings;
use line::{ClosableTransport, Closed};
use steps::ProgressText;

/// An MCP server for the agents of a runtime, to be served by [`AgentServer::stdio`], [`AgentServer::http`] or
/// [`AgentServer::over`].
///
/// ```no_run
/// # async fn example(runtime: agentouto::Runtime) -> Result<(), agentouto::mcp::ServeError> {
/// agentouto::mcp::serve(&runtime).name("research-team").stdio().await
/// # }
/// ```
///
/// Each agent and each actor is a tool that takes a `message` and returns the answer:
///
/// - The tool's name is the agent's name if that matches `[a-zA-Z0-9_-]{1,64}`. Otherwise it is the agent's name with
///   only ASCII letters, digits, `_` and `-`, with one `_` for the characters between them, or `agent` if nothing is
///   left, followed by `-` and eight hexadecimal digits that depend on the whole name. The `title` is always the
///   agent's name.
/// - The tool's description is the agent's role. The instructions of an agent are for its model and are never shown to
///   a host: an agent without a role is described by its name.
/// - Images, audio and documents of an answer are content of these kinds, and addresses are links.
/// - A failed call is a result with `isError` and the error's text.
/// - If the host requests progress, it is notified of every step of the call and of all calls below it, without their
///   texts.
/// - A call is cancelled, with everything below it, when the host cancels it, when the host's session or connection
///   ends, and when the server's future is dropped.
/// - Hosts are notified when a peer joins or leaves the runtime.
#[derive(Clone)]
#[must_use = "nothing is served until `stdio`, `http` or `over` is called"]
pub struct AgentServer {
    runtime: Runtime,
    name: String,
    user: Name,
    agents: Option<Arc<[Name]>>,
    default_message: Option<Arc<str>>,
}

/// Creates an MCP server for the agents of a runtime.
pub fn serve(runtime: &Runtime) -> AgentServer {
    AgentServer {
        runtime: runtime.clone(),
        name: "agentouto".to_owned(),
        user: "mcp".into(),
        agents: None,
        default_message: None,
    }
}

impl AgentServer {
    /// Sets the server's own name. Default: `agentouto`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the name of the user that calls the agents. Default: `mcp`.
    pub fn user(mut self, name: impl Into<Name>) -> Self {
        self.user = name.into();
        self
    }

    /// Selects the peers that are shown, which may include users that can be called. Default: all agents and actors.
    ///
    /// They are listed in the order in which they joined the runtime. A peer that is not in the runtime is left out
    /// until it joins.
    pub fn agents<N: Into<Name>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.agents = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the message to an agent if the host gives none. Default: no message, and such a call is refused.
    pub fn default_message(mut self, message: impl Into<Arc<str>>) -> Self {
        self.default_message = Some(message.into());
        self
    }

    /// Serves one host on standard input and output, until the input ends or the future is dropped.
    ///
    /// The program must write nothing else to standard output.
    ///
    /// # Errors
    ///
    /// When the host does not initialize the session as the protocol requires, or the connection breaks before that.
    pub async fn stdio(self) -> Result<(), ServeError> {
        let (input, output) = stdio_pipes();
        self.over(input, output).await
    }

    /// Serves one host on any stream of bytes, with one JSON message per line, until the input ends or the future is
    /// dropped.
    ///
    /// # Errors
    ///
    /// As [`AgentServer::stdio`].
    pub async fn over<R, W>(self, input: R, output: W) -> Result<(), ServeError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let transport = ClosableTransport::new(AsyncRwTransport::new_server(input, output));
        let stop = CancellationToken::new();
        let _stops_when_dropped = stop.clone().drop_guard();
        match Box::pin(serve_server_with_ct(self, transport, stop)).await {
            Ok(session) => match session.waiting().await {
                Ok(QuitReason::JoinError(error)) | Err(error) => Err(ServeError::Session(error.to_string())),
                Ok(_) => Ok(()),
            },
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(ServeError::Session(error.to_string())),
        }
    }

    /// Serves hosts over [streamable HTTP] at an address such as `127.0.0.1:8931`, under the path `/mcp`.
    ///
    /// [streamable HTTP]: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http
    pub fn http(self, address: impl Into<String>) -> HttpServer {
        HttpServer::new(self, address.into())
    }

    fn tools(&self) -> Vec<Tool> {
        let roster = &self.runtime.router.registry.snapshot().roster;
        let shown: Vec<_> = roster.peers().filter(|(name, _)| self.shows(name)).collect();
        let names = names::tool_names(shown.iter().map(|(name, _)| name));
        let schema = Arc::new(self.schema());
        let tool = |(tool, (name, told)): (String, &(Name, Arc<str>))| {
            Tool::new(tool, self.description(name, told), Arc::clone(&schema)).with_title(name.as_ref())
        };
        names.into_iter().zip(shown).map(tool).collect()
    }

    /// The description of a peer for hosts. `told` is its description for other agents, which contains the instructions
    /// of an agent without a role.
    fn description(&self, name: &str, told: &str) -> String {
        match self.runtime.router.registry.find(name).0 {
            Some((name, router::Peer::Agent(entry))) if entry.agent.role.is_none() => format!("The agent `{name}`."),
            _ => told.to_owned(),
        }
    }

    /// The agent whose tool has this name.
    fn agent(&self, tool: &str) -> Option<Name> {
        let roster = &self.runtime.router.registry.snapshot().roster;
        // An agent whose name is a valid tool name has that name as a tool, too.
        if names::is_fit(tool) && roster.find(tool).is_some() && self.shows(tool) {
            return Some(tool.into());
        }
        let shown: Vec<_> = roster.names().filter(|name| self.shows(name)).collect();
        let place = names::tool_names(shown.iter().copied()).iter().position(|name| name == tool)?;
        Some(Name::clone(shown[place]))
    }

    fn shows(&self, name: &str) -> bool {
        match &self.agents {
            Some(chosen) => chosen.iter().any(|chosen| **chosen == *name),
            None => !matches!(self.runtime.router.registry.find(name).0, Some((_, router::Peer::User(_)))),
        }
    }

    fn schema(&self) -> JsonObject {
        let message =
            json!({ "type": "string", "description": "What the agent is asked, in full. It knows nothing else." });
        let required: &[&str] = if self.default_message.is_some() { &[] } else { &["message"] };
        let schema = json!({ "type": "object", "properties": { "message": message }, "required": required });
        match schema {
            serde_json::Value::Object(schema) => schema,
            _ => JsonObject::new(),
        }
    }

    fn unknown(&self, tool: &str) -> ErrorData {
        let names: Vec<Name> = self.tools().iter().map(|tool| Name::from(&*tool.name)).collect();
        let known = list("tools", &Spellings::new(names.iter()).nearest(tool), names.len());
        ErrorData::invalid_params(format!("unknown tool `{tool}`; {known}"), None)
    }

    fn message(&self, arguments: Option<JsonObject>) -> Result<Arc<str>, String> {
        let expected = r#"expected {"message": "what the agent is asked"}"#;
        match (arguments.unwrap_or_default().remove("message"), &self.default_message) {
            (Some(serde_json::Value::String(message)), _) => Ok(message.into()),
            (None, Some(message)) => Ok(Arc::clone(message)),
            (None, None) => Err(format!("missing required argument `message`; {expected}")),
            (Some(other), _) => Err(format!("`message` is not a string but {other:.40}; {expected}")),
        }
    }

    async fn call(&self, agent: Name, message: Arc<str>, progress: Option<Progress>) -> Result<Content, CallError> {
        let user = self.runtime.user(Name::clone(&self.user));
        let Some(mut progress) = progress else {
            return user.caller().call_agent(agent, message).await;
        };
        let mut call = user.forward(agent, message);
        while let Some(event) = call.next_event().await {
            if let Some(step) = progress.steps.words(&event) {
                progress.tell(step).await;
            }
        }
        match call.await {
            Ok(report) => Ok(Content { text: report.output, attachments: report.attachments }),
            Err(failed) => Err(failed.error),
        }
    }
}

impl ServerHandler for AgentServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new(&self.name, env!("CARGO_PKG_VERSION")))
            .with_instructions("Every tool is an agent: it is asked by a message, and answers when its work is done.")
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(agent) = self.agent(&request.name) else { return Err(self.unknown(&request.name)) };
        let message = match self.message(request.arguments) {
            Ok(message) => message,
            Err(refusal) => return Ok(answer::failure(refusal).into()),
        };
        let progress = context.meta.get_progress_token().map(|token| Progress::new(context.peer.clone(), token));
        // The first to complete drops the others; dropping the call cancels everything below it.
        tokio::select! {
            biased;
            () = context.ct.cancelled() => Err(withdrawn()),
            () = Closed::of(&context.extensions) => Err(withdrawn()),
            answer = self.call(agent, message, progress) => Ok(answer::result(answer).into()),
        }
    }

    /// Answers a request of a method that the SDK does not know, or a call whose parameters it cannot read.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method != CallToolRequestMethod::VALUE {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None));
        }
        let expected = r#"{"name": "a tool", "arguments": {"message": "what the agent is asked"}}"#;
        Err(ErrorData::invalid_params(format!("the parameters cannot be read; expected {expected}"), None))
    }

    /// Notifies the host when a peer joins or leaves, until the end of its session.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut peer_changes = PeerChanges::to(&self.runtime);
        let telling = async {
            while peer_changes.next().await {
                let _ = context.peer.notify_tool_list_changed().await;
            }
        };
        tokio::select! {
            () = Closed::of(&context.extensions) => {}
            () = telling => {}
        }
    }

    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    /// Sends the same notifications to hosts of the protocol's revision 2026-07-28, which subscribe to them.
    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let mut peer_changes = PeerChanges::to(&self.runtime);
        let telling = async {
            while peer_changes.next().await {
                let _ = subscription.sink().send(ToolListChangedNotification::default().into()).await;
            }
        };
        tokio::select! {
            () = subscription.cancelled() => {}
            () = Closed::of(&subscription.request_context().extensions) => {}
            () = telling => {}
        }
        Ok(())
    }
}

/// The changes of a runtime's peers.
struct PeerChanges<'a> {
    runtime: &'a Runtime,
    changes: watch::Receiver<()>,
    known: Arc<Roster>,
}

impl<'a> PeerChanges<'a> {
    fn to(runtime: &'a Runtime) -> Self {
        let changes = runtime.router.registry.changes();
        Self { runtime, changes, known: roster(runtime) }
    }

    /// Waits until a peer has joined or left; `false` if the runtime has ended.
    async fn next(&mut self) -> bool {
        while self.changes.changed().await.is_ok() {
            let before = mem::replace(&mut self.known, roster(self.runtime));
            if !Arc::ptr_eq(&before, &self.known) {
                return true;
            }
        }
        false
    }
}

fn roster(runtime: &Runtime) -> Arc<Roster> {
    Arc::clone(&runtime.router.registry.snapshot().roster)
}

/// The result of a call that the host has cancelled. Most hosts ignore it.
fn withdrawn() -> ErrorData {
    ErrorData::internal_error("the call was withdrawn", None)
}

/// Progress notifications to a host about the steps of a call, which it counts.
struct Progress {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    steps: ProgressText,
    told: u32,
}

impl Progress {
    fn new(peer: Peer<RoleServer>, token: ProgressToken) -> Self {
        Self { peer, token, steps: ProgressText::default(), told: 0 }
    }

    /// Waits until the notification is sent, so that a slow host is not flooded. An error means that the host is gone.
    async fn tell(&mut self, step: String) {
        self.told += 1;
        let progress = ProgressNotificationParam::new(self.token.clone(), f64::from(self.told)).with_message(step);
        let _ = self.peer.notify_progress(progress).await;
    }
}

/// The reason why a server cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("address `{address}`: {error}")]
    Address {
        /// The address.
        address: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// The address can be reached from other machines, and there is no bearer token.
    #[error(
        "address `{address}` can be reached from other machines; set a `bearer_token`, or bind a loopback address such as `127.0.0.1:8931`"
    )]
    Unguarded {
        /// The address.
        address: String,
    },
    /// The bearer token is empty or cannot be sent in a header.
    #[error("the bearer token must be one or more visible ASCII characters without spaces")]
    Token,
    /// The host did not initialize the session as the protocol requires.
    #[error("the session failed: {0}")]
    Session(String),
}
