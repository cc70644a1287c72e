//! A ractor actor that agents call, and that calls an agent itself, in a cycle: `cargo run --example actor_peer`
//!
//! The actor serves while it waits. Were it to await the clerk in its handler, both would wait: the clerk asks back.

use agentouto::providers::scripted::Scripted;
use agentouto::{Agent, CallError, Incoming, Reply, Runtime};
use ractor::{Actor, ActorProcessingErr, ActorRef};

/// A stock of parts. Its other messages have nothing to do with agents.
struct Stock;

enum StockMessage {
    Delivered(u32),
    Asked(Incoming),
}

/// All that it takes to be a peer.
impl From<Incoming> for StockMessage {
    fn from(incoming: Incoming) -> Self {
        Self::Asked(incoming)
    }
}

impl Actor for Stock {
    type Msg = StockMessage;
    type State = u32;
    type Arguments = u32;

    async fn pre_start(&self, _: ActorRef<StockMessage>, parts: u32) -> Result<u32, ActorProcessingErr> {
        Ok(parts)
    }

    async fn handle(
        &self,
        _: ActorRef<StockMessage>,
        message: StockMessage,
        parts: &mut u32,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            StockMessage::Delivered(more) => *parts += more,
            StockMessage::Asked(Incoming { forward, reply, .. }) if &*forward.sender == "clerk" => {
                reply.send(Ok::<_, CallError>(format!("{parts}, counted just now.")));
            }
            StockMessage::Asked(Incoming { caller, reply, .. }) => {
                // What the answer needs of the state is read here. The task ends when the call is answered or cancelled.
                let request = format!("Say politely: {parts} parts are left.");
                tokio::spawn(async move { reply.send(caller.call_agent("clerk", request).await) });
            }
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (stock, stopped) = Stock::spawn(None, Stock, 30).await?;
    stock.cast(StockMessage::Delivered(12))?;
    let script = Scripted::new()
        .replies(
            "planner",
            [Reply::call_agent("stock", "How many parts are left?"), Reply::finish("Enough for a week.")],
        )
        .replies(
            "clerk",
            [
                Reply::call_agent("stock", "How many exactly?"),
                Reply::finish("We are pleased to say that 42 parts are left."),
            ],
        );
    let runtime = Runtime::builder()
        .provider("script", script)
        .agent(Agent::new("planner", "Plan the week's production."))
        .agent(Agent::new("clerk", "Put facts into polite words."))
        .actor("stock", "Knows how many parts are left.", stock.clone())
        .build()?;
    let report = runtime.run("planner", "Can we produce this week?").await?;
    report.log.messages().for_each(|message| println!("{message}"));
    stock.stop(None);
    Ok(stopped.await?)
}
