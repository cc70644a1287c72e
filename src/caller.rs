//! The two sides of a call for code that is no agent: [`Caller`] calls agents, [`Answerer`] answers them.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::content::Content;
use crate::error::CallError;
use crate::message::Forward;
use crate::name::Name;
use crate::tool_call::{Progress, ToolCallId, ToolError};

/// A handle that calls agents in the name of its holder: a tool, an actor that serves a [`Forward`], or a user.
///
/// That of a tool or an actor lasts as long as the tool call or the Forward that it was given for. Calls that are still
/// under way then are cancelled; a later one is not sent, and fails with [`CallError::Cancelled`].
#[derive(Clone)]
pub struct Caller(pub(crate) Arc<dyn CallAgent>);

/// The way in which a [`Caller`] calls.
pub(crate) trait CallAgent: Send + Sync {
    fn call_agent(&self, agent: Name, content: Content) -> BoxFuture<'static, Result<Content, CallError>>;

    /// Shows how far a tool has come, if it is one that calls.
    fn progress(&self, _: &ToolCallId, _: Progress) {}

    /// Runs a tool's work on threads that it may block.
    fn run_blocking(
        &self,
        work: BoxFuture<'static, Result<Content, ToolError>>,
    ) -> BoxFuture<'static, Result<Content, ToolError>>;
}

impl Caller {
    /// Calls `agent` and gives its answer.
    ///
    /// Nothing is sent before the future is first polled, which must be within a tokio runtime. From then on the callee
    /// works by itself, whether or not the future is polled again. Dropping the future cancels the call and everything
    /// below it.
    ///
    /// # Errors
    ///
    /// The error of the [`Return`](crate::Return), see [`CallError`].
    pub fn call_agent(
        &self,
        agent: impl Into<Name>,
        content: impl Into<Content>,
    ) -> BoxFuture<'static, Result<Content, CallError>> {
        self.0.call_agent(agent.into(), content.into())
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Caller")
    }
}

/// The answers of a user that can be called: a person at a terminal, a queue, a service.
///
/// Made from an async function of the [`Forward`] as well. Its future is dropped at its next await when the
/// call is cancelled; a panic becomes the error of that call. Several calls may be answered at once.
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
