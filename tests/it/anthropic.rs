//! The Anthropic provider against a server on loopback. Answers are written after the vendor's documentation:
//! <https://docs.anthropic.com/en/api/messages> and <https://docs.anthropic.com/en/api/messages-streaming>.
#![cfg(feature = "http")]

use agentouto::ProviderErrorKind::*;
use agentouto::providers::anthropic::Anthropic;
use agentouto::tool::{self, NoArguments};
use agentouto::{
    Agent, Attachment, AttachmentKind, ChatMessage, Content, Delta, DeltaSink, Effort, Provider, ProviderError,
    Reasoning, Reply, Request, Runtime, StopReason, ToolCall, ToolOutput, ToolSpec, Usage,
};
use serde_json::{Value, json};

use crate::openai::{hello, recorded, request};
use crate::server::{Answer, KEY, Server};
use crate::trace::Trace;

/// What one answer becomes, and what was shown of it on the way.
async fn ask(answer: Answer) -> (Result<Reply, ProviderError>, Vec<Delta>) {
    let server = Server::start([answer]).await;
    let anthropic = Anthropic::new(KEY).base_url(&server.base_url).retries(0);
    let mut shown = Vec::new();
    let mut observer = |delta| shown.push(delta);
    let result = anthropic.reply(&hello(), &mut DeltaSink::to(&mut observer)).await;
    (result, shown)
}

/// The body in which a request is sent.
async fn body(request: &Request) -> Value {
    let mut server = Server::start([Answer::json(200, &json!({"content": [{"type": "text", "text": "a"}]}))]).await;
    let anthropic = Anthropic::new(KEY).base_url(&server.base_url).retries(0);
    anthropic.reply(request, &mut DeltaSink::none()).await.unwrap();
    server.heard().await.body
}

async fn messages(messages: &[ChatMessage]) -> Value {
    body(&request(Agent::new("a", ""), "", messages, &[])).await["messages"].take()
}

/// A stream of these events, each with its type as its name.
fn events(events: &[Value]) -> String {
    let event = |data: &Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    events.iter().map(event).collect()
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"role": "assistant", "content": [], "stop_reason": null,
        "usage": {"input_tokens": 10, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 30, "output_tokens": 1}}})
}

fn block(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, kind: &str, key: &str, piece: &str) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": {"type": kind, key: piece}})
}

fn text(piece: &str) -> Value {
    delta(0, "text_delta", "text", piece)
}

fn end(reason: &str) -> [Value; 2] {
    let usage = json!({"output_tokens": 20, "output_tokens_details": {"thinking_tokens": 5}});
    let delta = json!({"stop_reason": reason, "stop_sequence": null});
    [json!({"type": "message_delta", "delta": delta, "usage": usage}), json!({"type": "message_stop"})]
}

fn said(piece: &str) -> Vec<Value> {
    vec![start(), block(0, json!({"type": "text", "text": ""})), text(piece)]
}

fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall::new(id, "search", arguments)
}

fn result(id: &str, content: impl Into<Content>, is_error: bool) -> ChatMessage {
    let output = ToolOutput { content: content.into(), is_error };
    ChatMessage::Tool { id: id.into(), name: "search".into(), output }
}

#[tokio::test]
async fn the_key_goes_into_its_header_and_the_path_behind_the_base() {
    let mut server = Server::start([Answer::json(200, &json!({"content": [{"type": "text", "text": "a"}]}))]).await;
    let anthropic = Anthropic::new(format!(" {KEY}\n")).base_url(&server.base_url).header("anthropic-beta", "x-1");
    assert_eq!(anthropic.reply(&hello(), &mut DeltaSink::none()).await, Ok(Reply::text("a")));
    let head = server.heard().await.head;
    assert!(head.starts_with("POST /v1/messages HTTP/1.1"), "{head}");
    for header in [&*format!("x-api-key: {KEY}"), "anthropic-version: 2023-06-01", "anthropic-beta: x-1"] {
        assert!(head.lines().any(|line| line == header), "{header}: {head}");
    }
    assert!(!format!("{anthropic:?}").contains(KEY));
}

#[tokio::test]
async fn every_kind_of_message_has_its_wire_form() {
    let search = ToolSpec {
        name: "search".into(),
        description: "Search.".into(),
        parameters: json!({"type": "object", "properties": {"q": {"type": "string"}}}),
    };
    let heard = [
        ChatMessage::user("find it"),
        ChatMessage::Assistant {
            text: Some("let me see".into()),
            reasoning: Some("hm".into()),
            attachments: Vec::new(),
            tool_calls: vec![call("1", r#"{"q":"x"}"#), call("2", "not json")],
            opaque: Some(std::sync::Arc::new(json!({"responses": ["of another provider"]}))),
        },
        result("1", "found", false),
        result("2", "Error: no", true),
        ChatMessage::assistant(""),
        ChatMessage::user("thanks"),
    ];
    let sent = body(&request(Agent::new("a", "").model("m"), "Be brief.", &heard, &[search])).await;
    let expected = json!({
        "model": "m", "max_tokens": 8192, "system": "Be brief.",
        "tools": [{"name": "search", "description": "Search.",
                   "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}}}],
        "messages": [
            {"role": "user", "content": "find it"},
            {"role": "assistant", "content": [
                {"type": "text", "text": "let me see"},
                {"type": "tool_use", "id": "1", "name": "search", "input": {"q": "x"}},
                {"type": "tool_use", "id": "2", "name": "search", "input": {}},
            ]},
            // The results of one turn are one message, and one without content is refused.
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": "found"},
                {"type": "tool_result", "tool_use_id": "2", "content": "Error: no", "is_error": true},
            ]},
            {"role": "user", "content": "thanks"},
        ],
    });
    assert_eq!(sent, expected);
}

/// The bodies of a run of three turns with tools, from a provider that caches.
async fn cached_turns(agent: Agent) -> Vec<Value> {
    let uses = |ids: &[&str]| {
        let use_of = |id: &&str| json!({"type": "tool_use", "id": id, "name": "look", "input": {}});
        let thought = json!({"type": "thinking", "thinking": "hm", "signature": "x"});
        let content: Vec<_> = std::iter::once(thought).chain(ids.iter().map(use_of)).collect();
        Answer::json(200, &json!({"content": content, "stop_reason": "tool_use"}))
    };
    let done = Answer::json(200, &json!({"content": [{"type": "text", "text": "done"}]}));
    let mut server = Server::start([uses(&["1", "2"]), uses(&["3"]), uses(&["4"]), done]).await;
    let picture = || Content::from("seen").attach(Attachment::url(AttachmentKind::Image, "https://a.b/c.png"));
    let runtime = Runtime::builder()
        .provider("claude", Anthropic::keyless(&server.base_url).prompt_caching(true))
        .agent(agent)
        .tool(tool::function("look", "Looks.", move |_: NoArguments| async move { picture() }))
        .build()
        .unwrap();
    assert_eq!(&*runtime.run("a", "Go on.").await.unwrap().output, "done");
    let mut bodies = Vec::new();
    for _ in 0..4 {
        bodies.push(server.heard().await.body);
    }
    bodies
}

/// The paths of the objects with a mark, which is taken out.
fn take_marks(value: &mut Value, path: &str) -> Vec<String> {
    let mark = value.as_object_mut().and_then(|fields| fields.shift_remove("cache_control"));
    assert!(mark.as_ref().is_none_or(|mark| *mark == json!({"type": "ephemeral"})), "{mark:?}");
    let here = mark.map(|_| path.to_owned());
    let below = match value {
        Value::Object(fields) => {
            fields.iter_mut().flat_map(|(key, value)| take_marks(value, &format!("{path}/{key}"))).collect()
        }
        Value::Array(items) => {
            let items = items.iter_mut().enumerate();
            items.flat_map(|(nth, value)| take_marks(value, &format!("{path}/{nth}"))).collect()
        }
        _ => Vec::new(),
    };
    here.into_iter().chain(below).collect()
}

#[tokio::test]
async fn what_does_not_change_is_marked_for_the_cache_and_so_is_the_end_of_the_conversation() {
    let mut bodies = cached_turns(Agent::new("a", "Look.")).await;
    let last_tool = format!("/tools/{}", bodies[0]["tools"].as_array().unwrap().len() - 1);
    let ends = [
        vec!["/messages/0/content/0"],
        vec!["/messages/0/content/0", "/messages/2/content/1"],
        vec!["/messages/2/content/1", "/messages/4/content/0"],
        vec!["/messages/4/content/0", "/messages/6/content/0"],
    ];
    for (body, ends) in bodies.iter_mut().zip(ends) {
        let mut expected = vec!["/system/0", &*last_tool];
        expected.extend(ends);
        let mut marks = take_marks(body, "");
        marks.sort();
        expected.sort_unstable();
        assert_eq!(marks, expected);
    }
    // Without the marks each body is the beginning of the next one.
    let messages = |body: &Value| body["messages"].as_array().unwrap().clone();
    for pair in bodies.windows(2) {
        assert!(messages(&pair[1]).starts_with(&messages(&pair[0])));
        assert_eq!((&pair[0]["system"], &pair[0]["tools"]), (&pair[1]["system"], &pair[1]["tools"]));
    }
    assert_eq!(messages(&bodies[0])[0]["content"], json!([{"type": "text", "text": "Go on."}]));
    let result = &messages(&bodies[3])[6]["content"][0];
    assert_eq!((&result["type"], &result["tool_use_id"]), (&json!("tool_result"), &json!("4")));
}

#[tokio::test]
async fn an_agent_that_sets_marks_of_its_own_gets_no_others() {
    let hour = json!({"type": "ephemeral", "ttl": "1h"});
    let block = json!([{"type": "text", "text": "Long.", "cache_control": hour}]);
    let marks = async |agent: Agent| cached_turns(agent).await[1].to_string().matches("cache_control").count();
    assert_eq!(marks(Agent::new("a", "").extra("cache_control", hour.clone())).await, 1);
    assert_eq!(marks(Agent::new("a", "").extra("cache_control", Value::Null)).await, 0);
    assert_eq!(marks(Agent::new("a", "").extra("system", block)).await, 1);
    assert_eq!(marks(Agent::new("a", "").extra("metadata", json!({"user_id": "7"}))).await, 4);
}

#[tokio::test]
async fn a_request_that_is_sent_again_has_the_same_marks() {
    let busy = Answer::json(529, &json!({"error": {"type": "overloaded_error", "message": "busy"}}));
    let busy = busy.header("retry-after-ms", "1");
    let done = Answer::json(200, &json!({"content": [{"type": "text", "text": "done"}]}));
    let mut server = Server::start([busy.clone(), busy, done]).await;
    let anthropic = Anthropic::keyless(&server.base_url).prompt_caching(true);
    anthropic.reply(&hello(), &mut DeltaSink::none()).await.unwrap();
    let first = server.heard().await.body;
    assert_eq!(first["messages"][0]["content"][0]["cache_control"], json!({"type": "ephemeral"}));
    assert_eq!((server.heard().await.body, server.heard().await.body), (first.clone(), first));
}

#[tokio::test]
async fn a_conversation_that_ends_with_a_reply_is_sent_without_a_mark_there() {
    let mut server = Server::start([Answer::json(200, &json!({"content": [{"type": "text", "text": "a"}]}))]).await;
    let anthropic = Anthropic::keyless(&server.base_url).prompt_caching(true);
    let thought = json!({"messages": [{"type": "thinking", "thinking": "hm", "signature": "x"}]});
    let paused = recorded(Reply { opaque: Some(thought.into()), ..Reply::default() });
    let asked = request(Agent::new("a", ""), "", &[ChatMessage::user("x"), paused], &[]);
    anthropic.reply(&asked, &mut DeltaSink::none()).await.unwrap();
    assert_eq!(take_marks(&mut server.heard().await.body, ""), [""; 0]);
}

#[tokio::test]
async fn ids_of_another_vendors_tool_calls_are_replaced_where_the_api_refuses_them() {
    let long = "x".repeat(300);
    let ids = ["functions.look:0", "functions:look.0", "functions_look_0", "toolu_01-A", "a|b", "ü", "", &long];
    let reply = |opaque| ChatMessage::Assistant {
        text: None,
        reasoning: None,
        attachments: Vec::new(),
        tool_calls: ids.iter().map(|id| call(id, "{}")).collect(),
        opaque,
    };
    let kept = json!({"messages": ids.map(|_| json!({"type": "tool_use"}))});
    for opaque in [None, Some(kept.into())] {
        let mut said = vec![reply(opaque)];
        said.extend(ids.iter().map(|id| result(id, "seen", false)));
        let sent = messages(&said).await;
        let texts = |blocks: &Value, key: &str| -> Vec<String> {
            blocks.as_array().unwrap().iter().map(|block| block[key].as_str().unwrap().to_owned()).collect()
        };
        let called = texts(&sent[0]["content"], "id");
        assert_eq!(called, texts(&sent[1]["content"], "tool_use_id"), "each result belongs to its call");
        let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        assert!(called.iter().all(|id| !id.is_empty() && id.chars().all(is_fine)), "{called:?}");
        assert_eq!((&*called[2], &*called[3], &*called[7]), (ids[2], ids[3], ids[7]), "fine ones stay");
        let different: std::collections::HashSet<_> = called.iter().collect();
        assert_eq!(different.len(), ids.len(), "{called:?}");
    }
}

#[tokio::test]
async fn attachments_are_blocks() {
    use AttachmentKind::*;
    let content = Content::from("look")
        .attach(Attachment::inline(Image, "image/png", b"\x89PNG"))
        .attach(Attachment::url(Image, "https://a.b/c.png"))
        .attach(Attachment::inline(Document, "application/pdf", b"%PDF").named("a.pdf"))
        .attach(Attachment::inline(Document, "text/plain", "é".as_bytes()))
        .attach(Attachment::url(Document, "https://a.b/c.pdf"))
        .attach(Attachment::url(Audio, "https://a.b/c.wav"));
    let blocks = json!([
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}},
        {"type": "image", "source": {"type": "url", "url": "https://a.b/c.png"}},
        {"type": "document", "title": "a.pdf",
         "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "é"}},
        {"type": "document", "source": {"type": "url", "url": "https://a.b/c.pdf"}},
        {"type": "text", "text": "Attached sound: https://a.b/c.wav"},
        {"type": "text", "text": "look"},
    ]);
    let made = recorded(Reply { tool_calls: vec![call("1", "{}")], ..Reply::default() });
    let sent = messages(&[ChatMessage::User(content.clone()), made, result("1", content, false)]).await;
    assert_eq!(sent[0], json!({"role": "user", "content": blocks}));
    assert_eq!(sent[2]["content"], json!([{"type": "tool_result", "tool_use_id": "1", "content": blocks}]));
}

#[tokio::test]
async fn reasoning_has_a_budget_within_the_limit_of_tokens_and_no_temperature() {
    let settings = async |agent: Agent| {
        let mut sent = body(&request(agent, "", &[ChatMessage::user("x")], &[])).await;
        sent.as_object_mut().unwrap().remove("messages");
        sent
    };
    let agent = || Agent::new("a", "").temperature(0.5);
    let enabled = |budget: u32| json!({"type": "enabled", "budget_tokens": budget});
    assert_eq!(settings(agent()).await, json!({"max_tokens": 8192, "temperature": 0.5}));
    assert_eq!(
        settings(agent().reasoning(Effort::Medium)).await,
        json!({"max_tokens": 8192, "thinking": enabled(4096)})
    );
    let budget = agent().reasoning(Reasoning::budget(2000)).max_output_tokens(9000);
    assert_eq!(settings(budget).await, json!({"max_tokens": 9000, "thinking": enabled(2000)}));
    let tight = agent().reasoning(Effort::High).max_output_tokens(3000);
    assert_eq!(settings(tight).await, json!({"max_tokens": 3000, "thinking": enabled(2999)}));
    let none = json!({"max_tokens": 8192, "temperature": 0.5, "thinking": {"type": "disabled"}});
    assert_eq!(settings(agent().reasoning(Effort::None)).await, none);
    let adaptive = agent().extra("thinking", json!({"type": "adaptive"})).extra("temperature", Value::Null);
    assert_eq!(settings(adaptive).await, json!({"max_tokens": 8192, "thinking": {"type": "adaptive"}}));
}

#[tokio::test]
async fn a_stream_becomes_a_reply_and_goes_back_as_it_came() {
    let stream = [
        vec![
            start(),
            block(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            json!({"type": "ping"}),
            delta(0, "thinking_delta", "thinking", "Let me "),
            delta(0, "thinking_delta", "thinking", "think."),
            delta(0, "signature_delta", "signature", "sig=="),
            json!({"type": "content_block_stop", "index": 0}),
            block(1, json!({"type": "redacted_thinking", "data": "secret=="})),
            block(2, json!({"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}})),
            delta(2, "input_json_delta", "partial_json", "{\"query\":"),
            delta(2, "input_json_delta", "partial_json", "\"peers\"}"),
            block(3, json!({"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []})),
            block(4, json!({"type": "text", "text": ""})),
            delta(4, "text_delta", "text", "한글 "),
            delta(4, "text_delta", "text", "🦀"),
            block(5, json!({"type": "tool_use", "id": "toolu_1", "name": "search", "input": {}})),
            delta(5, "input_json_delta", "partial_json", ""),
            delta(5, "input_json_delta", "partial_json", "{\"q\": \"x"),
            delta(5, "input_json_delta", "partial_json", "\"}"),
            block(6, json!({"type": "tool_use", "id": "toolu_1", "name": "search", "input": {}})),
            json!({"type": "content_block_stop", "index": 6}),
            json!({"type": "invented_later", "delta": 1}),
        ],
        end("tool_use").to_vec(),
    ]
    .concat();
    for answer in [Answer::events(events(&stream)), Answer::events(events(&stream)).in_bytes()] {
        let (reply, shown) = ask(answer).await;
        let reply = reply.unwrap();
        assert_eq!((reply.text.as_deref(), reply.reasoning.as_deref()), (Some("한글 🦀"), Some("Let me think.")));
        let calls: Vec<_> = reply.tool_calls.iter().map(|call| (&*call.id, &*call.arguments)).collect();
        assert_eq!(calls, [("toolu_1", r#"{"q": "x"}"#), ("toolu_1", "{}")]);
        assert_eq!(reply.stop_reason, StopReason::ToolCalls);
        let (output_tokens, reasoning_tokens) = (20, 5);
        let usage =
            Usage { input_tokens: 42, output_tokens, cached_tokens: 30, cache_write_tokens: 2, reasoning_tokens };
        assert_eq!(reply.usage, Some(usage));
        let piece = |index, piece: &str| Delta::ToolCall { index, name: "search".into(), arguments: piece.into() };
        let pieces = [piece(0, ""), piece(0, r#"{"q": "x"#), piece(0, r#""}"#), piece(1, ""), piece(1, "{}")];
        assert_eq!(shown[4..], pieces);

        // The context has given the second call an id of its own.
        let mut reply = reply;
        reply.tool_calls[1].id = "toolu_1_1".into();
        let sent = messages(&[recorded(reply)]).await;
        let blocks = json!([
            {"type": "thinking", "thinking": "Let me think.", "signature": "sig=="},
            {"type": "redacted_thinking", "data": "secret=="},
            {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "peers"}},
            {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
            {"type": "text", "text": "한글 🦀"},
            {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"q": "x"}},
            {"type": "tool_use", "id": "toolu_1_1", "name": "search", "input": {}},
        ]);
        assert_eq!(sent, json!([{"role": "assistant", "content": blocks}]));
    }
}

#[tokio::test]
async fn a_whole_message_becomes_the_same() {
    let message = json!({
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "sig=="},
            {"type": "text", "text": "a"},
            {"type": "text", "text": "b"},
            {"type": "tool_use", "id": "1", "name": "search", "input": {"q": [1, 2]}},
        ],
        "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 2},
    });
    let reply = ask(Answer::json(200, &message)).await.0.unwrap();
    assert_eq!((reply.text.as_deref(), &*reply.tool_calls[0].arguments), (Some("ab"), r#"{"q":[1,2]}"#));
    assert_eq!(messages(&[recorded(reply)]).await[0]["content"], message["content"]);
    // What is plain needs nothing kept.
    let plain = ask(Answer::events(events(&[said("a"), end("end_turn").to_vec()].concat()))).await.0.unwrap();
    assert_eq!((plain.text.as_deref(), plain.opaque), (Some("a"), None));
}

#[tokio::test]
async fn usage_with_fields_that_are_null_or_of_another_form_costs_no_reply() {
    for details in [Value::Null, json!([]), json!(7), json!({"thinking_tokens": null})] {
        let usage = json!({"input_tokens": 10, "output_tokens": 20, "cache_read_input_tokens": null,
            "cache_creation_input_tokens": 3, "output_tokens_details": details});
        let whole = json!({"content": [{"type": "text", "text": "hello"}], "stop_reason": "end_turn", "usage": usage});
        let mut stream = said("hello");
        stream[0]["message"]["usage"] = usage.clone();
        stream.extend(end("end_turn"));
        stream[3]["usage"] = usage;
        for answer in [Answer::json(200, &whole), Answer::events(events(&stream))] {
            let usage = ask(answer).await.0.expect("a reply").usage.unwrap();
            assert_eq!((usage.input_tokens, usage.output_tokens, usage.cache_write_tokens), (13, 20, 3), "{details}");
        }
    }
}

#[tokio::test]
async fn fault_5_a_stream_without_its_last_event_is_cut() {
    let finished = [said("whole"), vec![end("end_turn")[0].clone()]].concat();
    for events in [events(&said("whole")), events(&finished)] {
        let error = ask(Answer::events(events)).await.0.unwrap_err();
        assert_eq!((error.kind, error.partial.unwrap().text.as_deref()), (Truncated, Some("whole")));
    }
    let with_sentinel = events(&[said("whole"), end("max_tokens").to_vec()].concat()) + "data: [DONE]\n\n";
    assert_eq!(ask(Answer::events(with_sentinel)).await.0.unwrap().stop_reason, StopReason::Length);
}

#[tokio::test(start_paused = true)]
async fn fault_8_and_9_an_overload_within_a_stream_is_tried_again_unless_something_came() {
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"},
        "request_id": "req_1"});
    let early = Answer::events(events(&[start(), overloaded.clone()]));
    let fine = Answer::events(events(&[said("fine"), end("end_turn").to_vec()].concat()));
    let server = Server::start([early, fine]).await;
    let anthropic = Anthropic::new(KEY).base_url(&server.base_url);
    let reply = anthropic.reply(&hello(), &mut DeltaSink::none()).await.unwrap();
    assert_eq!(reply.text.as_deref(), Some("fine"));
    // The first try has cost something too.
    assert_eq!(reply.usage.map(|usage| usage.input_tokens), Some(84));

    let late = Answer::events(events(&[said("half"), vec![overloaded]].concat()));
    let mut server = Server::start([late, Answer::events("")]).await;
    let anthropic = Anthropic::new(KEY).base_url(&server.base_url);
    let error = anthropic.reply(&hello(), &mut DeltaSink::none()).await.unwrap_err();
    assert_eq!((error.kind, error.request_id.as_deref()), (Overloaded, Some("req_1")));
    assert_eq!(&*error.message, "Overloaded (request req_1)");
    assert_eq!(error.partial.unwrap().text.as_deref(), Some("half"));
    server.heard().await;
    assert!(server.heard_nothing());
}

#[tokio::test]
async fn fault_38_unknown_events_are_passed_over_and_named_once() {
    let trace = Trace::default();
    let subscriber = tracing_subscriber::fmt().with_writer({
        let trace = trace.clone();
        move || trace.clone()
    });
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let new = vec![json!({"type": "invented_later", "delta": 1}); 3];
    let stream = events(&[said("a"), new, end("end_turn").to_vec()].concat());
    let server = Server::start([Answer::events(&*stream), Answer::events(&*stream)]).await;
    let anthropic = Anthropic::new(KEY).base_url(&server.base_url);
    for _ in 0..2 {
        assert_eq!(anthropic.reply(&hello(), &mut DeltaSink::none()).await.unwrap().text.as_deref(), Some("a"));
    }
    let said = trace.text();
    assert_eq!((said.lines().count(), said.contains("invented_later")), (1, true), "{said}");
}

#[tokio::test]
async fn a_model_that_declines_is_told_from_one_that_answers() {
    let details = json!({"type": "refusal", "explanation": "It is against the policy."});
    let delta = json!({"stop_reason": "refusal", "stop_details": details});
    let refused = [json!({"type": "message_delta", "delta": delta}), json!({"type": "message_stop"})];
    let error = ask(Answer::events(events(&[vec![start()], refused.to_vec()].concat()))).await.0.unwrap_err();
    assert_eq!((error.kind, &*error.message), (ContentFilter, "It is against the policy."));
    let error = ask(Answer::events(events(&[vec![start()], end("refusal").to_vec()].concat()))).await.0.unwrap_err();
    assert_eq!(error.kind, ContentFilter);
    let reply = ask(Answer::events(events(&[said("No."), refused.to_vec()].concat()))).await.0.unwrap();
    assert_eq!((reply.text.as_deref(), reply.stop_reason), (Some("No."), StopReason::ContentFilter));
}

#[tokio::test]
async fn fault_14_errors_keep_the_vendors_words_status_and_request_id() {
    let told = json!({"type": "error", "error": {"type": "not_found_error", "message": "model: claude-none"}});
    let error = ask(Answer::json(404, &told).header("request-id", "req_2")).await.0.unwrap_err();
    assert_eq!((error.kind, error.status), (InvalidRequest, Some(404)));
    assert_eq!(&*error.message, "HTTP 404: model: claude-none (request req_2)");
    for (answer, kind) in [
        (Answer::events(events(&said("half"))), Truncated),
        (Answer::events(events(&said("half"))).then_reset(), Connection),
        (Answer::events(events(&[vec![start()], end("end_turn").to_vec()].concat())), EmptyResponse),
        (Answer::new(200, "text/html", "<html>"), InvalidResponse),
    ] {
        let error = ask(answer.header("request-id", "req_3")).await.0.unwrap_err();
        assert_eq!((error.kind, error.request_id.as_deref()), (kind, Some("req_3")));
        assert!(error.message.ends_with(" (request req_3)"), "{error}");
    }
    let long =
        json!({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 2 > 1"}});
    assert_eq!(ask(Answer::json(400, &long)).await.0.unwrap_err().kind, ContextTooLong);
}
