//! The two messages.
//!
//! A [`Forward`] goes from a caller to a callee, a [`Return`] from the callee back to that caller and
//! to nobody else. There is no third message. Nothing here waits or fails.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::call_id::CallId;
use crate::content::Content;
use crate::context::ChatMessage;
use crate::error::CallError;
use crate::name::Name;

/// Sent by a caller to a callee: please work on this.
///
/// One Forward has exactly one outcome, the [`Return`] with the same [`CallId`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forward {
    /// The id of this call; the [`Return`] carries it too.
    pub call_id: CallId,
    /// The call on whose behalf the sender sends this; `None` when a user began it.
    pub parent: Option<CallId>,
    /// Who calls.
    pub sender: Name,
    /// Who is called.
    pub receiver: Name,
    /// What the callee is asked, verbatim.
    pub content: Content,
    /// What was said before, shown to the callee ahead of `content`. Shared, never copied.
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

    /// The Return that answers this.
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

/// Sent by a callee to its caller: the one answer to a [`Forward`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Return {
    /// The id of the call that this ends.
    pub call_id: CallId,
    /// The same as in the [`Forward`].
    pub parent: Option<CallId>,
    /// Who was called.
    pub sender: Name,
    /// Who called.
    pub receiver: Name,
    /// The answer, or why there is none.
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
