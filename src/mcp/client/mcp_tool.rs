//! A server's tool as a tool of a runtime.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, ServerResult};
use serde_json::Value;

use crate::content::Content;
use crate::mcp::client::definition::Definition;
use crate::mcp::client::output::Output;
use crate::mcp::client::request::Failure;
use crate::mcp::client::supervisor::Supervisor;
use crate::mcp::client::visible::quoted;
use crate::mcp::transport::tap::ProgressReceiver;
use crate::name::Name;
use crate::tool_call::{Arguments, ToolError, ToolSpec};
use crate::tool_interface::{Tool, ToolContext};

/// A tool under the name by which it is offered.
pub(crate) struct McpTool {
    pub(crate) name: Name,
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) definition: Arc<Definition>,
}

impl Tool for McpTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: Arc::clone(&self.name),
            description: Arc::clone(&self.definition.description),
            parameters: self.definition.parameters.clone(),
        }
    }

    fn call(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        Box::pin(self.run(arguments, context))
    }

    /// Checks the arguments by the schema, as far as it can be compiled, or else that no required one is missing. Only
    /// [`Approved`](crate::tools::Approved) asks for it: in a call, the server checks its own arguments.
    fn check(&self, arguments: &Arguments) -> Result<(), ToolError> {
        #[cfg(feature = "prompt_tools")]
        if let Some(schema) = crate::schema::Schema::new(&self.definition.parameters) {
            return schema.problem(&Value::Object(arguments.clone())).map_or(Ok(()), |problem| Err(problem.into()));
        }
        let required = self.definition.parameters["required"].as_array().into_iter().flatten();
        match required.filter_map(Value::as_str).find(|name| !arguments.contains_key(*name)) {
            Some(missing) => Err(format!("missing required argument `{missing}`").into()),
            None => Ok(()),
        }
    }
}

impl McpTool {
    async fn run(&self, arguments: Arguments, context: ToolContext) -> Result<Content, ToolError> {
        if let Some(objection) = self.supervisor.catalogue().objection(&self.definition) {
            return Err(self.error(objection));
        }
        let receiver = ProgressReceiver::new(context);
        let params = CallToolRequestParams::new(self.definition.tool.to_string()).with_arguments(arguments);
        let mut call = CallToolRequest::new(params);
        call.extensions.insert(Arc::downgrade(&receiver));
        let answer = self.supervisor.request(ClientRequest::CallToolRequest(call), Some(&receiver)).await;
        let output = match answer.map_err(|failure| self.failure(failure))? {
            ServerResult::CallToolResult(result) => {
                Some(Output::new(&result.content, result.structured_content.as_ref(), result.is_error))
            }
            ServerResult::InputRequiredResult(_) => {
                return Err(self.error("it asks for more input, which it does not get"));
            }
            ServerResult::CustomResult(result) => Output::lenient(&result.0),
            _ => None,
        };
        let mut output = output.ok_or_else(|| self.error("it answered with something that is no tool's result"))?;
        if output.is_error {
            output.content.text = self.supervisor.server.without_secrets(&output.content.text).into();
        }
        let most = self.supervisor.server.settings.max_text_bytes;
        output.content.text = self.supervisor.overflow.fit(&self.supervisor.name, output.content.text, most).await;
        if output.is_error {
            return Err(output.content.into());
        }
        Ok(output.content)
    }

    fn failure(&self, failure: Failure) -> ToolError {
        match failure {
            Failure::TimedOut(limit) => ToolError::timeout(limit),
            Failure::NotConnected(reason) => ToolError::network(self.told(&reason)),
            Failure::Unauthorized(reason) => {
                ToolError::authentication(&format!("MCP server {}", self.supervisor.name), quoted(&reason))
            }
            other => self.error(other),
        }
    }

    fn error(&self, reason: impl std::fmt::Display) -> ToolError {
        self.told(&reason).into()
    }

    fn told(&self, reason: &dyn std::fmt::Display) -> String {
        quoted(&format!("MCP server `{}`: {reason}", self.supervisor.name))
    }
}
