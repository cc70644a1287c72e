//! What models are told of tools, how they call them, and what comes of it. Pure.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::content::Content;
use crate::name::Name;

/// What a model is told of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// What it is called by. Most servers take `[a-zA-Z0-9_-]{1,64}` only.
    pub name: Name,
    /// What it does.
    pub description: Arc<str>,
    /// Its parameters: a [JSON Schema](https://json-schema.org/draft/2020-12) with `"type": "object"`.
    pub parameters: Value,
}

/// A tool call's arguments, by parameter name.
pub type Arguments = Map<String, Value>;

/// Names a tool call within one [`Context`](crate::Context); chosen by the model's server, unique once recorded.
pub type ToolCallId = Arc<str>;

/// A tool call as a model made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Its id.
    pub id: ToolCallId,
    /// The name of the tool that is called.
    pub name: Name,
    /// The arguments as the model wrote them; a JSON object, if all is well.
    pub arguments: Arc<str>,
    /// Why it cannot be carried out, where the provider knows: the words with which it is refused, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malformed: Option<Arc<str>>,
}

impl ToolCall {
    /// A call as a model made it.
    pub fn new(id: impl Into<ToolCallId>, name: impl Into<Name>, arguments: impl Into<Arc<str>>) -> Self {
        Self { id: id.into(), name: name.into(), arguments: arguments.into(), malformed: None }
    }
}

/// What came of a tool call, as the model reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// The text, with attachments. The text of a failure begins with `Error: `.
    pub content: Content,
    /// Whether it is a failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl ToolOutput {
    /// What a call gave, or a failure with the text `Error: {error}`.
    pub(crate) fn from_result(result: Result<Content, impl Display>) -> Self {
        match result {
            Ok(content) => Self { content, is_error: false },
            Err(error) => Self { content: format!("Error: {error}").into(), is_error: true },
        }
    }
}

/// How far a tool has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// How much is done, in units of the tool's own. It grows. What is not finite is serialised as 0.
    #[serde(serialize_with = "finite")]
    pub done: f64,
    /// How much there is to do, in the same units, if that is known. What is not finite is not serialised.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub total: Option<f64>,
    /// What is being done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<str>>,
}

fn finite<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(if number.is_finite() { *number } else { 0.0 })
}

fn is_unknown(number: &Option<f64>) -> bool {
    !number.is_some_and(f64::is_finite)
}

/// Why a tool failed. Made from any error by `?`, or by one of the functions here, which say more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolError {
    /// What kind of failure it is.
    pub kind: ToolErrorKind,
    /// What happened, in words that the model reads.
    pub message: Arc<str>,
}

/// What kind of failure a [`ToolError`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolErrorKind {
    /// The network failed, and nothing was done. The tool is run again, up to twice.
    Network,
    /// The tool may not do this with the key or the rights that it has.
    Authentication,
    /// It took too long.
    Timeout,
    /// Anything else.
    Other,
}

impl ToolError {
    /// The network failed before anything was done, so that it does no harm to run the tool once more: it is run again
    /// after 0.5 s, and after another second.
    pub fn network(what: impl Display) -> Self {
        Self { kind: ToolErrorKind::Network, message: format!("network error: {what}").into() }
    }

    /// The tool was not allowed to do it. `setting` is what a person must check: a variable, a file, an account.
    pub fn authentication(setting: &str, what: impl Display) -> Self {
        let message = format!("authentication failed: {what}; check the configuration of `{setting}`");
        Self { kind: ToolErrorKind::Authentication, message: message.into() }
    }

    /// It was not done within the time there was.
    #[must_use]
    pub fn timeout(limit: Duration) -> Self {
        Self { kind: ToolErrorKind::Timeout, message: format!("timed out after {limit:?}").into() }
    }
}

impl<E: Display> From<E> for ToolError {
    fn from(error: E) -> Self {
        Self { kind: ToolErrorKind::Other, message: error.to_string().into() }
    }
}
