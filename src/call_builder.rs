//! A call with options that a [`Caller`] makes.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::answer_type::{self, Decode};
use crate::call_id::CallId;
use crate::caller::{CallAgent, Caller};
use crate::content::{Attachment, Content};
use crate::context::ChatMessage;
use crate::error::CallError;
use crate::message::Forward;
use crate::name::Name;
use crate::user::Call;

impl<T> Call<T> {
    /// Names the conversation that this call continues, for spans: `gen_ai.conversation.id` and `session.id`. Everything
    /// below the call has it too. Default: none. It has no effect once the call is sent.
    pub fn conversation(mut self, id: impl Into<Arc<str>>) -> Self {
        if let Some(forward) = self.forward_mut() {
            forward.run_mut().conversation = Some(id.into());
        }
        self
    }
}

impl Caller {
    /// Returns a call of `agent`, to set options and to await. Dropping it while it is awaited cancels the call, as with
    /// [`Caller::call_agent`].
    pub fn forward(&self, agent: impl Into<Name>, content: impl Into<Content>) -> CallBuilder {
        let forward = self.0.forward(agent.into(), content.into());
        CallBuilder { forward, caller: Arc::clone(&self.0), decode: answer_type::text }
    }
}

/// A call that a [`Caller`] is about to make. It is sent when it is awaited.
#[must_use = "a call does nothing unless it is awaited"]
pub struct CallBuilder<T = Arc<str>> {
    forward: Forward,
    caller: Arc<dyn CallAgent>,
    decode: Decode<T>,
}

impl<T> CallBuilder<T> {
    /// The id that the call will have.
    pub fn call_id(&self) -> CallId {
        self.forward.call_id
    }

    /// Sets the conversation before this call.
    pub fn history(mut self, history: impl Into<Arc<[ChatMessage]>>) -> Self {
        self.forward.history = history.into();
        self
    }

    /// Lends a value to everything below the call, see [`Call::with`](crate::Call::with).
    pub fn with<V: Send + Sync + 'static>(mut self, value: V) -> Self {
        self.forward.run_mut().lend(value);
        self
    }

    /// Names the conversation that the call continues, see [`Call::conversation`].
    pub fn conversation(mut self, id: impl Into<Arc<str>>) -> Self {
        self.forward.run_mut().conversation = Some(id.into());
        self
    }

    /// Returns the call with another output.
    pub(crate) fn decode_by<A>(self, decode: Decode<A>) -> CallBuilder<A> {
        CallBuilder { forward: self.forward, caller: self.caller, decode }
    }

    pub(crate) fn forward_mut(&mut self) -> &mut Forward {
        &mut self.forward
    }
}

impl<T: 'static> IntoFuture for CallBuilder<T> {
    type Output = Result<Answer<T>, CallError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { forward, caller, decode } = self;
        let (name, answer_type) = (Arc::clone(&forward.receiver), forward.answer_type.clone());
        let sending = caller.send(forward);
        Box::pin(async move {
            let Content { text, attachments } = sending.await?;
            let misfit = |problem: String| CallError::Misfit { name, problem: problem.into() };
            Ok(Answer { output: decode(answer_type.as_ref(), text).map_err(misfit)?, attachments })
        })
    }
}

impl<T> fmt::Debug for CallBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallBuilder").field("forward", &self.forward).finish_non_exhaustive()
    }
}

/// The answer to a call that a [`Caller`] made.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Answer<T = Arc<str>> {
    /// The text of the answer, or the value of the expected type.
    pub output: T,
    /// The images, sounds and documents of the answer.
    pub attachments: Vec<Attachment>,
}
