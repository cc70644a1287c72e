//! The replay itself: what it says of a wrong expectation, and of a provider that forgets.

use std::convert::identity;

use agentouto::Reply;
use serde_json::{Value, json};

use super::case::{Case, Wire};
use super::replay;
use super::suite::{self, Suite};

/// A reply with something of everything.
fn reply() -> Value {
    json!({
        "exchanges": [{
            "request": { "path": "/v1/chat/completions", "body": {
                "model": "m",
                "messages": [{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Hi" }],
            } },
            "response": { "status": 200, "body": {
                "choices": [{ "index": 0, "finish_reason": "tool_calls", "message": {
                    "role": "assistant", "content": "One moment.", "reasoning_content": "A clock is needed.",
                    "tool_calls": [{ "id": "call_1", "type": "function", "function": {
                        "name": "clock", "arguments": "{\"zone\":\"UTC\"}",
                    } }],
                } }],
                "usage": { "prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14 },
            } },
        }],
        "expect": [{
            "status": 200, "text": "One moment.", "reasoning": "A clock is needed.", "finish": "tool_calls", "error": null,
            "usage": { "prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14 },
            "tool_calls": [{ "id": "call_1", "name": "clock", "arguments": { "json": { "zone": "UTC" } } }],
        }],
    })
}

fn failure() -> Value {
    let body = json!({ "error": { "message": "Slow down.", "type": "requests", "code": "rate_limit_exceeded" } });
    json!({
        "exchanges": [{
            "request": { "path": "/v1/chat/completions" },
            "response": { "status": 429, "headers": { "retry-after": "7" }, "body": body },
        }],
        "expect": [{ "status": 429, "text": "", "error": body, "retry_after": 7.0 }],
    })
}

async fn differences(case: &Value) -> Vec<String> {
    let case = Case::read(case.to_string().as_bytes()).unwrap();
    replay::replay_whole(&case, Wire::Chat, identity).await.differences
}

/// With the wrong value at `place`, one difference is told, and it begins with these words.
async fn check(mut case: Value, place: &str, wrong: Value, words: &str) {
    *case.pointer_mut(place).unwrap() = wrong;
    let told = differences(&case).await;
    assert!(told.len() == 1 && told[0].starts_with(&format!("exchange 0: {words}")), "{place}: {told:?}");
}

#[tokio::test]
async fn a_wrong_expectation_is_a_difference() {
    assert!(differences(&reply()).await.is_empty());
    check(reply(), "/expect/0/text", json!("One momen."), "text").await;
    check(reply(), "/expect/0/reasoning", json!("A watch is needed."), "reasoning").await;
    check(reply(), "/expect/0/finish", json!("length"), "stop reason").await;
    check(reply(), "/expect/0/usage/prompt_tokens", json!(8), "usage").await;
    check(reply(), "/expect/0/usage", Value::Null, "usage").await;
    check(reply(), "/expect/0/tool_calls/0/id", json!("call_2"), "tool call id").await;
    check(reply(), "/expect/0/tool_calls/0/name", json!("watch"), "tool name").await;
    check(reply(), "/expect/0/tool_calls/0/arguments/json/zone", json!("CET"), "arguments").await;
    check(reply(), "/expect/0/tool_calls/0/arguments", json!({ "raw": "{" }), "arguments").await;
    check(reply(), "/expect/0/tool_calls", json!([]), "1 tool calls instead of 0").await;
}

#[tokio::test]
async fn a_wrong_failure_is_a_difference() {
    assert!(differences(&failure()).await.is_empty());
    check(failure(), "/expect/0/error/error/code", json!("insufficient_quota"), "kind").await;
    check(failure(), "/expect/0/error/error/message", json!("Stop."), "message").await;
    check(failure(), "/expect/0/retry_after", json!(8), "wait").await;
    check(failure(), "/expect/0/error", Value::Null, "kind").await;
    check(failure(), "/expect/0/text", json!("Hello"), "text").await;
    check(reply(), "/expect/0/error", json!({ "message": "m" }), "no error").await;
}

#[tokio::test]
async fn a_conversation_without_what_the_vendor_wants_back_is_a_difference() {
    let mut wires = Vec::new();
    for (folder, path) in Suite::fixtures().cases() {
        let case = suite::read(&path).unwrap();
        if case.exchanges.len() < 2 {
            continue;
        }
        let wire = case.wire(&folder).unwrap();
        let forget = |reply| Reply { opaque: None, ..reply };
        let told = replay::replay_whole(&case, wire, forget).await.differences;
        assert!(
            told.len() == 1 && told[0].starts_with("exchange 1: a message of the request"),
            "{}: {told:?}",
            path.display(),
        );
        wires.push(wire);
    }
    for wire in [Wire::Chat, Wire::Responses, Wire::Messages, Wire::Gemini] {
        assert!(wires.contains(&wire), "no conversation in {wire:?}");
    }
}
