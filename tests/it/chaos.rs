//! Many calls at once to a server of which every fifth answer is broken, over real sockets.
#![cfg(feature = "http")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentouto::ProviderErrorKind::*;
use agentouto::providers::openai::OpenAi;
use agentouto::{Agent, CallError, Runtime};
use futures_util::future::join_all;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, unconstrained};

use crate::server::{Heard, KEY, read};

const CALLS: usize = 2_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_ends_in_its_own_reply_or_a_typed_error_and_the_budget_holds() {
    crate::trace::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let mut serving = JoinSet::new();
    serving.spawn(serve(listener, Arc::clone(&requests)));

    // Nothing but the idle timeout ends a half-open connection.
    let openai =
        OpenAi::new(KEY).base_url(&base_url).idle_timeout(Duration::from_secs(1)).total_timeout(Duration::from_secs(2));
    let runtime = Runtime::builder().provider("openai", openai.max_in_flight(256)).agent(Agent::new("a", "")).build();
    let caller = runtime.unwrap().user("user").caller();
    let calls = (0..CALLS).map(|nth| caller.call_agent("a", format!("call {nth}")));
    // A hang would be an hour, not a minute.
    let answers = tokio::time::timeout(Duration::from_secs(300), unconstrained(join_all(calls))).await.unwrap();

    let mut good = 0;
    for (nth, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok(answer) => {
                assert_eq!(&*answer.text, format!("answer to call {nth}"));
                good += 1;
            }
            Err(CallError::Provider { error, .. }) => {
                let kinds = [RateLimited, Overloaded, Truncated, Connection, Timeout, InvalidResponse];
                assert!(kinds.contains(&error.kind), "{error:?}");
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    // What is garbage is not asked for again: a fifth of a fifth.
    assert!(good > CALLS * 9 / 10, "{good} good");
    let extra = requests.load(Ordering::Relaxed) - CALLS;
    assert!(extra <= CALLS / 5, "{extra} more requests than calls");
}

async fn serve(listener: TcpListener, requests: Arc<AtomicUsize>) {
    let mut conversations = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        conversations.spawn(converse(socket, Arc::clone(&requests)));
    }
}

async fn converse(mut socket: TcpStream, requests: Arc<AtomicUsize>) -> std::io::Result<()> {
    while let Some(Heard { body, .. }) = read(&mut socket).await {
        let nth = requests.fetch_add(1, Ordering::Relaxed);
        let asked = body["messages"][1]["content"].as_str().unwrap();
        let message = json!({ "role": "assistant", "content": format!("answer to {asked}") });
        let whole = json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] }).to_string();
        let head = |status: &str, length: usize| {
            format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n")
        };
        let fine = head("200 OK", whole.len());
        // The order is mixed, and the same in every run.
        match nth.wrapping_mul(0x9E37_79B9) % 25 {
            0 => socket.write_all((head("429 Slow", 2) + "{}").as_bytes()).await?,
            1 => socket.write_all((head("529 Busy", 2) + "{}").as_bytes()).await?,
            2 => {
                socket.write_all((fine + &whole[..whole.len() / 2]).as_bytes()).await?;
                return socket.shutdown().await;
            }
            3 => {
                socket.write_all(fine.as_bytes()).await?;
                // Silence, until the client leaves.
                read(&mut socket).await;
                return Ok(());
            }
            4 => socket.write_all((head("200 OK", 6) + "<html>").as_bytes()).await?,
            _ => socket.write_all((fine + &whole).as_bytes()).await?,
        }
    }
    Ok(())
}
