//! The approval of tool calls by a peer: [`Approved`], a tool that wraps another one.
//!
//! The question is a Forward like any other, so the peer may be a person, an actor or an agent. No answer but an
//! approval lets a call pass.

mod answer;
mod question;

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;

use self::answer::{Answer, ExpectedAnswer};
use crate::call_id::CallId;
use crate::content::Content;
use crate::error::CallError;
use crate::event::{Approval, Decision, EventKind};
use crate::log::{Log, LogEntry};
use crate::name::{Name, key};
use crate::tool_call::{Arguments, ToolError, ToolErrorKind};
use crate::tool_interface::{Tool, ToolContext};
use crate::tools::wrapper::{InnerTool, ToolWrapper};

/// A tool that asks a peer before each call: a person, an actor or an agent. Exactly what the peer approved runs, once.
///
/// ```
/// use std::time::Duration;
/// use agentouto::ToolExt as _;
/// use agentouto::tool;
/// use schemars::JsonSchema;
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Payment {
///     euros: u32,
/// }
///
/// let pay = tool::function("pay", "Pays an amount.", |payment: Payment| async move {
///     format!("paid {} euros", payment.euros)
/// });
/// let pay = pay.approved_by("human").within(Duration::from_secs(3_600));
/// # let _: &dyn agentouto::Tool = &pay;
/// ```
///
/// **The question** is a call of the peer in the name of the agent that called the tool. It is asked after the tool has
/// [checked](Tool::check) the arguments and the [caller](Tool::authorize), so nobody is asked about a call that would
/// fail on them. Its text ends with one line of JSON, an object with `tool`, `agent` and `arguments`. The keys are
/// sorted, and characters that are invisible or change how text is shown are escaped, so no argument can look like a
/// part of the question. Each call is a question of its own, also when a model repeats a call or changes an argument.
///
/// **The answer** is one of these:
///
/// - `yes`, in any case of its letters, or the JSON `{"decision": "yes"}`
/// - `no`, `no: reason`, or `{"decision": "no", "reason": "…"}`
/// - other arguments: `{"decision": "yes", "arguments": {…}}`. The tool checks them and runs with them. The model reads
///   which arguments that were.
///
/// A model that approves gets this as the schema of its answer, and is told when its answer does not fit. Any other
/// answer of a person or an actor is a refusal, and the model reads it. Attachments of an answer are ignored.
///
/// **No answer is a refusal:** no peer has that name, it failed, it dropped its reply port, or its time was over, see
/// [`within`](Self::within). An agent cannot approve its own call: it is not asked, and gets no result that is kept
/// around this tool. When the call of the tool is cancelled, so is the question.
///
/// **One run.** A tool that failed with a [failure of the network](ToolErrorKind::Network) is not run again by itself:
/// the model reads the failure, and its next call is another question. If the tool is removed or replaced while the
/// peer thinks, the tool that was asked about runs, and no other. A tool of an MCP server does not run if its
/// definition has changed meanwhile.
///
/// **The log** has each decision, see [`Log::approvals`](crate::Log::approvals); observers see
/// [`EventKind::ToolApproval`].
#[derive(Clone, Debug)]
pub struct Approved {
    inner: InnerTool,
    by: Name,
    within: Option<Duration>,
}

impl Approved {
    pub(super) fn new(tool: impl Tool, by: Name) -> Self {
        Self { inner: InnerTool::new(tool), by, within: None }
    }

    /// Sets the time for the answer, on tokio's clock. After it the question is cancelled, and the call is refused.
    /// Default: no limit.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Self {
        self.within = Some(limit);
        self
    }

    async fn call(&self, arguments: Arguments, context: ToolContext) -> Result<Content, ToolError> {
        ToolWrapper::authorize(self, &context)?;
        self.inner.check(&arguments)?;
        let Self { by, .. } = self;
        let (question, decision) = self.decision(&arguments, &context).await;
        let approval = Approval {
            id: Arc::clone(&context.tool_call_id),
            tool: Arc::clone(self.inner.name()),
            agent: Arc::clone(&context.agent),
            arguments: arguments.clone(),
            by: Arc::clone(by),
            question,
            decision: decision.clone(),
            at: SystemTime::now(),
        };
        context.caller.0.emit(EventKind::ToolApproval(Arc::new(approval)));
        match decision {
            Decision::Approved => self.run_once(arguments, context).await,
            Decision::Changed(arguments) => {
                let ran = format!("`{by}` changed the arguments; the tool ran with {}", question::json(&arguments));
                match self.run_once(arguments, context).await {
                    Ok(content) => Ok(Content { text: format!("{ran}\n{}", content.text).into(), ..content }),
                    Err(error) => Err(ToolError { message: format!("{ran}: {}", error.message).into(), ..error }),
                }
            }
            Decision::Refused(reason) if reason.is_empty() => Err(format!("`{by}` refused").into()),
            Decision::Refused(reason) => Err(format!("`{by}` refused: {reason}").into()),
            Decision::Unanswered(reason) => Err(format!("not approved: {reason}").into()),
        }
    }

    /// Asks the peer. Returns the id of the question, and what the peer decided.
    async fn decision(&self, arguments: &Arguments, context: &ToolContext) -> (CallId, Decision) {
        let text = question::text(self.inner.name(), &context.agent, arguments);
        let mut question = context.caller.forward(Arc::clone(&self.by), text);
        question.forward_mut().answer_type = Some(ExpectedAnswer::of(&self.inner));
        let id = question.call_id();
        let asking = question.into_future();
        let answer = match self.within {
            None => asking.await,
            Some(limit) => match tokio::time::timeout(limit, asking).await {
                Ok(answer) => answer,
                Err(_) => return (id, unanswered(format!("no answer of `{}` within {limit:?}", self.by))),
            },
        };
        let decision = match answer.map(|answer| answer::parse(&answer.output)) {
            Ok(Ok(Answer::Yes)) => Decision::Approved,
            Ok(Ok(Answer::YesWith(other))) if other == *arguments => Decision::Approved,
            Ok(Ok(Answer::YesWith(arguments))) => Decision::Changed(arguments),
            Ok(Ok(Answer::No(reason))) => Decision::Refused(reason),
            Ok(Err(problem)) => Decision::Refused(problem.into()),
            Err(CallError::Misfit { problem, .. }) => Decision::Refused(problem),
            Err(error) => unanswered(error),
        };
        (id, decision)
    }

    /// Runs the tool. A failure of the network loses its kind, so that the core does not run what was approved again.
    async fn run_once(&self, arguments: Arguments, context: ToolContext) -> Result<Content, ToolError> {
        self.inner.call(arguments, context).await.map_err(|error| match error.kind {
            ToolErrorKind::Network => ToolError { kind: ToolErrorKind::Other, ..error },
            _ => error,
        })
    }
}

fn unanswered(reason: impl Display) -> Decision {
    Decision::Unanswered(reason.to_string().into())
}

impl ToolWrapper for Approved {
    fn inner(&self) -> &InnerTool {
        &self.inner
    }

    fn run(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        Box::pin(self.call(arguments, context))
    }

    /// Refuses the peer itself, before a cache or another peer that must approve.
    fn authorize(&self, context: &ToolContext) -> Result<(), ToolError> {
        self.inner.authorize(context)?;
        match key(&self.by) == key(&context.agent) {
            true => Err(format!("not approved: `{}` cannot approve its own call", self.by).into()),
            false => Ok(()),
        }
    }
}

impl Log {
    /// The decisions on tool calls that needed an [approval](crate::ToolExt::approved_by), in order.
    pub fn approvals(&self) -> impl Iterator<Item = &Approval> {
        self.entries.iter().filter_map(|entry| match entry {
            LogEntry::Approval(approval) => Some(&**approval),
            _ => None,
        })
    }
}
