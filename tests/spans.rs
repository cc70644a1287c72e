//! The `tracing` spans of a run. In a binary of their own and one at a time, because what `tracing` knows of its
//! subscribers is global.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::tool::{self, NoArguments};
use agentouto::{Agent, CallError, Forward, ProviderError, ProviderErrorKind, Reply, Runtime, RuntimeBuilder};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::layer::{self, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

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
    assert_eq!(chat.fields["gen_ai.response.finish_reasons"], "tool_calls");
    let tool = kept.iter().find(|span| span.name == "execute_tool").unwrap();
    assert_eq!((&*tool.fields["gen_ai.tool.name"], &*tool.fields["otel.name"]), ("search", "execute_tool search"));
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
    assert_eq!(kept[0].fields["gen_ai.input.messages"], "a secret");
    assert_eq!(kept[0].fields["gen_ai.output.messages"], "done");
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
    let ends = kept.iter().filter(|span| span.name == "invoke_agent").map(|span| span.fields.get("error.type"));
    assert_eq!(ends.collect::<Vec<_>>(), [Some(&"cancelled".to_owned()); 2]);
}

#[tokio::test]
async fn the_spans_of_what_failed_say_what_kind_of_failure_it_was() {
    let spans = Spans::default();
    let _guard = observe(spans.clone());
    let refused = ProviderError::new(ProviderErrorKind::InvalidRequest, "no such model");
    let model = Scripted::new()
        .replies("a", [Reply::tool("search", json!({})).and_call_agent("b", "x").and_call_agent("carl", "x")])
        .replies("a", [Reply::text("done")])
        .replies("b", [ScriptedReply::error(refused)]);
    let search = tool::function("search", "", |_: NoArguments| async { Err::<&str, _>("no index") });
    let no = |_: Arc<Forward>| async { Err::<String, _>(CallError::failed("ask somebody else")) };
    team(model).tool(search).user("carl", "", no).build().unwrap().run("a", "go").await.unwrap();
    let kept = spans.kept.lock().unwrap();
    let mut errors: Vec<_> =
        kept.iter().filter_map(|span| Some((span.name, span.fields.get("error.type")?.as_str()))).collect();
    errors.sort_unstable();
    assert_eq!(
        errors,
        [
            ("chat", "InvalidRequest"),
            ("execute_tool", "tool_error"),
            ("invoke_agent", "failed"),
            ("invoke_agent", "provider_error")
        ]
    );
}
