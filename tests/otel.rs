//! One trace per run: what a receiver of OpenTelemetry gets. In a binary of its own, because the meter provider is global.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use agentouto::mcp::{ServerConfig, Servers};
use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::tool::{self, NoArguments};
use agentouto::{
    Agent, Answer, CallError, Caller, EventKind, Incoming, ProviderError, ProviderErrorKind, ProviderExt as _, Reply,
    Report, Request, Runtime, Usage,
};
use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use opentelemetry::Context;
use opentelemetry::trace::{
    FutureExt as _, Link, SpanContext, SpanId, SpanKind, TraceContextExt as _, TraceFlags, TraceId, TraceState,
    Tracer as _, TracerProvider as _,
};
use opentelemetry_otlp::{MetricExporter, Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric::Data, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, SamplingResult, SdkTracerProvider, ShouldSample, SpanData};
use prost::Message as _;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Instrument as _, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};

/// An OTLP receiver over HTTP on loopback, on a thread of its own.
#[derive(Clone, Default)]
struct Received {
    spans: Arc<Mutex<Vec<Span>>>,
    metrics: Arc<Mutex<Vec<Metric>>>,
}

impl Received {
    fn serve(&self) -> String {
        let Self { spans, metrics } = self.clone();
        let traces = move |body: Bytes| async move {
            let request = ExportTraceServiceRequest::decode(body).unwrap();
            let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
            spans.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
        };
        let measures = move |body: Bytes| async move {
            let request = ExportMetricsServiceRequest::decode(body).unwrap();
            let scopes = request.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
            metrics.lock().unwrap().extend(scopes.flat_map(|scope| scope.metrics));
        };
        let router = Router::new().route("/v1/traces", post(traces)).route("/v1/metrics", post(measures));
        let (sender, bound) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                axum::serve(listener, router).await.unwrap();
            });
        });
        format!("http://{}", bound.recv().unwrap())
    }
}

fn exporter(url: &str) -> SpanExporter {
    SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{url}/v1/traces"))
        .build()
        .unwrap()
}

/// The spans that one thread has made, in the order in which they ended.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl opentelemetry_sdk::trace::SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

impl Kept {
    /// Makes this the subscriber of the thread.
    fn observe(&self, sampler: Sampler) -> (SdkTracerProvider, DefaultGuard) {
        let provider = SdkTracerProvider::builder().with_simple_exporter(self.clone()).with_sampler(sampler).build();
        let guard = tracing::subscriber::set_default(subscriber(&provider));
        (provider, guard)
    }

    /// Each span with its parent, by name; the parents that are missing are `?`.
    fn edges(&self) -> Vec<(String, String)> {
        let spans = self.0.lock().unwrap();
        let name = |id| match spans.iter().find(|span| span.span_context.span_id() == id) {
            _ if id == SpanId::INVALID => "",
            Some(span) => &*span.name,
            None => "?",
        };
        let edges = spans.iter().map(|span| (name(span.parent_span_id).to_owned(), span.name.to_string()));
        edges.collect()
    }

    fn traces(&self) -> usize {
        let spans = self.0.lock().unwrap();
        spans.iter().map(|span| span.span_context.trace_id()).collect::<HashSet<_>>().len()
    }
}

fn subscriber(provider: &SdkTracerProvider) -> impl tracing::Subscriber + Send + Sync + 'static + use<> {
    let ours = filter_fn(|metadata| ["agentouto", "otel"].iter().any(|name| metadata.target().starts_with(name)));
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("otel"));
    tracing_subscriber::registry().with(layer.with_filter(ours))
}

fn text<'a>(span: &'a Span, key: &str) -> Option<&'a str> {
    match value(span, key)? {
        Any::StringValue(text) => Some(text),
        _ => None,
    }
}

fn number(span: &Span, key: &str) -> Option<u64> {
    match value(span, key)? {
        Any::IntValue(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn value<'a>(span: &'a Span, key: &str) -> Option<&'a Any> {
    let attribute = span.attributes.iter().find(|attribute| attribute.key == key)?;
    attribute.value.as_ref()?.value.as_ref()
}

const ERROR: i32 = 2;

/// A lead that calls a researcher, a writer and a sleeper. The researcher uses a tool of an MCP server, the writer one that
/// fails; the sleeper's model is never done.
fn team() -> Runtime {
    let late = ScriptedReply::from(Reply::text("late").usage(1_000, 1_000)).after(Duration::from_secs(3_600));
    let model = Scripted::new()
        .replies("lead", [Reply::call_agent("researcher", "find").and_call_agent("writer", "write").usage(100, 10)])
        .replies("lead", [Reply::call_agent("sleeper", "sleep").usage(200, 20), Reply::finish("done").usage(300, 30)])
        .replies("researcher", [Reply::tool("oracle", json!({"message": "?"})).usage(40, 4)])
        .replies("researcher", [ScriptedReply::from(Reply::text("found").usage(50, 5)).in_pieces(["fo", "und"])])
        .replies("writer", [Reply::tool("spell", json!({})).usage(6, 1), Reply::text("written").usage(7, 2)])
        .replies("sleeper", [late]);
    let spell = tool::function("spell", "Checks the spelling.", |_: NoArguments| async {
        Err::<&str, _>(agentouto::ToolError::timeout(Duration::from_secs(1)))
    });
    let agents = ["lead", "researcher", "writer", "sleeper"];
    let agents = agents.map(|name| {
        Agent::new(name, format!("You are the {name}.")).model("m-1").role("Works.").max_output_tokens(500)
    });
    Runtime::builder().provider("openai", model).agents(agents).tool(spell).record_content().build().unwrap()
}

/// Serves an oracle as a tool of an MCP server, and adds the tool to the team.
async fn add_mcp_tool(runtime: &Runtime) -> agentouto::mcp::Connections {
    let model = Scripted::new().replies("oracle", [Reply::text("42").usage(3, 3)]);
    let far = Runtime::builder().provider("far", model).agent(Agent::new("oracle", "Knows.")).build().unwrap();
    let server = agentouto::mcp::serve(&far).http("127.0.0.1:0").bind().await.unwrap();
    let url = server.url();
    tokio::spawn(server.serve());
    let connections = Servers::new().server("far", ServerConfig::http(url)).connect().await.unwrap();
    connections.add_to(runtime).unwrap();
    connections
}

/// Makes a receiver that of all spans and metrics of the process.
fn send_all_to(url: &str) -> (SdkTracerProvider, SdkMeterProvider) {
    let tracing = SdkTracerProvider::builder()
        .with_batch_exporter(exporter(url))
        .with_resource(Resource::builder().with_service_name("agentouto-test").build())
        .build();
    let metrics = MetricExporter::builder().with_http().with_endpoint(format!("{url}/v1/metrics")).build().unwrap();
    let reader = PeriodicReader::builder(metrics).with_interval(Duration::from_secs(3_600)).build();
    let metering = SdkMeterProvider::builder().with_reader(reader).build();
    tracing::subscriber::set_global_default(subscriber(&tracing)).unwrap();
    opentelemetry::global::set_meter_provider(metering.clone());
    (tracing, metering)
}

/// Runs the team within the request of a service, and cancels the sleeper once its model is asked.
async fn run_of_the_team() -> Report {
    let runtime = team();
    let connections = add_mcp_tool(&runtime).await;
    let mut call = runtime.user("alice").forward("lead", "go").conversation("talk-1");
    let running = async {
        while let Some(event) = call.next_event().await {
            if let EventKind::Forward { forward } = &event.kind
                && &*forward.receiver == "sleeper"
            {
                while !matches!(call.next_event().await.unwrap().kind, EventKind::ModelRequest { .. }) {}
                assert!(call.cancel_below(forward.call_id));
            }
        }
        call.await.unwrap()
    };
    let report = running.instrument(info_span!("POST /ask", otel.kind = "server")).await;
    connections.close().await;
    runtime.shutdown().await;
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_four_agents_a_tool_and_an_mcp_hop_is_one_trace_below_the_request_of_a_service() {
    let received = Received::default();
    // Another receiver may be named, to look at the run there.
    let elsewhere = std::env::var("AGENTOUTO_OTLP").ok();
    let (tracing, metering) = send_all_to(&elsewhere.clone().unwrap_or_else(|| received.serve()));
    let report = run_of_the_team().await;
    let flushing = tokio::task::spawn_blocking(move || (tracing.shutdown(), metering.shutdown()));
    let (traced, metered) = flushing.await.unwrap();
    traced.unwrap();
    if elsewhere.is_some() {
        return;
    }
    metered.unwrap();

    let spans = received.spans.lock().unwrap();
    // What the MCP server does is a run of its own: nothing carries the trace there.
    let far = spans.iter().filter(|span| text(span, "gen_ai.agent.name") == Some("oracle"));
    let far: HashSet<_> = far.map(|span| &span.trace_id).collect();
    let run: Vec<_> = spans.iter().filter(|span| !far.contains(&span.trace_id)).collect();
    let parents = check_tree(&run, &report);
    check_failures(&run, &parents);
    check_tokens(&run, &report);
    check_metrics(&received.metrics.lock().unwrap(), report.log.usage());
}

/// Checks that the spans are one tree, and returns the name of each one's parent.
fn check_tree<'a>(run: &[&'a Span], report: &Report) -> HashMap<&'a [u8], &'a str> {
    let request = run.iter().find(|span| span.name == "POST /ask").unwrap();
    let by_id: HashMap<_, _> = run.iter().map(|span| (&span.span_id, *span)).collect();
    let root = report.log.tree().calls()[0].call_id.to_string();
    let mut parents = HashMap::new();
    for span in run {
        assert_eq!(span.trace_id, request.trace_id, "{} is in another trace", span.name);
        if span.span_id == request.span_id {
            continue;
        }
        let parent = by_id.get(&span.parent_span_id).unwrap_or_else(|| panic!("{} has no parent", span.name));
        parents.insert(&*span.span_id, &*parent.name);
        let is_cut = text(span, "error.type") == Some("cancelled");
        let ends_within = span.end_time_unix_nano <= parent.end_time_unix_nano;
        assert!(ends_within || is_cut, "{} ends after {}", span.name, parent.name);
        assert_eq!(text(span, "agentouto.run.id"), Some(&*root));
        assert_eq!(text(span, "gen_ai.conversation.id"), Some("talk-1"));
        assert_eq!(text(span, "user.id"), Some("alice"));
    }
    let mut edges: Vec<_> = run.iter().filter_map(|span| Some((*parents.get(&*span.span_id)?, &*span.name))).collect();
    edges.sort_unstable();
    let mut expected = vec![
        ("POST /ask", "invoke_agent lead"),
        ("invoke_agent researcher", "execute_tool oracle"),
        ("invoke_agent writer", "execute_tool spell"),
    ];
    for (transfer, agent, requests) in [
        (None, "invoke_agent lead", 3),
        (Some("execute_tool call_agent researcher"), "invoke_agent researcher", 2),
        (Some("execute_tool call_agent writer"), "invoke_agent writer", 2),
        (Some("execute_tool call_agent sleeper"), "invoke_agent sleeper", 1),
    ] {
        expected.extend(transfer.into_iter().flat_map(|transfer| [("invoke_agent lead", transfer), (transfer, agent)]));
        expected.extend((0..requests).map(|_| (agent, "chat m-1")));
    }
    expected.sort_unstable();
    assert_eq!(edges, expected);
    parents
}

fn check_failures(run: &[&Span], parents: &HashMap<&[u8], &str>) {
    let failure = |span: &&Span| {
        let is_error = span.status.as_ref().is_some_and(|status| status.code == ERROR);
        assert_eq!(is_error, text(span, "error.type").is_some(), "{}", span.name);
        is_error
    };
    let failed = run.iter().copied().filter(failure);
    let mut failed: Vec<_> =
        failed.map(|span| (parents[&*span.span_id], &*span.name, text(span, "error.type").unwrap())).collect();
    failed.sort_unstable();
    let expected = [
        ("execute_tool call_agent sleeper", "invoke_agent sleeper", "cancelled"),
        ("invoke_agent lead", "execute_tool call_agent sleeper", "cancelled"),
        ("invoke_agent sleeper", "chat m-1", "cancelled"),
        ("invoke_agent writer", "execute_tool spell", "timeout"),
    ];
    assert_eq!(failed, expected);
}

fn check_tokens(run: &[&Span], report: &Report) {
    let usage = report.log.usage();
    let sum = |kind: &str, key: &str| -> u64 {
        let spans = run.iter().filter(|span| text(span, "gen_ai.operation.name") == Some(kind));
        spans.filter_map(|span| number(span, key)).sum()
    };
    for kind in ["chat", "invoke_agent"] {
        let tokens = (sum(kind, "gen_ai.usage.input_tokens"), sum(kind, "gen_ai.usage.output_tokens"));
        assert_eq!(tokens, (usage.input_tokens, usage.output_tokens), "{kind}");
    }
    let lead = run.iter().find(|span| span.name == "invoke_agent lead").unwrap();
    assert_eq!(number(lead, "gen_ai.usage.input_tokens"), Some(600));
    assert_eq!(text(lead, "gen_ai.request.model"), Some("m-1"));
    let chat = run.iter().find(|span| span.name == "chat m-1").unwrap();
    assert_eq!(number(chat, "gen_ai.request.max_tokens"), Some(500));
    let Some(Any::ArrayValue(reasons)) = value(lead, "gen_ai.response.finish_reasons") else { panic!("no list") };
    assert_eq!(reasons.values.len(), 1);
}

fn check_metrics(metrics: &[Metric], usage: Usage) {
    let found: HashMap<_, _> = metrics.iter().map(|metric| (&*metric.name, metric)).collect();
    for (name, unit) in [
        ("gen_ai.client.operation.duration", "s"),
        ("gen_ai.client.operation.time_to_first_chunk", "s"),
        ("gen_ai.client.operation.time_per_output_chunk", "s"),
        ("gen_ai.client.token.usage", "{token}"),
        ("gen_ai.client.inference.usage.input_tokens", "{token}"),
        ("gen_ai.client.inference.usage.output_tokens", "{token}"),
        ("gen_ai.invoke_agent.duration", "s"),
        ("gen_ai.invoke_agent.inference_calls", "{inference_call}"),
        ("gen_ai.invoke_agent.tool_calls", "{tool_call}"),
        ("gen_ai.execute_tool.duration", "s"),
    ] {
        assert_eq!(found.get(name).map(|metric| &*metric.unit), Some(unit), "{name}");
    }
    // The runs of other tests are counted too.
    let is_of_the_team = |attributes: &[KeyValue]| {
        let model = attributes.iter().find(|attribute| attribute.key == "gen_ai.request.model");
        let model = model.and_then(|model| model.value.as_ref()?.value.as_ref());
        matches!(model, Some(Any::StringValue(model)) if model == "m-1")
    };
    let Some(Data::Histogram(durations)) = &found["gen_ai.client.operation.duration"].data else {
        panic!("no histogram")
    };
    assert_eq!(durations.data_points[0].explicit_bounds.first(), Some(&0.01));
    let durations = durations.data_points.iter().filter(|point| is_of_the_team(&point.attributes));
    assert_eq!(durations.map(|point| point.count).sum::<u64>(), 8);
    let Some(Data::Sum(tokens)) = &found["gen_ai.client.inference.usage.input_tokens"].data else {
        panic!("no counter")
    };
    let tokens = tokens.data_points.iter().filter(|point| is_of_the_team(&point.attributes));
    let counted = tokens.filter_map(|point| match point.value {
        Some(number_data_point::Value::AsInt(tokens)) => u64::try_from(tokens).ok(),
        _ => None,
    });
    assert_eq!(counted.sum::<u64>(), usage.input_tokens);
}

fn echo() -> Scripted {
    Scripted::computed(|request: &Request| match request.context.input().strip_prefix("call ") {
        Some(agent) if request.context.turns() == 0 => Reply::call_agent(agent, "x"),
        _ => Reply::text("ok"),
    })
}

#[tokio::test]
async fn a_service_that_does_not_sample_a_request_gets_no_span_of_the_run() {
    let kept = Kept::default();
    let (_provider, _guard) = kept.observe(Sampler::ParentBased(Box::new(Sampler::AlwaysOff)));
    let runtime =
        Runtime::builder().provider("p", echo()).agents(["a", "b"].map(|n| Agent::new(n, ""))).build().unwrap();
    let request = info_span!("request");
    runtime.run("a", "call b").instrument(request.clone()).await.unwrap();
    assert!(request.context().has_active_span_ids());
    assert_eq!(kept.edges(), []);
}

/// A word for what a context holds.
trait HasIds {
    fn has_active_span_ids(&self) -> bool;
}

impl HasIds for opentelemetry::Context {
    fn has_active_span_ids(&self) -> bool {
        SpanContext::is_valid(self.span().span_context())
    }
}

#[tokio::test]
async fn the_state_of_the_trace_of_a_request_from_elsewhere_reaches_every_span() {
    let kept = Kept::default();
    let (_provider, _guard) = kept.observe(Sampler::ParentBased(Box::new(Sampler::AlwaysOff)));
    let state = TraceState::from_key_value([("vendor", "blue"), ("other", "7")]).unwrap();
    let (trace, span) = (TraceId::from_bytes([7; 16]), SpanId::from_bytes([9; 8]));
    let remote = SpanContext::new(trace, span, TraceFlags::SAMPLED, true, state.clone());
    let runtime =
        Runtime::builder().provider("p", echo()).agents(["a", "b"].map(|n| Agent::new(n, ""))).build().unwrap();
    let request = info_span!("request");
    request.set_parent(Context::new().with_remote_span_context(remote)).unwrap();
    runtime.run("a", "call b").instrument(request).await.unwrap();
    runtime.shutdown().await;
    let spans = kept.0.lock().unwrap();
    assert_eq!(spans.len(), 7);
    for span in spans.iter() {
        let found = (span.span_context.trace_id(), span.span_context.trace_state().header());
        assert_eq!(found, (trace, state.header()), "{}", span.name);
    }
}

#[tokio::test]
async fn a_run_is_below_the_innermost_span_whichever_way_that_was_made() {
    let kept = Kept::default();
    let (provider, _guard) = kept.observe(Sampler::AlwaysOn);
    let runtime = Runtime::builder().provider("p", echo()).agent(Agent::new("a", "")).build().unwrap();
    let running = async {
        let inner = Context::current_with_span(provider.tracer("service").start("inner"));
        runtime.run("a", "go").with_context(inner).await.unwrap();
    };
    running.instrument(info_span!("outer")).await;
    runtime.shutdown().await;
    let edges = kept.edges();
    for (from, to) in [("outer", "inner"), ("inner", "invoke_agent a")] {
        assert!(edges.contains(&(from.to_owned(), to.to_owned())), "{edges:?}");
    }
}

/// Another layer takes them, so they exist.
#[tokio::test]
async fn a_run_stays_in_the_trace_of_its_request_though_a_filter_takes_no_invocations() {
    let kept = Kept::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build();
    let steps = filter_fn(|metadata| ["chat", "execute_tool", "request"].contains(&metadata.name()));
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("otel")).with_filter(steps);
    let others = tracing_subscriber::layer::Identity::new();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer).with(others));
    let runtime =
        Runtime::builder().provider("p", echo()).agents(["a", "b"].map(|n| Agent::new(n, ""))).build().unwrap();
    runtime.run("a", "call b").instrument(info_span!("request")).await.unwrap();
    runtime.shutdown().await;
    let mut edges = kept.edges();
    edges.sort_unstable();
    let edge = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let expected = [
        edge("", "request"),
        edge("execute_tool call_agent b", "chat"),
        edge("request", "chat"),
        edge("request", "chat"),
        edge("request", "execute_tool call_agent b"),
    ];
    assert_eq!(edges, expected);
}

#[tokio::test]
async fn without_a_request_of_a_service_the_first_invocation_is_the_root() {
    let kept = Kept::default();
    let (_provider, _guard) = kept.observe(Sampler::AlwaysOn);
    let runtime =
        Runtime::builder().provider("p", echo()).agents(["a", "b"].map(|n| Agent::new(n, ""))).build().unwrap();
    runtime.run("a", "call b").await.unwrap();
    runtime.shutdown().await;
    let edge = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let mut edges = kept.edges();
    edges.sort_unstable();
    let mut expected = [
        edge("", "invoke_agent a"),
        edge("execute_tool call_agent b", "invoke_agent b"),
        edge("invoke_agent a", "chat"),
        edge("invoke_agent a", "chat"),
        edge("invoke_agent a", "execute_tool call_agent b"),
        edge("invoke_agent b", "chat"),
    ];
    expected.sort_unstable();
    assert_eq!(edges, expected);
    assert_eq!(kept.traces(), 1);
}

#[tokio::test]
async fn a_subscriber_that_comes_late_sees_the_rest_of_the_run() {
    let kept = Kept::default();
    // Another test sets a global one.
    let _none = tracing::subscriber::set_default(NoSubscriber::default());
    let (sender, mut began) = mpsc::unbounded_channel();
    let (resume, resumed) = tokio::sync::oneshot::channel::<()>();
    let resumed = Arc::new(Mutex::new(Some(resumed)));
    let wait = tool::function("wait", "", move |_: NoArguments| {
        sender.send(()).unwrap();
        let resumed = resumed.lock().unwrap().take().unwrap();
        async move { resumed.await.unwrap() }
    });
    let model = Scripted::new()
        .replies("a", [Reply::tool("wait", json!({})), Reply::call_agent("b", "x"), Reply::text("done")])
        .replies("b", [Reply::text("ok")]);
    let agents = ["a", "b"].map(|name| Agent::new(name, ""));
    let runtime = Runtime::builder().provider("p", model).agents(agents).tool(wait).build().unwrap();
    let running = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.run("a", "go").await.unwrap() }
    });
    began.recv().await.unwrap();
    let (_provider, _guard) = kept.observe(Sampler::AlwaysOn);
    resume.send(()).unwrap();
    running.await.unwrap();
    runtime.shutdown().await;
    let mut edges = kept.edges();
    edges.sort_unstable();
    let edge = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    assert_eq!(edges, [edge("", "invoke_agent b"), edge("invoke_agent b", "chat")]);
}

/// An actor that is in a span of its own life, calls an agent from there and from a task of its own.
struct Clerk;

impl Actor for Clerk {
    type Msg = Incoming;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Incoming>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(&self, _: ActorRef<Incoming>, call: Incoming, (): &mut ()) -> Result<(), ActorProcessingErr> {
        let calls = async move {
            let Incoming { caller, reply, .. } = call;
            let there = tokio::spawn({
                let caller = caller.clone();
                async move { ask(&caller).await }
            });
            ask(&caller).await;
            there.await.unwrap();
            reply.send(Ok::<_, CallError>("both"));
        };
        tokio::spawn(calls.instrument(info_span!("life of the clerk")));
        Ok(())
    }
}

async fn ask(caller: &Caller) {
    let Answer { .. } = caller.forward("a", "x").await.unwrap();
}

#[tokio::test]
async fn the_calls_of_an_actor_are_below_its_own_span_and_in_no_other_trace() {
    let kept = Kept::default();
    let (_provider, _guard) = kept.observe(Sampler::AlwaysOn);
    let (clerk, ended) = Actor::spawn(None, Clerk, ()).await.unwrap();
    let runtime = Runtime::builder()
        .provider("p", echo())
        .agent(Agent::new("a", ""))
        .actor("clerk", "", clerk.clone())
        .build()
        .unwrap();
    runtime.run("clerk", "go").await.unwrap();
    runtime.shutdown().await;
    clerk.stop(None);
    ended.await.unwrap();
    let mut edges = kept.edges();
    edges.retain(|(_, span)| span.starts_with("invoke_agent"));
    edges.sort_unstable();
    let edge = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let below = edge("invoke_agent clerk", "invoke_agent a");
    assert_eq!(edges, [edge("", "invoke_agent clerk"), below.clone(), below]);
}

#[tokio::test]
async fn a_task_that_a_tool_spawns_stays_in_the_trace() {
    let kept = Kept::default();
    let (_provider, _guard) = kept.observe(Sampler::AlwaysOn);
    let spawns = tool::function_with("spawns", "", |_: NoArguments, context| async move {
        tokio::spawn(async move { context.caller.call_agent("b", "x").await }).await.unwrap()
    });
    let model = Scripted::new()
        .replies("a", [Reply::tool("spawns", json!({})), Reply::text("done")])
        .replies("b", [Reply::text("ok")]);
    let agents = ["a", "b"].map(|name| Agent::new(name, ""));
    let runtime = Runtime::builder().provider("p", model).agents(agents).tool(spawns).build().unwrap();
    runtime.run("a", "go").await.unwrap();
    runtime.shutdown().await;
    assert!(kept.edges().contains(&("invoke_agent a".to_owned(), "invoke_agent b".to_owned())));
    assert_eq!(kept.traces(), 1);
}

#[tokio::test]
async fn nothing_secret_is_in_a_span_of_a_request_that_a_server_refuses() {
    let kept = Kept::default();
    let (_provider, _guard) = kept.observe(Sampler::AlwaysOn);
    let refused = ProviderError::new(ProviderErrorKind::Authentication, "the prompt `hunter2` is refused");
    let refused = ProviderError { status: Some(401), ..refused };
    let model = Scripted::new().replies("a", [ScriptedReply::error(refused)]);
    let runtime = Runtime::builder().provider("p", model).agent(Agent::new("a", "hunter2")).build().unwrap();
    runtime.run("a", "hunter2").await.unwrap_err();
    runtime.shutdown().await;
    let spans = kept.0.lock().unwrap();
    assert_eq!(spans.len(), 2);
    for span in spans.iter() {
        assert!(matches!(&span.status, opentelemetry::trace::Status::Error { description } if description.is_empty()));
        let error = span.attributes.iter().find(|attribute| attribute.key.as_str() == "error.type").unwrap();
        assert_eq!(error.value.as_str(), "401");
        assert!(!format!("{span:?}").contains("hunter2"), "{span:?}");
    }
}

/// An event within a span is a part of it in OpenTelemetry.
#[tokio::test(start_paused = true)]
async fn nothing_that_a_server_said_is_in_a_span_of_a_request_that_is_sent_again() {
    let kept = Kept::default();
    let (_provider, _guard) = kept.observe(Sampler::AlwaysOn);
    let broken = || ProviderError::new(ProviderErrorKind::Overloaded, "the prompt `hunter2` must wait");
    let first = Scripted::new().replies("a", [ScriptedReply::error(broken())]);
    let second = Scripted::new().replies("a", [ScriptedReply::error(broken()), Reply::text("done").into()]);
    let model = first.or(second.retry());
    let runtime = Runtime::builder().provider("p", model).agent(Agent::new("a", "")).build().unwrap();
    runtime.run("a", "go").await.unwrap();
    runtime.shutdown().await;
    let spans = kept.0.lock().unwrap();
    let chat = spans.iter().find(|span| span.name == "chat").unwrap();
    let told: Vec<_> = chat.events.iter().map(|event| &*event.name).collect();
    assert_eq!(told, ["another provider is asked", "a model is asked again"]);
    assert!(!format!("{spans:?}").contains("hunter2"), "{spans:?}");
}

/// Panics for the spans of this name.
#[derive(Clone, Debug)]
struct PanicsFor(&'static str);

impl ShouldSample for PanicsFor {
    fn should_sample(
        &self,
        _: Option<&Context>,
        _: TraceId,
        name: &str,
        _: &SpanKind,
        _: &[opentelemetry::KeyValue],
        _: &[Link],
    ) -> SamplingResult {
        assert!(!name.starts_with(self.0), "the sampler is at fault");
        let (attributes, trace_state) = Default::default();
        SamplingResult { decision: SamplingDecision::RecordAndSample, attributes, trace_state }
    }
}

#[tokio::test]
async fn a_sampler_that_panics_is_an_error_of_the_call_and_ends_no_process() {
    for name in ["invoke_agent", "chat", "execute_tool call_agent", "execute_tool look"] {
        let provider = SdkTracerProvider::builder().with_sampler(PanicsFor(name)).build();
        let _guard = tracing::subscriber::set_default(subscriber(&provider));
        let model = Scripted::new()
            .replies("a", [Reply::call_agent("b", "x"), Reply::tool("look", json!({})), Reply::text("done")])
            .replies("b", [Reply::text("ok")]);
        let look = tool::function("look", "", |_: NoArguments| async { "found" });
        let agents = ["a", "b"].map(|name| Agent::new(name, ""));
        let runtime = Runtime::builder().provider("p", model).agents(agents).tool(look).build().unwrap();
        let error = runtime.run("a", "go").await.unwrap_err().error;
        assert!(matches!(error, CallError::Panicked { .. }), "{name}: {error}");
        runtime.shutdown().await;
    }
}

/// Drops what it gets, and counts it.
#[derive(Debug, Default)]
struct Counted(Arc<Mutex<usize>>);

impl opentelemetry_sdk::trace::SpanExporter for Counted {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        *self.0.lock().unwrap() += batch.len();
        Ok(())
    }
}

fn resident_mb() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096 / 1_000_000
}

async fn chain(links: usize) {
    let count = Arc::new(Mutex::new(0));
    let exporter = Counted(Arc::clone(&count));
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter).build();
    let _guard = tracing::subscriber::set_default(subscriber(&provider));
    let model = Scripted::computed(move |request: &Request| {
        let left: usize = request.context.input().parse().unwrap();
        match left > 0 && request.context.turns() == 0 {
            true => Reply::call_agent("a", &(left - 1).to_string()).usage(1, 1),
            false => Reply::text("ok").usage(1, 1),
        }
    });
    let runtime = Runtime::builder().provider("p", model).agent(Agent::new("a", "")).build().unwrap();
    let before = resident_mb();
    let begun = std::time::Instant::now();
    let report = runtime.run("a", links.to_string()).await.unwrap();
    runtime.shutdown().await;
    let grown = resident_mb().saturating_sub(before);
    println!("a chain of {links} with a layer: {:?}, {grown} MB more", begun.elapsed());
    let requests = 2 * links as u64 + 1;
    assert_eq!(report.log.usage(), Usage { input_tokens: requests, output_tokens: requests, ..Usage::default() });
    // An invocation, a transfer and two requests for each link; the last one only asks once.
    assert_eq!(*count.lock().unwrap(), 4 * links + 2);
    assert!(grown < links / 25 + 200, "{grown} MB");
}

#[tokio::test]
async fn a_chain_of_twenty_thousand_calls_stays_flat() {
    chain(20_000).await;
}

#[tokio::test]
#[ignore = "large: for the release profile"]
async fn a_chain_of_a_million_calls_stays_flat() {
    let links = std::env::var("AGENTOUTO_CHAIN").map_or(1_000_000, |links| links.parse().unwrap());
    chain(links).await;
}
