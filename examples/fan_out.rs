//! One agent calls ten thousand at once: `cargo run --release --example fan_out -- 10000`

use std::time::{Duration, Instant};

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::{Agent, ChatMessage, Reply, Request, Runtime};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pages: usize = std::env::args().nth(1).map_or(Ok(10_000), |n| n.parse())?;
    let runtime = Runtime::builder()
        .provider("script", Scripted::computed(model))
        .agent(Agent::new("editor", "Have every page read at the same time, then say how many are good."))
        .agent(Agent::new("reader", "Say whether a page is good."))
        .build()?;
    let begun = Instant::now();
    let report = runtime.run("editor", pages.to_string()).await?;
    println!("{report} It took {:.2?}, though every page takes half a second.", begun.elapsed());
    Ok(())
}

/// What the models say. A reader takes half a second for its page.
fn model(request: &Request) -> ScriptedReply {
    let answers = request.context.messages().filter_map(|message| match message {
        ChatMessage::Tool { output, .. } => Some(&*output.content.text),
        _ => None,
    });
    match (&*request.agent.name, request.context.turns()) {
        ("editor", 0) => {
            let pages = request.context.input().parse().unwrap_or(0);
            (0..pages)
                .fold(Reply::default(), |reply, page| reply.and_call_agent("reader", &format!("page {page}")))
                .into()
        }
        ("editor", _) => {
            Reply::finish(&format!("{} pages are good.", answers.filter(|answer| *answer == "good").count())).into()
        }
        _ => ScriptedReply::from(Reply::finish("good")).after(Duration::from_millis(500)),
    }
}
