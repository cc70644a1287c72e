//! Three peers write a report: `cargo run --example team`
//!
//! Offline and on a script by default. With a real model:
//! `OPENAI_API_KEY=… [OPENAI_BASE_URL=…] [AGENTOUTO_MODEL=gpt-5.2] cargo run --example team -- "AI in 2026"`

use std::time::Duration;

use agentouto::providers::openai::OpenAi;
use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::{Agent, CallTree, EventKind, Message, Reply, Runtime, RuntimeBuilder};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let topic = std::env::args().nth(1).unwrap_or_else(|| "why peers need no manager".to_owned());
    let model = std::env::var("AGENTOUTO_MODEL").unwrap_or_else(|_| "gpt-5.2".to_owned());
    let runtime = with_provider(Runtime::builder())?
        .agents([
            Agent::new("researcher", "Find three facts on the topic, then have the writer make a report of them.")
                .model(&*model),
            Agent::new("writer", "Write a report of at most 100 words, and have the reviewer check it once.")
                .model(&*model),
            Agent::new("reviewer", "Say in one sentence what is wrong with a text, or that it is good.").model(&*model),
        ])
        .build()?;

    let mut tree = CallTree::default();
    let mut call = runtime.user("user").forward("researcher", format!("Write a report on {topic}."));
    while let Some(event) = call.next_event().await {
        tree.record(&event);
        let depth = tree.call(event.call_id).map_or(0, |call| call.depth);
        match &event.kind {
            EventKind::Forward { forward } => println!("{:1$}{2}", "", depth * 4, Message::Forward(forward)),
            EventKind::Return { answer } => println!("{:1$}{2}", "", depth * 4, Message::Return(answer)),
            EventKind::ModelRequest { turn, .. } => println!("{:1$}  (turn {turn})", "", depth * 4),
            _ => {}
        }
    }
    let report = call.await?;
    println!("\n{tree}\n{report}");
    Ok(())
}

fn with_provider(builder: RuntimeBuilder) -> Result<RuntimeBuilder, Box<dyn std::error::Error>> {
    if std::env::var_os("OPENAI_API_KEY").is_some() {
        return Ok(builder.provider("openai", OpenAi::from_env()?));
    }
    let slowly = |reply: Reply| ScriptedReply::from(reply).after(Duration::from_millis(300));
    let report = "Peers call whom they need. Nobody waits for a manager, and nobody is one.";
    let script = Scripted::new()
        .replies(
            "researcher",
            [Reply::call_agent(
                "writer",
                "Facts: any peer may call any other; a call is one message; its answer is one.",
            )]
            .map(slowly),
        )
        .replies("researcher", [slowly(Reply::finish(report).usage(310, 24))])
        .replies(
            "writer",
            [
                slowly(Reply::call_agent("reviewer", report).usage(150, 40)),
                slowly(Reply::finish(report).usage(220, 24)),
            ],
        )
        .replies("reviewer", [slowly(Reply::finish("It is good.").usage(90, 6))]);
    Ok(builder.provider("script", script))
}
