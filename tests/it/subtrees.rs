//! One call below a held call is cancelled, and nothing else.

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::tool::NoArguments;
use agentouto::{Budget, Call, CallError, CallId, EventKind, Reply, Request, ToolContext};
use futures_util::StreamExt;
use serde_json::json;
use std::time::Duration;

use crate::silent_actor::silent;
use crate::team::{With, odd_in_log, on_threads, path, team};

/// `a` calls `b` and `c`; `b` calls itself ten levels deep, and waits.
fn model() -> Scripted {
    Scripted::computed(|request: &Request| -> ScriptedReply {
        match (&*request.agent.name, request.context.turns()) {
            ("a", 0) => Reply::call_agent("b", "10").and_call_agent("c", "go").into(),
            ("b", 0) => match request.context.input().parse::<u32>().unwrap() {
                0 => Reply::tool("wait", json!({})).into(),
                left => Reply::call_agent("b", &(left - 1).to_string()).into(),
            },
            ("c", _) => ScriptedReply::from(Reply::text("c is done")).after(Duration::from_secs(60)),
            _ => Reply::text("done").into(),
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_subtree_ends_and_its_sibling_goes_on() {
    let dropped = std::sync::Arc::new(());
    let held = std::sync::Arc::clone(&dropped);
    let wait = With("wait", move |_: ToolContext| {
        let held = std::sync::Arc::clone(&held);
        async move {
            let _held = held;
            std::future::pending().await
        }
    });
    let runtime = team(model(), ["a", "b", "c"]).tool(wait).build().unwrap();
    let mut call = runtime.user("u").forward("a", "go");
    let mut first = None;
    while let Some(event) = call.next_event().await {
        match event.kind {
            EventKind::Forward { forward } if &*forward.receiver == "b" && first.is_none() => {
                first = Some(event.call_id)
            }
            EventKind::ToolStart { .. } => break,
            _ => {}
        }
    }
    assert!(!call.cancel_below(CallId::random()) && !call.cancel_below(call.call_id()), "only calls below");
    assert!(call.cancel_below(first.unwrap()));
    let report = call.await.unwrap();
    assert_eq!(std::sync::Arc::strong_count(&dropped), 2, "the tool's future is gone; the tool has the other");
    let told = path(&report.log);
    assert!(told.contains(&"a < b: error: the call was cancelled".to_owned()), "{told:?}");
    assert!(told.contains(&"a < c: c is done".to_owned()), "{told:?}");
    assert_eq!(told.iter().filter(|line| line.contains("error: the call was cancelled")).count(), 11);
    assert!(odd_in_log(&report.log).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_call_of_an_actor_ends_too_and_the_actor_is_told() {
    let (actor, mut said) = silent().await;
    let model = Scripted::new().replies("a", [Reply::call_agent("slow", "?"), Reply::text("went on")]);
    let runtime = team(model, ["a"]).actor("slow", "", actor.clone()).build().unwrap();
    let mut call = runtime.user("u").forward("a", "go");
    let mut below = None;
    while below.is_none() {
        let event = call.next_event().await.unwrap();
        below =
            matches!(event.kind, EventKind::Forward { .. }).then_some(event.call_id).filter(|id| *id != call.call_id());
    }
    assert_eq!(said.recv().await, Some("asked"));
    assert!(call.cancel_below(below.unwrap()));
    assert_eq!(&*call.await.unwrap().output, "went on");
    actor.cast(crate::silent_actor::SilentMessage::Answer).unwrap();
    assert_eq!(said.recv().await, Some("answered"), "the port says that the call was cancelled");
    actor.stop(None);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_a_tool_makes_ends_when_the_tool_polls_it() {
    let model = Scripted::computed(|request: &Request| -> ScriptedReply {
        match (&*request.agent.name, request.context.turns()) {
            ("a", 0) => Reply::tool("ask", json!({})).into(),
            ("a", _) => Reply::text("done").into(),
            _ => ScriptedReply::from(Reply::text("late")).after(Duration::from_secs(3600)),
        }
    });
    let ask = agentouto::tool::function_with("ask", "", |_: NoArguments, context: ToolContext| async move {
        let error = context.caller.call_agent("b", "?").await.unwrap_err();
        assert_eq!(error, CallError::Cancelled);
    });
    let runtime = team(model, ["a", "b"]).tool(ask).build().unwrap();
    let mut call = runtime.user("u").forward("a", "go");
    let below = loop {
        match call.next_event().await.unwrap().kind {
            EventKind::Forward { forward } if &*forward.receiver == "b" => break forward.call_id,
            _ => {}
        }
    };
    call.cancel_below(below);
    assert_eq!(&*call.await.unwrap().output, "done");
}

/// `a` calls `b` by a tool, which gives it this time. `b` has a tool that blocks an async thread, until
/// the test has ended.
fn run_with_a_blocked_thread(time: Duration, cancel: impl Fn(&Call, CallId) + Send + 'static) {
    let model = Scripted::computed(|request: &Request| -> ScriptedReply {
        match (&*request.agent.name, request.context.turns()) {
            ("a", 0) => Reply::tool("ask", json!({})).into(),
            ("a", _) => Reply::text("went on").into(),
            _ => Reply::tool("block", json!({})).into(),
        }
    });
    let ask = With("ask", move |context: ToolContext| async move {
        let failed = context.caller.forward("b", "?").budget(Budget::new().time(time)).await.unwrap_err();
        Ok(failed.to_string().into())
    });
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let block = With("block", move |_: ToolContext| {
        let _ = gate.lock().unwrap().recv();
        std::future::ready(Ok("late".into()))
    });
    on_threads(2, async move {
        let runtime = team(model, ["a", "b"]).tool(ask).tool(block).build().unwrap();
        let mut call = runtime.user("u").forward("a", "go");
        while let Some(event) = call.next_event().await {
            match event.kind {
                EventKind::ToolStart { call: tool } if &*tool.name == "block" => cancel(&call, event.call_id),
                // The end of the tool that asked, although what it asked for still blocks its thread.
                EventKind::ToolEnd { .. } => break,
                _ => {}
            }
        }
        assert_eq!(&*call.await.unwrap().output, "went on");
        drop(release);
    });
}

#[test]
fn a_cancelled_call_below_is_not_held_up_by_a_blocked_thread() {
    run_with_a_blocked_thread(Duration::MAX, |call, below| assert!(call.cancel_below(below)));
}

#[test]
fn a_deadline_below_is_not_held_up_by_a_blocked_thread() {
    run_with_a_blocked_thread(Duration::from_millis(200), |_, _| {});
}

#[tokio::test]
async fn a_call_that_waits_for_its_start_never_starts() {
    const CALLS: usize = 1_000;
    let (actor, mut said) = silent().await;
    let model =
        Scripted::new().replies("a", [(0..CALLS).fold(Reply::default(), |reply, _| reply.and_call_agent("slow", "?"))]);
    let runtime = team(model, ["a"]).actor("slow", "", actor.clone()).build().unwrap();
    let mut call = runtime.user("u").forward("a", "go");
    let mut sent = Vec::new();
    while sent.len() <= CALLS {
        let event = call.next_event().await.unwrap();
        sent.extend(matches!(event.kind, EventKind::Forward { .. }).then_some(event.call_id));
    }
    assert!(said.len() < CALLS, "they start in batches");
    assert!(call.cancel_below(sent[CALLS]));
    for _ in 1..CALLS {
        assert_eq!(said.recv().await, Some("asked"));
    }
    crate::team::let_all_tasks_run().await;
    assert!(said.is_empty(), "one more was asked");
    call.cancel();
    let failed = call.await.unwrap_err();
    assert!(odd_in_log(&failed.log).is_empty());
    actor.stop(None);
}

#[tokio::test]
async fn a_call_and_a_runtimes_events_are_streams() {
    let runtime = team(Scripted::computed(|_: &Request| Reply::text("hello")), ["a"]).build().unwrap();
    let all = runtime.events(100);
    let call = runtime.user("u").forward("a", "go");
    let kinds: Vec<_> = call.map(|event| std::mem::discriminant(&event.kind)).collect().await;
    assert_eq!(kinds.len(), 4, "a Forward, a request, a reply, a Return");
    runtime.shutdown().await;
    assert_eq!(all.map(|event| std::mem::discriminant(&event.kind)).collect::<Vec<_>>().await, kinds);
    let mut call = runtime.user("u").forward("a", "go");
    while StreamExt::next(&mut call).await.is_some() {}
    assert!(call.await.is_err(), "the same value is the stream and the call");
}
