//! Tools, and the functions that make a tool from a Rust function.
//!
//! Nothing here runs a tool. The invocation does, and keeps a tool off the async threads if the tool asks for that.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::call_id::CallId;
use crate::caller::Caller;
use crate::content::Content;
use crate::name::Name;
pub use crate::tool_call::{Arguments, Progress, ToolCall, ToolCallId, ToolError, ToolErrorKind, ToolOutput, ToolSpec};

/// A tool that every agent's model can call.
///
/// Most tools are made by [`function`] or [`blocking`]. Implement the trait for a tool that needs its [`ToolContext`],
/// attachments, or its own schema.
///
/// Each tool call is a tokio task of its own, unless the tool may [block](Blocking::Always). When the agent's call is
/// cancelled, the tool's future is dropped at the await where it waits, or else at its next await that has to wait or
/// where tokio's [cooperative budget] lets other tasks run. Its resources must be freed by `Drop` (a child process:
/// [`kill_on_drop`]). A panic becomes an error that the model reads. A tool that waits for something outside needs a
/// timeout of its own.
///
/// [cooperative budget]: https://docs.rs/tokio/latest/tokio/task/coop/index.html
/// [`kill_on_drop`]: https://docs.rs/tokio/latest/tokio/process/struct.Command.html#method.kill_on_drop
pub trait Tool: Send + Sync + 'static {
    /// Returns the description of the tool for models. Read once, when the tool is added.
    fn spec(&self) -> ToolSpec;

    /// Carries out one call.
    fn call(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>>;

    /// Returns whether the tool blocks its thread. Default: it does not.
    fn blocking(&self) -> Blocking {
        Blocking::Never
    }
}

/// The effect of a [`Tool`]'s future on the thread that polls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    /// The future only awaits. It is polled on the async threads.
    Never,
    /// The future computes or blocks. It is polled on threads of the runtime's own, at most
    /// [`RuntimeBuilder::blocking_threads`](crate::RuntimeBuilder::blocking_threads) at a time (default: 512). Further
    /// ones wait for their turn, and never begin if their call is cancelled before it comes.
    ///
    /// While the future waits at an await, it keeps no thread. When its call is cancelled, it is dropped at the await
    /// where it waits, or else at its next await that has to wait; tokio's cooperative budget does not apply here.
    /// Until then it cannot be interrupted; it is not waited for, and its result is dropped.
    ///
    /// The tool may call agents that use it in turn: by awaiting, to any depth; by `block_on`, as long as there are
    /// threads. A tool that waits for a call by `block_on` keeps its thread, and another thread takes its place, up to
    /// 10,000 in all. A tool for which there is no thread fails, with an error that the model reads.
    Always,
}

/// The context of one tool call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolContext {
    /// The id of the call that the agent serves.
    pub call_id: CallId,
    /// The agent that called the tool.
    pub agent: Name,
    /// The id of this tool call.
    pub tool_call_id: ToolCallId,
    /// The handle that calls agents in that agent's name.
    pub caller: Caller,
}

impl ToolContext {
    /// Reports the tool's progress to the observers of the call. Without observers it costs nothing.
    pub fn progress(&self, progress: Progress) {
        self.caller.0.progress(&self.tool_call_id, progress);
    }
}

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
    FunctionTool::new(spec::<A>(name, description), Blocking::Never, move |arguments| {
        let running = serde_json::from_value(Value::Object(arguments)).map(&function);
        Box::pin(async move { running?.await.into_tool_result() })
    })
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
    FunctionTool::new(spec::<A>(name, description), Blocking::Always, move |arguments| {
        let function = Arc::clone(&function);
        Box::pin(async move { function(serde_json::from_value(Value::Object(arguments))?).into_tool_result() })
    })
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
    FunctionTool::new(spec, Blocking::Never, move |arguments| {
        if let Some(missing) = required.iter().find(|name| !arguments.contains_key(*name)) {
            return Box::pin(std::future::ready(Err(format!("missing required argument `{missing}`").into())));
        }
        let running = function(arguments);
        Box::pin(async move { running.await.into_tool_result() })
    })
}

/// A [`Tool`] that [`function`], [`blocking`] or [`from_spec`] made.
pub struct FunctionTool {
    spec: ToolSpec,
    blocking: Blocking,
    run: Box<dyn Fn(Arguments) -> BoxFuture<'static, Result<Content, ToolError>> + Send + Sync>,
}

impl FunctionTool {
    fn new(
        spec: ToolSpec,
        blocking: Blocking,
        run: impl Fn(Arguments) -> BoxFuture<'static, Result<Content, ToolError>> + Send + Sync + 'static,
    ) -> Self {
        Self { spec, blocking, run: Box::new(run) }
    }
}

impl Tool for FunctionTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn call(&self, arguments: Arguments, _: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        (self.run)(arguments)
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
    ToolSpec { name: name.into(), description: description.into(), parameters: parameters::<A>() }
}

/// Returns the JSON Schema of a type with its subschemas inlined, because some servers do not follow a `$ref`.
pub(crate) fn parameters<A: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<A>();
    schema.remove("title");
    schema.remove("description");
    let is_object = schema.get("type").is_some_and(|kind| kind == "object");
    if is_object && schema.get("properties").is_none() {
        schema.insert("properties".to_owned(), Map::new().into());
    }
    schema.to_value()
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
        let actual = parameters::<Search>();
        assert_eq!(actual["properties"]["query"], expected["properties"]["query"]);
        assert_eq!(actual["required"], expected["required"]);
        assert!(!actual.to_string().contains("$ref"), "{actual}");
        assert_eq!(parameters::<NoArguments>(), json!({"type": "object", "properties": {}}));
    }
}
