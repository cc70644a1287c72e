//! A tool that never ends, and says when it begins and when it is dropped.

use agentouto::{Arguments, BoxFuture, Content, Tool, ToolContext, ToolError, ToolSpec};
use serde_json::json;
use tokio::sync::mpsc;

/// A tool that says `started`, never ends, and says `dropped` when it is.
pub(crate) struct Gate(mpsc::UnboundedSender<&'static str>);

/// A [`Gate`], and what it says.
pub(crate) fn gate() -> (Gate, Keeper) {
    let (sender, events) = mpsc::unbounded_channel();
    (Gate(sender), Keeper(events))
}

/// The test's end of a [`Gate`].
pub(crate) struct Keeper(pub(crate) mpsc::UnboundedReceiver<&'static str>);

impl Keeper {
    /// Waits for the next thing that the gate says.
    pub(crate) async fn next(&mut self) -> &'static str {
        self.0.recv().await.expect("the gate is there")
    }
}

impl Tool for Gate {
    fn spec(&self) -> ToolSpec {
        let parameters = json!({"type": "object", "properties": {}});
        ToolSpec { name: "gate".into(), description: "Waits.".into(), parameters }
    }

    fn call(&self, _: Arguments, _: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        Box::pin(async {
            let _passing = Passing(self.0.clone());
            let _ = self.0.send("started");
            std::future::pending().await
        })
    }
}

struct Passing(mpsc::UnboundedSender<&'static str>);

impl Drop for Passing {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}
