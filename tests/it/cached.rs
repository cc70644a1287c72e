//! Tools whose results are kept: when they run again, and that nobody's end is anybody else's. Time is paused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentouto::providers::scripted::Scripted;
use agentouto::tool::{self, NoArguments};
use agentouto::tools::Cached;
use agentouto::{
    Answerer, Arguments, Attachment, AttachmentKind, BoxFuture, ChatMessage, Content, EventKind, Forward, Reply,
    Request, Runtime, Tool, ToolContext, ToolError, ToolSpec,
};
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, advance, sleep, timeout};

use crate::pending_tool::pending_tool;
use crate::team::{With, team};

/// A tool that takes 100 ms, and counts how often it runs. What it does then is told by which run it is, from 1.
struct Work<F> {
    runs: Arc<AtomicUsize>,
    act: F,
}

const WORK: Duration = Duration::from_millis(100);

impl<F> Tool for Work<F>
where
    F: Fn(usize, ToolContext) -> BoxFuture<'static, Result<Content, ToolError>> + Send + Sync + 'static,
{
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: "work".into(), description: "".into(), parameters: json!({"type": "object"}) }
    }

    fn call(&self, _: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        let acting = (self.act)(run, context);
        Box::pin(async move {
            sleep(WORK).await;
            acting.await
        })
    }
}

/// A runtime with that work, and how often it has run.
struct Office {
    runtime: Runtime,
    runs: Arc<AtomicUsize>,
}

impl Office {
    /// Work that gives the number of its run.
    fn counting(cached: impl FnOnce(Cached) -> Cached) -> Self {
        Self::new(|run, _| async move { Ok(run.to_string().into()) }.boxed(), cached)
    }

    fn new<F>(act: F, cached: impl FnOnce(Cached) -> Cached) -> Self
    where
        F: Fn(usize, ToolContext) -> BoxFuture<'static, Result<Content, ToolError>> + Send + Sync + 'static,
    {
        let runs = Arc::default();
        let work = Work { runs: Arc::clone(&runs), act };
        let runtime = team(model(), ["a", "helper"]).tool(cached(Cached::around(work))).build().unwrap();
        Self { runtime, runs }
    }

    /// What comes of these calls, made at once.
    async fn call(&self, calls: Value) -> String {
        self.runtime.run("a", calls.to_string()).await.unwrap().output.to_string()
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

/// The agent `a` calls `work` once with each of the arguments that it is given as a JSON array, and says what came of
/// it; others take a second to say `helped`.
fn model() -> Scripted {
    let says = |request: &Request| match (&*request.agent.name, request.context.turns()) {
        ("a", 0) => {
            let calls: Vec<Value> = serde_json::from_str(request.context.input()).unwrap();
            calls.into_iter().fold(Reply::default(), |reply, arguments| reply.and_tool("work", arguments)).into()
        }
        ("a", _) => Reply::text(outputs(request).join(" | ")).into(),
        _ => agentouto::providers::scripted::ScriptedReply::from(Reply::text("helped")).after(Duration::from_secs(1)),
    };
    Scripted::computed(says)
}

fn outputs(request: &Request) -> Vec<&str> {
    let outputs = request.context.messages().filter_map(|message| match message {
        ChatMessage::Tool { output, .. } => Some(&*output.content.text),
        _ => None,
    });
    outputs.collect()
}

#[tokio::test(start_paused = true)]
async fn the_same_call_runs_once_at_the_same_time_and_later() {
    let office = Office::counting(|cached| cached);
    let same = json!([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1e0}]);
    let begun = Instant::now();
    let (one, other) = tokio::join!(office.call(same.clone()), office.call(same.clone()));
    assert_eq!((one.as_str(), other.as_str(), begun.elapsed()), ("1 | 1", "1 | 1", WORK));
    assert_eq!(office.call(same).await, "1 | 1");
    assert_eq!(begun.elapsed(), WORK, "what is kept is there at once");
    assert_eq!(office.call(json!([{"a": 1}, {"a": 1, "b": null}, {"a": 1, "b": [2]}])).await, "2 | 3 | 1");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_not_wrapped_runs_every_time() {
    let runs = Arc::new(AtomicUsize::new(0));
    let act = |run: usize, _| async move { Ok(run.to_string().into()) }.boxed();
    let runtime = team(model(), ["a"]).tool(Work { runs: Arc::clone(&runs), act }).build().unwrap();
    for _ in 0..2 {
        runtime.run("a", "[{}, {}]").await.unwrap();
    }
    assert_eq!(runs.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn two_tools_share_nothing() {
    let tool = |name: &'static str| Cached::around(tool::function(name, "", move |_: NoArguments| async move { name }));
    let model = Scripted::computed(|request: &Request| match request.context.turns() {
        0 => Reply::tool("one", json!({})).and_tool("two", json!({})),
        _ => Reply::text(outputs(request).join(" | ")),
    });
    let runtime = team(model, ["a"]).tool(tool("one")).tool(tool("two")).build().unwrap();
    assert_eq!(&*runtime.run("a", "").await.unwrap().output, "one | two");
}

#[tokio::test(start_paused = true)]
async fn whoever_began_a_run_may_be_cancelled_and_the_others_get_its_result() {
    let office = Office::counting(|cached| cached);
    let begun = Instant::now();
    let impatient = timeout(WORK / 2, office.call(json!([{}])));
    let patient = async {
        sleep(WORK / 4).await;
        tokio::join!(office.call(json!([{}])), office.call(json!([{}])))
    };
    let (impatient, (one, other)) = tokio::join!(impatient, patient);
    assert!(impatient.is_err());
    assert_eq!((one.as_str(), other.as_str(), begun.elapsed(), office.runs()), ("1", "1", WORK, 1));
}

#[tokio::test(start_paused = true)]
async fn one_who_waits_may_be_cancelled_and_the_others_get_the_result() {
    let office = Office::counting(|cached| cached);
    let impatient = async {
        sleep(WORK / 4).await;
        timeout(WORK / 4, office.call(json!([{}]))).await
    };
    let (patient, impatient) = tokio::join!(office.call(json!([{}])), impatient);
    assert!(impatient.is_err());
    assert_eq!((patient.as_str(), office.runs()), ("1", 1));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_nobody_waits_for_any_more_ends_and_the_next_call_begins_another() {
    let (gate, mut keeper) = pending_tool();
    let model = Scripted::computed(|_: &Request| Reply::tool("gate", json!({})));
    let runtime = team(model, ["a"]).tool(Cached::around(gate)).build().unwrap();
    for _ in 0..2 {
        let calls = async { tokio::join!(runtime.run("a", "go"), runtime.run("a", "go")) };
        assert!(timeout(WORK, calls).await.is_err(), "the gate does not open");
        assert_eq!((keeper.next().await, keeper.next().await), ("started", "dropped"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_comes_of_another_callers_cancellation_is_nobody_elses() {
    // The agents that the tool calls end with the call of the one in whose name they are called.
    let act = |_, context: ToolContext| async move { Ok(context.caller.call_agent("helper", "help").await?) }.boxed();
    let office = Office::new(act, |cached| cached);
    let begun = Instant::now();
    let impatient = timeout(2 * WORK, office.call(json!([{}])));
    let patient = async {
        sleep(WORK).await;
        tokio::join!(office.call(json!([{}])), office.call(json!([{}])))
    };
    let (impatient, (one, other)) = tokio::join!(impatient, patient);
    assert!(impatient.is_err());
    assert_eq!((one.as_str(), other.as_str(), office.runs()), ("helped", "helped", 2));
    assert_eq!(begun.elapsed(), 2 * WORK + WORK + Duration::from_secs(1));
}

type Say = mpsc::UnboundedSender<&'static str>;

/// A tool that asks `helper`, says when it is answered, waits at the gate, and says in words what came of it.
fn asking(say: &Say, gate: &Arc<Semaphore>, runs: &Arc<AtomicUsize>) -> impl Tool + use<> {
    let (say, gate, runs) = (say.clone(), Arc::clone(gate), Arc::clone(runs));
    With("work", move |context: ToolContext| {
        runs.fetch_add(1, Ordering::SeqCst);
        let (say, gate) = (say.clone(), Arc::clone(&gate));
        async move {
            let answer = context.caller.call_agent("helper", "help").await;
            let _ = say.send("answered");
            gate.acquire().await?.forget();
            match answer {
                Ok(answer) if answer.text.is_empty() => Err("helper is at a loss".into()),
                Ok(answer) => Ok(answer),
                Err(error) => Ok(format!("no help today: {error}").into()),
            }
        }
    })
}

/// A person who says when somebody asks, waits for leave to answer, and then says this.
fn helper(say: &Say, leave: &Arc<Semaphore>, answer: &'static str) -> impl Answerer + use<> {
    let (say, leave) = (say.clone(), Arc::clone(leave));
    move |_: Arc<Forward>| {
        let (say, leave) = (say.clone(), Arc::clone(&leave));
        async move {
            let _ = say.send("asked");
            leave.acquire().await.unwrap().forget();
            Ok(answer)
        }
    }
}

/// A first call that waits for its tool's run, and a second one that waits for the same.
async fn two_who_wait(runtime: &Runtime) -> [tokio::task::JoinHandle<String>; 2] {
    let mut events = runtime.events(1_000);
    let mut calls = Vec::new();
    for _ in 0..2 {
        let runtime = runtime.clone();
        calls.push(tokio::spawn(async move { runtime.run("a", "[{}]").await.unwrap().output.to_string() }));
        while !matches!(events.next().await.unwrap().kind, EventKind::ToolStart { .. }) {}
    }
    calls.try_into().unwrap()
}

#[tokio::test]
async fn what_a_tool_makes_of_another_callers_cancellation_is_nobody_elses_and_not_kept() {
    let wrap: [fn(Cached) -> Cached; 2] = [|cached| cached, Cached::around];
    for wrap in wrap {
        let (gate, leave, runs) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)), Arc::default());
        let (say, mut said) = mpsc::unbounded_channel();
        let cached = wrap(Cached::around(asking(&say, &gate, &runs)));
        let runtime = team(model(), ["a"]).user("helper", "", helper(&say, &leave, "helped")).tool(cached);
        let runtime = runtime.build().unwrap();
        let [first, second] = two_who_wait(&runtime).await;
        assert_eq!(said.recv().await, Some("asked"));
        first.abort();
        assert_eq!(said.recv().await, Some("answered"));
        gate.add_permits(2);
        assert_eq!(said.recv().await, Some("asked"), "by a run of the second one's own");
        leave.add_permits(1);
        assert_eq!(second.await.unwrap(), "helped");
        assert_eq!(runtime.run("a", "[{}]").await.unwrap().output.as_ref(), "helped", "this one is kept");
        assert_eq!(runs.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn a_run_whose_calls_were_all_answered_goes_on_without_the_caller_who_began_it() {
    for (answer, expected) in [("helped", "helped"), ("", "Error: [work] helper is at a loss")] {
        let (gate, leave, runs) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(1)), Arc::default());
        let (say, mut said) = mpsc::unbounded_channel();
        let cached = Cached::around(asking(&say, &gate, &runs));
        let runtime = team(model(), ["a"]).user("helper", "", helper(&say, &leave, answer)).tool(cached);
        let runtime = runtime.build().unwrap();
        let [first, second] = two_who_wait(&runtime).await;
        assert_eq!((said.recv().await, said.recv().await), (Some("asked"), Some("answered")));
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        gate.add_permits(1);
        assert_eq!(second.await.unwrap(), expected);
        assert_eq!(runs.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_is_kept_for_its_time_from_when_it_came() {
    let office = Office::counting(|cached| cached);
    assert_eq!(office.call(json!([{}])).await, "1");
    advance(Duration::from_secs(5 * 60) - Duration::from_millis(1)).await;
    assert_eq!(office.call(json!([{}])).await, "1", "being asked for does not prolong it");
    advance(Duration::from_millis(1)).await;
    assert_eq!(office.call(json!([{}])).await, "2");

    let office = Office::counting(|cached| cached.time_to_live(Duration::MAX));
    assert_eq!(office.call(json!([{}])).await, "1");
    advance(Duration::from_secs(60 * 60 * 24 * 365)).await;
    assert_eq!(office.call(json!([{}])).await, "1");
}

#[tokio::test(start_paused = true)]
async fn what_was_not_asked_for_the_longest_leaves_first() {
    let office = Office::counting(|cached| cached.capacity(2));
    for (arguments, expected) in [("a", "1"), ("b", "2"), ("a", "1"), ("c", "3"), ("a", "1"), ("c", "3"), ("b", "4")] {
        assert_eq!(office.call(json!([{arguments: 0}])).await, expected, "{arguments}");
    }
    let office = Office::counting(|cached| cached.capacity(0));
    assert_eq!(office.call(json!([{}, {}])).await, "1 | 1", "at the same time one run is enough");
    assert_eq!(office.call(json!([{}])).await, "2", "none is kept");
}

#[tokio::test(start_paused = true)]
async fn results_are_kept_only_as_far_as_their_bytes_allow() {
    let sized = |text: usize, attachment: usize| {
        move |run: usize, _| {
            let image = Attachment::encoded(AttachmentKind::Image, "image/png", &"i".repeat(attachment));
            async move { Ok(Content::from(format!("{run:0text$}")).attach(image)) }.boxed()
        }
    };
    let named = |run: usize, _: ToolContext| {
        let image = Attachment::encoded(AttachmentKind::Image, "image/png", "").named(&"n".repeat(80));
        async move { Ok(Content::from(run.to_string()).attach(image)) }.boxed()
    };
    keeps_two_of_three(named).await;
    keeps_two_of_three(sized(80, 0)).await;
    keeps_two_of_three(sized(1, 80)).await;
    // The second run gives more than may be kept at all.
    let growing = |run: usize, _| async move { Ok("x".repeat(150 * run).into()) }.boxed();
    let office = Office::new(growing, |cached| cached.capacity_bytes(200));
    for (arguments, runs) in [("a", 1), ("b", 2), ("a", 2), ("b", 3)] {
        office.call(json!([{arguments: 0}])).await;
        assert_eq!(office.runs(), runs, "what is too large by itself is not kept, and drives nothing out");
    }
}

/// Checks a cache of 200 bytes for results of about 90 bytes. The key of one argument has 10 bytes or less.
async fn keeps_two_of_three<F>(act: F)
where
    F: Fn(usize, ToolContext) -> BoxFuture<'static, Result<Content, ToolError>> + Send + Sync + 'static,
{
    let office = Office::new(act, |cached| cached.capacity_bytes(200));
    let mut runs = Vec::new();
    for arguments in ["a", "b", "a", "b", "c", "b", "c", "a"] {
        office.call(json!([{arguments: 0}])).await;
        runs.push(office.runs());
    }
    assert_eq!(runs, [1, 2, 2, 2, 3, 3, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_to_all_who_wait_and_not_kept() {
    let act = |run: usize, _| {
        async move { if run == 1 { Err("out of paper".into()) } else { Ok(run.to_string().into()) } }.boxed()
    };
    let office = Office::new(act, |cached| cached);
    let failed = "Error: [work] out of paper";
    assert_eq!(office.call(json!([{}, {}])).await, format!("{failed} | {failed}"));
    assert_eq!(office.call(json!([{}])).await, "2");
    assert_eq!(office.call(json!([{}])).await, "2");
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_the_network_is_tried_again_once_for_all_who_wait() {
    let act = |run: usize, _| {
        async move { if run < 3 { Err(ToolError::network("reset")) } else { Ok(run.to_string().into()) } }.boxed()
    };
    let office = Office::new(act, |cached| cached);
    assert_eq!(office.call(json!([{}, {}, {}])).await, "3 | 3 | 3");
    assert_eq!(office.runs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_told_to_all_who_wait_and_not_kept() {
    let act = |run: usize, _| {
        async move {
            if run == 1 {
                // As `panic!` does it, without the backtrace on stderr.
                std::panic::resume_unwind(Box::new("paper jam"));
            }
            Ok(run.to_string().into())
        }
        .boxed()
    };
    let office = Office::new(act, |cached| cached);
    let failed = "Error: [work] panicked: paper jam";
    assert_eq!(office.call(json!([{}, {}])).await, format!("{failed} | {failed}"));
    assert_eq!(office.call(json!([{}])).await, "2");
}

#[tokio::test]
async fn a_tool_that_blocks_holds_one_thread_however_many_wait() {
    const CALLS: usize = 1_000;
    let runs = Arc::new(AtomicUsize::new(0));
    let (counted, (open, opened)) = (Arc::clone(&runs), std::sync::mpsc::channel::<()>());
    let opened = std::sync::Mutex::new(opened);
    let work = tool::blocking("work", "", move |_: NoArguments| {
        counted.fetch_add(1, Ordering::SeqCst);
        opened.lock().unwrap().recv().map(|()| "done")
    });
    let runtime = team(model(), ["a"]).tool(Cached::around(work)).build().unwrap();
    let calls = Value::from(vec![json!({}); CALLS]).to_string();
    let mut events = runtime.events(100_000);
    let calling = runtime.run("a", calls);
    // Once only: a second run would wait for ever.
    let opening = async {
        let mut started = 0;
        while started < CALLS {
            started += usize::from(matches!(events.next().await.unwrap().kind, agentouto::EventKind::ToolStart { .. }));
        }
        open.send(()).unwrap();
    };
    let (report, ()) = tokio::join!(calling, opening);
    assert_eq!(&*report.unwrap().output, vec!["done"; CALLS].join(" | "));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_hangs_however_callers_come_and_go_on_several_threads() {
    let act = |run: usize, context: ToolContext| {
        async move {
            match run % 3 {
                0 => Err("out of paper".into()),
                1 => Ok(context.caller.call_agent("nobody", "help").await.err().unwrap().to_string().into()),
                _ => Ok("done".into()),
            }
        }
        .boxed()
    };
    let runs = Arc::default();
    let work = Work { runs: Arc::clone(&runs), act };
    let cached = Cached::around(work).time_to_live(Duration::from_millis(1));
    let runtime = team(model(), ["a"]).tool(cached).build().unwrap();
    let calls = (0..2_000_u64).map(|nth| {
        let runtime = runtime.clone();
        tokio::spawn(async move {
            sleep(Duration::from_millis(nth % 300)).await;
            // Every other one leaves at some time during the work.
            let patience = if nth % 2 == 0 { Duration::from_millis(nth % 110) } else { Duration::from_secs(60) };
            timeout(patience, runtime.run("a", format!("[{{\"a\": {}}}]", nth % 3))).await
        })
    });
    for (nth, call) in futures_util::future::join_all(calls).await.into_iter().enumerate() {
        match call.unwrap() {
            Ok(report) => {
                let output = report.unwrap().output;
                let mut known = ["done", "Unknown agent", "Error: [work] out of paper"].iter();
                assert!(known.any(|text| output.starts_with(text)), "call {nth}: {output}");
            }
            Err(_) => assert!(nth % 2 == 0, "call {nth} hangs"),
        }
    }
    timeout(Duration::from_secs(60), runtime.idle()).await.expect("all invocations have ended");
    assert!(runs.load(Ordering::SeqCst) < 2_000, "they share");
}
