//! The run of a tool: in a task of its own, or on threads that it may block, with retries after a failure of the
//! network.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument as _, Span};

use crate::builtin;
use crate::call_id::CallId;
use crate::call_id_source::ChildIds;
use crate::caller::Caller;
use crate::content::Content;
use crate::delivery::{Deliver, ScopedCaller};
use crate::error::CallError;
use crate::event::EventKind;
use crate::outcome::CallToken;
use crate::panics::catch_panic;
use crate::poll_timer::PollTimer;
use crate::telemetry::{InvocationTrace, ToolTrace};
use crate::tool_call::{Arguments, ToolCall, ToolError, ToolErrorKind, ToolOutput};
use crate::tool_interface::{Blocking, Tool, ToolContext};

/// A tool call that has not begun.
pub(crate) struct ToolRun {
    /// The call of the agent that made it.
    pub(crate) agent_call: CallToken,
    /// The id from which the ids of the tool's calls are derived.
    pub(crate) id: CallId,
    pub(crate) call: ToolCall,
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) arguments: Arguments,
    pub(crate) deliver: Arc<dyn Deliver>,
    pub(crate) trace: Option<InvocationTrace>,
}

impl ToolRun {
    /// Starts the tool on a task of its own, which has its own cooperative budget and cannot delay the drop of other
    /// tools.
    pub(crate) fn start(self) -> AbortOnDropHandle<ToolOutput> {
        let trace = self.trace.as_ref().map(|trace| trace.tool(&self.call));
        let span = trace.as_ref().map_or_else(Span::none, |trace| trace.span());
        // The trace holds the span for longer than the run: a subscriber may panic when it is closed.
        AbortOnDropHandle::new(tokio::spawn(async move { self.run(trace.as_ref()).instrument(span).await }))
    }

    async fn run(self, trace: Option<&ToolTrace>) -> ToolOutput {
        let Self { agent_call, id, call, tool, arguments, deliver, .. } = self;
        if agent_call.scope.is_cancelled() {
            return aborted();
        }
        let scope = agent_call.scope.child();
        let _leftovers = scope.cancel_on_drop();
        agent_call.emit_to_streams(|| EventKind::ToolStart { call: call.clone() });
        let begun = Instant::now();
        let forward = &agent_call.forward;
        let context = ToolContext {
            call_id: forward.call_id,
            agent: Arc::clone(&forward.receiver),
            tool_call_id: Arc::clone(&call.id),
            run: Arc::clone(&forward.run),
            caller: Caller(Arc::new(ScopedCaller {
                deliver: Arc::downgrade(&deliver),
                scope,
                call: Arc::clone(agent_call.outcome()),
                ids: ChildIds::under(id),
            })),
        };
        let running = catch_panic(run_with_retries(&tool, &call, arguments, context));
        let (result, latency) = PollTimer::new(running, begun, &agent_call, "tool", &call.name).await;
        let result = result.unwrap_or_else(|panic| Err(ToolError::panicked(&panic)));
        trace.iter().for_each(|trace| trace.end(&result));
        let result = result.map_err(|error| format!("[{}] {}", call.name, error.message));
        let output = ToolOutput::from_result(result);
        agent_call.emit_to_streams(|| EventKind::ToolEnd {
            id: Arc::clone(&call.id),
            name: Arc::clone(&call.name),
            error: output.is_error.then(|| Arc::clone(&output.content.text)),
            output: output.content.clone(),
            latency,
        });
        output
    }
}

/// Returns the output of a call of an agent. For a reply that failed on the way it includes what had arrived, which was
/// paid for.
pub(crate) fn call_output(result: Result<Content, CallError>) -> ToolOutput {
    let partial = match &result {
        Err(CallError::Provider { error, .. }) => error.partial.as_deref().cloned().unwrap_or_default(),
        _ => return ToolOutput::from_result(result),
    };
    let mut output = ToolOutput::from_result(result);
    if let Some(text) = partial.text_or_refusal() {
        output.content.text = format!("{}\nWhat had arrived:\n{text}", output.content.text).into();
    }
    output.content.attachments = partial.attachments;
    output
}

/// The output of a tool whose task was aborted, as the model would read it.
pub(crate) fn aborted() -> ToolOutput {
    ToolOutput::from_result(Err(CallError::Cancelled))
}

/// The delays before the retries of a tool that reports a failure of the network.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(1)];

/// Runs a tool, and retries it when it reports a failure of the network.
async fn run_with_retries(
    tool: &Arc<dyn Tool>,
    call: &ToolCall,
    mut arguments: Arguments,
    context: ToolContext,
) -> Result<Content, ToolError> {
    for delay in RETRY_DELAYS {
        match run_tool(tool, arguments, context.clone()).await {
            Err(error) if error.kind == ToolErrorKind::Network => {
                tracing::info!(tool = &*call.name, ?delay, "a tool whose network failed is run again");
                tokio::time::sleep(delay).await;
            }
            result => return result,
        }
        // They were parsed before, so parsing them again succeeds.
        arguments = builtin::arguments(&call.arguments).unwrap_or_default();
    }
    run_tool(tool, arguments, context).await
}

/// Runs a tool: here, or on threads that it may block.
pub(crate) async fn run_tool(
    tool: &Arc<dyn Tool>,
    arguments: Arguments,
    context: ToolContext,
) -> Result<Content, ToolError> {
    match tool.blocking() {
        Blocking::Never => tool.call(arguments, context).await,
        Blocking::Always => {
            let (tool, caller) = (Arc::clone(tool), context.caller.clone());
            let work = catch_panic(async move { tool.call(arguments, context).await })
                .map(|result| result.unwrap_or_else(|panic| Err(ToolError::panicked(&panic))))
                .in_current_span();
            caller.0.run_blocking(Box::pin(work)).await
        }
    }
}
