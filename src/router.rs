//! From a Forward to the agent, actor or user that serves it.

use std::sync::Arc;

use crate::actor_peer::{ActorCall, ActorPeer};
use crate::agent::Agent;
use crate::call_id::CallId;
use crate::call_id_source::CallIdSource;
use crate::caller::Answerer;
use crate::delivery::{Deliver, Delivery, Serve};
use crate::error::{BuildError, CallError};
use crate::event::EventKind;
use crate::invocation::Callee;
use crate::message::Forward;
use crate::name::Name;
use crate::name::{self, NameMap};
use crate::observers::OpenStreams;
use crate::outcome::{Outcome, Parent};
use crate::panics::drop_catching;
use crate::provider::Provider;
use crate::scope::Scope;
use crate::snapshot::{AgentEntry, Registry, Snapshot};
use crate::toolbox::Toolbox;

/// Who there is, and what they work with.
pub(crate) struct Router {
    registry: Registry<Peer>,
    providers: Providers,
    call_ids: Arc<CallIdSource>,
    /// Above the scopes of all calls.
    root: Scope,
    streams: Arc<OpenStreams>,
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
    pub(crate) fn new(providers: Providers, tools: Toolbox, call_ids: CallIdSource, root: Scope) -> Self {
        let streams = Arc::new(OpenStreams::of(root.runtime_observers()));
        Self { registry: Registry::new(tools), providers, call_ids: Arc::new(call_ids), root, streams }
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

    /// The source of the ids of calls that have no parent.
    pub(crate) fn call_ids(&self) -> &Arc<CallIdSource> {
        &self.call_ids
    }

    /// What a call holds that has no parent. Its id is in use as long as it is under way.
    pub(crate) fn parent(&self, call_id: CallId) -> Result<Parent, CallError> {
        Ok(Parent::Runtime { _streams: Arc::clone(&self.streams), _id: self.call_ids.reserve(call_id)? })
    }

    /// Whether it is a user that answers under that name.
    #[cfg(feature = "mcp-server")]
    pub(crate) fn is_user(&self, name: &str) -> bool {
        matches!(self.registry.find(name).0, Some((_, Peer::User(_))))
    }

    /// Whether a user may call by that name.
    pub(crate) fn is_free_for_a_user(&self, name: &str) -> bool {
        name::problem_of_user(name).is_none() && matches!(self.registry.find(name).0, None | Some((_, Peer::User(_))))
    }
}

/// The error of a Forward to a name that no peer has: it is not sent, and its sender reads who there is.
fn unknown(agent: Name, snapshot: &Snapshot) -> CallError {
    let is_tool = snapshot.tools.contains(&agent);
    CallError::UnknownAgent { nearest: snapshot.roster.nearest(&agent), count: snapshot.roster.len(), is_tool, agent }
}

impl Drop for Router {
    /// Providers are foreign code, and this may be dropped wherever a call ends.
    fn drop(&mut self) {
        drop_catching(std::mem::take(&mut self.providers));
    }
}

impl Deliver for Router {
    fn deliver(self: Arc<Self>, mut forward: Forward, scope: &Scope, parent: Parent) -> Delivery {
        if scope.is_shut_down() {
            let outcome = Outcome::open(Arc::new(forward), scope.clone(), parent);
            outcome.refuse(CallError::ShutDown);
            return Delivery::resolved(outcome);
        }
        // One moment for the callee and all that it is told, before anybody hears of the Forward.
        let (peer, snapshot) = self.registry.find(&forward.receiver);
        let Some((name, peer)) = peer else {
            scope.emit_to_streams(&forward, || EventKind::Undelivered { agent: Arc::clone(&forward.receiver) });
            return Delivery::refused(move || unknown(forward.receiver, &snapshot));
        };
        forward.receiver = name;
        // Counted before the look at the scope: a wait for the end of a scope that is cancelled waits for this one too.
        let call = Outcome::open(Arc::new(forward), scope.clone(), parent);
        if scope.is_shut_down() {
            call.refuse(CallError::ShutDown);
            return Delivery::resolved(call);
        }
        call.send();
        if scope.is_cancelled() {
            call.withdraw();
            return Delivery::resolved(call);
        }
        let callee: Box<dyn Serve> = match peer {
            Peer::Actor(actor) => Box::new(ActorCall { actor, deliver: self }),
            Peer::User(answerer) => Box::new(Callee::User(answerer)),
            Peer::Agent(entry) => Box::new(Callee::Agent { entry, snapshot, deliver: self }),
        };
        Delivery::to(callee, call)
    }
}
