//! What the tests have in common: agents on a script, and a tool that a test holds by a string.

use std::sync::Arc;

use agentouto::providers::scripted::Scripted;
use agentouto::{
    Agent, Arguments, BoxFuture, Content, Log, Runtime, RuntimeBuilder, Tool, ToolContext, ToolError, ToolSpec,
};
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};

/// Agents of these names, whose model is `fake`.
pub fn team<const N: usize>(model: Scripted, agents: [&str; N]) -> RuntimeBuilder {
    let agents = agents.map(|name| Agent::new(name, format!("{name} instructions.")));
    Runtime::builder().provider("fake", model).agents(agents)
}

/// The messages of a run, one line each.
pub fn path(log: &Log) -> Vec<String> {
    log.messages().map(|message| message.to_string()).collect()
}

/// A tool that says when it has started, then waits until it is let go, and says when it is dropped.
pub struct Gate {
    events: mpsc::UnboundedSender<&'static str>,
    open: Arc<Semaphore>,
}

/// The test's end of a [`Gate`].
pub struct Keeper {
    events: mpsc::UnboundedReceiver<&'static str>,
    open: Arc<Semaphore>,
}

pub fn gate() -> (Gate, Keeper) {
    let (sender, events) = mpsc::unbounded_channel();
    let open = Arc::new(Semaphore::new(0));
    (Gate { events: sender, open: Arc::clone(&open) }, Keeper { events, open })
}

impl Keeper {
    /// Waits for the next thing that happens at the gate: `started`, `let go` or `dropped`.
    pub async fn next(&mut self) -> &'static str {
        self.events.recv().await.expect("the gate is there")
    }

    pub fn let_go(&self) {
        self.open.add_permits(1);
    }
}

impl Tool for Gate {
    fn spec(&self) -> ToolSpec {
        let parameters = json!({"type": "object", "properties": {}});
        ToolSpec { name: "gate".into(), description: "Waits.".into(), parameters }
    }

    fn call(&self, _: Arguments, _: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        Box::pin(async {
            let mut passing = Passing { events: self.events.clone(), says: "dropped" };
            let _ = self.events.send("started");
            let _permit = self.open.acquire().await?;
            passing.says = "let go";
            Ok("open".into())
        })
    }
}

struct Passing {
    events: mpsc::UnboundedSender<&'static str>,
    says: &'static str,
}

impl Drop for Passing {
    fn drop(&mut self) {
        let _ = self.events.send(self.says);
    }
}
