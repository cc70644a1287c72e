//! What it costs to read a tool's arguments, beside plain `serde_json`: `cargo bench --bench arguments`
//!
//! Through the public API: a hundred turns, each with a tool call whose arguments have that many bytes. The smallest
//! size tells what a turn costs without them.

use agentouto::providers::scripted::Scripted;
use agentouto::{Agent, Reply, Request, Runtime, ToolCall, ToolSpec, tool};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};
use tokio::runtime::Runtime as Tokio;

/// How many turns one measured run has.
const TURNS: usize = 100;

fn runtime(arguments: &str) -> Runtime {
    let call = ToolCall::new("", "take", arguments);
    let take = Reply { tool_calls: vec![call], ..Reply::default() };
    let model = Scripted::computed(move |request: &Request| match request.context.turns() {
        TURNS => Reply::text("done"),
        _ => take.clone(),
    });
    let spec = ToolSpec { name: "take".into(), description: "Takes.".into(), parameters: json!({"type": "object"}) };
    let take = tool::from_spec(spec, |_| std::future::ready(""));
    Runtime::builder()
        .provider("script", model)
        .agent(Agent::new("a", "Work."))
        .tool(take)
        .build()
        .expect("it is built")
}

fn arguments(criterion: &mut Criterion) {
    let tokio = Tokio::new().expect("tokio starts");
    let mut group = criterion.benchmark_group("arguments");
    for size in [0, 100, 10_000, 900_000] {
        let written = json!({ "text": "x".repeat(size), "numbers": (0..size / 100).collect::<Vec<_>>() }).to_string();
        let runtime = runtime(&written);
        group.throughput(Throughput::Bytes((written.len() * TURNS) as u64));
        group.bench_function(BenchmarkId::new("agentouto", written.len()), |bencher| {
            bencher.to_async(&tokio).iter(|| runtime.run("a", "go"));
        });
        group.bench_function(BenchmarkId::new("serde_json", written.len()), |bencher| {
            bencher.iter(|| (0..TURNS).map(|_| serde_json::from_str::<Value>(&written)).collect::<Result<Vec<_>, _>>());
        });
    }
    group.finish();
}

criterion_group!(benches, arguments);
criterion_main!(benches);
