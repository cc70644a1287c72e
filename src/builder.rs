//! The builder of a runtime, and the peers and tools that join it later. The names of all are checked here.

use std::fmt;
use std::sync::Arc;

use ractor::ActorRef;

use crate::actor_peer::{ActorPeer, Incoming};
use crate::agent::Agent;
use crate::builtin;
use crate::call_id::CallId;
use crate::call_id_source::{CallIdSource, DrawId};
use crate::caller::Answerer;
use crate::error::BuildError;
use crate::name::{self, CALL_AGENT, FINISH, Name, USER};
use crate::provider::Provider;
use crate::router::{Peer, Providers, Router};
use crate::runtime::Runtime;
use crate::scope::Scope;
use crate::snapshot::AgentEntry;
use crate::spans::Spans;
use crate::threads::{BlockingThreads, DEFAULT_THREADS};
use crate::tool_interface::Tool;
use crate::toolbox::{SpecifiedTool, Toolbox};

/// The builder of a [`Runtime`]. Prompts list agents, actors and users in the order in which they were added; models
/// are offered tools in the order in which they were added.
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

impl RuntimeBuilder {
    /// Adds a provider, under the name by which agents choose it.
    pub fn provider(mut self, name: impl Into<Name>, provider: impl Provider) -> Self {
        self.providers.push((name.into(), Arc::new(provider)));
        self
    }

    /// Adds an agent.
    pub fn agent(mut self, agent: Agent) -> Self {
        self.peers.push(NewPeer::Agent(agent));
        self
    }

    /// Adds several agents.
    pub fn agents(self, agents: impl IntoIterator<Item = Agent>) -> Self {
        agents.into_iter().fold(self, Self::agent)
    }

    /// Adds an actor as a peer, see [`Runtime::join_actor`].
    pub fn actor<M>(mut self, name: impl Into<Name>, role: impl Into<Arc<str>>, actor: ActorRef<M>) -> Self
    where
        M: ractor::Message + From<Incoming>,
    {
        self.peers.push(new_actor(name, role, actor));
        self
    }

    /// Adds a user that agents can call, see [`Runtime::join_user`].
    pub fn user(mut self, name: impl Into<Name>, role: impl Into<Arc<str>>, answerer: impl Answerer) -> Self {
        self.peers.push(NewPeer::User(name.into(), role.into(), Arc::new(answerer)));
        self
    }

    /// Adds a tool for every agent.
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Adds several tools for every agent.
    pub fn tools(self, tools: impl IntoIterator<Item = impl Tool>) -> Self {
        tools.into_iter().fold(self, Self::tool)
    }

    /// Sets the source of the ids of calls that have no parent. Default: [`CallId::random`].
    ///
    /// With [`CallId::seeded`] the ids of a run repeat, within the limits that [`CallId`] describes. The order of
    /// events and messages does not repeat: calls that run at the same time come in any order.
    ///
    /// The source runs on one thread at a time; other calls wait for it. A call that the source makes itself gets a
    /// random id. A call whose id is that of a running call fails with
    /// [`CallError::IdInUse`](crate::CallError::IdInUse).
    pub fn call_ids(mut self, source: impl FnMut() -> CallId + Send + 'static) -> Self {
        self.call_ids = Some(Box::new(source));
        self
    }

    /// Records content in `tracing` spans: system prompts, messages, tools, arguments, outputs and the texts of errors, in
    /// the JSON of the [OpenTelemetry conventions](https://github.com/open-telemetry/semantic-conventions-genai). Every
    /// request to a model has all messages before it. Event streams get the bodies of requests to models, as
    /// [`EventKind::ModelSent`](crate::EventKind::ModelSent). Default: not recorded.
    pub fn record_content(mut self) -> Self {
        self.records_content = true;
        self
    }

    /// Sets the number of [functions that block](crate::tool::blocking) that run at the same time, each on a thread;
    /// further ones wait for their turn. Default: 512.
    ///
    /// The threads belong to the runtime. They are not those of `tokio::task::spawn_blocking`, which serve DNS and
    /// files. A thread is started when it is needed, and ends after ten seconds without work.
    ///
    /// A function that blocks its thread to wait for a call of an agent, as with `Handle::block_on`, gives its turn to
    /// another function while the call is running, so that calls which need this pool themselves never wait for each
    /// other. When the function continues, one more than this number may run until one ends. A function that waits for
    /// the call in another way, such as a channel or `block_on` of a spawned task, keeps its turn. There are at most
    /// 10,000 threads in all; a tool for which there is no thread fails.
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
    /// normalisation; when an agent's provider is not registered; when a tool's parameters are not a JSON Schema of an
    /// object.
    pub fn build(self) -> Result<Runtime, BuildError> {
        let mut providers = Providers::default();
        for (name, provider) in self.providers {
            check_name("provider", &name, &[])?;
            providers.insert(&Arc::clone(&name), (name, provider)).map_err(name_taken("provider"))?;
        }
        let (tools, _) =
            Toolbox::new(builtin::specs()).replace(&[], &with_specs(self.tools)?).map_err(name_taken("tool"))?;
        let threads = BlockingThreads::new(self.blocking_threads.unwrap_or(DEFAULT_THREADS));
        let root = Scope::root(threads, Arc::new(Spans::new(self.records_content)));
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

impl Runtime {
    /// A builder for a runtime.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// Adds an agent. Invocations that are running do not see it in their prompts.
    ///
    /// # Errors
    ///
    /// As [`RuntimeBuilder::build`].
    pub fn join(&self, agent: Agent) -> Result<(), BuildError> {
        join(&self.router, [NewPeer::Agent(agent)])
    }

    /// Adds an actor as a peer. It gets an [`Incoming`] for every Forward, and decides how many it serves at once.
    ///
    /// An actor handles one message at a time. If it awaits a call of an agent in its handler, it answers no other
    /// Forward meanwhile; if the agent calls it back, directly or through others, both wait until the call is
    /// cancelled. The handler should spawn a task for the call and the reply, as `examples/actor_peer.rs` does.
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
        join(&self.router, [new_actor(name, role, actor)])
    }

    /// Adds the actor that has a name in [ractor's registry](ractor::registry) as a peer. It is looked for at each
    /// Forward, so a supervisor may restart it. A call that it serves when it stops fails with
    /// [`CallError::Unanswered`](crate::CallError::Unanswered), and one while no actor has the name with
    /// [`CallError::Unreachable`](crate::CallError::Unreachable). Otherwise it is like [`Runtime::join_actor`].
    ///
    /// # Errors
    ///
    /// As [`RuntimeBuilder::build`].
    pub fn join_registered_actor<M>(
        &self,
        name: impl Into<Name>,
        role: impl Into<Arc<str>>,
        registered: impl Into<String>,
    ) -> Result<(), BuildError>
    where
        M: ractor::Message + From<Incoming>,
    {
        let registered = registered.into();
        let find = move || ActorRef::<M>::where_is(&registered).map(|actor| actor.get_cell());
        join(&self.router, [NewPeer::Actor(name.into(), role.into(), ActorPeer::new::<M>(find))])
    }

    /// Puts another actor in the place of one that joined. Returns `false` if no actor has that name. Calls that the
    /// former actor serves continue; the role stays.
    pub fn replace_actor<M>(&self, name: &str, actor: ActorRef<M>) -> bool
    where
        M: ractor::Message + From<Incoming>,
    {
        let peer = Peer::Actor(fixed_actor(&actor));
        self.router.registry.replace_peer(name, peer, |former| matches!(former, Peer::Actor(_)))
    }

    /// Adds a user that agents can call. `answerer` answers the calls.
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

    /// Adds a tool for every agent. Invocations that are running do not see it.
    ///
    /// # Errors
    ///
    /// As [`RuntimeBuilder::build`].
    pub fn add_tool(&self, tool: impl Tool) -> Result<(), BuildError> {
        self.replace_tools(&[], vec![Arc::new(tool)]).map(drop)
    }

    /// Removes the tool of that name; returns `false` if there is none. Invocations that are running keep it.
    pub fn remove_tool(&self, name: &str) -> bool {
        self.replace_tools(&[name.into()], Vec::new()).is_ok_and(|gone| gone > 0)
    }

    /// Removes tools and appends others, in one step. Returns the number of tools removed.
    pub(crate) fn replace_tools(&self, leaving: &[Name], joining: Vec<Arc<dyn Tool>>) -> Result<usize, BuildError> {
        let joining = with_specs(joining)?;
        self.router.registry.replace_tools(leaving, &joining).map_err(name_taken("tool"))
    }
}

/// A peer that is about to join a runtime.
enum NewPeer {
    Agent(Agent),
    Actor(Name, Arc<str>, ActorPeer),
    User(Name, Arc<str>, Arc<dyn Answerer>),
}

fn new_actor<M>(name: impl Into<Name>, role: impl Into<Arc<str>>, actor: ActorRef<M>) -> NewPeer
where
    M: ractor::Message + From<Incoming>,
{
    NewPeer::Actor(name.into(), role.into(), fixed_actor(&actor))
}

fn fixed_actor<M: ractor::Message + From<Incoming>>(actor: &ActorRef<M>) -> ActorPeer {
    let cell = actor.get_cell();
    ActorPeer::new::<M>(move || Some(cell.clone()))
}

fn join(router: &Router, joining: impl IntoIterator<Item = NewPeer>) -> Result<(), BuildError> {
    let check = |joining| match joining {
        NewPeer::Agent(agent) => {
            let (name, description) = (Arc::clone(&agent.name), Arc::clone(agent.description()));
            check_name("agent", &name, &[USER, CALL_AGENT, FINISH])?;
            Ok((name, description, agent_peer(&router.providers, agent)?))
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
    router.registry.join(peers).map_err(name_taken("agent, actor or user"))
}

/// Returns an agent as a peer, if its provider is registered.
fn agent_peer(providers: &Providers, agent: Agent) -> Result<Peer, BuildError> {
    let known = || {
        let mut known: Vec<Name> = providers.iter().map(|(name, _)| Arc::clone(name)).collect();
        known.sort();
        known
    };
    let mut all = providers.iter();
    let (provider_name, provider) = match (&agent.provider, all.next(), all.next()) {
        (Some(provider), ..) => providers.find(provider).ok_or_else(|| BuildError::UnknownProvider {
            agent: Arc::clone(&agent.name),
            provider: Arc::clone(provider),
            known: known(),
        })?,
        (None, Some(only), None) => only,
        (None, ..) => return Err(BuildError::NoProvider { agent: agent.name, known: known() }),
    }
    .clone();
    let info = provider.info();
    Ok(Peer::Agent(Arc::new(AgentEntry { agent: Arc::new(agent), provider_name, provider, info })))
}

/// Returns the tools with their specifications, after checking those.
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

fn name_taken(what: &'static str) -> impl Fn(Name) -> BuildError {
    move |name| BuildError::Name { what, name, reason: "the name is taken" }
}
