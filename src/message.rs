//! The two messages, and what they carry.
//!
//! A [`Forward`] goes from a caller to a callee, a [`Return`] from the callee back to that caller and
//! to nobody else. There is no third message. Nothing here waits or fails.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::context::ChatMessage;
use crate::error::CallError;
use crate::tool::{Progress, ToolCallId, ToolError};

/// The name of an agent, an actor, a user, a tool or a provider. Cheap to clone; compared exactly.
pub type Name = Arc<str>;

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

/// Text with attachments: what a [`Forward`] asks, a [`Return`] answers and a tool gives back.
///
/// The answer of an agent has the text of its last reply and the attachments of all of them, in order.
///
/// Made from a `&str`, `String` or `Arc<str>` by `into()`; shown as its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The text; may be empty.
    pub text: Arc<str>,
    /// Images, audio and documents that belong to the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
}

impl Content {
    /// The same content with one more attachment.
    #[must_use]
    pub fn attach(mut self, attachment: Attachment) -> Self {
        self.attachments.push(attachment);
        self
    }
}

impl<T: Into<Arc<str>>> From<T> for Content {
    fn from(text: T) -> Self {
        Self { text: text.into(), attachments: Vec::new() }
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// An image, a sound or a document that travels with a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// What kind of thing it is; a provider chooses the wire form by it.
    pub kind: AttachmentKind,
    /// Where its bytes are.
    pub source: AttachmentSource,
    /// A file name, for providers that show one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
}

impl Attachment {
    /// An attachment whose bytes travel in the message. They are encoded once, here.
    #[must_use]
    pub fn inline(kind: AttachmentKind, media_type: &str, bytes: &[u8]) -> Self {
        Self::encoded(kind, media_type, &base64::engine::general_purpose::STANDARD.encode(bytes))
    }

    /// The same for bytes that are base64 already.
    #[must_use]
    pub fn encoded(kind: AttachmentKind, media_type: &str, base64: &str) -> Self {
        Self {
            kind,
            source: AttachmentSource::Inline { media_type: media_type.into(), base64: base64.into() },
            name: None,
        }
    }

    /// An attachment that the provider fetches itself.
    #[must_use]
    pub fn url(kind: AttachmentKind, url: &str) -> Self {
        Self { kind, source: AttachmentSource::Url { url: url.into() }, name: None }
    }

    /// The same attachment with a file name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }
}

/// What an [`Attachment`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachmentKind {
    /// A picture, such as `image/png`.
    Image,
    /// A sound, such as `audio/wav`.
    Audio,
    /// Anything to be read, such as `application/pdf`.
    Document,
}

/// Where the bytes of an [`Attachment`] are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum AttachmentSource {
    /// Here.
    Inline {
        /// The media type ([RFC 2046](https://www.rfc-editor.org/rfc/rfc2046)), such as `image/png`.
        media_type: Arc<str>,
        /// The bytes in standard base64 with padding ([RFC 4648, section 4](https://www.rfc-editor.org/rfc/rfc4648#section-4)).
        base64: Arc<str>,
    },
    /// At an address that the provider can reach.
    Url {
        /// The address.
        url: Arc<str>,
    },
}

/// Names one call: a [`Forward`] and its [`Return`]. Shown as a UUID.
///
/// The id of a call that a user begins is drawn from the runtime's source (random, unless
/// [`RuntimeBuilder::call_ids`](crate::RuntimeBuilder::call_ids) says otherwise). Every other id follows from its
/// parent's id and its place among the parent's calls. For calls that a model makes, that is their place in its
/// replies: a run whose first id is given repeats them, in whatever order the calls happen to start. A tool or an
/// actor draws the ids of its calls in the order in which it makes them. They repeat as far as that order does, which
/// is not given for calls that are made at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(Uuid);

impl CallId {
    /// A random id (UUID version 4).
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// A source of ids that repeats for the same seed, in the order in which they are drawn.
    ///
    /// ```
    /// use agentouto::CallId;
    ///
    /// let mut first = CallId::seeded(7);
    /// let mut again = CallId::seeded(7);
    /// assert_eq!([first(), first()], [again(), again()]);
    /// ```
    pub fn seeded(seed: u64) -> impl FnMut() -> Self + Send + 'static {
        let root = Self(Uuid::from_u64_pair(seed, !seed));
        let mut drawn = 0;
        move || {
            drawn += 1;
            root.child(drawn)
        }
    }

    /// The id of the `nth` thing that this call does (UUID version 8).
    #[must_use]
    pub(crate) fn child(self, nth: u64) -> Self {
        let (high, low) = self.0.as_u64_pair();
        let high = mix(high ^ mix(low ^ nth.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        let low = mix(low.wrapping_add(nth) ^ high.rotate_left(32));
        Self(Uuid::new_v8(Uuid::from_u64_pair(high, low).into_bytes()))
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every bit of the input stirs every bit of the output.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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
    /// The error of the [`Return`], see [`CallError`].
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn children_of_one_call_and_of_its_children_never_share_an_id() {
        let root = CallId::seeded(1)();
        let mut seen = HashSet::from([root]);
        for nth in 0..1_000 {
            let child = root.child(nth);
            assert!(seen.insert(child), "child {nth}");
            for deeper in 0..10 {
                assert!(seen.insert(child.child(deeper)), "child {nth}.{deeper}");
            }
        }
    }

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
