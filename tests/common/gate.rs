//! A tool that never ends, and says when it begins and when it is dropped.

use std::sync::Arc;

use agentouto::{Arguments, BoxFuture, Content, Tool, ToolContext, ToolError, ToolSpec};
use serde_json::json;
use tokio::sync::mpsc;

/// A tool that says `started`, never ends, and says `dropped` when it is.
pub(crate) struct Gate(Say);

type Say = Arc<dyn Fn(&'static str) + Send + Sync>;

impl Gate {
    /// A gate that has said a thing when `say` has returned.
    pub(crate) fn new(say: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(say))
    }
}

/// A [`Gate`], and who hears what it says.
pub(crate) fn gate() -> (Gate, Keeper) {
    let (sender, events) = mpsc::unbounded_channel();
    let say = move |signal| {
        // A test that is over no longer hears.
        let _ = sender.send(signal);
    };
    (Gate::new(say), Keeper(events))
}

/// The test's end of a [`Gate`].
pub(crate) struct Keeper(mpsc::UnboundedReceiver<&'static str>);

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
