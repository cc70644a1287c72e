//! The client that MCP's official conformance suite watches: an agent that uses every tool of the server at the address
//! given last, `cargo run --features mcp --example mcp_conformance_client -- http://127.0.0.1:8931/mcp`

use agentouto::providers::scripted::Scripted;
use agentouto::{Agent, ChatMessage, Reply, Request, Runtime, ToolSpec, mcp};
use serde_json::{Map, Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().next_back().filter(|last| last.starts_with("http")).ok_or("usage: … URL")?;
    let connections = mcp::Servers::new().server("suite", mcp::Server::http(url)).connect().await?;
    let runtime = Runtime::builder()
        .provider("script", Scripted::computed(uses_every_tool))
        .agent(Agent::new("tester", "Use every tool once."))
        .build()?;
    connections.join(&runtime)?;
    println!("{}", runtime.run("tester", "Use every tool once.").await?);
    connections.refused().iter().for_each(|refused| println!("refused: {refused:?}"));
    connections.close().await;
    Ok(())
}

/// What a thorough model would say.
fn uses_every_tool(request: &Request) -> Reply {
    let outputs: Vec<_> = request.context.messages().filter(|said| matches!(said, ChatMessage::Tool { .. })).collect();
    let tools = request.tools.iter().filter(|tool| !["call_agent", "finish"].contains(&&*tool.name));
    match outputs.is_empty() {
        true => tools.fold(Reply::default(), |reply, tool| reply.and_tool(&tool.name, arguments(tool))),
        false => Reply::finish(&format!("{outputs:?}")),
    }
}

/// Something of the right type for each parameter.
fn arguments(tool: &ToolSpec) -> Value {
    let value = |schema: &Value| match schema["type"].as_str() {
        _ if !schema["default"].is_null() => schema["default"].clone(),
        Some("number" | "integer") => json!(2),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => schema["enum"].get(0).cloned().unwrap_or(json!("text")),
    };
    let properties = tool.parameters["properties"].as_object();
    let arguments = properties.into_iter().flatten().map(|(name, schema)| (name.clone(), value(schema)));
    arguments.collect::<Map<_, _>>().into()
}
