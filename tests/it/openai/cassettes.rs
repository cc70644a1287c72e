//! Every recorded exchange becomes what an independent parser made of it, however it is cut.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::*;

#[tokio::test]
async fn recorded_answers_are_understood_whole_and_byte_by_byte() {
    let mut exchanges = 0;
    for cassette in all() {
        let name = cassette["name"].as_str().unwrap();
        for (exchange, expected) in std::iter::zip(items(&cassette["exchanges"]), items(&cassette["expect"])) {
            let answer = answer(&exchange["response"]);
            check(name, ask(answer.clone()).await, expected);
            check(name, ask(answer.in_bytes()).await, expected);
            exchanges += 1;
        }
    }
    assert_eq!(exchanges, 59);
}

fn check(name: &str, (result, shown): (Result<Reply, ProviderError>, Vec<Delta>), expected: &Value) {
    let is_empty = ["text", "refusal"].iter().all(|key| text(&expected[key]).is_empty())
        && items(&expected["tool_calls"]).next().is_none();
    let reply = match result {
        Ok(reply) => reply,
        Err(error) if !expected["error"].is_null() => {
            check_error(name, &error, expected);
            error.partial.map(|partial| *partial).unwrap_or_default()
        }
        Err(error) if is_empty => {
            assert_eq!(error.kind, agentouto::ProviderErrorKind::EmptyResponse, "{name}");
            *error.partial.unwrap()
        }
        Err(error) => panic!("{name}: {error:?}"),
    };
    let said = [text(&expected["text"]), text(&expected["refusal"])].into_iter().find(|said| !said.is_empty());
    assert_eq!(reply.text.as_deref(), said, "{name}");
    if name == "list-content-1" {
        // The parser that made the expectations knows no thinking within the content.
        assert!(reply.reasoning.as_ref().unwrap().starts_with("The user is asking for the product of 12"), "{name}");
    } else {
        assert_eq!(reply.reasoning.as_deref().unwrap_or_default(), text(&expected["reasoning"]), "{name}");
    }
    if let Some(reason) = expected["finish"].as_str() {
        assert_eq!(reply.stop_reason.to_string(), reason, "{name}");
    }
    check_usage(name, reply.usage, &expected["usage"]);
    assert_eq!(reply.tool_calls.len(), items(&expected["tool_calls"]).count(), "{name}");
    for (call, expected) in std::iter::zip(&reply.tool_calls, items(&expected["tool_calls"])) {
        assert_eq!((&*call.id, &*call.name), (text(&expected["id"]), text(&expected["name"])), "{name}");
        match expected["arguments"].get("raw") {
            Some(raw) => assert_eq!(&*call.arguments, text(raw), "{name}"),
            None => {
                let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
                assert_eq!(arguments, expected["arguments"]["json"], "{name}");
            }
        }
    }
    let (mut said, mut thought) = (String::new(), String::new());
    for delta in &shown {
        match delta {
            Delta::Text(piece) => said += piece,
            Delta::Reasoning(piece) => thought += piece,
            Delta::ToolCall { .. } => {}
        }
    }
    assert_eq!(said, reply.text.as_deref().unwrap_or_default(), "{name}");
    assert_eq!(thought, reply.reasoning.as_deref().unwrap_or_default(), "{name}");
}

fn check_error(name: &str, error: &ProviderError, expected: &Value) {
    let recorded = &expected["error"];
    let message = [&recorded["error"]["message"], &recorded["message"], &recorded["detail"]];
    let message = message.into_iter().find_map(Value::as_str).unwrap();
    assert!(error.message.contains(message), "{name}: {error}");
    if expected["status"] != 200 {
        assert_eq!(error.status.map(Value::from).as_ref(), Some(&expected["status"]), "{name}");
    }
    use agentouto::ProviderErrorKind::*;
    let kind = match error.status {
        Some(401) => Authentication,
        Some(429) => RateLimited,
        Some(500) => Unavailable,
        _ => InvalidRequest,
    };
    assert_eq!(error.kind, kind, "{name}: {error}");
}

fn check_usage(name: &str, usage: Option<agentouto::Usage>, expected: &Value) {
    let Some(usage) = usage else { return assert!(expected.is_null(), "{name}") };
    let count = |path| expected.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    assert_eq!(usage.input_tokens, count("/prompt_tokens"), "{name}");
    // One server counts the reasoning beside the completion; the total knows.
    assert_eq!(usage.output_tokens, count("/total_tokens") - count("/prompt_tokens"), "{name}");
    let cached = count("/prompt_tokens_details/cached_tokens").max(count("/num_cached_tokens"));
    assert_eq!(usage.cached_tokens, cached, "{name}");
    assert_eq!(usage.reasoning_tokens, count("/completion_tokens_details/reasoning_tokens"), "{name}");
}

/// The recorded response, to be played.
pub(crate) fn answer(response: &Value) -> Answer {
    let status = response["status"].as_u64().unwrap().try_into().unwrap();
    let body = match (&response["sse_text"], &response["body"]) {
        (Value::String(events), _) => events.clone(),
        (_, Value::String(text)) => text.clone(),
        (_, body) => body.to_string(),
    };
    let headers = response["headers"].as_object().unwrap();
    let content_type = headers["content-type"].as_str().unwrap();
    let others = headers.iter().filter(|(name, _)| *name != "content-type");
    others.fold(Answer::new(status, content_type, body), |answer, (name, value)| answer.header(name, text(value)))
}

/// All cassettes, in order.
pub(crate) fn all() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cassettes");
    let mut paths: Vec<_> = ["openai-chat", "local"]
        .iter()
        .flat_map(|kind| fs::read_dir(folder.join(kind)).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths.iter().map(|path| serde_json::from_slice(&fs::read(path).unwrap()).unwrap()).collect()
}

pub(crate) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
