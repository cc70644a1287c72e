//! Every Forward that is sent has one Return, in the log and in the streams, by the time that they end.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::tool::{self, NoArguments};
use agentouto::{BoxFuture, CallError, CallId, Content, EventKind, Reply, Request, Runtime, ToolContext};
use futures_util::{FutureExt as _, poll};
use serde_json::json;
use tokio::time::timeout;

use crate::pending_tool::pending_tool;
use crate::silent_actor::silent;
use crate::team::{With, let_all_tasks_run, odd_in_events, odd_in_log, on_threads, path, team, tokio_runtime};

/// A model whose agent `a` uses the tool `leave`, and whose agent `b` never answers.
fn leaving() -> Scripted {
    Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
        ("a", 0) => Reply::tool("leave", json!({})).into(),
        ("a", _) => Reply::text("done").into(),
        _ => ScriptedReply::from(Reply::text("never")).after(Duration::from_secs(3_600)),
    })
}

#[test]
fn the_log_of_a_run_has_a_return_for_every_forward_that_its_tools_left_behind() {
    on_threads(2, async {
        let (actor, _said) = silent().await;
        let leave = With("leave", |context: ToolContext| async move {
            for callee in ["b", "silent", "b", "silent"] {
                let caller = context.caller.clone();
                tokio::spawn(async move { caller.call_agent(callee, "x").await });
            }
            tokio::task::yield_now().await;
            Ok("left".into())
        });
        let runtime = team(leaving(), ["a", "b"]).tool(leave).actor("silent", "", actor).build().unwrap();
        let mut forwards = 0;
        for _ in 0..500 {
            let report = runtime.run("a", "go").await.unwrap();
            assert_eq!(odd_in_log(&report.log), [], "{:?}", path(&report.log));
            forwards += report.log.messages().count() / 2 - 1;
        }
        assert!(forwards > 0, "some were sent before the tool had ended");
    });
}

#[test]
fn a_stream_has_a_return_for_every_forward_when_a_shutdown_ends_it() {
    on_threads(2, async {
        for _ in 0..200 {
            let model = Scripted::computed(|request: &Request| match request.context.turns() {
                0 if &*request.agent.name == "a" => Reply::call_agent("b", "x"),
                _ => Reply::text("done"),
            });
            let runtime = team(model, ["a", "b"]).build().unwrap();
            let mut events = runtime.events(1_000_000);
            for _ in 0..20 {
                let caller = runtime.user("service").caller();
                // Until the runtime is shut down.
                tokio::spawn(async move { while caller.call_agent("a", "x").await.is_ok() {} });
            }
            let mut seen = vec![events.next().await.unwrap()];
            runtime.shutdown().await;
            while let Some(event) = events.next().await {
                seen.push(event);
            }
            assert_eq!((odd_in_events(&seen), events.lost()), (vec![], 0));
        }
    });
}

/// Calls that are made and kept, and not polled to their end.
mod a_call_that_is_kept {
    use super::*;

    type Kept = Arc<Mutex<Vec<BoxFuture<'static, Result<Content, CallError>>>>>;

    // The clock is paused: what hangs is late at once.

    #[tokio::test(start_paused = true)]
    async fn by_a_tool_holds_up_neither_the_run_nor_a_shutdown() {
        let kept = Kept::default();
        let keep = Arc::clone(&kept);
        let leave = With("leave", move |context: ToolContext| {
            let unpolled = context.caller.call_agent("b", "unpolled");
            let mut polled = context.caller.call_agent("b", "polled");
            let keep = Arc::clone(&keep);
            async move {
                assert!(poll!(&mut polled).is_pending());
                keep.lock().unwrap().extend([unpolled, polled]);
                Ok("left".into())
            }
        });
        let runtime = team(leaving(), ["a", "b"]).tool(leave).build().unwrap();
        let run = timeout(Duration::from_secs(60), runtime.run("a", "go")).await.expect("it ends").unwrap();
        assert_eq!(
            path(&run.log),
            ["user > a: go", "a > b: polled", "a < b: error: the call was cancelled", "user < a: done"]
        );
        timeout(Duration::from_secs(60), runtime.shutdown()).await.expect("it ends");
        for call in kept.lock().unwrap().drain(..) {
            assert_eq!(call.now_or_never(), Some(Err(CallError::Cancelled)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn by_a_service_holds_up_no_shutdown_and_is_not_counted_before_it_is_polled() {
        let runtime = team(leaving(), ["b"]).build().unwrap();
        let caller = runtime.user("service").caller();
        let (unpolled, mut polled) = (caller.call_agent("b", "x"), caller.call_agent("b", "x"));
        assert_eq!(runtime.invocations(), 0);
        assert!(poll!(&mut polled).is_pending());
        assert_eq!(runtime.invocations(), 1);
        timeout(Duration::from_secs(60), runtime.shutdown()).await.expect("it ends");
        assert_eq!((polled.await, unpolled.await), (Err(CallError::Cancelled), Err(CallError::ShutDown)));
    }

    #[tokio::test(start_paused = true)]
    async fn by_a_tokio_runtime_that_is_not_driven_has_its_return_before_a_shutdown_ends_the_streams() {
        let runtime = team(leaving(), ["b"]).build().unwrap();
        let call = runtime.user("service").caller().call_agent("b", "x");
        has_its_return_before_a_shutdown_ends_the_streams(&runtime, call).await;
    }

    #[tokio::test(start_paused = true)]
    async fn with_a_log_by_a_tokio_runtime_that_is_not_driven_has_its_return_as_well() {
        let runtime = team(leaving(), ["b"]).build().unwrap();
        let call = Box::pin(runtime.user("service").forward("b", "x"));
        has_its_return_before_a_shutdown_ends_the_streams(&runtime, call).await;
    }

    async fn has_its_return_before_a_shutdown_ends_the_streams(
        runtime: &Runtime,
        mut call: impl Future<Output: Send> + Unpin + Send,
    ) {
        let mut events = runtime.events(100);
        let other = tokio_runtime(1);
        // It is driven until the model is asked, and then never again.
        let until_asked = async {
            assert!(poll!(&mut call).is_pending());
            while !matches!(events.next().await.unwrap().kind, EventKind::ModelRequest { .. }) {}
        };
        std::thread::scope(|scope| scope.spawn(|| other.block_on(until_asked)).join().unwrap());
        let begun = tokio::time::Instant::now();
        timeout(Duration::from_secs(60), runtime.shutdown()).await.expect("it ends");
        assert!(begun.elapsed() <= Duration::from_secs(2), "{:?}", begun.elapsed());
        let mut kinds = Vec::new();
        while let Some(event) = events.next().await {
            kinds.push(event.kind);
        }
        let [EventKind::Return { answer }] = &kinds[..] else { panic!("{kinds:?}") };
        assert_eq!((&answer.result, runtime.invocations()), (&Err(CallError::Cancelled), 0));
        std::thread::scope(|scope| scope.spawn(|| drop((call, other))).join().unwrap());
    }
}

/// A call of an actor, `relay`, for which `expert` is called, on a tokio runtime of its own. The expert never answers.
mod a_call_below_that_of_an_actor {
    use super::*;

    use agentouto::{Call, Forward, Incoming};
    use ractor::{Actor, ActorProcessingErr, ActorRef};
    use tokio::sync::mpsc::{self, UnboundedSender};

    type Below = BoxFuture<'static, Result<Content, CallError>>;

    /// An actor that hands on what it is asked.
    struct Relay;

    impl Actor for Relay {
        type Msg = Incoming;
        type State = UnboundedSender<Incoming>;
        type Arguments = Self::State;

        async fn pre_start(&self, _: ActorRef<Incoming>, to: Self::State) -> Result<Self::State, ActorProcessingErr> {
            Ok(to)
        }

        async fn handle(
            &self,
            _: ActorRef<Incoming>,
            incoming: Incoming,
            to: &mut Self::State,
        ) -> Result<(), ActorProcessingErr> {
            Ok(to.send(incoming)?)
        }
    }

    /// Makes both calls, and returns when both callees have begun.
    fn calls(here: &tokio::runtime::Runtime, there: &tokio::runtime::Runtime) -> (Runtime, Call, Incoming, Below) {
        let (to, mut asked) = mpsc::unbounded_channel();
        let (relay, _) = here.block_on(Relay::spawn(None, Relay, to)).unwrap();
        let never = |_: Arc<Forward>| std::future::pending::<Result<String, CallError>>();
        let runtime = Runtime::builder().actor("relay", "", relay).user("expert", "", never).build().unwrap();
        let mut call = runtime.user("alice").forward("relay", "go");
        let incoming = here.block_on(async {
            assert!(poll!(&mut call).is_pending());
            asked.recv().await.unwrap()
        });
        let mut below = incoming.caller.call_agent("expert", "go");
        there.block_on(async {
            assert!(poll!(&mut below).is_pending());
            let_all_tasks_run().await;
        });
        (runtime, call, incoming, below)
    }

    fn ends_before_it(gives_it_up: impl FnOnce(Call, Incoming)) {
        let (here, there) = (tokio_runtime(1), tokio_runtime(1));
        let (runtime, call, incoming, below) = calls(&here, &there);
        let mut events = runtime.events(100);
        call.cancel();
        here.block_on(let_all_tasks_run());
        gives_it_up(call, incoming);
        assert_eq!(there.block_on(below), Err(CallError::Cancelled));
        let returns = std::iter::from_fn(|| events.try_next()).filter_map(|event| match event.kind {
            EventKind::Return { answer } => Some(answer.sender.to_string()),
            _ => None,
        });
        assert_eq!(returns.collect::<Vec<_>>(), ["expert", "relay"]);
    }

    #[test]
    fn ends_before_it_if_the_actor_answers_after_a_cancellation() {
        ends_before_it(|call, incoming| {
            incoming.reply.send(Ok::<_, CallError>("too late"));
            drop(call);
        });
    }

    #[test]
    fn ends_before_it_if_the_caller_drops_what_it_has_cancelled() {
        ends_before_it(|call, incoming| {
            drop(call);
            drop(incoming);
        });
    }

    #[test]
    fn ends_with_the_tokio_runtime_that_began_it() {
        let (here, there) = (tokio_runtime(1), tokio_runtime(1));
        let (_runtime, call, incoming, below) = calls(&here, &there);
        drop(here);
        let minute = Duration::from_secs(60);
        let ended = there.block_on(async { timeout(minute, below).await.expect("it is cancelled") });
        assert_eq!(ended, Err(CallError::Cancelled));
        assert_eq!(there.block_on(call).unwrap_err().error, CallError::Unanswered { name: "relay".into() });
        drop(incoming);
    }
}

#[tokio::test]
async fn a_call_that_is_awaited_again_gives_the_same_result() {
    let (gate, mut keeper) = pending_tool();
    let model = Scripted::computed(|request: &Request| match request.context.input() {
        "park" => Reply::tool("gate", json!({})),
        _ => Reply::text("done"),
    });
    let runtime = team(model, ["a"]).tool(gate).build().unwrap();
    let mut call = runtime.user("alice").forward("a", "go");
    for _ in 0..3 {
        let report = (&mut call).await.unwrap();
        assert_eq!((&*report.output, report.log.messages().count()), ("done", 2));
    }
    assert!(call.next_event().await.is_none());

    let mut call = runtime.user("alice").forward("a", "park");
    assert!(poll!(&mut call).is_pending());
    assert_eq!(keeper.next().await, "started");
    call.cancel();
    for _ in 0..3 {
        let error = (&mut call).await.unwrap_err();
        assert_eq!((error.error, error.log.messages().count()), (CallError::Cancelled, 2));
    }
}

#[test]
fn a_call_that_is_polled_outside_of_tokio_says_so_and_blames_no_callee() {
    let runtime = team(Scripted::new(), ["a"]).build().unwrap();
    let words = "`a` could not be reached: a call must be polled within a tokio runtime";
    let mut call = pin!(runtime.run("a", "go"));
    let error = call.as_mut().now_or_never().unwrap().unwrap_err();
    assert_eq!((&*error.to_string(), error.log.messages().count()), (words, 0));
    let error = runtime.user("alice").caller().call_agent("a", "go").now_or_never().unwrap().unwrap_err();
    assert_eq!((&*error.to_string(), runtime.invocations()), (words, 0));
}

#[tokio::test]
async fn an_id_is_refused_while_a_call_has_it_and_is_free_again_afterwards() {
    let id = CallId::random();
    let (gate, mut keeper) = pending_tool();
    let model = Scripted::computed(|request: &Request| match request.context.input() {
        "park" => Reply::tool("gate", json!({})),
        _ => Reply::text("done"),
    });
    let runtime = team(model, ["a"]).tool(gate).call_ids(move || id).build().unwrap();
    let parked = tokio::spawn(runtime.user("alice").forward("a", "park"));
    assert_eq!(keeper.next().await, "started");
    let mut events = runtime.events(100);
    let in_use = CallError::IdInUse { call_id: id };
    assert_eq!(runtime.run("a", "go").await.unwrap_err().error, in_use);
    assert_eq!(runtime.user("alice").caller().call_agent("a", "go").await, Err(in_use));
    assert!(events.try_next().is_none(), "nothing was sent");
    parked.abort();
    runtime.idle().await;
    assert!(parked.await.unwrap_err().is_cancelled());
    for _ in 0..2 {
        assert_eq!(&*runtime.run("a", "go").await.unwrap().output, "done");
    }
}

/// The context of a tool that is kept when the tool, or its whole run, has ended.
#[tokio::test]
async fn a_context_that_is_kept_after_its_tool_tells_observers_nothing_and_sends_nothing() {
    let kept: Arc<Mutex<Option<ToolContext>>> = Arc::default();
    let keep = Arc::clone(&kept);
    let leave = With("leave", move |context: ToolContext| {
        *keep.lock().unwrap() = Some(context);
        async { Ok("left".into()) }
    });
    let used = Arc::clone(&kept);
    let again = tool::function("use", "", move |_: NoArguments| {
        let context = used.lock().unwrap().clone().unwrap();
        async move { use_after_its_end(&context).await }
    });
    let model = Scripted::computed(|request: &Request| match request.context.turns() {
        0 => Reply::tool("leave", json!({})),
        1 => Reply::tool("use", json!({})),
        _ => Reply::text("done"),
    });
    let runtime = team(model, ["a", "b"]).tool(leave).tool(again).build().unwrap();
    let mut events = runtime.events(100);
    let report = runtime.run("a", "go").await.unwrap();
    assert_eq!(path(&report.log), ["user > a: go", "user < a: done"]);
    let is_odd = |kind: &EventKind| matches!(kind, EventKind::ToolProgress { .. } | EventKind::Undelivered { .. });
    assert!(!std::iter::from_fn(|| events.try_next()).any(|event| is_odd(&event.kind)));

    let context = kept.lock().unwrap().take().unwrap();
    use_after_its_end(&context).await;
    assert!(events.try_next().is_none(), "no event of a call follows its Return");
    assert_eq!(runtime.invocations(), 0);
}

#[tokio::test]
async fn a_caller_that_is_kept_after_its_tool_keeps_no_runtime() {
    let (kept, held) = (Arc::new(Mutex::new(Vec::new())), Arc::new(()));
    let (keeping, captured) = (Arc::clone(&kept), Arc::clone(&held));
    let keep = With("keep", move |context: ToolContext| {
        let _captured = &captured;
        keeping.lock().unwrap().push(context.caller);
        async { Ok("kept".into()) }
    });
    let model = Scripted::new().replies("a", [Reply::tool("keep", json!({})), Reply::text("done")]);
    team(model, ["a"]).tool(keep).build().unwrap().run("a", "go").await.unwrap();
    assert_eq!((kept.lock().unwrap().len(), Arc::strong_count(&held)), (1, 1));
}

async fn use_after_its_end(context: &ToolContext) {
    context.progress(agentouto::Progress::default());
    for callee in ["b", "nobody"] {
        assert_eq!(context.caller.call_agent(callee, "more").await, Err(CallError::Cancelled));
    }
}
