//! What an answer carries: all that a model said and made for it.

use std::sync::Arc;
use std::time::Duration;

use agentouto::providers::scripted::Scripted;
use agentouto::{
    Attachment, AttachmentKind, BoxFuture, CallError, ChatMessage, Delta, DeltaSink, EventKind, Provider,
    ProviderError, ProviderErrorKind, Reply, Request, StopReason,
};
use serde_json::json;
use tokio::sync::mpsc;

use crate::team::team;

fn picture(name: &str) -> Attachment {
    Attachment::inline(AttachmentKind::Image, "image/png", b"png").named(name)
}

fn painting(reply: Reply, name: &str) -> Reply {
    Reply { attachments: vec![picture(name)], ..reply }
}

/// A model that replies so, and what it is shown in its second turn.
fn shown_after(reply: Reply) -> (Scripted, mpsc::UnboundedReceiver<Vec<ChatMessage>>) {
    let (sender, shown) = mpsc::unbounded_channel();
    let model = Scripted::computed(move |request: &Request| match request.context.turns() {
        0 => reply.clone(),
        _ => {
            sender.send(request.context.messages().cloned().collect()).unwrap();
            Reply::text("done")
        }
    });
    (model, shown)
}

#[tokio::test]
async fn an_answer_carries_what_its_model_attached_in_every_turn_however_it_ends() {
    let earlier = ChatMessage::Assistant {
        text: None,
        reasoning: None,
        attachments: vec![picture("of an earlier call")],
        tool_calls: Vec::new(),
        opaque: None,
    };
    for end in [Reply::finish("done"), Reply::text("done")] {
        let turns = [painting(Reply::call_agent("b", "x"), "1"), Reply::call_agent("b", "x"), painting(end, "3")];
        let model = Scripted::new().replies("a", turns).replies_to_any("b", [painting(Reply::text("ok"), "of b")]);
        let runtime = team(model, ["a", "b"]).build().unwrap();
        let call = runtime.user("alice").forward("a", "paint").history([earlier.clone()]);
        let report = call.await.unwrap();
        assert_eq!((&*report.output, report.attachments), ("done", vec![picture("1"), picture("3")]));
    }
}

#[tokio::test]
async fn what_a_model_attached_beside_a_call_stays_in_its_context() {
    let (model, mut shown) = shown_after(painting(Reply::call_agent("nobody", "x"), "1"));
    team(model, ["a"]).build().unwrap().run("a", "paint").await.unwrap();
    let messages = shown.recv().await.unwrap();
    let ChatMessage::Assistant { attachments, .. } = &messages[1] else { panic!("{messages:?}") };
    assert_eq!(*attachments, [picture("1")]);
    let wire = serde_json::to_string(&messages).unwrap();
    assert_eq!(serde_json::from_str::<Vec<ChatMessage>>(&wire).unwrap(), messages);
    let plain = serde_json::to_value(ChatMessage::assistant("x")).unwrap();
    assert_eq!(plain, json!({"role": "assistant", "text": "x"}));
}

#[tokio::test]
async fn a_refusal_is_the_answer_where_there_is_no_text() {
    for (text, expected) in [(None, "No."), (Some(""), "No."), (Some(" "), " "), (Some("Well."), "Well.")] {
        let reply = Reply { text: text.map(Into::into), refusal: Some("No.".into()), ..Reply::default() };
        let report = team(Scripted::new().replies("a", [reply]), ["a"]).build().unwrap().run("a", "go").await.unwrap();
        assert_eq!(&*report.output, expected, "{text:?}");
    }
}

#[tokio::test]
async fn a_refusal_beside_tool_calls_stays_in_the_context() {
    for text in [None, Some("")] {
        let text = text.map(Arc::from);
        let reply = Reply { text, refusal: Some("Not that.".into()), ..Reply::call_agent("nobody", "x") };
        let (model, mut shown) = shown_after(reply);
        team(model, ["a"]).build().unwrap().run("a", "go").await.unwrap();
        let messages = shown.recv().await.unwrap();
        let ChatMessage::Assistant { text, .. } = &messages[1] else { panic!("{messages:?}") };
        assert_eq!(text.as_deref(), Some("Not that."));
    }
}

#[tokio::test]
async fn a_reply_that_was_cut_is_an_error_that_carries_it_and_its_caller_reads_it() {
    let cut = Reply { stop_reason: StopReason::Length, ..painting(Reply::text("Half a rep"), "half") };
    let (sender, mut shown) = mpsc::unbounded_channel();
    let b = cut.clone();
    let model = Scripted::computed(move |request: &Request| match (&*request.agent.name, request.context.turns()) {
        ("b", _) => b.clone(),
        (_, 0) => Reply::call_agent("b", "report"),
        _ => {
            sender.send(request.context.messages().last().cloned()).unwrap();
            Reply::text("done")
        }
    });
    let runtime = team(model, ["a", "b"]).build().unwrap();
    runtime.run("a", "go").await.unwrap();
    let Some(Some(ChatMessage::Tool { output, .. })) = shown.recv().await else { panic!("the output of the call") };
    let told = "Error: [fake] the reply was cut at a limit of tokens: `max_output_tokens` of the agent, or what the model can write or read\n\
                What had arrived:\nHalf a rep";
    assert_eq!((&*output.content.text, output.is_error), (told, true));
    assert_eq!(output.content.attachments, [picture("half")]);

    let CallError::Provider { error, .. } = runtime.run("b", "go").await.unwrap_err().error else {
        panic!("the reply is no answer")
    };
    assert_eq!((error.kind, error.partial.as_deref()), (ProviderErrorKind::Truncated, Some(&cut)));
}

/// Fails after a part of its answer was shown, and then answers.
struct Breaks;

impl Provider for Breaks {
    fn reply<'a>(
        &'a self,
        _: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            let finish =
                |arguments: &str| Delta::ToolCall { index: 0, name: "finish".into(), arguments: arguments.into() };
            let broke = ProviderError::new(ProviderErrorKind::Connection, "the connection broke");
            deltas.delta(Delta::Text("Hel".into()));
            deltas.retry(&broke, Duration::ZERO).await?;
            deltas.delta(finish("{\"message\": \"Hel"));
            deltas.fall_back(&broke).await?;
            deltas.delta(finish("{\"message\": \"Hello\"}"));
            Ok(Reply::finish("Hello"))
        })
    }
}

#[tokio::test]
async fn an_answer_begins_anew_with_each_attempt() {
    let runtime = team(Breaks, ["a"]).build().unwrap();
    let mut call = runtime.user("u").forward("a", "go");
    let mut pieces = Vec::new();
    while let Some(event) = call.next_event().await {
        if let EventKind::ModelDelta { delta: Delta::Answer { text, begins } } = event.kind {
            pieces.push((text.to_string(), begins));
        }
    }
    assert_eq!(pieces, ["Hel", "Hel", "Hello"].map(|text| (text.to_owned(), true)));
    assert_eq!(&*call.await.unwrap().output, "Hello");
}

/// Pauses, breaks off after a part of the rest was shown, and then gives the rest.
struct Pauses;

impl Provider for Pauses {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            let (text, stop_reason) = match request.context.turns() {
                0 => ("Let me search. ", StopReason::Other("pause_turn".into())),
                _ => {
                    deltas.delta(Delta::Text("Fou".into()));
                    let broke = ProviderError::new(ProviderErrorKind::Connection, "the connection broke");
                    deltas.retry(&broke, Duration::ZERO).await?;
                    ("Found.", StopReason::Stop)
                }
            };
            deltas.delta(Delta::Text(text.into()));
            Ok(Reply { stop_reason, ..Reply::text(text) })
        })
    }
}

#[tokio::test]
async fn another_attempt_at_the_rest_of_a_paused_answer_repeats_its_beginning() {
    let runtime = team(Pauses, ["a"]).build().unwrap();
    let mut call = runtime.user("u").forward("a", "go");
    let mut shown = String::new();
    while let Some(event) = call.next_event().await {
        if let EventKind::ModelDelta { delta: Delta::Answer { text, begins } } = event.kind {
            if begins {
                shown.clear();
            }
            shown.push_str(&text);
        }
    }
    assert_eq!(shown, "Let me search. Found.");
    assert_eq!(&*call.await.unwrap().output, "Let me search. Found.");
}
