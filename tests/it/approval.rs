//! Tool calls that a peer approves: what is asked, what lets a call pass, and that nothing else ever does.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use agentouto::providers::scripted::Scripted;
use agentouto::tool::{self, NoArguments};
use agentouto::{
    Approval, Arguments, CallError, ChatMessage, Decision, EventKind, Forward, Incoming, Message, Reply, ReplyPort,
    Request, Runtime, RuntimeBuilder, Tool, ToolError, ToolExt as _,
};
use parking_lot::Mutex;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::pending_tool::pending_tool;
use crate::team::{With, on_threads, team};

const SECOND: Duration = Duration::from_secs(1);

/// What ran, in order.
type Ran = Arc<Mutex<Vec<u32>>>;

#[derive(Deserialize, JsonSchema)]
struct Payment {
    euros: u32,
}

/// A tool that notes what it pays.
fn pay(ran: &Ran) -> impl Tool + use<> {
    let ran = Arc::clone(ran);
    tool::function("pay", "Pays.", move |payment: Payment| {
        ran.lock().push(payment.euros);
        async move { format!("paid {}", payment.euros) }
    })
}

/// The `buyer` makes the calls of `pay` that are its input, one after the other, and says what came of them. Every
/// other agent says `yes`.
fn model() -> Scripted {
    Scripted::computed(|request: &Request| {
        if !request.agent.name.starts_with("buyer") {
            return Reply::text("yes");
        }
        let calls: Vec<Value> = serde_json::from_str(request.context.input()).unwrap();
        match calls.get(request.context.turns()) {
            Some(arguments) => Reply::tool("pay", arguments.clone()),
            None => Reply::text(outputs(request).join(" | ")),
        }
    })
}

fn outputs(request: &Request) -> Vec<&str> {
    let outputs = request.context.messages().filter_map(|message| match message {
        ChatMessage::Tool { output, .. } => Some(&*output.content.text),
        _ => None,
    });
    outputs.collect()
}

/// A person who gives these answers, in order, and notes what was asked.
fn person(answers: &'static [&'static str]) -> (impl agentouto::Answerer + use<>, Arc<Mutex<Vec<Value>>>) {
    let answers = Mutex::new(answers.iter().copied());
    let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
    let notes = Arc::clone(&asked);
    let answerer = move |forward: Arc<Forward>| {
        let last = forward.content.text.lines().last().unwrap().to_owned();
        notes.lock().push(serde_json::from_str(&last).unwrap());
        let answer = answers.lock().next().ok_or(CallError::Failed("nobody is at the terminal".into()));
        async move { answer }
    };
    (answerer, asked)
}

async fn run(runtime: &Runtime, calls: Value) -> String {
    runtime.run("buyer", calls.to_string()).await.unwrap().output.to_string()
}

fn euros(euros: u32) -> Arguments {
    Arguments::from_iter([("euros".to_owned(), euros.into())])
}

fn buyers(model: Scripted) -> RuntimeBuilder {
    team(model, ["buyer", "boss"])
}

#[tokio::test]
async fn what_was_approved_runs_once_and_the_log_says_who_approved_what_and_when() {
    let (ran, began) = (Ran::default(), SystemTime::now());
    let (human, asked) = person(&["Yes", "no: too much", r#"{"decision": "yes", "arguments": {"euros": 3}}"#, "NO"]);
    let runtime = buyers(model()).user("human", "", human).tool(pay(&ran).approved_by("human")).build().unwrap();
    let calls = json!([{"euros": 1}, {"euros": 2}, {"euros": 30}, {"euros": 4}]);
    let report = runtime.run("buyer", calls.to_string()).await.unwrap();
    let expected = "paid 1 | Error: [pay] `human` refused: too much | \
        `human` changed the arguments; the tool ran with {\"euros\":3}\npaid 3 | Error: [pay] `human` refused";
    assert_eq!(&*report.output, expected);
    assert_eq!(*ran.lock(), [1, 3]);
    let question = |euros: u32| json!({"tool": "pay", "agent": "buyer", "arguments": {"euros": euros}});
    assert_eq!(*asked.lock(), [1, 2, 30, 4].map(question));

    let approvals: Vec<&Approval> = report.log.approvals().collect();
    let decisions: Vec<(&Arguments, &Decision)> =
        approvals.iter().map(|approval| (&approval.arguments, &approval.decision)).collect();
    assert_eq!(
        decisions,
        [
            (&euros(1), &Decision::Approved),
            (&euros(2), &Decision::Refused("too much".into())),
            (&euros(30), &Decision::Changed(euros(3))),
            (&euros(4), &Decision::Refused("".into())),
        ]
    );
    let questions = report.log.messages().filter_map(|message| match message {
        Message::Forward(forward) if &*forward.receiver == "human" => Some(forward.call_id),
        _ => None,
    });
    assert!(questions.eq(approvals.iter().map(|approval| approval.question)));
    let mut times: Vec<SystemTime> = approvals.iter().map(|approval| approval.at).collect();
    times.insert(0, began);
    times.push(SystemTime::now());
    assert!(times.is_sorted(), "{times:?}");
    for approval in &approvals {
        assert_eq!((&*approval.by, &*approval.tool, &*approval.agent), ("human", "pay", "buyer"));
        let event = EventKind::ToolApproval(Arc::new((*approval).clone()));
        let wire = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<EventKind>(&wire).unwrap(), event);
    }
}

#[tokio::test]
async fn nothing_but_an_approval_lets_a_call_pass_and_the_model_reads_what_was_said() {
    for other in ["", "yes please", "ok", "yes\nno", r#"{"decision":"yes","argument":{"euros":1}}"#, "nope"] {
        let ran = Ran::default();
        let human = move |_: Arc<Forward>| async move { Ok::<_, CallError>(other) };
        let runtime = buyers(model()).user("human", "", human).tool(pay(&ran).approved_by("human")).build().unwrap();
        let report = runtime.run("buyer", r#"[{"euros":1}]"#).await.unwrap();
        assert!(report.output.starts_with("Error: [pay] `human` refused: expected "), "{}", report.output);
        assert!(report.output.contains(other) && ran.lock().is_empty(), "{}", report.output);
        assert!(matches!(report.log.approvals().next().unwrap().decision, Decision::Refused(_)));
    }
}

#[tokio::test]
async fn a_model_that_tries_more_or_the_same_again_is_asked_about_again() {
    let ran = Ran::default();
    let (human, asked) = person(&["yes", "no", "yes", "no"]);
    let runtime = buyers(model()).user("human", "", human).tool(pay(&ran).approved_by("human")).build().unwrap();
    let calls = json!([{"euros": 82_000}, {"euros": 820_000}, {"euros": 82_000}, {"euros": 82_000}]);
    let refused = "Error: [pay] `human` refused";
    assert_eq!(run(&runtime, calls).await, format!("paid 82000 | {refused} | paid 82000 | {refused}"));
    assert_eq!((asked.lock().len(), ran.lock().clone()), (4, vec![82_000, 82_000]));
}

#[tokio::test]
async fn nobody_is_asked_about_arguments_that_the_tool_refuses() {
    let ran = Ran::default();
    let (human, asked) = person(&[]);
    let tool = pay(&ran).only_for(["buyer"]).timeout(SECOND).approved_by("human");
    let runtime = team(model(), ["buyer", "buyer 2"]).user("human", "", human).tool(tool).build().unwrap();
    let output = run(&runtime, json!([{"euros": "many"}, {}])).await;
    assert!(output.contains("invalid type: string \"many\"") && output.contains("missing field `euros`"), "{output}");
    let other = runtime.run("buyer 2", r#"[{"euros":1}]"#).await.unwrap();
    assert!(other.output.contains("only `buyer` may"), "{}", other.output);
    assert!(asked.lock().is_empty() && ran.lock().is_empty());
}

#[tokio::test]
async fn other_arguments_are_checked_and_a_model_that_approves_corrects_them() {
    // A person is not asked again.
    let ran = Ran::default();
    let (human, _) = person(&[r#"{"decision":"yes","arguments":{"euros":"3"}}"#]);
    let runtime = buyers(model()).user("human", "", human).tool(pay(&ran).approved_by("human")).build().unwrap();
    let output = run(&runtime, json!([{"euros": 1}])).await;
    assert!(output.starts_with("Error: [pay] `human` refused: the tool cannot run with these arguments: "), "{output}");
    assert!(ran.lock().is_empty());

    let boss = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
        ("buyer", 0) => Reply::tool("pay", json!({"euros": 1})),
        ("buyer", _) => Reply::text(outputs(request).join(" | ")),
        (_, 0) => {
            let finish = request.tools.last().unwrap();
            assert_eq!(finish.parameters["properties"]["decision"]["enum"], json!(["yes", "no"]));
            Reply::text("I think that this is fine.")
        }
        (_, 1) => Reply::tool("finish", json!({"decision": "yes", "arguments": {"euros": -1}})),
        _ => {
            let told = serde_json::to_string(&request.context.messages().collect::<Vec<_>>()).unwrap();
            assert!(told.contains("found `I think that") && told.contains("cannot run with these"), "{told}");
            Reply::tool("finish", json!({"decision": "yes", "arguments": {"euros": 2}}))
        }
    });
    let runtime = buyers(boss).tool(pay(&ran).approved_by("boss")).build().unwrap();
    let expected = "`boss` changed the arguments; the tool ran with {\"euros\":2}\npaid 2";
    assert_eq!(&*runtime.run("buyer", "").await.unwrap().output, expected);
    assert_eq!(*ran.lock(), [2]);
}

#[tokio::test]
async fn a_model_that_never_decides_approves_nothing() {
    let ran = Ran::default();
    let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
        ("buyer", 0) => Reply::tool("pay", json!({"euros": 1})),
        ("buyer", _) => Reply::text(outputs(request).join(" | ")),
        _ => Reply::text("Sure, yes!"),
    });
    let runtime = buyers(model).tool(pay(&ran).approved_by("boss")).build().unwrap();
    let output = runtime.run("buyer", "").await.unwrap().output;
    assert!(output.starts_with("Error: [pay] `boss` refused: expected ") && ran.lock().is_empty(), "{output}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_the_network_is_not_run_again_without_another_question() {
    let (human, asked) = person(&["yes", "yes"]);
    let (ran, count) = (Ran::default(), Ran::default());
    let notes = Arc::clone(&count);
    let pay = tool::function("pay", "", move |payment: Payment| {
        notes.lock().push(payment.euros);
        async { Err::<(), _>(ToolError::network("no route")) }
    });
    let runtime = buyers(model()).user("human", "", human).tool(pay.approved_by("human")).build().unwrap();
    assert_eq!(run(&runtime, json!([{"euros": 1}])).await, "Error: [pay] network error: no route");
    assert_eq!((asked.lock().len(), count.lock().clone()), (1, vec![1]));
    drop(ran);
}

/// An actor that does as it is told with the question: it dies, drops the port, keeps it, or answers.
struct Approver;

enum Does {
    Dies,
    Drops,
    Keeps,
    Answers,
}

struct Asked(Incoming);

impl From<Incoming> for Asked {
    fn from(incoming: Incoming) -> Self {
        Self(incoming)
    }
}

impl Actor for Approver {
    type Msg = Asked;
    type State = (Does, Vec<ReplyPort>);
    type Arguments = Does;

    async fn pre_start(&self, _: ActorRef<Asked>, does: Does) -> Result<Self::State, ActorProcessingErr> {
        Ok((does, Vec::new()))
    }

    async fn handle(
        &self,
        _: ActorRef<Asked>,
        Asked(incoming): Asked,
        (does, kept): &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match does {
            Does::Dies => return Err("it dies".into()),
            Does::Drops => drop(incoming.reply),
            Does::Keeps => kept.push(incoming.reply),
            Does::Answers => incoming.reply.send(Ok(r#"{"decision":"yes"}"#)),
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn no_answer_is_a_refusal_whatever_the_reason() {
    let actor = async |does: Does| Approver::spawn(None, Approver, does).await.unwrap().0;
    let gone = actor(Does::Answers).await;
    gone.stop_and_wait(None, None).await.unwrap();
    let (absent, _) = person(&[]);
    let panics = |_: Arc<Forward>| async { panic!("ouch") as Result<String, CallError> };
    let ran = Ran::default();
    let runtime = buyers(model())
        .actor("answers", "", actor(Does::Answers).await)
        .actor("dies", "", actor(Does::Dies).await)
        .actor("drops", "", actor(Does::Drops).await)
        .actor("keeps", "", actor(Does::Keeps).await)
        .actor("gone", "", gone)
        .user("absent", "", absent)
        .user("panics", "", panics);
    let runtime = runtime.build().unwrap();
    for (by, expected) in [
        ("answers", "paid 1"),
        ("dies", "Error: [pay] not approved: `dies` ended without an answer"),
        ("drops", "Error: [pay] not approved: `drops` ended without an answer"),
        ("keeps", "Error: [pay] not approved: no answer of `keeps` within 1s"),
        ("gone", "Error: [pay] not approved: `gone` could not be reached: the actor has stopped"),
        ("absent", "Error: [pay] not approved: nobody is at the terminal"),
        ("panics", "Error: [pay] not approved: `panics` panicked: ouch"),
        ("nobody", "Error: [pay] not approved: Unknown agent: nobody; "),
    ] {
        runtime.add_tool(pay(&ran).approved_by(by).within(SECOND)).unwrap();
        let report = runtime.run("buyer", r#"[{"euros":1}]"#).await.unwrap();
        assert!(report.output.starts_with(expected), "{}", report.output);
        let approval = report.log.approvals().next().unwrap();
        assert_eq!((&*approval.by, approval.decision == Decision::Approved), (by, by == "answers"));
        assert!(runtime.remove_tool("pay"));
    }
    assert_eq!(*ran.lock(), [1]);
}

/// A person who says `asked`, never answers, and says `dropped` when the question is cancelled.
fn silent() -> (impl agentouto::Answerer + use<>, mpsc::UnboundedReceiver<&'static str>) {
    struct Thinking(mpsc::UnboundedSender<&'static str>);
    impl Drop for Thinking {
        fn drop(&mut self) {
            let _ = self.0.send("dropped");
        }
    }
    let (say, said) = mpsc::unbounded_channel();
    let answerer = move |_: Arc<Forward>| {
        let thinking = Thinking(say.clone());
        async move {
            let _ = thinking.0.send("asked");
            std::future::pending::<Result<String, CallError>>().await
        }
    };
    (answerer, said)
}

#[tokio::test(start_paused = true)]
async fn a_question_ends_with_its_time_and_with_its_call() {
    let ran = Ran::default();
    let (human, mut said) = silent();
    let tool = pay(&ran).approved_by("human").within(60 * SECOND);
    let runtime = buyers(model()).user("human", "", human).tool(tool).build().unwrap();
    let begun = Instant::now();
    let output = run(&runtime, json!([{"euros": 1}])).await;
    assert_eq!(output, "Error: [pay] not approved: no answer of `human` within 60s");
    assert_eq!((begun.elapsed(), said.recv().await, said.recv().await), (60 * SECOND, Some("asked"), Some("dropped")));

    assert!(timeout(SECOND, run(&runtime, json!([{"euros": 1}]))).await.is_err());
    assert_eq!((said.recv().await, said.recv().await), (Some("asked"), Some("dropped")));
    let call = runtime.user("u").forward("buyer", r#"[{"euros":1}]"#);
    let cancelling = async {
        assert_eq!(said.recv().await, Some("asked"));
        runtime.shutdown().await;
    };
    let (ended, ()) = tokio::join!(call, cancelling);
    assert_eq!(ended.unwrap_err().log.approvals().count(), 0, "there was no decision");
    assert!(ran.lock().is_empty());
}

#[tokio::test]
async fn nobody_approves_a_call_of_its_own() {
    let ran = Ran::default();
    let tool = pay(&ran).approved_by("buyer cafe\u{301}");
    let runtime = team(model(), ["buyer caf\u{e9}", "buyer"]).tool(tool).build().unwrap();
    let report = runtime.run("buyer caf\u{e9}", r#"[{"euros":1}]"#).await.unwrap();
    assert!(report.output.ends_with("cannot approve its own call"), "{}", report.output);
    assert_eq!((report.log.messages().count(), ran.lock().len()), (2, 0), "it was not asked");
}

#[tokio::test]
async fn the_refusal_of_a_call_of_its_own_is_not_given_to_others_nor_a_result_of_others_to_it() {
    let model = || {
        Scripted::computed(|request: &Request| match (request.context.input(), request.context.turns()) {
            ("go", 0) => Reply::tool("pay", json!({"euros": 1})),
            ("go", _) => Reply::text(outputs(request).join(" | ")),
            (_, _) => Reply::text("yes"),
        })
    };
    let refused = "Error: [pay] not approved: `boss` cannot approve its own call";
    let ran = Ran::default();
    let tool = pay(&ran).approved_by("boss").cached(60 * SECOND);
    let runtime = buyers(model()).tool(tool).build().unwrap();
    let (own, others) = tokio::join!(runtime.run("boss", "go"), runtime.run("buyer", "go"));
    assert_eq!((&*own.unwrap().output, &*others.unwrap().output), (refused, "paid 1"));
    assert_eq!(&*runtime.run("boss", "go").await.unwrap().output, refused);
    let (human, asked) = person(&["yes"]);
    let tool = pay(&ran).approved_by("boss").approved_by("human");
    let runtime = buyers(model()).user("human", "", human).tool(tool).build().unwrap();
    assert_eq!(&*runtime.run("boss", "go").await.unwrap().output, refused);
    assert_eq!((asked.lock().len(), ran.lock().len()), (0, 1), "nobody is asked about what cannot run");
}

#[tokio::test]
async fn an_approver_whose_own_tool_needs_approval_is_asked_about_like_any_other() {
    let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
        ("buyer", 0) => Reply::tool("pay", json!({"euros": 1})),
        ("boss", 0) => Reply::tool("pay", json!({"euros": 2})).and_tool("audit", json!({})),
        ("boss", _) => {
            let [own, audit] = outputs(request)[..] else { panic!("two outputs") };
            assert_eq!((own, audit), ("Error: [pay] not approved: `boss` cannot approve its own call", "all is well"));
            Reply::tool("finish", json!({"decision": "yes"}))
        }
        (_, _) => Reply::text(outputs(request).join(" | ")),
    });
    let ran = Ran::default();
    let (human, asked) = person(&["yes"]);
    let audit = tool::function("audit", "", |_: NoArguments| async { "all is well" }).approved_by("human");
    let tools = buyers(model).user("human", "", human).tool(pay(&ran).approved_by("boss")).tool(audit);
    let report = tools.build().unwrap().run("buyer", "").await.unwrap();
    assert_eq!((&*report.output, ran.lock().clone()), ("paid 1", vec![1]));
    assert_eq!(*asked.lock(), [json!({"tool": "audit", "agent": "boss", "arguments": {}})]);
    let by: Vec<_> = report.log.approvals().map(|approval| (&*approval.by, &*approval.agent)).collect();
    assert_eq!(by, [("human", "boss"), ("boss", "buyer")]);
}

#[tokio::test]
async fn the_tool_that_was_asked_about_runs_though_another_has_its_name_by_now() {
    let (ran, other) = (Ran::default(), Ran::default());
    let place: Arc<Mutex<Option<Runtime>>> = Arc::default();
    let (swap, replacing) = (Arc::clone(&place), Arc::clone(&other));
    let human = move |_: Arc<Forward>| {
        let runtime = swap.lock().take().unwrap();
        assert!(runtime.remove_tool("pay"));
        runtime.add_tool(pay(&replacing)).unwrap();
        async { Ok::<_, CallError>("yes") }
    };
    let runtime = buyers(model()).user("human", "", human).tool(pay(&ran).approved_by("human")).build().unwrap();
    *place.lock() = Some(runtime.clone());
    assert_eq!(run(&runtime, json!([{"euros": 1}])).await, "paid 1");
    assert_eq!((ran.lock().len(), other.lock().len()), (1, 0));
}

#[tokio::test]
async fn the_decision_is_known_before_the_tool_begins() {
    let (human, _) = person(&["yes"]);
    let (gate, mut keeper) = pending_tool();
    let model = Scripted::computed(|_: &Request| Reply::tool("gate", json!({})));
    let runtime = buyers(model).user("human", "", human).tool(gate.approved_by("human")).build().unwrap();
    let mut events = runtime.events(1_000);
    let call = runtime.user("u").forward("buyer", "");
    let (cancel, observing) = (tokio_util::sync::CancellationToken::new(), async {
        assert_eq!(keeper.next().await, "started");
        let mut approvals = 0;
        while let Some(event) = events.try_next() {
            approvals += usize::from(matches!(event.kind, EventKind::ToolApproval(_)));
        }
        approvals
    });
    let running = cancel.run_until_cancelled(call);
    let (_, approvals) = tokio::join!(running, async {
        let approvals = observing.await;
        cancel.cancel();
        approvals
    });
    assert_eq!((approvals, keeper.next().await), (1, "dropped"));
}

#[tokio::test(start_paused = true)]
async fn the_order_of_wrappers_says_what_the_time_limit_and_the_cache_hold_for() {
    let slow = |_: Arc<Forward>| async {
        tokio::time::sleep(10 * SECOND).await;
        Ok::<_, CallError>("yes")
    };
    let ran = Ran::default();
    let runtime = buyers(model()).user("human", "", slow).build().unwrap();
    let minute = 60 * SECOND;
    let tools: [(Box<dyn Tool>, &str, u64); 4] = [
        (Box::new(pay(&ran).timeout(SECOND).approved_by("human")), "paid 1 | paid 1", 20),
        (Box::new(pay(&ran).approved_by("human").timeout(SECOND)), "timed out", 2),
        (Box::new(pay(&ran).cached(minute).approved_by("human")), "paid 1 | paid 1", 20),
        (Box::new(pay(&ran).approved_by("human").cached(minute)), "paid 1 | paid 1", 10),
    ];
    for (tool, expected, seconds) in tools {
        runtime.add_tool(tool).unwrap();
        let begun = Instant::now();
        let output = run(&runtime, json!([{"euros": 1}, {"euros": 1}])).await;
        assert!(output.contains(expected), "{output}");
        assert_eq!(begun.elapsed().as_secs(), seconds);
        assert!(runtime.remove_tool("pay"));
    }
    assert_eq!(*ran.lock(), [1; 4]);
}

#[tokio::test(start_paused = true)]
async fn two_peers_must_both_approve_and_the_inner_one_is_asked_about_what_the_outer_one_gave() {
    let ran = Ran::default();
    let (human, asked) = person(&["yes"]);
    let (chief, _) = person(&[r#"{"decision":"yes","arguments":{"euros":5}}"#, "no"]);
    let tool = pay(&ran).approved_by("human").approved_by("chief");
    let runtime = buyers(model()).user("human", "", human).user("chief", "", chief).tool(tool).build().unwrap();
    let output = run(&runtime, json!([{"euros": 1}, {"euros": 2}])).await;
    assert!(output.ends_with("{\"euros\":5}\npaid 5 | Error: [pay] `chief` refused"), "{output}");
    assert_eq!((ran.lock().clone(), asked.lock()[0]["arguments"].clone()), (vec![5], json!({"euros": 5})));
}

#[test]
fn a_function_that_blocks_keeps_no_thread_while_a_peer_thinks() {
    on_threads(1, async {
        let (begin, mut begun) = mpsc::unbounded_channel();
        let leave = Arc::new(tokio::sync::Semaphore::new(0));
        let gate = Arc::clone(&leave);
        let human = move |_: Arc<Forward>| {
            let (begin, gate) = (begin.clone(), Arc::clone(&gate));
            async move {
                begin.send(()).unwrap();
                gate.acquire().await.unwrap().forget();
                Ok::<_, CallError>("yes")
            }
        };
        let name = |_: Payment| std::thread::current().name().unwrap().to_owned();
        let other = tool::blocking("other", "", |_: NoArguments| "other");
        let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
            (_, 1) => Reply::text(outputs(request).join(" | ")),
            ("boss", _) => Reply::tool("other", json!({})),
            _ => (0..3).fold(Reply::default(), |reply, euros| reply.and_tool("pay", json!({"euros": euros}))),
        });
        let runtime = buyers(model).blocking_threads(1).user("human", "", human).tool(other);
        let runtime = runtime.tool(tool::blocking("pay", "", name).approved_by("human")).build().unwrap();
        let asking = tokio::spawn({
            let runtime = runtime.clone();
            async move { runtime.run("buyer", "").await.unwrap().output }
        });
        for _ in 0..3 {
            begun.recv().await.unwrap();
        }
        assert_eq!(&*runtime.run("boss", "").await.unwrap().output, "other");
        leave.add_permits(3);
        assert_eq!(&*asking.await.unwrap(), ["agentouto-blocking"; 3].join(" | "));
    });
}

#[tokio::test(start_paused = true)]
async fn one_who_waits_for_anothers_question_asks_a_question_of_its_own_when_that_one_is_cancelled() {
    let ran = Ran::default();
    let (say, mut said) = mpsc::unbounded_channel();
    let human = move |_: Arc<Forward>| {
        say.send(()).unwrap();
        async {
            tokio::time::sleep(10 * SECOND).await;
            Ok::<_, CallError>("yes")
        }
    };
    let tool = pay(&ran).approved_by("human").cached(60 * SECOND);
    let runtime = buyers(model()).user("human", "", human).tool(tool).build().unwrap();
    let impatient = timeout(5 * SECOND, run(&runtime, json!([{"euros": 1}])));
    let patient = async {
        tokio::time::sleep(SECOND).await;
        run(&runtime, json!([{"euros": 1}])).await
    };
    let (impatient, patient) = tokio::join!(impatient, patient);
    assert!(impatient.is_err());
    assert_eq!((&*patient, ran.lock().clone()), ("paid 1", vec![1]));
    assert_eq!((said.recv().await, said.recv().await, said.try_recv().is_err()), (Some(()), Some(()), true));
}

#[tokio::test]
async fn a_tool_that_panics_after_its_approval_and_a_check_that_panics_harm_nothing_else() {
    let (human, _) = person(&["yes", r#"{"decision":"yes","arguments":{"x":1}}"#]);
    let panics = With("pay", |_| async { panic!("ouch") });
    let runtime = buyers(model()).user("human", "", human).tool(panics.approved_by("human")).build().unwrap();
    let output = run(&runtime, json!([{}, {}])).await;
    let changed = "`human` changed the arguments; the tool ran with {\"x\":1}: panicked: ouch";
    assert_eq!(output, format!("Error: [pay] panicked: ouch | Error: [pay] {changed}"));
}
