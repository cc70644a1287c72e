//! The two messages: Forward and Return.
//!
//! A [`Forward`] goes from a caller to a callee. A [`Return`] goes from the callee back to that caller and to no other
//! peer. There is no third message. Nothing here waits or fails.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::call_id::CallId;
use crate::content::Content;
use crate::context::ChatMessage;
use crate::error::CallError;
use crate::name::Name;

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
}

impl Forward {
    /// A Forward without a history.
    pub(crate) fn new(
        call_id: CallId,
        parent: Option<CallId>,
        sender: &Name,
        receiver: Name,
        content: Content,
    ) -> Self {
        Self { call_id, parent, sender: Arc::clone(sender), receiver, content, history: Arc::default() }
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
        let forward = Forward {
            call_id: CallId::seeded(1)(),
            parent: None,
            sender: "user".into(),
            receiver: "작가✍️".into(),
            content: Content::from("look").attach(Attachment::inline(AttachmentKind::Image, "image/png", b"\x89PNG")),
            history: Arc::default(),
        };
        let wire = serde_json::to_string(&forward).unwrap();
        assert_eq!(serde_json::from_str::<Forward>(&wire).unwrap(), forward);
    }
}
