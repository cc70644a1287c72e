//! A tool that never ends, and says when it begins and when it is dropped.

use std::sync::Arc;

use agentouto::{Arguments, BoxFuture, Content, Tool, ToolContext, ToolError, ToolSpec};
use serde_json::json;
use tokio::sync::mpsc;

/// A tool that says `started`, never ends, and says `dropped` when it is.
pub(crate) struct PendingTool(Say);

type Say = Arc<dyn Fn(&'static str) + Send + Sync>;

impl PendingTool {
    /// A tool that has said a thing when `say` has returned.
    pub(crate) fn new(say: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(say))
    }
}

/// A [`PendingTool`], and the receiver of what it says.
pub(crate) fn pending_tool() -> (PendingTool, PendingToolEvents) {
    let (sender, events) = mpsc::unbounded_channel();
    let say = move |signal| {
        // A test that is over no longer hears.
        let _ = sender.send(signal);
    };
    (PendingTool::new(say), PendingToolEvents(events))
}

/// The test's end of a [`PendingTool`].
pub(crate) struct PendingToolEvents(mpsc::UnboundedReceiver<&'static str>);

impl PendingToolEvents {
    /// Waits for the next thing that the tool says.
    pub(crate) async fn next(&mut self) -> &'static str {
        self.0.recv().await.expect("the tool is there")
    }
}

impl Tool for PendingTool {
    fn spec(&self) -> ToolSpec {
        let parameters = json!({"type": "object", "properties": {}});
        ToolSpec { name: "gate".into(), description: "Waits.".into(), parameters }
    }

    fn call(&self, _: Arguments, _: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        Box::pin(async {
            let passing = Passing(Arc::clone(&self.0));
            (passing.0)("started");
            std::future::pending().await
        })
    }
}

struct Passing(Say);

impl Drop for Passing {
    fn drop(&mut self) {
        (self.0)("dropped");
    }
}
