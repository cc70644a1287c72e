//! What the way to a model costs: `cargo bench --bench providers`
//!
//! - `sse`: bytes to events.
//! - `decode`: a long stream of each vendor's over loopback, beside bare `reqwest` that only reads the same bytes; and how
//!   often memory is allocated for each event, as printed lines.
//! - `encode`: the body of turn 1, of turn 1,000 written from nothing, and of turn 1,000 once more, as of the turns before
//!   in a run. Nothing is sent: the address is none.
//! - `calls`: calls at once over loopback HTTP, beside bare `reqwest` doing the same posts.

use std::alloc::System;
use std::hint::black_box;
use std::time::Duration;

use agentouto::providers::anthropic::Anthropic;
use agentouto::providers::google::Google;
use agentouto::providers::openai::OpenAi;
use agentouto::providers::openai_responses::OpenAiResponses;
use agentouto::{Agent, ChatMessage, Context, DeltaSink, Provider, Request, Runtime, ToolCall, ToolOutput, ToolSpec};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures_util::future::join_all;
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::runtime::Runtime as Tokio;
use workloads::http;
use workloads::loopback::{Answer, Server};

mod workloads;

/// The decoder is private; it needs of the crate no more than this.
#[allow(dead_code, unreachable_pub, reason = "it is used in part")]
#[path = "../src/providers/http/sse.rs"]
mod sse;

mod provider {
    pub(crate) use agentouto::{ProviderError, ProviderErrorKind};
}

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// How many pieces of text a stream has.
const PIECES: usize = 10_000;

fn sse(criterion: &mut Criterion) {
    let stream = chat();
    let mut group = criterion.benchmark_group("sse");
    group.throughput(Throughput::Bytes(stream.len() as u64));
    for size in [1_400, 16 << 10] {
        group.bench_function(BenchmarkId::new("chunks of", size), |bencher| {
            bencher.iter(|| {
                let mut decoder = sse::Decoder::default();
                let mut events = 0;
                for chunk in stream.as_bytes().chunks(size) {
                    decoder.feed(chunk);
                    while decoder.advance().expect("the stream is sound") {
                        black_box(decoder.event().data);
                        events += 1;
                    }
                }
                assert!(events > PIECES);
            });
        });
    }
    group.finish();
}

fn decode(criterion: &mut Criterion) {
    let tokio = Tokio::new().expect("tokio starts");
    let mut group = criterion.benchmark_group("decode");
    group.sample_size(20);
    for (name, stream) in
        [("openai", chat()), ("responses", responses()), ("anthropic", messages()), ("google", gemini())]
    {
        group.throughput(Throughput::Bytes(stream.len() as u64));
        let answer = Answer { content_type: "text/event-stream", body: stream, latency: Duration::ZERO };
        let server = tokio.block_on(async { Server::start(&answer) }).expect("it listens");
        let provider = provider(name, &server.address);
        let request = request(0);
        let ask = async || {
            let reply = provider.reply(&request, &mut DeltaSink::none()).await.expect("a reply");
            assert_eq!(reply.text.map(|text| text.len()), Some(PIECES * WORD.len()));
        };
        tokio.block_on(ask());
        let region = Region::new(ALLOCATOR);
        tokio.block_on(ask());
        let allocations = region.change().allocations as f64 / PIECES as f64;
        println!("decode/{name}: {allocations:.2} allocations for each event, reading and the server included");
        group.bench_function(BenchmarkId::new("agentouto", name), |bencher| {
            bencher.to_async(&tokio).iter(ask);
        });
        let client = reqwest::Client::new();
        group.bench_function(BenchmarkId::new("reqwest", name), |bencher| {
            bencher.to_async(&tokio).iter(|| async {
                let mut answer = client.post(&server.address).body("{}").send().await.expect("an answer");
                while let Some(chunk) = answer.chunk().await.expect("it is whole") {
                    black_box(chunk);
                }
            });
        });
    }
    group.finish();
}

fn encode(criterion: &mut Criterion) {
    let tokio = Tokio::new().expect("tokio starts");
    let mut group = criterion.benchmark_group("encode");
    for name in ["openai", "responses", "anthropic", "google"] {
        let provider = provider(name, "no address");
        let ask = |request: Request| {
            let provider = &provider;
            async move {
                let failed = provider.reply(&request, &mut DeltaSink::none()).await;
                assert!(failed.is_err());
                request
            }
        };
        for turns in [1, 1_000] {
            let request = request(turns);
            group.bench_function(BenchmarkId::new(format!("{name}/turn"), turns), |bencher| {
                bencher.to_async(&tokio).iter_batched(|| request.clone(), ask, BatchSize::SmallInput);
            });
        }
        let request = request(1_000);
        tokio.block_on(ask(request.clone()));
        group.bench_function(format!("{name}/turn 1000 again"), |bencher| {
            let request = tokio.block_on(ask(request.clone()));
            bencher.to_async(&tokio).iter(|| async {
                let failed = provider.reply(&request, &mut DeltaSink::none()).await;
                assert!(failed.is_err());
            });
        });
    }
    group.finish();
}

fn calls(criterion: &mut Criterion) {
    const CALLS: usize = 1_000;
    let tokio = Tokio::new().expect("tokio starts");
    let answer = Answer { content_type: "application/json", body: http::completion(), latency: Duration::ZERO };
    let server = tokio.block_on(async { Server::start(&answer) }).expect("it listens");
    let openai = OpenAi::new("sk-none").base_url(&server.address);
    let agent = Agent::new("worker", "Work.").model("m");
    let runtime = Runtime::builder().provider("openai", openai).agent(agent).build().expect("the runtime can be built");
    let client = reqwest::Client::new();
    let mut group = criterion.benchmark_group("calls");
    group.sample_size(20).throughput(Throughput::Elements(CALLS as u64));
    group.bench_function(BenchmarkId::new("agentouto", CALLS), |bencher| {
        bencher.to_async(&tokio).iter(|| async {
            let caller = runtime.user("bench").caller();
            let answers = join_all((0..CALLS).map(|nth| caller.call_agent("worker", nth.to_string()))).await;
            assert!(answers.iter().all(Result::is_ok));
        });
    });
    group.bench_function(BenchmarkId::new("reqwest", CALLS), |bencher| {
        bencher.to_async(&tokio).iter(|| async {
            let posts = (0..CALLS).map(|nth| tokio::spawn(http::post(client.clone(), server.address.clone(), nth)));
            let answers = join_all(posts).await;
            assert!(answers.iter().all(|answer| matches!(answer, Ok(Ok(_)))));
        });
    });
    group.finish();
}

fn provider(name: &str, address: &str) -> Box<dyn Provider> {
    match name {
        "openai" => Box::new(OpenAi::keyless(address)),
        "responses" => Box::new(OpenAiResponses::keyless(address)),
        "anthropic" => Box::new(Anthropic::keyless(address)),
        _ => Box::new(Google::keyless(address)),
    }
}

/// A request after so many turns, each a tool call and its result.
fn request(turns: usize) -> Request {
    let content = "What came of it, in a sentence or two that are as long as such results are.";
    let turn = |nth: usize| {
        let call = ToolCall::new(format!("call_{nth}"), "search", "{\"query\":\"peers\"}");
        let said = ChatMessage::Assistant {
            text: Some("Let me see.".into()),
            reasoning: None,
            attachments: Vec::new(),
            tool_calls: vec![call],
            opaque: None,
        };
        let output = ToolOutput { content: content.into(), is_error: false };
        let found = ChatMessage::Tool { id: format!("call_{nth}").into(), name: "search".into(), output };
        [said, found]
    };
    let messages: Vec<ChatMessage> =
        std::iter::once(ChatMessage::user("Find out.")).chain((0..turns).flat_map(turn)).collect();
    let parameters = json!({"type": "object", "properties": {}});
    let tool = ToolSpec { name: "search".into(), description: "Search.".into(), parameters };
    let agent = Agent::new("a", "").model("m");
    Request::new(agent, Context::with_messages("You are \"a\".", messages), [tool])
}

/// What every piece says.
const WORD: &str = "peers ";

fn events(pieces: impl Iterator<Item = (&'static str, Value)>) -> String {
    let event = |(name, data): (&str, Value)| match name {
        "" => format!("data: {data}\n\n"),
        name => format!("event: {name}\ndata: {data}\n\n"),
    };
    pieces.map(event).collect()
}

fn repeated(piece: (&'static str, Value)) -> impl Iterator<Item = (&'static str, Value)> {
    std::iter::repeat_n(piece, PIECES)
}

fn chat() -> String {
    let chunk = |delta: Value, finish: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish});
        (
            "",
            json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "service_tier": "default", "system_fingerprint": "fp_1", "choices": [choice], "usage": null}),
        )
    };
    events(repeated(chunk(json!({"content": WORD}), None)).chain([chunk(json!({}), Some("stop"))])) + "data: [DONE]\n\n"
}

fn responses() -> String {
    let item = json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []});
    let added = json!({"type": "response.output_item.added", "output_index": 0, "item": item, "sequence_number": 1});
    let delta = json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0,
        "delta": WORD, "logprobs": [], "sequence_number": 2, "obfuscation": "x1y2"});
    let done = json!({"type": "response.completed", "response": {"status": "completed", "output": [], "usage": null}});
    let begun = ("response.output_item.added", added);
    let ended = ("response.completed", done);
    events([begun].into_iter().chain(repeated(("response.output_text.delta", delta))).chain([ended]))
}

fn messages() -> String {
    let start = json!({"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 9}}});
    let block = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
    let delta = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": WORD}});
    let end = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}});
    let begun = [("message_start", start), ("content_block_start", block)].into_iter();
    let ended = [("message_delta", end), ("message_stop", json!({"type": "message_stop"}))];
    events(begun.chain(repeated(("content_block_delta", delta))).chain(ended))
}

fn gemini() -> String {
    let chunk = |finish: Option<&str>| {
        let content = json!({"parts": [{"text": if finish.is_some() { "" } else { WORD }}], "role": "model"});
        let usage = json!({"promptTokenCount": 9, "candidatesTokenCount": 9, "totalTokenCount": 18});
        let mut candidate = json!({"content": content, "index": 0});
        if let Some(word) = finish {
            candidate["finishReason"] = word.into();
        }
        ("", json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r"}))
    };
    events(repeated(chunk(None)).chain([chunk(Some("STOP"))]))
}

criterion_group!(benches, sse, decode, encode, calls);
criterion_main!(benches);
