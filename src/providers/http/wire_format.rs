//! The trait that every wire format implements.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::client::ResponseMode;
use super::encode::{MessageList, RequestFields};
use super::error_body::ErrorBody;
use super::reply_builder::ReplyBuilder;
use super::sse::Event;
use crate::provider::Request;

/// A wire format: encodes requests and gives their URL. Its [`Decoder`] reads the responses.
pub trait WireFormat: Send + Sync + 'static {
    /// The vendor of the format, with the defaults of its servers.
    const VENDOR: Vendor;
    /// The name of the body's list that grows from turn to turn.
    const MESSAGES: &'static str;
    /// The decoder of the responses.
    type Decoder: Decoder;
    /// The variants of the format that servers speak.
    type Profile: Copy + Default + PartialEq + Send + Sync + 'static;

    /// The profile of the server at an address.
    fn profile(_address: &str) -> Self::Profile {
        Self::Profile::default()
    }

    /// Returns whether the models there support function calling; `None` if the profile does not say.
    fn function_calling(_profile: Self::Profile) -> Option<bool> {
        None
    }

    /// The URL of a request for `model` on the server at `address`.
    fn url(address: &str, model: &str, expect: ResponseMode) -> String;

    /// Writes all fields of the body except the messages.
    fn fields(
        request: &Request,
        expect: ResponseMode,
        profile: Self::Profile,
        fields: &mut RequestFields<'_>,
    ) -> serde_json::Result<()>;

    /// Writes the context's messages, skipping the first `encoded`, which an earlier body contains already. With
    /// `encoded == 0`, a format whose system prompt is a message writes it first.
    fn messages(
        request: &Request,
        encoded: usize,
        profile: Self::Profile,
        list: &mut MessageList<'_>,
    ) -> serde_json::Result<()>;

    /// The mark that the last message gets, so that the server caches the body up to its end; `None` if the format has
    /// no such mark, or it is not wanted.
    fn cache_mark(_request: &Request, _profile: Self::Profile) -> Option<CacheMark> {
        None
    }
}

/// A mark within a message, up to which the server caches the body.
#[derive(Clone, Copy, Debug)]
pub struct CacheMark {
    pub(crate) text: &'static str,
    /// The text of the message after the mark.
    pub(crate) end: &'static str,
}

/// The defaults of a vendor's servers.
#[derive(Clone, Copy, Debug)]
pub struct Vendor {
    /// The name of its provider type.
    pub(crate) name: &'static str,
    /// The default base URL.
    pub(crate) address: &'static str,
    /// The header that carries the key.
    pub(crate) key_header: &'static str,
    /// The text before the key, such as `Bearer `.
    pub(crate) key_prefix: &'static str,
    /// Further headers.
    pub(crate) headers: &'static [(&'static str, &'static str)],
    /// The environment variables that may hold the key; the first one that is set is used.
    pub(crate) key_variables: &'static [&'static str],
    /// The environment variable that may hold another base URL.
    pub(crate) address_variable: &'static str,
}

/// Reads one response into a [`ReplyBuilder`].
pub trait Decoder: Default + Send {
    /// Reads a complete response.
    fn whole(&mut self, body: &[u8], builder: &mut ReplyBuilder<'_, '_>) -> Result<(), DecodeError>;

    /// Reads one event of a streamed response.
    fn event(&mut self, event: Event<'_>, builder: &mut ReplyBuilder<'_, '_>) -> Result<Decoded, DecodeError>;

    /// The data of this reply that the server needs back in later requests, if any.
    fn opaque(self) -> Option<serde_json::Value>;
}

/// The result of reading one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// More events may follow.
    More,
    /// More events may follow; the type of this one is unknown.
    Unknown,
    /// This was the last event.
    Last,
}

/// The reason why a response cannot be decoded.
#[derive(Debug)]
pub enum DecodeError {
    /// The response does not match the format.
    Unreadable(serde_json::Error),
    /// The response says that the request failed.
    Reported(ErrorBody),
}

impl From<serde_json::Error> for DecodeError {
    fn from(error: serde_json::Error) -> Self {
        Self::Unreadable(error)
    }
}

/// A JSON string, borrowed if it has no escapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Str<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

impl std::ops::Deref for Str<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// The text as an owned string; empty if there is none.
pub(crate) fn owned(text: Option<Str<'_>>) -> String {
    text.map_or_else(String::new, |text| text.0.into_owned())
}

/// Reads an optional field; a value of an unexpected form counts as missing.
pub(crate) fn lenient<'de, D: Deserializer<'de>, T: Deserialize<'de>>(field: D) -> Result<Option<T>, D::Error> {
    let raw = <&RawValue>::deserialize(field)?;
    Ok(serde_json::from_str::<Option<T>>(raw.get()).ok().flatten())
}

/// An optional item of a list; a value of an unexpected form counts as missing.
#[derive(Debug)]
pub(crate) struct Lenient<T>(pub(crate) Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(item: D) -> Result<Self, D::Error> {
        lenient(item).map(Self)
    }
}

/// An index in a list. Some servers write it as text; any other form counts as missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Lenient<serde_json::Value>")]
pub(crate) struct Index(pub(crate) Option<u64>);

impl From<Lenient<serde_json::Value>> for Index {
    fn from(value: Lenient<serde_json::Value>) -> Self {
        let value = value.0.unwrap_or_default();
        Self(value.as_u64().or_else(|| value.as_str()?.trim().parse().ok()))
    }
}

/// The error that a server reports in a response. Some send an empty one with a successful response, which is ignored.
pub(crate) fn error_in(error: Option<serde_json::Value>) -> Option<serde_json::Value> {
    use serde_json::Value;
    error.filter(|error| match error {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    })
}

/// A number of tokens. Some servers write it with a fraction; any other form counts as missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Lenient<serde_json::Value>")]
pub(crate) struct Tokens(pub(crate) Option<u64>);

impl From<Lenient<serde_json::Value>> for Tokens {
    fn from(value: Lenient<serde_json::Value>) -> Self {
        let value = value.0.unwrap_or_default();
        let rounded = || value.as_f64().filter(|number| *number >= 0.0).map(|number| number as u64);
        Self(value.as_u64().or_else(rounded))
    }
}

impl Tokens {
    /// The number, or 0.
    pub(crate) fn count(self) -> u64 {
        self.0.unwrap_or(0)
    }
}
