//! The `tracing` spans of a run. In a binary of their own and one at a time, because what `tracing` knows of its
//! subscribers is global.

use std::alloc::System;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::tool::{self, NoArguments};
use agentouto::{
    Agent, BoxFuture, CallError, DeltaSink, Effort, EventKind, Forward, Incoming, Provider, ProviderError,
    ProviderErrorKind, ProviderInfo, Reply, Request, Runtime, RuntimeBuilder, Usage,
};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::layer::{self, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn team(model: Scripted) -> RuntimeBuilder {
    Runtime::builder().provider("fake", model).agents(["a", "b"].map(|name| Agent::new(name, "Work.")))
}

fn searching() -> Runtime {
    let model = Scripted::new()
        .replies("a", [Reply::tool("search", json!({"q": 1})).usage(10, 1), Reply::call_agent("b", "x").usage(20, 2)])
        .replies("a", [Reply::finish("done").usage(30, 3)])
        .replies("b", [Reply::text("ok").usage(5, 5)]);
    team(model).tool(tool::function("search", "", |_: NoArguments| async { "found" })).build().unwrap()
}

/// Sets the subscriber of this thread, once no other test has one.
fn observe(spans: impl Subscriber + Send + Sync + 'static) -> (DefaultGuard, MutexGuard<'static, ()>) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    (tracing::subscriber::set_default(spans), turn)
}

/// A `tracing` subscriber that keeps every span, or panics at one of a name.
#[derive(Clone, Default)]
struct Spans {
    kept: Arc<Mutex<Vec<Kept>>>,
    panics_at: Option<&'static str>,
    /// The field at whose record it panics.
    panics_of: Option<&'static str>,
}

#[derive(Default)]
struct Kept {
    name: &'static str,
    has_no_parent: bool,
    fields: HashMap<&'static str, String>,
}

impl Visit for Kept {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("agentouto") && metadata.is_span()
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        assert_ne!(Some(span.metadata().name()), self.panics_at, "the subscriber is at fault");
        let mut kept = Kept { name: span.metadata().name(), has_no_parent: span.is_root(), ..Kept::default() };
        span.record(&mut kept);
        let mut all = self.kept.lock().unwrap();
        all.push(kept);
        Id::from_u64(all.len() as u64)
    }
    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut told = Kept::default();
        values.record(&mut told);
        assert!(self.panics_of.is_none_or(|field| !told.fields.contains_key(field)), "the subscriber is at fault");
        values.record(&mut self.kept.lock().unwrap()[span.into_u64() as usize - 1]);
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The names of the spans in which each thread is, the innermost last.
#[derive(Clone, Default)]
struct Entered(Arc<Mutex<HashMap<ThreadId, Vec<&'static str>>>>);

impl Entered {
    fn here(&self) -> Option<&'static str> {
        self.0.lock().unwrap().get(&thread::current().id())?.last().copied()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Entered {
    fn on_enter(&self, span: &Id, context: layer::Context<'_, S>) {
        let name = context.span(span).unwrap().name();
        self.0.lock().unwrap().entry(thread::current().id()).or_default().push(name);
    }
    fn on_exit(&self, _: &Id, _: layer::Context<'_, S>) {
        self.0.lock().unwrap().get_mut(&thread::current().id()).and_then(Vec::pop);
    }
}

#[tokio::test]
async fn spans_are_flat_and_named_after_the_conventions_and_say_nothing_of_what_was_said() {
    let spans = Spans::default();
    let _guard = observe(spans.clone());
    let report = searching().run("a", "a secret").await.unwrap();
    let kept = std::mem::take(&mut *spans.kept.lock().unwrap());
    let invocations: Vec<_> = kept.iter().filter(|span| span.name == "invoke_agent").collect();
    assert_eq!(invocations.len(), 2);
    assert!(invocations.iter().all(|span| span.has_no_parent));
    let calls = report.log.tree();
    let root = calls.calls()[0].call_id.to_string();
    assert_eq!(invocations[1].fields["agentouto.call.parent"], root);
    assert_eq!(invocations[1].fields["gen_ai.agent.name"], "b");
    assert_eq!(invocations[0].fields["gen_ai.operation.name"], "invoke_agent");
    let chat = kept.iter().find(|span| span.name == "chat").unwrap();
    assert_eq!(chat.fields["gen_ai.provider.name"], "fake");
    assert_eq!(chat.fields["gen_ai.usage.input_tokens"], "10");
    assert_eq!(chat.fields["gen_ai.response.finish_reasons"], r#"["tool_calls"]"#);
    let mut tools = kept.iter().filter(|span| span.name == "execute_tool");
    let (tool, transfer) = (tools.next().unwrap(), tools.next().unwrap());
    assert_eq!((&*tool.fields["gen_ai.tool.name"], &*tool.fields["otel.name"]), ("search", "execute_tool search"));
    let about_transfer = ["otel.name", "gen_ai.agent.name", "gen_ai.transfer.mode", "gen_ai.transfer.target.name"];
    assert_eq!(
        about_transfer.map(|field| &*transfer.fields[field]),
        ["execute_tool call_agent b", "a", "return_to_caller", "b"]
    );
    let sums = ["gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.response.finish_reasons"];
    assert_eq!(sums.map(|field| &*invocations[0].fields[field]), ["60", "6", r#"["tool_calls"]"#]);
    assert!(kept.iter().all(|span| span.fields["agentouto.run.id"] == root), "a span that no log can be joined to");
    assert!(kept.iter().all(|span| !span.fields.contains_key("otel.status_code")), "an error without a failure");
    let said = ["a secret", "found", "done"];
    assert!(
        !kept.iter().flat_map(|span| span.fields.values()).any(|value| said.iter().any(|said| value.contains(said)))
    );
}

#[tokio::test]
async fn content_is_in_the_spans_when_it_was_asked_for() {
    let spans = Spans::default();
    let _guard = observe(spans.clone());
    let model = Scripted::new().replies("a", [Reply::tool("search", json!({"q": 1})), Reply::text("done")]);
    let search = tool::function("search", "", |_: NoArguments| async { "found" });
    team(model).tool(search).record_content().build().unwrap().run("a", "a secret").await.unwrap();
    let kept = spans.kept.lock().unwrap();
    let json = |span: &Kept, field: &str| serde_json::from_str::<Value>(&span.fields[field]).unwrap();
    let question = json!({"role": "user", "parts": [{"type": "text", "content": "a secret"}]});
    let answer =
        json!([{"role": "assistant", "parts": [{"type": "text", "content": "done"}], "finish_reason": "stop"}]);
    assert_eq!(json(&kept[0], "gen_ai.input.messages"), json!([question]));
    assert_eq!(json(&kept[0], "gen_ai.output.messages"), answer);
    let chats: Vec<_> = kept.iter().filter(|span| span.name == "chat").collect();
    let call = json!({"type": "tool_call", "id": "call_0", "name": "search", "arguments": {"q": 1}});
    let asked = json!([{"role": "assistant", "parts": [call], "finish_reason": "tool_call"}]);
    assert_eq!(json(chats[0], "gen_ai.output.messages"), asked);
    assert_eq!(json(chats[1], "gen_ai.output.messages"), answer);
    let found = json!({"type": "tool_call_response", "id": "call_0", "response": "found"});
    assert_eq!(
        json(chats[1], "gen_ai.input.messages"),
        json!([question, {"role": "assistant", "parts": [call]}, {"role": "tool", "parts": [found]}])
    );
    let instructions = json(chats[0], "gen_ai.system_instructions");
    assert!(instructions[0]["content"].as_str().unwrap().contains("Work."), "{instructions}");
    let tools = json(chats[0], "gen_ai.tool.definitions");
    let names: Vec<_> = tools.as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["search", "call_agent", "finish"]);
    let tool = kept.iter().find(|span| span.name == "execute_tool").unwrap();
    assert_eq!(
        (&*tool.fields["gen_ai.tool.call.arguments"], &*tool.fields["gen_ai.tool.call.result"]),
        (r#"{"q":1}"#, "found")
    );
}

#[tokio::test]
async fn a_subscriber_that_panics_is_an_error_of_the_call_it_panicked_in() {
    let spans = Spans { panics_at: Some("invoke_agent"), ..Spans::default() };
    let guard = observe(spans);
    let runtime = searching();
    let error = runtime.run("a", "go").await.unwrap_err();
    drop(guard);
    let CallError::Panicked { message, .. } = &error.error else { panic!("{error}") };
    assert!(message.contains("the subscriber is at fault"), "{message}");
    runtime.idle().await;
}

/// A layer that panics when a span is closed.
struct PanicsAtEnds;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for PanicsAtEnds {
    fn on_close(&self, id: Id, context: layer::Context<'_, S>) {
        let is_ours = context.span(&id).is_some_and(|span| span.metadata().target().starts_with("agentouto"));
        assert!(!is_ours, "the layer is at fault");
    }
}

#[tokio::test]
async fn a_layer_that_panics_at_the_end_of_every_span_ends_neither_the_process_nor_a_call() {
    let guard = observe(tracing_subscriber::registry().with(PanicsAtEnds));
    let runtime = searching();
    assert_eq!(&*runtime.run("a", "go").await.unwrap().output, "done");
    let model = Scripted::new().replies("a", [ScriptedReply::panic("the provider is at fault")]);
    let error = team(model).build().unwrap().run("a", "go").await.unwrap_err();
    let CallError::Panicked { message, .. } = &error.error else { panic!("{error}") };
    assert_eq!(&**message, "the provider is at fault");
    drop(guard);
    runtime.shutdown().await;
}

#[tokio::test]
async fn a_subscriber_that_panics_while_a_request_is_dropped_ends_neither_the_process_nor_hides_the_usage() {
    let _guard = observe(Spans { panics_of: Some("error.type"), ..Spans::default() });
    let model = Scripted::new()
        .replies("a", [ScriptedReply::panic("the provider is at fault")])
        .replies("b", [ScriptedReply::from(Reply::text("late")).after(Duration::from_secs(3_600))]);
    let runtime = team(model).build().unwrap();
    let error = runtime.run("a", "go").await.unwrap_err();
    let CallError::Panicked { message, .. } = &error.error else { panic!("{error}") };
    assert_eq!(&**message, "the provider is at fault");
    let mut events = runtime.events(100);
    let mut call = runtime.user("alice").forward("b", "go");
    while !matches!(call.next_event().await.unwrap().kind, EventKind::ModelRequest { .. }) {}
    call.cancel();
    assert_eq!(call.await.unwrap_err().error, CallError::Cancelled);
    drop(runtime);
    let mut kinds = Vec::new();
    while let Some(event) = events.next().await {
        kinds.push(event.kind);
    }
    assert!(kinds.iter().any(|kind| matches!(kind, EventKind::ModelAborted { .. })), "{kinds:?}");
}

#[tokio::test]
async fn a_name_that_a_model_made_up_is_in_no_span() {
    let spans = Spans::default();
    let _guard = observe(spans.clone());
    let model = || {
        let calls = Reply::call_agent("a secret", "x").and_call_agent("b", "x").and_tool("a secret tool", json!({}));
        Scripted::new().replies("a", [calls, Reply::text("done")]).replies("b", [Reply::text("ok")])
    };
    let names = || {
        let kept = std::mem::take(&mut *spans.kept.lock().unwrap());
        let transfers = kept.iter().filter(|span| span.fields.contains_key("gen_ai.transfer.mode"));
        let named: Vec<_> = transfers.map(|span| span.fields["otel.name"].clone()).collect();
        (named, kept.iter().flat_map(|span| span.fields.values()).any(|value| value.contains("a secret")))
    };
    team(model()).build().unwrap().run("a", "go").await.unwrap();
    let expected = ["execute_tool call_agent", "execute_tool call_agent b"].map(str::to_owned).to_vec();
    assert_eq!(names(), (expected.clone(), false));
    team(model()).record_content().build().unwrap().run("a", "go").await.unwrap();
    assert_eq!(names(), (expected, true), "the arguments of the call have it");
}

/// The trace of an invocation may be the last part that holds the provider.
#[tokio::test]
async fn a_provider_that_panics_in_its_drop_harms_no_call_that_is_traced() {
    struct Grenade;
    impl Provider for Grenade {
        fn reply<'a>(
            &'a self,
            _: &'a Request,
            _: &'a mut DeltaSink<'_>,
        ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
            Box::pin(async { Ok(Reply::text("done")) })
        }
    }
    impl Drop for Grenade {
        fn drop(&mut self) {
            panic!("a panic in the drop of a provider");
        }
    }
    let _guard = observe(Spans::default());
    let runtime = Runtime::builder().provider("fake", Grenade).agent(Agent::new("a", "Works.")).build().unwrap();
    let call = runtime.user("alice").forward("a", "go");
    drop(runtime);
    assert_eq!(&*call.await.unwrap().output, "done");
}

#[tokio::test(start_paused = true)]
async fn a_call_beside_a_panic_of_the_invocation_ends_with_it() {
    let _guard = observe(Spans { panics_at: Some("execute_tool"), ..Spans::default() });
    let model = Scripted::new()
        .replies("a", [Reply::call_agent("b", "x").and_tool("search", json!({}))])
        .replies("b", [ScriptedReply::from(Reply::text("late")).after(Duration::from_secs(3_600))]);
    let search = tool::function("search", "", |_: NoArguments| async { "found" });
    let runtime = team(model).tool(search).build().unwrap();
    let begun = Instant::now();
    let error = runtime.run("a", "go").await.unwrap_err();
    assert!(matches!(error.error, CallError::Panicked { .. }), "{error}");
    assert_eq!(begun.elapsed(), Duration::ZERO, "the call below was left to itself");
}

#[tokio::test]
async fn a_tool_runs_in_its_span_on_whatever_thread_it_is() {
    let entered = Entered::default();
    let _guard = observe(tracing_subscriber::registry().with(entered.clone()));
    let (sender, mut seen) = mpsc::unbounded_channel();
    let look = move || sender.send((thread::current().id(), entered.here())).unwrap();
    let (here, there) = (look.clone(), look);
    let model = Scripted::new()
        .replies("a", [Reply::tool("here", json!({})), Reply::tool("there", json!({})), Reply::text("done")]);
    let runtime = team(model)
        .tool(tool::function("here", "", move |_: NoArguments| {
            let here = here.clone();
            async move { here() }
        }))
        .tool(tool::blocking("there", "", move |_: NoArguments| there()))
        .build()
        .unwrap();
    runtime.run("a", "go").await.unwrap();
    let (here, there) = (seen.recv().await.unwrap(), seen.recv().await.unwrap());
    assert_ne!(here.0, there.0);
    assert_eq!((here.1, there.1), (Some("execute_tool"), Some("execute_tool")));
}

#[tokio::test]
async fn the_spans_of_a_cancelled_call_say_so_on_every_level() {
    let spans = Spans::default();
    let _guard = observe(spans.clone());
    let (sender, mut started) = mpsc::unbounded_channel();
    let park = tool::function("park", "", move |_: NoArguments| {
        sender.send(()).unwrap();
        std::future::pending::<()>()
    });
    let model =
        Scripted::new().replies("a", [Reply::call_agent("b", "x")]).replies("b", [Reply::tool("park", json!({}))]);
    let runtime = team(model).tool(park).build().unwrap();
    let mut call = runtime.user("alice").forward("a", "go");
    tokio::select! {
        _ = &mut call => panic!("it cannot have ended"),
        _ = started.recv() => {}
    }
    call.cancel();
    assert_eq!(call.await.unwrap_err().error, CallError::Cancelled);
    let kept = spans.kept.lock().unwrap();
    let ends = kept.iter().filter(|span| span.fields.contains_key("error.type")).map(|span| {
        assert_eq!(span.fields["otel.status_code"], "ERROR");
        (&*span.fields["otel.name"], &*span.fields["error.type"])
    });
    let cancelled = ["invoke_agent a", "execute_tool call_agent b", "invoke_agent b", "execute_tool park"];
    assert_eq!(ends.collect::<Vec<_>>(), cancelled.map(|name| (name, "cancelled")));
}

#[tokio::test]
async fn the_spans_of_what_failed_say_what_kind_of_failure_it_was() {
    let spans = Spans::default();
    let _guard = observe(spans.clone());
    let refused = ProviderError::new(ProviderErrorKind::InvalidRequest, "no such model");
    let refused = ProviderError { status: Some(404), ..refused };
    let model = Scripted::new()
        .replies("a", [Reply::tool("search", json!({})).and_call_agent("b", "x").and_call_agent("carl", "x")])
        .replies("a", [Reply::text("done")])
        .replies("b", [ScriptedReply::error(refused)]);
    let search = tool::function("search", "", |_: NoArguments| async { Err::<&str, _>("no index") });
    let no = |_: Arc<Forward>| async { Err::<String, _>(CallError::failed("ask somebody else")) };
    team(model).tool(search).user("carl", "", no).build().unwrap().run("a", "go").await.unwrap();
    let kept = spans.kept.lock().unwrap();
    let failed = kept.iter().filter(|span| span.fields.contains_key("error.type"));
    let mut errors: Vec<_> =
        failed.map(|span| ["otel.name", "error.type", "otel.status_code"].map(|field| &*span.fields[field])).collect();
    errors.sort_unstable();
    assert_eq!(
        errors,
        [
            ["chat", "404", "ERROR"],
            ["execute_tool call_agent b", "404", "ERROR"],
            ["execute_tool call_agent carl", "failed", "ERROR"],
            ["execute_tool search", "tool_error", "ERROR"],
            ["invoke_agent b", "404", "ERROR"],
            ["invoke_agent carl", "failed", "ERROR"],
        ]
    );
    let texts = ["no such model", "no index", "ask somebody else"];
    let values = kept.iter().flat_map(|span| span.fields.values());
    assert_eq!(values.filter(|value| texts.iter().any(|text| value.contains(text))).count(), 0, "content was recorded");
}

/// A script with a server.
struct Known(Scripted);

impl Provider for Known {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        self.0.reply(request, deltas)
    }
    fn info(&self) -> ProviderInfo {
        let mut info = ProviderInfo::default();
        (info.name, info.address, info.port) = (Some("x_ai".into()), Some("api.x.ai".into()), Some(443));
        info
    }
}

#[tokio::test]
async fn what_is_known_of_a_request_and_of_its_server_is_in_its_span() {
    let spans = Spans::default();
    let _guard = observe(spans.clone());
    let mut usage = Usage::default();
    (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens) = (9, 8, 7, 6);
    usage.cache_write_tokens = 1;
    let pieces = ScriptedReply::from(Reply {
        usage: Some(usage),
        id: Some("r-1".into()),
        model: Some("grok-4-0709".into()),
        ..Reply::text("4 2")
    })
    .in_pieces(["4", " 2"]);
    let agent = Agent::new("a", "Work.").model("grok-4").temperature(0.5).max_output_tokens(10).role("Counts.");
    let agent = agent.reasoning(Effort::Low).extra("top_p", 0.25).extra("seed", 7).extra("stop", json!(["."]));
    let model = Known(Scripted::new().replies("a", [pieces]));
    let runtime = Runtime::builder().provider("mine", model).agent(agent).build().unwrap();
    let mut call = runtime.user("alice").forward("a", "go").conversation("talk-1");
    while call.next_event().await.is_some() {}
    call.await.unwrap();
    let kept = spans.kept.lock().unwrap();
    let chat = &kept.iter().find(|span| span.name == "chat").unwrap().fields;
    for (field, value) in [
        ("otel.name", "chat grok-4"),
        ("otel.kind", "client"),
        ("gen_ai.provider.name", "x_ai"),
        ("server.address", "api.x.ai"),
        ("server.port", "443"),
        ("gen_ai.request.stream", "true"),
        ("gen_ai.request.temperature", "0.5"),
        ("gen_ai.request.max_tokens", "10"),
        ("gen_ai.request.top_p", "0.25"),
        ("gen_ai.request.seed", "7"),
        ("gen_ai.request.stop_sequences", r#"["."]"#),
        ("gen_ai.request.reasoning.level", "low"),
        ("gen_ai.usage.cache_read.input_tokens", "7"),
        ("gen_ai.usage.cache_write.input_tokens", "1"),
        ("gen_ai.usage.reasoning.output_tokens", "6"),
        ("gen_ai.response.id", "r-1"),
        ("gen_ai.response.model", "grok-4-0709"),
        ("gen_ai.conversation.id", "talk-1"),
        ("session.id", "talk-1"),
        ("user.id", "alice"),
    ] {
        assert_eq!(chat[field], value, "{field}");
    }
    assert!(chat.contains_key("gen_ai.response.time_to_first_chunk"));
    let invocation = &kept[0].fields;
    for (field, value) in [
        ("otel.kind", "internal"),
        ("gen_ai.provider.name", "x_ai"),
        ("gen_ai.request.model", "grok-4"),
        ("gen_ai.agent.description", "Counts."),
        ("gen_ai.conversation.id", "talk-1"),
        ("gen_ai.response.finish_reasons", r#"["stop"]"#),
    ] {
        assert_eq!(invocation[field], value, "{field}");
    }
}

#[tokio::test]
async fn a_request_that_is_cancelled_or_whose_code_panics_says_so_and_keeps_what_it_used() {
    let spans = Spans::default();
    let _guard = observe(spans.clone());
    let model = Scripted::new()
        .replies("a", [ScriptedReply::from(Reply::text("late")).after(Duration::from_secs(3_600))])
        .replies("b", [ScriptedReply::panic("broken")]);
    let runtime = team(model).build().unwrap();
    let mut call = runtime.user("alice").forward("a", "go");
    while !matches!(call.next_event().await.unwrap().kind, EventKind::ModelRequest { .. }) {}
    drop(call);
    runtime.idle().await;
    runtime.run("b", "go").await.unwrap_err();
    let kept = spans.kept.lock().unwrap();
    let ends: Vec<_> = kept.iter().map(|span| (&*span.fields["otel.name"], &*span.fields["error.type"])).collect();
    assert_eq!(
        ends,
        [("invoke_agent a", "cancelled"), ("chat", "cancelled"), ("invoke_agent b", "panicked"), ("chat", "panicked")]
    );
}

#[tokio::test]
async fn an_actor_has_a_span_of_its_own() {
    struct Answers;
    impl Actor for Answers {
        type Msg = Incoming;
        type State = ();
        type Arguments = ();
        async fn pre_start(&self, _: ActorRef<Incoming>, (): ()) -> Result<(), ActorProcessingErr> {
            Ok(())
        }
        async fn handle(&self, _: ActorRef<Incoming>, call: Incoming, (): &mut ()) -> Result<(), ActorProcessingErr> {
            match &*call.forward.content.text {
                "answer" => call.reply.send(Ok::<_, CallError>("yes")),
                "fail" => call.reply.send(Err::<&str, _>(CallError::failed("no"))),
                _ => drop(call),
            }
            Ok(())
        }
    }
    let spans = Spans::default();
    let _guard = observe(spans.clone());
    let (actor, ended) = Actor::spawn(None, Answers, ()).await.unwrap();
    let runtime = Runtime::builder().actor("desk", "Answers.", actor.clone()).build().unwrap();
    for message in ["answer", "fail", "nothing"] {
        let _ = runtime.run("desk", message).await;
    }
    actor.stop(None);
    ended.await.unwrap();
    let _ = runtime.run("desk", "too late").await;
    runtime.shutdown().await;
    let kept = spans.kept.lock().unwrap();
    let ends: Vec<_> = kept.iter().map(|span| span.fields.get("error.type").map(|error| &**error)).collect();
    assert_eq!(ends, [None, Some("failed"), Some("unanswered"), Some("unreachable")]);
    assert!(kept.iter().all(|span| span.fields["otel.name"] == "invoke_agent desk"));
}

/// The allocations of a run of two agents and a tool, the fewest of several.
async fn allocations() -> usize {
    let search = tool::function("search", "", |_: NoArguments| async { "found" });
    let replies = [Reply::tool("search", json!({})), Reply::call_agent("b", "x"), Reply::text("done")];
    let model = Scripted::new().replies_to_any("a", replies).replies_to_any("b", [Reply::text("ok")]);
    let caller = team(model).tool(search).build().unwrap().user("service").caller();
    let mut fewest = usize::MAX;
    for _ in 0..50 {
        let region = Region::new(ALLOCATOR);
        caller.call_agent("a", "go").await.unwrap();
        fewest = fewest.min(region.change().allocations);
    }
    fewest
}

#[tokio::test]
async fn spans_that_no_subscriber_takes_cost_no_allocation() {
    let quiet = tracing_subscriber::registry().with(tracing::level_filters::LevelFilter::WARN);
    let _none = observe(NoSubscriber::default());
    let without = allocations().await;
    let guard = tracing::subscriber::set_default(quiet);
    let unwanted = allocations().await;
    drop(guard);
    let _guard = tracing::subscriber::set_default(Spans::default());
    let wanted = allocations().await;
    println!("allocations of a run: {without}, {unwanted} under a subscriber of warnings, {wanted} with spans");
    assert_eq!(unwanted, without);
    assert!(wanted > without);
}
