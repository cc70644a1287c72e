//! The supervisor of one server: its state, its tools, and the task that keeps it connected.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::mcp::client::catalogue::Catalogue;
use crate::mcp::client::config::ServerConfig;
use crate::mcp::client::definition::RefusedTool;
use crate::mcp::client::overflow::Overflow;
use crate::mcp::client::session::{Session, SessionHandle};
use crate::name::Name;

/// The pause before the first restart of a server; it doubles up to `MAX_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// The most refused tools that are logged at once.
const MAX_LOGGED: usize = 20;
/// The longest wait for the reason of a session's end.
const REASON: Duration = Duration::from_millis(900);

/// The prefix of the reason when a server that has ended cannot be restarted.
const GONE: &str = "the server is gone, and could not be started again: ";

/// One server, kept connected until it is closed.
pub(crate) struct Supervisor {
    pub(crate) name: Name,
    pub(crate) server: ServerConfig,
    pub(crate) overflow: Arc<Overflow>,
    catalogue: Mutex<Catalogue>,
    state: watch::Sender<State>,
    /// Notified whenever the tools change.
    revised: watch::Sender<()>,
    closing: CancellationToken,
}

/// The state of a server.
#[derive(Clone)]
enum State {
    Up(SessionHandle),
    /// The server is not connected, and this many attempts to restart it have failed.
    Down {
        reason: Arc<str>,
        attempts: u64,
    },
    /// The server is closed and will not be restarted.
    Closed,
}

impl Supervisor {
    /// Connects for the first time. If that fails, the server is restarted like one that has ended.
    pub(crate) async fn open(
        name: Name,
        server: ServerConfig,
        catalogue: Catalogue,
        overflow: Arc<Overflow>,
        revised: watch::Sender<()>,
    ) -> (Arc<Self>, Option<Session>) {
        let opened = Session::open(&name, &server).await.map_err(|reason| server.reason(&reason));
        let state = match &opened {
            Ok((live, _)) => State::Up(live.session.clone()),
            Err(reason) => State::Down { reason: reason.as_str().into(), attempts: 0 },
        };
        let supervisor = Self {
            name,
            server,
            overflow,
            catalogue: Mutex::new(catalogue),
            state: watch::Sender::new(state),
            revised,
            closing: CancellationToken::new(),
        };
        let live = match opened {
            Ok((live, listed)) => {
                supervisor.relist(&listed);
                Some(live)
            }
            Err(reason) => {
                tracing::warn!(server = %supervisor.name, reason, "an MCP server is not there");
                None
            }
        };
        (Arc::new(supervisor), live)
    }

    /// Restarts the server whenever it is not connected, until the supervisor is closed.
    pub(crate) async fn supervise(self: Arc<Self>, live: Option<Session>) {
        let mut pause = FIRST_PAUSE;
        let mut live = match live {
            Some(live) => live,
            None => tokio::select! {
                live = self.reconnect("", &mut pause) => live,
                () = self.closing.cancelled() => return drop(self.state.send_replace(State::Closed)),
            },
        };
        loop {
            let began = Instant::now();
            let watching = live.watch(&self.closing, |listed| self.relist(listed));
            let Some(reason) = watching.await.map(|reason| self.server.reason(&reason)) else {
                self.state.send_replace(State::Closed);
                return;
            };
            tracing::warn!(server = %self.name, reason, "an MCP server is gone");
            self.state
                .send_replace(State::Down { reason: format!("the server is gone: {reason}").into(), attempts: 0 });
            if began.elapsed() > MAX_PAUSE {
                pause = FIRST_PAUSE;
            }
            tokio::select! {
                again = self.reconnect(GONE, &mut pause) => live = again,
                () = self.closing.cancelled() => return drop(self.state.send_replace(State::Closed)),
            }
        }
    }

    /// Restarts the server. `before` begins the reason that is recorded for each failed attempt.
    async fn reconnect(&self, before: &str, pause: &mut Duration) -> Session {
        for attempts in 1.. {
            tokio::time::sleep(*pause).await;
            *pause = (*pause * 2).min(MAX_PAUSE);
            match Session::open(&self.name, &self.server).await {
                Ok((live, listed)) => {
                    self.relist(&listed);
                    tracing::info!(server = %self.name, "an MCP server is back");
                    self.state.send_replace(State::Up(live.session.clone()));
                    return live;
                }
                Err(reason) => {
                    let reason = self.server.reason(&reason);
                    tracing::warn!(server = %self.name, reason, "an MCP server could not be started");
                    self.state.send_replace(State::Down { reason: format!("{before}{reason}").into(), attempts });
                }
            }
        }
        std::future::pending().await
    }

    /// Updates the catalogue from the server's list, and logs the refused tools.
    fn relist(&self, listed: &[Value]) {
        let refused = || self.catalogue().refused().map(|refused| refused.of(&self.name)).collect::<Vec<_>>();
        let before = refused();
        self.change(|catalogue| catalogue.update(listed, &self.server.settings));
        warnings(&before, &refused()).iter().for_each(|warning| tracing::warn!("{warning}"));
    }

    /// Changes the catalogue, and notifies the runtimes.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Catalogue) -> T) -> T {
        let changed = change(&mut self.catalogue());
        self.revised.send_replace(());
        changed
    }

    pub(crate) fn catalogue(&self) -> parking_lot::MutexGuard<'_, Catalogue> {
        self.catalogue.lock()
    }

    /// The session. Without one, waits for the next attempt to restart the server, and fails if the attempt fails.
    pub(crate) async fn session(&self) -> Result<SessionHandle, Arc<str>> {
        let (mut state, mut failed_before) = (self.state.subscribe(), None);
        loop {
            match &*state.borrow_and_update() {
                State::Up(session) if !session.ended.is_cancelled() => return Ok(session.clone()),
                // The session has ended, and the reason is about to be recorded.
                State::Up(_) => {}
                State::Down { reason, attempts } if attempts > failed_before.get_or_insert(*attempts) => {
                    return Err(Arc::clone(reason));
                }
                State::Down { .. } => {}
                State::Closed => return Err("the connection is closed".into()),
            }
            if state.changed().await.is_err() {
                return Err("the connection is closed".into());
            }
        }
    }

    /// The reason why the server is unavailable; `None` if it is available or closed.
    pub(crate) fn absence(&self) -> Option<Arc<str>> {
        match &*self.state.borrow() {
            State::Down { reason, .. } => Some(Arc::clone(reason)),
            State::Up(_) | State::Closed => None,
        }
    }

    /// The reason for the end of a session that has ended.
    pub(crate) async fn why_ended(&self) -> Arc<str> {
        let mut state = self.state.subscribe();
        let known = state.wait_for(|state| !matches!(state, State::Up(session) if session.ended.is_cancelled()));
        match tokio::time::timeout(REASON, known).await.ok().and_then(Result::ok).as_deref() {
            Some(State::Down { reason, .. }) => Arc::clone(reason),
            Some(State::Closed) => "the connection was closed".into(),
            _ => "the server is gone".into(),
        }
    }

    /// Closes the supervisor for good.
    pub(crate) fn close(&self) {
        self.closing.cancel();
        self.state.send_replace(State::Closed);
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").field("name", &self.name).field("server", &self.server).finish_non_exhaustive()
    }
}

/// The warnings for refused tools, in the order of their servers. A server whose refused tools have not changed gets
/// none, and the number of warnings is limited.
pub(crate) fn warnings(before: &[RefusedTool], now: &[RefusedTool]) -> Vec<String> {
    let mut warnings = Vec::new();
    for now in now.chunk_by(|one, next| one.server == next.server) {
        let server = &now[0].server;
        if before.iter().filter(|refused| refused.server == *server).eq(now) {
            continue;
        }
        warnings.extend(now.iter().take(MAX_LOGGED).map(ToString::to_string));
        if let more @ 1.. = now.len().saturating_sub(MAX_LOGGED) {
            warnings.push(format!("MCP server `{server}`: {more} more tools are not offered"));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_tools_are_logged_once_and_not_all_of_very_many() {
        let of = |server: &str, count: usize| -> Vec<RefusedTool> {
            (0..count).map(|n| RefusedTool::new(&n.to_string(), "it is odd").of(&server.into())).collect()
        };
        let refused = |count| of("srv", count);
        assert_eq!(warnings(&[], &refused(1)), ["MCP server `srv`: tool `0` is not offered: it is odd"]);
        assert!(warnings(&refused(3), &refused(3)).is_empty() && warnings(&refused(3), &[]).is_empty());
        let many = warnings(&refused(1), &refused(10_000));
        assert_eq!((many.len(), &*many[20]), (21, "MCP server `srv`: 9980 more tools are not offered"));
        let two = warnings(&refused(30), &[refused(30), of("other", 30)].concat());
        assert_eq!((two.len(), &*two[20]), (21, "MCP server `other`: 10 more tools are not offered"));
    }
}
