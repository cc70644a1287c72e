//! A limit of the calls of a tool that run at the same time: [`ConcurrencyLimit`].

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use crate::content::Content;
use crate::tool_call::{Arguments, ToolError};
use crate::tool_interface::{Tool, ToolContext};
use crate::tools::wrapper::{InnerTool, ToolWrapper};

/// A tool of which only some calls run at the same time, see [`ToolExt::at_most`](crate::ToolExt::at_most). A clone has
/// the same places.
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit {
    inner: InnerTool,
    /// Fair: who waits first is served first.
    places: Arc<Semaphore>,
}

impl ConcurrencyLimit {
    pub(super) fn new(tool: impl Tool, calls: usize) -> Self {
        let places = Arc::new(Semaphore::new(calls.clamp(1, Semaphore::MAX_PERMITS)));
        Self { inner: InnerTool::new(tool), places }
    }
}

impl ToolWrapper for ConcurrencyLimit {
    fn inner(&self) -> &InnerTool {
        &self.inner
    }

    fn run(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        Box::pin(async move {
            let place = Arc::clone(&self.places).acquire_owned().await?;
            self.inner.call_with(place, arguments, context).await
        })
    }
}
