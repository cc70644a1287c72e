//! The helpers for people who test their own agents, tools and actors.

use std::sync::Arc;
use std::time::Duration;

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::testing::TestCall;
use agentouto::tool::{self, NoArguments};
use agentouto::{
    Agent, Arguments, CallError, ChatMessage, Content, EventKind, Forward, Incoming, Log, Progress, ProviderError,
    ProviderErrorKind, Reply, Request, Tool, ToolContext, ToolError, ToolSpec,
};
use futures_util::FutureExt as _;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::team::{With, on_threads, team};

/// The message of a panic.
fn panic_of(check: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).expect_err("it must panic");
    panic.downcast::<String>().map_or_else(|panic| panic.downcast_ref::<&str>().unwrap().to_string(), |text| *text)
}

fn noop(name: &'static str) -> impl Tool {
    tool::function(name, "", |_: NoArguments| async { "did" })
}

#[tokio::test(start_paused = true)]
async fn requests_are_kept_whatever_becomes_of_them_and_only_after_a_handle_was_asked_for() {
    let slow = ScriptedReply::from(Reply::text("late")).after(Duration::from_secs(60));
    let replies = [
        Reply::tool("look", json!({"a": 1})).into(),
        Reply::text("done").into(),
        ScriptedReply::panic("a panic in the script"),
        ScriptedReply::error(ProviderError::new(ProviderErrorKind::Other, "no")),
        slow,
    ];
    let model = Scripted::new().replies("작가✍️", replies).otherwise(|_: &Request| -> Reply { panic!("in a closure") });
    let requests = model.requests();
    let runtime = team(model, ["작가✍️", "other"]).tool(noop("look")).build().unwrap();
    runtime.run("작가✍️", "one").await.unwrap();
    let report = |input| runtime.run("작가✍️", input);
    assert!(matches!(report("two").await.unwrap_err().error, CallError::Panicked { .. }));
    assert!(matches!(report("three").await.unwrap_err().error, CallError::Provider { .. }));
    assert!(tokio::time::timeout(Duration::from_secs(1), report("four")).await.is_err());
    assert!(matches!(runtime.run("other", "five").await.unwrap_err().error, CallError::Panicked { .. }));
    let inputs: Vec<_> = requests.all().iter().map(|request| request.context.input().to_owned()).collect();
    assert_eq!(inputs, ["one", "one", "two", "three", "four", "five"]);
    let [_, second, ..] = &requests.of("작가✍️")[..] else { panic!("five requests are expected") };
    assert!(
        matches!(second.context.messages().next_back(), Some(ChatMessage::Tool { output, .. }) if &*output.content.text == "did")
    );
    assert_eq!(second.tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["look", "call_agent", "finish"]);
    assert_eq!(requests.of("other").len(), 1);
    assert!(requests.of("nobody").is_empty());
}

#[test]
fn requests_of_many_threads_are_all_kept() {
    let model = Scripted::new().otherwise(|request: &Request| match &*request.agent.name {
        "hub" if request.context.turns() == 0 => {
            (0..500).fold(Reply::default(), |reply, n| reply.and_call_agent("leaf", &n.to_string()))
        }
        _ => Reply::text("done"),
    });
    let requests = model.requests();
    let runtime = team(model, ["hub", "leaf"]).build().unwrap();
    on_threads(4, async move { runtime.run("hub", "go").await.map(drop).unwrap() });
    let mut inputs: Vec<u32> = requests.of("leaf").iter().map(|r| r.context.input().parse().unwrap()).collect();
    inputs.sort_unstable();
    assert_eq!(inputs, (0..500).collect::<Vec<_>>());
    assert_eq!(requests.clone().all().len(), 502);
}

#[tokio::test]
async fn a_script_that_is_not_used_up_names_each_agent_and_what_is_left() {
    let text = || Reply::text("x");
    let model = Scripted::new().replies("a", [text(), text(), text()]).replies("used", [text()]);
    let requests = model.requests();
    let model = model
        .replies_to("b", "hello", [text()])
        .replies_to("b", "hello", [Reply::call_agent("used", "?"), text()])
        .replies_to_any("b", [text(), text()])
        .replies("a", [text()]);
    let runtime = team(model, ["a", "b", "used"]).build().unwrap();
    runtime.run("a", "go").await.unwrap();
    let told = panic_of(|| requests.assert_used_up());
    let expected = [
        "the script is not used up:",
        "the script of agent `a`: 3 of 4 replies are left",
        "the script of agent `used`: 1 of 1 replies are left",
        "the script of agent `b` for the input `hello`: 2 of 2 replies are left",
        "the script of agent `b` for any input: 2 of 2 replies are left",
    ];
    assert_eq!(told.lines().collect::<Vec<_>>(), expected);
    for _ in 0..3 {
        runtime.run("a", "go").await.unwrap();
    }
    runtime.run("b", "hello").await.unwrap();
    runtime.run("b", "other").await.unwrap();
    let told = panic_of(|| requests.assert_used_up());
    assert!(told.ends_with("used up:\nthe script of agent `b` for any input: 1 of 2 replies are left"), "{told}");
    assert!(runtime.run("a", "one too many").await.is_err(), "it asks for more, and nothing is left");
    Scripted::computed(|_: &Request| Reply::text("")).requests().assert_used_up();
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Order {
    item: Item,
    #[schemars(length(min = 2), inner(range(min = 1, max = 9)))]
    amounts: Vec<u8>,
    #[schemars(regex(pattern = r"^[A-Z]{3}-\d{4}$"))]
    code: String,
    note: Option<String>,
    next: Option<Box<Order>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Item {
    Book {
        title: String,
    },
    #[expect(dead_code, reason = "only its schema is used")]
    Song {
        seconds: u32,
    },
}

#[tokio::test]
async fn a_plausible_model_calls_every_tool_once_with_data_that_fits_and_then_finishes() {
    let order = tool::function("order", "", |order: Order| async move {
        assert!(order.amounts.len() >= 2 && order.amounts.iter().all(|amount| (1..=9).contains(amount)), "{order:?}");
        assert!(matches!(&order.item, Item::Book { title } if !title.is_empty()) && order.code.len() == 8, "{order:?}");
        assert!(order.note.is_none_or(|note| note == "text") && order.next.is_none());
    });
    let model = Scripted::plausible();
    let requests = model.requests();
    let runtime = team(model, ["a"]).tool(order).tool(noop("작업")).build().unwrap();
    let call = runtime.user("user").forward("a", "go").log_details().typed::<Order>();
    let report = call.await.unwrap();
    assert_eq!(report.output.code.len(), 8);
    report.log.assert_calls(["user > a", "& a * order", "& a * 작업"]);
    assert!(
        report.log.tool_calls().iter().all(|call| matches!(call.result, Some(Ok(_)))),
        "{:?}",
        report.log.tool_calls()
    );
    assert_eq!(requests.all().len(), 2);
    let number = runtime.user("user").forward("a", "go").typed::<f64>().await.unwrap();
    assert_eq!(number.output, 1.5);
    assert_eq!(&*runtime.run("a", "go").await.unwrap().output, "text");
}

#[tokio::test]
async fn a_plausible_model_survives_schemas_that_lie() {
    let taken = |name: &str, parameters: Value| {
        let spec = ToolSpec { name: name.into(), description: "".into(), parameters };
        tool::from_spec(spec, |arguments: Arguments| async move { Value::Object(arguments).to_string() })
    };
    let runtime = team(Scripted::plausible(), ["a"])
        .tool(taken("never", json!({"type": "object", "not": {}})))
        .tool(taken("text", json!({"type": "object", "default": "no object"})))
        .tool(taken("endless", json!({"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]})))
        .tool(taken("contradiction", json!({"type": "object", "required": ["x"], "properties": {"x": false}})))
        .build()
        .unwrap();
    let report = runtime.user("user").forward("a", "go").log_details().await.unwrap();
    assert_eq!((report.log.tool_calls().len(), &*report.output), (4, "text"));
}

#[tokio::test]
async fn plausible_agents_that_call_each_other_end() {
    let model = Scripted::plausible_calling(["b", "c", "person"]);
    let person = |forward: Arc<Forward>| async move { Ok::<_, CallError>(format!("to {}", forward.sender)) };
    let runtime = team(model, ["a", "b", "c"]).user("person", "", person).build().unwrap();
    let report = runtime.run("a", "go").await.unwrap();
    let mut lines = report.log.call_lines();
    assert_eq!(lines[0], "user > a");
    lines.sort_unstable();
    let expected = ["a > b", "a > c", "a > person", "b > c", "b > person", "c > b", "c > person", "user > a"];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn some_agents_are_plausible_and_others_follow_a_script() {
    let model = Scripted::new()
        .replies("lead", [Reply::call_agent("helper", "?"), Reply::finish("done")])
        .otherwise(Reply::plausible);
    let runtime = team(model, ["lead", "helper"]).tool(noop("look")).build().unwrap();
    let report = runtime.user("user").forward("lead", "go").log_details().await.unwrap();
    report.log.assert_calls(["user > lead", "lead > helper", "helper * look"]);
}

struct Tenant(&'static str);

#[tokio::test]
async fn a_tool_under_test_sees_what_was_lent_reports_progress_and_calls() {
    let busy = With("busy", |context: ToolContext| async move {
        let tenant = context.get::<Tenant>().map_or("nobody", |tenant| tenant.0);
        context.progress(Progress { done: 1.0, total: Some(2.0), message: None });
        let answer = context.caller.forward("counter", tenant).typed::<u32>().await?;
        context.progress(Progress { done: 2.0, ..Progress::default() });
        Ok(format!("{} {}", context.agent, answer.output).into())
    });
    let test = TestCall::new("작가", "go").with(Tenant("acme")).answered_by(|forward: Arc<Forward>| async move {
        assert_eq!((&*forward.sender, forward.depth), ("작가", 1));
        Ok::<_, CallError>(forward.content.text.len().to_string())
    });
    assert_eq!(busy.call(Arguments::new(), test.context()).await, Ok("작가 4".into()));
    assert_eq!(test.progress().iter().map(|progress| progress.done).collect::<Vec<_>>(), [1.0, 2.0]);
    assert_eq!(test.forwards().iter().map(|forward| &*forward.content.text).collect::<Vec<_>>(), ["acme"]);
    assert_ne!(test.context().tool_call_id, test.context().tool_call_id);

    let failed = busy.call(Arguments::new(), ToolContext::for_test()).await.unwrap_err();
    assert!(failed.message.contains("`TestCall::answered_by`"), "{}", failed.message);
    let misfit = TestCall::new("a", "").answered_by(|_: Arc<Forward>| async { Ok::<_, CallError>("many") });
    let failed = busy.call(Arguments::new(), misfit.context()).await.unwrap_err();
    assert!(failed.message.contains("many"), "{}", failed.message);
}

#[test]
fn a_tool_that_makes_no_calls_is_tested_without_tokio() {
    let told = With("told", |context: ToolContext| async move {
        context.progress(Progress::default());
        let error = context.caller.call_agent("b", "?").await.unwrap_err();
        Ok(error.to_string().into())
    });
    let test = TestCall::new("a", "");
    let output = told.call(Arguments::new(), test.context()).now_or_never().unwrap().unwrap();
    assert!(output.text.contains("within a tokio runtime"), "{output}");
    assert_eq!(test.progress(), [Progress::default()]);
    drop(test);
}

#[tokio::test]
async fn a_context_outlives_its_test_call_and_is_used_by_many_tasks() {
    let answers = |forward: Arc<Forward>| async move { Ok::<_, CallError>(forward.content.clone()) };
    let context = TestCall::new("a", "").answered_by(answers).context();
    let calls = (0..100).map(|n| tokio::spawn(context.caller.call_agent("b", n.to_string())));
    for (n, answer) in futures_util::future::join_all(calls).await.into_iter().enumerate() {
        assert_eq!(answer.unwrap(), Ok(n.to_string().into()));
    }
}

#[tokio::test]
async fn a_panic_of_an_answer_is_the_error_of_the_call_and_a_cancelled_test_ends_its_calls() {
    let panics = |_: Arc<Forward>| async { panic!("in an answer") as Result<Content, CallError> };
    let context = TestCall::new("a", "").answered_by(panics).context();
    let error = context.caller.call_agent("b", "?").await.unwrap_err();
    assert!(matches!(error, CallError::Panicked { .. }), "{error}");

    let never = |_: Arc<Forward>| std::future::pending::<Result<Content, CallError>>();
    let test = TestCall::new("a", "").answered_by(never);
    let context = test.context();
    let waiting = tokio::spawn(context.caller.call_agent("b", "?"));
    while test.forwards().is_empty() {
        tokio::task::yield_now().await;
    }
    test.cancel();
    assert_eq!(waiting.await.unwrap(), Err(CallError::Cancelled));
    assert_eq!(context.caller.call_agent("b", "?").await, Err(CallError::Cancelled));
    assert_eq!(test.forwards().len(), 1);
}

#[tokio::test]
async fn an_actor_under_test_answers_calls_is_cancelled_or_says_nothing() {
    let (incoming, test) = Incoming::for_test("hello");
    assert_eq!(&*incoming.forward.content.text, "hello");
    let error = incoming.caller.call_agent("b", "?").await.unwrap_err();
    assert!(matches!(error, CallError::Unreachable { .. }), "{error}");
    let kept = incoming.caller.clone();
    incoming.reply.send(Ok::<_, CallError>("answer"));
    assert_eq!(test.answer().await, Ok("answer".into()));
    assert_eq!(test.answer().await, Ok("answer".into()));
    assert_eq!(kept.call_agent("b", "?").await, Err(CallError::Cancelled), "the call is over");

    let (incoming, test) = Incoming::for_test("");
    drop(incoming);
    assert!(matches!(test.answer().await, Err(CallError::Unanswered { .. })));

    let (incoming, test) = Incoming::for_test("");
    let told = tokio::spawn(async move {
        incoming.reply.cancelled().await;
        incoming.reply.send(Ok::<_, CallError>("too late"));
    });
    test.cancel();
    assert_eq!(test.answer().await, Err(CallError::Cancelled));
    told.await.unwrap();
    assert_eq!(test.answer().await, Err(CallError::Cancelled));

    let test = TestCall::new("counter", "").typed::<u32>();
    test.incoming().reply.send(Ok::<_, CallError>("many"));
    assert!(matches!(test.answer().await, Err(CallError::Misfit { name, .. }) if &*name == "counter"));

    let (incoming, test) = Incoming::for_test("");
    drop(test);
    incoming.reply.cancelled().await;
}

#[tokio::test(start_paused = true)]
async fn every_task_that_waits_for_the_answer_of_an_actor_gets_it() {
    let (incoming, test) = Incoming::for_test("");
    let test = Arc::new(test);
    let mut waiting: Vec<_> = (0..3).map(|_| Arc::clone(&test)).collect();
    let waiting = waiting.drain(..).map(|test| tokio::spawn(async move { test.answer().await }));
    let waiting: Vec<_> = waiting.collect();
    tokio::task::yield_now().await;
    waiting[1].abort();
    tokio::task::yield_now().await;
    incoming.reply.send(Ok::<_, CallError>("answer"));
    let answers = futures_util::future::join_all(waiting);
    let answers = tokio::time::timeout(Duration::from_secs(60), answers).await.expect("a task was not woken");
    let answers: Vec<_> = answers.into_iter().map(Result::ok).collect();
    assert_eq!(answers, [Some(Ok("answer".into())), None, Some(Ok("answer".into()))]);
}

#[tokio::test]
async fn the_log_keeps_tool_calls_with_arguments_and_outputs_when_asked_to() {
    let fails = With("fails", |_: ToolContext| async { Err::<Content, ToolError>("no luck".into()) });
    let model = || {
        Scripted::new()
            .replies(
                "a",
                [
                    Reply::tool("look", json!({"for": "것"})),
                    Reply::tool("fails", json!({})).and_tool("unknown\ntool", json!({})).and_call_agent("b", "?"),
                    Reply::call_agent("nobody", "?"),
                    Reply::text("done"),
                ],
            )
            .replies("b", [Reply::tool("look", json!({})), Reply::text("done")])
    };
    let runtime = team(model(), ["a", "b"]).tool(noop("look")).tool(fails).build().unwrap();
    let report = runtime.user("user").forward("a", "go").log_details().await.unwrap();
    let calls = report.log.tool_calls();
    let told: Vec<_> = calls.iter().map(|call| (&*call.agent, &*call.call.name, &*call.call.arguments)).collect();
    assert_eq!(told[0], ("a", "look", r#"{"for":"것"}"#));
    assert_eq!(calls[0].result, Some(Ok("did".into())));
    let result = |name: &str| calls.iter().find(|call| &*call.call.name == name).unwrap();
    assert_eq!(result("fails").result, Some(Err("Error: [fails] no luck".into())));
    assert!(result("unknown\ntool").was_refused && !result("fails").was_refused);
    assert!(report.log.tree().calls().len() == 2 && report.log.cut_replies().is_empty());
    report.log.assert_calls([
        "user > a",
        "a * look",
        "& a > b",
        "& a * unknown tool (refused)",
        "& a * fails",
        "& b * look",
        "a > nobody (undelivered)",
    ]);
    let runtime = team(model(), ["a", "b"]).tool(noop("look")).build().unwrap();
    let report = runtime.run("a", "go").await.unwrap();
    assert!(report.log.tool_calls().is_empty());
    report.log.assert_calls(["user > a", "a > b"]);
    let told = panic_of(|| report.log.assert_calls(["user > a", "a * look", "a > b"]));
    assert!(told.contains("set `Call::log_details`") && told.ends_with("  user > a\n- a * look\n  a > b\n"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn the_text_so_far_of_a_reply_that_was_cancelled_is_kept() {
    let cut = ScriptedReply::from(Reply::text("one two three")).in_pieces(["one ", "two ", "three"]);
    let whole = ScriptedReply::from(Reply::call_agent("b", "?")).in_pieces(["whole"]).after(Duration::from_secs(1));
    let model = Scripted::new().replies("a", [whole]).replies("b", [cut.after(Duration::from_secs(4))]);
    let hangs = With("hangs", |_: ToolContext| std::future::pending());
    let runtime = team(model, ["a", "b"]).tool(hangs).build().unwrap();
    let mut call = runtime.user("user").forward("a", "go").log_details();
    assert!(tokio::time::timeout(Duration::from_millis(3_500), &mut call).await.is_err());
    call.cancel();
    let log = call.await.unwrap_err().log;
    let [cut] = &log.cut_replies()[..] else { panic!("one reply was cut") };
    assert_eq!((&*cut.agent, &*cut.text), ("b", "one two "));
    let fails = ScriptedReply::error(ProviderError::new(ProviderErrorKind::Connection, "it broke")).in_pieces(["half"]);
    let runtime = team(Scripted::new().replies("a", [fails]), ["a"]).build().unwrap();
    let log = runtime.user("user").forward("a", "go").log_details().await.unwrap_err().log;
    assert_eq!(&*log.cut_replies()[0].text, "half");
    let model = Scripted::new().replies("a", [Reply::tool("hangs", json!({}))]);
    let hangs = With("hangs", |_: ToolContext| std::future::pending());
    let runtime = team(model, ["a"]).tool(hangs).build().unwrap();
    let mut call = runtime.user("user").forward("a", "go").log_details();
    assert!(tokio::time::timeout(Duration::from_secs(1), &mut call).await.is_err());
    call.cancel();
    let log = call.await.unwrap_err().log;
    assert_eq!((log.tool_calls()[0].result.as_ref(), log.cut_replies().len()), (None, 0));
}

#[tokio::test]
async fn a_stream_shows_the_output_of_a_tool() {
    let model = Scripted::new().replies("a", [Reply::tool("look", json!({})), Reply::text("done")]);
    let runtime = team(model, ["a"]).tool(noop("look")).build().unwrap();
    let mut call = runtime.user("user").forward("a", "go");
    let mut outputs = Vec::new();
    while let Some(event) = call.next_event().await {
        if let EventKind::ToolEnd { output, .. } = event.kind {
            outputs.push(output);
        }
    }
    assert_eq!(outputs, [Content::from("did")]);
}

/// A run in which `hub` calls three agents at once, of which each calls `leaf`.
async fn hub() -> Log {
    let model = Scripted::new()
        .replies(
            "hub",
            [
                Reply::call_agent("x", "").and_call_agent("y", "").and_call_agent("z", ""),
                Reply::call_agent("leaf", ""),
                Reply::text("done"),
            ],
        )
        .otherwise(|request: &Request| match (&*request.agent.name, request.context.turns()) {
            ("leaf", _) | (_, 1) => Reply::text("done"),
            _ => Reply::call_agent("leaf", ""),
        });
    team(model, ["hub", "x", "y", "z", "leaf"]).build().unwrap().run("hub", "go").await.unwrap().log
}

#[test]
fn calls_that_ran_at_once_have_the_order_in_which_they_were_made() {
    for _ in 0..20 {
        let log = on_threads(4, hub());
        log.assert_calls([
            "user > hub",
            "hub > x",
            "x > leaf",
            "hub > y",
            "y > leaf",
            "hub > z",
            "z > leaf",
            "hub > leaf",
        ]);
    }
}

#[tokio::test]
async fn a_group_is_in_any_order_and_its_border_is_kept() {
    let log = hub().await;
    let grouped = [
        "user > hub",
        "& z > leaf",
        " & y > leaf",
        "&  x > leaf",
        "& hub > z",
        "& hub > y",
        "& hub > x",
        "hub > leaf ",
    ];
    log.assert_calls(grouped);
    log.assert_calls(grouped.map(|line| if line == "user > hub" { "& user > hub" } else { line }));
    let told = panic_of(|| log.assert_calls(["& hub > x", "& user > hub", "x > leaf", "hub > z"]));
    let expected = "the calls differ (-expected, +actual)\n  hub > x\n  user > hub\n  x > leaf\n+ hub > y\n+ y > leaf\n  hub > z\n+ z > leaf\n+ hub > leaf\n";
    assert_eq!(told, expected);
    let told = panic_of(|| log.assert_calls([] as [&str; 0]));
    assert_eq!(told.lines().count(), 9);
    let told = panic_of(|| log.assert_calls(["& user > hub"; 20]));
    assert!(told.contains("- user > hub"), "{told}");
    Log::default().assert_calls(Vec::<String>::new());
}

#[tokio::test]
async fn a_prompt_is_the_one_that_the_next_call_gets() {
    let model = Scripted::new().otherwise(|_: &Request| Reply::tool("finish", json!({"item": 1, "message": "x"})));
    let requests = model.requests();
    #[derive(Deserialize, JsonSchema)]
    struct Typed {
        item: u8,
    }
    let person = |_: Arc<Forward>| async { Ok::<_, CallError>("") };
    let runtime = team(model, ["a"])
        .agent(Agent::new("typed", "").answers::<Typed>())
        .user("person", "", person)
        .build()
        .unwrap();
    let before = runtime.prompt_of("a").unwrap();
    runtime.join(Agent::new("newcomer✍️", "New.")).unwrap();
    runtime.add_tool(noop("look")).unwrap();
    for agent in ["a", "typed", "newcomer✍️"] {
        runtime.run(agent, "go").await.unwrap();
        let prompt = runtime.prompt_of(agent).unwrap();
        let request = requests.all().pop().unwrap();
        assert_eq!((&*prompt.system, &prompt.tools), (request.context.system(), &request.tools));
        assert_ne!(prompt, before);
    }
    for unknown in ["person", "nobody", "user", ""] {
        assert_eq!(runtime.prompt_of(unknown), None);
    }
    assert!(runtime.leave("a") && runtime.prompt_of("a").is_none());
    let typed: Typed = serde_json::from_str(&runtime.run("typed", "go").await.unwrap().output).unwrap();
    assert_eq!(typed.item, 1);
}
