//! Cancelling a call ends everything below it. Exactly one outcome a Forward, whatever happens.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::tool::{self, NoArguments};
use agentouto::{
    BoxFuture, CallError, DeltaSink, EventKind, Events, Message, Provider, ProviderError, Reply, Report, Request,
    RunError, Runtime, RuntimeBuilder, ToolContext, ToolError, Usage,
};
use futures_util::poll;
use serde_json::json;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::pending_tool::pending_tool;
use crate::silent_actor::{SilentMessage, silent};
use crate::team::{With, let_all_tasks_run, odd_in_events, odd_in_log, on_threads, path, team};

/// A model whose agent `a` calls `b`, who opens the gate.
fn two_levels() -> Scripted {
    Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
        ("a", 0) => Reply::call_agent("b", "x"),
        ("b", 0) => Reply::tool("gate", json!({})),
        _ => Reply::text("done"),
    })
}

#[tokio::test]
async fn dropping_a_call_ends_tools_two_levels_below() {
    let (gate, mut keeper) = pending_tool();
    let runtime = team(two_levels(), ["a", "b"]).tool(gate).build().unwrap();
    let running = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.run("a", "go").await }
    });
    assert_eq!(keeper.next().await, "started");
    assert_eq!(runtime.invocations(), 2);
    running.abort();
    assert_eq!(keeper.next().await, "dropped");
    runtime.idle().await;
    assert_eq!(runtime.invocations(), 0);
}

#[tokio::test]
async fn a_cancelled_call_still_gives_its_log_in_which_every_forward_has_one_outcome() {
    let (gate, mut keeper) = pending_tool();
    let runtime = team(two_levels(), ["a", "b"]).tool(gate).build().unwrap();
    let mut call = runtime.user("alice").forward("a", "go");
    while !matches!(call.next_event().await.unwrap().kind, EventKind::ToolStart { .. }) {}
    call.cancel();
    let error = call.await.unwrap_err();
    assert_eq!(error.error, CallError::Cancelled);
    assert_eq!(runtime.invocations(), 0);
    assert_eq!([keeper.next().await, keeper.next().await], ["started", "dropped"]);
    let mut lines = path(&error.log);
    lines[2..].sort();
    let cancelled = ["a < b: error: the call was cancelled", "alice < a: error: the call was cancelled"];
    assert_eq!(
        (&lines[..2], &lines[2..]),
        (&["alice > a: go".to_owned(), "a > b: x".to_owned()][..], &cancelled.map(str::to_owned)[..])
    );
}

#[tokio::test]
async fn a_call_cancelled_before_it_is_sent_starts_nobody() {
    let runtime = team(two_levels(), ["a", "b"]).build().unwrap();
    let call = runtime.user("alice").forward("a", "go");
    call.cancel();
    assert_eq!(call.await.unwrap_err().error, CallError::Cancelled);
    assert_eq!(runtime.invocations(), 0);
}

#[tokio::test]
async fn a_model_and_tools_that_answer_at_once_do_not_keep_a_cancellation_from_being_seen() {
    let model = Scripted::computed(|_: &Request| Reply::tool("noop", json!({})));
    let noop = tool::function("noop", "", |_: NoArguments| async {});
    let runtime = team(model, ["a"]).tool(noop).build().unwrap();
    let call = runtime.user("alice").forward("a", "forever");
    let mut events = runtime.events(10);
    let running = tokio::spawn(call);
    assert!(events.next().await.is_some());
    running.abort();
    runtime.idle().await;
}

#[tokio::test]
async fn fault_45_a_request_to_a_model_is_dropped_and_what_is_known_of_its_cost_is_kept() {
    struct Endless(mpsc::UnboundedSender<&'static str>);
    impl Provider for Endless {
        fn reply<'a>(
            &'a self,
            _: &'a Request,
            deltas: &'a mut DeltaSink<'_>,
        ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
            struct Connection(mpsc::UnboundedSender<&'static str>);
            impl Drop for Connection {
                fn drop(&mut self) {
                    let _ = self.0.send("closed");
                }
            }
            Box::pin(async move {
                let _connection = Connection(self.0.clone());
                deltas.usage_so_far(Usage { input_tokens: 70, output_tokens: 7, ..Usage::default() });
                let _ = self.0.send("open");
                std::future::pending().await
            })
        }
    }
    let (sender, mut connection) = mpsc::unbounded_channel();
    let runtime =
        Runtime::builder().provider("p", Endless(sender)).agent(agentouto::Agent::new("a", "")).build().unwrap();
    let mut call = runtime.user("alice").forward("a", "go");
    while !matches!(call.next_event().await.unwrap().kind, EventKind::ModelRequest { .. }) {}
    assert_eq!(connection.recv().await, Some("open"));
    call.cancel();
    assert_eq!(connection.recv().await, Some("closed"));
    let mut kinds = Vec::new();
    while let Some(event) = call.next_event().await {
        kinds.push(event.kind);
    }
    let error = call.await.unwrap_err();
    let usage = Usage { input_tokens: 70, output_tokens: 7, ..Usage::default() };
    assert!(
        kinds.iter().any(|kind| matches!(kind, EventKind::ModelAborted { usage: Some(u), .. } if *u == usage)),
        "{kinds:?}"
    );
    assert_eq!(error.log.usage(), usage);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_46_a_cancellation_reaches_ten_thousand_calls_in_every_phase() {
    // Half of them are parked in their models, half wait for a call below them.
    let parked = Arc::new((AtomicUsize::new(0), Notify::new()));
    let seen = Arc::clone(&parked);
    let model = Scripted::computed(move |request: &Request| match &*request.agent.name {
        "wide" => (0..5_000).fold(Reply::default(), |reply, _| reply.and_call_agent("middle", "x")).into(),
        "middle" => Reply::call_agent("leaf", "x").into(),
        _ => {
            if seen.0.fetch_add(1, Ordering::SeqCst) == 4_999 {
                seen.1.notify_one();
            }
            ScriptedReply::from(Reply::text("never")).after(Duration::from_secs(3_600))
        }
    });
    let runtime = team(model, ["wide", "middle", "leaf"]).build().unwrap();
    let mut call = runtime.user("alice").forward("wide", "go");
    tokio::select! {
        () = parked.1.notified() => {}
        _ = &mut call => panic!("it cannot have ended"),
    }
    call.cancel();
    let log = call.await.unwrap_err().log;
    assert_eq!(runtime.invocations(), 0, "a call is over when all below it have ended");
    let forwards = log.messages().filter(|message| matches!(message, Message::Forward(_))).count();
    assert_eq!(
        (forwards, log.messages().count()),
        (10_001, 20_002),
        "nothing begins after a cancellation, and each call has its outcome"
    );
}

#[tokio::test]
async fn a_chain_of_ten_thousand_calls_is_cancelled_at_once() {
    let (gate, mut keeper) = pending_tool();
    let model = Scripted::computed(|request: &Request| match request.context.input().parse::<usize>() {
        Ok(0) => Reply::tool("gate", json!({})),
        Ok(left) => Reply::call_agent("a", &(left - 1).to_string()),
        Err(_) => Reply::text("not a number"),
    });
    let runtime = team(model, ["a"]).tool(gate).build().unwrap();
    let running = tokio::spawn(runtime.user("alice").forward("a", "10000"));
    assert_eq!(keeper.next().await, "started");
    assert_eq!(runtime.invocations(), 10_001);
    running.abort();
    assert_eq!(keeper.next().await, "dropped");
    runtime.idle().await;
}

/// A model whose agent `b` waits for `go` and then calls `c`, who counts its requests.
fn one_more_call(go: &Arc<Notify>, waits: &Arc<Notify>) -> (AndWait, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    (AndWait { go: Arc::clone(go), waits: Arc::clone(waits), asked: Arc::clone(&asked) }, asked)
}

struct AndWait {
    go: Arc<Notify>,
    waits: Arc<Notify>,
    asked: Arc<AtomicUsize>,
}

impl Provider for AndWait {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        _: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            match (&*request.agent.name, request.context.turns()) {
                ("tool", 0) => Ok(Reply::tool("drops", json!({}))),
                ("a", 0) => Ok(Reply::call_agent("b", "x")),
                ("b", 0) => {
                    self.waits.notify_one();
                    self.go.notified().await;
                    Ok(Reply::call_agent("c", "x"))
                }
                ("c", _) => {
                    self.asked.fetch_add(1, Ordering::SeqCst);
                    Ok(Reply::text("done"))
                }
                _ => Ok(Reply::text("done")),
            }
        })
    }
}

#[tokio::test]
async fn a_call_of_a_caller_that_is_dropped_reaches_two_levels_below_before_their_next_step() {
    let (go, waits) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (model, asked) = one_more_call(&go, &waits);
    let names = ["a", "b", "c"].map(|name| agentouto::Agent::new(name, ""));
    let runtime = Runtime::builder().provider("p", model).agents(names).build().unwrap();
    let mut calling = runtime.user("alice").caller().call_agent("a", "go");
    assert!(poll!(&mut calling).is_pending());
    waits.notified().await;
    // `b` is woken first, and polled before any invocation that is killed one after the other.
    go.notify_one();
    drop(calling);
    runtime.idle().await;
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_call_that_a_tool_drops_reaches_two_levels_below_before_their_next_step() {
    let (go, waits) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (model, asked) = one_more_call(&go, &waits);
    let drops = With("drops", move |context: ToolContext| {
        let (go, waits) = (Arc::clone(&go), Arc::clone(&waits));
        async move {
            let mut calling = context.caller.call_agent("a", "go");
            assert!(poll!(&mut calling).is_pending());
            waits.notified().await;
            go.notify_one();
            drop(calling);
            // The tool goes on, and with it the scope of all that it calls.
            let_all_tasks_run().await;
            Ok("".into())
        }
    });
    let names = ["tool", "a", "b", "c"].map(|name| agentouto::Agent::new(name, ""));
    let runtime = Runtime::builder().provider("p", model).agents(names).tool(drops).build().unwrap();
    let report = runtime.run("tool", "go").await.unwrap();
    assert_eq!((asked.load(Ordering::SeqCst), path(&report.log).len()), (0, 6));
}

#[test]
fn fault_47_a_cancellation_that_races_with_the_return_leaves_one_outcome() {
    on_threads(2, async {
        let open = Arc::new(Notify::new());
        let opened = Arc::clone(&open);
        let wait = With("wait", move |_| {
            let opened = Arc::clone(&opened);
            async move {
                opened.notified().await;
                Ok("".into())
            }
        });
        let model = Scripted::computed(|request: &Request| match request.context.turns() {
            0 => Reply::tool("wait", json!({})),
            _ => Reply::text("done"),
        });
        let runtime = team(model, ["a"]).tool(wait).build().unwrap();
        let (mut answered, mut cancelled) = (0, 0);
        let mut round = 0_u64;
        while round < 500 || answered == 0 || cancelled == 0 {
            let mut call = runtime.user("alice").forward("a", "go");
            while !matches!(call.next_event().await.unwrap().kind, EventKind::ToolStart { .. }) {}
            open.notify_one();
            // From here on the agent ends on the other thread. It is given more time in every round, and ever more.
            (0..(round % 100) << (round / 100)).for_each(|_| std::hint::spin_loop());
            call.cancel();
            let (line, log) = match call.await {
                Ok(report) => {
                    answered += 1;
                    (format!("alice < a: {report}"), report.log)
                }
                Err(error) => {
                    cancelled += 1;
                    assert_eq!(error.error, CallError::Cancelled);
                    ("alice < a: error: the call was cancelled".to_owned(), error.log)
                }
            };
            assert_eq!(path(&log), ["alice > a: go", &line]);
            round += 1;
        }
        println!("{answered} answered, {cancelled} cancelled");
    });
}

#[tokio::test]
async fn fault_48_an_answer_after_the_cancellation_is_dropped_and_observers_are_told() {
    let (actor, mut said) = silent().await;
    let runtime = Runtime::builder().actor("silent", "", actor.clone()).build().unwrap();
    let mut events = runtime.events(10);
    let running = tokio::spawn(runtime.user("alice").forward("silent", "go"));
    assert_eq!(said.recv().await, Some("asked"));
    running.abort();
    actor.cast(SilentMessage::Answer).unwrap();
    assert_eq!(said.recv().await, Some("answered"));
    let kinds: Vec<_> = std::iter::from_fn(|| events.try_next()).map(|event| event.kind).collect();
    assert!(
        matches!(&kinds[1], EventKind::Return { answer } if answer.result == Err(CallError::Cancelled)),
        "{kinds:?}"
    );
    assert!(matches!(&kinds[2], EventKind::LateReturn { sender } if &**sender == "silent"), "{kinds:?}");
    assert_eq!(kinds.len(), 3);
}

#[tokio::test]
async fn fault_48_an_answer_of_an_agent_after_the_cancellation_is_dropped_and_observers_are_told() {
    let call: Arc<Mutex<Option<BoxFuture<'static, _>>>> = Arc::default();
    let held = Arc::clone(&call);
    // The caller drops the call at the very moment at which the model answers.
    let model = Scripted::computed(move |_: &Request| {
        drop(held.lock().unwrap().take());
        Reply::text("too late")
    });
    let runtime = team(model, ["a"]).build().unwrap();
    let mut events = runtime.events(10);
    {
        let mut calling = runtime.user("alice").caller().call_agent("a", "go");
        assert!(poll!(&mut calling).is_pending());
        *call.lock().unwrap() = Some(calling);
    }
    runtime.idle().await;
    let kinds: Vec<_> = std::iter::from_fn(|| events.try_next()).map(|event| event.kind).collect();
    let [.., EventKind::LateReturn { sender }, EventKind::Return { answer }] = &kinds[..] else { panic!("{kinds:?}") };
    assert_eq!((&**sender, &answer.result), ("a", &Err(CallError::Cancelled)));
}

#[tokio::test(start_paused = true)]
async fn fault_49_what_a_tool_leaves_running_is_cancelled_when_the_tool_ends_and_not_only_when_the_run_does() {
    let (gate, mut keeper) = pending_tool();
    let (actor, mut said) = silent().await;
    let (sender, mut answers) = mpsc::unbounded_channel();
    let (end_tool, end_run) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let ended = Arc::clone(&end_tool);
    let leave = With("leave", move |context: ToolContext| {
        let (sender, ended) = (sender.clone(), Arc::clone(&ended));
        async move {
            for callee in ["b", "silent"] {
                let (sender, caller) = (sender.clone(), context.caller.clone());
                tokio::spawn(async move { sender.send((callee, caller.call_agent(callee, "x").await)) });
            }
            ended.notified().await;
            Ok("left".into())
        }
    });
    let ended = Arc::clone(&end_run);
    let wait = With("wait", move |_| {
        let ended = Arc::clone(&ended);
        async move {
            ended.notified().await;
            Ok("waited".into())
        }
    });
    let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
        ("a", 0) => Reply::tool("leave", json!({})),
        ("a", 1) => Reply::tool("wait", json!({})),
        ("a", _) => Reply::text("done"),
        _ => Reply::tool("gate", json!({})),
    });
    let runtime = team(model, ["a", "b"]).actor("silent", "", actor).tool(leave).tool(wait).tool(gate).build().unwrap();
    let running = tokio::spawn(runtime.user("alice").forward("a", "go"));
    assert_eq!((keeper.next().await, said.recv().await), ("started", Some("asked")));
    end_tool.notify_one();
    // The clock is paused: what is not cancelled would never be heard of.
    let mut left = Vec::new();
    for _ in 0..2 {
        left.push(timeout(Duration::from_secs(60), answers.recv()).await.expect("it is cancelled").unwrap());
    }
    left.sort_by_key(|(callee, _)| *callee);
    assert_eq!(left, [("b", Err(CallError::Cancelled)), ("silent", Err(CallError::Cancelled))]);
    assert_eq!((keeper.next().await, runtime.invocations()), ("dropped", 1), "the run goes on");
    end_run.notify_one();
    let report = running.await.unwrap().unwrap();
    assert_eq!((&*report.output, odd_in_log(&report.log), report.log.messages().count()), ("done", vec![], 6));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_54_a_shutdown_ends_twenty_thousand_calls_of_agents_and_an_actor() {
    let (actor, mut said) = silent().await;
    let model = Scripted::computed(move |request: &Request| match &*request.agent.name {
        "wide" => (0..10_000)
            .fold(Reply::default(), |reply, _| reply.and_call_agent("leaf", "x").and_call_agent("silent", "x"))
            .into(),
        _ => ScriptedReply::from(Reply::text("never")).after(Duration::from_secs(3_600)),
    });
    let runtime = team(model, ["wide", "leaf"]).actor("silent", "", actor).build().unwrap();
    let mut events = runtime.events(1_000_000);
    let running = tokio::spawn(runtime.user("alice").forward("wide", "go"));
    for _ in 0..10_000 {
        assert_eq!(said.recv().await, Some("asked"));
    }
    runtime.shutdown().await;
    assert_eq!(runtime.invocations(), 0);
    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        seen.push(event);
    }
    assert_eq!((odd_in_events(&seen), events.lost()), (vec![], 0));
    let error = running.await.unwrap().unwrap_err();
    assert_eq!((error.error, error.log.messages().count()), (CallError::Cancelled, 2 * 20_001));
}

/// Calls of an actor that does not answer.
mod a_call_of_an_actor_that_never_answers {
    use super::*;

    /// A call that the actor has got, and the events of its runtime.
    async fn parked() -> (Runtime, JoinHandle<Result<Report, RunError>>, Arc<Notify>, Events) {
        let (actor, mut said) = silent().await;
        let runtime = Runtime::builder().actor("silent", "", actor).build().unwrap();
        let events = runtime.events(10);
        let cancel = Arc::new(Notify::new());
        let cancelled = Arc::clone(&cancel);
        let mut call = runtime.user("alice").forward("silent", "go");
        let calling = tokio::spawn(async move {
            tokio::select! {
                ended = &mut call => return ended,
                () = cancelled.notified() => call.cancel(),
            }
            call.await
        });
        assert_eq!(said.recv().await, Some("asked"));
        (runtime, calling, cancel, events)
    }

    const LINES: [&str; 2] = ["alice > silent: go", "alice < silent: error: the call was cancelled"];

    fn check(ended: Result<Report, RunError>) {
        let error = ended.unwrap_err();
        assert_eq!((&error.error, path(&error.log)), (&CallError::Cancelled, LINES.map(str::to_owned).to_vec()));
    }

    fn check_events(mut events: Events) {
        let kinds: Vec<_> = std::iter::from_fn(|| events.try_next()).map(|event| event.kind).collect();
        let [EventKind::Forward { .. }, EventKind::Return { answer }] = &kinds[..] else { panic!("{kinds:?}") };
        assert_eq!(answer.result, Err(CallError::Cancelled));
    }

    // The clock is paused: a call that hangs is late at once.

    #[tokio::test(start_paused = true)]
    async fn ends_when_it_is_cancelled() {
        let (_runtime, calling, cancel, events) = parked().await;
        cancel.notify_one();
        check(timeout(Duration::from_secs(60), calling).await.expect("it ends").unwrap());
        check_events(events);
    }

    #[tokio::test(start_paused = true)]
    async fn ends_when_it_is_dropped() {
        let (runtime, calling, _, events) = parked().await;
        calling.abort();
        timeout(Duration::from_secs(60), runtime.idle()).await.expect("it ends");
        check_events(events);
    }

    #[tokio::test(start_paused = true)]
    async fn ends_when_the_runtime_is_shut_down() {
        let (runtime, calling, _, events) = parked().await;
        timeout(Duration::from_secs(60), runtime.shutdown()).await.expect("it ends");
        check(timeout(Duration::from_secs(60), calling).await.expect("it ends").unwrap());
        check_events(events);
    }
}

/// A call that is cancelled in each phase is over, with one outcome for each Forward, and nothing begins any more.
mod fault_46_a_call_is_cancelled {
    use super::*;

    /// Cancels a call of `a` in the phase that `reached` waits for. The clock is paused, so that all has come to rest.
    async fn check(runtime: Runtime, reached: impl Future, forwards: &[&str]) {
        let mut events = runtime.events(1_000);
        let mut call = runtime.user("alice").forward("a", "go");
        tokio::select! {
            biased;
            _ = &mut call => panic!("it cannot have ended"),
            _ = reached => {}
        }
        while events.try_next().is_some() {}
        call.cancel();
        let error = timeout(Duration::from_secs(60), call).await.expect("it ends").unwrap_err();
        assert_eq!((error.error, runtime.invocations()), (CallError::Cancelled, 0));
        assert_eq!(odd_in_log(&error.log), []);
        let lines = path(&error.log);
        assert_eq!(lines.iter().filter(|line| line.contains(" > ")).collect::<Vec<_>>(), forwards);
        tokio::time::sleep(Duration::from_secs(600)).await;
        let later: Vec<_> = std::iter::from_fn(|| events.try_next()).map(|event| event.kind).collect();
        let is_end = |kind: &EventKind| matches!(kind, EventKind::Return { .. } | EventKind::ModelAborted { .. });
        assert!(later.iter().all(is_end), "{later:?}");
    }

    /// An agent `a` whose model does this first.
    fn doing(reply: Reply) -> RuntimeBuilder {
        let model =
            Scripted::computed(move |request: &Request| match (&*request.agent.name, request.context.turns()) {
                ("a", 0) => reply.clone(),
                ("a", _) => Reply::text("done"),
                _ => Reply::tool("gate", json!({})),
            });
        team(model, ["a", "b"])
    }

    #[tokio::test(start_paused = true)]
    async fn before_its_agent_begins() {
        // Polled once, the call is sent; its agent, on the same thread, had no turn.
        check(doing(Reply::text("done")).build().unwrap(), async {}, &["alice > a: go"]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_model_replies() {
        let (sender, mut asked) = mpsc::unbounded_channel();
        let model = Scripted::computed(move |_: &Request| {
            sender.send(()).unwrap();
            ScriptedReply::from(Reply::call_agent("a", "again")).after(Duration::from_secs(60))
        });
        check(team(model, ["a"]).build().unwrap(), asked.recv(), &["alice > a: go"]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn while_a_tool_runs() {
        let (gate, mut keeper) = pending_tool();
        let runtime = doing(Reply::tool("gate", json!({}))).tool(gate).build().unwrap();
        check(runtime, keeper.next(), &["alice > a: go"]).await;
        assert_eq!(keeper.next().await, "dropped");
    }

    #[tokio::test(start_paused = true)]
    async fn while_a_tool_pauses_before_it_runs_again() {
        let (sender, mut runs) = mpsc::unbounded_channel();
        let net = With("net", move |_| {
            sender.send(()).unwrap();
            async { Err(ToolError::network("connection reset")) }
        });
        let runtime = doing(Reply::tool("net", json!({}))).tool(net).build().unwrap();
        check(runtime, runs.recv(), &["alice > a: go"]).await;
        assert!(runs.try_recv().is_err(), "it was not run again");
    }

    #[tokio::test(start_paused = true)]
    async fn while_a_function_blocks() {
        let (sender, mut started) = mpsc::unbounded_channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = Mutex::new(ended);
        let block = tool::blocking("block", "", move |_: NoArguments| {
            sender.send(()).unwrap();
            // Ends with the test.
            let _ = ended.lock().unwrap().recv();
        });
        let runtime = doing(Reply::tool("block", json!({}))).tool(block).build().unwrap();
        check(runtime, started.recv(), &["alice > a: go"]).await;
        drop(end);
    }

    #[tokio::test(start_paused = true)]
    async fn while_an_agent_is_waited_for() {
        let (gate, mut keeper) = pending_tool();
        let runtime = doing(Reply::call_agent("b", "x")).tool(gate).build().unwrap();
        check(runtime, keeper.next(), &["alice > a: go", "a > b: x"]).await;
        assert_eq!(keeper.next().await, "dropped");
    }

    #[tokio::test(start_paused = true)]
    async fn while_an_actor_is_asked() {
        let (actor, mut said) = silent().await;
        let runtime = doing(Reply::call_agent("silent", "x")).actor("silent", "", actor).build().unwrap();
        check(runtime, said.recv(), &["alice > a: go", "a > silent: x"]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn while_a_person_is_asked() {
        let (sender, mut asked) = mpsc::unbounded_channel();
        let person = move |_: Arc<agentouto::Forward>| {
            sender.send(()).unwrap();
            std::future::pending::<Result<&str, CallError>>()
        };
        let runtime = doing(Reply::call_agent("bob", "?")).user("bob", "", person).build().unwrap();
        check(runtime, asked.recv(), &["alice > a: go", "a > bob: ?"]).await;
    }
}

#[tokio::test]
async fn fault_53_after_a_shutdown_a_forward_is_answered_with_an_error() {
    let (gate, mut keeper) = pending_tool();
    let runtime = team(two_levels(), ["a", "b"]).tool(gate).build().unwrap();
    let running = tokio::spawn(runtime.user("alice").forward("a", "go"));
    assert_eq!(keeper.next().await, "started");
    runtime.shutdown().await;
    assert_eq!(runtime.invocations(), 0);
    assert_eq!(keeper.next().await, "dropped");
    assert_eq!(running.await.unwrap().unwrap_err().error, CallError::Cancelled);
    let error = runtime.run("a", "again").await.unwrap_err();
    assert_eq!(error.error, CallError::ShutDown);
    assert_eq!(path(&error.log).len(), 2);
}

#[tokio::test]
async fn a_child_process_does_not_outlive_the_call() {
    let (sender, mut pids) = mpsc::unbounded_channel();
    let sleep = tool::function("sleep", "", move |_: NoArguments| {
        let sender = sender.clone();
        async move {
            let mut child = tokio::process::Command::new("sleep").arg("1000").kill_on_drop(true).spawn()?;
            let _ = sender.send(child.id().unwrap_or_default());
            child.wait().await?;
            std::io::Result::Ok("woke")
        }
    });
    let runtime =
        team(Scripted::new().replies("a", [Reply::tool("sleep", json!({}))]), ["a"]).tool(sleep).build().unwrap();
    let running = tokio::spawn(runtime.user("alice").forward("a", "go"));
    let pid = pids.recv().await.unwrap();
    running.abort();
    runtime.idle().await;
    // The kill was sent; the kernel carries it out a little later, and tokio reaps later still.
    let is_dead = || std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "));
    while !is_dead() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_blocking_function_leaves_the_async_threads_free() {
    let (start, started) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    let block = tool::blocking("block", "", move |_: NoArguments| {
        let _ = start.send(());
        ended.lock().map_err(|error| error.to_string())?.recv().map_err(|error| error.to_string())?;
        Ok::<_, String>("unblocked")
    });
    let model = Scripted::new().replies("a", [Reply::tool("block", json!({})), Reply::text("done")]);
    let runtime = team(model, ["a"]).tool(block).build().unwrap();
    // This test has one thread. Were the function polled on it, nobody could let it end.
    let running = tokio::spawn(runtime.user("alice").forward("a", "go"));
    while started.try_recv().is_err() {
        tokio::task::yield_now().await;
    }
    end.send(()).unwrap();
    assert_eq!(&*running.await.unwrap().unwrap().output, "done");
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_though_another_one_of_the_same_runtime_is_parked() {
    let (gate, mut keeper) = pending_tool();
    let runtime = team(two_levels(), ["a", "b", "c"]).tool(gate).build().unwrap();
    let parked = tokio::spawn(runtime.user("alice").forward("a", "go"));
    assert_eq!(keeper.next().await, "started");
    let other = tokio::time::timeout(Duration::from_secs(60), runtime.run("c", "go")).await;
    assert_eq!(&*other.expect("it does not wait for the parked one").unwrap().output, "done");
    assert!(!parked.is_finished());
    parked.abort();
    runtime.idle().await;
}

#[tokio::test]
async fn calls_of_persons_are_counted_and_waited_for() {
    let (say, mut said) = mpsc::unbounded_channel();
    let door = Arc::new(Notify::new());
    let opened = Arc::clone(&door);
    let person = move |_: Arc<agentouto::Forward>| {
        let (say, opened) = (say.clone(), Arc::clone(&opened));
        async move {
            struct Leaving(mpsc::UnboundedSender<&'static str>);
            impl Drop for Leaving {
                fn drop(&mut self) {
                    let _ = self.0.send("left");
                }
            }
            let _leaving = Leaving(say.clone());
            let _ = say.send("asked");
            opened.notified().await;
            Ok("yes")
        }
    };
    let model = Scripted::computed(|request: &Request| match request.context.turns() {
        0 => Reply::call_agent("bob", "?"),
        _ => Reply::text("done"),
    });
    let runtime = team(model, ["a"]).user("bob", "A person.", person).build().unwrap();

    let alone = tokio::spawn(runtime.user("alice").forward("bob", "?"));
    assert_eq!(said.recv().await, Some("asked"));
    assert_eq!(runtime.invocations(), 1);
    {
        let mut idle = std::pin::pin!(runtime.idle());
        assert!(poll!(&mut idle).is_pending());
        door.notify_one();
        idle.await;
    }
    assert_eq!(said.try_recv(), Ok("left"), "whoever waited for idleness finds the person gone");
    assert_eq!(&*alone.await.unwrap().unwrap().output, "yes");

    let called = tokio::spawn(runtime.user("alice").forward("a", "go"));
    assert_eq!(said.recv().await, Some("asked"));
    assert_eq!(runtime.invocations(), 2);
    runtime.shutdown().await;
    assert_eq!((said.try_recv(), runtime.invocations()), (Ok("left"), 0));
    assert_eq!(called.await.unwrap().unwrap_err().error, CallError::Cancelled);
}
