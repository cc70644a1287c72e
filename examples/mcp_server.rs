//! A team that any MCP host can call: `cargo run --features mcp-server --example mcp_server`
//!
//! On standard input and output by default, as a host starts it; with `--http 127.0.0.1:8931` for hosts that connect, at
//! `http://127.0.0.1:8931/mcp`. An address that other machines reach needs a token in `AGENTOUTO_MCP_TOKEN`.
//! Offline and on a script: put a provider of your own in its place.

use std::time::Duration;

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::{Agent, Reply, Runtime, mcp};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::builder()
        .provider("script", script())
        .agents([
            Agent::new("researcher", "Find three facts on the topic, then have the writer make a report of them."),
            Agent::new("writer", "Write a report of at most 100 words, and have the 검토자 check it once."),
            Agent::new("검토자", "Say in one sentence what is wrong with a text, or that it is good."),
        ])
        .build()?;
    let server = mcp::serve(&runtime).name("report-team");

    let mut arguments = std::env::args().skip(1);
    let (option, address) = (arguments.next(), arguments.next());
    match (option.as_deref(), address) {
        (None, _) => server.stdio().await?,
        (Some("--http"), Some(address)) => {
            let mut http = server.http(address);
            if let Ok(token) = std::env::var("AGENTOUTO_MCP_TOKEN") {
                http = http.bearer_token(token);
            }
            let bound = http.bind().await?;
            // Standard output is the protocol's on stdio, so that it is kept free here as well.
            eprintln!("listening on {}", bound.url());
            bound.serve().await;
        }
        _ => return Err("usage: mcp_server [--http ADDRESS]".into()),
    }
    Ok(())
}

fn script() -> Scripted {
    let slowly = |reply: Reply| ScriptedReply::from(reply).after(Duration::from_millis(100));
    let report = "Peers call whom they need. Nobody waits for a manager, and nobody is one.";
    let facts = "Facts: any peer may call any other; a call is one message; its answer is one.";
    let done = || Reply::finish(report);
    Scripted::new()
        .replies_to_any("researcher", [Reply::call_agent("writer", facts), done()].map(slowly))
        .replies_to_any("writer", [Reply::call_agent("검토자", report), done()].map(slowly))
        .replies_to_any("검토자", [slowly(Reply::finish("It is good."))])
}
