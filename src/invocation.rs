//! The actor that lives for one Forward. [`Life::live`] is the agent loop.
//!
//! It reaches the world through its [`Doors`] alone: a provider, the tools, and `deliver`. Between them it
//! is deterministic. It lives unlinked; whoever called it holds a guard that kills it.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use futures_util::{FutureExt as _, StreamExt as _, poll};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::task::coop;
use tracing::Instrument as _;

use crate::builtin;
use crate::context::Context;
use crate::error::{CallError, ProviderError};
use crate::event::EventKind;
use crate::message::{Answerer, CallAgent, CallId, Caller, Content, Forward, Name, Return};
use crate::prompt::Prompt;
use crate::provider::{Growth, Reply, Request};
use crate::scope::{Alive, CallIds, Scope};
use crate::snapshot::{AgentEntry, Snapshot};
use crate::span;
use crate::tool::{
    Arguments, Blocking, Progress, Tool, ToolCall, ToolCallId, ToolContext, ToolError, ToolErrorKind, ToolOutput,
};
use crate::turn::{self, Action, Step};

/// The actor. Its state is the proof that it is alive.
pub(crate) struct Invocation;

/// Its one message.
pub(crate) struct Begin {
    pub(crate) forward: Arc<Forward>,
    pub(crate) mind: Mind,
    pub(crate) scope: Scope,
    pub(crate) reply: RpcReplyPort<Return>,
}

/// Who thinks.
pub(crate) enum Mind {
    /// A model, for an agent.
    Model(Doors),
    /// A person or a service, for a user.
    Person(Arc<dyn Answerer>),
}

/// All that an agent's invocation is handed.
pub(crate) struct Doors {
    pub(crate) entry: Arc<AgentEntry>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) deliver: Arc<dyn Deliver>,
}

/// The door through which a Forward leaves.
pub(crate) trait Deliver: Send + Sync {
    /// Sends a Forward at once; its Return is the future's value. Dropping the future cancels the call.
    fn deliver(self: Arc<Self>, forward: Forward, scope: &Scope) -> BoxFuture<'static, Return>;
}

impl Actor for Invocation {
    type Msg = Begin;
    type State = Alive;
    type Arguments = Alive;

    async fn pre_start(&self, _: ActorRef<Begin>, alive: Alive) -> Result<Alive, ActorProcessingErr> {
        Ok(alive)
    }

    async fn handle(&self, myself: ActorRef<Begin>, begin: Begin, _: &mut Alive) -> Result<(), ActorProcessingErr> {
        let Begin { forward, mind, scope, reply } = begin;
        // Boxed, because every future around it would hold room for it twice.
        let answering = Box::pin(AssertUnwindSafe(answer(&forward, mind, &scope)).catch_unwind());
        let result = match scope.unless_cancelled(answering).await {
            Some(Ok(result)) => result,
            Some(Err(panic)) => {
                Err(CallError::Panicked { name: Arc::clone(&forward.receiver), message: panic_text(&*panic) })
            }
            None => Err(CallError::Cancelled),
        };
        let is_cancelled = result == Err(CallError::Cancelled);
        if reply.send(forward.answer(result)).is_err() && !is_cancelled {
            scope.show(&forward, || EventKind::LateReturn { sender: Arc::clone(&forward.receiver) });
        }
        myself.stop(None);
        Ok(())
    }
}

async fn answer(forward: &Arc<Forward>, mind: Mind, scope: &Scope) -> Result<Content, CallError> {
    let span = span::invocation(forward, scope);
    let result = match mind {
        Mind::Model(doors) => {
            let mut life = Life::new(forward, doors, scope);
            life.live().instrument(span.clone()).await
        }
        Mind::Person(answerer) => answerer.answer(Arc::clone(forward)).instrument(span.clone()).await,
    };
    span::answered(&span, &result, scope);
    result
}

/// What one invocation of an agent knows and does.
struct Life<'a> {
    forward: &'a Arc<Forward>,
    scope: &'a Scope,
    doors: Doors,
    /// Held, so that other invocations of the agent share it.
    _prompt: Arc<Prompt>,
    request: Request,
    /// How many tool calls came before those of the current turn.
    calls: u64,
}

impl<'a> Life<'a> {
    fn new(forward: &'a Arc<Forward>, doors: Doors, scope: &'a Scope) -> Self {
        let Doors { entry, snapshot, .. } = &doors;
        let prompt = snapshot.roster.prompt(&entry.agent);
        let request = Request {
            call_id: forward.call_id,
            agent: Arc::clone(&entry.agent),
            context: Context::new(Arc::clone(&prompt.text), forward),
            tools: Arc::clone(snapshot.tools.specs()),
        };
        Self { forward, scope, doors, _prompt: prompt, request, calls: 0 }
    }

    /// The agent loop.
    async fn live(&mut self) -> Result<Content, CallError> {
        loop {
            let reply = self.ask().await?;
            let Snapshot { roster, tools } = &*self.doors.snapshot;
            match turn::next(&mut self.request.context, reply, tools, roster) {
                Step::Finish(answer) => return Ok(answer),
                Step::Act(actions) => self.act(actions).await,
            }
        }
    }

    /// Asks the model once.
    async fn ask(&self) -> Result<Reply, CallError> {
        // A model and tools that answer at once must not keep a cancellation from being seen.
        coop::consume_budget().await;
        let AgentEntry { agent, provider_name, provider } = &*self.doors.entry;
        let turn = self.request.context.turns() + 1;
        self.show(|| EventKind::ModelRequest { turn, model: Arc::clone(&agent.model) });
        let mut show = |delta| self.show(|| EventKind::ModelDelta { delta });
        let growth = if self.scope.is_streamed() { Growth::shown_to(&mut show) } else { Growth::unobserved() };
        let mut asking = Asking { life: self, begun: Instant::now(), growth, is_over: false };
        let span = span::chat(&self.request, provider_name);
        let replying = provider.reply(&self.request, &mut asking.growth);
        let reply = self.watched(replying, "provider", provider_name).instrument(span.clone()).await;
        asking.end(&reply);
        span::replied(&span, &reply);
        reply.map_err(|error| CallError::Provider { provider: Arc::clone(provider_name), error })
    }

    /// Carries out all actions of a turn at once, and records what came of them in order.
    async fn act(&mut self, actions: Vec<Action>) {
        let calls = self.request.context.last_tool_calls();
        let acting = calls.iter().zip(actions).zip(self.calls..).map(|((call, action), nth)| {
            let id = self.forward.call_id.child(nth);
            match action {
                Action::CallAgent { agent, message } => Acting::Calling(self.call_agent(id, agent, message)),
                Action::UseTool { tool, arguments } => Acting::Using(self.use_tool(id, call, tool, arguments)),
                Action::Refuse { reason } => Acting::Refused(self.refuse(call, &reason)),
            }
        });
        // Every Forward is sent before the first future is polled, so that they leave in order.
        let acting: Vec<_> = acting.collect();
        let outputs = all(acting).await;
        self.calls += outputs.len() as u64;
        self.request.context.answer(outputs);
    }

    fn call_agent(&self, call_id: CallId, agent: Name, message: Arc<str>) -> BoxFuture<'static, Return> {
        let Forward { call_id: parent, receiver: name, .. } = &**self.forward;
        let forward = Forward::new(call_id, Some(*parent), name, agent, message.into());
        Arc::clone(&self.doors.deliver).deliver(forward, self.scope)
    }

    fn use_tool<'b>(
        &'b self,
        id: CallId,
        call: &'b ToolCall,
        tool: Arc<dyn Tool>,
        arguments: Arguments,
    ) -> BoxFuture<'b, ToolOutput> {
        let scope = self.scope.child();
        let context = ToolContext {
            call_id: self.forward.call_id,
            agent: Arc::clone(&self.forward.receiver),
            tool_call_id: Arc::clone(&call.id),
            caller: Caller(Arc::new(Line {
                deliver: Arc::clone(&self.doors.deliver),
                scope: scope.clone(),
                forward: Arc::clone(self.forward),
                ids: CallIds::under(id),
            })),
        };
        Box::pin(async move {
            let _leftovers = scope.cancel_on_drop();
            self.show(|| EventKind::ToolStart { call: call.clone() });
            let begun = Instant::now();
            let span = span::tool(call, self.scope);
            let running = Box::pin(persist(&tool, call, arguments, context));
            let running = self.watched(running, "tool", &call.name);
            let result = match AssertUnwindSafe(running.instrument(span.clone())).catch_unwind().await {
                Ok(result) => result,
                Err(panic) => Err(format!("panicked: {}", panic_text(&*panic)).into()),
            };
            let result = result.map_err(|error| format!("[{}] {}", call.name, error.message));
            let output = ToolOutput::from_result(result);
            span::ran(&span, &output, self.scope);
            self.show(|| EventKind::ToolEnd {
                id: Arc::clone(&call.id),
                name: Arc::clone(&call.name),
                error: output.is_error.then(|| Arc::clone(&output.content.text)),
                latency: begun.elapsed(),
            });
            output
        })
    }

    fn refuse(&self, call: &ToolCall, reason: &str) -> ToolOutput {
        self.show(|| EventKind::ToolRefused { call: call.clone(), reason: reason.into() });
        ToolOutput::from_result(Err(format!("[{}] {reason}", call.name)))
    }

    fn show(&self, kind: impl FnOnce() -> EventKind) {
        self.scope.show(self.forward, kind);
    }

    /// The same future, reported when it holds its thread for too long.
    fn watched<F: Future + Unpin>(&'a self, future: F, what: &'static str, name: &'a str) -> Watched<'a, F> {
        Watched { future, life: self, what, name }
    }
}

/// One action under way.
enum Acting<'a> {
    Calling(BoxFuture<'static, Return>),
    Using(BoxFuture<'a, ToolOutput>),
    Refused(ToolOutput),
}

impl Future for Acting<'_> {
    type Output = ToolOutput;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<ToolOutput> {
        match &mut *self {
            Self::Calling(answering) => {
                answering.poll_unpin(context).map(|answer| ToolOutput::from_result(answer.result))
            }
            Self::Using(running) => running.poll_unpin(context),
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
async fn all(mut acting: Vec<Acting<'_>>) -> Vec<ToolOutput> {
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

/// How long to wait before a tool is run again that says that the network failed.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(1)];

/// Runs a tool, and once more where it says that the network failed.
async fn persist(
    tool: &Arc<dyn Tool>,
    call: &ToolCall,
    mut arguments: Arguments,
    context: ToolContext,
) -> Result<Content, ToolError> {
    for pause in PAUSES {
        match run(tool, arguments, context.clone()).await {
            Err(error) if error.kind == ToolErrorKind::Network => {
                tracing::info!(tool = &*call.name, ?pause, "a tool whose network failed is run again");
                tokio::time::sleep(pause).await;
            }
            result => return result,
        }
        // They were read once, so they can be read again.
        arguments = builtin::arguments(&call.arguments).unwrap_or_default();
    }
    run(tool, arguments, context).await
}

/// Runs a tool where it belongs: here, or on a thread that it may block.
pub(crate) async fn run(
    tool: &Arc<dyn Tool>,
    arguments: Arguments,
    context: ToolContext,
) -> Result<Content, ToolError> {
    match tool.blocking() {
        Blocking::Never => tool.call(arguments, context).await,
        Blocking::Always => {
            let (tool, threads) = (Arc::clone(tool), tokio::runtime::Handle::current());
            let ended = tokio::task::spawn_blocking(move || threads.block_on(tool.call(arguments, context))).await;
            ended.unwrap_or_else(|failed| match failed.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(cancelled) => Err(cancelled.into()),
            })
        }
    }
}

/// A request to a model that is under way. Dropped before it is over, it says what is known of the cost.
struct Asking<'a> {
    life: &'a Life<'a>,
    begun: Instant,
    growth: Growth<'a>,
    is_over: bool,
}

impl Asking<'_> {
    fn end(mut self, reply: &Result<Reply, ProviderError>) {
        self.is_over = true;
        let latency = self.begun.elapsed();
        self.life.scope.emit(self.life.forward, || match reply {
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
            self.life.scope.emit(self.life.forward, || EventKind::ModelAborted { usage, latency });
        }
    }
}

/// Calls agents for a tool or an actor, in its name.
pub(crate) struct Line {
    pub(crate) deliver: Arc<dyn Deliver>,
    pub(crate) scope: Scope,
    /// What is being served.
    pub(crate) forward: Arc<Forward>,
    pub(crate) ids: CallIds,
}

impl CallAgent for Line {
    fn call_agent(&self, agent: Name, content: Content) -> BoxFuture<'static, Result<Content, CallError>> {
        let Forward { call_id: parent, receiver: name, .. } = &*self.forward;
        let forward = Forward::new(self.ids.draw(), Some(*parent), name, agent, content);
        let scope = self.scope.child();
        Box::pin(held(Arc::clone(&self.deliver).deliver(forward, &scope), scope))
    }

    fn progress(&self, id: &ToolCallId, progress: Progress) {
        self.scope.show(&self.forward, || EventKind::ToolProgress { id: Arc::clone(id), progress });
    }
}

/// Waits for a call that has its own `scope`; dropped, it cancels everything below at once.
pub(crate) async fn held(answering: BoxFuture<'static, Return>, scope: Scope) -> Result<Content, CallError> {
    let _below = scope.cancel_on_drop();
    answering.await.result
}

/// A future whose polls are timed, because one that blocks holds up every other on its thread.
struct Watched<'a, F> {
    future: F,
    life: &'a Life<'a>,
    what: &'static str,
    name: &'a str,
}

/// How long one poll may take before it is reported.
const LONGEST_POLL: Duration = Duration::from_millis(100);

impl<F: Future + Unpin> Future for Watched<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<F::Output> {
        let begun = Instant::now();
        let polled = self.future.poll_unpin(context);
        let duration = begun.elapsed();
        if duration > LONGEST_POLL {
            let Self { life, what, name, .. } = &*self;
            tracing::warn!(?duration, "{what} `{name}` blocked an async thread");
            life.show(|| EventKind::Blocked { what: format!("{what} `{name}`").into(), duration });
        }
        polled
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> Arc<str> {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a value that is not text").into()
}
