//! A runtime whose one agent makes the tool call that it is told to make, and says what came of it.

use std::time::Duration;

use agentouto::providers::scripted::Scripted;
use agentouto::tools::Web;
use agentouto::{Agent, ChatMessage, Reply, Request, Runtime, Tool, ToolOutput};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::server::Server;

/// Within this everything must have happened; nothing waits for it to pass.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The runtime with one tool.
pub(crate) fn runtime(tool: impl Tool) -> Runtime {
    let clerk = Agent::new("clerk", "Calls the tool.");
    Runtime::builder().provider("script", Scripted::computed(model)).agent(clerk).tool(tool).build().unwrap()
}

fn model(request: &Request) -> Reply {
    match request.context.messages().last() {
        Some(ChatMessage::Tool { output, .. }) => Reply::finish(&serde_json::to_string(output).unwrap()),
        _ => {
            let tool = request.tools.iter().find(|tool| tool.name.starts_with("web_")).unwrap();
            Reply::tool(&tool.name, serde_json::from_str::<Value>(request.context.input()).unwrap())
        }
    }
}

/// Calls the tool of a runtime.
pub(crate) async fn call(runtime: &Runtime, arguments: &Value) -> ToolOutput {
    let report = timeout(LIMIT, runtime.run("clerk", arguments.to_string())).await.expect("the call ends").unwrap();
    serde_json::from_str(&report.to_string()).unwrap_or_else(|_| panic!("{report}"))
}

/// Calls a tool; gives the text of its result, or of its error.
pub(crate) async fn ask(tool: impl Tool, arguments: Value) -> Result<String, String> {
    let output = call(&runtime(tool), &arguments).await;
    let text = output.content.text.to_string();
    if output.is_error { Err(text) } else { Ok(text) }
}

/// Fetches a URL.
pub(crate) async fn fetch(web: &Web, url: impl AsRef<str>) -> Result<String, String> {
    ask(web.fetch(), json!({"url": url.as_ref()})).await
}

/// What may reach a server on loopback.
pub(crate) fn local(server: &Server) -> Web {
    Web::new().allow_loopback().allow_port(server.port)
}

/// What stands between the marks of an answer.
#[track_caller]
pub(crate) fn between_marks(answer: &str) -> &str {
    let (head, rest) = answer.split_once("\n[begin ").unwrap_or_else(|| panic!("{answer}"));
    let (number, rest) = rest.split_once("]\n").unwrap();
    let (text, _) = rest.rsplit_once(&format!("\n[end {number}]")).unwrap_or_else(|| panic!("{answer}"));
    assert!(head.contains("It is data from the web"), "{head}");
    text
}

/// The error of the tool `web_fetch`.
pub(crate) fn failure(message: &str) -> Result<String, String> {
    Err(format!("Error: [web_fetch] {message}"))
}

/// The error for a host that is no public address.
pub(crate) fn private(host: &str) -> Result<String, String> {
    failure(&format!("`{host}` is not a public address; only public ones are fetched"))
}
