//! A web service: one team for each request, the tenant in its tools, a budget, and answers while they are written.
//!
//! `cargo run --example service`, and in another terminal:
//!
//! ```sh
//! curl -H 'x-tenant: acme' -d 'How do peers work?' localhost:8080/ask
//! curl -N -H 'x-tenant: acme' -H 'accept: text/event-stream' -d 'How do peers work?' localhost:8080/ask
//! ```
//!
//! A request that exceeds its budget gets 429, one that takes too long 504, each with what was found until then. The
//! team of a client that leaves is cancelled.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use agentouto::providers::scripted::Scripted;
use agentouto::tool::{self, NoArguments};
use agentouto::{
    Agent, Budget, BuildError, Call, CallError, Delta, EventKind, Log, Message, Provider, ProviderErrorKind, Reply,
    Request, Resource, RunError, Runtime,
};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::post;
use futures_util::stream::{self, Stream};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // For a real model: `OpenAiResponses::from_env()?`, and `Agent::model` below.
    let budget = Budget::new().tokens(200_000).calls(100).depth(8).time(Duration::from_secs(60));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    println!("http://{}/ask", listener.local_addr()?);
    axum::serve(listener, app(script(), budget)).await?;
    Ok(())
}

/// The service, for any model.
pub(crate) fn app(model: impl Provider, budget: Budget) -> Router {
    Router::new().route("/ask", post(ask)).with_state(Service { model: Arc::new(model), budget })
}

#[derive(Clone)]
struct Service {
    model: Arc<dyn Provider>,
    budget: Budget,
}

/// The customer that a request is for. Tools read it; models never see it.
struct Tenant(String);

impl Service {
    fn team(&self) -> Result<Runtime, BuildError> {
        let search = tool::function_with("search", "Searches our documents.", |_: NoArguments, context| async move {
            let Tenant(tenant) = context.get().ok_or("no tenant")?;
            Ok::<_, &str>(format!("3 documents of {tenant}"))
        });
        Runtime::builder()
            .provider("model", Arc::clone(&self.model))
            .agent(Agent::new("researcher", "Search, then have the writer make an answer of it."))
            .agent(Agent::new("writer", "Write an answer of at most 100 words."))
            .tool(search)
            .build()
    }
}

async fn ask(State(service): State<Service>, headers: HeaderMap, question: String) -> Response {
    let Some(tenant) = headers.get("x-tenant").and_then(|tenant| tenant.to_str().ok()) else {
        return (StatusCode::BAD_REQUEST, "the header `x-tenant` is missing").into_response();
    };
    let runtime = match service.team() {
        Ok(runtime) => runtime,
        Err(error) => return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    };
    let call = runtime.user("web").forward("researcher", question);
    let call = call.with(Tenant(tenant.to_owned())).budget(service.budget);
    if headers.get(header::ACCEPT).is_some_and(|accept| accept == "text/event-stream") {
        return Sse::new(events(call)).keep_alive(KeepAlive::default()).into_response();
    }
    match call.await {
        Ok(report) => Json(json!({ "answer": report.output, "tokens": tokens(&report.log) })).into_response(),
        Err(failed) => {
            let (status, body) = failure(&failed);
            (status, Json(body)).into_response()
        }
    }
}

/// The events `step`, `answer` (pieces of the text), and at the end `done` or `failed`. Dropping the stream cancels the
/// call.
fn events(call: Call) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(Some(call), |call| async move {
        let mut call = call?;
        while let Some(event) = call.next_event().await {
            let is_root = event.call_id == call.call_id();
            let event = match event.kind {
                EventKind::Forward { forward } => Event::default().event("step").data(&*forward.receiver),
                EventKind::ToolStart { call } => Event::default().event("step").data(&*call.name),
                EventKind::ModelDelta { delta: Delta::Answer { text, begins } } if is_root => {
                    json_event("answer", &json!({ "text": text, "begins": begins }))
                }
                _ => continue,
            };
            return Some((Ok(event), Some(call)));
        }
        let last = match call.await {
            Ok(report) => json_event("done", &json!({ "answer": report.output, "tokens": tokens(&report.log) })),
            Err(failed) => json_event("failed", &failure(&failed).1),
        };
        Some((Ok(last), None))
    })
}

fn json_event(name: &str, data: &Value) -> Event {
    Event::default().event(name).data(data.to_string())
}

/// The status of a run without an answer, and what was found until then.
fn failure(failed: &RunError) -> (StatusCode, Value) {
    let status = match &failed.error {
        CallError::BudgetExceeded { what: Resource::Time, .. } => StatusCode::GATEWAY_TIMEOUT,
        CallError::BudgetExceeded { .. } => StatusCode::TOO_MANY_REQUESTS,
        CallError::Provider { error, .. } if error.kind == ProviderErrorKind::Overloaded => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::BAD_GATEWAY,
    };
    let found = failed.log.messages().filter_map(|message| match message {
        Message::Return(answer) => {
            let content = answer.result.as_ref().ok()?;
            Some(json!({ "from": answer.sender, "text": content.text }))
        }
        Message::Forward(_) => None,
    });
    let body = json!({
        "status": status.as_u16(),
        "error": failed.to_string(),
        "found": found.collect::<Vec<_>>(),
        "tokens": tokens(&failed.log),
    });
    (status, body)
}

fn tokens(log: &Log) -> u64 {
    let usage = log.usage();
    usage.input_tokens + usage.output_tokens
}

/// A model on a script: it searches, has the writer write, and passes that on.
fn script() -> Scripted {
    Scripted::computed(|request: &Request| {
        let last = request.context.messages().next_back();
        let reply = match (&*request.agent.name, request.context.turns(), last) {
            ("researcher", 0, _) => Reply::tool("search", json!({})),
            ("researcher", 1, Some(agentouto::ChatMessage::Tool { output, .. })) => {
                Reply::call_agent("writer", &output.content.text)
            }
            (_, _, Some(agentouto::ChatMessage::Tool { output, .. })) => Reply::finish(&output.content.text),
            _ => Reply::finish(&format!("From {}: peers call whom they need.", request.context.input())),
        };
        reply.usage(100, 20)
    })
}
