//! A tool that only some agents may use: [`OnlyFor`].

use futures_util::future::BoxFuture;

use crate::content::Content;
use crate::name::{Name, key};
use crate::tool_call::{Arguments, ToolError};
use crate::tool_interface::{Tool, ToolContext};
use crate::tools::wrapper::{InnerTool, ToolWrapper};

/// A tool that only some agents may use, see [`ToolExt::only_for`](crate::ToolExt::only_for).
#[derive(Clone, Debug)]
pub struct OnlyFor {
    inner: InnerTool,
    agents: Vec<Name>,
}

impl OnlyFor {
    pub(super) fn new(tool: impl Tool, agents: Vec<Name>) -> Self {
        Self { inner: InnerTool::new(tool), agents }
    }
}

impl ToolWrapper for OnlyFor {
    fn inner(&self) -> &InnerTool {
        &self.inner
    }

    fn run(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        Box::pin(async move {
            ToolWrapper::authorize(self, &context)?;
            self.inner.call(arguments, context).await
        })
    }

    fn authorize(&self, context: &ToolContext) -> Result<(), ToolError> {
        if self.agents.iter().any(|agent| key(agent) == key(&context.agent)) {
            return self.inner.authorize(context);
        }
        let may: Vec<String> = self.agents.iter().map(|agent| format!("`{agent}`")).collect();
        let may = if may.is_empty() { "no agent".to_owned() } else { format!("only {}", may.join(", ")) };
        Err(format!("`{}` may not use this tool; {may} may", context.agent).into())
    }
}
