//! A time limit for the calls of a tool: [`Timeout`].

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::content::Content;
use crate::tool_call::{Arguments, ToolError};
use crate::tool_interface::{Tool, ToolContext};
use crate::tools::wrapper::{InnerTool, ToolWrapper};

/// A tool whose calls end after a time, see [`ToolExt::timeout`](crate::ToolExt::timeout).
#[derive(Clone, Debug)]
pub struct Timeout {
    inner: InnerTool,
    limit: Duration,
}

impl Timeout {
    pub(super) fn new(tool: impl Tool, limit: Duration) -> Self {
        Self { inner: InnerTool::new(tool), limit }
    }
}

impl ToolWrapper for Timeout {
    fn inner(&self) -> &InnerTool {
        &self.inner
    }

    fn run(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        Box::pin(async move {
            let running = self.inner.call(arguments, context);
            tokio::time::timeout(self.limit, running).await.unwrap_or_else(|_| Err(ToolError::timeout(self.limit)))
        })
    }
}
