//! The team that performs a program: its model, tools, users and actors.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::tool::{self, Blocking};
use agentouto::{
    Agent, Arguments, BoxFuture, BuildError, CallError, CallId, Caller, ChatMessage, Content, DeltaSink, Forward,
    Incoming, Progress, Provider, ProviderError, ProviderErrorKind, Reply, Request, Runtime, Tool, ToolContext,
    ToolError, ToolOutput, ToolSpec,
};
use futures_util::future::join_all;
use futures_util::poll;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::oneshot;

use crate::program::{Behaviour, How, Node, Who};
use crate::world::{Expected, Kept, World, lock, yield_now};

/// How long an impatient tool waits.
const CALL_TIMEOUT: Duration = Duration::from_millis(1);

pub(crate) const ACTORS: [Who; 3] = [Who::SpawningActor, Who::SerialActor, Who::CrashingActor];

/// The runtime with everything that a program may call.
pub(crate) fn runtime(world: &Arc<World>, actors: &[ActorRef<ActorMessage>]) -> Result<Runtime, BuildError> {
    let computing = Arc::clone(world);
    let scripted = Scripted::computed(move |request: &Request| reply(&computing, request));
    let mut builder = Runtime::builder()
        .provider("model", Model { world: Arc::clone(world), scripted })
        .agents([0, 1].map(|agent| Agent::new(Who::Agent(agent).name(), "Work.")))
        .agent(versioned(0))
        .tool(function(world, Who::Function.name()))
        .tool(function(world, Who::ReplacedTool.name()))
        .tool(blocking(world))
        .tool(WithContext { world: Arc::clone(world), who: Who::Context })
        .tool(WithContext { world: Arc::clone(world), who: Who::Always })
        .call_ids(CallId::seeded(world.program.seed));
    if let Some(threads) = world.program.threads {
        builder = builder.blocking_threads(threads);
    }
    for nth in [0, 1] {
        let world = Arc::clone(world);
        builder = builder.user(Who::User(nth).name(), "Answers.", move |forward: Arc<Forward>| {
            let (world, node) = (Arc::clone(&world), node_of(&forward.content.text));
            let alive = world.enter(node);
            async move {
                let _alive = alive;
                perform(&world, node, None).await.map_err(|error| CallError::failed(&*error.message))
            }
        });
    }
    for (who, actor) in ACTORS.iter().zip(actors) {
        builder = builder.actor(who.name(), "Answers.", actor.clone());
    }
    builder.build()
}

/// The agent of many versions.
pub(crate) fn versioned(version: usize) -> Agent {
    Agent::new(Who::Versioned.name(), format!("Instructions v{version} of many."))
}

/// The node that a content names.
pub(crate) fn node_of(text: &str) -> usize {
    number_after(text, "n").unwrap_or_else(|| panic!("no node in {text:?}"))
}

fn number_after(text: &str, mark: &str) -> Option<usize> {
    text.split([' ', '.']).find_map(|word| word.strip_prefix(mark)?.parse().ok())
}

/// The model: what can be scripted is, and the rest is done by hand.
struct Model {
    world: Arc<World>,
    scripted: Scripted,
}

impl Provider for Model {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        let (world, node) = (&self.world, node_of(request.context.input()));
        let alive = world.enter(node);
        check_outputs(world, node, request);
        let Node { behaviour, turns, .. } = &world.program.nodes[node];
        let is_last = request.context.turns() == turns.len();
        let is_scripted = !is_last || matches!(behaviour, Behaviour::Return | Behaviour::Finish | Behaviour::Fail);
        let scripted = is_scripted.then(|| self.scripted.reply(request, deltas));
        Box::pin(async move {
            let _alive = alive;
            match scripted {
                Some(scripted) => scripted.await,
                None => {
                    let said = perform(world, node, None).await;
                    said.map(Reply::text).map_err(|error| ProviderError::new(ProviderErrorKind::Other, error.message))
                }
            }
        })
    }
}

/// What the script says: the calls of the turn, or the end.
fn reply(world: &World, request: &Request) -> ScriptedReply {
    let node = node_of(request.context.input());
    let Node { behaviour, turns, .. } = &world.program.nodes[node];
    let Some(turn) = turns.get(request.context.turns()) else {
        return match behaviour {
            Behaviour::Finish => {
                ScriptedReply::from(Reply::finish(&text_of(node))).after(Duration::ZERO).in_pieces(["n"])
            }
            Behaviour::Fail => ScriptedReply::error(ProviderError::new(ProviderErrorKind::Other, "drawn: a failure")),
            _ => Reply::text(text_of(node)).into(),
        };
    };
    let act = |reply: Reply, child: &usize| match world.program.nodes[*child].who {
        who if who.is_tool() => reply.and_tool(who.name(), json!({ "node": child })),
        _ => {
            let (name, content) = world.address(*child);
            reply.and_call_agent(name, &content)
        }
    };
    turn.iter().fold(Reply::default().usage(1, 1), act).into()
}

fn text_of(node: usize) -> String {
    format!("n{node}")
}

/// Compares what the tools and calls of the last turn gave, in their order, with what the program says; and the
/// instructions with the newest at the time of the call.
fn check_outputs(world: &World, node: usize, request: &Request) {
    let Node { who, turns, .. } = &world.program.nodes[node];
    if *who == Who::Versioned {
        let version = |text: &str| number_after(text, "v").unwrap_or_else(|| panic!("no version in {text:?}"));
        let (told, newest) = (version(request.context.system()), version(request.context.input()));
        if told < newest {
            world.fail(format!("n{node}: called when v{newest} had joined, told the instructions of v{told}"));
        }
    }
    let Some(before) = request.context.turns().checked_sub(1) else { return };
    let messages: Vec<_> = request.context.messages().collect();
    let outputs = messages.iter().rev().map_while(|message| match message {
        ChatMessage::Tool { output, .. } => Some(output),
        _ => None,
    });
    let outputs: Vec<_> = outputs.collect();
    if outputs.len() != turns[before].len() {
        world.fail(format!("n{node}: {} outputs for {} calls", outputs.len(), turns[before].len()));
    }
    for (child, output) in turns[before].iter().zip(outputs.iter().rev()) {
        check_output(world, *child, output);
    }
}

fn check_output(world: &World, node: usize, output: &ToolOutput) {
    let text = &*output.content.text;
    let is_right = match world.expected(node) {
        Expected::Text => !output.is_error && text == text_of(node),
        Expected::Failure(words) => output.is_error && text.contains(words),
        Expected::Anything => output.is_error || text == text_of(node),
    };
    let is_cancelled = output.is_error && (text.contains("cancelled") || text.contains("shut down"));
    let is_lost = world.is_lost(world.program.nodes[node].root);
    let is_excused = is_lost || (is_cancelled && world.may_be_cancelled(node));
    if !is_right && !is_excused && world.parts.checks("results") {
        world.fail(format!("n{node} was to give its model {:?}, and gave {text:?}", world.expected(node)));
    }
}

#[derive(Deserialize, JsonSchema)]
struct Which {
    node: usize,
}

pub(crate) fn function(world: &Arc<World>, name: &'static str) -> impl Tool + use<> {
    let world = Arc::clone(world);
    tool::function(name, "Works.", move |Which { node }: Which| {
        let world = Arc::clone(&world);
        let alive = world.enter(node);
        async move {
            let _alive = alive;
            perform(&world, node, None).await
        }
    })
}

fn blocking(world: &Arc<World>) -> impl Tool + use<> {
    let world = Arc::clone(world);
    tool::blocking(Who::Blocking.name(), "Blocks.", move |Which { node }: Which| {
        let _blocking = world.enter_blocking(node);
        match world.program.nodes[node].behaviour {
            Behaviour::Fail => return Err("drawn: a failure"),
            Behaviour::Panic(payload) => payload.panic(),
            Behaviour::Blocked => world.block(),
            Behaviour::BlockedOnChannel => world.released().blocking_recv().map_err(|_| "the channel broke")?,
            Behaviour::OwnRuntime => {
                let own =
                    tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(|_| "no runtime")?;
                own.block_on(tokio::time::sleep(Duration::from_micros(10)));
            }
            _ => {}
        }
        Ok(text_of(node))
    })
}

/// A tool that needs its context.
struct WithContext {
    world: Arc<World>,
    who: Who,
}

impl Tool for WithContext {
    fn spec(&self) -> ToolSpec {
        let parameters = json!({ "type": "object", "properties": { "node": { "type": "integer" } } });
        ToolSpec { name: self.who.name().into(), description: "Works.".into(), parameters }
    }

    fn call(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        let world = Arc::clone(&self.world);
        let node = arguments["node"].as_u64().expect("a node") as usize;
        let (alive, blocking) = match self.who {
            Who::Always => (None, Some(world.enter_blocking(node))),
            _ => (Some(world.enter(node)), None),
        };
        Box::pin(async move {
            let _held = (alive, blocking);
            perform(&world, node, Some(context)).await.map(Into::into)
        })
    }

    fn blocking(&self) -> Blocking {
        if self.who == Who::Always { Blocking::Always } else { Blocking::Never }
    }
}

/// Does what a node does that is no actor.
async fn perform(world: &Arc<World>, node: usize, context: Option<ToolContext>) -> Result<String, ToolError> {
    match world.program.nodes[node].behaviour {
        Behaviour::Fail => return Err("drawn: a failure".into()),
        Behaviour::Panic(payload) => payload.panic(),
        Behaviour::Yield(times) => yield_now(times).await,
        Behaviour::Park(holding) => {
            let _held = holding.take();
            std::future::pending::<()>().await;
        }
        Behaviour::ReturnHolding => {
            let _held = crate::program::Holding::PanicOnDrop.take();
            tokio::task::yield_now().await;
        }
        Behaviour::Ready => loop_of_ready_awaits(node, || world.is_stopped()).await,
        Behaviour::TimedOut => {
            let _ = tokio::time::timeout(CALL_TIMEOUT, loop_of_ready_awaits(node, || world.is_abandoned())).await;
        }
        Behaviour::ShutDown => {
            world.begin_shutdown();
            if let Some(runtime) = world.runtime() {
                runtime.shutdown().await;
            }
        }
        Behaviour::Progress => {
            let progress = Progress { done: 1.0, ..Progress::default() };
            context.iter().for_each(|context| context.progress(progress.clone()));
        }
        Behaviour::Call(how) => {
            let context = context.expect("a context");
            if how == How::KeepsCaller && node.is_multiple_of(2) {
                world.keep(Kept::Context(node, context));
            } else {
                call(world, node, &context.caller, how).await;
            }
        }
        _ => {}
    }
    Ok(text_of(node))
}

/// Awaits what is ready at once. Tokio's budget is the only thing that interrupts it.
async fn loop_of_ready_awaits(node: usize, is_over: impl Fn() -> bool) {
    let mutex = tokio::sync::Mutex::new(());
    while !is_over() {
        match node.is_multiple_of(2) {
            true => drop(mutex.lock().await),
            false => tokio::task::coop::consume_budget().await,
        }
    }
}

/// Calls the children of a node.
async fn call(world: &Arc<World>, node: usize, caller: &Caller, how: How) {
    let children = world.program.nodes[node].turns.first().map_or(&[][..], |turn| turn);
    let calling = |child: usize| {
        let (name, content) = world.address(child);
        caller.call_agent(name, content)
    };
    let in_turn = async {
        for child in children {
            world.check_result(*child, &calling(*child).await);
        }
    };
    match how {
        How::InTurn => in_turn.await,
        How::BlockOn => tokio::runtime::Handle::current().block_on(in_turn),
        How::AtOnce => {
            join_all(children.iter().map(|child| async { world.check_result(*child, &calling(*child).await) })).await;
        }
        How::Spawned | How::Detached => {
            let ends = children.iter().map(|child| {
                let (child, calling, checking, (end, ended)) =
                    (*child, calling(*child), Arc::clone(world), oneshot::channel());
                world.spawn(async move {
                    checking.check_result(child, &calling.await);
                    let _ = end.send(());
                });
                ended
            });
            let ends: Vec<oneshot::Receiver<()>> = ends.collect();
            if how == How::Spawned {
                join_all(ends).await;
            }
        }
        How::Unpolled => children.iter().for_each(|child| world.keep(Kept::Unpolled(*child, calling(*child)))),
        How::PolledOnce => {
            for child in children {
                let mut calling = calling(*child);
                match poll!(&mut calling) {
                    std::task::Poll::Ready(result) => world.check_result(*child, &result),
                    std::task::Poll::Pending => world.keep(Kept::PolledOnce(*child, calling)),
                }
            }
        }
        How::DroppedAfterOnePoll => {
            for child in children {
                let _ = poll!(&mut calling(*child));
            }
        }
        How::WithTimeout => {
            let calls = children.iter().map(|child| async {
                if let Ok(result) = tokio::time::timeout(CALL_TIMEOUT, calling(*child)).await {
                    world.check_result(*child, &result);
                }
            });
            join_all(calls).await;
        }
        How::KeepsCaller => world.keep(Kept::Caller(node, caller.clone())),
    }
}

/// What an actor of the team is sent.
pub(crate) enum ActorMessage {
    Forward(Incoming),
    /// Asks whether the actor is free.
    Ping(oneshot::Sender<()>),
}

impl From<Incoming> for ActorMessage {
    fn from(incoming: Incoming) -> Self {
        Self::Forward(incoming)
    }
}

/// An actor of the team. What is never answered stays in its state.
pub(crate) struct TestActor {
    pub(crate) world: Arc<World>,
    pub(crate) who: Who,
}

impl Actor for TestActor {
    type Msg = ActorMessage;
    type State = Vec<Incoming>;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<ActorMessage>, (): ()) -> Result<Vec<Incoming>, ActorProcessingErr> {
        Ok(Vec::new())
    }

    async fn handle(
        &self,
        me: ActorRef<ActorMessage>,
        message: ActorMessage,
        parked: &mut Vec<Incoming>,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ActorMessage::Forward(incoming) => self.serve(me, incoming, parked).await,
            ActorMessage::Ping(free) => drop(free.send(())),
        }
        Ok(())
    }
}

impl TestActor {
    async fn serve(&self, me: ActorRef<ActorMessage>, incoming: Incoming, parked: &mut Vec<Incoming>) {
        let world = Arc::clone(&self.world);
        world.tick();
        let node = node_of(&incoming.forward.content.text);
        match world.program.nodes[node].behaviour {
            Behaviour::Yield(times) => world.clone().spawn(async move {
                yield_now(times).await;
                incoming.reply.send(Ok::<_, CallError>(text_of(node)));
            }),
            Behaviour::Fail => incoming.reply.send(Err::<String, _>(CallError::failed("drawn: a failure"))),
            Behaviour::Park(_) => parked.push(incoming),
            Behaviour::AwaitCancellation => world.spawn(async move { incoming.reply.cancelled().await }),
            Behaviour::Drop => drop(incoming),
            Behaviour::Panic(payload) => payload.panic(),
            Behaviour::Kill => {
                let child = world.program.nodes[node].turns[0][0];
                let (name, content) = world.address(child);
                let mut calling = incoming.caller.call_agent(name, content);
                let is_under_way = poll!(&mut calling).is_pending();
                me.kill();
                if is_under_way {
                    let _ = calling.await;
                }
            }
            Behaviour::CallAfterReply => {
                incoming.reply.send(Ok::<_, CallError>(text_of(node)));
                refused(&world, world.program.nodes[node].turns[0][0], &incoming.caller).await;
            }
            Behaviour::Call(how) => {
                let serving = async move {
                    call(&world, node, &incoming.caller, how).await;
                    incoming.reply.send(Ok::<_, CallError>(text_of(node)));
                };
                if self.who == Who::SerialActor { serving.await } else { self.world.spawn(serving) }
            }
            _ => incoming.reply.send(Ok::<_, CallError>(text_of(node))),
        }
    }
}

/// Calls in the name of what has ended, which must not begin anything.
pub(crate) async fn refused(world: &Arc<World>, node: usize, caller: &Caller) {
    let (name, content) = world.address(node);
    let result = caller.call_agent(name, content).await;
    if !matches!(result, Err(CallError::Cancelled | CallError::ShutDown)) {
        world.fail(format!("a call for n{node} in the name of what had ended gave {result:?}"));
    }
}

/// Uses what a tool or an actor kept, when it must be of no use any more.
pub(crate) async fn use_kept(world: &Arc<World>, kept: Kept) {
    match kept {
        Kept::Unpolled(node, calling) => {
            let result = calling.await;
            if !matches!(result, Err(CallError::Cancelled | CallError::ShutDown)) {
                world.fail(format!("n{node} was called by what had ended before the first poll, and gave {result:?}"));
            }
        }
        Kept::PolledOnce(node, calling) => world.check_result(node, &calling.await),
        Kept::Caller(node, caller) => refused(world, first_child(world, node), &caller).await,
        Kept::Context(node, context) => {
            context.progress(Progress { done: 2.0, ..Progress::default() });
            refused(world, first_child(world, node), &context.caller).await;
        }
    }
}

fn first_child(world: &World, node: usize) -> usize {
    world.program.nodes[node].turns[0][0]
}

/// Replaces the agent of many versions. From when this has returned, calls are told the new instructions.
pub(crate) fn replace_versioned(world: &World, runtime: &Runtime) {
    // A waker may still be at it on another thread.
    let _alone = lock(&world.replacing);
    let next = world.version.load(Ordering::SeqCst) + 1;
    runtime.leave(Who::Versioned.name());
    if let Err(error) = runtime.join(versioned(next)) {
        world.fail(format!("v{next} could not join: {error}"));
    }
    world.version.store(next, Ordering::SeqCst);
}
