//! The peers and tools at one moment, and the registry that changes them.
//!
//! A lookup returns a peer together with the snapshot that it belongs to. No foreign code runs while the registry is
//! locked: what was removed is dropped, and receivers of changes are woken, after the lock is released.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockWriteGuard};
use tokio::sync::watch;

use crate::agent::Agent;
use crate::name::{Name, key, shared_key};
use crate::panics::drop_catching;
use crate::prompt::Roster;
use crate::provider::{Provider, ProviderInfo};
use crate::toolbox::{SpecifiedTool, Toolbox};

/// The peers and tools that an invocation knows, from its start to its end. Every change makes another snapshot.
#[derive(Default)]
pub(crate) struct Snapshot {
    pub(crate) roster: Arc<Roster>,
    pub(crate) tools: Arc<Toolbox>,
}

/// The data that is the same in all invocations of an agent. Shared as one value, because many invocations begin at
/// once.
pub(crate) struct AgentEntry {
    pub(crate) agent: Arc<Agent>,
    pub(crate) provider_name: Name,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) info: ProviderInfo,
}

/// The peers that can be called, each a `P`, and the current snapshot.
pub(crate) struct Registry<P> {
    current: RwLock<Current<P>>,
    changes: watch::Sender<()>,
}

/// The state that changes in one step.
struct Current<P> {
    /// The peers by the key of their names, each with its name as it joined.
    peers: HashMap<Name, (Name, P)>,
    snapshot: Arc<Snapshot>,
}

impl<P> Drop for Registry<P> {
    /// Catches panics of peers and tools, which are foreign code, because the registry may be dropped wherever a call
    /// ends.
    fn drop(&mut self) {
        let current = self.current.get_mut();
        drop_catching(mem::take(&mut current.peers));
        drop_catching(mem::take(&mut current.snapshot));
    }
}

impl<P: Clone> Registry<P> {
    pub(crate) fn new(tools: Toolbox) -> Self {
        let snapshot = Arc::new(Snapshot { roster: Arc::default(), tools: Arc::new(tools) });
        Self { current: RwLock::new(Current { peers: HashMap::new(), snapshot }), changes: watch::Sender::new(()) }
    }

    /// Returns the peer of that name, with its name as it joined, and the snapshot of the same moment.
    pub(crate) fn find(&self, name: &str) -> (Option<(Name, P)>, Arc<Snapshot>) {
        let key = key(name);
        let current = self.current.read();
        (current.peers.get(&*key).cloned(), Arc::clone(&current.snapshot))
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current.read().snapshot)
    }

    /// Returns a receiver that is notified of every change from now on.
    #[cfg(feature = "mcp-server")]
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Adds peers, each with the description that other agents read.
    ///
    /// # Errors
    ///
    /// When a name is taken; then no peer is added.
    pub(crate) fn join(&self, peers: Vec<(Name, Arc<str>, P)>) -> Result<(), Name> {
        let mut current = self.current.write();
        let told = peers.iter().map(|(name, description, _)| (Arc::clone(name), Arc::clone(description)));
        let roster = Arc::new(current.snapshot.roster.with(told)?);
        current.peers.extend(peers.into_iter().map(|(name, _, peer)| (shared_key(&name), (name, peer))));
        let tools = Arc::clone(&current.snapshot.tools);
        self.replace(current, Snapshot { roster, tools });
        Ok(())
    }

    /// Removes the peer of that name and returns it, if there is one.
    pub(crate) fn leave(&self, name: &str) -> Option<P> {
        let mut current = self.current.write();
        let roster = Arc::new(current.snapshot.roster.without(name)?);
        let gone = current.peers.remove(&*key(name));
        let tools = Arc::clone(&current.snapshot.tools);
        self.replace(current, Snapshot { roster, tools });
        gone.map(|(_, peer)| peer)
    }

    /// Puts a peer in the place of one that `may_go`. Returns whether there was one.
    pub(crate) fn replace_peer(&self, name: &str, peer: P, may_go: impl FnOnce(&P) -> bool) -> bool {
        let mut current = self.current.write();
        let former = current.peers.get_mut(&*key(name)).filter(|(_, former)| may_go(former));
        let former = former.map(|(_, former)| mem::replace(former, peer));
        drop(current);
        former.is_some()
    }

    /// Removes tools and appends others, in one step. Returns the number of tools removed.
    ///
    /// # Errors
    ///
    /// When a name is taken; then nothing changes.
    pub(crate) fn replace_tools(&self, leaving: &[Name], joining: &[SpecifiedTool]) -> Result<usize, Name> {
        let current = self.current.write();
        let (tools, gone) = current.snapshot.tools.replace(leaving, joining)?;
        let roster = Arc::clone(&current.snapshot.roster);
        self.replace(current, Snapshot { roster, tools: Arc::new(tools) });
        Ok(gone)
    }

    fn replace(&self, mut current: RwLockWriteGuard<'_, Current<P>>, next: Snapshot) {
        let _before = mem::replace(&mut current.snapshot, Arc::new(next));
        drop(current);
        self.changes.send_replace(());
    }
}
