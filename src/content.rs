//! Text with attachments. Pure.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use serde::{Deserialize, Serialize};

/// Text with attachments: the content of a [`Forward`](crate::Forward), of a [`Return`](crate::Return) and of a tool's
/// output.
///
/// An agent's answer has the text of its last reply and the attachments of all its replies, in order.
///
/// Made from a `&str`, `String` or `Arc<str>` by `into()`; displayed as its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The text, which may be empty.
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

/// An image, a sound or a document that belongs to a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The kind. It decides the form in which a provider sends the attachment.
    pub kind: AttachmentKind,
    /// The bytes, or the URL where they are.
    pub source: AttachmentSource,
    /// A file name, for providers that show one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
}

impl Attachment {
    /// An attachment whose bytes are part of the message. They are encoded as base64 once, here.
    #[must_use]
    pub fn inline(kind: AttachmentKind, media_type: &str, bytes: &[u8]) -> Self {
        Self::encoded(kind, media_type, &base64::engine::general_purpose::STANDARD.encode(bytes))
    }

    /// An attachment whose bytes are part of the message and are base64 already.
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

/// The kind of an [`Attachment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachmentKind {
    /// A picture, such as `image/png`.
    Image,
    /// A sound, such as `audio/wav`.
    Audio,
    /// A document, such as `application/pdf`.
    Document,
}

/// The source of an [`Attachment`]'s bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum AttachmentSource {
    /// The bytes are part of the message.
    Inline {
        /// The media type ([RFC 2046](https://www.rfc-editor.org/rfc/rfc2046)), such as `image/png`.
        media_type: Arc<str>,
        /// The bytes in standard base64 with padding ([RFC 4648, section 4](https://www.rfc-editor.org/rfc/rfc4648#section-4)).
        base64: Arc<str>,
    },
    /// The provider fetches the bytes from a URL.
    Url {
        /// The URL, which the provider must be able to reach.
        url: Arc<str>,
    },
}
