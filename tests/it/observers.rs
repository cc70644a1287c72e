//! What can be observed of a run, and that observing never gets in its way.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::tool::{self, NoArguments};
use agentouto::{
    Agent, Call, CallError, CallId, CallTree, Delta, Event, EventKind, Events, ProviderError, ProviderErrorKind, Reply,
    Request, Runtime, StopReason, Usage,
};
use futures_util::poll;
use serde_json::json;
use tokio::time::timeout;

use crate::pending_tool::pending_tool;
use crate::team::{odd_in_events, on_threads, path, team};

fn searching() -> Runtime {
    let model = Scripted::new()
        .replies("a", [Reply::tool("search", json!({"q": 1})).usage(10, 1), Reply::call_agent("b", "x").usage(20, 2)])
        .replies("a", [ScriptedReply::from(Reply::finish("done").usage(30, 3)).in_pieces(["do", "ne"])])
        .replies("b", [Reply::text("ok").usage(5, 5)]);
    team(model, ["a", "b"]).tool(tool::function("search", "", |_: NoArguments| async { "found" })).build().unwrap()
}

/// One word for each event.
fn word(event: &Event) -> &'static str {
    match &event.kind {
        EventKind::Forward { .. } => "forward",
        EventKind::Return { .. } => "return",
        EventKind::ModelRequest { .. } => "request",
        EventKind::ModelDelta { .. } => "delta",
        EventKind::ModelReply { .. } => "reply",
        EventKind::ToolStart { .. } => "start",
        EventKind::ToolEnd { .. } => "end",
        _ => "other",
    }
}

#[tokio::test]
async fn every_step_is_an_event_with_its_call_its_parent_and_a_growing_number() {
    let mut call = searching().user("alice").forward("a", "go");
    let mut events = Vec::new();
    while let Some(event) = call.next_event().await {
        events.push(event);
    }
    assert_eq!(&*call.await.unwrap().output, "done");
    assert_eq!(
        events.iter().map(word).collect::<Vec<_>>(),
        [
            "forward", "request", "reply", "start", "end", "request", "reply", "forward", "request", "reply", "return",
            "request", "delta", "delta", "delta", "delta", "reply", "return"
        ]
    );
    assert!(events.is_sorted_by(|one, two| one.sequence < two.sequence));
    let root = events[0].call_id;
    let child = &events[7];
    assert_eq!((events[0].parent, child.parent), (None, Some(root)));
    assert!(events.iter().all(|event| event.call_id == root || event.call_id == child.call_id));
    assert!(matches!(&events[12].kind, EventKind::ModelDelta { delta: Delta::Text(text) } if &**text == "do"));
    assert!(matches!(&events[6].kind, EventKind::ModelReply { stop_reason: StopReason::ToolCalls, tool_calls: 1, .. }));

    let mut tree = CallTree::default();
    events.iter().for_each(|event| tree.record(event));
    assert_eq!(tree.to_string(), "a (60 + 6 tokens): done\n  b (5 + 5 tokens): ok\n");
    assert_eq!((tree.calls()[0].tools, tree.calls()[0].turns), (1, 3));
}

#[tokio::test]
async fn all_that_passes_a_door_or_is_observed_survives_serialisation() {
    let model = Scripted::computed(|request: &Request| {
        let wire = serde_json::to_string(request).unwrap();
        let back: Request = serde_json::from_str(&wire).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), wire);
        assert!(back.context.messages().eq(request.context.messages()));
        let reply = match request.context.turns() {
            0 => Reply::tool("search", json!({"q": 1}))
                .and_call_agent("nobody", "x")
                .and_call_agent("b", "x")
                .usage(1, 2),
            _ => Reply::finish("done"),
        };
        assert_eq!(serde_json::from_str::<Reply>(&serde_json::to_string(&reply).unwrap()).unwrap(), reply);
        reply
    });
    let search = tool::function("search", "", |_: NoArguments| async { Err::<(), _>("nothing found") });
    let runtime = team(model, ["a"]).tool(search).build().unwrap();
    let mut call = runtime.user("alice").forward("a", "go");
    let mut seen = 0;
    while let Some(event) = call.next_event().await {
        let wire = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&wire).unwrap(), event, "{wire}");
        seen += 1;
    }
    assert_eq!(&*call.await.unwrap().output, "done");
    assert_eq!(seen, 10, "forward, request, reply, two undelivered, start, end, request, reply, return");
}

#[tokio::test]
async fn a_report_has_the_messages_the_tokens_and_the_tree() {
    let log = searching().run("a", "go").await.unwrap().log;
    assert_eq!(path(&log), ["user > a: go", "a > b: x", "a < b: ok", "user < a: done"]);
    assert_eq!(log.usage(), Usage { input_tokens: 65, output_tokens: 11, ..Usage::default() });
    let calls = log.tree();
    let second = calls.calls()[1].call_id;
    assert_eq!(calls.call(second).map(|call| call.call_id), Some(second));
    assert!(calls.call(CallId::random()).is_none());
    assert_eq!(log.usage_of(second), Usage { input_tokens: 5, output_tokens: 5, ..Usage::default() });
    assert_eq!(calls.to_string(), "a (60 + 6 tokens): done\n  b (5 + 5 tokens): ok\n");
}

#[tokio::test]
async fn fault_60_a_slow_observer_loses_events_is_told_how_many_and_holds_up_nobody() {
    let runtime = searching();
    let mut slow = runtime.events(3);
    let report = runtime.run("a", "go").await.unwrap();
    assert_eq!(&*report.output, "done");
    let kept: Vec<_> = std::iter::from_fn(|| slow.try_next()).collect();
    assert_eq!(kept.iter().map(word).collect::<Vec<_>>(), ["forward", "request", "reply"]);
    assert_eq!(slow.lost(), 15);
}

#[tokio::test]
async fn an_observer_that_panics_or_goes_away_does_not_touch_the_run() {
    let runtime = searching();
    let mut events = runtime.events(100);
    let observer = tokio::spawn(async move {
        events.next().await;
        panic!("an observer's own fault");
    });
    assert_eq!(&*runtime.run("a", "go").await.unwrap().output, "done");
    assert!(observer.await.unwrap_err().is_panic());
}

#[tokio::test]
async fn streams_of_all_events_end_with_the_runtime() {
    let runtime = searching();
    let mut events = runtime.events(100);
    runtime.run("a", "go").await.unwrap();
    runtime.shutdown().await;
    let mut seen = 0;
    while events.next().await.is_some() {
        seen += 1;
    }
    assert_eq!(seen, 18);
}

#[tokio::test(start_paused = true)]
async fn streams_of_all_events_end_when_a_tool_shuts_down_its_own_runtime() {
    let handle: Arc<OnceLock<Runtime>> = Arc::default();
    let inside = Arc::clone(&handle);
    let stop = tool::function("stop", "", move |_: NoArguments| {
        let runtime = inside.get().unwrap().clone();
        async move { runtime.shutdown().await }
    });
    let model = Scripted::new().replies("a", [Reply::tool("stop", json!({}))]);
    let runtime = team(model, ["a"]).tool(stop).build().unwrap();
    handle.set(runtime.clone()).unwrap();
    let mut events = runtime.events(100);
    assert_eq!(runtime.run("a", "go").await.unwrap_err().error, CallError::Cancelled);
    let all = timeout(Duration::from_secs(60), to_the_end(&mut events)).await.expect("the stream ends");
    assert_eq!(odd_in_events(&all), []);
}

#[tokio::test(start_paused = true)]
async fn streams_of_all_events_end_though_the_shutdown_is_dropped_and_later_ones_are_over_at_once() {
    let (gate, mut keeper) = pending_tool();
    let model = Scripted::new().replies("a", [Reply::tool("gate", json!({}))]);
    let runtime = team(model, ["a"]).tool(gate).build().unwrap();
    let mut events = runtime.events(100);
    let running = tokio::spawn(runtime.user("alice").forward("a", "go"));
    assert_eq!(keeper.next().await, "started");
    {
        let mut shutdown = std::pin::pin!(runtime.shutdown());
        assert!(poll!(&mut shutdown).is_pending());
    }
    let all = timeout(Duration::from_secs(60), to_the_end(&mut events)).await.expect("the stream ends");
    assert_eq!(odd_in_events(&all), []);
    assert_eq!(running.await.unwrap().unwrap_err().error, CallError::Cancelled);
    let late = timeout(Duration::from_secs(60), to_the_end(&mut runtime.events(100))).await;
    assert_eq!(late, Ok(vec![]));
}

async fn to_the_end(events: &mut Events) -> Vec<Event> {
    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        seen.push(event);
    }
    seen
}

#[tokio::test]
async fn a_stream_may_have_any_capacity() {
    let runtime = searching();
    let (mut none, mut all) = (runtime.events(0), runtime.events(usize::MAX));
    runtime.run("a", "go").await.unwrap();
    assert_eq!(std::iter::from_fn(|| all.try_next()).count(), 18);
    assert_eq!((std::iter::from_fn(|| none.try_next()).count(), none.lost()), (1, 17), "0 is taken for 1");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_polled_before_its_events_were_asked_for_is_not_said_to_be_over() {
    let late = ScriptedReply::from(Reply::text("done")).after(Duration::from_secs(1));
    let runtime = team(Scripted::new().replies("a", [late]), ["a"]).build().unwrap();
    let mut call = runtime.user("alice").forward("a", "go");
    assert!(timeout(Duration::from_millis(10), &mut call).await.is_err());
    let mut seen = Vec::new();
    while let Some(event) = call.next_event().await {
        seen.push(word(&event));
    }
    assert_eq!(seen, ["reply", "return"]);
    assert_eq!(&*call.await.unwrap().output, "done");
}

/// What the waker of a reader does to a runtime.
#[derive(Clone)]
struct Meddler {
    runtime: Runtime,
    streams: Arc<Mutex<Vec<Events>>>,
    call: Arc<Mutex<Call>>,
    count: Arc<AtomicUsize>,
}

impl Meddler {
    fn meddle(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        drop(self.runtime.events(10));
        let stream = self.streams.lock().unwrap().pop();
        drop(stream);
        self.runtime.leave("x");
        let _ = self.runtime.join(Agent::new("x", "Another."));
        self.runtime.remove_tool("t");
        let _ = self.runtime.add_tool(tool::function("t", "", |_: NoArguments| async {}));
        self.call.lock().unwrap().cancel();
        assert!(self.runtime.invocations() < 1_000);
    }

    /// Awaits a future with a waker that meddles.
    async fn awaits<F: Future>(&self, future: F) -> F::Output {
        struct Meddling(Meddler, Waker);
        impl Wake for Meddling {
            fn wake(self: Arc<Self>) {
                self.0.meddle();
                self.1.wake_by_ref();
            }
        }
        let mut future = std::pin::pin!(future);
        poll_fn(|context| {
            let waker = Waker::from(Arc::new(Meddling(self.clone(), context.waker().clone())));
            future.as_mut().poll(&mut Context::from_waker(&waker))
        })
        .await
    }
}

#[test]
fn a_waker_may_begin_and_drop_streams_change_the_team_and_cancel_calls() {
    on_threads(2, async {
        let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
            ("a", 0) => (0..10).fold(Reply::default(), |reply, _| reply.and_call_agent("b", "x")),
            ("park", _) => Reply::tool("gate", json!({})),
            _ => Reply::text("done"),
        });
        let (gate, mut keeper) = pending_tool();
        let runtime = team(model, ["a", "b", "park"]).tool(gate).build().unwrap();
        let mut call = runtime.user("alice").forward("park", "go");
        assert!(poll!(&mut call).is_pending());
        assert_eq!(keeper.next().await, "started");
        let meddler = Meddler {
            runtime: runtime.clone(),
            streams: Arc::new(Mutex::new((0..100).map(|_| runtime.events(10)).collect())),
            call: Arc::new(Mutex::new(call)),
            count: Arc::default(),
        };
        let mut events = runtime.events(100_000);
        let observer = meddler.clone();
        let observing = tokio::spawn(async move { while observer.awaits(events.next()).await.is_some() {} });
        for _ in 0..20 {
            assert_eq!(&*meddler.awaits(runtime.run("a", "go")).await.unwrap().output, "done");
            let mut call = runtime.user("alice").forward("a", "go");
            while meddler.awaits(call.next_event()).await.is_some() {}
            assert_eq!(&*meddler.awaits(call).await.unwrap().output, "done");
            meddler.awaits(runtime.idle()).await;
        }
        assert_eq!(keeper.next().await, "dropped", "the call that was parked was cancelled");
        let running = tokio::spawn(runtime.user("alice").forward("park", "go"));
        assert_eq!(keeper.next().await, "started");
        meddler.awaits(runtime.shutdown()).await;
        assert_eq!(running.await.unwrap().unwrap_err().error, CallError::Cancelled);
        observing.await.unwrap();
        assert!(meddler.count.load(Ordering::SeqCst) > 100);
    });
}

#[tokio::test(start_paused = true)]
async fn replies_that_nobody_observes_are_not_shown_piece_by_piece() {
    let observed = Arc::new(Mutex::new(Vec::new()));
    struct Watching(Arc<Mutex<Vec<bool>>>);
    impl agentouto::Provider for Watching {
        fn reply<'a>(
            &'a self,
            _: &'a Request,
            deltas: &'a mut agentouto::DeltaSink<'_>,
        ) -> agentouto::BoxFuture<'a, Result<Reply, agentouto::ProviderError>> {
            self.0.lock().unwrap().push(deltas.is_observed());
            Box::pin(std::future::ready(Ok(Reply::text("ok"))))
        }
    }
    let runtime = Runtime::builder()
        .provider("p", Watching(Arc::clone(&observed)))
        .agent(agentouto::Agent::new("a", ""))
        .build()
        .unwrap();
    runtime.run("a", "go").await.unwrap();
    let mut call = runtime.user("alice").forward("a", "go");
    while call.next_event().await.is_some() {}
    assert_eq!(*observed.lock().unwrap(), [false, true]);
}

#[tokio::test]
async fn what_a_failed_request_cost_is_in_the_log() {
    let mut cut = ProviderError::new(ProviderErrorKind::Unavailable, "cut");
    cut.partial = Some(Box::new(Reply::text("half").usage(7, 3)));
    let model = Scripted::new()
        .replies("a", [Reply::call_agent("b", "x").usage(10, 1), Reply::finish("without").usage(20, 2)])
        .replies("b", [ScriptedReply::error(cut)]);
    let log = team(model, ["a", "b"]).build().unwrap().run("a", "go").await.unwrap().log;
    assert_eq!(log.usage(), Usage { input_tokens: 37, output_tokens: 6, ..Usage::default() });
    let tree = log.tree();
    assert_eq!(tree.calls()[1].usage, Usage { input_tokens: 7, output_tokens: 3, ..Usage::default() });
}

#[tokio::test]
async fn a_call_counts_the_events_that_were_not_read_in_time() {
    let many = || (0..70_000).fold(Reply::default(), |reply, _| reply.and_tool("unknown", json!({})));
    let runtime = team(Scripted::new().replies("a", [many(), Reply::text("done")]), ["a"]).build().unwrap();
    let mut call = runtime.user("alice").forward("a", "go");
    let mut read = u64::from(call.next_event().await.is_some());
    (&mut call).await.unwrap();
    while call.next_event().await.is_some() {
        read += 1;
    }
    assert!(call.lost_events() > 4_000);
    // The Forward, two requests and replies, 70,000 refusals and the Return.
    assert_eq!(read + call.lost_events(), 70_006);
}
