//! Specifications of tools, tool calls, and their outputs. Pure.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::content::Content;
use crate::name::Name;

/// The description of a tool for models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name by which models call the tool. Most servers accept `[a-zA-Z0-9_-]{1,64}` only.
    pub name: Name,
    /// The description of what the tool does.
    pub description: Arc<str>,
    /// The parameters: a [JSON Schema](https://json-schema.org/draft/2020-12) with `"type": "object"`.
    pub parameters: Value,
}

/// Returns the JSON Schema of a type with its subschemas inlined, because some servers do not follow a `$ref`.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    inline_root(&mut schema);
    schema.remove("title");
    schema.remove("description");
    let is_object = schema.get("type").is_some_and(|kind| kind == "object");
    if is_object && schema.get("properties").is_none() {
        schema.insert("properties".to_owned(), Map::new().into());
    }
    schema.to_value()
}

/// Puts the definition in place of a root that only refers to it, as that of a recursive type does.
fn inline_root(schema: &mut schemars::Schema) {
    let path = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix('#'));
    let root = path.and_then(|path| schema.pointer(path)).and_then(Value::as_object).cloned();
    if let Some(root) = root {
        schema.remove("$ref");
        schema.ensure_object().extend(root);
    }
}

/// A tool call's arguments, by parameter name.
pub type Arguments = Map<String, Value>;

/// The id of a tool call within one [`Context`](crate::Context); chosen by the model's server, unique once recorded.
pub type ToolCallId = Arc<str>;

/// A tool call as a model made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The id of the call.
    pub id: ToolCallId,
    /// The name of the tool that is called.
    pub name: Name,
    /// The arguments as the model wrote them; normally a JSON object.
    pub arguments: Arc<str>,
    /// The reason why the call cannot be carried out, if the provider knows one. The model reads it as the refusal of
    /// the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malformed: Option<Arc<str>>,
}

impl ToolCall {
    /// A call as a model made it.
    pub fn new(id: impl Into<ToolCallId>, name: impl Into<Name>, arguments: impl Into<Arc<str>>) -> Self {
        Self { id: id.into(), name: name.into(), arguments: arguments.into(), malformed: None }
    }
}

/// The arguments of the tool `call_agent`.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct CallAgent<'a> {
    /// Name of the agent to call
    #[serde(borrow)]
    pub(crate) agent_name: Cow<'a, str>,
    /// Message to send to the agent
    #[serde(borrow)]
    pub(crate) message: Cow<'a, str>,
}

/// The arguments of the tool `finish`.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Finish<'a> {
    /// Result message to return
    #[serde(borrow)]
    pub(crate) message: Cow<'a, str>,
}

/// The output of a tool call, as the model reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// The text, with attachments. The text of a failure begins with `Error: `.
    pub content: Content,
    /// `true` if the call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl ToolOutput {
    /// The output of a call, or a failure with the text `Error: {error}`.
    pub(crate) fn from_result(result: Result<Content, impl Display>) -> Self {
        match result {
            Ok(content) => Self { content, is_error: false },
            Err(error) => Self { content: format!("Error: {error}").into(), is_error: true },
        }
    }
}

/// The progress of a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The amount that is done, in units of the tool's own. It grows. A value that is not finite is serialised as 0.
    #[serde(serialize_with = "finite")]
    pub done: f64,
    /// The total amount, in the same units, if it is known. A value that is not finite is not serialised.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub total: Option<f64>,
    /// A description of the current work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<str>>,
}

fn finite<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(if number.is_finite() { *number } else { 0.0 })
}

fn is_unknown(number: &Option<f64>) -> bool {
    !number.is_some_and(f64::is_finite)
}

/// The error of a tool. Made from any error by `?`, or by one of the functions here, which also set the kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolError {
    /// The kind of failure.
    pub kind: ToolErrorKind,
    /// The description of the failure, which the model reads.
    pub message: Arc<str>,
}

/// The kind of a [`ToolError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolErrorKind {
    /// The network failed before anything was done. The tool is run again, up to twice.
    Network,
    /// The tool's key or rights do not allow this.
    Authentication,
    /// The tool took too long.
    Timeout,
    /// The tool panicked.
    Panicked,
    /// Any other failure.
    Other,
}

impl ToolError {
    /// An error of the network before anything was done, so that a retry does no harm. The tool is run again after 0.5
    /// s, and once more after another second.
    pub fn network(what: impl Display) -> Self {
        Self { kind: ToolErrorKind::Network, message: format!("network error: {what}").into() }
    }

    /// An error of a tool that was not allowed to do its work. `setting` is what a person must check: a variable, a
    /// file, an account.
    pub fn authentication(setting: &str, what: impl Display) -> Self {
        let message = format!("authentication failed: {what}; check the configuration of `{setting}`");
        Self { kind: ToolErrorKind::Authentication, message: message.into() }
    }

    /// The error of a tool that panicked.
    pub(crate) fn panicked(panic: &str) -> Self {
        Self { kind: ToolErrorKind::Panicked, message: format!("panicked: {panic}").into() }
    }

    /// An error of a tool that was not done within `limit`.
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
