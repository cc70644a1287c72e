//! Tools, and the functions that make a tool from a Rust function.
//!
//! Nothing here runs a tool. The invocation does, and keeps a tool off the async threads if the tool asks for that.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::Content;
use crate::name::Name;
use crate::tool_call::schema_of;
pub use crate::tool_call::{Arguments, Progress, ToolCall, ToolCallId, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
pub use crate::tool_interface::{Blocking, Tool, ToolContext};

/// The return types of a tool function: text, [`Json`], [`Value`], [`Content`], nothing, or a [`Result`] of these whose
/// error implements `Display`.
pub trait IntoToolResult {
    /// Returns the content, or the failure that the model reads.
    ///
    /// # Errors
    ///
    /// When the function failed, or its value cannot be serialised as JSON.
    fn into_tool_result(self) -> Result<Content, ToolError>;
}

/// A value that a tool returns to the model as JSON.
#[derive(Clone, Debug)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoToolResult for Json<T> {
    fn into_tool_result(self) -> Result<Content, ToolError> {
        Ok(serde_json::to_string(&self.0)?.into())
    }
}

macro_rules! give {
    ($($type:ty: $value:ident => $content:expr),* $(,)?) => {$(
        impl IntoToolResult for $type {
            fn into_tool_result(self) -> Result<Content, ToolError> {
                let $value = self;
                Ok($content)
            }
        }
    )*};
}

give! {
    Content: content => content,
    String: text => text.into(),
    &'static str: text => text.into(),
    Arc<str>: text => text.into(),
    Value: value => value.to_string().into(),
    (): _nothing => Content::default(),
}

impl<T: IntoToolResult, E: Into<ToolError>> IntoToolResult for Result<T, E> {
    fn into_tool_result(self) -> Result<Content, ToolError> {
        self.map_err(Into::into)?.into_tool_result()
    }
}

/// The argument type of a function that takes none.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct NoArguments {}

/// A tool made from an async function of one argument.
///
/// The argument's [`JsonSchema`] describes the parameters to the model. If the arguments do not fit it, the model reads
/// an error, and the function is not run.
///
/// ```
/// use agentouto::tool;
/// use schemars::JsonSchema;
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Search {
///     /// What to look for.
///     query: String,
/// }
///
/// async fn search_web(search: Search) -> Result<String, std::io::Error> {
///     Ok(format!("3 results for {}", search.query))
/// }
///
/// let search = tool::function("search_web", "Search the web.", search_web);
/// # let _: &dyn agentouto::Tool = &search;
/// ```
pub fn function<A, F, T>(name: impl Into<Name>, description: impl Into<Arc<str>>, function: F) -> FunctionTool
where
    A: DeserializeOwned + JsonSchema,
    F: Fn(A) -> T + Send + Sync + 'static,
    T: Future<Output: IntoToolResult> + Send + 'static,
{
    function_with(name, description, move |arguments, _| function(arguments))
}

/// A tool made from an async function of one argument and the [`ToolContext`]: to call agents, to read what the caller
/// [lent](crate::Call::with), to report progress. Otherwise it is like [`function`].
///
/// ```
/// use agentouto::tool::{self, NoArguments};
///
/// let who = tool::function_with("who", "Names the agent that asks.", |_: NoArguments, context| async move {
///     context.agent
/// });
/// # let _: &dyn agentouto::Tool = &who;
/// ```
pub fn function_with<A, F, T>(name: impl Into<Name>, description: impl Into<Arc<str>>, function: F) -> FunctionTool
where
    A: DeserializeOwned + JsonSchema,
    F: Fn(A, ToolContext) -> T + Send + Sync + 'static,
    T: Future<Output: IntoToolResult> + Send + 'static,
{
    FunctionTool::new(
        spec::<A>(name, description),
        Blocking::Never,
        parses::<A> as fn(&Arguments) -> Checked,
        move |arguments, context| {
            let running =
                serde_json::from_value(Value::Object(arguments)).map(|arguments| function(arguments, context));
            Box::pin(async move { running?.await.into_tool_result() })
        },
    )
}

/// Checks that the arguments are an `A`.
fn parses<A: DeserializeOwned>(arguments: &Arguments) -> Checked {
    serde_json::from_value::<A>(Value::Object(arguments.clone()))?;
    Ok(())
}

/// A tool made from a plain function of one argument, which may compute or block.
///
/// The function runs on a thread that it may block, see [`Blocking::Always`]. It may wait for files, locks and
/// channels, have a tokio runtime of its own, and use `Handle::current().block_on`. It cannot be interrupted. When its
/// call is cancelled, the function runs to its end, and nothing waits for it. Otherwise it is like [`function`].
///
/// ```
/// use agentouto::tool::{self, Json, NoArguments};
///
/// let list = tool::blocking("list", "List the files here.", |_: NoArguments| {
///     let names: Vec<_> = std::fs::read_dir(".")?.flatten().map(|entry| entry.file_name().into_string()).collect();
///     std::io::Result::Ok(Json(names.into_iter().flatten().collect::<Vec<_>>()))
/// });
/// # let _: &dyn agentouto::Tool = &list;
/// ```
pub fn blocking<A, F, R>(name: impl Into<Name>, description: impl Into<Arc<str>>, function: F) -> FunctionTool
where
    A: DeserializeOwned + JsonSchema,
    F: Fn(A) -> R + Send + Sync + 'static,
    R: IntoToolResult,
{
    let function = Arc::new(function);
    FunctionTool::new(
        spec::<A>(name, description),
        Blocking::Always,
        parses::<A> as fn(&Arguments) -> Checked,
        move |arguments, _| {
            let function = Arc::clone(&function);
            Box::pin(async move { function(serde_json::from_value(Value::Object(arguments))?).into_tool_result() })
        },
    )
}

/// A tool made from a specification and an async function of the arguments as they are.
///
/// Use it for schemas that are known only at run time. Before the function is called, the arguments are checked: those
/// that the schema requires must be present. Their types are not checked.
pub fn from_spec<F, T>(spec: ToolSpec, function: F) -> FunctionTool
where
    F: Fn(Arguments) -> T + Send + Sync + 'static,
    T: Future<Output: IntoToolResult> + Send + 'static,
{
    let required: Vec<String> = spec.parameters["required"]
        .as_array()
        .map_or_else(Vec::new, |names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect());
    let check = move |arguments: &Arguments| match required.iter().find(|name| !arguments.contains_key(*name)) {
        Some(missing) => Err(format!("missing required argument `{missing}`").into()),
        None => Ok(()),
    };
    let is_checked = check.clone();
    FunctionTool::new(spec, Blocking::Never, check, move |arguments, _| {
        let running = is_checked(&arguments).map(|()| function(arguments));
        Box::pin(async move { running?.await.into_tool_result() })
    })
}

/// A [`Tool`] that [`function`], [`function_with`], [`blocking`] or [`from_spec`] made.
pub struct FunctionTool {
    spec: ToolSpec,
    blocking: Blocking,
    check: Box<dyn Fn(&Arguments) -> Checked + Send + Sync>,
    run: Box<dyn Fn(Arguments, ToolContext) -> Running + Send + Sync>,
}

type Checked = Result<(), ToolError>;
type Running = BoxFuture<'static, Result<Content, ToolError>>;

impl FunctionTool {
    fn new(
        spec: ToolSpec,
        blocking: Blocking,
        check: impl Fn(&Arguments) -> Checked + Send + Sync + 'static,
        run: impl Fn(Arguments, ToolContext) -> Running + Send + Sync + 'static,
    ) -> Self {
        Self { spec, blocking, check: Box::new(check), run: Box::new(run) }
    }
}

impl Tool for FunctionTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn call(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        (self.run)(arguments, context)
    }

    fn check(&self, arguments: &Arguments) -> Result<(), ToolError> {
        (self.check)(arguments)
    }

    fn blocking(&self) -> Blocking {
        self.blocking
    }
}

impl std::fmt::Debug for FunctionTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FunctionTool")
            .field("spec", &self.spec)
            .field("blocking", &self.blocking)
            .finish_non_exhaustive()
    }
}

fn spec<A: JsonSchema>(name: impl Into<Name>, description: impl Into<Arc<str>>) -> ToolSpec {
    ToolSpec { name: name.into(), description: description.into(), parameters: schema_of::<A>() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_is_one_piece_with_descriptions_and_without_titles() {
        #[derive(Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema is used")]
        struct Search {
            /// What to look for.
            query: String,
            range: Option<Range>,
        }
        #[derive(Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its schema is used")]
        struct Range {
            from: u8,
        }
        let range = json!({
            "type": ["object", "null"],
            "properties": {"from": {"type": "integer", "format": "uint8", "minimum": 0, "maximum": 255}},
            "required": ["from"],
        });
        let expected = json!({
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What to look for."}, "range": {"anyOf": [range["properties"], {"type": "null"}]}},
            "required": ["query"],
        });
        let actual = schema_of::<Search>();
        assert_eq!(actual["properties"]["query"], expected["properties"]["query"]);
        assert_eq!(actual["required"], expected["required"]);
        assert!(!actual.to_string().contains("$ref"), "{actual}");
        assert_eq!(schema_of::<NoArguments>(), json!({"type": "object", "properties": {}}));
    }
}
