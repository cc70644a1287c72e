//! A tool that runs only when the person at the terminal approves the exact call: `cargo run --example approval`
//!
//! Answer `yes`, `no: too expensive`, or `{"decision": "yes", "arguments": {"item": "bicycle", "euros": 300}}`. Without a
//! terminal the answers are `no: too expensive` and `yes`. The model follows a script, so no key is needed.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use agentouto::providers::scripted::Scripted;
use agentouto::{Agent, CallError, Forward, Reply, Runtime, ToolExt as _, tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader, stdin};
use tokio::sync::Mutex;

#[derive(Deserialize, JsonSchema)]
struct Order {
    item: String,
    euros: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let buy = tool::function("buy", "Buys a thing.", |order: Order| async move {
        format!("bought: {} for {} euros", order.item, order.euros)
    });
    // The time for the purchase does not include the time for the answer, because the limit is inside.
    let buy = buy.timeout(Duration::from_secs(30)).approved_by("human").within(Duration::from_secs(600));
    let order = |euros: u32| Reply::tool("buy", json!({"item": "bicycle", "euros": euros}));
    let script = Scripted::new().replies("buyer", [order(820), order(410), Reply::finish("That is all.")]);
    let runtime = Runtime::builder()
        .provider("script", script)
        .agent(Agent::new("buyer", "Buy what you are asked to."))
        .user("human", "The person who pays.", terminal())
        .tool(buy)
        .build()?;
    let report = runtime.run("buyer", "a bicycle").await?;
    for approval in report.log.approvals() {
        println!("{} on {} {}: {:?}", approval.by, approval.tool, json!(approval.arguments), approval.decision);
    }
    println!("{report}");
    Ok(())
}

/// The person at the terminal, who answers one question at a time.
fn terminal() -> impl agentouto::Answerer {
    let lines = Arc::new(Mutex::new(BufReader::new(stdin()).lines()));
    let scripted = Arc::new(Mutex::new(["no: too expensive", "yes"].into_iter()));
    move |question: Arc<Forward>| {
        let (lines, scripted) = (Arc::clone(&lines), Arc::clone(&scripted));
        async move {
            let mut lines = lines.lock().await;
            println!("\n{}", question.content);
            let answer = if std::io::stdin().is_terminal() {
                lines.next_line().await.map_err(|error| CallError::failed(error.to_string()))?
            } else {
                scripted.lock().await.next().map(str::to_owned)
            };
            let answer = answer.ok_or_else(|| CallError::failed("nobody is at the terminal"))?;
            println!("> {answer}");
            Ok(answer)
        }
    }
}
