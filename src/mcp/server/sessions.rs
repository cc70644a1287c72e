//! The sessions of hosts over HTTP. Their number is limited, abandoned sessions are closed, and no session has two open
//! requests with the same id.
//!
//! A session is in use while one of its requests is open or its host reads an event stream. The SDK's own idle timeout
//! is not used, because it would end a session during a call without progress notifications.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::Either;
use futures_util::{Stream, stream};
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use rmcp::model::{ClientJsonRpcMessage, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, LocalSessionManagerError};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};
use tokio::time::{Instant, sleep};

use super::line::ClosableTransport;

/// The sessions that are open.
pub(super) struct Sessions {
    open: LocalSessionManager,
    activities: Activities,
    most: usize,
    patience: Duration,
}

/// The activity of each open session.
type Activities = Arc<Mutex<HashMap<SessionId, Activity>>>;

struct Activity {
    /// The number of its open streams.
    streams: usize,
    /// The time of its last use.
    last: Instant,
    /// The requests that are answered on these streams.
    requests: HashSet<RequestId>,
}

impl Sessions {
    /// Allows at most `most` sessions, and closes each when it has been idle for `patience`.
    pub(super) fn new(most: usize, patience: Duration) -> Self {
        let mut open = LocalSessionManager::default();
        open.session_config.keep_alive = None;
        Self { open, activities: Activities::default(), most, patience }
    }

    /// Closes abandoned sessions; runs until the future is dropped.
    pub(super) async fn close_abandoned(&self) {
        loop {
            sleep(self.patience / 4).await;
            let is_abandoned = |usage: &Activity| usage.streams == 0 && usage.last.elapsed() >= self.patience;
            let abandoned: Vec<_> = self
                .activities
                .lock()
                .iter()
                .filter(|(_, usage)| is_abandoned(usage))
                .map(|(id, _)| id.clone())
                .collect();
            for id in abandoned {
                tracing::info!(%id, "session abandoned");
                let _ = self.close_session(&id).await;
            }
        }
    }

    /// Marks the session as used until the guard is dropped.
    fn using(&self, id: &SessionId) -> ActivityGuard {
        change(&self.activities, id, |usage| usage.streams += 1);
        ActivityGuard { id: id.clone(), activities: Arc::clone(&self.activities), request: None }
    }
}

struct ActivityGuard {
    id: SessionId,
    activities: Activities,
    request: Option<RequestId>,
}

impl ActivityGuard {
    /// Marks a request as open, too. `None` if another one with that id is open: the SDK would forget that one.
    fn answering(mut self, request: &RequestId) -> Option<Self> {
        let mut is_new = true;
        change(&self.activities, &self.id, |usage| is_new = usage.requests.insert(request.clone()));
        self.request = is_new.then(|| request.clone());
        is_new.then_some(self)
    }

    /// Wraps a stream, so that the session is in use while the stream exists.
    fn during<S>(self, stream: S) -> Guarded<S> {
        Guarded { stream, _guard: self }
    }
}

pin_project! {
    /// A stream that holds a guard.
    struct Guarded<S> {
        #[pin]
        stream: S,
        _guard: ActivityGuard,
    }
}

impl<S: Stream> Stream for Guarded<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.project().stream.poll_next(context)
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        change(&self.activities, &self.id, |usage| {
            usage.streams -= 1;
            self.request.as_ref().map(|request| usage.requests.remove(request));
        });
    }
}

fn change(activities: &Activities, id: &SessionId, change: impl FnOnce(&mut Activity)) {
    if let Some(usage) = activities.lock().get_mut(id) {
        change(usage);
        usage.last = Instant::now();
    }
}

/// The reason why a session could not be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("there are {0} sessions already, which is the most that this server keeps")]
    TooMany(usize),
    #[error(transparent)]
    Local(#[from] LocalSessionManagerError),
}

impl SessionManager for Sessions {
    type Error = SessionError;
    type Transport = ClosableTransport<<LocalSessionManager as SessionManager>::Transport>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionError> {
        if self.activities.lock().len() >= self.most {
            return Err(SessionError::TooMany(self.most));
        }
        let (id, transport) = self.open.create_session().await?;
        self.activities
            .lock()
            .insert(id.clone(), Activity { streams: 0, last: Instant::now(), requests: HashSet::new() });
        Ok((id, ClosableTransport::new(transport)))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        Ok(self.open.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionError> {
        Ok(self.open.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionError> {
        self.activities.lock().remove(id);
        Ok(self.open.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        let mut using = self.using(id);
        if let JsonRpcMessage::Request(request) = &message {
            let Some(answering) = using.answering(&request.id) else {
                let refusal = ErrorData::invalid_request("another request of that id is not answered yet", None);
                let refusal = ServerJsonRpcMessage::error(refusal, Some(request.id.clone()));
                return Ok(Either::Left(stream::iter([ServerSseMessage::from_message(refusal)])));
            };
            using = answering;
        }
        Ok(Either::Right(using.during(self.open.create_stream(id, message).await?)))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), SessionError> {
        let _using = self.using(id);
        Ok(self.open.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        let using = self.using(id);
        Ok(using.during(self.open.create_standalone_stream(id).await?))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        let using = self.using(id);
        Ok(using.during(self.open.resume(id, last_event_id).await?))
    }
}
