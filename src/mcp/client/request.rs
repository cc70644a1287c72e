//! One request to a server: with timeouts, cancelled when it is dropped, and failed when the server ends.
//!
//! The SDK's timeouts are not used: they complete only after the cancellation is written, so never if a server reads
//! nothing.

use std::fmt;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, RequestId, ServerResult};
use rmcp::service::{PeerRequestOptions, RequestHandle, ServiceError};
use tokio::time::{Instant, sleep, timeout};

use crate::error_chain::error_chain;
use crate::mcp::client::error::{io_kind, is_about_the_key};
use crate::mcp::client::session::SessionHandle;
use crate::mcp::client::supervisor::Supervisor;
use crate::mcp::transport::streamable_http::is_unreached;
use crate::mcp::transport::tap::ProgressReceiver;

/// The reason why a request has no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server answered with an error.
    Refused { code: i32, message: String },
    /// The server did not answer in time.
    TimedOut(Duration),
    /// The server ended, or is unavailable.
    Disconnected(Arc<str>),
    /// The server could not be reached, so that the request was not sent.
    NotConnected(String),
    /// The server does not accept the configured key.
    Unauthorized(String),
    /// Any other reason.
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { code, message } => write!(f, "error {code}: {message}"),
            Self::TimedOut(limit) => write!(f, "no answer within {limit:?}"),
            Self::Disconnected(reason) => f.write_str(reason),
            Self::NotConnected(reason) | Self::Unauthorized(reason) | Self::Other(reason) => f.write_str(reason),
        }
    }
}

impl Supervisor {
    /// Sends a request and waits for its result. Progress that `receiver` reports resets the idle timeout.
    ///
    /// Dropping the future cancels the request.
    pub(crate) async fn request(
        &self,
        request: ClientRequest,
        receiver: Option<&ProgressReceiver>,
    ) -> Result<ServerResult, Failure> {
        let limit = self.server.settings.idle_timeout;
        let sending = timeout(limit, self.send(request));
        let (session, handle) = sending.await.unwrap_or(Err(Failure::TimedOut(limit)))?;
        let mut waiting = CancelOnDrop { session, id: Some(handle.id.clone()) };
        let answer = self.answer(handle, &waiting.session, receiver).await;
        if !matches!(answer, Err(Failure::TimedOut(_))) {
            waiting.id = None;
        }
        answer
    }

    /// Sends a request as soon as there is a session.
    async fn send(&self, request: ClientRequest) -> Result<(SessionHandle, RequestHandle<RoleClient>), Failure> {
        loop {
            let session = self.session().await.map_err(Failure::Disconnected)?;
            match session.peer.send_cancellable_request(request.clone(), PeerRequestOptions::no_options()).await {
                Ok(handle) => return Ok((session, handle)),
                // The session has just ended, and nothing was sent.
                Err(ServiceError::TransportClosed) => session.ended.cancel(),
                Err(error) => return Err(Failure::Other(error_chain(&error))),
            }
        }
    }

    async fn answer(
        &self,
        mut handle: RequestHandle<RoleClient>,
        session: &SessionHandle,
        receiver: Option<&ProgressReceiver>,
    ) -> Result<ServerResult, Failure> {
        let settings = &self.server.settings;
        let (mut idle, mut longest) = (pin!(sleep(settings.idle_timeout)), pin!(sleep(settings.total_timeout)));
        loop {
            tokio::select! {
                biased;
                answer = &mut handle.rx => return match answer {
                    Ok(answer) => match answer {
                        Ok(answer) => Ok(answer),
                        Err(error) => Err(self.failure(error, session).await),
                    },
                    Err(_) => Err(Failure::Disconnected(self.why_ended().await)),
                },
                () = session.ended.cancelled() => return Err(Failure::Disconnected(self.why_ended().await)),
                () = progressed(receiver) => {
                    // A timeout beyond the range of the clock never ends.
                    if let Some(end) = Instant::now().checked_add(settings.idle_timeout) {
                        idle.as_mut().reset(end);
                    }
                }
                () = &mut idle => return Err(Failure::TimedOut(settings.idle_timeout)),
                () = &mut longest => return Err(Failure::TimedOut(settings.total_timeout)),
            }
        }
    }

    async fn failure(&self, error: ServiceError, session: &SessionHandle) -> Failure {
        match error {
            ServiceError::McpError(error) => {
                Failure::Refused { code: error.code.0, message: error.message.into_owned() }
            }
            ServiceError::TransportClosed if session.ended.is_cancelled() => {
                Failure::Disconnected(self.why_ended().await)
            }
            // The end of a stream that had only this response, not of the session.
            ServiceError::TransportClosed => {
                session.maybe_gone.notify_one();
                Failure::Other("its answer could not be read, is too long, or broke off".to_owned())
            }
            ServiceError::TransportSend(error) if is_about_the_key(&*error.error) => {
                Failure::Unauthorized(self.server.without_secrets(&error_chain(&*error.error)))
            }
            ServiceError::TransportSend(error) => {
                if io_kind(&*error.error) == Some(io::ErrorKind::BrokenPipe) {
                    session.ended.cancel();
                    return Failure::Disconnected(self.why_ended().await);
                }
                session.maybe_gone.notify_one();
                let reason = self.server.without_secrets(&error_chain(&*error.error));
                if is_unreached(&*error.error) { Failure::NotConnected(reason) } else { Failure::Other(reason) }
            }
            other => Failure::Other(self.server.without_secrets(&error_chain(&other))),
        }
    }
}

async fn progressed(receiver: Option<&ProgressReceiver>) {
    match receiver {
        Some(receiver) => receiver.progressed.notified().await,
        None => std::future::pending().await,
    }
}

/// A request that waits for its result. Dropping it cancels the request, unless its id was removed.
struct CancelOnDrop {
    session: SessionHandle,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            // It fails only if the session has ended, and then there is nothing to cancel.
            let _ = self.session.withdraw.send(id);
        }
    }
}
