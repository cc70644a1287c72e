//! From a Forward to the agent, actor or user that answers it.
//!
//! A Forward's outcome is recorded here, on its caller's side, exactly once, whatever becomes of the callee.

use std::fmt;
use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ractor::{Actor as _, ActorCell, ActorRef, RpcReplyPort};
use tokio::sync::oneshot;
use tokio_util::sync::DropGuard;

use crate::agent::Agent;
use crate::error::{BuildError, CallError};
use crate::event::EventKind;
use crate::invocation::{Begin, Deliver, Doors, Invocation, Line, Mind, panic_text};
use crate::message::{Answerer, CallId, Caller, Content, Forward, Name, Return};
use crate::name::{self, NameMap};
use crate::provider::Provider;
use crate::scope::{Alive, CallIds, Scope};
use crate::snapshot::{AgentEntry, Registry, Snapshot};
use crate::tool::Toolbox;

/// Who there is, and what they work with.
pub(crate) struct Router {
    registry: Registry<Peer>,
    providers: Providers,
    call_ids: CallIdSource,
    /// Above the scopes of all calls.
    root: Scope,
}

/// Providers by name, each with its name.
pub(crate) type Providers = NameMap<(Name, Arc<dyn Provider>)>;

/// What can be called.
#[derive(Clone)]
pub(crate) enum Peer {
    Agent(Arc<AgentEntry>),
    Actor(ActorPeer),
    User(Arc<dyn Answerer>),
}

impl Router {
    pub(crate) fn new(
        providers: Providers,
        tools: Toolbox,
        call_ids: Box<dyn FnMut() -> CallId + Send>,
        root: Scope,
    ) -> Self {
        Self { registry: Registry::new(tools), providers, call_ids: CallIdSource::new(call_ids), root }
    }

    /// An agent as a peer, if its provider is registered.
    pub(crate) fn agent(&self, agent: Agent) -> Result<Peer, BuildError> {
        let known = || {
            let mut known: Vec<Name> = self.providers.iter().map(|(name, _)| Arc::clone(name)).collect();
            known.sort();
            known
        };
        let mut all = self.providers.iter();
        let (provider_name, provider) = match (&agent.provider, all.next(), all.next()) {
            (Some(provider), ..) => self.providers.find(provider).ok_or_else(|| BuildError::UnknownProvider {
                agent: Arc::clone(&agent.name),
                provider: Arc::clone(provider),
                known: known(),
            })?,
            (None, Some(only), None) => only,
            (None, ..) => return Err(BuildError::NoProvider { agent: agent.name, known: known() }),
        }
        .clone();
        Ok(Peer::Agent(Arc::new(AgentEntry { agent: Arc::new(agent), provider_name, provider })))
    }

    pub(crate) fn registry(&self) -> &Registry<Peer> {
        &self.registry
    }

    pub(crate) fn root(&self) -> &Scope {
        &self.root
    }

    /// The id of a call that has no parent.
    pub(crate) fn draw_call_id(&self) -> CallId {
        self.call_ids.draw()
    }

    /// Whether it is a user that answers under that name.
    #[cfg(feature = "mcp")]
    pub(crate) fn is_user(&self, name: &str) -> bool {
        matches!(self.registry.find(name).0, Some((_, Peer::User(_))))
    }

    /// Whether a user may call by that name.
    pub(crate) fn is_free_for_a_user(&self, name: &str) -> bool {
        name::flaw_of_user(name).is_none() && matches!(self.registry.find(name).0, None | Some((_, Peer::User(_))))
    }
}

/// What comes of a Forward to a name that no peer has: it is not sent, and its sender reads who there is.
async fn undelivered(forward: Forward, snapshot: Arc<Snapshot>) -> Return {
    let (agent, roster) = (Arc::clone(&forward.receiver), &snapshot.roster);
    let is_tool = snapshot.tools.contains(&agent);
    let error = CallError::UnknownAgent { nearest: roster.nearest(&agent), count: roster.len(), is_tool, agent };
    forward.answer(Err(error))
}

/// Where the ids of calls come from that have no parent.
struct CallIdSource {
    source: Mutex<Box<dyn FnMut() -> CallId + Send>>,
    /// The thread on which the source runs.
    running: Mutex<Option<ThreadId>>,
}

impl CallIdSource {
    fn new(source: Box<dyn FnMut() -> CallId + Send>) -> Self {
        Self { source: Mutex::new(source), running: Mutex::default() }
    }

    /// The next id; a random one if it is the source itself that makes a call.
    fn draw(&self) -> CallId {
        let set = |thread| *self.running.lock().unwrap_or_else(PoisonError::into_inner) = thread;
        let this = Some(thread::current().id());
        // A source that panicked is not running any more.
        if *self.running.lock().unwrap_or_else(PoisonError::into_inner) == this && !self.source.is_poisoned() {
            return CallId::random();
        }
        let mut source = self.source.lock().unwrap_or_else(|poisoned| {
            self.source.clear_poison();
            poisoned.into_inner()
        });
        set(this);
        let id = source();
        set(None);
        id
    }
}

impl Deliver for Router {
    fn deliver(self: Arc<Self>, mut forward: Forward, scope: &Scope) -> BoxFuture<'static, Return> {
        // One moment for the callee and all that it is told, before anybody hears of the Forward.
        let (peer, snapshot) = self.registry.find(&forward.receiver);
        let Some((name, peer)) = peer else {
            scope.show(&forward, || EventKind::Undelivered { agent: Arc::clone(&forward.receiver) });
            return Box::pin(undelivered(forward, snapshot));
        };
        forward.receiver = name;
        let forward = Arc::new(forward);
        scope.emit(&forward, || EventKind::Forward { forward: Arc::clone(&forward) });
        let pending = Pending { forward: Arc::clone(&forward), scope: scope.clone(), is_over: false };
        // Counted before the look at the scope: whoever cancels it and then waits for its end waits for this one too.
        let alive = scope.population().join();
        if scope.is_cancelled() {
            let is_shut_down = self.root.is_cancelled();
            return pending.on(ready(Err(if is_shut_down { CallError::ShutDown } else { CallError::Cancelled })));
        }
        match peer {
            Peer::Actor(actor) => pending.on(actor.call(forward, scope, self)),
            Peer::User(answerer) => pending.on(invoke(forward, Mind::Person(answerer), scope.clone(), alive)),
            Peer::Agent(entry) => {
                let doors = Doors { entry, snapshot, deliver: Arc::clone(&self) as Arc<dyn Deliver> };
                pending.on(invoke(forward, Mind::Model(doors), scope.clone(), alive))
            }
        }
    }
}

/// Starts an invocation and waits for its Return; kills it when dropped.
async fn invoke(forward: Arc<Forward>, mind: Mind, scope: Scope, alive: Alive) -> Result<Content, CallError> {
    let name = Arc::clone(&forward.receiver);
    let unreachable = |reason: String| CallError::Unreachable { name: Arc::clone(&name), reason: reason.into() };
    // Boxed, so that what it takes to start is gone while the call goes on.
    let starting = Box::pin(Invocation::spawn(None, Invocation, alive));
    let (invocation, _) = starting.await.map_err(|error| unreachable(error.to_string()))?;
    let (reply, answer) = oneshot::channel::<Return>();
    let mut guard = KillOnDrop(Some(invocation.get_cell()));
    let begin = Begin { forward, mind, scope, reply: reply.into() };
    invocation.cast(begin).map_err(|error| unreachable(error.to_string()))?;
    drop(invocation);
    let answer = answer.await;
    guard.0 = None;
    answer.map_or(Err(CallError::Unanswered { name }), |answer| answer.result)
}

/// Kills an actor when dropped.
struct KillOnDrop(Option<ActorCell>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(actor) = &self.0 {
            actor.kill();
        }
    }
}

/// A Forward without an outcome yet. Dropped in that state, its outcome is that it was cancelled.
struct Pending {
    forward: Arc<Forward>,
    scope: Scope,
    is_over: bool,
}

impl Pending {
    fn on<F>(mut self, answer: F) -> BoxFuture<'static, Return>
    where
        F: Future<Output = Result<Content, CallError>> + Send + 'static,
    {
        Box::pin(async move {
            let answered = AssertUnwindSafe(answer).catch_unwind().await;
            let name = || Arc::clone(&self.forward.receiver);
            let result = answered
                .unwrap_or_else(|panic| Err(CallError::Panicked { name: name(), message: panic_text(&*panic) }));
            self.end(result)
        })
    }

    fn end(&mut self, result: Result<Content, CallError>) -> Return {
        self.is_over = true;
        let answer = self.forward.answer(result);
        self.scope.emit(&self.forward, || EventKind::Return { answer: Arc::new(answer.clone()) });
        answer
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(Err(CallError::Cancelled));
        }
    }
}

/// An actor that serves Forwards, with the type of its messages forgotten.
#[derive(Clone)]
pub(crate) struct ActorPeer {
    cell: ActorCell,
    send: Arc<dyn Fn(Incoming) -> bool + Send + Sync>,
}

impl ActorPeer {
    pub(crate) fn new<M: ractor::Message + From<Incoming>>(actor: ActorRef<M>) -> Self {
        Self { cell: actor.get_cell(), send: Arc::new(move |incoming| actor.cast(incoming.into()).is_ok()) }
    }

    /// Hands over a Forward, and waits for the answer or for the actor's end.
    fn call(
        self,
        forward: Arc<Forward>,
        scope: &Scope,
        deliver: Arc<dyn Deliver>,
    ) -> impl Future<Output = Result<Content, CallError>> + Send + use<> {
        let scope = scope.child();
        async move {
            let name = Arc::clone(&forward.receiver);
            let (reply, mut answer) = oneshot::channel();
            // Both ends: what is below ends when the actor has answered, and when the caller cancels.
            let (_cancellation, cancellation) = (scope.cancel_on_drop(), scope.cancel_on_drop());
            let line = Line {
                deliver,
                scope: scope.clone(),
                forward: Arc::clone(&forward),
                ids: CallIds::under(forward.call_id),
            };
            let reply =
                ReplyPort { port: reply.into(), forward: Arc::clone(&forward), scope, _cancellation: cancellation };
            if !(self.send)(Incoming { forward, caller: Caller(Arc::new(line)), reply }) {
                return Err(CallError::Unreachable { name, reason: "the actor has stopped".into() });
            }
            let answered = tokio::select! {
                biased;
                answered = &mut answer => answered.ok(),
                // A port that a dead actor's state still holds would never be heard of.
                _ = self.cell.wait(None) => answer.try_recv().ok(),
            };
            answered.map_or(Err(CallError::Unanswered { name }), |answer: Return| answer.result)
        }
    }
}

/// A [`Forward`] that has reached an actor, with the port for its answer.
///
/// An actor that others may call takes this as a message: `impl From<Incoming> for MyMessage`.
#[derive(Debug)]
#[non_exhaustive]
pub struct Incoming {
    /// What the actor is asked.
    pub forward: Arc<Forward>,
    /// Calls agents on behalf of this Forward. What is under way when it is answered is cancelled.
    pub caller: Caller,
    /// Where the answer goes.
    pub reply: ReplyPort,
}

/// Where an actor's answer to a [`Forward`] goes. Dropped unused, the caller gets an error.
pub struct ReplyPort {
    port: RpcReplyPort<Return>,
    forward: Arc<Forward>,
    scope: Scope,
    _cancellation: DropGuard,
}

impl ReplyPort {
    /// Answers. If the caller has cancelled the call, the answer is dropped and observers are told.
    pub fn send(self, result: Result<impl Into<Content>, CallError>) {
        if self.port.send(self.forward.answer(result.map(Into::into))).is_err() {
            self.scope.show(&self.forward, || EventKind::LateReturn { sender: Arc::clone(&self.forward.receiver) });
        }
    }

    /// Waits until the caller cancels the call. Work for it may end then.
    pub async fn cancelled(&self) {
        self.scope.cancelled().await;
    }
}

impl fmt::Debug for ReplyPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyPort").field("call_id", &self.forward.call_id).finish_non_exhaustive()
    }
}
