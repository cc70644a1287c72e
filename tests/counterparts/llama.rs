//! llama.cpp's own server with random weights: what it sends is junk, but it is a real server. Its outputs do not repeat,
//! so nothing here compares them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentouto::{
    Agent, BoxFuture, CallError, DeltaSink, EventKind, Provider, ProviderError, ProviderErrorKind, Reply, Request,
    RunError, Runtime, ToolSpec, tool,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Notify;
use tokio::time::error::Elapsed;
use tokio::time::{sleep, timeout};

use crate::are_wanted;
use crate::ask::{GUARD, Manner, ask, request};
use crate::child::{Counterpart, data, installed};
use crate::wire::{Wire, provider};

/// The wire formats that it speaks.
fn wires() -> impl Iterator<Item = Wire> {
    Wire::ALL.iter().copied().filter(|wire| *wire != Wire::Gemini)
}

#[tokio::test]
async fn two_agents_of_junk_end_every_run_with_an_answer_or_one_typed_error() {
    if !are_wanted() {
        return;
    }
    let llama = Llama::start("team", 256, &[]).await;
    for wire in wires() {
        let mut seen = Seen::default();
        // What the agents do is left to chance: they get more runs until they have done all of it.
        for nth in 0..MOST_RUNS {
            if nth >= FEWEST_RUNS && seen.is_all() {
                break;
            }
            let team = team(wire, &llama);
            let result = run(&team, &mut seen).await;
            seen.end(result.unwrap_or_else(|_| panic!("{wire:?}: a run did not go on")));
        }
        eprintln!("{wire:?}: {seen:?}");
        // One run may fail before any of this has happened; not all of them.
        assert!(seen.is_all(), "{wire:?}: {seen:?}");
    }
}

#[tokio::test]
async fn a_context_that_is_too_long_is_named_so() {
    if !are_wanted() {
        return;
    }
    let llama = Llama::start("context", 256, &[]).await;
    for wire in wires() {
        for manner in Manner::BOTH {
            let asking = request(agent("a", wire), &"hello ".repeat(20_000));
            let error = ask(&*provider(wire, &llama.address), &asking, manner).await.result.unwrap_err();
            assert_eq!((error.kind, error.status), (ProviderErrorKind::ContextTooLong, Some(400)), "{wire:?}: {error}");
        }
    }
}

#[tokio::test]
async fn the_server_stops_within_a_second_after_a_reply_is_dropped() {
    if !are_wanted() {
        return;
    }
    let llama = Llama::start("dropped", 6000, &["endless"]).await;
    for wire in wires() {
        let provider = provider(wire, &llama.address);
        let begun = Notify::new();
        let mut observer = |_| begun.notify_one();
        let request = request(agent("a", wire), "hello");
        let mut deltas = DeltaSink::to(&mut observer);
        let dropped = tokio::select! {
            result = provider.reply(&request, &mut deltas) => panic!("{wire:?}: it ended: {result:?}"),
            () = begun.notified() => Instant::now(),
        };
        // By now the reply's future is dropped.
        llama.is_idle_within_a_second_of(dropped, wire).await;
    }
}

#[tokio::test]
async fn the_server_stops_within_a_second_after_a_call_is_cancelled_or_dropped() {
    if !are_wanted() {
        return;
    }
    let llama = Llama::start("cancelled", 6000, &["endless"]).await;
    for wire in wires() {
        let runtime = Runtime::builder().provider("llama", Shared(provider(wire, &llama.address)));
        let runtime = runtime.agent(agent("a", wire)).build().unwrap();
        for is_cancelled in [true, false] {
            let mut call = runtime.user("user").forward("a", "hello");
            while let Some(event) = timeout(GUARD, call.next_event()).await.unwrap() {
                if matches!(event.kind, EventKind::ModelDelta { .. }) {
                    break;
                }
            }
            assert!(llama.is_busy().await, "{wire:?}: it replies");
            let withdrawn = Instant::now();
            if is_cancelled {
                call.cancel();
                assert_eq!(timeout(GUARD, call).await.unwrap().unwrap_err().error, CallError::Cancelled, "{wire:?}");
            } else {
                drop(call);
            }
            llama.is_idle_within_a_second_of(withdrawn, wire).await;
        }
    }
}

pub(crate) struct Llama(Counterpart);

impl std::ops::Deref for Llama {
    type Target = Counterpart;

    fn deref(&self) -> &Counterpart {
        &self.0
    }
}

impl Llama {
    /// Serves a model in a file of this name, with at most `cap` tokens in a reply.
    pub(crate) async fn start(name: &str, cap: u32, options: &[&str]) -> Self {
        let mut command = Command::new(installed("venv/bin/python"));
        let file = installed("").join(format!("{name}.gguf"));
        command.arg(data("llama.py")).arg(file).arg(cap.to_string()).args(options);
        Self(Counterpart::start(command).await)
    }

    async fn is_busy(&self) -> bool {
        let slots = self.get("/slots").await;
        slots.as_array().unwrap().iter().any(|slot| slot["is_processing"] == true)
    }

    async fn is_idle_within_a_second_of(&self, withdrawn: Instant, wire: Wire) {
        while self.is_busy().await {
            assert!(withdrawn.elapsed() < Duration::from_secs(1), "{wire:?}: the server still works");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// What happened in some runs.
#[derive(Debug, Default)]
struct Seen {
    deltas: usize,
    calls_of_b: usize,
    tools: usize,
    finished: usize,
    withdrawn: usize,
    failed: Vec<String>,
}

impl Seen {
    /// The model was heard, the other agent called, and a tool used.
    fn is_all(&self) -> bool {
        self.deltas > 0 && self.calls_of_b > 0 && self.tools > 0
    }

    fn end(&mut self, result: Result<(), RunError>) {
        match result.map_err(|error| error.error) {
            Ok(()) => self.finished += 1,
            Err(CallError::Cancelled) => self.withdrawn += 1,
            Err(CallError::Provider { error, .. }) => self.failed.push(format!("{:?}: {error}", error.kind)),
            Err(error) => panic!("not what a server can cause: {error:?}"),
        }
    }
}

/// Runs the team once. Because junk may call junk for ever, the call is withdrawn after many steps. The pieces of a reply
/// are none: a reply ends by itself, and what it asks for is done only then.
async fn run(team: &Runtime, seen: &mut Seen) -> Result<Result<(), RunError>, Elapsed> {
    let mut call = team.user("user").forward("a", "Please begin.");
    let mut steps = 0;
    while let Some(event) = timeout(GUARD, call.next_event()).await? {
        match event.kind {
            EventKind::Forward { forward } if &*forward.receiver == "b" => seen.calls_of_b += 1,
            EventKind::ModelDelta { .. } => {
                seen.deltas += 1;
                continue;
            }
            EventKind::ToolEnd { error: None, .. } => seen.tools += 1,
            _ => {}
        }
        steps += 1;
        if steps == MOST_STEPS {
            call.cancel();
        }
    }
    timeout(GUARD, call).await.map(|result| result.map(drop))
}

/// Two agents, forced to use tools.
fn team(wire: Wire, llama: &Llama) -> Runtime {
    Runtime::builder()
        .provider("llama", Narrowed(provider(wire, &llama.address)))
        .agents(["a", "b"].map(|name| forced(agent(name, wire), wire)))
        .tool(tool::function("echo", "Says the same.", |echo: Echo| async move { echo.text }))
        .build()
        .unwrap()
}

/// What an agent is offered: at first `a` can only call `b`, and `b` only use `echo`; then both can finish too. All in a
/// few letters: the tools as they are allow any text, with which a model of junk would hardly ever be done.
fn narrowed(agent: &str, turns: usize) -> Arc<[ToolSpec]> {
    let word = json!({"type": "string", "maxLength": 8});
    let call_agent = json!({"agent_name": {"type": "string", "enum": ["b"]}, "message": word});
    let work = if agent == "a" { ("call_agent", call_agent) } else { ("echo", json!({ "text": word })) };
    let finish = ("finish", json!({ "message": word }));
    let tools = if turns == 0 { vec![work] } else { vec![work, finish] };
    let spec = |(name, properties): (&str, Value)| {
        let required: Vec<_> = properties.as_object().unwrap().keys().collect();
        let parameters = json!({"type": "object", "properties": properties, "required": required});
        ToolSpec { name: name.into(), description: "A tool.".into(), parameters }
    };
    tools.into_iter().map(spec).collect()
}

#[derive(Deserialize, JsonSchema)]
struct Echo {
    text: String,
}

fn agent(name: &str, wire: Wire) -> Agent {
    let agent = Agent::new(name, "You are junk.").model("random");
    // The others have no limit unless asked for.
    if wire == Wire::Messages { agent.max_output_tokens(6000) } else { agent }
}

/// The same agent, forced to use one tool at a time; the server does not always keep to one.
fn forced(agent: Agent, wire: Wire) -> Agent {
    match wire {
        Wire::Messages => agent.extra("tool_choice", json!({"type": "any", "disable_parallel_tool_use": true})),
        _ => agent.extra("tool_choice", "required").extra("parallel_tool_calls", false),
    }
}

/// A provider that is shared.
struct Shared(Arc<dyn Provider>);

impl Provider for Shared {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        self.0.reply(request, deltas)
    }
}

/// A provider whose model is offered the [`narrowed`] tools.
struct Narrowed(Arc<dyn Provider>);

impl Provider for Narrowed {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(async {
            let request = Request { tools: narrowed(&request.agent.name, request.context.turns()), ..request.clone() };
            self.0.reply(&request, deltas).await
        })
    }
}

const MOST_STEPS: usize = 100;
const FEWEST_RUNS: usize = 3;
const MOST_RUNS: usize = 12;
