//! A model that only talks, on llama.cpp's server: it is offered no tools, and the server holds its text to a grammar.
#![cfg(feature = "prompt_tools")]

use agentouto::providers::Streaming;
use agentouto::providers::openai::OpenAi;
use agentouto::providers::prompt_tools::PromptTools;
use agentouto::{Agent, Delta, EventKind, Runtime, tool};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::timeout;

use crate::are_wanted;
use crate::ask::GUARD;
use crate::llama::Llama;

#[derive(Deserialize, JsonSchema)]
struct Look {
    at: String,
}

/// What the model says: a word, and a call. See <https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md>.
const GRAMMAR: &str = r#"root ::= [a-z]{1,8} ".\n<tool_call>\n<name>look</name>\n<arguments>{\"at\": \"" [a-z]{1,8} "\"}</arguments>\n</tool_call>""#;

#[tokio::test]
async fn a_model_that_only_talks_uses_a_tool_turn_by_turn() {
    if !are_wanted() {
        return;
    }
    let llama = Llama::start("talker", 256, &[]).await;
    let openai = OpenAi::keyless(&format!("{}/v1", llama.address)).streaming(Streaming::Always);
    let talker = Agent::new("talker", "Talk.").model("random").extra("grammar", GRAMMAR);
    let look = tool::function("look", "Looks.", |Look { at }: Look| async move { format!("saw {at}") });
    let runtime =
        Runtime::builder().provider("llama", PromptTools::around(openai)).agent(talker).tool(look).build().unwrap();
    let mut call = runtime.user("user").forward("talker", "What is there?");
    let (mut shown, mut used) = (String::new(), 0);
    while let Some(event) = timeout(GUARD, call.next_event()).await.expect("it goes on") {
        match event.kind {
            EventKind::ModelDelta { delta: Delta::Text(text) } => shown.push_str(&text),
            EventKind::ToolEnd { error, .. } => {
                assert_eq!(error, None);
                used += 1;
            }
            EventKind::ModelRequest { turn: 3, .. } => call.cancel(),
            EventKind::ModelError { error, .. } => panic!("{error}"),
            _ => {}
        }
    }
    assert_eq!(used, 2, "once in each turn");
    assert!(shown.contains('.') && !shown.contains('<'), "{shown}");
}
