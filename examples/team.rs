//! Three peers write a report: `cargo run --example team -- "AI in 2026"`
//!
//! Offline and on a script by default. With a real model when a key is in the environment:
//!
//! | `AGENTOUTO_PROVIDER` | key | address, if not the vendor's | default of `AGENTOUTO_MODEL` |
//! |---|---|---|---|
//! | `openai_responses` | `OPENAI_API_KEY` | `OPENAI_BASE_URL` | `gpt-5.6` |
//! | `openai` (Chat Completions) | `OPENAI_API_KEY` | `OPENAI_BASE_URL` | `gpt-5.6` |
//! | `anthropic` | `ANTHROPIC_API_KEY` | `ANTHROPIC_BASE_URL` | `claude-sonnet-5-5` |
//! | `google` | `GEMINI_API_KEY` or `GOOGLE_API_KEY` | `GOOGLE_GEMINI_BASE_URL` | `gemini-3.8-flash` |
//!
//! Without `AGENTOUTO_PROVIDER`, the first of them whose key is set; at another address than OpenAI's own, `openai`.

use std::env::{var, var_os};
use std::time::Duration;

use agentouto::providers::anthropic::Anthropic;
use agentouto::providers::google::Google;
use agentouto::providers::openai::OpenAi;
use agentouto::providers::openai_responses::OpenAiResponses;
use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::{Agent, CallTree, EventKind, Message, Reply, Runtime, RuntimeBuilder};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let topic = std::env::args().nth(1).unwrap_or_else(|| "why peers need no manager".to_owned());
    let (builder, model) = with_provider(Runtime::builder())?;
    let model = var("AGENTOUTO_MODEL").unwrap_or_else(|_| model.to_owned());
    let runtime = builder
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

/// The provider that the environment names, and a model of its.
fn with_provider(builder: RuntimeBuilder) -> Result<(RuntimeBuilder, &'static str), Box<dyn std::error::Error>> {
    // Other servers speak Chat Completions.
    let openai = if var_os("OPENAI_BASE_URL").is_some() { "openai" } else { "openai_responses" };
    let keys = [
        ("OPENAI_API_KEY", openai),
        ("ANTHROPIC_API_KEY", "anthropic"),
        ("GEMINI_API_KEY", "google"),
        ("GOOGLE_API_KEY", "google"),
    ];
    let by_key = keys.iter().find(|(key, _)| var_os(key).is_some()).map(|(_, provider)| (*provider).to_owned());
    let name = var("AGENTOUTO_PROVIDER").ok().or(by_key).unwrap_or_else(|| "script".to_owned());
    Ok(match &*name {
        "openai" => (builder.provider(name, OpenAi::from_env()?), "gpt-5.6"),
        "openai_responses" => (builder.provider(name, OpenAiResponses::from_env()?), "gpt-5.6"),
        "anthropic" => (builder.provider(name, Anthropic::from_env()?), "claude-sonnet-5-5"),
        "google" => (builder.provider(name, Google::from_env()?), "gemini-3.8-flash"),
        "script" => (builder.provider(name, script()), ""),
        other => return Err(format!("AGENTOUTO_PROVIDER is `{other}`; see the head of examples/team.rs").into()),
    })
}

fn script() -> Scripted {
    let slowly = |reply: Reply| ScriptedReply::from(reply).after(Duration::from_millis(300));
    let report = "Peers call whom they need. Nobody waits for a manager, and nobody is one.";
    let facts = "Facts: any peer may call any other; a call is one message; its answer is one.";
    let ask = Reply::call_agent("writer", facts);
    let check = Reply::call_agent("reviewer", report).usage(150, 40);
    let done = || Reply::finish(report);
    Scripted::new()
        .replies("researcher", [ask, done().usage(310, 24)].map(slowly))
        .replies("writer", [check, done().usage(220, 24)].map(slowly))
        .replies("reviewer", [slowly(Reply::finish("It is good.").usage(90, 6))])
}
