//! A transport to a host that tells the calls made over it when it is closed.
//!
//! The SDK goes on for some seconds with requests of a connection that has ended; their results would not be read.

use rmcp::RoleServer;
use rmcp::model::{Extensions, GetExtensions as _, JsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A transport whose messages carry its [`Closed`].
pub(super) struct ClosableTransport<T> {
    transport: T,
    end: Closed,
    _ends_when_dropped: DropGuard,
}

/// The end of the connection that a message came from.
#[derive(Clone)]
pub(super) struct Closed(CancellationToken);

impl Closed {
    /// Waits for the end of the connection that the message with these extensions came from. It never completes for a
    /// message without a [`ClosableTransport`].
    pub(super) async fn of(extensions: &Extensions) {
        match extensions.get::<Self>() {
            Some(Self(end)) => end.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

impl<T> ClosableTransport<T> {
    pub(super) fn new(transport: T) -> Self {
        let end = CancellationToken::new();
        Self { transport, end: Closed(end.clone()), _ends_when_dropped: end.drop_guard() }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for ClosableTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.transport.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let mut message = self.transport.receive().await;
        match &mut message {
            Some(JsonRpcMessage::Request(request)) => {
                request.request.extensions_mut().insert(self.end.clone());
            }
            Some(JsonRpcMessage::Notification(notification)) => {
                notification.notification.extensions_mut().insert(self.end.clone());
            }
            Some(_) => {}
            None => self.end.0.cancel(),
        }
        message
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.end.0.cancel();
        self.transport.close().await
    }
}
