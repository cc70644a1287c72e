//! An agent asks the person at the terminal before it acts: `cargo run --example human_in_the_loop`
//!
//! The person is a user with an answerer: a peer without a model, called like any other.

use std::sync::Arc;

use agentouto::providers::scripted::Scripted;
use agentouto::{Agent, CallError, ChatMessage, Forward, Reply, Request, Runtime};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // One person answers one question at a time, whoever asks.
    let terminal = Arc::new(Mutex::new(BufReader::new(tokio::io::stdin()).lines()));
    let ask = move |forward: Arc<Forward>| {
        let terminal = Arc::clone(&terminal);
        async move {
            let mut lines = terminal.lock().await;
            let question = format!("{} asks: {}\n> ", forward.sender, forward.content);
            let unreachable = |error: std::io::Error| CallError::failed(format!("the terminal is gone: {error}"));
            tokio::io::stdout().write_all(question.as_bytes()).await.map_err(unreachable)?;
            tokio::io::stdout().flush().await.map_err(unreachable)?;
            let line = lines.next_line().await.map_err(unreachable)?;
            line.ok_or_else(|| CallError::failed("nobody is at the terminal"))
        }
    };
    let runtime = Runtime::builder()
        .provider("script", Scripted::computed(buyer))
        .agent(Agent::new("buyer", "Buy what you are asked to, but never without the user's consent."))
        .user("user", "The person who pays. Ask before you spend money.", ask)
        .build()?;
    println!("{}", runtime.run("buyer", "a bicycle").await?);
    Ok(())
}

/// What a careful model would say.
fn buyer(request: &Request) -> Reply {
    match request.context.messages().last() {
        Some(ChatMessage::Tool { output, .. }) if output.content.text.trim().eq_ignore_ascii_case("yes") => {
            Reply::finish("I bought the bicycle.")
        }
        Some(ChatMessage::Tool { output, .. }) => {
            Reply::finish(&format!("I bought nothing. You said: {}", output.content))
        }
        _ => Reply::call_agent("user", "It costs 400 euros. Shall I buy it? (yes or no)"),
    }
}
