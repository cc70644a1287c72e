//! What today's vendors and models refuse or need, and odd answers of servers that are read all the same.
#![cfg(feature = "http")]

use agentouto::ProviderErrorKind::*;
use agentouto::providers::Streaming;
use agentouto::providers::anthropic::Anthropic;
use agentouto::providers::google::Google;
use agentouto::providers::openai::{OpenAi, Profile};
use agentouto::providers::openai_responses::OpenAiResponses;
use agentouto::tool::{self, NoArguments};
use agentouto::{
    Agent, Attachment, AttachmentKind, Budget, ChatMessage, Content, Delta, DeltaSink, Effort, Provider, ProviderError,
    ProviderExt, Reasoning, Reply, Request, Runtime, StopReason, ToolCall, ToolOutput, ToolSpec,
};
use serde_json::{Value, json};

use crate::openai::{hello, recorded, request};
use crate::server::{Answer, KEY, Server};

/// The four wire formats.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wire {
    Chat,
    Responses,
    Messages,
    Gemini,
}
use Wire::*;

const WIRES: [Wire; 4] = [Chat, Responses, Messages, Gemini];

fn provider(wire: Wire, base_url: &str) -> Box<dyn Provider> {
    match wire {
        Chat => Box::new(OpenAi::keyless(base_url).retries(0)),
        Responses => Box::new(OpenAiResponses::keyless(base_url).retries(0)),
        Messages => Box::new(Anthropic::keyless(base_url).retries(0)),
        Gemini => Box::new(Google::keyless(base_url).retries(0)),
    }
}

/// A reply of text, or one that calls a tool.
fn answer(wire: Wire, call: Option<&str>) -> Value {
    match (wire, call) {
        (Chat, None) => json!({"choices": [{"message": {"content": "done"}, "finish_reason": "stop"}]}),
        (Chat, Some(name)) => json!({"choices": [{"message": {"tool_calls": [
            {"id": "c", "type": "function", "function": {"name": name, "arguments": "{}"}},
        ]}, "finish_reason": "tool_calls"}]}),
        (Responses, None) => json!({"status": "completed", "output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
        ]}),
        (Responses, Some(name)) => json!({"status": "completed", "output": [
            {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"},
            {"type": "function_call", "id": "f", "call_id": "c", "name": name, "arguments": "{}"},
        ]}),
        (Messages, None) => json!({"content": [{"type": "text", "text": "done"}], "stop_reason": "end_turn"}),
        (Messages, Some(name)) => json!({"content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "tool_use", "id": "c", "name": name, "input": {}},
        ], "stop_reason": "tool_use"}),
        (Gemini, None) => json!({"candidates": [{"content": {"parts": [{"text": "done"}]}, "finishReason": "STOP"}]}),
        (Gemini, Some(name)) => json!({"candidates": [{"content": {"parts": [
            {"functionCall": {"name": name, "args": {}}, "thoughtSignature": "s"},
        ]}, "finishReason": "STOP"}]}),
    }
}

/// The body in which a request is sent.
async fn sent(wire: Wire, request: &Request) -> Value {
    let mut server = Server::start([Answer::json(200, &answer(wire, None))]).await;
    provider(wire, &server.base_url).reply(request, &mut DeltaSink::none()).await.unwrap();
    server.heard().await.body
}

/// The settings with which an agent of a model is sent, with a tool.
async fn settings(wire: Wire, agent: Agent) -> Value {
    let tool = tool("search", json!({"type": "object", "properties": {}}));
    let mut body = sent(wire, &request(agent, "", &[ChatMessage::user("hello")], &[tool])).await;
    let fields = body.as_object_mut().unwrap();
    ["model", "messages", "input", "contents", "tools"].iter().for_each(|key| drop(fields.remove(*key)));
    body
}

fn tool(name: &str, parameters: Value) -> ToolSpec {
    ToolSpec { name: name.into(), description: "".into(), parameters }
}

fn of(model: &str) -> Agent {
    Agent::new("a", "").model(model).temperature(0.5)
}

/// What a whole answer becomes.
async fn read(openai: OpenAi, server: &Server) -> Result<Reply, ProviderError> {
    openai.base_url(&server.base_url).retries(0).reply(&hello(), &mut DeltaSink::none()).await
}

async fn read_whole(body: &Value) -> Result<Reply, ProviderError> {
    read(OpenAi::keyless(""), &Server::start([Answer::json(200, body)]).await).await
}

#[tokio::test]
async fn claude_models_get_the_settings_that_they_take() {
    let check = async |agent: Agent, expected: Value| {
        let model = agent.model.clone();
        assert_eq!(settings(Messages, agent).await, expected, "{model}");
    };
    let adaptive = json!({"type": "adaptive", "display": "summarized"});
    let high = json!({"effort": "high"});
    for model in ["claude-opus-4-7", "claude-sonnet-5", "claude-opus-5-5", "claude-fable-5"] {
        check(of(model), json!({"max_tokens": 32000})).await;
        let thinking = json!({"max_tokens": 32000, "thinking": adaptive, "output_config": high});
        check(of(model).reasoning(Effort::High), thinking).await;
        let budget = json!({"max_tokens": 32000, "thinking": adaptive, "output_config": {"effort": "medium"}});
        check(of(model).reasoning(Reasoning::budget(500)), budget).await;
    }
    let off = |model| of(model).reasoning(Effort::None);
    check(off("claude-opus-4-8"), json!({"max_tokens": 32000})).await;
    check(off("claude-sonnet-5"), json!({"max_tokens": 32000, "thinking": {"type": "disabled"}})).await;
    check(off("claude-sonnet-5-5"), json!({"max_tokens": 32000, "output_config": {"effort": "low"}})).await;
    let enabled = |budget: u32| json!({"type": "enabled", "budget_tokens": budget});
    let four_six = of("claude-sonnet-4-6");
    check(four_six.clone(), json!({"max_tokens": 32000, "temperature": 0.5})).await;
    let effort = json!({"max_tokens": 32000, "thinking": adaptive, "output_config": high});
    check(four_six.clone().reasoning(Effort::High), effort).await;
    let budget = json!({"max_tokens": 32000, "thinking": enabled(2000)});
    check(four_six.reasoning(Reasoning::budget(2000)), budget).await;
    let four_five = of("claude-sonnet-4-5-20250929").reasoning(Reasoning::budget(500));
    check(four_five.clone(), json!({"max_tokens": 32000, "thinking": enabled(1024)})).await;
    check(four_five.extra("thinking", Value::Null), json!({"max_tokens": 32000})).await;
    let large = of("claude-sonnet-4").reasoning(Reasoning::budget(40_000));
    check(large, json!({"max_tokens": 44096, "thinking": enabled(40_000)})).await;
}

#[tokio::test]
async fn a_limit_without_room_for_a_budget_is_refused_before_anything_is_sent() {
    let agent = of("claude-sonnet-4-5").max_output_tokens(800).reasoning(Effort::High);
    let asked = request(agent, "", &[ChatMessage::user("hello")], &[]);
    let error = provider(Messages, "http://127.0.0.1:1").reply(&asked, &mut DeltaSink::none()).await.unwrap_err();
    let said = "the request cannot be written: `max_output_tokens` is 800, and reasoning takes at least 1024 of them; \
                raise it or leave out `reasoning`";
    assert_eq!((error.kind, &*error.message), (InvalidRequest, said));
}

#[tokio::test]
async fn openai_models_get_the_settings_that_they_take_beside_tools() {
    for (model, effort, expected) in [
        ("gpt-5.6-terra", None, json!({"reasoning_effort": "none"})),
        ("gpt-5.5", Some(Effort::None), json!({"reasoning_effort": "none"})),
        ("gpt-5.4", None, json!({})),
        ("gpt-5.4", Some(Effort::None), json!({})),
        ("gpt-5.1", Some(Effort::High), json!({"reasoning_effort": "high"})),
        ("gpt-5-mini", Some(Effort::None), json!({"reasoning_effort": "minimal"})),
        ("o3", Some(Effort::None), json!({"reasoning_effort": "low"})),
        ("gpt-4.1", None, json!({"temperature": 0.5})),
        ("gpt-4o-2024-08-06", None, json!({"temperature": 0.5})),
        ("gpt-5-pro", Some(Effort::Low), json!({"reasoning_effort": "high"})),
        ("openai/gpt-5.6", Some(Effort::Low), json!({"reasoning_effort": "low"})),
    ] {
        let mut agent = of(model);
        agent.reasoning = effort.map(Reasoning::from);
        assert_eq!(settings(Chat, agent).await, expected, "{model}");
    }
    let agent = of("gpt-5.6").reasoning(Effort::Low);
    let overridden = agent.clone().extra("reasoning_effort", "low");
    assert_eq!(settings(Chat, overridden).await, json!({"reasoning_effort": "low"}));
    let asked = |tools: &[ToolSpec]| request(agent.clone(), "", &[ChatMessage::user("hello")], tools);
    let openai = provider(Chat, "http://127.0.0.1:1");
    let tools = [tool("search", json!({"type": "object", "properties": {}}))];
    let error = openai.reply(&asked(&tools), &mut DeltaSink::none()).await.unwrap_err();
    let said = "the request cannot be written: `gpt-5.6` takes tools beside reasoning in the Responses API only: use the \
                provider `OpenAiResponses` for agent `a`, or `Effort::None`";
    assert_eq!((error.kind, &*error.message), (InvalidRequest, said));
    assert_eq!(sent(Chat, &asked(&[])).await["reasoning_effort"], "low");

    let include = json!(["reasoning.encrypted_content"]);
    let expected = json!({"reasoning": {"effort": "low"}, "include": include});
    assert_eq!(settings(Responses, agent.clone()).await, expected);
    let least = of("gpt-5").reasoning(Effort::None);
    assert_eq!(settings(Responses, least).await, json!({"reasoning": {"effort": "minimal"}}));
    assert_eq!(settings(Responses, of("gpt-4.1")).await, json!({"temperature": 0.5}));
}

#[tokio::test]
async fn gemini_models_get_a_level_or_a_budget_that_they_take() {
    let thinking = async |model: &str, reasoning: Reasoning| {
        settings(Gemini, of(model).reasoning(reasoning)).await["generationConfig"]["thinkingConfig"].take()
    };
    let level = |level: &str| json!({"thinkingLevel": level, "includeThoughts": true});
    let budget = |tokens: u32| json!({"thinkingBudget": tokens, "includeThoughts": true});
    for (model, reasoning, expected) in [
        ("gemini-3.8-flash", Effort::High.into(), level("high")),
        ("gemini-3.8-flash", Effort::Medium.into(), level("medium")),
        ("gemini-3.8-flash", Reasoning::budget(9), level("medium")),
        ("gemini-3.8-flash", Effort::None.into(), json!({"thinkingLevel": "minimal"})),
        ("gemini-3.1-pro-preview", Effort::None.into(), json!({"thinkingLevel": "low"})),
        ("gemini-3-pro-preview", Effort::Medium.into(), level("high")),
        ("gemini-2.5-pro", Effort::None.into(), json!({"thinkingBudget": 128})),
        ("gemini-2.5-flash", Effort::None.into(), json!({"thinkingBudget": 0})),
        ("gemini-2.5-flash", Reasoning::budget(100_000), budget(24_576)),
        ("gemini-2.5-flash", Reasoning::budget(100), budget(100)),
        ("gemini-2.5-flash-lite", Reasoning::budget(9), budget(512)),
        ("gemini-2.0-flash", Effort::High.into(), Value::Null),
    ] {
        assert_eq!(thinking(model, reasoning).await, expected, "{model}");
    }
}

#[tokio::test]
async fn a_setting_that_a_server_refuses_is_named_with_a_way_out() {
    let way_out = |key: &str| format!("; `Agent::extra(\"{key}\", …)` sets `{key}`, and `null` leaves it out");
    for (message, key) in [
        ("Unsupported parameter: `temperature`.", Some("temperature")),
        ("Unsupported value: 'reasoning.effort' does not support 'none'.", Some("reasoning")),
        ("Unknown name \"thinkingLevel\" at 'generation_config.thinking_config'", Some("generationConfig")),
        ("Thinking level is not supported for this model.", Some("generationConfig")),
        ("Invalid type for 'messages[0].content'.", None),
        ("no such model", None),
    ] {
        let server = Server::start([Answer::json(400, &json!({"error": {"message": message}}))]).await;
        let agent = of("m")
            .extra("reasoning", json!({"type": "effort", "effort": "none"}))
            .extra("generationConfig", json!({"thinkingConfig": {"thinkingLevel": "high"}}));
        let asked = request(agent, "", &[ChatMessage::user("hello")], &[]);
        let openai = OpenAi::keyless(&server.base_url).retries(0);
        let refused = openai.reply(&asked, &mut DeltaSink::none()).await.unwrap_err();
        assert_eq!(&*refused.message, format!("HTTP 400: {message}{}", key.map(way_out).unwrap_or_default()));
    }
}

/// A tool whose name every vendor refuses, in a whole run and in what is shown of it.
#[tokio::test]
async fn a_tool_with_a_name_that_no_vendor_takes_works_with_every_wire() {
    for wire in WIRES {
        let own = "날씨 조회";
        let probe =
            request(Agent::new("a", ""), "", &[ChatMessage::user("x")], &[tool(own, json!({"type": "object"}))]);
        let tools = sent(wire, &probe).await["tools"].to_string();
        let offered = tools.split('"').find(|text| text.starts_with('_')).unwrap().to_owned();
        let answers = [answer(wire, Some(&offered)), answer(wire, None)].map(|body| Answer::json(200, &body));
        let mut server = Server::start(answers).await;
        let weather = tool::function(own, "Says the weather.", |_: NoArguments| async { "sunny" });
        let runtime = Runtime::builder().agent(Agent::new("a", "")).tool(weather);
        let runtime = match wire {
            Chat => runtime.provider("p", OpenAi::keyless(&server.base_url)),
            Responses => runtime.provider("p", OpenAiResponses::keyless(&server.base_url)),
            Messages => runtime.provider("p", Anthropic::keyless(&server.base_url)),
            Gemini => runtime.provider("p", Google::keyless(&server.base_url)),
        };
        let mut call = runtime.build().unwrap().user("alice").forward("a", "go");
        let mut events = String::new();
        while let Some(event) = call.next_event().await {
            events += &format!("{event:?}");
        }
        call.await.unwrap();
        assert!(events.contains(own) && !events.contains(&offered), "{wire:?}: {events}");
        server.heard().await;
        let second = server.heard().await.body.to_string();
        assert!(second.contains("sunny") && !second.contains(own), "{wire:?}: {second}");
        assert!(second.matches(&*offered).count() >= 2, "{wire:?}: the tool and the call: {second}");
    }
}

#[tokio::test]
async fn a_name_that_no_vendor_takes_is_shown_as_the_tools_own() {
    let own = "files.read";
    let tools = [tool(own, json!({"type": "object", "properties": {}}))];
    let asked = request(Agent::new("a", ""), "", &[ChatMessage::user("x")], &tools);
    let offered = sent(Chat, &asked).await["tools"][0]["function"]["name"].as_str().unwrap().to_owned();
    let piece = |function: Value| {
        let delta = json!({"tool_calls": [{"index": 0, "id": "c", "function": function}]});
        format!("data: {}\n\n", json!({"choices": [{"delta": delta}]}))
    };
    let stream = piece(json!({"name": offered, "arguments": ""})) + &piece(json!({"arguments": "{}"}));
    let server = Server::start([Answer::events(stream + "data: [DONE]\n\n")]).await;
    let mut shown = Vec::new();
    let mut observer = |delta| shown.push(delta);
    let openai = OpenAi::keyless(&server.base_url).retries(0);
    let reply = openai.reply(&asked, &mut DeltaSink::to(&mut observer)).await.unwrap();
    assert_eq!(reply.tool_calls, [ToolCall::new("c", own, "{}")]);
    let names: Vec<_> =
        shown.iter().map(|delta| matches!(delta, Delta::ToolCall { name, .. } if **name == *own)).collect();
    assert_eq!(names, [true, true]);
}

#[tokio::test]
async fn schemas_that_vendors_refuse_are_sent_in_a_form_that_they_take() {
    let either = json!({"type": "object", "oneOf": [
        {"properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"]}, {"properties": {"b": {"type": "array"}}},
    ], "$defs": {"A": {"type": "string"}}});
    let tools = [tool("either", either), tool("bare", json!({"type": "object"}))];
    let asked = request(Agent::new("a", ""), "", &[ChatMessage::user("x")], &tools);
    let list = json!({"type": "array", "items": {}});
    let kept = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}, "b": list}, "$defs": {"A": {"type": "string"}}});
    let resolved = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": list}});
    let bare = json!({"type": "object", "properties": {}});
    for (wire, path, expected) in [
        (Chat, "/tools/*/function/parameters", &kept),
        (Responses, "/tools/*/parameters", &kept),
        (Messages, "/tools/*/input_schema", &kept),
        (Gemini, "/tools/0/functionDeclarations/*/parametersJsonSchema", &resolved),
    ] {
        let body = sent(wire, &asked).await;
        let schema = |nth: &str| body.pointer(&path.replace('*', nth));
        assert_eq!((schema("0"), schema("1")), (Some(expected), Some(&bare)), "{wire:?}");
    }
}

/// The text, kind and media of what a model is shown of the result of a tool.
async fn shown(wire: Wire, attachment: Attachment) -> String {
    let call = Reply::tool("look", json!({}));
    let output = ToolOutput { content: Content::from("here").attach(attachment), is_error: false };
    let result = ChatMessage::Tool { id: "call_0".into(), name: "look".into(), output };
    let messages = [ChatMessage::user("x"), recorded(call), result];
    sent(wire, &request(Agent::new("a", ""), "", &messages, &[])).await.to_string()
}

#[tokio::test]
async fn what_a_format_cannot_carry_is_described_and_ends_no_run() {
    use AttachmentKind::{Audio, Document, Image};
    let zip = || Attachment::inline(Document, "application/zip", b"zipzip").named("a.zip");
    let svg = || Attachment::inline(Image, "image/svg+xml", b"<svg/>");
    let sound = || Attachment::inline(Audio, "audio/wav", b"wavwav");
    let large = || Attachment::inline(Image, "image/png", &vec![0; 16 << 20]);
    for wire in WIRES {
        // To Gemini a drawing is text.
        for attachment in [zip(), large()].into_iter().chain((wire != Gemini).then(svg)) {
            let seen = shown(wire, attachment).await;
            assert!(seen.contains("attached, but not shown:") && seen.len() < 2_000, "{wire:?}: {seen:.300}");
        }
        let seen = shown(wire, sound()).await;
        let is_taken = matches!(wire, Chat | Gemini);
        assert_eq!(seen.contains("the model takes no sounds"), !is_taken, "{wire:?}: {seen}");
        let latin = Attachment::inline(Document, "text/csv", b"caf\xe9").named("a.csv");
        let seen = shown(wire, latin).await;
        // Gemini and Responses take the bytes themselves.
        assert_eq!(seen.contains("café"), matches!(wire, Chat | Messages), "{wire:?}: {seen}");
    }
    let seen = shown(Responses, zip()).await;
    let said = "[attached, but not shown: a.zip (application/zip, 6 bytes): the model takes text, PDF and office documents only]";
    assert!(seen.contains(said), "{seen}");
    let picture = Attachment::inline(Image, "image/png", &vec![0; 5 << 20]);
    assert!(shown(Messages, picture).await.contains("it is too large"));
}

#[tokio::test]
async fn gemini_gets_attachments_of_results_where_its_version_takes_them() {
    let output = ToolOutput {
        content: Content::from("here").attach(Attachment::inline(AttachmentKind::Image, "image/png", b"png")),
        is_error: false,
    };
    let result = ChatMessage::Tool { id: "call_0".into(), name: "look".into(), output };
    let messages = [ChatMessage::user("x"), recorded(Reply::tool("look", json!({}))), result];
    let contents = async |model: &str| {
        sent(Gemini, &request(Agent::new("a", "").model(model), "", &messages, &[])).await["contents"].take()
    };
    let media = json!({"inlineData": {"mimeType": "image/png", "data": "cG5n"}});
    let within = json!({"name": "look", "response": {"output": "here"}, "parts": [media]});
    assert_eq!(contents("gemini-3.8-flash").await[2]["parts"], json!([{"functionResponse": within}]));
    let before = contents("gemini-2.5-flash").await;
    assert_eq!(before[2]["parts"], json!([{"functionResponse": {"name": "look", "response": {"output": "here"}}}]));
    assert_eq!(before[3], json!({"role": "user", "parts": [{"text": "Attached to the result of `look`:"}, media]}));
}

#[tokio::test]
async fn a_text_without_a_letter_is_not_sent_where_it_is_refused() {
    let blank = || ChatMessage::user(" \n");
    let reply = Reply { text: Some("\n\n".into()), ..Reply::tool("look", json!({})) };
    let result = ToolOutput { content: "\n".into(), is_error: false };
    let result = ChatMessage::Tool { id: "call_0".into(), name: "look".into(), output: result };
    let body = sent(Messages, &request(of("m"), "", &[blank(), recorded(reply), result], &[])).await;
    let expected = json!([
        {"role": "user", "content": "(no text)"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "call_0", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_0", "content": "(no text)"}]},
    ]);
    assert_eq!(body["messages"], expected);
    let body = sent(Gemini, &request(of("m"), "", &[blank()], &[])).await;
    assert_eq!(body["contents"][0]["parts"], json!([{"text": "(no text)"}]));
}

/// The body of a second turn at a server with that profile, after a picture came with a result and a call had an id
/// that is no id.
async fn second_turn(profile: Profile, model: &str) -> Value {
    let mut reply = Reply::tool("look", json!({}));
    reply.tool_calls[0].id = "null_1".into();
    reply.reasoning = Some("hm".into());
    reply.opaque = Some(std::sync::Arc::new(json!({"chat_completions": {"reasoning": "reasoning"}})));
    let picture = Attachment::inline(AttachmentKind::Image, "image/png", b"png");
    let output = ToolOutput { content: Content::from("here").attach(picture), is_error: false };
    let result = ChatMessage::Tool { id: "null_1".into(), name: "look".into(), output };
    let agent = Agent::new("a", "").model(model).max_output_tokens(9);
    let asked = request(agent, "", &[ChatMessage::user("x"), recorded(reply), result], &[]);
    let mut server = Server::start([Answer::json(200, &answer(Chat, None))]).await;
    let openai = OpenAi::keyless(&server.base_url).profile(profile).retries(0);
    openai.reply(&asked, &mut DeltaSink::none()).await.unwrap();
    server.heard().await.body
}

#[tokio::test]
async fn each_profile_sends_what_its_server_takes() {
    let roles = |body: &Value| -> Vec<String> {
        body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| message["role"].as_str().unwrap().to_owned())
            .collect()
    };
    let body = second_turn(Profile::OpenAi, "m").await;
    assert_eq!(roles(&body), ["user", "assistant", "tool", "user"]);
    assert_eq!((&body["max_completion_tokens"], &body["max_tokens"]), (&json!(9), &Value::Null));
    assert_eq!(
        (&body["messages"][1]["reasoning"], &body["messages"][2]["tool_call_id"]),
        (&json!("hm"), &json!("null_1"))
    );

    let body = second_turn(Profile::Mistral, "m").await;
    assert_eq!(roles(&body), ["user", "assistant", "tool", "assistant", "user"]);
    assert_eq!((&body["max_completion_tokens"], &body["max_tokens"]), (&Value::Null, &json!(9)));
    let id = body["messages"][2]["tool_call_id"].as_str().unwrap();
    assert_eq!((id.len(), &body["messages"][1]["tool_calls"][0]["id"]), (9, &json!(id)));

    for profile in [Profile::MaxTokens, Profile::Perplexity] {
        assert_eq!(second_turn(profile, "m").await["max_tokens"], 9, "{profile:?}");
    }
    let history = [
        recorded(Reply::tool("look", json!({}))),
        ChatMessage::Tool {
            id: "call_0".into(),
            name: "look".into(),
            output: ToolOutput { content: "here".into(), is_error: false },
        },
        ChatMessage::user("and now?"),
    ];
    let asked = request(Agent::new("a", ""), "", &history, &[]);
    let mut server = Server::start([Answer::json(200, &answer(Chat, None))]).await;
    // The address comes after the profile.
    let mistral = OpenAi::keyless("").profile(Profile::Mistral).base_url(&server.base_url).retries(0);
    mistral.reply(&asked, &mut DeltaSink::none()).await.unwrap();
    assert_eq!(roles(&server.heard().await.body), ["assistant", "tool", "assistant", "user"]);

    let thought = async |model| second_turn(Profile::Groq, model).await["messages"][1]["reasoning"].take();
    assert_eq!((thought("llama-3.3-70b").await, thought("openai/gpt-oss-120b").await), (Value::Null, json!("hm")));
    let can_call = |address| Provider::function_calling(&OpenAi::keyless(address), "sonar");
    assert_eq!(
        (can_call("https://api.perplexity.ai"), can_call("https://api.groq.com/openai/v1")),
        (Some(false), None)
    );
}

#[tokio::test]
async fn a_header_whose_value_expires_is_asked_for_before_each_request_and_shown_nowhere() {
    let refusal = json!({"error": {"message": "bad token canary-2-0123456789"}});
    let answers = [Answer::json(200, &answer(Chat, None)), Answer::json(401, &refusal)];
    let mut server = Server::start(answers).await;
    let count = std::sync::atomic::AtomicUsize::new(0);
    let openai = OpenAi::keyless(&server.base_url).retries(0).header_source("authorization", move || {
        let nth = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        async move {
            match nth {
                3 => Err(ProviderError::new(Authentication, "no token today")),
                _ => Ok(format!("Bearer canary-{nth}-0123456789\n")),
            }
        }
    });
    let ask = async || openai.reply(&hello(), &mut DeltaSink::none()).await;
    ask().await.unwrap();
    assert!(server.heard().await.head.contains("authorization: Bearer canary-1-0123456789\r\n"));
    let error = ask().await.unwrap_err();
    assert_eq!((error.kind, &*error.message), (Authentication, "HTTP 401: bad token [redacted]"));
    assert_eq!(ask().await.unwrap_err(), ProviderError::new(Authentication, "no token today"));
    assert!(!format!("{openai:?}").contains("canary"));
}

#[tokio::test]
async fn secrets_of_headers_and_addresses_show_in_no_error() {
    let message = "no header-0123456789, no pass 0123456789, no query 0123456789 in preview";
    let refusal = json!({"error": {"message": message}});
    let server = Server::start([Answer::json(401, &refusal)]).await;
    let address = server.base_url.replace("http://", "http://me:pass%200123456789@");
    let openai = OpenAi::keyless(&format!("{address}?api-version=preview&key=query%200123456789")).retries(0);
    let openai = openai.header("authorization", "Bearer header-0123456789");
    let error = openai.reply(&hello(), &mut DeltaSink::none()).await.unwrap_err();
    assert_eq!(&*error.message, "HTTP 401: no [redacted], no [redacted], no [redacted] in preview");
    assert!(!format!("{openai:?}").contains("0123456789"));
}

#[tokio::test]
async fn a_query_of_the_address_stands_behind_the_path_and_a_whole_address_is_not_extended() {
    for (wire, path, expected) in [
        (Chat, "?api-version=preview", "/v1/chat/completions?api-version=preview"),
        (Gemini, "/?key=k", "/v1/models/:generateContent?key=k"),
        (Gemini, "/projects/p/publishers/google", "/v1/projects/p/publishers/google/models/:generateContent"),
        (Chat, "/chat/completions", "/v1/chat/completions"),
        (Responses, "/responses", "/v1/responses"),
        (Messages, "/messages", "/v1/messages"),
    ] {
        let mut server = Server::start([Answer::json(200, &answer(wire, None))]).await;
        let base_url = format!("{}{path}", server.base_url);
        let asked = request(Agent::new("a", ""), "", &[ChatMessage::user("x")], &[]);
        provider(wire, &base_url).reply(&asked, &mut DeltaSink::none()).await.unwrap();
        let head = server.heard().await.head;
        assert!(head.starts_with(&format!("POST {expected} HTTP/1.1\r\n")), "{head}");
    }
}

#[tokio::test]
async fn events_under_another_content_type_are_events() {
    let events =
        "data: {\"choices\": [{\"delta\": {\"content\": \"hi\"}, \"finish_reason\": \"stop\"}]}\n\ndata: [DONE]\n\n";
    let (kinds, cut) =
        (["application/json", "text/plain", "application/octet-stream"], events.find("data: [").unwrap());
    let half = events[..cut].replace(", \"finish_reason\": \"stop\"", "");
    let server = Server::start([Answer::new(200, kinds[0], half).then_cut()]).await;
    let error = read(OpenAi::keyless("").streaming(Streaming::Always), &server).await.unwrap_err();
    assert_eq!(error.partial.unwrap().text.as_deref(), Some("hi"));
    for kind in kinds {
        let server = Server::start([Answer::new(200, kind, format!(" \n{events}"))]).await;
        let reply = read(OpenAi::keyless("").streaming(Streaming::Always), &server).await;
        assert_eq!(reply.unwrap().text.as_deref(), Some("hi"), "{kind}");
    }
}

#[tokio::test]
async fn an_odd_field_that_a_reply_can_do_without_does_not_spoil_it() {
    let message = |field: &str, value: Value| {
        let mut message = json!({"content": "x"});
        message[field] = value;
        json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    };
    let beside = |field: &str, value: Value| {
        let mut body = json!({"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]});
        body[field] = value;
        body
    };
    let choice = |index: i64, reason: Value| json!({"choices": [{"index": index, "message": {"content": "x"}, "finish_reason": reason}]});
    for body in [
        message("reasoning_details", json!({"a": 1})),
        message("images", json!([{"type": "image", "b64_json": "aaaa"}])),
        message("images", json!(["https://x/y.png"])),
        message("audio", json!("none")),
        message("tool_calls", json!({})),
        message("tool_calls", json!("")),
        message("function_call", json!({})),
        message("function_call", json!({"name": "", "arguments": ""})),
        message("function_call", json!("none")),
        beside("error", json!("")),
        beside("error", json!({})),
        beside("usage", json!("n/a")),
        beside("usage", json!({"prompt_tokens": 1, "prompt_tokens_details": []})),
        choice(-1, json!("stop")),
        choice(1, json!("stop")),
        choice(0, json!(1)),
    ] {
        assert_eq!(read_whole(&body).await.unwrap().text.as_deref(), Some("x"), "{body}");
    }
    let huge = r#"{"choices": [{"index": 1e999, "message": {"content": "x"}}], "usage": {"prompt_tokens": 1e999}}"#;
    let server = Server::start([Answer::new(200, "application/json", huge)]).await;
    assert_eq!(read(OpenAi::keyless(""), &server).await.unwrap().text.as_deref(), Some("x"));
    let call = |call: Value| json!({"choices": [{"message": call, "finish_reason": "tool_calls"}]});
    let function = json!({"name": "f", "arguments": "{}"});
    for (body, id) in [
        (call(json!({"tool_calls": [{"index": "0", "id": "c", "function": function}]})), "c"),
        (call(json!({"tool_calls": [{"id": 7, "function": function}]})), "7"),
        (call(json!({"function_call": function})), ""),
        (call(json!({"function_call": function, "tool_calls": [{"id": "c", "function": function}]})), "c"),
    ] {
        assert_eq!(read_whole(&body).await.unwrap().tool_calls, [ToolCall::new(id, "f", "{}")], "{body}");
    }
}

/// The calls that pieces of a stream become, each with its id, name and arguments.
#[tokio::test]
async fn pieces_of_calls_are_put_together_whatever_a_server_repeats() {
    let piece = |index: Option<u64>, id: &str, name: &str, arguments: &str| {
        let given = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
        let function = json!({"name": given(name), "arguments": arguments});
        json!({"index": index, "id": given(id), "function": function})
    };
    let check = async |pieces: &[Value], expected: &[(&str, &str, &str)]| {
        let chunk = |piece: &Value| format!("data: {}\n\n", json!({"choices": [{"delta": {"tool_calls": [piece]}}]}));
        let stream = pieces.iter().map(chunk).collect::<String>() + "data: [DONE]\n\n";
        let reply = read(OpenAi::keyless(""), &Server::start([Answer::events(stream)]).await).await.unwrap();
        let calls: Vec<_> = reply.tool_calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
        assert_eq!(calls, expected, "{pieces:?}");
    };
    let first = Some(0);
    let half = [piece(first, "a", "f", r#"{"x""#), piece(first, "b", "f", r#": 1}"#)];
    check(&half, &[("a", "f", r#"{"x": 1}"#)]).await;
    let other = [piece(first, "", "look", ""), piece(first, "", "look2", "{}")];
    check(&other, &[("", "look", ""), ("", "look2", "{}")]).await;
    let spaced =
        [piece(first, "a", "f", "{\"x\":1}\n"), piece(first, "b", "f", ""), piece(first, "b", "", r#"{"x":2}"#)];
    check(&spaced, &[("a", "f", "{\"x\":1}\n"), ("b", "f", r#"{"x":2}"#)]).await;
    let broken =
        [piece(first, "a", "f", r#"{"x": 1"#), piece(first, "b", "f", ""), piece(first, "b", "", r#"{"x":2}"#)];
    check(&broken, &[("a", "f", r#"{"x": 1"#), ("b", "f", r#"{"x":2}"#)]).await;
    let nulls = [piece(None, "a", "f", "null"), piece(None, "b", "f", "null")];
    check(&nulls, &[("a", "f", "null"), ("b", "f", "null")]).await;
    let in_turn = [
        piece(None, "a", "f", r#"{"x""#),
        piece(None, "b", "f", r#"{"x""#),
        piece(None, "a", "f", ":1}"),
        piece(None, "b", "f", ":2}"),
    ];
    check(&in_turn, &[("a", "f", r#"{"x":1}"#), ("b", "f", r#"{"x":2}"#)]).await;
    let name = [piece(first, "c", "get_", ""), piece(first, "", "weather", "{}")];
    check(&name, &[("c", "get_weather", "{}")]).await;
}

#[tokio::test]
async fn an_error_within_a_choice_is_an_error_and_what_came_is_kept() {
    let error = json!({"code": 502, "message": "provider disconnected"});
    let whole = json!({"choices": [{"message": {"content": "The ans"}, "finish_reason": "error", "error": error}]});
    let last = json!({"choices": [{"delta": {"content": ""}, "finish_reason": "error", "error": error}]});
    let first = json!({"choices": [{"delta": {"content": "The ans"}}]});
    let stream = Answer::events(format!("data: {first}\n\ndata: {last}\n\ndata: [DONE]\n\n"));
    for answer in [Answer::json(200, &whole), stream] {
        let error = read(OpenAi::keyless(""), &Server::start([answer]).await).await.unwrap_err();
        assert_eq!((error.kind, &*error.message), (Unavailable, "HTTP 502: provider disconnected"));
        assert_eq!(error.partial.unwrap().text.as_deref(), Some("The ans"));
    }
}

/// A model's own failure, which another try may mend.
#[tokio::test(start_paused = true)]
async fn a_call_that_a_server_could_not_read_is_asked_for_again() {
    let failed = json!({"error": {"message": "Failed to call a function.", "code": "tool_use_failed"}});
    let server = Server::start([Answer::json(400, &failed), Answer::json(200, &answer(Chat, None))]).await;
    let openai = OpenAi::keyless(&server.base_url);
    let reply = openai.reply(&hello(), &mut DeltaSink::none()).await.unwrap();
    assert_eq!((reply.text.as_deref(), reply.stop_reason), (Some("done"), StopReason::Stop));
}

/// A turn with tools that the server runs itself goes on where it paused.
#[tokio::test]
async fn a_turn_that_anthropic_paused_goes_on() {
    let search = json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}});
    let paused = [json!({"type": "text", "text": "Let me search. "}), search.clone()];
    let silent = json!({"content": [search], "stop_reason": "pause_turn"});
    let first = json!({"content": paused, "stop_reason": "pause_turn"});
    let second = json!({"content": [{"type": "text", "text": "Found."}], "stop_reason": "end_turn"});
    let mut server = Server::start([silent, first, second].map(|body| Answer::json(200, &body))).await;
    let runtime = Runtime::builder().agent(Agent::new("a", "")).provider("p", Anthropic::keyless(&server.base_url));
    let report = runtime.build().unwrap().run("a", "go").await.unwrap();
    assert_eq!(&*report.output, "Let me search. Found.");
    server.heard().await;
    let silent = server.heard().await.body["messages"].take();
    assert_eq!(silent[1]["content"][0]["type"], "server_tool_use");
    let messages = server.heard().await.body["messages"].take();
    assert_eq!((messages.as_array().unwrap().len(), &messages[2]["content"]), (3, &json!(paused)));
}

#[tokio::test]
async fn a_key_that_is_wrong_is_told_so_whatever_the_status() {
    let body =
        json!({"error": {"code": 400, "message": "API key not valid.", "details": [{"reason": "API_KEY_INVALID"}]}});
    let server = Server::start([Answer::json(400, &body)]).await;
    let google = Google::new(KEY).base_url(&server.base_url).retries(0);
    let error = google.reply(&hello(), &mut DeltaSink::none()).await.unwrap_err();
    assert_eq!(error.kind, Authentication);
}

#[tokio::test]
async fn a_reply_has_the_servers_id_and_the_name_of_its_model() {
    let identified = |wire: Wire, mut body: Value| {
        let (id, model) = if wire == Gemini { ("responseId", "modelVersion") } else { ("id", "model") };
        (body[id], body[model]) = (json!("reply-1"), json!("model-2"));
        body
    };
    let ask = async |wire: Wire, answer: Answer, is_observed: bool| {
        let server = Server::start([answer]).await;
        let mut observer = |_| {};
        let mut deltas = if is_observed { DeltaSink::to(&mut observer) } else { DeltaSink::none() };
        provider(wire, &server.base_url).reply(&hello(), &mut deltas).await
    };
    let of = |reply: &Reply| (reply.id.as_deref().map(str::to_owned), reply.model.as_deref().map(str::to_owned));
    let known = (Some("reply-1".to_owned()), Some("model-2".to_owned()));
    for wire in WIRES {
        let whole = identified(wire, answer(wire, None));
        let reply = ask(wire, Answer::json(200, &whole), false).await.unwrap();
        assert_eq!(of(&reply), known, "{wire:?}");
        assert_eq!(serde_json::from_value::<Reply>(serde_json::to_value(&reply).unwrap()).unwrap(), reply);
        // A server that gives something else gives nothing.
        let mut odd = whole.clone();
        ["id", "model", "responseId", "modelVersion"].iter().for_each(|key| odd[*key] = json!(7));
        assert_eq!(of(&ask(wire, Answer::json(200, &odd), false).await.unwrap()), (None, None), "{wire:?}");
        // The stream breaks off after its beginning.
        let event = match wire {
            Chat => identified(wire, json!({"choices": [{"delta": {"content": "a"}}]})),
            Responses => json!({"type": "response.created", "response": identified(wire, json!({}))}),
            Messages => json!({"type": "message_start", "message": identified(wire, json!({"content": []}))}),
            Gemini => identified(wire, json!({"candidates": [{"content": {"parts": [{"text": "a"}]}}]})),
        };
        let more = match wire {
            Responses => "data: {\"type\":\"response.output_text.delta\",\"item_id\":\"i\",\"delta\":\"a\"}\n\n",
            _ => "",
        };
        let cut = Answer::events(format!("data: {event}\n\n{more}")).then_cut();
        let error = ask(wire, cut, true).await.unwrap_err();
        assert_eq!(of(&error.partial.unwrap()), known, "{wire:?}");
    }
}

#[tokio::test]
async fn what_one_vendor_needs_back_is_not_sent_to_the_fallback() {
    let foreign = "of-the-first-vendor";
    for first in WIRES {
        let mut call = answer(first, Some("look"));
        match first {
            Chat => {
                call["choices"][0]["message"]["tool_calls"][0]["extra_content"] = json!({"google": foreign});
                call["choices"][0]["message"]["reasoning_content"] = json!(foreign);
            }
            Responses => call["output"][0]["encrypted_content"] = json!(foreign),
            Messages => call["content"][0]["signature"] = json!(foreign),
            Gemini => call["candidates"][0]["content"]["parts"][0]["thoughtSignature"] = json!(foreign),
        }
        for second in WIRES.into_iter().filter(|second| *second != first) {
            let busy = Answer::json(503, &json!({"error": {"message": "busy"}}));
            let one = Server::start([Answer::json(200, &call), busy]).await;
            let mut other = Server::start([Answer::json(200, &answer(second, None))]).await;
            let both = provider(first, &one.base_url).or(provider(second, &other.base_url));
            let runtime = Runtime::builder()
                .provider("both", both)
                .agent(Agent::new("a", "Look.").model("m"))
                .tool(tool::function("look", "Looks.", |_: NoArguments| async { "seen" }))
                .build()
                .unwrap();
            assert_eq!(&*runtime.run("a", "Go on.").await.unwrap().output, "done", "{first:?}, then {second:?}");
            let body = other.heard().await.body.to_string();
            assert!(body.contains("seen") && !body.contains(foreign), "{first:?}, then {second:?}: {body}");
        }
    }
}

#[tokio::test]
async fn what_a_server_of_the_same_format_refuses_to_get_back_is_left_out_and_the_call_goes_on() {
    let refusals = [
        (Responses, "The encrypted content gAAA...Rg== could not be verified."),
        (Messages, "messages.1.content.0: Invalid `signature` in `thinking` block"),
        (Gemini, "Thought signature is not valid."),
    ];
    for (wire, refusal) in refusals {
        let foreign = "of-the-first-server";
        let mut call = answer(wire, Some("look"));
        match wire {
            Responses => call["output"][0]["encrypted_content"] = json!(foreign),
            Messages => call["content"][0]["signature"] = json!(foreign),
            _ => call["candidates"][0]["content"]["parts"][0]["thoughtSignature"] = json!(foreign),
        }
        let busy = Answer::json(503, &json!({"error": {"message": "busy"}}));
        let refused = || Answer::json(400, &json!({"error": {"type": "invalid_request_error", "message": refusal}}));
        let one = Server::start([Answer::json(200, &call), busy]).await;
        let mut other = Server::start([refused(), Answer::json(200, &answer(wire, None)), refused(), refused()]).await;
        let runtime = Runtime::builder()
            .provider("both", provider(wire, &one.base_url).or(provider(wire, &other.base_url)))
            .agent(Agent::new("a", "Look.").model("m"))
            .tool(tool::function("look", "Looks.", |_: NoArguments| async { "seen" }))
            .build()
            .unwrap();
        let report = runtime.user("u").forward("a", "Go on.").budget(Budget::new().requests(4)).await.unwrap();
        assert_eq!((&*report.output, report.used().unwrap().requests), ("done", 4), "{wire:?}");
        let (first, second) = (other.heard().await.body.to_string(), other.heard().await.body.to_string());
        assert!(first.contains(foreign) && second.contains("seen") && !second.contains(foreign), "{wire:?}: {second}");
        // A request that has nothing of the kind is sent once, and what is refused without it is not sent again.
        let mut messages = vec![ChatMessage::user("x")];
        for _ in 0..2 {
            let asked = request(Agent::new("a", ""), "", &messages, &[]);
            let failed = provider(wire, &other.base_url).reply(&asked, &mut DeltaSink::none()).await.unwrap_err();
            assert!(failed.message.contains(refusal), "{failed}");
            messages.push(recorded(Reply::text("y")));
        }
    }
}

#[tokio::test]
async fn a_tool_call_whose_id_is_one_vendors_own_does_not_fail_at_the_fallback() {
    let id = format!("functions.look:0|{}", "x".repeat(80));
    let calls = [json!({"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}})];
    let message = json!({"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]});
    for second in [Responses, Messages] {
        let busy = Answer::json(503, &json!({"error": {"message": "busy"}}));
        let one = Server::start([Answer::json(200, &message), busy]).await;
        let mut other = Server::start([Answer::json(200, &answer(second, None))]).await;
        let runtime = Runtime::builder()
            .provider("both", provider(Chat, &one.base_url).or(provider(second, &other.base_url)))
            .agent(Agent::new("a", "Look.").model("m"))
            .tool(tool::function("look", "Looks.", |_: NoArguments| async { "seen" }))
            .build()
            .unwrap();
        assert_eq!(&*runtime.run("a", "Go on.").await.unwrap().output, "done", "{second:?}");
        let body = other.heard().await.body;
        let (called, answered) = match second {
            Messages => (&body["messages"][1]["content"][0]["id"], &body["messages"][2]["content"][0]["tool_use_id"]),
            _ => (&body["input"][1]["call_id"], &body["input"][2]["call_id"]),
        };
        assert_eq!(called, answered, "{body}");
        let called = called.as_str().unwrap();
        assert!(
            called.len() <= 64 && called.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'),
            "{body}"
        );
    }
}

#[cfg(feature = "prompt_tools")]
#[tokio::test]
async fn observers_see_the_body_of_each_attempt_if_content_is_recorded() {
    for (wire, records) in WIRES.into_iter().flat_map(|wire| [(wire, true), (wire, false)]) {
        let refused = Answer::json(400, &json!({"error": {"message": "this model does not support tools"}}));
        let mut server = Server::start([refused, Answer::json(200, &answer(wire, None))]).await;
        // The first attempt offers tools, the second one has them in the text.
        let model: Box<dyn Provider> = match wire {
            Chat => Box::new(OpenAi::new(KEY).base_url(&server.base_url).function_calling(true)),
            Responses => Box::new(OpenAiResponses::new(KEY).base_url(&server.base_url).function_calling(true)),
            Messages => Box::new(Anthropic::new(KEY).base_url(&server.base_url).function_calling(true)),
            Gemini => Box::new(Google::new(KEY).base_url(&server.base_url).function_calling(true)),
        };
        let builder = Runtime::builder().provider("p", model.prompt_tools()).agent(Agent::new("a", "Be brief."));
        let runtime = if records { builder.record_content() } else { builder }.build().unwrap();
        let mut call = runtime.user("u").forward("a", "hello");
        let mut sent = Vec::new();
        while let Some(event) = call.next_event().await {
            if let agentouto::EventKind::ModelSent { body } = event.kind {
                assert!(!body.contains(KEY));
                sent.push(serde_json::from_str::<Value>(&body).unwrap());
            }
        }
        assert_eq!(&*call.await.unwrap().output, "done", "{wire:?}");
        let heard = [server.heard().await.body, server.heard().await.body];
        assert_eq!(sent, if records { heard.to_vec() } else { Vec::new() }, "{wire:?}");
    }
}
