//! Calls that are cancelled while they wait for something.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use agentouto::tools::Web;
use agentouto::tools::web::{Resolver, SearxNg};
use agentouto::{BoxFuture, Tool};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::server::{Answer, Server, head};
use crate::support::{LIMIT, local, runtime};

/// Makes a call, and drops it when `until` is over.
async fn cancelled(tool: impl Tool, arguments: Value, until: impl Future) {
    let runtime = runtime(tool);
    let running = runtime.run("clerk", arguments.to_string());
    tokio::select! {
        report = running => panic!("{report:?}"),
        _ = timeout(LIMIT, until) => {}
    }
}

#[tokio::test]
async fn a_cancelled_fetch_closes_its_connection() {
    let begun = head("200 OK", &[("content-type", "text/plain"), ("content-length", "1000000")]);
    for answer in [
        Answer::Silent(Vec::new()),
        Answer::Silent(begun.clone()),
        Answer::Silent([&begun[..], b"some text"].concat()),
        Answer::Endless(begun, b"x".to_vec(), Duration::from_millis(1)),
    ] {
        let server = Server::always(answer).await;
        cancelled(local(&server).fetch(), json!({"url": server.url("/")}), server.asked()).await;
        server.closed().await;
    }
}

#[tokio::test]
async fn a_cancelled_search_closes_its_connection() {
    let server = Server::always(Answer::Silent(Vec::new())).await;
    let search = Web::new().search(SearxNg::at(&server.url("")));
    cancelled(search, json!({"query": "x"}), server.asked()).await;
    server.closed().await;
}

/// A resolver that never answers, and says when it is asked and when it is dropped.
struct Pending(UnboundedSender<&'static str>);

impl Resolver for Pending {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        struct SayOnDrop(UnboundedSender<&'static str>);
        impl Drop for SayOnDrop {
            fn drop(&mut self) {
                let _ = self.0.send("dropped");
            }
        }
        Box::pin(async move {
            let _say = SayOnDrop(self.0.clone());
            let _ = self.0.send("asked");
            std::future::pending().await
        })
    }
}

#[tokio::test]
async fn a_cancelled_fetch_ends_its_lookup() {
    let (say, mut said) = unbounded_channel();
    let fetch = Web::new().resolver(Pending(say)).fetch();
    let asked = async { assert_eq!(said.recv().await, Some("asked")) };
    cancelled(fetch, json!({"url": "http://example.com/"}), asked).await;
    assert_eq!(timeout(LIMIT, said.recv()).await.unwrap(), Some("dropped"));
}

#[tokio::test]
async fn a_lookup_without_an_answer_ends_with_the_timeout() {
    let (say, mut said) = unbounded_channel();
    let web = Web::new().resolver(Pending(say)).timeout(Duration::from_millis(100));
    let failed = crate::support::fetch(&web, "http://example.com/").await;
    assert_eq!(failed, crate::support::failure("timed out after 100ms"));
    assert_eq!((said.recv().await, said.recv().await), (Some("asked"), Some("dropped")));
}
