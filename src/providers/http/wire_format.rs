//! What sets one wire format apart from the others. All formats are siblings of this shape.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::client::ResponseMode;
use super::encode::{MessageList, RequestFields};
use super::error_body::ErrorBody;
use super::reply_builder::ReplyBuilder;
use super::sse::Event;
use crate::provider::Request;

/// A wire format: how a request is written, and where it goes. How a reply is read is its [`Decoder`].
pub trait WireFormat: Send + Sync + 'static {
    /// Who made it, and how its servers are reached by default.
    const VENDOR: Vendor;
    /// The name of the list in the body that grows from turn to turn.
    const MESSAGES: &'static str;
    /// Reads the answers.
    type Decoder: Decoder;
    /// The ways in which servers differ that speak it.
    type Profile: Copy + Default + Send + Sync + 'static;

    /// The profile of the server at an address.
    fn profile(_address: &str) -> Self::Profile {
        Self::Profile::default()
    }

    /// Whether models there can call functions, if the profile says so.
    fn function_calling(_profile: Self::Profile) -> Option<bool> {
        None
    }

    /// Where a request for `model` goes on the server at `address`.
    fn url(address: &str, model: &str, expect: ResponseMode) -> String;

    /// Writes all fields of the body but the messages.
    fn fields(
        request: &Request,
        expect: ResponseMode,
        profile: Self::Profile,
        fields: &mut RequestFields<'_>,
    ) -> serde_json::Result<()>;

    /// Writes the messages behind the first `encoded` of the context; none of them if `encoded` is 0, which is the place
    /// for a system prompt among them.
    fn messages(
        request: &Request,
        encoded: usize,
        profile: Self::Profile,
        list: &mut MessageList<'_>,
    ) -> serde_json::Result<()>;
}

/// How a vendor's servers are reached.
#[derive(Clone, Copy, Debug)]
pub struct Vendor {
    /// What its provider is called.
    pub(crate) name: &'static str,
    /// Where its servers are.
    pub(crate) address: &'static str,
    /// The header that carries the key.
    pub(crate) key_header: &'static str,
    /// What stands before the key, such as `Bearer `.
    pub(crate) key_prefix: &'static str,
    /// Further headers.
    pub(crate) headers: &'static [(&'static str, &'static str)],
    /// The environment variables that may hold the key; the first that is set does.
    pub(crate) key_variables: &'static [&'static str],
    /// The environment variable that may hold another address.
    pub(crate) address_variable: &'static str,
}

/// Reads one response into a [`ReplyBuilder`].
pub trait Decoder: Default + Send {
    /// Takes in an answer that came whole.
    fn whole(&mut self, body: &[u8], builder: &mut ReplyBuilder<'_, '_>) -> Result<(), DecodeError>;

    /// Takes in one event of an answer that comes piece by piece.
    fn event(&mut self, event: Event<'_>, builder: &mut ReplyBuilder<'_, '_>) -> Result<Decoded, DecodeError>;

    /// What the server must see again with this reply, if anything.
    fn opaque(self) -> Option<serde_json::Value>;
}

/// Whether anything more is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Perhaps.
    More,
    /// Perhaps; this event is of a type that is not known.
    Unknown,
    /// No: that was the last event.
    Last,
}

/// Why an answer cannot be taken in.
#[derive(Debug)]
pub enum DecodeError {
    /// It is not what the format says.
    Unreadable(serde_json::Error),
    /// It says that the request failed.
    Reported(ErrorBody),
}

impl From<serde_json::Error> for DecodeError {
    fn from(error: serde_json::Error) -> Self {
        Self::Unreadable(error)
    }
}

/// A JSON string that is not copied where it has no escapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Str<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

impl std::ops::Deref for Str<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// A string of one's own; empty if there is none.
pub(crate) fn owned(text: Option<Str<'_>>) -> String {
    text.map_or_else(String::new, |text| text.0.into_owned())
}

/// Reads a field that a reply can do without: one of another form is none.
pub(crate) fn lenient<'de, D: Deserializer<'de>, T: Deserialize<'de>>(field: D) -> Result<Option<T>, D::Error> {
    let raw = <&RawValue>::deserialize(field)?;
    Ok(serde_json::from_str::<Option<T>>(raw.get()).ok().flatten())
}

/// An item that its list can do without: one of another form is none.
#[derive(Debug)]
pub(crate) struct Lenient<T>(pub(crate) Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(item: D) -> Result<Self, D::Error> {
        lenient(item).map(Self)
    }
}

/// The place of something in a list. Some servers write it as text; whatever else they write is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Lenient<serde_json::Value>")]
pub(crate) struct Index(pub(crate) Option<u64>);

impl From<Lenient<serde_json::Value>> for Index {
    fn from(value: Lenient<serde_json::Value>) -> Self {
        let value = value.0.unwrap_or_default();
        Self(value.as_u64().or_else(|| value.as_str()?.trim().parse().ok()))
    }
}

/// The error that a server reports in an answer. Some have an empty one beside a good answer, which is none.
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

/// A number of tokens. Some servers write it with a fraction; whatever else they write is none.
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
