//! The example of a web service, as its clients see it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "these are tests")]

#[allow(dead_code, reason = "its main is not called")]
#[path = "../examples/service.rs"]
mod service;

use std::sync::Arc;
use std::time::Duration;

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::{BoxFuture, Budget, ChatMessage, DeltaSink, Provider, ProviderError, Reply, Request};
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// Serves the app on loopback, and returns the address of its one route.
async fn serve(model: impl Provider, budget: Budget) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/ask", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, service::app(model, budget)).await.unwrap() });
    address
}

fn ask(address: &str, tenant: &str, question: &str) -> reqwest::RequestBuilder {
    let client = reqwest::Client::new();
    client.post(address).header("x-tenant", tenant).body(question.to_owned())
}

fn team() -> Scripted {
    Scripted::computed(|request: &Request| {
        let last = request.context.messages().next_back();
        let reply = match (&*request.agent.name, request.context.turns(), last) {
            ("researcher", 0, _) => Reply::tool("search", json!({})),
            ("researcher", 1, Some(ChatMessage::Tool { output, .. })) => {
                Reply::call_agent("writer", &output.content.text)
            }
            ("researcher", _, Some(ChatMessage::Tool { output, .. })) => Reply::text(Arc::clone(&output.content.text)),
            _ => Reply::text(format!("{} for {}", request.context.input(), request.agent.name)),
        };
        let text = reply.text.clone();
        let reply = ScriptedReply::from(reply.usage(100, 20)).after(Duration::from_millis(5));
        reply.in_pieces(text)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_clients_at_once_get_the_answers_of_their_own_tenants() {
    let address = serve(team(), Budget::new().tokens(10_000).time(Duration::from_secs(60))).await;
    let clients = (0..200).map(|n| {
        let (address, tenant) = (address.clone(), format!("tenant-{n}"));
        tokio::spawn(async move {
            let expected = format!("3 documents of {tenant} for writer");
            if n % 2 == 0 {
                let answer: Value = json_of(ask(&address, &tenant, "go").send().await.unwrap()).await;
                assert_eq!(answer, json!({"answer": expected, "tokens": 480}));
            } else {
                let stream = ask(&address, &tenant, "go").header("accept", "text/event-stream").send().await.unwrap();
                let events = events_of(&stream.text().await.unwrap());
                let steps: Vec<_> =
                    events.iter().filter(|(name, _)| name == "step").map(|(_, data)| data.as_str()).collect();
                assert_eq!(steps, ["researcher", "search", "writer"]);
                let pieces = events.iter().filter(|(name, _)| name == "answer");
                let text: String = pieces
                    .map(|(_, data)| serde_json::from_str::<Value>(data).unwrap()["text"].as_str().unwrap().to_owned())
                    .collect();
                assert_eq!(text, expected);
                let (name, done) = events.last().unwrap();
                assert_eq!(
                    (&**name, serde_json::from_str::<Value>(done).unwrap()["answer"].as_str()),
                    ("done", Some(&*expected))
                );
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
}

async fn json_of(response: reqwest::Response) -> Value {
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

/// The events of a stream: names and data.
fn events_of(stream: &str) -> Vec<(String, String)> {
    let event = |block: &str| {
        let field =
            |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned());
        Some((field("event:")?, field("data:")?))
    };
    stream.split("\n\n").filter_map(event).collect()
}

#[tokio::test]
async fn a_run_over_its_budget_is_429_with_what_was_found() {
    let model = Scripted::computed(|request: &Request| match &*request.agent.name {
        "writer" => Reply::text("a draft").usage(100, 20),
        _ => Reply::call_agent("writer", "again").usage(100, 20),
    });
    let address = serve(model, Budget::new().requests(4)).await;
    let response = ask(&address, "acme", "go").send().await.unwrap();
    assert_eq!(response.status(), 429);
    let body = json_of(response).await;
    assert_eq!(body["error"], "the budget of 4 requests to models is used up");
    assert_eq!(body["found"], json!([{"from": "writer", "text": "a draft"}, {"from": "writer", "text": "a draft"}]));
}

/// A model that replies once, then never, and reports when it is asked and when it is dropped.
struct Stuck(mpsc::UnboundedSender<&'static str>);

impl Provider for Stuck {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        _: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        struct OnDrop(mpsc::UnboundedSender<&'static str>);
        impl Drop for OnDrop {
            fn drop(&mut self) {
                let _ = self.0.send("dropped");
            }
        }
        async move {
            if &*request.agent.name == "researcher" && request.context.turns() == 0 {
                return Ok(Reply::call_agent("writer", "write").and_tool("search", json!({})));
            }
            let _dropped = OnDrop(self.0.clone());
            self.0.send("asked").unwrap();
            std::future::pending().await
        }
        .boxed()
    }
}

#[tokio::test]
async fn a_run_that_takes_too_long_is_504() {
    let (sender, _said) = mpsc::unbounded_channel();
    let address = serve(Stuck(sender), Budget::new().time(Duration::from_millis(200))).await;
    let response = ask(&address, "acme", "go").send().await.unwrap();
    assert_eq!(response.status(), 504);
    assert_eq!(json_of(response).await["error"], "the budget of 200ms is used up");
}

#[tokio::test]
async fn the_team_of_a_client_that_leaves_is_cancelled() {
    for accept in ["application/json", "text/event-stream"] {
        let (sender, mut said) = mpsc::unbounded_channel();
        let address = serve(Stuck(sender), Budget::new()).await;
        let asking = tokio::spawn(async move {
            let response = ask(&address, "acme", "go").header("accept", accept).send().await?;
            response.text().await
        });
        assert_eq!(said.recv().await, Some("asked"));
        asking.abort();
        assert_eq!(said.recv().await, Some("dropped"), "{accept}");
    }
}

#[tokio::test]
async fn a_request_without_a_tenant_is_400() {
    let address = serve(team(), Budget::new()).await;
    let response = reqwest::Client::new().post(&address).body("go").send().await.unwrap();
    assert_eq!(response.status(), 400);
}
