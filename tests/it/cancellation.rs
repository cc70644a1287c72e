//! Cancelling a call ends everything below it. Exactly one outcome a Forward, whatever happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::tool::{self, NoArguments};
use agentouto::{
    BoxFuture, CallError, EventKind, Growth, Incoming, Message, Provider, ProviderError, Reply, Request, Runtime, Usage,
};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::json;
use tokio::sync::{Notify, mpsc};

use crate::gate::gate;
use crate::team::{path, team};

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
    let (gate, mut keeper) = gate();
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
    let (gate, mut keeper) = gate();
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
            growth: &'a mut Growth<'_>,
        ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
            struct Connection(mpsc::UnboundedSender<&'static str>);
            impl Drop for Connection {
                fn drop(&mut self) {
                    let _ = self.0.send("closed");
                }
            }
            Box::pin(async move {
                let _connection = Connection(self.0.clone());
                growth.usage_so_far(Usage { input_tokens: 70, output_tokens: 7, ..Usage::default() });
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
    let (gate, mut keeper) = gate();
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

#[tokio::test(start_paused = true)]
async fn fault_47_a_cancellation_that_races_with_the_return_leaves_one_outcome() {
    for cancel_after in [9, 10, 11] {
        let done = ScriptedReply::from(Reply::text("done")).after(Duration::from_millis(10));
        let runtime = team(Scripted::new().replies("a", [done]), ["a"]).build().unwrap();
        let mut call = runtime.user("alice").forward("a", "go");
        let in_time = tokio::time::timeout(Duration::from_millis(cancel_after), &mut call).await;
        let ended = match in_time {
            Ok(ended) => ended,
            Err(_) => {
                call.cancel();
                call.await
            }
        };
        let (result, log) = match ended {
            Ok(report) => (Ok(report.output), report.log),
            Err(error) => (Err(error.error), error.log),
        };
        assert_eq!(log.messages().count(), 2, "after {cancel_after}: {:?}", path(&log));
        match result {
            Ok(output) => assert_eq!((&*output, path(&log)[1].as_str()), ("done", "alice < a: done")),
            Err(error) => assert_eq!(
                (error, path(&log)[1].as_str()),
                (CallError::Cancelled, "alice < a: error: the call was cancelled")
            ),
        }
    }
}

/// An actor that keeps what it is asked until it is told to answer.
struct Keeper;

enum Letter {
    Ask(Incoming),
    Answer,
}

impl From<Incoming> for Letter {
    fn from(incoming: Incoming) -> Self {
        Self::Ask(incoming)
    }
}

impl Actor for Keeper {
    type Msg = Letter;
    type State = (mpsc::UnboundedSender<&'static str>, Vec<Incoming>);
    type Arguments = mpsc::UnboundedSender<&'static str>;

    async fn pre_start(&self, _: ActorRef<Letter>, sender: Self::Arguments) -> Result<Self::State, ActorProcessingErr> {
        Ok((sender, Vec::new()))
    }

    async fn handle(
        &self,
        _: ActorRef<Letter>,
        letter: Letter,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match letter {
            Letter::Ask(incoming) => {
                state.1.push(incoming);
                state.0.send("asked")?;
            }
            Letter::Answer => {
                let incoming = state.1.pop().expect("it was asked");
                incoming.reply.cancelled().await;
                incoming.reply.send(Ok::<_, CallError>("too late"));
                state.0.send("answered")?;
            }
        }
        Ok(())
    }
}

#[tokio::test]
async fn fault_48_an_answer_after_the_cancellation_is_dropped_and_observers_are_told() {
    let (sender, mut keeper) = mpsc::unbounded_channel();
    let (actor, stopped) = Keeper::spawn(None, Keeper, sender).await.unwrap();
    let runtime = Runtime::builder().actor("keeper", "", actor.clone()).build().unwrap();
    let mut events = runtime.events(10);
    let running = tokio::spawn(runtime.user("alice").forward("keeper", "go"));
    assert_eq!(keeper.recv().await, Some("asked"));
    running.abort();
    actor.cast(Letter::Answer).unwrap();
    assert_eq!(keeper.recv().await, Some("answered"));
    let kinds: Vec<_> = std::iter::from_fn(|| events.try_next()).map(|event| event.kind).collect();
    assert!(
        matches!(&kinds[1], EventKind::Return { answer } if answer.result == Err(CallError::Cancelled)),
        "{kinds:?}"
    );
    assert!(matches!(&kinds[2], EventKind::LateReturn { sender } if &**sender == "keeper"), "{kinds:?}");
    assert_eq!(kinds.len(), 3);
    actor.stop(None);
    stopped.await.unwrap();
}

#[tokio::test]
async fn fault_49_what_a_tool_leaves_running_is_cancelled_when_the_tool_ends() {
    struct Leaver(mpsc::UnboundedSender<Result<String, CallError>>);
    impl agentouto::Tool for Leaver {
        fn spec(&self) -> agentouto::ToolSpec {
            agentouto::ToolSpec { name: "leave".into(), description: "".into(), parameters: json!({"type": "object"}) }
        }
        fn call(
            &self,
            _: agentouto::Arguments,
            context: agentouto::ToolContext,
        ) -> BoxFuture<'_, Result<agentouto::Content, agentouto::ToolError>> {
            let sender = self.0.clone();
            Box::pin(async move {
                tokio::spawn(async move {
                    let answer = context.caller.call_agent("b", "x").await;
                    let _ = sender.send(answer.map(|content| content.to_string()));
                });
                Ok("left".into())
            })
        }
    }
    let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
        ("a", 0) => Reply::tool("leave", json!({})).into(),
        ("a", _) => Reply::text("done").into(),
        _ => ScriptedReply::from(Reply::text("never")).after(Duration::from_secs(3_600)),
    });
    let (sender, mut answers) = mpsc::unbounded_channel();
    let runtime = team(model, ["a", "b"]).tool(Leaver(sender)).build().unwrap();
    assert_eq!(&*runtime.run("a", "go").await.unwrap().output, "done");
    assert_eq!(answers.recv().await, Some(Err(CallError::Cancelled)));
    runtime.idle().await;
}

#[tokio::test]
async fn fault_53_after_a_shutdown_a_forward_is_answered_with_an_error() {
    let (gate, mut keeper) = gate();
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
    let ended = std::sync::Mutex::new(ended);
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
    let (gate, mut keeper) = gate();
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
        assert!(futures_util::poll!(&mut idle).is_pending());
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
