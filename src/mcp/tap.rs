//! Stands between a transport and the SDK, and sees what passes: signs of progress go to the calls that they are of,
//! in order and before the result; the rest that matters becomes a signal.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rmcp::RoleClient;
use rmcp::model::{
    ClientNotification, ClientRequest, GetExtensions as _, GetMeta as _, JsonRpcMessage, ProgressNotificationParam,
    ProgressToken, RequestId, ServerNotification,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::Notify;
use tokio_util::sync::DropGuard;

use super::session::Signals;
use crate::tool::{Progress, ToolContext};

/// A transport that is listened to.
pub(super) struct Tap<T> {
    transport: T,
    signals: Signals,
    meters: HashMap<ProgressToken, Weak<Meter>>,
    tokens: HashMap<RequestId, ProgressToken>,
    _ended: DropGuard,
}

/// Where the progress of one call goes. A request that has it, weakly, among its extensions is watched.
pub(super) struct Meter {
    pub(super) context: ToolContext,
    pub(super) moved: Notify,
    shown: Mutex<Option<f64>>,
}

impl Meter {
    pub(super) fn new(context: ToolContext) -> Arc<Self> {
        Arc::new(Self { context, moved: Notify::new(), shown: Mutex::default() })
    }

    /// Shows progress, unless it goes backwards.
    fn show(&self, sign: ProgressNotificationParam) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.is_some_and(|shown| sign.progress < shown) {
            return;
        }
        *shown = Some(sign.progress);
        self.moved.notify_one();
        let message = sign.message.map(Into::into);
        self.context.progress(Progress { done: sign.progress, total: sign.total, message });
    }
}

impl<T> Tap<T> {
    pub(super) fn new(transport: T, signals: Signals) -> Self {
        let ended = signals.ended.clone().drop_guard();
        Self { transport, signals, meters: HashMap::new(), tokens: HashMap::new(), _ended: ended }
    }

    fn see_sent(&mut self, message: &mut TxJsonRpcMessage<RoleClient>) {
        match message {
            JsonRpcMessage::Request(sent) => {
                let ClientRequest::CallToolRequest(call) = &mut sent.request else { return };
                let meter = call.extensions_mut().remove::<Weak<Meter>>();
                if let (Some(meter), Some(token)) = (meter, sent.request.get_meta().get_progress_token()) {
                    self.tokens.insert(sent.id.clone(), token.clone());
                    self.meters.insert(token, meter);
                }
            }
            JsonRpcMessage::Notification(sent) => {
                if let ClientNotification::CancelledNotification(cancelled) = &sent.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.forget(&id.clone());
                }
            }
            _ => {}
        }
    }

    fn forget(&mut self, id: &RequestId) {
        if let Some(token) = self.tokens.remove(id) {
            self.meters.remove(&token);
        }
    }

    /// Takes what is for us; gives back what is for the SDK.
    fn see_received(&mut self, message: RxJsonRpcMessage<RoleClient>) -> Option<RxJsonRpcMessage<RoleClient>> {
        match message {
            JsonRpcMessage::Notification(mut received) => match received.notification {
                ServerNotification::ProgressNotification(sign) => {
                    if let Some(meter) = self.meters.get(&sign.params.progress_token).and_then(Weak::upgrade) {
                        meter.show(sign.params);
                    }
                    None
                }
                other => {
                    if matches!(other, ServerNotification::ToolListChangedNotification(_)) {
                        self.signals.changed.notify_one();
                    }
                    received.notification = other;
                    Some(JsonRpcMessage::Notification(received))
                }
            },
            JsonRpcMessage::Response(response) => {
                self.forget(&response.id);
                Some(JsonRpcMessage::Response(response))
            }
            JsonRpcMessage::Error(error) => {
                match &error.id {
                    Some(id) => self.forget(id),
                    None => self.signals.bounced.notify_one(),
                }
                Some(JsonRpcMessage::Error(error))
            }
            request @ JsonRpcMessage::Request(_) => Some(request),
        }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Tap<T> {
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        "MCP".into()
    }

    fn send(
        &mut self,
        mut message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.see_sent(&mut message);
        self.transport.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let Some(message) = self.transport.receive().await else {
                self.signals.ended.cancel();
                return None;
            };
            if let Some(message) = self.see_received(message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.signals.ended.cancel();
        self.transport.close().await
    }
}
