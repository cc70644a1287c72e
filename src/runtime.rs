//! Builds a runtime, runs it, shuts it down.

use std::fmt;
use std::sync::Arc;

use ractor::ActorRef;

use crate::actor_peer::{ActorPeer, Incoming};
use crate::agent::Agent;
use crate::builtin;
use crate::call_id::CallId;
use crate::call_id_source::{CallIdSource, DrawId};
use crate::caller::Answerer;
use crate::content::Content;
use crate::error::BuildError;
use crate::name::Name;
use crate::name::{self, CALL_AGENT, FINISH, USER};
use crate::observers::{Events, RuntimeObservers};
use crate::provider::Provider;
use crate::router::{Peer, Providers, Router};
use crate::scope::Scope;
use crate::threads::{BlockingThreads, DEFAULT_THREADS};
use crate::tool::Tool;
use crate::toolbox::{SpecifiedTool, Toolbox};
use crate::user::{Report, RunError, User};

/// Agents, actors and users who call each other, and the tools and models that they use.
///
/// Cheap to clone; every clone is the same runtime. Two runtimes in one process never see each other. Calls
/// must be made within a [tokio](https://docs.rs/tokio) runtime whose time is enabled, and live no longer than that one.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) router: Arc<Router>,
}

impl Runtime {
    /// A runtime to be filled.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// Calls `entry` as the user `user`, and waits for its answer. Dropping the future cancels the call.
    ///
    /// # Errors
    ///
    /// When the entry has no answer: nobody has that name, its model could not be asked, code panicked, the
    /// runtime was shut down. What goes wrong in the calls below it is told to the models that made them.
    pub async fn run(&self, entry: impl Into<Name>, message: impl Into<Content>) -> Result<Report, RunError> {
        self.user(USER).forward(entry, message).await
    }

    /// A user of that name, who may call anybody. That the name is fit and free is checked at each call, see
    /// [`CallError::NameTaken`](crate::CallError::NameTaken).
    #[must_use]
    pub fn user(&self, name: impl Into<Name>) -> User {
        User::new(Arc::clone(&self.router), name.into())
    }

    /// Adds an agent. Invocations that are under way do not see it in their prompts.
    ///
    /// # Errors
    ///
    /// As [`RuntimeBuilder::build`].
    pub fn join(&self, agent: Agent) -> Result<(), BuildError> {
        join(&self.router, [NewPeer::Agent(agent)])
    }

    /// Adds an actor as a peer. It gets an [`Incoming`] for every Forward; how many at once is up to it.
    ///
    /// An actor handles one message at a time. One that awaits a call of an agent in its handler answers no other
    /// Forward meanwhile; if the agent calls it back, directly or through others, both wait until the call is cancelled.
    /// It should spawn a task for the call and the reply, as `examples/actor_peer.rs` does.
    ///
    /// # Errors
    ///
    /// As [`RuntimeBuilder::build`].
    pub fn join_actor<M>(
        &self,
        name: impl Into<Name>,
        role: impl Into<Arc<str>>,
        actor: ActorRef<M>,
    ) -> Result<(), BuildError>
    where
        M: ractor::Message + From<Incoming>,
    {
        join(&self.router, [NewPeer::Actor(name.into(), role.into(), ActorPeer::new(actor))])
    }

    /// Adds a user that agents can call, and that `answerer` answers for.
    ///
    /// # Errors
    ///
    /// As [`RuntimeBuilder::build`].
    pub fn join_user(
        &self,
        name: impl Into<Name>,
        role: impl Into<Arc<str>>,
        answerer: impl Answerer,
    ) -> Result<(), BuildError> {
        join(&self.router, [NewPeer::User(name.into(), role.into(), Arc::new(answerer))])
    }

    /// Adds a tool, for every agent. Invocations that are under way do not see it.
    ///
    /// # Errors
    ///
    /// As [`RuntimeBuilder::build`].
    pub fn add_tool(&self, tool: impl Tool) -> Result<(), BuildError> {
        self.replace_tools(&[], vec![Arc::new(tool)]).map(drop)
    }

    /// Takes away the tool of that name; `false` if there is none. Invocations that are under way keep it.
    pub fn remove_tool(&self, name: &str) -> bool {
        self.replace_tools(&[name.into()], Vec::new()).is_ok_and(|gone| gone > 0)
    }

    /// Takes tools away and adds others behind the rest, at one moment. Says how many are gone.
    pub(crate) fn replace_tools(&self, leaving: &[Name], joining: Vec<Arc<dyn Tool>>) -> Result<usize, BuildError> {
        let joining = with_specs(joining)?;
        self.router.registry().replace_tools(leaving, &joining).map_err(tool_name_taken)
    }

    /// Takes away the agent, actor or user of that name; `false` if there is none. Calls that it serves go
    /// on; further ones fail.
    pub fn leave(&self, name: &str) -> bool {
        self.router.registry().leave(name).is_some()
    }

    /// The events of all calls from now on. Up to `capacity` wait to be read; further ones are lost, and counted.
    ///
    /// A capacity above [`Semaphore::MAX_PERMITS`](tokio::sync::Semaphore::MAX_PERMITS) is taken for that. After a
    /// [`Runtime::shutdown`] the stream is over at once.
    #[must_use]
    pub fn events(&self, capacity: usize) -> Events {
        self.router.root().runtime_observers().stream(capacity)
    }

    /// How many calls are alive: sent, and without an outcome yet.
    #[must_use]
    pub fn invocations(&self) -> usize {
        self.router.root().tracker().count()
    }

    /// Waits until no call is alive.
    pub async fn idle(&self) {
        self.router.root().tracker().wait().await;
    }

    /// Cancels every call, waits until all have their outcomes and all their tools have ended, and ends the streams of
    /// [`Runtime::events`]. Further calls fail with [`CallError::ShutDown`](crate::CallError::ShutDown).
    ///
    /// Once begun it goes on, even if the future is dropped, as it is when a tool shuts down its own runtime.
    ///
    /// A function that [blocks](crate::tool::blocking) cannot be interrupted, and is not waited for. Calls that do not
    /// end, because they block an async thread or because their tokio runtime is not driven, are waited for as long as
    /// other calls end, and one to two seconds more (on tokio's clock); then their outcome is recorded as cancelled.
    pub async fn shutdown(&self) {
        let root = self.router.root().clone();
        root.cancel();
        let closing = async move {
            root.tracker().wait_or_stalled().await;
            root.runtime_observers().close();
        };
        match tokio::runtime::Handle::try_current() {
            // It fails only with the tokio runtime.
            Ok(tokio) => drop(tokio.spawn(closing).await),
            Err(_) => closing.await,
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roster = &self.router.registry().snapshot().roster;
        f.debug_struct("Runtime").field("peers", &roster.names().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

/// What a [`Runtime`] is built from. The order of agents, actors and users is that in which they are told
/// of each other; the order of tools is that in which they are offered.
#[derive(Default)]
#[must_use]
pub struct RuntimeBuilder {
    providers: Vec<(Name, Arc<dyn Provider>)>,
    peers: Vec<NewPeer>,
    tools: Vec<Arc<dyn Tool>>,
    call_ids: Option<DrawId>,
    records_content: bool,
    blocking_threads: Option<usize>,
}

/// Somebody who is about to join a runtime.
enum NewPeer {
    Agent(Agent),
    Actor(Name, Arc<str>, ActorPeer),
    User(Name, Arc<str>, Arc<dyn Answerer>),
}

impl RuntimeBuilder {
    /// A provider, under the name by which agents choose it.
    pub fn provider(mut self, name: impl Into<Name>, provider: impl Provider) -> Self {
        self.providers.push((name.into(), Arc::new(provider)));
        self
    }

    /// An agent.
    pub fn agent(mut self, agent: Agent) -> Self {
        self.peers.push(NewPeer::Agent(agent));
        self
    }

    /// Several agents.
    pub fn agents(self, agents: impl IntoIterator<Item = Agent>) -> Self {
        agents.into_iter().fold(self, Self::agent)
    }

    /// An actor as a peer, see [`Runtime::join_actor`].
    pub fn actor<M>(mut self, name: impl Into<Name>, role: impl Into<Arc<str>>, actor: ActorRef<M>) -> Self
    where
        M: ractor::Message + From<Incoming>,
    {
        self.peers.push(NewPeer::Actor(name.into(), role.into(), ActorPeer::new(actor)));
        self
    }

    /// A user that agents can call, see [`Runtime::join_user`].
    pub fn user(mut self, name: impl Into<Name>, role: impl Into<Arc<str>>, answerer: impl Answerer) -> Self {
        self.peers.push(NewPeer::User(name.into(), role.into(), Arc::new(answerer)));
        self
    }

    /// A tool, for every agent.
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// The source of the ids of calls that have no parent. Default: [`CallId::random`].
    ///
    /// With [`CallId::seeded`] the ids of a run repeat as far as [`CallId`] says. The order of its events and messages
    /// does not: calls that run at the same time come in any order.
    ///
    /// The source runs on one thread at a time, and other calls wait for it. A call that it makes itself has a random id.
    /// A call whose id is that of one under way fails with [`CallError::IdInUse`](crate::CallError::IdInUse).
    pub fn call_ids(mut self, source: impl FnMut() -> CallId + Send + 'static) -> Self {
        self.call_ids = Some(Box::new(source));
        self
    }

    /// Lets `tracing` spans carry what was said: messages, arguments, outputs. Default: they do not.
    pub fn record_content(mut self) -> Self {
        self.records_content = true;
        self
    }

    /// The number of [functions that block](crate::tool::blocking) that run at the same time, each on a thread; further
    /// ones wait for their turn. Default: 512.
    ///
    /// The threads are the runtime's own, not those of `tokio::task::spawn_blocking`, which serve DNS and files. They are
    /// started when they are needed, and end after ten seconds without work.
    ///
    /// A function that waits for a call of an agent by blocking, as with `Handle::block_on`, gives its turn to another as
    /// long as the call is under way, so that calls which need this pool themselves never wait for each other. When it
    /// goes on, one more than this number may run until one ends. A call that it waits for in another way, such as a
    /// channel or `block_on` of a spawned task, keeps its turn. There are at most 10,000 threads in all; a tool for which
    /// there is none fails.
    pub fn blocking_threads(mut self, threads: usize) -> Self {
        self.blocking_threads = Some(threads);
        self
    }

    /// Builds the runtime.
    ///
    /// # Errors
    ///
    /// When a name is empty, longer than 64 characters, has control or invisible characters, begins or ends with white
    /// space, is reserved in any case of its letters, or is taken, also by a name that is the same after Unicode
    /// normalisation; when an agent's provider is not registered; when a tool's parameters are not those of an object.
    pub fn build(self) -> Result<Runtime, BuildError> {
        let mut providers = Providers::default();
        for (name, provider) in self.providers {
            check_name("provider", &name, &[])?;
            providers.insert(&Arc::clone(&name), (name, provider)).map_err(|name| name_taken("provider", name))?;
        }
        let (tools, _) =
            Toolbox::new(builtin::specs()).replace(&[], &with_specs(self.tools)?).map_err(tool_name_taken)?;
        let threads = BlockingThreads::new(self.blocking_threads.unwrap_or(DEFAULT_THREADS));
        let root = Scope::root(RuntimeObservers::new(self.records_content), threads);
        let call_ids = CallIdSource::new(self.call_ids);
        let router = Router::new(providers, tools, call_ids, root);
        join(&router, self.peers)?;
        Ok(Runtime { router: Arc::new(router) })
    }
}

impl fmt::Debug for RuntimeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RuntimeBuilder")
    }
}

fn join(router: &Router, joining: impl IntoIterator<Item = NewPeer>) -> Result<(), BuildError> {
    let check = |joining| match joining {
        NewPeer::Agent(agent) => {
            let (name, description) = (Arc::clone(&agent.name), Arc::clone(agent.description()));
            check_name("agent", &name, &[USER, CALL_AGENT, FINISH])?;
            Ok((name, description, router.agent(agent)?))
        }
        NewPeer::Actor(name, role, actor) => {
            check_name("actor", &name, &[USER, CALL_AGENT, FINISH])?;
            Ok((name, role, Peer::Actor(actor)))
        }
        NewPeer::User(name, role, answerer) => {
            check_name("user", &name, &[CALL_AGENT, FINISH])?;
            Ok((name, role, Peer::User(answerer)))
        }
    };
    let peers = joining.into_iter().map(check).collect::<Result<_, BuildError>>()?;
    router.registry().join(peers).map_err(|name| name_taken("agent, actor or user", name))
}

/// Tools with what they say of themselves, if that is fit.
fn with_specs(tools: Vec<Arc<dyn Tool>>) -> Result<Vec<SpecifiedTool>, BuildError> {
    let specified = |tool: Arc<dyn Tool>| {
        let spec = tool.spec();
        check_name("tool", &spec.name, &[CALL_AGENT, FINISH])?;
        match spec.parameters["type"] == "object" {
            true => Ok((Arc::new(spec), tool)),
            false => Err(BuildError::Parameters { tool: spec.name }),
        }
    };
    tools.into_iter().map(specified).collect()
}

fn check_name(what: &'static str, name: &Name, reserved: &[&str]) -> Result<(), BuildError> {
    match name::problem(name, reserved) {
        Some(reason) => Err(BuildError::Name { what, name: Arc::clone(name), reason }),
        None => Ok(()),
    }
}

fn name_taken(what: &'static str, name: Name) -> BuildError {
    BuildError::Name { what, name, reason: "the name is taken" }
}

fn tool_name_taken(name: Name) -> BuildError {
    name_taken("tool", name)
}
