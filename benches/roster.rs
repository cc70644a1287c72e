//! What it costs to change a large team, and to be wrong about it: `cargo bench --bench roster`

use agentouto::providers::scripted::Scripted;
use agentouto::tool::{self, NoArguments};
use agentouto::{Agent, Reply, Request, Runtime, RuntimeBuilder};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use tokio::runtime::Runtime as Tokio;

const AGENTS: usize = 10_000;

fn fake(model: Scripted) -> RuntimeBuilder {
    Runtime::builder().provider("fake", model)
}

fn agents() -> impl Iterator<Item = Agent> {
    (0..AGENTS).map(|n| Agent::new(format!("agent number {n}"), "Works."))
}

/// Each joins by itself, and half of them leave again.
fn joining(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("join one by one");
    group.sample_size(10);
    group.bench_function(BenchmarkId::new("agents", AGENTS), |bencher| {
        bencher.iter(|| {
            let runtime = fake(Scripted::new()).build().expect("it is fit");
            agents().for_each(|agent| runtime.join(agent).expect("the name is free"));
            (0..AGENTS).step_by(2).for_each(|n| assert!(runtime.leave(&format!("agent number {n}"))));
            runtime
        });
    });
    group.bench_function(BenchmarkId::new("tools", AGENTS), |bencher| {
        bencher.iter(|| {
            let runtime = fake(Scripted::new()).build().expect("it is fit");
            for n in 0..AGENTS {
                let tool = tool::function(format!("tool_{n}"), "Works.", |_: NoArguments| async {});
                runtime.add_tool(tool).expect("the name is free");
            }
            (0..AGENTS).step_by(2).for_each(|n| assert!(runtime.remove_tool(&format!("tool_{n}"))));
            runtime
        });
    });
    group.finish();
}

/// One reply with a thousand calls of agents, or of tools, that do not exist.
fn unknown(criterion: &mut Criterion) {
    let tokio = Tokio::new().expect("tokio starts");
    let mut group = criterion.benchmark_group("a thousand unknown names");
    group.sample_size(10);
    for name in ["nobody", "agent number x"] {
        let agents_unknown = move |reply: Reply, n| reply.and_call_agent(&format!("{name} {n}"), "x");
        let tools_unknown = move |reply: Reply, n| reply.and_tool(&format!("{name} {n}"), serde_json::json!({}));
        let one = |wrong: Reply| {
            let model = Scripted::computed(move |request: &Request| match request.context.turns() {
                0 => wrong.clone(),
                _ => Reply::text("done"),
            });
            let tools = (0..AGENTS).map(|n| tool::function(format!("agent number {n}"), "", |_: NoArguments| async {}));
            tools.fold(fake(model), RuntimeBuilder::tool).agents(agents()).build().expect("it is fit")
        };
        for (what, wrong) in [
            ("agents", (0..1_000).fold(Reply::default(), agents_unknown)),
            ("tools", (0..1_000).fold(Reply::default(), tools_unknown)),
        ] {
            let runtime = one(wrong);
            group.bench_function(BenchmarkId::new(what, name), |bencher| {
                bencher
                    .to_async(&tokio)
                    .iter(|| async { runtime.run("agent number 1", "go").await.expect("an answer") });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, joining, unknown);
criterion_main!(benches);
