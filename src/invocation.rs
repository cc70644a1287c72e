//! The actor that serves one Forward. [`AgentLoop::run`] is the agent loop.
//!
//! An agent has effects only through its provider, its tools and `deliver`. Apart from these, the loop is
//! deterministic. The actor is not linked to another one; its caller holds a guard that kills it.

use std::sync::Arc;

use futures_util::FutureExt as _;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::coop;
use tracing::{Instrument as _, Span};

use crate::answer_type::{Expected, ExpectedAnswer};
use crate::builtin;
use crate::call_id::CallId;
use crate::caller::Answerer;
use crate::content::Content;
use crate::context::Context;
use crate::delivery::{Deliver, Serve, StopHandle, end_after_grace};
use crate::error::CallError;
use crate::event::EventKind;
use crate::fan_out::{ActionFuture, join_in_order};
use crate::model_call;
use crate::name::Name;
use crate::outcome::{CallToken, Parent};
use crate::panics::{catch_panic, drop_catching};
use crate::prompt::Prompt;
use crate::provider::{ProviderError, Request};
use crate::reply::Reply;
use crate::snapshot::{AgentEntry, Snapshot};
use crate::telemetry::InvocationTrace;
use crate::tool_call::{Arguments, ToolCall, ToolOutput};
use crate::tool_interface::Tool;
use crate::tool_run::ToolRun;
use crate::turn::{self, Action, Step};

/// The actor. Its state holds a token of the call, so the call is over at the very end of the actor's task. The thread
/// that then wakes the caller has nothing more to do.
pub(crate) struct Invocation;

/// The callee of an invocation: the model of an agent, or the answerer of a user.
pub(crate) enum Callee {
    Agent {
        entry: Arc<AgentEntry>,
        /// The peers and tools at the time of the Forward.
        snapshot: Arc<Snapshot>,
        deliver: Arc<dyn Deliver>,
    },
    User(Arc<dyn Answerer>),
}

impl Serve for Callee {
    /// Starts an invocation.
    fn start(self: Box<Self>, call: CallToken) -> Option<StopHandle> {
        let outcome = Arc::clone(call.outcome());
        // The future is ready at once, because `pre_start` waits for nothing.
        let spawning = Invocation::spawn(None, Invocation, Start { call, callee: Some(self) });
        match coop::unconstrained(spawning).now_or_never() {
            Some(Ok((invocation, _))) => Some(StopHandle::Kill(invocation.get_cell())),
            failed => {
                let reason = failed.and_then(Result::err).map_or_else(|| "it did not start".into(), |e| e.to_string());
                let name = Arc::clone(&outcome.forward.receiver);
                outcome.resolve(Err(CallError::Unreachable { name, reason: reason.into() }));
                None
            }
        }
    }
}

/// The argument and the state of an invocation: a token of the call, and the callee.
pub(crate) struct Start {
    call: CallToken,
    callee: Option<Box<Callee>>,
}

/// The error with which every invocation ends. An actor that returns an error from `post_start` ends at once and does
/// not read its messages; an invocation gets none.
#[derive(Debug, thiserror::Error)]
#[error("the invocation has ended")]
struct Ended;

impl Actor for Invocation {
    type Msg = ();
    type State = Start;
    type Arguments = Start;

    async fn pre_start(&self, _: ActorRef<()>, start: Start) -> Result<Start, ActorProcessingErr> {
        Ok(start)
    }

    async fn post_start(&self, _: ActorRef<()>, Start { call, callee }: &mut Start) -> Result<(), ActorProcessingErr> {
        if let Some(callee) = callee.take() {
            // Boxed by `catch_panic`, because otherwise every future around it would reserve its size twice.
            let serving = catch_panic(serve(call.clone(), *callee));
            if let Some(result) = call.scope.unless_cancelled(serving).await {
                let name = || Arc::clone(&call.forward.receiver);
                call.resolve(result.unwrap_or_else(|message| Err(CallError::Panicked { name: name(), message })));
                if call.has_leftovers() {
                    tokio::spawn(end_after_grace(Arc::clone(call.outcome())));
                }
            }
        }
        Err(Ended.into())
    }
}

async fn serve(call: CallToken, callee: Callee) -> Result<Content, CallError> {
    let entry = match &callee {
        Callee::Agent { entry, .. } => Some(entry),
        Callee::User(_) => None,
    };
    let trace = call.scope.telemetry().invocation(&call.forward, entry);
    let span = trace.as_ref().map_or_else(Span::none, |trace| trace.span());
    let result = match callee {
        Callee::Agent { entry, snapshot, deliver } => {
            let mut agent = AgentLoop::new(&call, entry, snapshot, deliver, trace.clone());
            let result = agent.run().instrument(span).await;
            // This may drop the last reference to peers and tools that were removed meanwhile.
            drop_catching(agent);
            result
        }
        Callee::User(answerer) => {
            let answer = answerer.answer(Arc::clone(&call.forward)).instrument(span).await;
            answer.and_then(|answer| call.forward.fit(answer))
        }
    };
    trace.iter().for_each(|trace| trace.end(&result));
    result
}

/// The state of one invocation of an agent.
struct AgentLoop<'a> {
    call: &'a CallToken,
    entry: Arc<AgentEntry>,
    snapshot: Arc<Snapshot>,
    deliver: Arc<dyn Deliver>,
    trace: Option<InvocationTrace>,
    /// Held so that other invocations of the agent share the prompt.
    _prompt: Arc<Prompt>,
    request: Request,
    expected: Expected,
    /// The number of tool calls before those of the current turn.
    calls: u64,
}

impl<'a> AgentLoop<'a> {
    fn new(
        call: &'a CallToken,
        entry: Arc<AgentEntry>,
        snapshot: Arc<Snapshot>,
        deliver: Arc<dyn Deliver>,
        trace: Option<InvocationTrace>,
    ) -> Self {
        let forward = &call.forward;
        let prompt = snapshot.roster.prompt(&entry.agent);
        let answer_type = forward.answer_type.clone().or_else(|| entry.agent.answer_type.clone());
        let request = Request {
            call_id: forward.call_id,
            agent: Arc::clone(&entry.agent),
            context: Context::new(Arc::clone(&prompt.text), Arc::clone(&forward.history), forward.content.clone()),
            tools: builtin::with_answer_type(snapshot.tools.specs(), answer_type.as_ref()),
        };
        let expected = answer_type.map(|answer_type| Box::new(ExpectedAnswer::new(answer_type)));
        Self { call, entry, snapshot, deliver, trace, _prompt: prompt, request, expected, calls: 0 }
    }

    /// The agent loop.
    async fn run(&mut self) -> Result<Content, CallError> {
        loop {
            let reply = self.request_reply().await?;
            let Snapshot { roster, tools } = &*self.snapshot;
            match turn::next(&mut self.request.context, reply, tools, roster, &mut self.expected) {
                Step::Finish(answer) => return Ok(answer),
                Step::Act(actions) => self.run_actions(actions).await?,
                Step::Misfit(problem) => return Err(self.call.forward.misfit(problem)),
                Step::Fail(error) => return Err(self.provider_failed(*error)),
            }
        }
    }

    /// Sends one request to the model.
    async fn request_reply(&self) -> Result<Reply, CallError> {
        // The loop must notice a cancellation even if the model and the tools answer at once.
        coop::consume_budget().await;
        model_call::request(self.call, &self.request, &self.entry, self.trace.as_ref()).await
    }

    fn provider_failed(&self, error: ProviderError) -> CallError {
        CallError::Provider { provider: Arc::clone(&self.entry.provider_name), error }
    }

    /// Carries out all actions of a turn at once, and records their outputs in order.
    async fn run_actions(&mut self, actions: Vec<Action>) -> Result<(), CallError> {
        // The model may have answered in the poll in which the call was cancelled.
        if self.call.scope.is_cancelled() {
            return Err(self.call.forward.run.cancelled());
        }
        let calls = self.request.context.last_tool_calls();
        let started = calls.iter().zip(actions).enumerate().map(|(nth, (call, action))| {
            let id = self.call.forward.call_id.child(self.calls + nth as u64);
            match action {
                Action::CallAgent { agent, message } => self.call_agent(id, call, agent, message),
                Action::UseTool { tool, arguments } => {
                    ActionFuture::NotStarted(Some(self.use_tool(id, call, tool, arguments)))
                }
                Action::Refuse { reason } => ActionFuture::Refused(self.refuse(call, &reason)),
            }
        });
        // Every Forward is sent before the first future is polled, so that they leave in order.
        let started: Vec<_> = started.collect();
        let outputs = join_in_order(started).await;
        self.calls += outputs.len() as u64;
        self.request.context.push_outputs(outputs);
        Ok(())
    }

    fn call_agent(&self, call_id: CallId, call: &ToolCall, agent: Name, message: Arc<str>) -> ActionFuture {
        let trace = self.trace.as_ref().map(|trace| trace.transfer(call, self.snapshot.roster.find(&agent)));
        let forward = self.call.forward.below(call_id, agent, message.into());
        let send = || Arc::clone(&self.deliver).deliver(forward, &self.call.scope, Parent::Call(self.call.clone()));
        match trace {
            Some(trace) => ActionFuture::TracedCall(Box::new((trace.span().in_scope(send), trace))),
            None => ActionFuture::Call(send()),
        }
    }

    fn use_tool(&self, id: CallId, call: &ToolCall, tool: Arc<dyn Tool>, arguments: Arguments) -> Box<ToolRun> {
        let (deliver, trace) = (Arc::clone(&self.deliver), self.trace.clone());
        Box::new(ToolRun { agent_call: self.call.clone(), id, call: call.clone(), tool, arguments, deliver, trace })
    }

    fn refuse(&self, call: &ToolCall, reason: &str) -> ToolOutput {
        self.call.emit_to_streams(|| EventKind::ToolRefused { call: call.clone(), reason: reason.into() });
        ToolOutput::from_result(Err(format!("[{}] {reason}", call.name)))
    }
}
