//! All that a request can hold, one feature at a time.

use agentouto::AttachmentKind::{self, Audio, Document, Image};
use agentouto::{
    Agent, Attachment, ChatMessage, Content, Context, Effort, Reasoning, Request, ToolCall, ToolOutput, ToolSpec,
};
use serde_json::{Value, json};

use crate::replies;
use crate::wire::Wire;

/// A request that has something of its own.
pub(crate) struct Feature {
    pub(crate) name: String,
    pub(crate) request: Request,
}

/// All features that a wire format has.
pub(crate) async fn features(wire: Wire) -> Vec<Feature> {
    let mut all: Vec<_> = settings(wire).into_iter().map(|(name, agent)| of(wire, name, agent, &[hello()])).collect();
    let plain = || Agent::new("a", "");
    all.extend(conversations().into_iter().map(|(name, messages)| of(wire, name, plain(), &messages)));
    for (name, attachment) in attachments() {
        // These take no sounds: the provider says so instead of sending one.
        if matches!(wire, Wire::Messages | Wire::Responses) && attachment.kind == Audio && name.contains("inline") {
            continue;
        }
        let seen = Content::from("look").attach(attachment.clone());
        let result = Content::from("found").attach(attachment);
        let asked = ChatMessage::User(seen);
        all.push(of(wire, &name, plain(), &[asked]));
        let found = [hello(), called(&[("1", r#"{"q":1}"#)]), output("1", result, false)];
        all.push(of(wire, &format!("{name} in a result"), plain(), &found));
    }
    let reasoned = replies::reasoned(wire).await;
    all.push(of(wire, "reasoning sent back", plain().reasoning(Effort::High), &reasoned));
    all
}

/// A request with a system prompt and a tool.
fn of(wire: Wire, name: &str, agent: Agent, messages: &[ChatMessage]) -> Feature {
    let parameters = json!({"type": "object", "properties": {"q": {"type": "integer", "description": "What."}}});
    let tool = ToolSpec { name: "search".into(), description: "Search.".into(), parameters };
    Feature { name: name.to_owned(), request: request(wire, agent, messages, &[tool]) }
}

pub(crate) fn request(wire: Wire, agent: Agent, messages: &[ChatMessage], tools: &[ToolSpec]) -> Request {
    let agent = agent.model(match wire {
        Wire::Chat | Wire::Responses => "gpt-5.2",
        Wire::Messages => "claude-sonnet-4-5",
        Wire::Gemini => "gemini-2.5-pro",
    });
    Request::new(agent, Context::with_messages("be brief", messages), tools)
}

fn settings(wire: Wire) -> Vec<(&'static str, Agent)> {
    let agent = || Agent::new("a", "");
    let (key, value) = extra(wire);
    vec![
        ("nothing set", agent()),
        ("a temperature", agent().temperature(0.5)),
        ("a limit of tokens", agent().max_output_tokens(9_000)),
        ("no effort", agent().reasoning(Effort::None)),
        ("low effort", agent().reasoning(Effort::Low)),
        ("medium effort", agent().reasoning(Effort::Medium)),
        ("high effort", agent().reasoning(Effort::High)),
        ("a budget of reasoning", agent().reasoning(Reasoning::budget(2_000))),
        ("a budget and a limit", agent().reasoning(Reasoning::budget(2_000)).max_output_tokens(9_000).temperature(0.5)),
        ("extra", agent().extra(key, value)),
    ]
}

/// A parameter of which the providers know nothing.
fn extra(wire: Wire) -> (&'static str, Value) {
    match wire {
        Wire::Chat => ("seed", json!(7)),
        Wire::Responses => ("truncation", json!("auto")),
        Wire::Messages => ("top_k", json!(7)),
        Wire::Gemini => ("generationConfig", json!({"topK": 7})),
    }
}

fn conversations() -> Vec<(&'static str, Vec<ChatMessage>)> {
    let both = || called(&[("1", r#"{"q":1}"#), ("2", r#"{"q":2}"#)]);
    let one = |text: &'static str, is_error| output("1", text.into(), is_error);
    let two = || output("2", "nothing".into(), false);
    vec![
        ("a history", vec![hello(), ChatMessage::assistant("hi"), ChatMessage::user("again")]),
        ("an empty message", vec![ChatMessage::user("")]),
        ("an empty assistant", vec![hello(), ChatMessage::assistant(""), ChatMessage::user("again")]),
        ("two messages in a row", vec![hello(), hello()]),
        ("a result", vec![hello(), called(&[("1", r#"{"q":1}"#)]), one("3 results", false)]),
        ("an empty result", vec![hello(), called(&[("1", "{}")]), one("", false)]),
        ("a result that is JSON", vec![hello(), called(&[("1", "{}")]), one("[1, {\"a\": null}]", false)]),
        ("parallel results", vec![hello(), both(), one("3 results", false), two()]),
        ("an error", vec![hello(), both(), one("Error: no network", true), two()]),
        ("arguments that are cut", vec![hello(), called(&[("1", r#"{"q":"#)]), one("Error: cut", true)]),
        ("arguments that are a list", vec![hello(), called(&[("1", "[1]")]), one("Error: no object", true)]),
        ("no arguments", vec![hello(), called(&[("1", "")]), one("3 results", false)]),
        (
            "turns",
            vec![hello(), both(), one("1", false), two(), called(&[("3", "{}")]), output("3", "x".into(), false)],
        ),
    ]
}

fn attachments() -> Vec<(String, Attachment)> {
    let kinds: [(AttachmentKind, &str, &str); 6] = [
        (Image, "image/png", "a.png"),
        (Image, "image/jpeg", "a.jpg"),
        (Audio, "audio/wav", "a.wav"),
        (Audio, "audio/mpeg", "a.mp3"),
        (Document, "application/pdf", "a.pdf"),
        (Document, "text/plain", "a.txt"),
    ];
    let of = |(kind, media_type, file): (AttachmentKind, &str, &str)| {
        let inline = Attachment::inline(kind, media_type, b"some bytes");
        let url = Attachment::url(kind, &format!("https://example.com/{file}"));
        [
            (format!("{media_type} inline"), inline.clone()),
            (format!("{media_type} inline with a name"), inline.named(file)),
            (format!("{media_type} by address"), url),
        ]
    };
    kinds.into_iter().flat_map(of).collect()
}

fn hello() -> ChatMessage {
    ChatMessage::user("hello")
}

fn called(calls: &[(&str, &str)]) -> ChatMessage {
    let call = |(id, arguments): &(&str, &str)| ToolCall::new(*id, "search", *arguments);
    let tool_calls = calls.iter().map(call).collect();
    ChatMessage::Assistant {
        text: Some("Let me look.".into()),
        reasoning: None,
        attachments: Vec::new(),
        tool_calls,
        opaque: None,
    }
}

fn output(id: &str, content: Content, is_error: bool) -> ChatMessage {
    ChatMessage::Tool { id: id.into(), name: "search".into(), output: ToolOutput { content, is_error } }
}
