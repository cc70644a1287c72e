//! A limit of the calls of a tool that run at the same time: [`ConcurrencyLimit`].

use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::caller::{CallAgent, Caller, ToolWork};
use crate::content::Content;
use crate::error::CallError;
use crate::event::EventKind;
use crate::message::Forward;
use crate::name::Name;
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
            let place = Arc::new(Arc::clone(&self.places).acquire_owned().await?);
            let caller = PlacedCaller { caller: context.caller.clone(), place: Arc::downgrade(&place) };
            let context = ToolContext { caller: Caller(Arc::new(caller)), ..context };
            self.inner.call(arguments, context).await
        })
    }
}

/// The caller of a tool that has a place. Work that blocks keeps the place until it has ended, at any depth of
/// wrappers: a wrapper inside may have dropped its future before.
struct PlacedCaller {
    caller: Caller,
    place: Weak<OwnedSemaphorePermit>,
}

impl CallAgent for PlacedCaller {
    fn forward(&self, agent: Name, content: Content) -> Forward {
        self.caller.0.forward(agent, content)
    }

    fn send(&self, forward: Forward) -> BoxFuture<'static, Result<Content, CallError>> {
        self.caller.0.send(forward)
    }

    fn emit(&self, kind: EventKind) {
        self.caller.0.emit(kind);
    }

    fn run_blocking(&self, work: ToolWork) -> ToolWork {
        let place = self.place.upgrade();
        let work = async move {
            let _place = place;
            work.await
        };
        self.caller.0.run_blocking(Box::pin(work))
    }
}
