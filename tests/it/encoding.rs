//! What an earlier turn has encoded is sent again: it must be what would be written anew.
#![cfg(feature = "http")]

use agentouto::providers::anthropic::Anthropic;
use agentouto::providers::google::Google;
use agentouto::providers::openai::OpenAi;
use agentouto::providers::openai_responses::OpenAiResponses;
use agentouto::tool::{self, NoArguments};
use agentouto::{
    Agent, Attachment, AttachmentKind, BoxFuture, ChatMessage, Content, DeltaSink, Provider, ProviderError, Reply,
    Request, Runtime,
};
use serde_json::{Value, json};

use crate::openai::request;
use crate::server::{Answer, Server};

/// Asks one provider with the request itself, and another with a copy, which remembers nothing.
struct Twice {
    kept: Box<dyn Provider>,
    anew: Box<dyn Provider>,
}

impl Provider for Twice {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(async {
            let copy = request.clone();
            self.anew.reply(&copy, &mut DeltaSink::none()).await?;
            self.kept.reply(request, deltas).await
        })
    }
}

/// Runs an agent for three turns, and compares the bodies.
async fn check(calls: [Value; 2], text: Value, provider: fn(&str) -> Box<dyn Provider>) {
    let answers: Vec<_> = calls.iter().chain([&text]).map(|body| Answer::json(200, body)).collect();
    let (mut kept, mut anew) = (Server::start(answers.clone()).await, Server::start(answers).await);
    let twice = Twice { kept: provider(&kept.base_url), anew: provider(&anew.base_url) };
    let picture = || Content::from("seen").attach(Attachment::url(AttachmentKind::Image, "https://a.b/c.png"));
    let agent = Agent::new("a", "Look.").model("m").extra("seed", 7);
    let runtime = Runtime::builder()
        .provider("twice", twice)
        .agent(agent)
        .tool(tool::function("look", "Looks.", move |_: NoArguments| async move { picture() }))
        .build()
        .unwrap();
    assert_eq!(runtime.run("a", "Go on.").await.unwrap().output.as_ref(), "done");
    let mut lengths = Vec::new();
    for _ in 0..3 {
        let (kept, anew) = (kept.heard().await.body, anew.heard().await.body);
        assert_eq!(kept, anew);
        lengths.push(kept.to_string().len());
    }
    assert!(lengths.is_sorted_by(|a, b| a < b), "{lengths:?}");
}

#[tokio::test]
async fn chat_completions_go_on_where_they_were() {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let said = |ids: &[&str]| {
        let calls: Vec<_> = ids.iter().map(|id| call(id)).collect();
        json!({"choices": [{"message": {"content": "hm", "tool_calls": calls}, "finish_reason": "tool_calls"}]})
    };
    let text = json!({"choices": [{"message": {"content": "done"}, "finish_reason": "stop"}]});
    check([said(&["1", "2"]), said(&["2"])], text, |url| Box::new(OpenAi::keyless(url))).await;
}

#[tokio::test]
async fn responses_go_on_where_they_were() {
    let thought = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"});
    let call = |id: &str| json!({"type": "function_call", "id": id, "call_id": id, "name": "look", "arguments": "{}"});
    let said = |ids: &[&str]| {
        let items: Vec<_> = ids.iter().map(|id| call(id)).collect();
        {
            let output = [vec![thought.clone()], items].concat();
            json!({"status": "completed", "output": output})
        }
    };
    let message = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]});
    let text = json!({"status": "completed", "output": [message]});
    check([said(&["1", "2"]), said(&["2"])], text, |url| Box::new(OpenAiResponses::keyless(url))).await;
}

#[tokio::test]
async fn messages_go_on_where_they_were() {
    let thought = json!({"type": "thinking", "thinking": "hm", "signature": "x"});
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "look", "input": {}});
    let said = |ids: &[&str]| {
        let blocks: Vec<_> = ids.iter().map(|id| call(id)).collect();
        {
            let content = [vec![thought.clone()], blocks].concat();
            json!({"content": content, "stop_reason": "tool_use"})
        }
    };
    let text = json!({"content": [{"type": "text", "text": "done"}], "stop_reason": "end_turn"});
    check([said(&["1", "2"]), said(&["2"])], text, |url| Box::new(Anthropic::keyless(url))).await;
}

#[tokio::test]
async fn generated_content_goes_on_where_it_was() {
    let call = json!({"functionCall": {"name": "look", "args": {}}, "thoughtSignature": "x"});
    let said = |calls: usize| {
        let parts = vec![call.clone(); calls];
        json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]})
    };
    let text = json!({"candidates": [{"content": {"parts": [{"text": "done"}]}, "finishReason": "STOP"}]});
    check([said(2), said(1)], text, |url| Box::new(Google::keyless(url))).await;
}

#[tokio::test]
async fn what_a_model_made_goes_back_in_its_reply_or_is_named_there() {
    let picture = Attachment::encoded(AttachmentKind::Image, "image/png", "cGl4ZWw=").named("a.png");
    let said = |text: Option<&str>, opaque: Option<Value>| ChatMessage::Assistant {
        text: text.map(Into::into),
        reasoning: None,
        attachments: vec![picture.clone(), Attachment::url(AttachmentKind::Document, "https://a.b/c.pdf")],
        tool_calls: Vec::new(),
        opaque: opaque.map(Into::into),
    };
    let kept = json!({"inlineData": {"mimeType": "image/png", "data": "cGl4ZWw="}});
    let messages = [said(Some("Here."), None), said(None, Some(json!({"generate_content": [kept]})))];
    let request = request(Agent::new("a", "").model("m"), "", &messages, &[]);
    let sent = async |provider: fn(&str) -> Box<dyn Provider>, list: &str| {
        let mut server = Server::start([Answer::json(200, &json!({}))]).await;
        let _nothing = provider(&server.base_url).reply(&request, &mut DeltaSink::none()).await;
        server.heard().await.body[list].take()
    };
    let named = "[attached: image/png a.png]\n[attached: https://a.b/c.pdf]";
    let assistant = |content: Value| json!({"role": "assistant", "content": content});
    let texts = json!([assistant(json!(format!("Here.\n{named}"))), assistant(json!(named))]);
    assert_eq!(sent(|url| Box::new(OpenAi::keyless(url)), "messages").await, texts);
    let item = |text: String| json!({"type": "message", "role": "assistant", "content": text});
    let items = json!([item(format!("Here.\n{named}")), item(named.to_owned())]);
    assert_eq!(sent(|url| Box::new(OpenAiResponses::keyless(url)), "input").await, items);
    let block = |text: String| assistant(json!([{"type": "text", "text": text}]));
    let blocks = json!([block(format!("Here.\n{named}")), block(named.to_owned())]);
    assert_eq!(sent(|url| Box::new(Anthropic::keyless(url)), "messages").await, blocks);
    let file = json!({"fileData": {"mimeType": "application/pdf", "fileUri": "https://a.b/c.pdf"}});
    // What the server sent goes back as it was, and once.
    let parts = json!([
        {"role": "model", "parts": [{"text": "Here."}, kept, file]},
        {"role": "model", "parts": [kept]},
    ]);
    assert_eq!(sent(|url| Box::new(Google::keyless(url)), "contents").await, parts);
}
