//! A runtime whose one agent calls the tool that it is told to call, and says what came of it.

use std::path::PathBuf;
use std::time::Duration;

use agentouto::mcp::{Connections, ServerConfig, Servers};
use agentouto::providers::scripted::Scripted;
use agentouto::{Agent, ChatMessage, Reply, Request, Runtime, ToolOutput};
use serde_json::{Value, json};
use tokio::time::timeout;

/// Within this everything must have happened; nothing waits for it to pass.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Within a second what was asked of a server that is gone has failed; a busy machine gets as much again.
pub(crate) const SOON: Duration = Duration::from_secs(2);

/// The runtime.
pub(crate) fn runtime() -> Runtime {
    let clerk = Agent::new("clerk", "Calls the tool that you name.");
    Runtime::builder().provider("script", Scripted::computed(model)).agent(clerk).build().unwrap()
}

/// What the clerk says: on `tools` their names, on `schema of x` that of one, otherwise what came of the call that it was told
/// to make.
fn model(request: &Request) -> Reply {
    let last = request.context.messages().last();
    if let Some(ChatMessage::Tool { output, .. }) = last {
        return Reply::finish(&serde_json::to_string(output).unwrap());
    }
    if request.context.input() == "tools" {
        let names: Vec<&str> = request.tools.iter().map(|tool| &*tool.name).collect();
        return Reply::finish(&json!(names).to_string());
    }
    if let Some(name) = request.context.input().strip_prefix("schema of ") {
        let tool = request.tools.iter().find(|tool| &*tool.name == name).unwrap();
        return Reply::finish(&tool.parameters.to_string());
    }
    let order: Value = serde_json::from_str(request.context.input()).unwrap();
    Reply::tool(order["tool"].as_str().unwrap(), order["arguments"].clone())
}

/// What is said to the clerk.
pub(crate) fn order(tool: &str, arguments: Value) -> String {
    json!({"tool": tool, "arguments": arguments}).to_string()
}

/// Calls a tool.
pub(crate) async fn call(runtime: &Runtime, tool: &str, arguments: Value) -> ToolOutput {
    let report =
        timeout(2 * LIMIT, runtime.run("clerk", order(tool, arguments))).await.expect("the call ends").unwrap();
    serde_json::from_str(&report.to_string()).unwrap_or_else(|_| panic!("{report}"))
}

/// Has the hostile server do something; gives the text of what came of it.
pub(crate) async fn have(runtime: &Runtime, arguments: Value) -> String {
    call(runtime, "do", arguments).await.content.text.to_string()
}

/// The tools that an agent is offered, without those of the runtime.
pub(crate) async fn offered(runtime: &Runtime) -> Vec<String> {
    let report = runtime.run("clerk", "tools").await.unwrap();
    let names: Vec<String> = serde_json::from_str(&report.to_string()).unwrap();
    names.into_iter().filter(|name| !["call_agent", "finish"].contains(&name.as_str())).collect()
}

/// Waits until an agent is offered just these tools.
pub(crate) async fn until_offered(runtime: &Runtime, expected: &[&str]) {
    let waiting = async {
        while offered(runtime).await != expected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if timeout(LIMIT, waiting).await.is_err() {
        panic!("{:?} are offered, not {expected:?}", offered(runtime).await);
    }
}

/// The hostile server.
pub(crate) fn hostile(arguments: &[&str]) -> ServerConfig {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/hostile.py");
    ServerConfig::stdio("python3", [&[script], arguments].concat())
}

/// A runtime that has the tools of one server.
pub(crate) async fn with(server: ServerConfig) -> (Runtime, Connections) {
    let (runtime, connections) = (runtime(), Servers::new().server("srv", server).connect().await.unwrap());
    connections.add_to(&runtime).unwrap();
    (runtime, connections)
}

/// A folder of its own for a test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
