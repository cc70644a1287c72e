//! A host: the official SDK's client, which writes down what it is told.

use std::sync::{Arc, Mutex};

use agentouto::mcp::AgentServer;
use rmcp::model::{CallToolRequestParams, CallToolResult, ClientConfig, ProgressNotificationParam};
use rmcp::service::{NotificationContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, RoleClient, ServiceError, ServiceExt as _};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A session of a host.
pub(crate) type Session = RunningService<RoleClient, Host>;

/// What a host is told.
#[derive(Clone)]
pub(crate) struct Host {
    steps: Arc<Mutex<Vec<String>>>,
    lists: mpsc::UnboundedSender<()>,
}

/// A host, and a word for every time that the list of tools changes.
pub(crate) fn host() -> (Host, mpsc::UnboundedReceiver<()>) {
    let (lists, changes) = mpsc::unbounded_channel();
    (Host { steps: Arc::default(), lists }, changes)
}

impl Host {
    /// The steps of calls, one a line.
    pub(crate) fn steps(&self) -> Vec<String> {
        self.steps.lock().unwrap().clone()
    }

    /// Begins a session over a pipe with a server of its own, which ends when the handle is aborted.
    pub(crate) async fn over_pipe(self, server: AgentServer) -> (Session, JoinHandle<()>) {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (input, output) = tokio::io::split(far);
        let serving = tokio::spawn(async move { server.over(input, output).await.unwrap() });
        (self.serve(near).await.unwrap(), serving)
    }

    /// Begins a session over HTTP.
    pub(crate) async fn over_http(self, url: String) -> Session {
        self.serve(StreamableHttpClientTransport::from_uri(url)).await.unwrap()
    }
}

impl ClientHandler for Host {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::default()
    }

    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let step = format!("{} {}", progress.progress, progress.message.unwrap_or_default());
        self.steps.lock().unwrap().push(step);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        let _ = self.lists.send(());
    }
}

/// What a tool gives for these arguments.
pub(crate) async fn call(session: &Session, tool: &str, arguments: Value) -> Result<CallToolResult, ServiceError> {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    session.call_tool(CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments)).await
}

/// The only text that an agent answers to a message.
pub(crate) async fn ask(session: &Session, tool: &str) -> String {
    let result = call(session, tool, json!({ "message": "Please." })).await.unwrap();
    assert_ne!(result.is_error, Some(true), "{result:?}");
    result.content[0].as_text().unwrap().text.clone()
}
