//! The two messages: Forward and Return.
//!
//! A [`Forward`] goes from a caller to a callee. A [`Return`] goes from the callee back to that caller and to no other
//! peer. There is no third message. Nothing here waits or fails.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::answer_type::AnswerType;
use crate::call_id::CallId;
use crate::content::Content;
use crate::context::ChatMessage;
use crate::error::CallError;
use crate::name::Name;
use crate::run_context::RunContext;
#[cfg(feature = "otel")]
use crate::trace_place::TracePlace;

/// The message from a caller to a callee that begins a call.
///
/// One Forward has exactly one outcome, the [`Return`] with the same [`CallId`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forward {
    /// The id of this call; the [`Return`] carries it too.
    pub call_id: CallId,
    /// The id of the call on whose behalf the sender makes this call; `None` when a user makes it.
    pub parent: Option<CallId>,
    /// The caller's name.
    pub sender: Name,
    /// The callee's name.
    pub receiver: Name,
    /// The request to the callee, verbatim.
    pub content: Content,
    /// The conversation before this call. The callee's model reads it ahead of `content`. Shared, never copied.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub history: Arc<[ChatMessage]>,
    /// The type of answer that the sender expects. Default: any text. Serialised as a JSON Schema, and not read back.
    #[serde(default, skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub answer_type: Option<AnswerType>,
    /// The number of calls above this one: 0 for a call that a user makes.
    pub depth: usize,
    /// The run that the call is a part of.
    pub run: Arc<RunContext>,
    /// The place of the call in a distributed trace.
    #[cfg(feature = "otel")]
    #[serde(skip)]
    pub(crate) place: TracePlace,
}

impl Forward {
    /// The Forward with which a user begins a run.
    pub(crate) fn of_user(call_id: CallId, user: &Name, receiver: Name, content: Content) -> Self {
        let run = Arc::new(RunContext::new(call_id, user));
        let (sender, history) = (Arc::clone(user), Arc::default());
        Self {
            call_id,
            parent: None,
            sender,
            receiver,
            content,
            history,
            answer_type: None,
            depth: 0,
            run,
            #[cfg(feature = "otel")]
            place: TracePlace::default(),
        }
    }

    /// A Forward on behalf of the call that this one began.
    pub(crate) fn below(&self, call_id: CallId, receiver: Name, content: Content) -> Self {
        Self {
            call_id,
            parent: Some(self.call_id),
            sender: Arc::clone(&self.receiver),
            receiver,
            content,
            history: Arc::default(),
            answer_type: None,
            depth: self.depth + 1,
            run: Arc::clone(&self.run),
            #[cfg(feature = "otel")]
            place: self.place.clone(),
        }
    }

    /// The run, to change it for this call and everything below it.
    pub(crate) fn run_mut(&mut self) -> &mut RunContext {
        Arc::make_mut(&mut self.run)
    }

    /// Returns an answer to this Forward, if it is of the type that the sender expects.
    pub(crate) fn fit(&self, answer: Content) -> Result<Content, CallError> {
        let Some(answer_type) = &self.answer_type else { return Ok(answer) };
        match answer_type.0.of_text(&answer.text) {
            Ok(text) => Ok(Content { text, ..answer }),
            Err(problem) => Err(self.misfit(problem)),
        }
    }

    /// The error of an answer to this Forward that is not of the expected type.
    pub(crate) fn misfit(&self, problem: String) -> CallError {
        CallError::Misfit { name: Arc::clone(&self.receiver), problem: problem.into() }
    }

    /// The Return that answers this Forward.
    pub(crate) fn return_with(&self, result: Result<Content, CallError>) -> Return {
        Return {
            call_id: self.call_id,
            parent: self.parent,
            sender: Arc::clone(&self.receiver),
            receiver: Arc::clone(&self.sender),
            result,
        }
    }
}

/// The message from a callee to its caller that ends a call: the one answer to a [`Forward`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Return {
    /// The id of the call that this message ends.
    pub call_id: CallId,
    /// The parent of the call, as in the [`Forward`].
    pub parent: Option<CallId>,
    /// The callee's name.
    pub sender: Name,
    /// The caller's name.
    pub receiver: Name,
    /// The answer, or the error.
    pub result: Result<Content, CallError>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{Attachment, AttachmentKind};

    #[test]
    fn a_forward_survives_serialisation() {
        let image = Attachment::inline(AttachmentKind::Image, "image/png", b"\x89PNG");
        let content = Content::from("look").attach(image);
        let forward = Forward::of_user(CallId::seeded(1)(), &"user".into(), "작가✍️".into(), content);
        let wire = serde_json::to_string(&forward).unwrap();
        assert_eq!(serde_json::from_str::<Forward>(&wire).unwrap(), forward);
    }
}
