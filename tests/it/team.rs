//! What the tests have in common: agents on a script.

use agentouto::providers::scripted::Scripted;
use agentouto::{
    Agent, Arguments, BoxFuture, Content, Log, Runtime, RuntimeBuilder, Tool, ToolContext, ToolError, ToolSpec,
};
use serde_json::json;

/// Agents of these names, whose model is `fake`.
pub(crate) fn team<const N: usize>(model: Scripted, agents: [&str; N]) -> RuntimeBuilder {
    let agents = agents.map(|name| Agent::new(name, format!("{name} instructions.")));
    Runtime::builder().provider("fake", model).agents(agents)
}

/// The messages of a run, one line each.
pub(crate) fn path(log: &Log) -> Vec<String> {
    log.messages().map(|message| message.to_string()).collect()
}

/// A tool of this name that needs nothing but its context.
pub(crate) struct With<F>(pub(crate) &'static str, pub(crate) F);

impl<F, A> Tool for With<F>
where
    F: Fn(ToolContext) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Content, ToolError>> + Send + 'static,
{
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: self.0.into(), description: "".into(), parameters: json!({"type": "object"}) }
    }

    fn call(&self, _: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        Box::pin((self.1)(context))
    }
}
