//! The two sides of a call for code that is not an agent: [`Caller`] calls agents, [`Answerer`] answers them.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::content::Content;
use crate::error::CallError;
use crate::event::EventKind;
use crate::message::Forward;
use crate::name::Name;
use crate::tool_call::ToolError;

/// A handle that calls agents in the name of its holder: a tool, an actor that serves a [`Forward`], or a user.
///
/// The caller of a tool is valid as long as the tool call, that of an actor as long as the Forward. At its end, calls
/// that are still running are cancelled. A later call is not sent and fails with [`CallError::Cancelled`].
#[derive(Clone)]
pub struct Caller(pub(crate) Arc<dyn CallAgent>);

/// The implementation behind a [`Caller`].
pub(crate) trait CallAgent: Send + Sync {
    /// Returns the Forward of a call, with its id.
    fn forward(&self, agent: Name, content: Content) -> Forward;

    /// Sends a Forward when the future is first polled.
    fn send(&self, forward: Forward) -> BoxFuture<'static, Result<Content, CallError>>;

    /// Emits an event of a tool call to observers, if the caller is that of a tool.
    fn emit(&self, _: EventKind) {}

    /// Runs a tool's work on threads where it may block, if the caller is that of a tool.
    fn run_blocking(&self, work: ToolWork) -> ToolWork {
        work
    }
}

/// The work of a tool.
pub(crate) type ToolWork = BoxFuture<'static, Result<Content, ToolError>>;

impl Caller {
    /// Calls `agent` and returns its answer. It is a shorthand for [`Caller::forward`] without any option.
    ///
    /// The call is sent when the future is first polled, which must happen within a tokio runtime. From then on the
    /// callee runs on its own, whether or not the future is polled again. Dropping the future cancels the call and
    /// everything below it.
    ///
    /// # Errors
    ///
    /// The error of the [`Return`](crate::Return), see [`CallError`].
    pub fn call_agent(
        &self,
        agent: impl Into<Name>,
        content: impl Into<Content>,
    ) -> BoxFuture<'static, Result<Content, CallError>> {
        self.0.send(self.0.forward(agent.into(), content.into()))
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Caller")
    }
}

/// The code that answers the calls to a user, for example for a person at a terminal, a queue or a service.
///
/// Implemented for every async function of a [`Forward`]. When the call is cancelled, the future is dropped at its next
/// await; a panic becomes the error of that call. Several calls may be answered at the same time.
pub trait Answerer: Send + Sync + 'static {
    /// Answers one Forward.
    fn answer(&self, forward: Arc<Forward>) -> BoxFuture<'static, Result<Content, CallError>>;
}

impl<F, A, C> Answerer for F
where
    F: Fn(Arc<Forward>) -> A + Send + Sync + 'static,
    A: Future<Output = Result<C, CallError>> + Send + 'static,
    C: Into<Content>,
{
    fn answer(&self, forward: Arc<Forward>) -> BoxFuture<'static, Result<Content, CallError>> {
        let answering = self(forward);
        Box::pin(async move { answering.await.map(Into::into) })
    }
}
