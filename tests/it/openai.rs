//! The OpenAI provider against a server on loopback that plays broken answers.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod faults;
mod requests;

use agentouto::providers::Streaming;
use agentouto::providers::openai::OpenAi;
use agentouto::{
    Agent, ChatMessage, Context, Delta, DeltaSink, EventKind, Provider, ProviderError, Reply, Request, ToolSpec,
};
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

#[tokio::test]
async fn the_answers_text_is_streamed_whether_the_model_ends_by_text_or_by_finish() {
    let arguments = |piece: &str| json!({ "tool_calls": [{ "index": 0, "function": { "arguments": piece } }] });
    let call = json!({ "tool_calls": [{ "index": 0, "id": "1", "function": { "name": "finish", "arguments": "" } }] });
    let by_finish = [
        delta(json!({ "content": "Let me end. " })),
        delta(call),
        delta(arguments("{\"mess")),
        delta(arguments("age\": \"It is \\")),
        delta(arguments("u00e9tude.\"}")),
        finish("tool_calls"),
    ];
    let by_text = [delta(json!({ "content": "It is " })), delta(json!({ "content": "étude." })), finish("stop")];
    for stream in [chunks(&by_finish), chunks(&by_text)] {
        let server = Server::start([Answer::events(format!("{stream}data: [DONE]\n\n")).in_bytes()]).await;
        let openai = OpenAi::new(KEY).base_url(&server.base_url).retries(0);
        let runtime = crate::team::team(openai, ["a"]).build().unwrap();
        let mut call = runtime.user("u").forward("a", "hello");
        let mut text = String::new();
        while let Some(event) = call.next_event().await {
            if let EventKind::ModelDelta { delta: Delta::Answer { text: piece, begins } } = event.kind {
                text = if begins { piece.to_string() } else { text + &piece };
            }
        }
        let report = call.await.unwrap();
        assert_eq!((&*text, &*report.output), ("It is étude.", "It is étude."));
    }
}
