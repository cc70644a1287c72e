//! What a caller lends to everything below its call, and who sees it.

use std::sync::Arc;

use agentouto::providers::scripted::Scripted;
use agentouto::tool::{self, NoArguments};
use agentouto::{CallError, Caller, ChatMessage, Forward, Reply, Request, RunContext, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::team::{With, path, team};

struct Tenant(&'static str);

fn seen(run: &RunContext) -> String {
    let tenant = run.get::<Tenant>().map_or("nobody", |tenant| tenant.0);
    format!("{tenant} for {}", run.user())
}

fn whose() -> impl Tool {
    tool::function_with("whose", "", |_: NoArguments, context| async move { seen(&context.run) })
}

/// A model that calls itself as often as its input says, and asks the tool at the end.
fn chain(request: &Request) -> Reply {
    let last = request.context.messages().next_back();
    match (last, request.context.input().parse::<u32>()) {
        (Some(ChatMessage::Tool { output, .. }), _) => Reply::text(Arc::clone(&output.content.text)),
        (_, Ok(0) | Err(_)) => Reply::tool("whose", json!({})),
        (_, Ok(left)) => Reply::call_agent("a", &(left - 1).to_string()),
    }
}

#[tokio::test]
async fn a_tool_a_hundred_calls_deep_sees_the_value_of_its_own_run() {
    let runtime = team(Scripted::computed(chain), ["a"]).tool(whose()).build().unwrap();
    let asked = ["acme", "globex", "initech"].map(|tenant| {
        let call = runtime.user(tenant).forward("a", "100").with(Tenant(tenant));
        async move { (tenant, call.await.unwrap()) }
    });
    for (tenant, report) in futures_util::future::join_all(asked).await {
        assert_eq!(*report.output, *format!("{tenant} for {tenant}"));
    }
    assert_eq!(&*runtime.run("a", "3").await.unwrap().output, "nobody for user");
}

#[tokio::test]
async fn a_call_below_may_lend_another_value_to_what_is_below_itself_alone() {
    let model = Scripted::new()
        .replies("outer", [Reply::tool("relend", json!({})).and_tool("whose", json!({})), Reply::text("done")])
        .replies("inner", [Reply::tool("whose", json!({})), Reply::text("done")]);
    let relend = With("relend", |context: agentouto::ToolContext| async move {
        context.caller.forward("inner", "go").with(Tenant("inner")).with(7_u8).await?;
        assert!(context.get::<u8>().is_none() && context.get::<Tenant>().unwrap().0 == "outer");
        Ok("".into())
    });
    let runtime = team(model, ["outer", "inner"]).tool(whose()).tool(relend).build().unwrap();
    let mut call = runtime.user("u").forward("outer", "go").with(Tenant("replaced")).with(Tenant("outer"));
    let mut outputs = Vec::new();
    while let Some(event) = call.next_event().await {
        if let agentouto::EventKind::ToolEnd { name, error, .. } = event.kind {
            assert_eq!(error, None, "{name}");
            outputs.push(name.to_string());
        }
    }
    assert_eq!(outputs.len(), 3);
}

#[tokio::test]
async fn people_and_actors_see_the_run_too() {
    let model = Scripted::new().replies("a", [Reply::call_agent("boss", "?"), Reply::text("done")]);
    let boss = |forward: Arc<Forward>| async move {
        assert_eq!(forward.depth, 1);
        Ok::<_, CallError>(seen(&forward.run))
    };
    let runtime = team(model, ["a"]).user("boss", "", boss).build().unwrap();
    let call = runtime.user("u").forward("a", "go").with(Tenant("acme"));
    let root = call.call_id();
    let report = call.await.unwrap();
    assert_eq!(path(&report.log)[2], "a < boss: acme for u");
    let roots = report.log.messages().filter_map(|message| match message {
        agentouto::Message::Forward(forward) => Some(forward.run.root()),
        agentouto::Message::Return(_) => None,
    });
    assert!(roots.into_iter().all(|id| id == root));
}

#[tokio::test]
async fn a_value_that_panics_in_its_drop_harms_no_call() {
    struct Grenade;
    impl Drop for Grenade {
        fn drop(&mut self) {
            panic!("a panic in the drop of a lent value");
        }
    }
    let runtime = team(Scripted::computed(|_: &Request| Reply::text("fine")), ["a"]).build().unwrap();
    let report = runtime.user("u").forward("a", "go").with(Grenade).await.unwrap();
    assert_eq!(&*report.output, "fine");
    drop(report);
    drop(runtime.user("u").forward("a", "never sent").with(Grenade));
    struct Second(Grenade);
    let report = runtime.user("u").forward("a", "go").with(Grenade).with(Second(Grenade)).await.unwrap();
    drop(report);
    runtime.shutdown().await;
}

#[tokio::test]
async fn the_next_question_knows_the_conversation_before() {
    let model = Scripted::computed(|request: &Request| {
        let said: Vec<_> = request.context.messages().map(|message| format!("{message:?}")).collect();
        Reply::text(format!("answer {}", said.len()))
    });
    let runtime = team(model, ["a"]).build().unwrap();
    let first = runtime.run("a", "one").await.unwrap();
    let second = runtime.user("u").forward("a", "two").history(first.history()).await.unwrap();
    assert_eq!((&*first.output, &*second.output), ("answer 1", "answer 3"));
    let texts = second.history();
    let texts: Vec<_> = texts.iter().map(|message| serde_json::to_value(message).unwrap()["role"].clone()).collect();
    assert_eq!(texts, ["user", "assistant", "user", "assistant"]);
    let caller: Caller = runtime.user("u").caller();
    let third = caller.forward("a", "three").history(second.history());
    let id = third.call_id();
    assert_eq!(&*third.await.unwrap().output, "answer 5");
    assert_ne!(id, runtime.user("u").forward("a", "x").call_id());
}

#[derive(Deserialize, JsonSchema)]
struct Point {
    x: i32,
}

#[test]
fn a_function_tool_checks_arguments_without_running() {
    let tool = tool::function("f", "", |point: Point| async move {
        assert_eq!(point.x, 1);
        panic!("it ran");
        #[expect(unreachable_code, reason = "the type of the output")]
        ()
    });
    let check = |value: serde_json::Value| tool.check(value.as_object().unwrap());
    assert!(check(json!({"x": 1})).is_ok());
    let error = check(json!({"x": "one"})).unwrap_err();
    assert!(error.message.contains("invalid type: string \"one\", expected i32"), "{}", error.message);
}
