//! Names and who bears them: agents, actors, users. From a Forward to its callee.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dashmap::DashMap;
use tokio::sync::watch;

use crate::actor_peer::{ActorCall, ActorPeer};
use crate::agent::Agent;
use crate::delivery::{Callee, Deliver, Delivery};
use crate::error::{BuildError, CallError};
use crate::event::EventKind;
use crate::invocation::{Doors, Mind, Scene, Seat};
use crate::message::{Answerer, CallId, Forward, Name};
use crate::outcome::{Lease, Outcome};
use crate::prompt::Roster;
use crate::provider::Provider;
use crate::scope::Scope;
use crate::tool::Toolbox;
use crate::turn::nearest;

/// Who there is, and what they work with.
pub(crate) struct Router {
    peers: DashMap<Name, Peer>,
    scene: watch::Sender<Arc<Scene>>,
    /// Held by whoever makes another scene of the one there is.
    changing: Mutex<()>,
    providers: HashMap<Name, Arc<dyn Provider>>,
    call_ids: Mutex<Box<dyn FnMut() -> CallId + Send>>,
    /// Above the scopes of all calls.
    root: Scope,
}

/// Whoever can be called.
#[derive(Clone)]
pub(crate) enum Peer {
    Agent(Arc<Seat>),
    Actor(ActorPeer),
    User(Arc<dyn Answerer>),
}

impl Router {
    pub(crate) fn new(
        providers: HashMap<Name, Arc<dyn Provider>>,
        tools: Toolbox,
        call_ids: Box<dyn FnMut() -> CallId + Send>,
        root: Scope,
    ) -> Self {
        Self {
            peers: DashMap::new(),
            scene: watch::Sender::new(Arc::new(Scene { roster: Arc::default(), tools: Arc::new(tools) })),
            changing: Mutex::default(),
            providers,
            call_ids: Mutex::new(call_ids),
            root,
        }
    }

    /// An agent as a peer, if its provider is registered.
    pub(crate) fn agent(&self, agent: Agent) -> Result<Peer, BuildError> {
        let known = || {
            let mut known: Vec<Name> = self.providers.keys().cloned().collect();
            known.sort();
            known
        };
        let mut all = self.providers.iter();
        let chosen = match (&agent.provider, all.next(), all.next()) {
            (Some(provider), ..) => {
                self.providers.get_key_value(provider).ok_or_else(|| BuildError::UnknownProvider {
                    agent: Arc::clone(&agent.name),
                    provider: Arc::clone(provider),
                    known: known(),
                })?
            }
            (None, Some(only), None) => only,
            (None, ..) => return Err(BuildError::NoProvider { agent: agent.name, known: known() }),
        };
        let (provider_name, provider) = (Arc::clone(chosen.0), Arc::clone(chosen.1));
        Ok(Peer::Agent(Arc::new(Seat { agent: Arc::new(agent), provider_name, provider })))
    }

    /// Adds peers, each with what the others are told of it. If a name is taken, nobody is added.
    pub(crate) fn join(&self, peers: Vec<(Name, Arc<str>, Peer)>) -> Result<(), Name> {
        let (_changing, scene) = self.change();
        let mut names = HashSet::new();
        if let Some((taken, ..)) = peers.iter().find(|(name, ..)| scene.roster.contains(name) || !names.insert(name)) {
            return Err(Arc::clone(taken));
        }
        let mut all = scene.roster.peers().to_vec();
        for (name, description, peer) in peers {
            self.peers.insert(Arc::clone(&name), peer);
            all.push((name, description));
        }
        self.set(Arc::new(Roster::new(all)), Arc::clone(&scene.tools));
        Ok(())
    }

    /// Takes a peer away; `false` if there is none of that name. Calls that it serves go on.
    pub(crate) fn leave(&self, name: &str) -> bool {
        let (_changing, scene) = self.change();
        let is_gone = self.peers.remove(name).is_some();
        if is_gone {
            let rest = scene.roster.peers().iter().filter(|(peer, _)| **peer != *name).cloned().collect();
            self.set(Arc::new(Roster::new(rest)), Arc::clone(&scene.tools));
        }
        is_gone
    }

    /// Changes the tools, for calls that begin from now on.
    pub(crate) fn change_tools<T, E>(&self, change: impl FnOnce(&Scene) -> Result<(Toolbox, T), E>) -> Result<T, E> {
        let (_changing, scene) = self.change();
        let (tools, changed) = change(&scene)?;
        self.set(Arc::clone(&scene.roster), Arc::new(tools));
        Ok(changed)
    }

    pub(crate) fn scene(&self) -> Arc<Scene> {
        Arc::clone(&self.scene.borrow())
    }

    /// Sees every scene from now on.
    #[cfg(feature = "mcp")]
    pub(crate) fn scenes(&self) -> watch::Receiver<Arc<Scene>> {
        self.scene.subscribe()
    }

    /// The scene as it stays while the guard is held.
    fn change(&self) -> (MutexGuard<'_, ()>, Arc<Scene>) {
        (self.changing.lock().unwrap_or_else(PoisonError::into_inner), self.scene())
    }

    fn set(&self, roster: Arc<Roster>, tools: Arc<Toolbox>) {
        self.scene.send_replace(Arc::new(Scene { roster, tools }));
    }

    pub(crate) fn root(&self) -> &Scope {
        &self.root
    }

    /// The id of a call that has no parent.
    pub(crate) fn draw_call_id(&self) -> CallId {
        (self.call_ids.lock().unwrap_or_else(PoisonError::into_inner))()
    }

    /// Whether it is a user that answers under that name.
    #[cfg(feature = "mcp")]
    pub(crate) fn is_user(&self, name: &str) -> bool {
        self.peers.get(name).is_some_and(|peer| matches!(*peer, Peer::User(_)))
    }

    /// Whether a user may call by that name.
    pub(crate) fn is_free_for_a_user(&self, name: &str) -> bool {
        self.peers.get(name).is_none_or(|peer| matches!(*peer, Peer::User(_)))
    }

    /// A Forward to nobody is not sent, and its sender reads who there is.
    fn undelivered(&self, forward: &Forward, scope: &Scope) -> Delivery {
        let roster = &self.scene().roster;
        let (nearest, count) = (nearest(&forward.receiver, roster.names()), roster.peers().len());
        let error = CallError::UnknownAgent { agent: Arc::clone(&forward.receiver), nearest, count };
        scope.show(forward, || EventKind::Undelivered { agent: Arc::clone(&forward.receiver) });
        Delivery::Refused(error)
    }
}

impl Deliver for Router {
    fn deliver(self: Arc<Self>, forward: Forward, scope: &Scope, parent: Option<Lease>) -> Delivery {
        let Some(peer) = self.peers.get(&forward.receiver).map(|peer| peer.clone()) else {
            return self.undelivered(&forward, scope);
        };
        // Counted before the look at the scope: a wait for the end of a scope that is cancelled waits for this one too.
        let call = Outcome::open(Arc::new(forward), scope.clone(), parent);
        if scope.is_shut_down() {
            call.refuse(CallError::ShutDown);
            return Delivery::answered(call);
        }
        call.send();
        if scope.is_cancelled() {
            call.withdraw();
            return Delivery::answered(call);
        }
        let callee: Box<dyn Callee> = match peer {
            Peer::Actor(actor) => Box::new(ActorCall { actor, deliver: self }),
            Peer::User(answerer) => Box::new(Mind::Person(answerer)),
            Peer::Agent(seat) => Box::new(Mind::Model(Doors { seat, scene: self.scene(), deliver: self })),
        };
        Delivery::to(callee, call)
    }
}
