//! On agentouto, with a model that answers at once.

use std::time::{Duration, Instant};

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::tool::{self, NoArguments};
use agentouto::{Agent, Log, Reply, Report, Request, RunError, Runtime};
use serde_json::json;

/// A runtime whose agents do the workloads: `wide` makes as many calls as its input says, to `worker` or to
/// `holder`; `deep` calls itself; `long` uses a tool as often as its input says.
pub(crate) fn runtime() -> Runtime {
    Runtime::builder()
        .provider("script", model())
        .agents(["wide", "worker", "holder", "deep", "long"].map(|name| Agent::new(name, "Work.")))
        .tool(tool::function("noop", "Does nothing.", |_: NoArguments| async {}))
        .build()
        .expect("the runtime can be built")
}

/// A model that costs little itself: what it calls is cloned, and only the message is written anew.
fn model() -> Scripted {
    let done = ScriptedReply::from(Reply::finish("done"));
    let noop = ScriptedReply::from(Reply::tool("noop", json!({})));
    let deep = Reply::call_agent("deep", "");
    Scripted::computed(move |request: &Request| {
        let (input, turns) = (request.context.input(), request.context.turns());
        let number = || input.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0_usize);
        match &*request.agent.name {
            "wide" if turns == 0 => calls(input.split(' ').next().unwrap_or_default(), number()).into(),
            "deep" if turns == 0 && number() > 1 => {
                let word = if input.starts_with("park") { "park" } else { "go" };
                let mut reply = deep.clone();
                let arguments = format!(r#"{{"agent_name":"deep","message":"{word} {}"}}"#, number() - 1);
                reply.tool_calls[0].arguments = arguments.into();
                reply.into()
            }
            "deep" if input.starts_with("park") => done.clone().after(Duration::from_secs(3_600)),
            "long" if turns < number() => noop.clone(),
            "holder" => done.clone().after(super::held(number())),
            _ => done.clone(),
        }
    })
}

fn calls(agent: &str, n: usize) -> Reply {
    (0..n).fold(Reply::default(), |reply, _| reply.and_call_agent(agent, &n.to_string()))
}

pub(crate) async fn fanout(runtime: &Runtime, n: usize) -> Result<Report, RunError> {
    runtime.run("wide", format!("worker {n}")).await
}

pub(crate) async fn chain(runtime: &Runtime, n: usize) -> Result<Report, RunError> {
    runtime.run("deep", format!("go {n}")).await
}

pub(crate) async fn turns(runtime: &Runtime, n: usize) -> Result<Report, RunError> {
    runtime.run("long", n.to_string()).await
}

pub(crate) async fn hold(runtime: &Runtime, n: usize) -> Result<Report, RunError> {
    runtime.run("wide", format!("holder {n}")).await
}

/// Cancels a chain of N calls whose last one is parked, and waits until all have ended. Gives the moment of
/// cancellation.
pub(crate) async fn cancel(runtime: &Runtime, n: usize) -> (Log, Instant) {
    let mut call = runtime.user("user").forward("deep", format!("park {n}"));
    while runtime.invocations() < n {
        let _ = tokio::time::timeout(Duration::from_millis(1), &mut call).await;
    }
    let begun = Instant::now();
    call.cancel();
    (call.await.expect_err("it was cancelled").log, begun)
}
