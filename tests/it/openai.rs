//! The OpenAI provider against a server on loopback that plays broken answers.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod faults;
mod requests;

use agentouto::providers::Streaming;
use agentouto::providers::openai::OpenAi;
use agentouto::{Agent, ChatMessage, Context, Delta, DeltaSink, Provider, ProviderError, Reply, Request, ToolSpec};
use serde_json::{Value, json};

use crate::server::{Answer, KEY, Server};

/// What an agent asks after `messages`.
pub(crate) fn request(agent: Agent, system: &str, messages: &[ChatMessage], tools: &[ToolSpec]) -> Request {
    Request::new(agent, Context::with_messages(system, messages), tools)
}

/// A reply as the context records it.
pub(crate) fn recorded(reply: Reply) -> ChatMessage {
    let Reply { text, reasoning, attachments, tool_calls, opaque, .. } = reply;
    ChatMessage::Assistant { text, reasoning, attachments, tool_calls, opaque }
}

pub(crate) fn hello() -> Request {
    request(Agent::new("a", "").model("m"), "", &[ChatMessage::user("hello")], &[])
}

/// What one answer becomes, and what was shown of it on the way.
async fn ask(answer: Answer) -> (Result<Reply, ProviderError>, Vec<Delta>) {
    let server = Server::start([answer]).await;
    ask_at(&OpenAi::new(KEY).base_url(&server.base_url).retries(0)).await
}

async fn ask_at(openai: &OpenAi) -> (Result<Reply, ProviderError>, Vec<Delta>) {
    let mut shown = Vec::new();
    let mut observer = |delta| shown.push(delta);
    let result = openai.reply(&hello(), &mut DeltaSink::to(&mut observer)).await;
    (result, shown)
}

/// The chunks of a stream, without `[DONE]`.
fn chunks(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
}

fn delta(delta: Value) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta }] })
}

fn finish(reason: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}
