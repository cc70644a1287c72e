//! What is sent.

use std::process::Command;

use agentouto::{Attachment, AttachmentKind, Content, Effort, ToolCall, ToolOutput};

use super::*;

/// The body that is sent for a request.
async fn sent(request: &Request, streaming: Streaming) -> Value {
    let mut server = Server::start([Answer::json(200, &json!({}))]).await;
    let openai = OpenAi::new(KEY).base_url(&server.base_url).streaming(streaming);
    openai.reply(request, &mut DeltaSink::none()).await.unwrap_err();
    server.heard().await.body
}

#[tokio::test]
async fn every_kind_of_message_has_its_wire_form() {
    let image = Attachment::inline(AttachmentKind::Image, "image/png", b"png");
    let question = Content::from("look")
        .attach(image.clone())
        .attach(Attachment::inline(AttachmentKind::Audio, "audio/mpeg", b"mp3"))
        .attach(Attachment::inline(AttachmentKind::Document, "application/pdf", b"pdf").named("a.pdf"))
        .attach(Attachment::url(AttachmentKind::Document, "https://example.com/b.pdf"));
    let call = |id: &str, arguments: &str| ToolCall::new(id, "search", arguments);
    let calls = vec![call("1", r#"{"q": 1}"#), call("2", r#"{"q": "#)];
    let output = |id: &str, content: Content| ChatMessage::Tool {
        id: id.into(),
        name: "search".into(),
        output: ToolOutput { content, is_error: false },
    };
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
        output("2", "nothing".into()),
        ChatMessage::assistant("fine"),
        ChatMessage::user("thanks"),
    ];
    let tool = ToolSpec { name: "search".into(), description: "Search.".into(), parameters: json!({"type": "object"}) };
    let agent = Agent::new("a", "").model("m").temperature(0.5).max_output_tokens(9).extra("seed", 7);
    let body = sent(&request(agent, "be brief", &messages, &[tool]), Streaming::Never).await;
    let picture = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}});
    let called = |id: &str, arguments: &str| json!({"type": "function", "id": id, "function": {"name": "search", "arguments": arguments}});
    let expected = json!({
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [
                {"type": "text", "text": "look"},
                picture,
                {"type": "input_audio", "input_audio": {"data": "bXAz", "format": "mp3"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"}},
                {"type": "text", "text": "Attached document: https://example.com/b.pdf"},
            ]},
            {"role": "assistant", "content": null, "tool_calls": [called("1", r#"{"q": 1}"#), called("2", "{}")]},
            {"role": "tool", "tool_call_id": "1", "content": "a picture"},
            {"role": "tool", "tool_call_id": "2", "content": "nothing"},
            {"role": "user", "content": [{"type": "text", "text": "Attached to the result of `search` (1):"}, picture]},
            {"role": "assistant", "content": "fine"},
            {"role": "user", "content": "thanks"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "search", "description": "Search.", "parameters": {"type": "object", "properties": {}}}},
        ],
        "max_completion_tokens": 9,
        "temperature": 0.5,
        "seed": 7,
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn effort_takes_the_place_of_temperature_and_extra_leaves_out_what_it_says_is_null() {
    let agent = Agent::new("a", "").temperature(0.5).reasoning(Effort::Low).extra("stream_options", json!(null));
    let body = sent(&request(agent, "", &[ChatMessage::user("hello")], &[]), Streaming::Always).await;
    let messages = json!([{"role": "user", "content": "hello"}]);
    let expected = json!({"messages": messages, "reasoning_effort": "low", "stream": true});
    assert_eq!(body, expected);
}

#[tokio::test]
async fn a_reply_is_streamed_when_somebody_looks_on() {
    let mut server = Server::start([Answer::json(200, &json!({}))]).await;
    let _empty = ask_at(&OpenAi::new(KEY).base_url(&server.base_url).retries(0)).await;
    let body = server.heard().await.body;
    assert_eq!((&body["stream"], &body["stream_options"]), (&json!(true), &json!({"include_usage": true})));
    let body = sent(&hello(), Streaming::WhenObserved).await;
    assert_eq!(body, json!({"model": "m", "messages": [{"role": "user", "content": "hello"}]}));
}

#[tokio::test]
async fn the_key_goes_into_its_header_and_the_path_behind_the_base() {
    let answers = [Answer::json(200, &json!({})), Answer::json(200, &json!({}))];
    let mut server = Server::start(answers).await;
    let slashed = OpenAi::new(format!("{KEY}\n")).base_url(&format!("{}/", server.base_url));
    let _empty = ask_at(&slashed.retries(0)).await;
    let head = server.heard().await.head;
    assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("authorization: Bearer {KEY}\r\n")), "{head}");
    let _empty = ask_at(&OpenAi::keyless(&server.base_url).retries(0)).await;
    let head = server.heard().await.head;
    assert!(!head.contains("authorization"), "{head}");
}

#[test]
fn the_environment_gives_key_and_address() {
    let child = |variables: &[(&str, &str)]| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "--ignored", "--nocapture", "openai::requests::what_the_environment_gives"]);
        child.env_remove("OPENAI_API_KEY").env_remove("OPENAI_BASE_URL").envs(variables.iter().copied());
        String::from_utf8(child.output().unwrap().stdout).unwrap()
    };
    assert!(child(&[]).contains("the environment variable OPENAI_API_KEY is not set"));
    assert!(child(&[("OPENAI_API_KEY", " ")]).contains("the environment variable OPENAI_API_KEY is not set"));
    assert!(child(&[("OPENAI_API_KEY", KEY)]).contains("\"https://api.openai.com/v1\""));
    let local = child(&[("OPENAI_API_KEY", KEY), ("OPENAI_BASE_URL", "http://localhost:8080/v1/")]);
    assert!(local.contains("\"http://localhost:8080/v1\""), "{local}");
    assert!(!local.contains(KEY), "{local}");
}

#[test]
#[ignore = "run by the test above, in an environment of its own"]
fn what_the_environment_gives() {
    println!("{:?}", OpenAi::from_env());
}
