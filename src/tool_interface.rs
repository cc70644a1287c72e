//! The interface of a tool. Nothing here runs one.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::call_id::CallId;
use crate::caller::Caller;
use crate::content::Content;
use crate::event::EventKind;
use crate::name::Name;
use crate::run_context::RunContext;
use crate::tool_call::{Arguments, Progress, ToolCallId, ToolError, ToolSpec};

/// A tool that every agent's model can call.
///
/// Most tools are made by [`tool::function`](crate::tool::function) or [`tool::blocking`](crate::tool::blocking).
/// Implement the trait for a tool that needs its [`ToolContext`], attachments, or its own schema.
///
/// Each tool call is a tokio task of its own, unless the tool may [block](Blocking::Always). When the agent's call is
/// cancelled, the tool's future is dropped at the await where it waits, or else at its next await that has to wait or
/// where tokio's [cooperative budget] lets other tasks run. Its resources must be freed by `Drop` (a child process:
/// [`kill_on_drop`]). A panic becomes an error that the model reads. A tool that waits for something outside needs a
/// timeout of its own.
///
/// [cooperative budget]: https://docs.rs/tokio/latest/tokio/task/coop/index.html
/// [`kill_on_drop`]: https://docs.rs/tokio/latest/tokio/process/struct.Command.html#method.kill_on_drop
pub trait Tool: Send + Sync + 'static {
    /// Returns the description of the tool for models. Read once, when the tool is added.
    fn spec(&self) -> ToolSpec;

    /// Carries out one call.
    fn call(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>>;

    /// Checks the arguments of a call without carrying it out. A tool [around](crate::ToolExt::approved_by) this one
    /// that asks before it lets a call pass, asks about valid arguments only. Default: all are valid.
    ///
    /// # Errors
    ///
    /// What is wrong with them, for the model.
    fn check(&self, _arguments: &Arguments) -> Result<(), ToolError> {
        Ok(())
    }

    /// Checks that the caller may use the tool, without using it. A tool [around](crate::ToolExt) this one that answers
    /// without running it, or that asks before it does, calls this first. Default: every caller may.
    ///
    /// # Errors
    ///
    /// Why this caller may not, for the model.
    fn authorize(&self, _context: &ToolContext) -> Result<(), ToolError> {
        Ok(())
    }

    /// Returns whether the tool blocks its thread. Default: it does not.
    fn blocking(&self) -> Blocking {
        Blocking::Never
    }
}

/// The effect of a [`Tool`]'s future on the thread that polls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    /// The future only awaits. It is polled on the async threads.
    Never,
    /// The future computes or blocks. It is polled on threads of the runtime's own, at most
    /// [`RuntimeBuilder::blocking_threads`](crate::RuntimeBuilder::blocking_threads) at a time (default: 512). Further
    /// ones wait for their turn, and never begin if their call is cancelled before it comes.
    ///
    /// While the future waits at an await, it keeps no thread. When its call is cancelled, it is dropped at the await
    /// where it waits, or else at its next await that has to wait; tokio's cooperative budget does not apply here.
    /// Until then it cannot be interrupted; it is not waited for, and its result is dropped.
    ///
    /// The tool may call agents that use it in turn: by awaiting, to any depth; by `block_on`, as long as there are
    /// threads. A tool that waits for a call by `block_on` keeps its thread, and another thread takes its place, up to
    /// 10,000 in all. A tool for which there is no thread fails, with an error that the model reads.
    Always,
}

/// The context of one tool call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolContext {
    /// The id of the call that the agent serves.
    pub call_id: CallId,
    /// The agent that called the tool.
    pub agent: Name,
    /// The id of this tool call.
    pub tool_call_id: ToolCallId,
    /// The handle that calls agents in that agent's name.
    pub caller: Caller,
    /// The run that the call is a part of.
    pub run: Arc<RunContext>,
}

impl ToolContext {
    /// Returns the value of type `T` that the nearest caller above [lent](crate::Call::with), if any.
    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.run.get()
    }

    /// Reports the tool's progress to the observers of the call. Without observers it costs next to nothing.
    pub fn progress(&self, progress: Progress) {
        self.caller.0.emit(EventKind::ToolProgress { id: Arc::clone(&self.tool_call_id), progress });
    }
}
