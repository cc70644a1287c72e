//! aimock, the fault injector: each fault is one typed error or a correct reply, and its journal shows how often it was
//! asked. What it answers to which words stands in `aimock.json`.

use std::time::Duration;

use agentouto::ProviderErrorKind::{self, *};
use agentouto::{Agent, StopReason};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::are_wanted;
use crate::ask::{Asked, Manner, ask, request};
use crate::child::{Counterpart, data, installed};
use crate::wire::{Wire, provider};

#[tokio::test]
async fn a_text_arrives_as_it_was_sent_whole_and_in_pieces() {
    each_wire(async |mut aimock| {
        for manner in Manner::BOTH {
            let asked = aimock.ask("hello", manner).await;
            let text = "Hello, wörld. 안녕하세요, 친구.";
            let reply = asked.result.as_ref().unwrap();
            assert_eq!((reply.text.as_deref(), &reply.stop_reason), (Some(text), &StopReason::Stop), "{aimock:?}");
            let shown = if manner == Manner::Streamed { text } else { "" };
            assert_eq!(asked.shown_text(), shown, "{aimock:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn parallel_tool_calls_arrive_whole_and_in_order() {
    each_wire(async |mut aimock| {
        for manner in Manner::BOTH {
            let reply = aimock.ask("weather", manner).await.result.unwrap();
            let calls = reply.tool_calls.iter().map(|call| {
                let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
                (&*call.name, arguments)
            });
            let paris = ("get_weather", json!({"city": "Paris", "days": 3}));
            let rome = ("get_weather", json!({"city": "Rome", "days": 1}));
            assert_eq!(calls.collect::<Vec<_>>(), [paris, rome], "{aimock:?} {manner:?}");
            assert_eq!(reply.text.as_deref(), Some("Let me look."), "{aimock:?} {manner:?}");
            // Gemini itself says `STOP`; aimock has a word of its own.
            let is_faithful = aimock.wire != Wire::Gemini;
            assert_eq!(reply.stop_reason == StopReason::ToolCalls, is_faithful, "{aimock:?} {manner:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_slow_first_token_is_waited_for() {
    each_wire(async |mut aimock| {
        let reply = aimock.ask("slow", Manner::Streamed).await.result.unwrap();
        assert_eq!((reply.text.as_deref(), aimock.asked().await.len()), (Some("better late"), 1), "{aimock:?}");
    })
    .await;
}

#[tokio::test]
async fn a_server_that_recovers_is_asked_once_more() {
    each_wire(async |mut aimock| {
        for words in ["unavailable once", "overloaded once", "limited once"] {
            let reply = aimock.ask(words, Manner::Streamed).await.result.unwrap();
            let tries = aimock.asked().await;
            assert_eq!((reply.text.as_deref(), tries.len()), (Some("second time lucky"), 2), "{aimock:?}");
            // It says `Retry-After: 2`, which is longer than we would wait unasked.
            let asked_to_wait = Duration::from_secs(if words == "limited once" { 2 } else { 0 });
            assert!(tries[1] - tries[0] >= asked_to_wait, "{aimock:?}: {tries:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_that_does_not_recover_is_named_after_the_third_try() {
    each_wire(async |mut aimock| {
        aimock.fails("limited for ever", Some(429), &[RateLimited], 3).await;
        aimock.fails("unavailable for ever", Some(503), &[Overloaded, Unavailable], 3).await;
        aimock.fails("overloaded for ever", Some(529), &[Overloaded], 3).await;
        aimock.fails("broken for ever", Some(500), &[Unavailable], 3).await;
    })
    .await;
}

#[tokio::test]
async fn what_trying_again_cannot_mend_is_asked_once() {
    each_wire(async |mut aimock| {
        aimock.fails("refused", Some(400), &[InvalidRequest], 1).await;
        aimock.fails("malformed", None, &[InvalidResponse], 1).await;
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_reply_is_tried_again() {
    each_wire(async |mut aimock| {
        aimock.fails("reset", None, &[Connection], 3).await;
        aimock.fails("cut early", None, &[Connection, Truncated], 3).await;
    })
    .await;
}

#[tokio::test]
async fn a_cut_stream_keeps_what_had_arrived_and_is_not_repeated() {
    each_wire(async |mut aimock| {
        let asked = aimock.ask("cut late", Manner::Streamed).await;
        let error = asked.result.as_ref().unwrap_err();
        let partial = error.partial.as_ref().and_then(|partial| partial.text.as_deref()).unwrap_or_default();
        let whole = "This text is cut in the middle of the stream, somewhere, but not at its end.";
        assert!(matches!(error.kind, Connection | Truncated), "{aimock:?}: {error:?}");
        assert!(!partial.is_empty() && whole.starts_with(partial) && partial != whole, "{aimock:?}: {error:?}");
        assert_eq!(asked.shown_text(), partial, "{aimock:?}");
        assert_eq!(aimock.asked().await.len(), 1, "{aimock:?}");
    })
    .await;
}

/// Checks all wire formats at once, each at an aimock of its own, for it counts what it was asked.
async fn each_wire(check: impl AsyncFn(Aimock)) {
    if are_wanted() {
        join_all(Wire::ALL.iter().map(async |wire| check(Aimock::start(*wire).await).await)).await;
    }
}

struct Aimock {
    server: Counterpart,
    wire: Wire,
    /// How many requests had come before the last question.
    before: usize,
    words: &'static str,
}

impl Aimock {
    async fn start(wire: Wire) -> Self {
        let mut command = Command::new(installed("node"));
        command.arg(installed("node_modules/@copilotkit/aimock/dist/cli.js"));
        command.args(["--strict", "-h", "127.0.0.1", "-p", "0", "-f"]).arg(data("aimock.json"));
        let server = Counterpart::start(command).await;
        Self { server, wire, before: 0, words: "" }
    }

    async fn ask(&mut self, words: &'static str, manner: Manner) -> Asked {
        self.before = self.requests().await.len();
        self.words = words;
        let agent = Agent::new("a", "").model("some-model").max_output_tokens(100);
        // A provider of its own, because all calls of one share a budget of retries.
        ask(&*provider(self.wire, &self.server.address), &request(agent, words), manner).await
    }

    /// Checks a question that fails after so many tries, whole and streamed.
    async fn fails(&mut self, words: &'static str, status: Option<u16>, kinds: &[ProviderErrorKind], tries: usize) {
        for manner in Manner::BOTH {
            // Only a stream can be cut by aimock.
            if words.starts_with("cut") && manner == Manner::Whole {
                continue;
            }
            let asked = self.ask(words, manner).await;
            let error = asked.result.unwrap_err();
            assert!(kinds.contains(&error.kind) && error.status == status, "{self:?} {manner:?}: {error:?}");
            assert_eq!((asked.shown, self.asked().await.len()), (vec![], tries), "{self:?} {manner:?}: {error:?}");
        }
    }

    /// When it was asked, since the last question began.
    async fn asked(&self) -> Vec<Duration> {
        self.requests().await.split_off(self.before)
    }

    /// When it was asked at all.
    async fn requests(&self) -> Vec<Duration> {
        let journal = self.server.get("/__aimock/journal").await;
        let posts = journal.as_array().unwrap().iter().filter(|entry| entry["method"] == "POST");
        posts.map(|entry| Duration::from_millis(entry["timestamp"].as_u64().unwrap())).collect()
    }
}

impl std::fmt::Debug for Aimock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}, `{}`", self.wire, self.words)
    }
}
