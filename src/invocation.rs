//! The actor that serves one Forward. [`AgentLoop::run`] is the agent loop.
//!
//! An agent reaches the world through its provider, its tools and `deliver` alone. Between them the loop is deterministic.
//! The actor is not linked to another one; its caller holds a guard that kills it.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use futures_util::stream::FuturesOrdered;
use futures_util::{FutureExt as _, StreamExt as _, poll};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::runtime::Handle;
use tokio::task::coop;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use crate::call_id::CallId;
use crate::caller::Answerer;
use crate::content::Content;
use crate::context::Context;
use crate::delivery::{Deliver, Delivery, Serve, StopHandle, end_after_grace};
use crate::error::CallError;
use crate::event::EventKind;
use crate::message::Forward;
use crate::name::Name;
use crate::outcome::{CallToken, Outcome, Parent};
use crate::panics::{catch_panic, drop_catching};
use crate::prompt::Prompt;
use crate::provider::ProviderError;
use crate::provider::{DeltaSink, Request};
use crate::reply::Reply;
use crate::snapshot::{AgentEntry, Snapshot};
use crate::span::{self, InvocationSpan};
use crate::tool::Tool;
use crate::tool_call::{Arguments, ToolCall, ToolOutput};
use crate::tool_run::{PollTimer, ToolRun, aborted, call_output};
use crate::turn::{self, Action, Step};

/// The actor. Its state is its part of the call: the call is over at the very end of the actor's task, so that the thread
/// which the caller wakes is the one that has nothing more to do.
pub(crate) struct Invocation;

/// What serves a Forward in an invocation: the model of an agent, or the answerer of a user.
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
        // It is ready at once, since `pre_start` waits for nothing.
        let spawning = Invocation::spawn(None, Invocation, Start { call, callee: Some(self) });
        match coop::unconstrained(spawning).now_or_never() {
            Some(Ok((invocation, _))) => Some(StopHandle::Kill(invocation.get_cell())),
            failed => {
                let reason = failed.and_then(Result::err).map_or_else(|| "it did not start".into(), |e| e.to_string());
                let name = Arc::clone(&outcome.forward().receiver);
                outcome.resolve(Err(CallError::Unreachable { name, reason: reason.into() }));
                None
            }
        }
    }
}

/// What an invocation is started with, and its state: its part of the call, and what serves it.
pub(crate) struct Start {
    call: CallToken,
    callee: Option<Box<Callee>>,
}

/// How every invocation ends. An actor that returns an error from `post_start` ends at once, without a look at the
/// messages, of which an invocation gets none.
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
            // Boxed by `contain`: every future around it would hold room for it twice.
            let serving = catch_panic(serve(call.clone(), *callee));
            if let Some(result) = call.scope().unless_cancelled(serving).await {
                let name = || Arc::clone(&call.forward().receiver);
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
    let span = InvocationSpan::new(call.forward(), call.scope());
    let result = match callee {
        Callee::Agent { entry, snapshot, deliver } => {
            let mut agent = AgentLoop::new(&call, entry, snapshot, deliver);
            let result = agent.run().instrument(span.span()).await;
            // With it goes the last of the peers and tools that have left meanwhile.
            drop_catching(agent);
            result
        }
        Callee::User(answerer) => answerer.answer(Arc::clone(call.forward())).instrument(span.span()).await,
    };
    span.record_result(&result);
    result
}

/// What one invocation of an agent knows and does.
struct AgentLoop<'a> {
    call: &'a CallToken,
    entry: Arc<AgentEntry>,
    snapshot: Arc<Snapshot>,
    deliver: Arc<dyn Deliver>,
    /// Held, so that other invocations of the agent share it.
    _prompt: Arc<Prompt>,
    request: Request,
    /// How many tool calls came before those of the current turn.
    calls: u64,
}

impl<'a> AgentLoop<'a> {
    fn new(call: &'a CallToken, entry: Arc<AgentEntry>, snapshot: Arc<Snapshot>, deliver: Arc<dyn Deliver>) -> Self {
        let forward = call.forward();
        let prompt = snapshot.roster.prompt(&entry.agent);
        let request = Request {
            call_id: forward.call_id,
            agent: Arc::clone(&entry.agent),
            context: Context::new(Arc::clone(&prompt.text), Arc::clone(&forward.history), forward.content.clone()),
            tools: Arc::clone(snapshot.tools.specs()),
        };
        Self { call, entry, snapshot, deliver, _prompt: prompt, request, calls: 0 }
    }

    /// The agent loop.
    async fn run(&mut self) -> Result<Content, CallError> {
        loop {
            let reply = self.request_reply().await?;
            let Snapshot { roster, tools } = &*self.snapshot;
            match turn::next(&mut self.request.context, reply, tools, roster) {
                Step::Finish(answer) => return Ok(answer),
                Step::Act(actions) => self.run_actions(actions).await?,
                Step::Fail(error) => return Err(self.provider_failed(*error)),
            }
        }
    }

    /// Asks the model once.
    async fn request_reply(&self) -> Result<Reply, CallError> {
        // A model and tools that answer at once must not keep a cancellation from being seen.
        coop::consume_budget().await;
        let AgentEntry { agent, provider_name, provider } = &*self.entry;
        let turn = self.request.context.turns() + 1;
        self.call.emit_to_streams(|| EventKind::ModelRequest { turn, model: Arc::clone(&agent.model) });
        let mut emit = |delta| self.call.emit_to_streams(|| EventKind::ModelDelta { delta });
        let deltas = match self.call.scope().is_streamed() {
            true => DeltaSink::to(&mut emit),
            false => DeltaSink::none(),
        };
        let span = span::chat_span(&self.request, provider_name);
        let begun = Instant::now();
        let mut model_call = ModelCallGuard { call: self.call, begun, deltas, is_over: false };
        let replying = provider.reply(&self.request, &mut model_call.deltas);
        let replying = PollTimer::new(replying, begun, self.call, "provider", provider_name);
        let (reply, latency) = replying.instrument(span.clone()).await;
        model_call.end(&reply, latency);
        span::record_reply(&span, &reply);
        reply.map_err(|error| self.provider_failed(error))
    }

    fn provider_failed(&self, error: ProviderError) -> CallError {
        CallError::Provider { provider: Arc::clone(&self.entry.provider_name), error }
    }

    /// Carries out all actions of a turn at once, and records what came of them in order.
    async fn run_actions(&mut self, actions: Vec<Action>) -> Result<(), CallError> {
        // The model may have answered in the poll in which the call was cancelled.
        if self.call.scope().is_cancelled() {
            return Err(CallError::Cancelled);
        }
        let calls = self.request.context.last_tool_calls();
        let started = calls.iter().zip(actions).enumerate().map(|(nth, (call, action))| {
            let id = self.call.forward().call_id.child(self.calls + nth as u64);
            match action {
                Action::CallAgent { agent, message } => ActionFuture::Call(self.call_agent(id, agent, message)),
                Action::UseTool { tool, arguments } => {
                    ActionFuture::not_started(self.use_tool(id, call, tool, arguments))
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

    fn call_agent(&self, call_id: CallId, agent: Name, message: Arc<str>) -> Delivery {
        let Forward { call_id: parent, receiver: name, .. } = &**self.call.forward();
        let forward = Forward::new(call_id, Some(*parent), name, agent, message.into());
        Arc::clone(&self.deliver).deliver(forward, self.call.scope(), Parent::Call(self.call.clone()))
    }

    fn use_tool(&self, id: CallId, call: &ToolCall, tool: Arc<dyn Tool>, arguments: Arguments) -> ToolRun {
        let deliver = Arc::clone(&self.deliver);
        ToolRun { agent_call: self.call.clone(), id, call: call.clone(), tool, arguments, deliver }
    }

    fn refuse(&self, call: &ToolCall, reason: &str) -> ToolOutput {
        self.call.emit_to_streams(|| EventKind::ToolRefused { call: call.clone(), reason: reason.into() });
        ToolOutput::from_result(Err(format!("[{}] {reason}", call.name)))
    }
}

/// One action under way.
enum ActionFuture {
    Call(Delivery),
    NotStarted(Option<Box<ToolRun>>),
    Tool(AbortOnDropHandle<ToolOutput>),
    Refused(ToolOutput),
}

impl ActionFuture {
    fn not_started(run: ToolRun) -> Self {
        Self::NotStarted(Some(Box::new(run)))
    }
}

impl Future for ActionFuture {
    type Output = ToolOutput;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<ToolOutput> {
        if let Self::NotStarted(run) = &mut *self
            && let Some(run) = run.take()
        {
            *self = Self::Tool(run.start());
        }
        match &mut *self {
            Self::Call(delivery) => delivery.poll_unpin(context).map(call_output),
            Self::Tool(running) => running.poll_unpin(context).map(|ended| ended.unwrap_or_else(|_| aborted())),
            Self::NotStarted(_) => Poll::Pending,
            Self::Refused(output) => Poll::Ready(std::mem::take(output)),
        }
    }
}

/// How many actions are started before those started get a turn.
const START_BATCH: usize = 64;

/// Carries out all actions concurrently; their outputs come in order.
///
/// The first of very many may be over before the last is started: what they needed is used again, and no thread is
/// kept for long.
async fn join_in_order(mut actions: Vec<ActionFuture>) -> Vec<ToolOutput> {
    if let [only] = &mut actions[..] {
        let is_call = matches!(only, ActionFuture::Call(_));
        let output = poll_fn(|context| {
            let polled = pin!(coop::unconstrained(&mut *only)).poll(context);
            if is_call && polled.is_pending() {
                exhaust_budget();
            }
            polled
        });
        return vec![output.await];
    }
    let mut outputs = Vec::with_capacity(actions.len());
    let mut running = FuturesOrdered::new();
    let mut waiting = actions.drain(..);
    loop {
        running.extend(waiting.by_ref().take(START_BATCH));
        if waiting.len() == 0 {
            break;
        }
        // Unconstrained, because a budget that runs out half-way would have tokio poll all the others in vain.
        while let Poll::Ready(Some(output)) = poll!(coop::unconstrained(running.next())) {
            outputs.push(output);
        }
        tokio::task::yield_now().await;
    }
    outputs.extend(coop::unconstrained(running.collect::<Vec<_>>()).await);
    outputs
}

/// Uses up the cooperative budget of this task, which waits for one call and nothing else. The callee then waits for its
/// turn in the queue of this tokio worker.
///
/// Otherwise tokio runs it next, and at every fourth link of a chain of calls wakes an idle worker, which finds nothing
/// to do: a quarter of the time of a deep chain.
fn exhaust_budget() {
    if Handle::current().metrics().num_workers() > 1 {
        // No more often than tokio's budget allows, because there may be no limit.
        for _ in (0..128).take_while(|_| coop::has_budget_remaining()) {
            let _ = coop::consume_budget().now_or_never();
        }
    }
}

/// A request to a model that is under way. Dropped before it is over, it says what is known of the cost.
struct ModelCallGuard<'a> {
    call: &'a Outcome,
    begun: Instant,
    deltas: DeltaSink<'a>,
    is_over: bool,
}

impl ModelCallGuard<'_> {
    fn end(mut self, reply: &Result<Reply, ProviderError>, latency: Duration) {
        self.is_over = true;
        self.call.emit(|| match reply {
            Ok(reply) => EventKind::ModelReply {
                usage: reply.usage,
                stop_reason: reply.stop_reason.clone(),
                tool_calls: reply.tool_calls.len(),
                latency,
            },
            Err(error) => EventKind::ModelError { error: error.clone(), latency },
        });
    }
}

impl Drop for ModelCallGuard<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let (usage, latency) = (self.deltas.known_usage(), self.begun.elapsed());
            self.call.emit(|| EventKind::ModelAborted { usage, latency });
        }
    }
}
