//! The Google provider against a server on loopback: what is sent, and what becomes of the answers.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

use agentouto::ProviderErrorKind::*;
use agentouto::providers::Streaming;
use agentouto::providers::google::Google;
use agentouto::tool::{self, NoArguments};
use agentouto::{
    Agent, Attachment, AttachmentKind, ChatMessage, Content, Delta, DeltaSink, Effort, Provider, ProviderError,
    Reasoning, Reply, Request, Runtime, StopReason, ToolCall, ToolOutput, ToolSpec, Usage,
};
use serde_json::{Value, json};

use crate::openai::{hello, recorded, request};
use crate::server::{Answer, KEY, Server};

/// What is sent for a request: its first line, and its body.
async fn sent(request: &Request) -> (String, Value) {
    let mut server = Server::start([Answer::json(200, &json!({}))]).await;
    let google = Google::new(KEY).base_url(&server.base_url);
    google.reply(request, &mut DeltaSink::none()).await.unwrap_err();
    let heard = server.heard().await;
    assert!(heard.head.contains(&format!("x-goog-api-key: {KEY}\r\n")), "{}", heard.head);
    (heard.head.lines().next().unwrap().to_owned(), heard.body)
}

/// What is sent for these settings.
async fn config(agent: Agent) -> Value {
    sent(&request(agent, "", &[ChatMessage::user("hello")], &[])).await.1["generationConfig"].take()
}

/// What is sent for these messages.
async fn contents(messages: &[ChatMessage]) -> Value {
    sent(&request(Agent::new("a", "").model("m"), "", messages, &[])).await.1["contents"].take()
}

/// What one answer becomes, and what was shown of it on the way.
async fn ask(answer: Answer) -> (Result<Reply, ProviderError>, Vec<Delta>) {
    let server = Server::start([answer]).await;
    let mut shown = Vec::new();
    let mut observer = |delta| shown.push(delta);
    let google = Google::new(KEY).base_url(&server.base_url).retries(0);
    let result = google.reply(&hello(), &mut DeltaSink::to(&mut observer)).await;
    (result, shown)
}

/// What a response becomes: whole, as events, in single bytes, and as the list that a stream is without `alt=sse`.
async fn read(chunks: &[Value]) -> Reply {
    let (reply, _) = ask(events(chunks)).await;
    let reply = reply.unwrap();
    assert_eq!(ask(events(chunks).in_bytes()).await.0.unwrap(), reply);
    assert_eq!(ask(Answer::json(200, &json!(chunks))).await.0.unwrap(), reply);
    if let [whole] = chunks {
        assert_eq!(ask(Answer::json(200, whole)).await.0.unwrap(), reply);
    }
    reply
}

async fn fails(answer: Answer) -> ProviderError {
    ask(answer).await.0.unwrap_err()
}

fn events(chunks: &[Value]) -> Answer {
    Answer::events(stream(chunks))
}

fn stream(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n")).collect()
}

/// A chunk with these parts.
fn parts(parts: Value) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]})
}

/// The last chunk, with these parts.
fn last(reason: &str, content: Value) -> Value {
    let mut chunk = parts(content);
    chunk["candidates"][0]["finishReason"] = reason.into();
    chunk
}

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall::new(id, name, arguments)
}

fn result(id: &str, name: &str, content: impl Into<Content>) -> ChatMessage {
    let output = ToolOutput { content: content.into(), is_error: false };
    ChatMessage::Tool { id: id.into(), name: name.into(), output }
}

#[tokio::test]
async fn every_kind_of_message_has_its_wire_form() {
    let image = Attachment::inline(AttachmentKind::Image, "image/png", b"png");
    let question = Content::from("look")
        .attach(image.clone())
        .attach(Attachment::url(AttachmentKind::Document, "https://example.com/a.PDF?x=1"))
        .attach(Attachment::url(AttachmentKind::Image, "https://example.com/files/b"));
    let calls = vec![call("1", "search", r#"{"q": 1}"#), call("2", "search", r#"{"q": "#)];
    let failure = ToolOutput { content: "Error: no".into(), is_error: true };
    let messages = [
        ChatMessage::User(question),
        ChatMessage::Assistant {
            text: Some("wait".into()),
            reasoning: Some("hm".into()),
            attachments: Vec::new(),
            tool_calls: calls,
            opaque: Some(json!({"another format": 1})).map(Into::into),
        },
        result("1", "search", Content::from("{\"a\": 1}").attach(image)),
        ChatMessage::Tool { id: "2".into(), name: "search".into(), output: failure },
        ChatMessage::assistant("fine"),
        ChatMessage::assistant(""),
        ChatMessage::user("thanks"),
    ];
    let schema = json!({"type": "object", "properties": {"q": {"type": ["integer", "null"]}}});
    let tool = ToolSpec { name: "search".into(), description: "Search.".into(), parameters: schema.clone() };
    let agent = Agent::new("a", "").model("m").temperature(0.5).max_output_tokens(9).extra("safetySettings", json!([]));
    let (line, body) = sent(&request(agent, "be brief", &messages, &[tool])).await;
    let picture = json!({"inlineData": {"mimeType": "image/png", "data": "cG5n"}});
    let expected = json!({
        "systemInstruction": {"parts": [{"text": "be brief"}]},
        "tools": [{"functionDeclarations": [
            {"name": "search", "description": "Search.", "parametersJsonSchema": schema},
        ]}],
        "generationConfig": {"temperature": 0.5, "maxOutputTokens": 9},
        "safetySettings": [],
        "contents": [
            {"role": "user", "parts": [
                {"text": "look"},
                picture,
                {"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.com/a.PDF?x=1"}},
                {"fileData": {"fileUri": "https://example.com/files/b"}},
            ]},
            {"role": "model", "parts": [
                {"text": "wait"},
                {"functionCall": {"name": "search", "args": {"q": 1}}},
                {"functionCall": {"name": "search", "args": {}}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"name": "search", "response": {"output": "{\"a\": 1}"}}},
                {"functionResponse": {"name": "search", "response": {"error": "Error: no"}}},
            ]},
            {"role": "user", "parts": [
                {"text": "Attached to the result of `search`:"},
                picture,
            ]},
            {"role": "model", "parts": [{"text": "fine"}]},
            {"role": "user", "parts": [{"text": "thanks"}]},
        ],
    });
    assert_eq!(line, "POST /v1/models/m:generateContent HTTP/1.1");
    assert_eq!(body, expected);
}

#[tokio::test]
async fn gemini_3_goes_on_with_calls_that_another_model_made() {
    let calls = vec![call("1", "search", "{}"), call("2", "search", "{}")];
    let made = recorded(Reply { tool_calls: calls, ..Reply::default() });
    let messages = [ChatMessage::user("go"), made, result("1", "search", "a"), result("2", "search", "b")];
    let calls = async |model: &str| {
        let agent = Agent::new("a", "").model(model);
        sent(&request(agent, "", &messages, &[])).await.1["contents"][1]["parts"].take()
    };
    let call = json!({"functionCall": {"name": "search", "args": {}}});
    let mut signed = call.clone();
    signed["thoughtSignature"] = json!("skip_thought_signature_validator");
    assert_eq!(calls("gemini-3.5-flash").await, json!([signed, call]));
    assert_eq!(calls("gemini-2.5-flash").await, json!([call, call]));
}

#[tokio::test]
async fn a_plain_request_has_nothing_but_its_message() {
    let (_, body) = sent(&hello()).await;
    assert_eq!(body, json!({"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}));
}

#[tokio::test]
async fn reasoning_becomes_a_budget() {
    let reasoning = async |reasoning: Reasoning| {
        config(Agent::new("a", "").temperature(1.0).reasoning(reasoning)).await["thinkingConfig"].take()
    };
    let budget = |tokens: u32| json!({"thinkingBudget": tokens, "includeThoughts": true});
    assert_eq!(reasoning(Effort::None.into()).await, json!({"thinkingBudget": 0}));
    assert_eq!(reasoning(Effort::Low.into()).await, budget(1_024));
    assert_eq!(reasoning(Effort::Medium.into()).await, budget(8_192));
    assert_eq!(reasoning(Effort::High.into()).await, budget(24_576));
    assert_eq!(reasoning(Reasoning::budget(7_777)).await, budget(7_777));
    let level = json!({"thinkingConfig": {"thinkingBudget": null, "thinkingLevel": "low"}});
    let agent = Agent::new("a", "").reasoning(Effort::Low).extra("generationConfig", level);
    assert_eq!(config(agent).await, json!({"thinkingConfig": {"thinkingLevel": "low", "includeThoughts": true}}));
}

#[tokio::test]
async fn the_model_and_the_way_to_answer_are_in_the_path() {
    let tuned = request(Agent::new("a", "").model("tunedModels/x"), "", &[ChatMessage::user("hello")], &[]);
    assert_eq!(sent(&tuned).await.0, "POST /v1/tunedModels/x:generateContent HTTP/1.1");
    let mut server = Server::start([Answer::json(200, &json!({}))]).await;
    let google = Google::keyless(&server.base_url).streaming(Streaming::Always);
    google.reply(&hello(), &mut DeltaSink::none()).await.unwrap_err();
    let head = server.heard().await.head;
    assert!(head.starts_with("POST /v1/models/m:streamGenerateContent?alt=sse HTTP/1.1\r\n"), "{head}");
    assert!(!head.contains("x-goog-api-key"), "{head}");
}

#[tokio::test]
async fn text_thoughts_and_usage_grow_with_the_chunks() {
    let mut first = parts(json!([{"text": "hm", "thought": true}]));
    first["usageMetadata"] = json!({"promptTokenCount": 7, "thoughtsTokenCount": 2, "totalTokenCount": 9});
    let mut end = last("STOP", json!([{"text": "b"}]));
    end["usageMetadata"] = json!({
        "promptTokenCount": 7, "toolUsePromptTokenCount": 1, "cachedContentTokenCount": 4,
        "candidatesTokenCount": 3, "thoughtsTokenCount": 2, "totalTokenCount": 13,
    });
    let chunks = [first, parts(json!([{"text": "a"}, {"text": ""}])), end];
    let usage = Usage { input_tokens: 8, output_tokens: 5, cached_tokens: 4, reasoning_tokens: 2, ..Usage::default() };
    let expected = Reply { reasoning: Some("hm".into()), usage: Some(usage), ..Reply::text("ab") };
    assert_eq!(read(&chunks).await, expected);
    let shown = ask(events(&chunks)).await.1;
    assert_eq!(shown, [Delta::Reasoning("hm".into()), Delta::Text("a".into()), Delta::Text("b".into())]);
    // What a server tells beside the numbers is no usage.
    let mut whole = last("STOP", json!([{"text": "a"}]));
    whole["usageMetadata"] = json!({"trafficType": "ON_DEMAND"});
    assert_eq!(read(&[whole]).await, Reply::text("a"));
}

#[tokio::test]
async fn fault_32_calls_without_ids_are_all_kept() {
    let calls = json!([
        {"functionCall": {"name": "a", "args": {"x": 1}}},
        {"functionCall": {"name": "a", "args": {"x": 2}}},
        {"functionCall": {"name": "b"}},
    ]);
    let reply = read(&[parts(calls), last("STOP", json!([{"text": ""}]))]).await;
    assert_eq!(reply.tool_calls, [call("", "a", r#"{"x":1}"#), call("", "a", r#"{"x":2}"#), call("", "b", "{}")]);
    assert_eq!((reply.stop_reason, reply.opaque), (StopReason::ToolCalls, None));
}

#[tokio::test]
async fn signed_parts_go_back_as_they_came_and_where_they_came() {
    let first =
        json!({"functionCall": {"id": "x", "name": "a", "args": {"q": [1, "2"]}}, "thoughtSignature": "c2lnMg=="});
    let second = json!({"functionCall": {"name": "b", "args": {}}});
    let chunks = [
        parts(json!([{"text": "thinking", "thought": true}])),
        parts(json!([{"text": "I "}])),
        parts(json!([{"text": "see"}])),
        parts(json!([{"text": ".", "thoughtSignature": "c2ln"}])),
        parts(json!([first])),
        last("STOP", json!([second, {"text": "", "thoughtSignature": "c2lnMw=="}])),
    ];
    let mut reply = read(&chunks).await;
    assert_eq!((reply.text.as_deref(), reply.reasoning.as_deref()), (Some("I see."), Some("thinking")));
    assert_eq!(reply.tool_calls, [call("x", "a", r#"{"q":[1,"2"]}"#), call("", "b", "{}")]);
    // The context gives ids of its own.
    (reply.tool_calls[0].id, reply.tool_calls[1].id) = ("x_1".into(), "call_2".into());
    let messages = [ChatMessage::user("go"), recorded(reply), result("x_1", "a", "1"), result("call_2", "b", "2")];
    let expected = json!([
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [
            {"text": "I see"},
            {"text": ".", "thoughtSignature": "c2ln"},
            first,
            second,
            {"text": "", "thoughtSignature": "c2lnMw=="},
        ]},
        {"role": "user", "parts": [
            {"functionResponse": {"id": "x", "name": "a", "response": {"output": "1"}}},
            {"functionResponse": {"name": "b", "response": {"output": "2"}}},
        ]},
    ]);
    assert_eq!(contents(&messages).await, expected);
}

#[tokio::test]
async fn what_the_server_ran_and_made_goes_back_too() {
    let made = json!([
        {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
        {"text": "Here."},
        {"inlineData": {"mimeType": "image/png", "data": "cG5n"}},
    ]);
    let reply = read(&[last("STOP", made.clone())]).await;
    assert_eq!(reply.attachments, [Attachment::inline(AttachmentKind::Image, "image/png", b"png")]);
    assert_eq!(contents(&[recorded(reply)]).await, json!([{"role": "model", "parts": made}]));
}

#[tokio::test]
async fn every_reason_to_stop_has_its_meaning() {
    let reason = async |word: &str| read(&[last(word, json!([{"text": "a"}]))]).await.stop_reason;
    assert_eq!(reason("STOP").await, StopReason::Stop);
    assert_eq!(reason("MAX_TOKENS").await, StopReason::Length);
    for word in ["SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"] {
        assert_eq!(reason(word).await, StopReason::ContentFilter, "{word}");
    }
    assert_eq!(reason("UNEXPECTED_TOOL_CALL").await, StopReason::Other("UNEXPECTED_TOOL_CALL".into()));
}

#[tokio::test]
async fn fault_5_a_stream_without_a_finish_reason_is_cut() {
    for chunk in [parts(json!([{"text": "half"}])), last("FINISH_REASON_UNSPECIFIED", json!([{"text": "half"}]))] {
        let error = fails(events(&[chunk])).await;
        assert_eq!((error.kind, error.partial.unwrap().text.as_deref()), (Truncated, Some("half")));
    }
}

#[tokio::test]
async fn fault_9_and_10_an_error_within_or_behind_the_events_keeps_what_came() {
    let busy = json!({"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}});
    let half = stream(&[parts(json!([{"text": "half"}]))]);
    for end in [format!("data: {busy}\r\n\r\n"), format!("{busy:#}\n"), format!("data: {}\n\n", json!([busy]))] {
        for answer in [Answer::events(half.clone() + &end), Answer::events(half.clone() + &end).in_bytes()] {
            let error = fails(answer).await;
            assert_eq!((error.kind, &*error.message), (Overloaded, "HTTP 503: busy"));
            assert_eq!(error.partial.unwrap().text.as_deref(), Some("half"));
        }
    }
}

#[tokio::test]
async fn fault_11_an_error_in_pieces_or_in_a_list_is_read() {
    let error = json!({"error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"}});
    for body in [error.clone(), json!([error])] {
        for status in [200, 429] {
            let error = fails(Answer::json(status, &body).in_bytes()).await;
            assert_eq!((error.kind, &*error.message), (RateLimited, "HTTP 429: slow"));
        }
    }
}

#[tokio::test]
async fn fault_13_an_answer_with_nothing_in_it_is_an_error() {
    let nothing = [
        json!({}),
        json!([]),
        json!({"candidates": []}),
        json!({"candidates": [{"content": {}, "finishReason": "MALFORMED_FUNCTION_CALL"}]}),
        json!({"candidates": [{"content": {"role": "model"}, "finishReason": "STOP"}]}),
        last("MAX_TOKENS", json!([{"text": "hm", "thought": true}])),
    ];
    for answer in nothing {
        let error = fails(Answer::json(200, &answer)).await;
        assert_eq!(error.kind, EmptyResponse, "{answer}: {error}");
    }
    let error = fails(events(&[json!({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]})])).await;
    assert!(error.message.contains("MALFORMED_FUNCTION_CALL"), "{error}");
    assert_eq!(fails(events(&[last("SAFETY", json!([]))])).await.kind, ContentFilter);
}

#[tokio::test]
async fn a_blocked_prompt_says_why() {
    let blocked = json!({
        "promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "It is."},
        "usageMetadata": {"promptTokenCount": 3},
    });
    for answer in [Answer::json(200, &blocked), events(std::slice::from_ref(&blocked))] {
        let error = fails(answer).await;
        let message = "the prompt was blocked: PROHIBITED_CONTENT: It is.";
        assert_eq!((error.kind, &*error.message), (ContentFilter, message));
        assert_eq!(error.partial.unwrap().usage.unwrap().input_tokens, 3);
    }
    let error = fails(Answer::json(200, &json!({"promptFeedback": {"blockReason": "SAFETY"}}))).await;
    assert_eq!(&*error.message, "the prompt was blocked: SAFETY");
    // Ratings alone do not block.
    let mut rated = last("STOP", json!([{"text": "a"}]));
    rated["promptFeedback"] = json!({"safetyRatings": []});
    assert_eq!(read(&[rated]).await, Reply::text("a"));
}

#[tokio::test]
async fn fault_33_arguments_that_are_too_deep_do_not_spoil_the_conversation() {
    let deep = "[".repeat(200) + &"]".repeat(200);
    let body = format!(
        r#"{{"candidates": [{{"content": {{"parts": [{{"functionCall": {{"name": "a", "args": {{"x": {deep}}}}}, "thoughtSignature": "c2ln"}}]}}, "finishReason": "STOP"}}]}}"#
    );
    let reply = ask(Answer::new(200, "application/json", body)).await.0.unwrap();
    assert_eq!((&*reply.tool_calls[0].name, &reply.opaque), ("a", &None));
}

#[tokio::test]
async fn an_agent_at_work_writes_each_turn_behind_the_last_one() {
    let call = json!({"functionCall": {"id": "x", "name": "clock", "args": {}}, "thoughtSignature": "c2ln"});
    // A server that repeats an id: the context gives the second call another one, and the server sees its own again.
    let turn = || Answer::json(200, &last("STOP", json!([call])));
    let end = Answer::json(200, &last("STOP", json!([{"text": "noon"}])));
    let mut server = Server::start([turn(), turn(), end]).await;
    let runtime = Runtime::builder()
        .provider("google", Google::new(KEY).base_url(&server.base_url))
        .agent(Agent::new("a", "").model("m"))
        .tool(tool::function("clock", "Tells the time.", |_: NoArguments| async { "12" }))
        .build()
        .unwrap();
    assert_eq!(&*runtime.run("a", "time?").await.unwrap().output, "noon");
    let response = json!({"functionResponse": {"id": "x", "name": "clock", "response": {"output": "12"}}});
    let turn = [json!({"role": "model", "parts": [call]}), json!({"role": "user", "parts": [response]})];
    let mut expected = vec![json!({"role": "user", "parts": [{"text": "time?"}]})];
    for _ in 0..3 {
        assert_eq!(server.heard().await.body["contents"], json!(expected));
        expected.extend(turn.clone());
    }
}
