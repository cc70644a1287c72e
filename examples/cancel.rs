//! A budget: the caller watches the events and cancels the call when it has cost enough: `cargo run --example cancel`
//!
//! The runtime itself limits nothing. Whoever calls may cancel, and everything below ends.

use agentouto::providers::scripted::Scripted;
use agentouto::{Agent, EventKind, Reply, Request, Runtime};

const BUDGET: u64 = 10_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // An agent that never comes to an end: it always calls itself twice more.
    let spendthrift = |request: &Request| {
        let deeper = format!("{}.", request.context.input());
        Reply::call_agent("dreamer", &deeper).and_call_agent("dreamer", &deeper).usage(400, 20)
    };
    let runtime = Runtime::builder()
        .provider("script", Scripted::computed(spendthrift))
        .agent(Agent::new("dreamer", "Think about it, and then about that."))
        .build()?;

    let mut call = runtime.user("user").forward("dreamer", "life");
    let mut spent = 0;
    while let Some(event) = call.next_event().await {
        if let EventKind::ModelReply { usage: Some(usage), .. } = event.kind {
            spent += usage.input_tokens + usage.output_tokens;
        }
        if spent > BUDGET {
            call.cancel();
            break;
        }
    }
    let Err(error) = call.await else { return Err("it cannot have come to an end".into()) };
    println!(
        "{error} after {spent} tokens; {} calls had been made, {} are alive",
        error.log.tree().calls().len(),
        runtime.invocations()
    );
    Ok(())
}
