//! The actor that lives for one Forward. [`Life::live`] is the agent loop.
//!
//! It reaches the world through its [`Doors`] alone: a provider, the tools, and `deliver`. Between them it
//! is deterministic. It lives unlinked; its caller holds a guard that kills it.

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

use crate::context::Context;
use crate::delivery::{Callee, Deliver, Delivery, Stop, end_in_a_while};
use crate::error::{CallError, ProviderError};
use crate::event::EventKind;
use crate::message::{Answerer, CallId, Content, Forward, Name};
use crate::outcome::{Above, Lease, Outcome};
use crate::panics::{contain, drop_contained};
use crate::prompt::Prompt;
use crate::provider::{Growth, Reply, Request};
use crate::snapshot::{AgentEntry, Snapshot};
use crate::span::{self, InvocationSpan};
use crate::tool::{Arguments, Tool, ToolCall, ToolOutput};
use crate::tool_run::{PollTimer, ToolRun, aborted};
use crate::turn::{self, Action, Step};

/// The actor. Its state is its part of the call: the call is over at the very end of the actor's task, so that the thread
/// which the caller wakes is the one that has nothing more to do.
pub(crate) struct Invocation;

/// Its one message, and what serves the Forward: an agent's model, or a user's answerer.
pub(crate) enum Mind {
    Model(Doors),
    Person(Arc<dyn Answerer>),
}

/// All that an agent's invocation is handed.
pub(crate) struct Doors {
    pub(crate) entry: Arc<AgentEntry>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) deliver: Arc<dyn Deliver>,
}

impl Callee for Mind {
    /// Starts an invocation.
    fn begin(self: Box<Self>, call: Lease) -> Option<Stop> {
        let outcome = Arc::clone(call.outcome());
        // It is ready at once, since `pre_start` waits for nothing.
        let spawning = Invocation::spawn(None, Invocation, Start { call, mind: Some(self) });
        match coop::unconstrained(spawning).now_or_never() {
            Some(Ok((invocation, _))) => Some(Stop::Kill(invocation.get_cell())),
            failed => {
                let reason = failed.and_then(Result::err).map_or_else(|| "it did not start".into(), |e| e.to_string());
                let name = Arc::clone(&outcome.forward().receiver);
                outcome.answer(Err(CallError::Unreachable { name, reason: reason.into() }));
                None
            }
        }
    }
}

/// What an invocation is started with, and its state: its part of the call, and what serves it.
pub(crate) struct Start {
    call: Lease,
    mind: Option<Box<Mind>>,
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

    async fn post_start(&self, _: ActorRef<()>, Start { call, mind }: &mut Start) -> Result<(), ActorProcessingErr> {
        if let Some(mind) = mind.take() {
            // Boxed by `contain`: every future around it would hold room for it twice.
            let serving = contain(serve(call.clone(), *mind));
            if let Some(result) = call.scope().unless_cancelled(serving).await {
                let name = || Arc::clone(&call.forward().receiver);
                call.answer(result.unwrap_or_else(|message| Err(CallError::Panicked { name: name(), message })));
                if call.has_leftovers() {
                    tokio::spawn(end_in_a_while(Arc::clone(call.outcome())));
                }
            }
        }
        Err(Ended.into())
    }
}

async fn serve(call: Lease, mind: Mind) -> Result<Content, CallError> {
    let span = InvocationSpan::new(call.forward(), call.scope());
    let result = match mind {
        Mind::Model(doors) => {
            let mut life = Life::new(&call, doors);
            let result = life.live().instrument(span.span()).await;
            // With it goes the last of the peers and tools that have left meanwhile.
            drop_contained(life);
            result
        }
        Mind::Person(answerer) => answerer.answer(Arc::clone(call.forward())).instrument(span.span()).await,
    };
    span.answered(&result);
    result
}

/// What one invocation of an agent knows and does.
struct Life<'a> {
    call: &'a Lease,
    doors: Doors,
    /// Held, so that other invocations of the agent share it.
    _prompt: Arc<Prompt>,
    request: Request,
    /// How many tool calls came before those of the current turn.
    calls: u64,
}

impl<'a> Life<'a> {
    fn new(call: &'a Lease, doors: Doors) -> Self {
        let (forward, Doors { entry, snapshot, .. }) = (call.forward(), &doors);
        let prompt = snapshot.roster.prompt(&entry.agent);
        let request = Request {
            call_id: forward.call_id,
            agent: Arc::clone(&entry.agent),
            context: Context::new(Arc::clone(&prompt.text), forward),
            tools: Arc::clone(snapshot.tools.specs()),
        };
        Self { call, doors, _prompt: prompt, request, calls: 0 }
    }

    /// The agent loop.
    async fn live(&mut self) -> Result<Content, CallError> {
        loop {
            let reply = self.ask().await?;
            let Snapshot { roster, tools } = &*self.doors.snapshot;
            match turn::next(&mut self.request.context, reply, tools, roster) {
                Step::Finish(answer) => return Ok(answer),
                Step::Act(actions) => self.act(actions).await?,
                Step::Fail(error) => return Err(self.failed(*error)),
            }
        }
    }

    /// Asks the model once.
    async fn ask(&self) -> Result<Reply, CallError> {
        // A model and tools that answer at once must not keep a cancellation from being seen.
        coop::consume_budget().await;
        let AgentEntry { agent, provider_name, provider } = &*self.doors.entry;
        let turn = self.request.context.turns() + 1;
        self.call.show(|| EventKind::ModelRequest { turn, model: Arc::clone(&agent.model) });
        let mut show = |delta| self.call.show(|| EventKind::ModelDelta { delta });
        let growth = match self.call.scope().is_streamed() {
            true => Growth::shown_to(&mut show),
            false => Growth::unobserved(),
        };
        let span = span::chat(&self.request, provider_name);
        let begun = Instant::now();
        let mut asking = Asking { call: self.call, begun, growth, is_over: false };
        let replying = provider.reply(&self.request, &mut asking.growth);
        let replying = PollTimer::new(replying, begun, self.call, "provider", provider_name);
        let (reply, latency) = replying.instrument(span.clone()).await;
        asking.end(&reply, latency);
        span::replied(&span, &reply);
        reply.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: ProviderError) -> CallError {
        CallError::Provider { provider: Arc::clone(&self.doors.entry.provider_name), error }
    }

    /// Carries out all actions of a turn at once, and records what came of them in order.
    async fn act(&mut self, actions: Vec<Action>) -> Result<(), CallError> {
        // The model may have answered in the poll in which the call was cancelled.
        if self.call.scope().is_cancelled() {
            return Err(CallError::Cancelled);
        }
        let calls = self.request.context.last_tool_calls();
        let acting = calls.iter().zip(actions).enumerate().map(|(nth, (call, action))| {
            let id = self.call.forward().call_id.child(self.calls + nth as u64);
            match action {
                Action::CallAgent { agent, message } => Acting::Calling(self.call_agent(id, agent, message)),
                Action::UseTool { tool, arguments } => Acting::waiting(self.use_tool(id, call, tool, arguments)),
                Action::Refuse { reason } => Acting::Refused(self.refuse(call, &reason)),
            }
        });
        // Every Forward is sent before the first future is polled, so that they leave in order.
        let acting: Vec<_> = acting.collect();
        let outputs = all(acting).await;
        self.calls += outputs.len() as u64;
        self.request.context.answer(outputs);
        Ok(())
    }

    fn call_agent(&self, call_id: CallId, agent: Name, message: Arc<str>) -> Delivery {
        let Forward { call_id: parent, receiver: name, .. } = &**self.call.forward();
        let forward = Forward::new(call_id, Some(*parent), name, agent, message.into());
        Arc::clone(&self.doors.deliver).deliver(forward, self.call.scope(), Above::Call(self.call.clone()))
    }

    fn use_tool(&self, id: CallId, call: &ToolCall, tool: Arc<dyn Tool>, arguments: Arguments) -> ToolRun {
        let deliver = Arc::clone(&self.doors.deliver);
        ToolRun { agent_call: self.call.clone(), id, call: call.clone(), tool, arguments, deliver }
    }

    fn refuse(&self, call: &ToolCall, reason: &str) -> ToolOutput {
        self.call.show(|| EventKind::ToolRefused { call: call.clone(), reason: reason.into() });
        ToolOutput::from_result(Err(format!("[{}] {reason}", call.name)))
    }
}

/// One action under way.
enum Acting {
    Calling(Delivery),
    Waiting(Option<Box<ToolRun>>),
    Using(AbortOnDropHandle<ToolOutput>),
    Refused(ToolOutput),
}

impl Acting {
    fn waiting(run: ToolRun) -> Self {
        Self::Waiting(Some(Box::new(run)))
    }
}

impl Future for Acting {
    type Output = ToolOutput;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<ToolOutput> {
        if let Self::Waiting(run) = &mut *self
            && let Some(run) = run.take()
        {
            *self = Self::Using(run.start());
        }
        match &mut *self {
            Self::Calling(delivery) => delivery.poll_unpin(context).map(ToolOutput::from_call),
            Self::Using(running) => running.poll_unpin(context).map(|ended| ended.unwrap_or_else(|_| aborted())),
            Self::Waiting(_) => Poll::Pending,
            Self::Refused(output) => Poll::Ready(std::mem::take(output)),
        }
    }
}

/// How many actions are started before those started get a turn.
const STARTED_AT_ONCE: usize = 64;

/// Carries out all actions concurrently; their outputs come in order.
///
/// The first of very many may be over before the last is started: what they needed is used again, and no thread is
/// kept for long.
async fn all(mut acting: Vec<Acting>) -> Vec<ToolOutput> {
    if let [only] = &mut acting[..] {
        let is_call = matches!(only, Acting::Calling(_));
        let acting = poll_fn(|context| {
            let polled = pin!(coop::unconstrained(&mut *only)).poll(context);
            if is_call && polled.is_pending() {
                queue_callee();
            }
            polled
        });
        return vec![acting.await];
    }
    let mut outputs = Vec::with_capacity(acting.len());
    let mut running = FuturesOrdered::new();
    let mut waiting = acting.drain(..);
    loop {
        running.extend(waiting.by_ref().take(STARTED_AT_ONCE));
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
fn queue_callee() {
    if Handle::current().metrics().num_workers() > 1 {
        // No more often than tokio's budget allows, because there may be no limit.
        for _ in (0..128).take_while(|_| coop::has_budget_remaining()) {
            let _ = coop::consume_budget().now_or_never();
        }
    }
}

/// A request to a model that is under way. Dropped before it is over, it says what is known of the cost.
struct Asking<'a> {
    call: &'a Outcome,
    begun: Instant,
    growth: Growth<'a>,
    is_over: bool,
}

impl Asking<'_> {
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

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let (usage, latency) = (self.growth.known_usage(), self.begun.elapsed());
            self.call.emit(|| EventKind::ModelAborted { usage, latency });
        }
    }
}
