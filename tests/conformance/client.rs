//! The client that MCP's official conformance suite watches: an agent that uses every tool of the server at the address
//! given last, `cargo run --features mcp-client --example mcp_conformance_client -- http://127.0.0.1:8931/mcp`

use agentouto::providers::scripted::Scripted;
use agentouto::{Agent, ChatMessage, Reply, Request, Runtime, ToolSpec, mcp};
use serde_json::{Map, Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().next_back().filter(|last| last.starts_with("http")).ok_or("usage: … URL")?;
    // Where the suite says which calls it wants to see.
    let wanted: Value =
        serde_json::from_str(&std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default()).unwrap_or_default();
    let connections = mcp::Servers::new().server("suite", mcp::ServerConfig::http(url)).connect().await?;
    let runtime = Runtime::builder()
        .provider("script", Scripted::computed(move |request| thorough(request, &wanted)))
        .agent(Agent::new("tester", "Use every tool once."))
        .build()?;
    connections.add_to(&runtime)?;
    println!("{}", runtime.run("tester", "Use every tool once.").await?);
    connections.refused().iter().for_each(|refused| println!("refused: {refused:?}"));
    connections.close().await;
    Ok(())
}

/// What a thorough model would say.
fn thorough(request: &Request, wanted: &Value) -> Reply {
    let outputs: Vec<_> = request.context.messages().filter(|said| matches!(said, ChatMessage::Tool { .. })).collect();
    let tools = || request.tools.iter().filter(|tool| !["call_agent", "finish"].contains(&&*tool.name));
    match (outputs.is_empty(), wanted["toolCalls"].as_array()) {
        (false, _) => Reply::finish(&format!("{outputs:?}")),
        (true, Some(calls)) => calls.iter().fold(Reply::default(), |reply, call| {
            reply.and_tool(call["name"].as_str().unwrap_or_default(), call["arguments"].clone())
        }),
        (true, None) => tools().fold(Reply::default(), |reply, tool| {
            let other = tools().find(|other| other.name != tool.name);
            reply.and_tool(&tool.name, arguments(tool, other))
        }),
    }
}

/// Something of the right type for each parameter; for a `schema` that of another tool.
fn arguments(tool: &ToolSpec, other: Option<&ToolSpec>) -> Value {
    let value = |name: &str, schema: &Value| match (name, schema["type"].as_str()) {
        ("schema", _) => other.map_or(Value::Null, |other| other.parameters.clone()),
        (_, Some("number" | "integer")) => json!(2),
        (_, Some("boolean")) => json!(true),
        (_, Some("array")) => json!([]),
        (_, Some("object")) => json!({}),
        _ => schema["enum"].get(0).cloned().unwrap_or(json!("text")),
    };
    let properties = tool.parameters["properties"].as_object();
    let arguments = properties.into_iter().flatten().map(|(name, schema)| (name.clone(), value(name, schema)));
    arguments.collect::<Map<_, _>>().into()
}
