//! Tools, and how a Rust function becomes one.
//!
//! Nothing here runs a tool; the invocation does, off the async threads where a tool asks for it.

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

/// Something that every model may use.
///
/// Most tools are made by [`function`] or [`blocking`]. Implement the trait for a tool that needs its
/// [`ToolContext`], attachments, or a schema of its own.
///
/// Each tool call is a tokio task of its own, unless it may [block](Blocking::Always). When the call that it serves is
/// cancelled, its future is dropped at the await where it waits, or at the next one where it has to wait or where tokio's
/// [cooperative budget] lets others run; what it owns must be freed by `Drop` (a child process: [`kill_on_drop`]). A
/// panic becomes an error that the model reads. A tool that waits for something outside must end that wait itself.
///
/// [cooperative budget]: https://docs.rs/tokio/latest/tokio/task/coop/index.html
/// [`kill_on_drop`]: https://docs.rs/tokio/latest/tokio/process/struct.Command.html#method.kill_on_drop
pub trait Tool: Send + Sync + 'static {
    /// What the model is told of it. Read once, when it joins.
    fn spec(&self) -> ToolSpec;

    /// Carries out one call.
    fn call(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>>;

    /// Whether and how it blocks. Default: it does not.
    fn blocking(&self) -> Blocking {
        Blocking::Never
    }
}

/// Whether a [`Tool`]'s future blocks the thread that polls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    /// It only awaits, and is polled on the async threads.
    Never,
    /// It computes or blocks, and is polled on threads of the runtime's own, at most
    /// [`RuntimeBuilder::blocking_threads`](crate::RuntimeBuilder::blocking_threads) at a time (default: 512). Further
    /// ones wait for their turn, and never begin if their call is cancelled before it comes.
    ///
    /// While it waits at an await it keeps no thread. When its call is cancelled, it is dropped at the await where it
    /// waits, or at the next one where it has to wait; tokio's cooperative budget does not hold here. Up to there it
    /// cannot be interrupted, is not waited for, and what it gives is thrown away.
    ///
    /// It may call agents that use it in turn: by awaiting, to any depth; by `block_on`, as long as there are threads.
    /// One that waits for a call by `block_on` keeps its thread, and another takes its place, up to 10,000 in all. A tool
    /// for which there is no thread fails, with an error that the model reads.
    Always,
}

/// For whom and where a tool runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolContext {
    /// The call that the agent serves.
    pub call_id: CallId,
    /// The agent that called the tool.
    pub agent: Name,
    /// The id of this tool call.
    pub tool_call_id: ToolCallId,
    /// Calls agents in that agent's name.
    pub caller: Caller,
}

impl ToolContext {
    /// Tells whoever observes the call how far the tool has come. Without observers it costs nothing.
    pub fn progress(&self, progress: Progress) {
        self.caller.0.progress(&self.tool_call_id, progress);
    }
}

/// What a tool function may return: text, [`Json`], [`Value`], [`Content`], nothing, or a [`Result`] of these
/// whose error can be shown.
pub trait IntoToolResult {
    /// The content, or the failure that the model reads.
    ///
    /// # Errors
    ///
    /// When the function failed, or its value cannot be written as JSON.
    fn into_tool_result(self) -> Result<Content, ToolError>;
}

/// A value that a tool gives to the model as JSON.
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
/// The argument's type says what the model is told, by [`JsonSchema`]. Arguments that do not fit it
/// come back to the model as an error, and the function is not run.
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
/// It runs on a thread that is made for blocking, see [`Blocking::Always`]: it may wait for files, locks and channels,
/// have a tokio runtime of its own, and use `Handle::current().block_on`. It cannot be interrupted. When its call is
/// cancelled it goes on to its end, for which nothing waits. Otherwise it is like [`function`].
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
/// For schemas that are known only at run time. That the arguments which the schema requires are
/// there is checked before the function is called; their types are not.
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

/// The JSON Schema of a type, in one piece: some servers do not follow a `$ref`.
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
