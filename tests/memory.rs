//! What a hundred thousand calls leave behind: nothing. In a binary of its own, because it measures the process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::tool::{self, NoArguments};
use agentouto::{
    Agent, Arguments, BoxFuture, CallError, CallId, Caller, Content, Event, EventKind, Events, Incoming, ProviderError,
    ProviderErrorKind, Reply, Request, Runtime, Tool, ToolContext, ToolError, ToolSpec,
};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::json;

/// One test at a time, or each would measure the other.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn resident_mb() -> i64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<i64>().unwrap() * 4096 / 1_000_000
}

struct Serial;

impl Actor for Serial {
    type Msg = Incoming;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Incoming>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(&self, _: ActorRef<Incoming>, incoming: Incoming, (): &mut ()) -> Result<(), ActorProcessingErr> {
        for _ in 0..1_000 {
            incoming.caller.call_agent("a", "x").await?;
        }
        let before = resident_mb();
        for _ in 0..100_000 {
            incoming.caller.call_agent("a", "x").await?;
        }
        incoming.reply.send(Ok::<_, CallError>((resident_mb() - before).to_string()));
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_calls_one_after_the_other_within_one_call_leave_memory_flat() {
    let _alone = ALONE.lock().await;
    let (actor, stopped) = Actor::spawn(None, Serial, ()).await.unwrap();
    let runtime = Runtime::builder()
        .provider("fake", Scripted::computed(|_: &Request| Reply::text("ok")))
        .agent(Agent::new("a", "Work."))
        .actor("serial", "Calls.", actor.clone())
        .build()
        .unwrap();
    let grown = runtime.user("service").caller().call_agent("serial", "go").await.unwrap();
    println!("100,000 calls in a row: {grown} MB more");
    assert!(grown.text.parse::<i64>().unwrap() < 5, "{grown} MB");
    actor.stop(None);
    stopped.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_thousand_runs_one_after_the_other_leave_memory_flat() {
    let _alone = ALONE.lock().await;
    let model = Scripted::computed(|_: &Request| Reply::text("ok"));
    let runtime = Runtime::builder().provider("fake", model).agent(Agent::new("a", "Work.")).build().unwrap();
    let mut before = 0;
    for nth in 0..31_000 {
        if nth == 1_000 {
            before = resident_mb();
        }
        runtime.run("a", "go").await.unwrap();
    }
    let grown = resident_mb() - before;
    println!("30,000 runs in a row: {grown} MB more");
    assert!(grown < 5, "{grown} MB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_is_kept_after_its_run_leaves_memory_flat() {
    struct Keep(Arc<OnceLock<Caller>>);
    impl Tool for Keep {
        fn spec(&self) -> ToolSpec {
            ToolSpec { name: "keep".into(), description: "".into(), parameters: json!({"type": "object"}) }
        }
        fn call(&self, _: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
            self.0.set(context.caller).unwrap();
            Box::pin(async { Ok("kept".into()) })
        }
    }
    let _alone = ALONE.lock().await;
    let kept = Arc::default();
    let runtime = Runtime::builder()
        .provider("fake", Scripted::new().replies("a", [Reply::tool("keep", json!({})), Reply::text("done")]))
        .agent(Agent::new("a", "Work."))
        .tool(Keep(Arc::clone(&kept)))
        .build()
        .unwrap();
    runtime.run("a", "go").await.unwrap();
    let caller = kept.get().unwrap();
    let call = async || assert_eq!(caller.call_agent("a", "more").await, Err(CallError::Cancelled));
    for _ in 0..1_000 {
        call().await;
    }
    let before = resident_mb();
    for _ in 0..100_000 {
        call().await;
    }
    let grown = resident_mb() - before;
    println!("100,000 calls for a run that is over: {grown} MB more");
    assert!(grown < 5, "{grown} MB");
}

/// What befalls each call, drawn from the seed and the call's own id, so that threads change nothing.
struct Fate(u64);

impl Fate {
    fn of(seed: u64, call_id: CallId, turn: usize) -> Self {
        let mut hash = seed ^ turn as u64;
        for byte in call_id.to_string().bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        Self(hash ^ hash >> 29)
    }

    fn reply(&self, input: &str) -> ScriptedReply {
        let below = |agent: &str| Reply::call_agent(agent, "leaf");
        match (input, self.0 % 20) {
            ("leaf", 0) => ScriptedReply::panic("a model's panic"),
            ("leaf", 1) => ScriptedReply::error(ProviderError::new(ProviderErrorKind::Unavailable, "down")),
            ("leaf", 2..4) => ScriptedReply::from(Reply::text("late")).after(Duration::from_millis(self.0 >> 8 & 7)),
            ("leaf", _) => Reply::text("ok").into(),
            (_, 0) => ScriptedReply::panic("a model's panic"),
            (_, 1..8) => below("a").and_call_agent("b", "leaf").and_tool("shaky", json!({})).into(),
            (_, 8..12) => below("fragile").and_call_agent("a", "leaf").into(),
            (_, 12..16) => below("b").and_call_agent("fickle", "leaf").into(),
            _ => below("a").and_tool("fails", json!({})).and_call_agent("nobody", "leaf").into(),
        }
    }
}

/// An actor that now and then drops what it is asked, panics, is killed while it serves, or gives up on a call.
struct Peer {
    kills: bool,
    count: AtomicUsize,
}

impl Actor for Peer {
    type Msg = Incoming;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Incoming>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(&self, me: ActorRef<Incoming>, incoming: Incoming, (): &mut ()) -> Result<(), ActorProcessingErr> {
        match self.count.fetch_add(1, Ordering::Relaxed) % 50 {
            0 => drop(incoming),
            1 if self.kills => {
                let call = incoming.caller.call_agent("a", "leaf");
                me.kill();
                let _ = call.await;
            }
            2..20 => {
                // It sends the Forward and cancels it: sometimes before it began, sometimes while it runs.
                let mut call = Box::pin(incoming.caller.call_agent("a", "leaf"));
                let _ = futures_util::poll!(&mut call);
                drop(call);
                incoming.reply.send(Ok::<_, CallError>("changed my mind"));
            }
            _ => {
                let answer = incoming.caller.call_agent("a", "leaf").await;
                incoming.reply.send(answer);
            }
        }
        Ok(())
    }
}

/// Counts outcomes a call, from every event of the runtime.
async fn audit(mut events: Events) -> (HashMap<CallId, (u32, u32)>, u64) {
    let mut outcomes: HashMap<CallId, (u32, u32)> = HashMap::new();
    while let Some(Event { call_id, kind, .. }) = events.next().await {
        match kind {
            EventKind::Forward { .. } => outcomes.entry(call_id).or_default().0 += 1,
            EventKind::Return { .. } => outcomes.entry(call_id).or_default().1 += 1,
            _ => {}
        }
    }
    (outcomes, events.lost())
}

fn stormy(seed: u64) -> Runtime {
    let model = Scripted::computed(move |request: &Request| match request.context.turns() {
        0 => Fate::of(seed, request.call_id, 0).reply(request.context.input()),
        _ => Reply::text("done").into(),
    });
    let dice = AtomicU64::new(seed);
    let shaky = tool::function("shaky", "", move |_: NoArguments| {
        let roll = dice.fetch_add(1, Ordering::Relaxed);
        async move { assert!(!roll.is_multiple_of(3), "a tool's panic") }
    });
    Runtime::builder()
        .provider("fake", model)
        .agents(["a", "b"].map(|name| Agent::new(name, "Work.")))
        .tool(tool::function("fails", "", |_: NoArguments| async { Err::<(), _>("as always") }))
        .tool(shaky)
        .call_ids(CallId::seeded(seed))
        .build()
        .unwrap()
}

/// Puts a new actor in the place of one that has died.
async fn replace_if_dead(runtime: &Runtime, name: &'static str, actor: &mut Option<ActorRef<Incoming>>) {
    if actor.as_ref().is_none_or(|actor| actor.get_status() == ractor::ActorStatus::Stopped) {
        let peer = Peer { kills: name == "fragile", count: AtomicUsize::new(0) };
        let (spawned, _) = Actor::spawn(None, peer, ()).await.unwrap();
        runtime.leave(name);
        runtime.join_actor(name, "Unsteady.", spawned.clone()).unwrap();
        *actor = Some(spawned);
    }
}

/// Makes calls until there were `runs`, a tenth of which the user cancels, and gives how often each call began and ended.
async fn storm(seed: u64, runs: usize) -> (Runtime, HashMap<CallId, (u32, u32)>) {
    let runtime = stormy(seed);
    let audit = tokio::spawn(audit(runtime.events(4_000_000)));
    let (mut fickle, mut fragile) = (None, None);
    let user = runtime.user("tester");
    for batch in 0..runs / 100 {
        replace_if_dead(&runtime, "fickle", &mut fickle).await;
        replace_if_dead(&runtime, "fragile", &mut fragile).await;
        let calls = (0..100).map(|nth| {
            let mut call = user.caller().call_agent(if nth % 2 == 0 { "a" } else { "b" }, "root");
            let cancelled = (batch + nth) % 10 == 0;
            async move {
                if cancelled {
                    let _ = futures_util::poll!(&mut call);
                    tokio::task::yield_now().await;
                } else {
                    let _ = call.await;
                }
            }
        });
        futures_util::future::join_all(calls).await;
    }
    for actor in [fickle, fragile].into_iter().flatten() {
        actor.kill();
    }
    runtime.shutdown().await;
    let (outcomes, lost) = audit.await.unwrap();
    assert_eq!(lost, 0, "the audit saw everything");
    (runtime, outcomes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_panics_errors_kills_and_cancellations_leaves_one_outcome_each_and_nobody_alive() {
    let _alone = ALONE.lock().await;
    // The panics are meant; a hundred thousand backtraces are not.
    std::panic::set_hook(Box::new(|_| {}));
    let seed = std::env::var("AGENTOUTO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos().into()
    });
    println!("AGENTOUTO_SEED={seed}");
    drop(storm(seed, 5_000).await);
    let before = resident_mb();
    let (runtime, outcomes) = storm(seed, 40_000).await;
    let _ = std::panic::take_hook();
    println!("{} calls, seed {seed}", outcomes.len());
    assert!(outcomes.len() > 100_000, "{} calls", outcomes.len());
    let odd: Vec<_> = outcomes.iter().filter(|(_, outcome)| **outcome != (1, 1)).take(5).collect();
    assert!(odd.is_empty(), "seed {seed}: calls without exactly one outcome: {odd:?}");
    assert_eq!(runtime.invocations(), 0, "seed {seed}");
    drop((runtime, outcomes));
    let grown = resident_mb() - before;
    println!("{grown} MB more");
    assert!(grown < 30, "seed {seed}: {grown} MB more than after the first storm");
}
