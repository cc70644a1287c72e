//! A model that cannot call functions uses tools all the same: `cargo run --example local_model`.
//!
//! Without anything it is a script that only talks. A model of a server that speaks like OpenAI (Ollama, llama.cpp, vLLM …):
//! `OPENAI_BASE_URL=http://127.0.0.1:11434/v1 AGENTOUTO_MODEL=gemma2 cargo run --example local_model -- "How warm is it in Seoul?"`

use agentouto::providers::openai::OpenAi;
use agentouto::providers::prompt_tools::PromptTools;
use agentouto::providers::scripted::Scripted;
use agentouto::{Agent, Delta, EventKind, Reply, Runtime, RuntimeBuilder, tool};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct City {
    /// Its name in English.
    city: String,
}

async fn temperature(City { city }: City) -> Result<String, String> {
    match &*city {
        "Seoul" => Ok("21 °C".to_owned()),
        "Busan" => Ok("24 °C".to_owned()),
        _ => Err(format!("no station in {city}; there are Seoul and Busan")),
    }
}

/// The model: one on a server, if there is any, or else a script of what one would write.
fn with_model(builder: RuntimeBuilder) -> RuntimeBuilder {
    if let Ok(address) = std::env::var("OPENAI_BASE_URL") {
        return builder.provider("local", PromptTools::around(OpenAi::keyless(&address)));
    }
    let model = Scripted::new().replies("guide", [
        // Every model has its own way: this is the form that was taught, and what Hermes and Qwen write.
        Reply::text("I look at Seoul.\n<tool_call>\n<name>temperature</name>\n<arguments>{\"town\": \"Seoul\"}</arguments>\n</tool_call>"),
        Reply::text("<tool_call>{\"name\": \"temperature\", \"arguments\": {\"city\": \"Seoul\"}}</tool_call>"),
        Reply::text("It is 21 °C in Seoul."),
    ]);
    builder.provider("local", PromptTools::around(model))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let question = std::env::args().nth(1).unwrap_or_else(|| "How warm is it in Seoul?".to_owned());
    let model = std::env::var("AGENTOUTO_MODEL").unwrap_or_default();
    let runtime = with_model(Runtime::builder())
        .agent(Agent::new("guide", "Answer in one sentence.").model(model))
        .tool(tool::function("temperature", "How warm it is in a city.", temperature))
        .build()?;

    let mut call = runtime.user("user").forward("guide", question);
    while let Some(event) = call.next_event().await {
        match event.kind {
            EventKind::ModelDelta { delta: Delta::Text(text) } => print!("{text}"),
            EventKind::ToolStart { call } => println!("→ {} {}", call.name, call.arguments),
            EventKind::ToolRefused { call, reason } => println!("✗ {} {}: {reason}", call.name, call.arguments),
            _ => {}
        }
    }
    println!("\n{}", call.await?);
    Ok(())
}
