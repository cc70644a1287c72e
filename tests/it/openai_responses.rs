//! The Responses provider against a server on loopback. What is played here follows the vendor's reference.
#![cfg(feature = "http")]

use agentouto::ProviderErrorKind::*;
use agentouto::providers::Streaming;
use agentouto::providers::openai_responses::OpenAiResponses;
use agentouto::{
    Agent, Attachment, AttachmentKind, ChatMessage, Content, Delta, DeltaSink, Effort, Provider, ProviderError, Reply,
    Request, StopReason, ToolCall, ToolOutput, ToolSpec, Usage,
};
use serde_json::{Value, json};

use crate::openai::{recorded, request};
use crate::server::{Answer, KEY, Server};

fn agent() -> Agent {
    Agent::new("a", "").model("m")
}

/// The body that is sent for a request.
async fn sent(request: &Request, streaming: Streaming) -> Value {
    let mut server = Server::start([Answer::json(200, &json!({}))]).await;
    let openai = OpenAiResponses::new(KEY).base_url(&server.base_url).streaming(streaming).retries(0);
    openai.reply(request, &mut DeltaSink::none()).await.unwrap_err();
    let heard = server.heard().await;
    assert!(heard.head.starts_with("POST /v1/responses HTTP/1.1\r\n"), "{}", heard.head);
    assert!(heard.head.contains(&format!("authorization: Bearer {KEY}\r\n")), "{}", heard.head);
    heard.body
}

/// The input that is sent when `agent` goes on after `messages`.
async fn input(agent: Agent, messages: &[ChatMessage]) -> Value {
    sent(&request(agent, "", messages, &[]), Streaming::Never).await["input"].take()
}

/// What one answer becomes, and what was shown of it on the way.
async fn ask(answer: Answer) -> (Result<Reply, ProviderError>, Vec<Delta>) {
    let server = Server::start([answer]).await;
    let openai = OpenAiResponses::new(KEY).base_url(&server.base_url).retries(0);
    let mut shown = Vec::new();
    let mut observer = |delta| shown.push(delta);
    let hello = request(agent(), "", &[ChatMessage::user("hello")], &[]);
    let result = openai.reply(&hello, &mut DeltaSink::to(&mut observer)).await;
    (result, shown)
}

async fn fails(answer: Answer) -> ProviderError {
    ask(answer).await.0.unwrap_err()
}

/// A whole response with these items.
fn response(output: &Value) -> Value {
    json!({
        "id": "resp_1", "object": "response", "status": "completed", "error": null, "incomplete_details": null,
        "output": output,
        "usage": {
            "input_tokens": 36, "input_tokens_details": {"cached_tokens": 12, "cache_write_tokens": 20},
            "output_tokens": 87, "output_tokens_details": {"reasoning_tokens": 64}, "total_tokens": 123,
        },
    })
}

const USAGE: Usage =
    Usage { input_tokens: 36, output_tokens: 87, cached_tokens: 12, cache_write_tokens: 20, reasoning_tokens: 64 };

/// A stream of these events, each with its name.
fn events(events: &[Value]) -> String {
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect()
}

fn created() -> Value {
    json!({"type": "response.created", "response": {"status": "in_progress", "output": [], "usage": null, "error": null}})
}

fn added(index: u64, item: &Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn done(index: u64, item: &Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

/// An event about a part of an item.
fn piece(kind: &str, item: &Value, index: u64, fields: &Value) -> Value {
    let mut event = json!({"type": kind, "item_id": item["id"], "output_index": index, "content_index": 0});
    event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    event
}

fn completed(output: &Value) -> Value {
    json!({"type": "response.completed", "response": response(output)})
}

fn message(text: &str) -> Value {
    let content = json!([{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]);
    json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content})
}

fn call(nth: u64, arguments: &str) -> Value {
    json!({
        "id": format!("fc_{nth}"), "type": "function_call", "status": "completed",
        "call_id": format!("call_{nth}"), "name": "search", "arguments": arguments,
    })
}

fn reasoning() -> Value {
    let summary = json!([{"type": "summary_text", "text": "Hm. "}, {"type": "summary_text", "text": "Yes."}]);
    json!({"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": "gAAA"})
}

fn tool_call(id: &str, arguments: &str) -> ToolCall {
    ToolCall::new(id, "search", arguments)
}

fn output(id: &str, content: impl Into<Content>) -> ChatMessage {
    let output = ToolOutput { content: content.into(), is_error: false };
    ChatMessage::Tool { id: id.into(), name: "search".into(), output }
}

#[tokio::test]
async fn every_kind_of_message_has_its_wire_form() {
    let image = Attachment::inline(AttachmentKind::Image, "image/png", b"png");
    let question = Content::from("look")
        .attach(image.clone())
        .attach(Attachment::url(AttachmentKind::Image, "https://example.com/a.png"))
        .attach(Attachment::inline(AttachmentKind::Document, "application/pdf", b"pdf").named("a.pdf"))
        .attach(Attachment::url(AttachmentKind::Document, "https://example.com/b.pdf"))
        .attach(Attachment::url(AttachmentKind::Audio, "https://example.com/c.mp3"));
    let calls = vec![tool_call("1", r#"{"q": 1}"#), tool_call("2", r#"{"q": "#)];
    let messages = [
        ChatMessage::User(question),
        ChatMessage::Assistant {
            text: None,
            reasoning: Some("hm".into()),
            attachments: Vec::new(),
            tool_calls: calls,
            opaque: None,
        },
        output("1", Content::from("a picture").attach(image)),
        output("2", "nothing"),
        ChatMessage::assistant("fine"),
        ChatMessage::user("thanks"),
    ];
    let tool = ToolSpec { name: "search".into(), description: "Search.".into(), parameters: json!({"type": "object"}) };
    let agent = agent().temperature(0.5).max_output_tokens(9).extra("truncation", "auto");
    let body = sent(&request(agent, "be brief", &messages, &[tool]), Streaming::Never).await;
    let picture = json!({"type": "input_image", "image_url": "data:image/png;base64,cG5n", "detail": "auto"});
    let called = |id: &str, arguments: &str| json!({"type": "function_call", "call_id": id, "name": "search", "arguments": arguments});
    let expected = json!({
        "model": "m",
        "instructions": "be brief",
        "tools": [{
            "type": "function", "name": "search", "description": "Search.", "parameters": {"type": "object", "properties": {}}, "strict": false,
        }],
        "max_output_tokens": 9,
        "temperature": 0.5,
        "truncation": "auto",
        "input": [
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "look"},
                picture,
                {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"},
                {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"},
                {"type": "input_file", "file_url": "https://example.com/b.pdf"},
                {"type": "input_text", "text": "Attached sound: https://example.com/c.mp3"},
            ]},
            called("1", r#"{"q": 1}"#),
            called("2", "{}"),
            {"type": "function_call_output", "call_id": "1", "output": [
                {"type": "input_text", "text": "a picture"},
                picture,
            ]},
            {"type": "function_call_output", "call_id": "2", "output": "nothing"},
            {"type": "message", "role": "assistant", "content": "fine"},
            {"type": "message", "role": "user", "content": "thanks"},
        ],
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn an_agent_that_reasons_asks_for_its_reasoning_back() {
    let hello = [ChatMessage::user("hello")];
    let input = json!([{"type": "message", "role": "user", "content": "hello"}]);
    let encrypted = "reasoning.encrypted_content";

    let high = agent().temperature(0.5).reasoning(Effort::High).extra("reasoning", json!({"summary": "auto"}));
    let body = sent(&request(high, "", &hello, &[]), Streaming::Always).await;
    let reasoning = json!({"effort": "high", "summary": "auto"});
    let expected =
        json!({"model": "m", "reasoning": reasoning, "include": [encrypted], "stream": true, "input": input});
    assert_eq!(body, expected);

    let none = agent().reasoning(Effort::None);
    let body = sent(&request(none, "", &hello, &[]), Streaming::Never).await;
    assert_eq!(body, json!({"model": "m", "reasoning": {"effort": "none"}, "input": input}));

    let twice = agent().reasoning(Effort::Low).extra("include", json!([encrypted])).extra("store", false);
    let body = sent(&request(twice, "", &hello, &[]), Streaming::Never).await;
    let expected = json!({
        "model": "m", "reasoning": {"effort": "low"}, "include": [encrypted], "store": false, "input": input,
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn a_whole_response_becomes_a_reply() {
    let refusal = json!({"type": "message", "content": [{"type": "refusal", "refusal": "Not that."}]});
    let image = json!({"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "cG5n"});
    let items = json!([reasoning(), message("Fine."), refusal, image, call(1, "{\"q\":1}"), call(2, "{}")]);
    let (reply, shown) = ask(Answer::json(200, &response(&items))).await;
    let reply = reply.unwrap();
    let expected = Reply {
        text: Some("Fine.".into()),
        refusal: Some("Not that.".into()),
        reasoning: Some("Hm. Yes.".into()),
        attachments: vec![Attachment::inline(AttachmentKind::Image, "image/png", b"png")],
        tool_calls: vec![tool_call("call_1", "{\"q\":1}"), tool_call("call_2", "{}")],
        stop_reason: StopReason::ToolCalls,
        usage: Some(USAGE),
        opaque: reply.opaque.clone(),
        id: Some("resp_1".into()),
        model: None,
    };
    assert_eq!(reply, expected);
    assert_eq!(shown.len(), 6, "{shown:?}");
}

#[tokio::test]
async fn details_of_the_usage_in_another_form_cost_no_reply() {
    for details in [Value::Null, json!([]), json!(7)] {
        let mut whole = response(&json!([message("Fine.")]));
        whole["usage"]["input_tokens_details"] = details.clone();
        whole["usage"]["output_tokens_details"] = details.clone();
        let usage = ask(Answer::json(200, &whole)).await.0.expect("a reply").usage.unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.cached_tokens), (36, 87, 0), "{details}");
    }
}

#[tokio::test]
async fn why_the_model_stopped() {
    let stopped = async |status: &str, details: Value| {
        let mut body = response(&json!([message("a")]));
        body["status"] = status.into();
        body["incomplete_details"] = details;
        ask(Answer::json(200, &body)).await.0.unwrap().stop_reason
    };
    assert_eq!(stopped("completed", json!(null)).await, StopReason::Stop);
    assert_eq!(stopped("incomplete", json!({"reason": "max_output_tokens"})).await, StopReason::Length);
    assert_eq!(stopped("incomplete", json!({"reason": "content_filter"})).await, StopReason::ContentFilter);
    assert_eq!(stopped("incomplete", json!({"reason": "a whim"})).await, StopReason::Other("a whim".into()));
}

#[tokio::test]
async fn a_stream_becomes_the_same_reply_as_it_grows() {
    let (think, say, first, second) = (reasoning(), message("한글 🦀"), call(1, "{\"q\":1}"), call(2, "{}"));
    let summary = |nth: u64, text: &str| {
        let fields = json!({"summary_index": nth, "delta": text});
        piece("response.reasoning_summary_text.delta", &think, 0, &fields)
    };
    let text = |text: &str| piece("response.output_text.delta", &say, 1, &json!({"delta": text}));
    let argue = |item: &Value, index, text: &str| {
        piece("response.function_call_arguments.delta", item, index, &json!({"delta": text}))
    };
    let stream = events(&[
        created(),
        added(0, &json!({"id": "rs_1", "type": "reasoning", "summary": []})),
        summary(0, "Hm. "),
        summary(1, "Yes."),
        done(0, &think),
        added(1, &json!({"id": "msg_1", "type": "message", "content": []})),
        json!({"type": "response.a_new_event", "delta": {"of": ["another", "kind"]}}),
        text("한글"),
        text(" 🦀"),
        piece("response.output_text.done", &say, 1, &json!({"text": "한글 🦀"})),
        done(1, &say),
        added(2, &call(1, "")),
        added(3, &call(2, "")),
        argue(&first, 2, "{\"q\""),
        argue(&second, 3, "{}"),
        argue(&first, 2, ":1}"),
        done(2, &first),
        done(3, &second),
        completed(&json!([think, say, first, second])),
    ]);
    let (reply, shown) = ask(Answer::events(stream.clone())).await;
    let (whole, _) = ask(Answer::json(200, &response(&json!([think, say, first, second])))).await;
    let reply = reply.unwrap();
    assert_eq!(reply, whole.unwrap());
    assert_eq!((reply.text.as_deref(), reply.usage), (Some("한글 🦀"), Some(USAGE)));
    let called = |index, arguments: &str| Delta::ToolCall { index, name: "search".into(), arguments: arguments.into() };
    let expected = [
        Delta::Reasoning("Hm. ".into()),
        Delta::Reasoning("Yes.".into()),
        Delta::Text("한글".into()),
        Delta::Text(" 🦀".into()),
        called(0, ""),
        called(1, ""),
        called(0, "{\"q\""),
        called(1, "{}"),
        called(0, ":1}"),
    ];
    assert_eq!(shown, expected);
    let (by_bytes, shown) = ask(Answer::events(stream).in_bytes()).await;
    assert_eq!((by_bytes.unwrap(), shown), (reply, expected.to_vec()));
}

#[tokio::test]
async fn what_only_one_kind_of_event_says_is_not_lost() {
    let text = async |list: &[Value]| {
        let reply = ask(Answer::events(events(list))).await.0.unwrap();
        (reply.text.unwrap_or_default().to_string(), reply.tool_calls)
    };
    let said = ("Fine.".to_owned(), vec![]);
    let (whole, nothing) = (message("Fine."), completed(&json!([])));
    let delta = piece("response.output_text.delta", &whole, 0, &json!({"delta": "Fine."}));
    let all = piece("response.output_text.done", &whole, 0, &json!({"text": "Fine."}));
    assert_eq!(text(&[done(0, &whole), nothing.clone()]).await, said);
    assert_eq!(text(&[all, nothing.clone()]).await, said);
    assert_eq!(text(&[delta.clone(), nothing.clone()]).await, said);
    let half = piece("response.output_text.delta", &whole, 0, &json!({"delta": "Fi"}));
    assert_eq!(text(&[half, done(0, &whole), nothing.clone()]).await, said);
    assert_eq!(text(&[completed(&json!([whole]))]).await, said);
    assert_eq!(text(&[delta.clone(), completed(&json!([reasoning(), whole]))]).await, said);

    let called = (String::new(), vec![tool_call("call_1", "{\"q\":1}")]);
    let (empty, full) = (call(1, ""), call(1, "{\"q\":1}"));
    let arguments = piece("response.function_call_arguments.done", &full, 0, &json!({"arguments": full["arguments"]}));
    assert_eq!(text(&[added(0, &empty), arguments, nothing.clone()]).await, called);
    assert_eq!(text(&[added(0, &empty), done(0, &full), nothing.clone()]).await, called);
    assert_eq!(text(&[added(0, &empty), completed(&json!([full]))]).await, called);
    assert_eq!(text(&[done(0, &full), nothing]).await, called);
}

#[tokio::test]
async fn servers_may_name_events_and_items_in_their_own_way() {
    let (first, second) = (call(1, "{\"q\":1}"), call(2, "{\"q\":2}"));
    let delta = |item: &Value, text: &str| {
        format!(
            "event: response.function_call_arguments.delta\ndata: {}\n\n",
            json!({"item_id": item["id"], "delta": text})
        )
    };
    // Types by the name of the event alone, items by their ids alone.
    let item =
        |name: &str, item: &Value| format!("event: response.output_item.{name}\ndata: {}\n\n", json!({"item": item}));
    let stream = item("added", &call(1, ""))
        + &item("added", &call(2, ""))
        + &delta(&second, "{\"q\":2}")
        + &delta(&first, "{\"q\":1}")
        + "data: [DONE]\n\n"
        + &format!("event: response.completed\ndata: {}\n\n", json!({"response": response(&json!([first, second]))}));
    let reply = ask(Answer::events(stream)).await.0.unwrap();
    assert_eq!(reply.tool_calls, [tool_call("call_1", "{\"q\":1}"), tool_call("call_2", "{\"q\":2}")]);

    // Types in the data alone, and another id with every event.
    let mut list = [
        added(0, &message("")),
        piece("response.output_text.delta", &message(""), 0, &json!({"delta": "Fine."})),
        done(0, &message("Fine.")),
        completed(&json!([message("Fine.")])),
    ];
    list[1]["item_id"] = "another".into();
    list[2]["item"]["id"] = "one more".into();
    let stream: String = list.iter().map(|event| format!("data: {event}\n\n")).collect();
    let reply = ask(Answer::events(stream)).await.0.unwrap();
    assert_eq!(reply.text.as_deref(), Some("Fine."));
}

#[tokio::test]
async fn refusals_and_thoughts_are_kept_apart_from_text() {
    let refuse = json!({"id": "msg_1", "type": "message", "content": [{"type": "refusal", "refusal": "Not that."}]});
    let think = json!({"id": "rs_1", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]});
    let stream = events(&[
        piece("response.reasoning_text.delta", &think, 0, &json!({"delta": "Hm."})),
        done(0, &think),
        piece("response.refusal.delta", &refuse, 1, &json!({"delta": "Not "})),
        piece("response.refusal.delta", &refuse, 1, &json!({"delta": "that."})),
        piece("response.refusal.done", &refuse, 1, &json!({"refusal": "Not that."})),
        done(1, &refuse),
        completed(&json!([think, refuse])),
    ]);
    let (reply, shown) = ask(Answer::events(stream)).await;
    let reply = reply.unwrap();
    let parts = (reply.text.as_deref(), reply.refusal.as_deref(), reply.reasoning.as_deref());
    assert_eq!(parts, (None, Some("Not that."), Some("Hm.")));
    assert_eq!(shown, [Delta::Reasoning("Hm.".into()), Delta::Text("Not ".into()), Delta::Text("that.".into())]);
}

#[tokio::test]
async fn fault_5_a_stream_without_its_last_event_is_cut() {
    let said = events(&[created(), piece("response.output_text.delta", &message(""), 0, &json!({"delta": "Fi"}))]);
    for stream in [said.clone(), said + "data: [DONE]\n\n"] {
        let error = fails(Answer::events(stream)).await;
        assert_eq!((error.kind, error.partial.unwrap().text.as_deref()), (Truncated, Some("Fi")));
    }
}

#[tokio::test]
async fn fault_8_and_9_failures_within_a_stream_are_known_by_their_code() {
    let said = piece("response.output_text.delta", &message(""), 0, &json!({"delta": "Fi"}));
    for (code, kind) in [
        ("insufficient_quota", QuotaExceeded),
        ("server_error", Unavailable),
        ("context_length_exceeded", ContextTooLong),
        ("rate_limit_exceeded", RateLimited),
        ("invalid_prompt", InvalidRequest),
    ] {
        let error = json!({"code": code, "message": "alas"});
        let mut body = response(&json!([]));
        (body["status"], body["error"]) = ("failed".into(), error.clone());
        let failed = json!({"type": "response.failed", "response": body});
        for event in [
            json!({"type": "error", "code": code, "message": "alas", "param": null}),
            json!({"type": "error", "error": error}),
            failed,
        ] {
            let error = fails(Answer::events(events(&[created(), said.clone(), event.clone()]))).await;
            assert_eq!((error.kind, &*error.message), (kind, "alas"), "{event}");
            assert_eq!(error.partial.unwrap().text.as_deref(), Some("Fi"), "{event}");
        }
        assert_eq!(fails(Answer::json(200, &body)).await.kind, kind);
    }
    let event = json!({"type": "error", "status": 503, "error": {"message": "alas"}});
    let error = fails(Answer::events(events(&[event]))).await;
    assert_eq!((error.kind, error.status), (Overloaded, Some(503)));
}

#[tokio::test]
async fn fault_13_a_response_without_a_word_is_empty() {
    assert_eq!(fails(Answer::json(200, &response(&json!([reasoning()])))).await.kind, EmptyResponse);
    assert_eq!(fails(Answer::events(events(&[created(), completed(&json!([]))]))).await.kind, EmptyResponse);
}

#[tokio::test]
async fn what_the_server_must_see_again_goes_back() {
    let mut think = reasoning();
    (think["status"], think["content"]) = ("completed".into(), json!([]));
    let mut say = message("I search.");
    (say["phase"], say["content"][0]["logprobs"]) = ("commentary".into(), json!(null));
    let search = json!({"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search"}});
    let image =
        json!({"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "cG5n", "size": "1x1"});
    let items = json!([think, search, image, say, call(1, "{\"q\":1}"), call(2, "{")]);
    let mut reply = ask(Answer::json(200, &response(&items))).await.0.unwrap();
    // The context gives an id another form where it came before.
    reply.tool_calls[0].id = "call_1_7".into();
    let messages = [ChatMessage::user("hello"), recorded(reply), output("call_1_7", "one"), output("call_2", "two")];
    let (mut say, mut first, mut second) = (message("I search."), call(1, "{\"q\":1}"), call(2, "{}"));
    say["phase"] = "commentary".into();
    first["call_id"] = "call_1_7".into();
    second["arguments"] = "{}".into();
    let expected = json!([
        {"type": "message", "role": "user", "content": "hello"},
        reasoning(),
        search,
        {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "cG5n"},
        say,
        first,
        second,
        {"type": "function_call_output", "call_id": "call_1_7", "output": "one"},
        {"type": "function_call_output", "call_id": "call_2", "output": "two"},
    ]);
    assert_eq!(input(agent(), &messages).await, expected);
    assert_eq!(input(agent().extra("store", false), &messages).await, expected);
}

#[tokio::test]
async fn nothing_goes_back_that_the_server_need_not_or_cannot_know() {
    let plain = ask(Answer::json(200, &response(&json!([message("a"), call(1, "{}")])))).await.0.unwrap();
    assert_eq!(plain.opaque, None);

    let mut think = reasoning();
    think["encrypted_content"] = json!(null);
    let items = json!([think, message("a"), call(1, "{}")]);
    let kept = recorded(ask(Answer::json(200, &response(&items))).await.0.unwrap());
    think.as_object_mut().unwrap().remove("encrypted_content");
    let expected = json!([think, message("a"), call(1, "{}")]);
    assert_eq!(input(agent(), std::slice::from_ref(&kept)).await, expected);

    // A server that keeps nothing does not know the reasoning by its id.
    let expected = json!([
        {"type": "message", "role": "assistant", "content": "a"},
        {"type": "function_call", "call_id": "call_1", "name": "search", "arguments": "{}"},
    ]);
    assert_eq!(input(agent().extra("store", false), &[kept]).await, expected);
}
