//! The router: it finds the agent, actor or user that serves a Forward.

use std::sync::Arc;

use ractor::ActorId;

use crate::actor_peer::{ActorCall, ActorPeer};
use crate::call_id::CallId;
use crate::call_id_source::CallIdSource;
use crate::caller::Answerer;
use crate::delivery::{Deliver, Delivery, Serve};
use crate::error::CallError;
use crate::event::EventKind;
use crate::invocation::Callee;
use crate::message::Forward;
use crate::name::{self, Name, NameMap};
use crate::observers::OpenStreams;
use crate::outcome::{Outcome, Parent};
use crate::panics::drop_catching;
use crate::provider::Provider;
use crate::scope::Scope;
use crate::snapshot::{AgentEntry, Registry, Snapshot};
use crate::toolbox::Toolbox;

/// The peers that can be called, and the tools, providers and call ids that they use.
pub(crate) struct Router {
    pub(crate) registry: Registry<Peer>,
    pub(crate) providers: Providers,
    /// The source of the ids of calls that have no parent.
    pub(crate) call_ids: CallIdSource,
    /// The parent of the scopes of all calls.
    pub(crate) root: Scope,
    streams: Arc<OpenStreams>,
}

/// Providers by name, each with its name.
pub(crate) type Providers = NameMap<(Name, Arc<dyn Provider>)>;

/// A peer that can be called.
#[derive(Clone)]
pub(crate) enum Peer {
    Agent(Arc<AgentEntry>),
    Actor(ActorPeer),
    User(Arc<dyn Answerer>),
}

impl Router {
    pub(crate) fn new(providers: Providers, tools: Toolbox, call_ids: CallIdSource, root: Scope) -> Self {
        let streams = Arc::new(OpenStreams(Arc::clone(root.runtime_observers())));
        Self { registry: Registry::new(tools), providers, call_ids, root, streams }
    }

    /// Returns what a call without a parent holds until it is over. Its id is in use until then.
    pub(crate) fn parent(&self, call_id: CallId) -> Result<Parent, CallError> {
        Ok(Parent::Runtime { _streams: Arc::clone(&self.streams), _id: self.call_ids.reserve(call_id)? })
    }

    /// Returns whether a user, or that actor, may call under that name.
    pub(crate) fn may_call(&self, name: &str, actor: Option<ActorId>) -> bool {
        let peer = self.registry.find(name).0.map(|(_, peer)| peer);
        match (peer, actor) {
            (Some(Peer::Actor(peer)), Some(actor)) => peer.is(actor),
            (None | Some(Peer::User(_)), None) => name::problem_of_user(name).is_none(),
            _ => false,
        }
    }
}

/// The error of a Forward to a name that no peer has. The Forward is not sent, and its sender reads which peers exist.
fn unknown(agent: Name, snapshot: &Snapshot) -> CallError {
    let is_tool = snapshot.tools.contains(&agent);
    CallError::UnknownAgent { nearest: snapshot.roster.nearest(&agent), count: snapshot.roster.len(), is_tool, agent }
}

impl Drop for Router {
    /// Catches panics of providers, which are foreign code, because the router may be dropped wherever a call ends.
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
        scope.telemetry().place(&forward);
        // The callee and its snapshot are read at one moment, before any observer sees the Forward.
        let (peer, snapshot) = self.registry.find(&forward.receiver);
        let Some((name, peer)) = peer else {
            scope.emit_to_streams(&forward, || EventKind::Undelivered { agent: Arc::clone(&forward.receiver) });
            return Delivery::refused(move || unknown(forward.receiver, &snapshot));
        };
        forward.receiver = name;
        if let Some(admission) = &forward.run.admission {
            let notify = || scope.notifier(&forward);
            if let Err(error) = admission.admit_call(forward.depth, scope.cancellation(), &notify) {
                let refused = || EventKind::Refused { agent: Arc::clone(&forward.receiver), error: error.clone() };
                scope.emit_to_streams(&forward, refused);
                return Delivery::refused(|| error);
            }
        }
        // Counted before the scope is checked: a wait for the end of a cancelled scope then waits for this call too.
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
