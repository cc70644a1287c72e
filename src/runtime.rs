//! The runtime: calls of users, events, and the end.

use std::fmt;
use std::sync::Arc;

use ractor::ActorRef;

use crate::content::Content;
use crate::name::{Name, USER};
use crate::observers::Events;
use crate::router::Router;
use crate::user::{Report, RunError, User};

/// A set of agents, actors and users that call each other, with the tools and models that they use.
///
/// Cheap to clone; every clone is the same runtime. Two runtimes in one process share nothing. Calls must be made
/// within a [tokio](https://docs.rs/tokio) runtime whose time driver is enabled, and end with that tokio runtime at the
/// latest.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) router: Arc<Router>,
}

impl Runtime {
    /// Calls `entry` as the user `user`, and waits for its answer. Dropping the future cancels the call.
    ///
    /// # Errors
    ///
    /// When the entry has no answer: no peer has that name, its model could not be asked, code panicked, or the runtime
    /// was shut down. Errors of the calls below it go to the models that made those calls.
    pub async fn run(&self, entry: impl Into<Name>, message: impl Into<Content>) -> Result<Report, RunError> {
        self.user(USER).forward(entry, message).await
    }

    /// A user of that name, which can call every peer. Each call checks that the name is valid and free, see
    /// [`CallError::NameTaken`](crate::CallError::NameTaken).
    #[must_use]
    pub fn user(&self, name: impl Into<Name>) -> User {
        User { router: Arc::clone(&self.router), name: name.into(), actor: None }
    }

    /// Returns an actor as a user that calls in its name; `None` if it is no peer. A call fails with
    /// [`CallError::NameTaken`](crate::CallError::NameTaken) once the actor has left or was replaced.
    #[must_use]
    pub fn actor<M>(&self, name: &str, actor: &ActorRef<M>) -> Option<User> {
        let user = User { router: Arc::clone(&self.router), name: name.into(), actor: Some(actor.get_id()) };
        user.is_allowed().then_some(user)
    }

    /// Removes the agent, actor or user of that name; returns `false` if there is none. Calls that it serves continue;
    /// later ones fail.
    pub fn leave(&self, name: &str) -> bool {
        self.router.registry.leave(name).is_some()
    }

    /// A stream of the events of all calls from now on. Up to `capacity` events wait to be read; further ones are lost
    /// and counted.
    ///
    /// A capacity above [`Semaphore::MAX_PERMITS`](tokio::sync::Semaphore::MAX_PERMITS) is reduced to that. After a
    /// [`Runtime::shutdown`] the stream ends at once.
    #[must_use]
    pub fn events(&self, capacity: usize) -> Events {
        self.router.root.runtime_observers().stream(capacity)
    }

    /// The number of calls that are alive: sent, and without an outcome yet.
    #[must_use]
    pub fn invocations(&self) -> usize {
        self.router.root.tracker().count()
    }

    /// Waits until no call is alive.
    pub async fn idle(&self) {
        self.router.root.tracker().wait().await;
    }

    /// Cancels every call, waits until all calls have their outcomes and all their tools have ended, and ends the
    /// streams of [`Runtime::events`]. Later calls fail with [`CallError::ShutDown`](crate::CallError::ShutDown).
    ///
    /// Once begun, the shutdown continues even if the future is dropped, as it is when a tool shuts down its own
    /// runtime.
    ///
    /// A function that [blocks](crate::tool::blocking) cannot be interrupted and is not waited for. Other calls may not
    /// end, because they block an async thread or because their tokio runtime is not driven. They are waited for as
    /// long as other calls keep ending, and one to two seconds more (on tokio's clock); then their outcome is recorded
    /// as cancelled.
    pub async fn shutdown(&self) {
        let root = self.router.root.clone();
        root.cancel();
        let closing = async move {
            root.tracker().wait_or_stalled().await;
            root.runtime_observers().close();
        };
        match tokio::runtime::Handle::try_current() {
            // The task fails only if the tokio runtime shuts down.
            Ok(tokio) => drop(tokio.spawn(closing).await),
            Err(_) => closing.await,
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roster = &self.router.registry.snapshot().roster;
        f.debug_struct("Runtime").field("peers", &roster.names().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}
