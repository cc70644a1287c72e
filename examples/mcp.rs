//! An agent works with the files of a folder, through an MCP server:
//! `cargo run --features mcp-client --example mcp -- /some/folder`
//!
//! The server is the official one for files, started by `npx`; a second argument and those after it are another command.

use agentouto::mcp::{ServerConfig, Servers};
use agentouto::providers::scripted::Scripted;
use agentouto::{Agent, ChatMessage, EventKind, Reply, Request, Runtime};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = std::fs::canonicalize(arguments.next().unwrap_or_else(|| ".".into()))?.display().to_string();
    let mut command: Vec<String> = arguments.collect();
    if command.is_empty() {
        command = ["npx", "-y", "@modelcontextprotocol/server-filesystem"].map(String::from).into();
    }
    command.push(folder.clone());

    let files = ServerConfig::stdio(&command[0], &command[1..]);
    let connections = Servers::new().server("files", files).connect().await?;
    let runtime = Runtime::builder()
        .provider("script", Scripted::computed(librarian))
        .agent(Agent::new("librarian", "Answer questions about the files, with the tools that you have."))
        .build()?;
    connections.add_to(&runtime)?;
    for tool in connections.tools() {
        println!("{}: {}", tool.tool, tool.description.split('.').next().unwrap_or_default());
    }

    let mut call = runtime.user("user").forward("librarian", folder);
    while let Some(event) = call.next_event().await {
        if let EventKind::ToolStart { call } = event.kind {
            println!("> {} {}", call.name, call.arguments);
        }
    }
    println!("{}", call.await?);
    connections.close().await;
    Ok(())
}

/// What a model would say that looks into a folder.
fn librarian(request: &Request) -> Reply {
    match request.context.messages().last() {
        Some(ChatMessage::Tool { output, .. }) if output.is_error => {
            Reply::finish(&format!("I cannot: {}", output.content))
        }
        Some(ChatMessage::Tool { output, .. }) => {
            Reply::finish(&format!("There are {} entries.", output.content.text.lines().count()))
        }
        _ => Reply::tool("list_directory", json!({"path": request.context.input()})),
    }
}
