//! Servers that refuse tools: remembered, and asked in text.
#![cfg(feature = "http")]

use agentouto::providers::openai::OpenAi;
use agentouto::providers::prompt_tools::PromptTools;
use serde_json::{Value, json};

use super::{CALL, cpu, solo};
use crate::server::{Answer, Server};

fn said(text: &str) -> Answer {
    Answer::json(
        200,
        &json!({"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}),
    )
}

fn refused(status: u16, message: &str) -> Answer {
    Answer::json(status, &json!({"error": {"message": message, "type": "invalid_request_error"}}))
}

/// What two runs against a server come to, and whether each request offered tools.
async fn runs<const N: usize>(answers: [Answer; N]) -> (Vec<Result<String, String>>, Vec<bool>) {
    let mut server = Server::start(answers).await;
    let openai = OpenAi::keyless(&server.base_url).retries(0);
    let runtime = solo(PromptTools::around(openai).when_unknown(|_| true)).tool(cpu()).build().unwrap();
    let mut results = Vec::new();
    for _ in 0..2 {
        let result = runtime.run("solo", "q").await;
        results.push(result.map(|report| report.output.to_string()).map_err(|error| error.to_string()));
    }
    let mut offered = Vec::new();
    for _ in 0..N {
        offered.push(server.heard().await.body["tools"] != Value::Null);
    }
    (results, offered)
}

#[tokio::test]
async fn a_server_that_refuses_tools_is_asked_in_text_from_then_on() {
    // The words of Ollama, vLLM, llama.cpp and OpenRouter.
    for (status, words) in [
        (400, "registry.ollama.ai/library/gemma:2b does not support tools"),
        (400, "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"),
        (501, "tools param requires --jinja flag"),
        (404, "No endpoints found that support tool use."),
    ] {
        let (results, offered) = runs([refused(status, words), said(CALL), said("7%"), said("again")]).await;
        assert_eq!(results, [Ok("7%".to_owned()), Ok("again".to_owned())], "{words}");
        assert_eq!(offered, [true, false, false, false], "{words}");
    }
}

#[tokio::test]
async fn any_other_refusal_is_an_error() {
    for (status, words) in [
        (400, "messages: too many images"),
        (400, "Invalid schema for function 'cpu': missing properties"),
        (500, "Failed to parse tool call arguments as JSON: unexpected end of input"),
        (400, "Function tools with reasoning_effort are not supported"),
        (400, "'required' is required to be supplied"),
        (400, "tool_choice 'required' is not supported"),
    ] {
        let (results, offered) = runs([refused(status, words), refused(status, words)]).await;
        assert!(results.iter().all(|result| result.as_ref().is_err_and(|error| error.contains(words))), "{results:?}");
        assert_eq!(offered, [true, true], "{words}");
    }
}
