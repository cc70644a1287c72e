//! A wrapper between a transport and the SDK that observes messages.
//!
//! Progress goes to the calls that it belongs to, in order and before the result; the server's requests are answered;
//! other important messages become signals.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::model::{
    ClientNotification, ClientRequest, ClientResult, ErrorCode, ErrorData, GetExtensions as _, GetMeta as _,
    JsonRpcMessage, ProgressNotificationParam, ProgressToken, RequestId, ServerNotification, ServerRequest,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::tool_call::Progress;
use crate::tool_interface::ToolContext;

/// The most answers to the server's requests that may wait to be sent. Further requests are not answered until then.
const MAX_ANSWERS: usize = 1_000;
/// The longest id, in bytes, of a request that is answered: the answer repeats it.
const MAX_ID: usize = 1_000;

/// The signals about a connection, from its transport.
#[derive(Clone, Default)]
pub(crate) struct Signals {
    /// No more messages can arrive.
    pub(crate) ended: CancellationToken,
    /// The tools have changed.
    pub(crate) changed: Arc<Notify>,
    /// The server may be gone.
    pub(crate) maybe_gone: Arc<Notify>,
    /// The server has rejected a message without saying which.
    pub(crate) rejected: Arc<Notify>,
}

/// A transport whose messages are observed.
pub(crate) struct Tap<T: Transport<RoleClient>> {
    transport: T,
    answers: FuturesUnordered<BoxFuture<'static, Result<(), T::Error>>>,
    signals: Signals,
    receivers: HashMap<ProgressToken, Weak<ProgressReceiver>>,
    tokens: HashMap<RequestId, ProgressToken>,
    _ended: DropGuard,
}

/// The receiver of one call's progress. A request with a weak reference to it among its extensions reports to it.
pub(crate) struct ProgressReceiver {
    pub(crate) context: ToolContext,
    pub(crate) progressed: Notify,
    shown: Mutex<Option<f64>>,
}

impl ProgressReceiver {
    pub(crate) fn new(context: ToolContext) -> Arc<Self> {
        Arc::new(Self { context, progressed: Notify::new(), shown: Mutex::default() })
    }

    /// Reports progress, unless it goes backwards.
    fn show(&self, sign: ProgressNotificationParam) {
        let mut shown = self.shown.lock();
        if shown.is_some_and(|shown| sign.progress < shown) {
            return;
        }
        *shown = Some(sign.progress);
        self.progressed.notify_one();
        let message = sign.message.map(Into::into);
        self.context.progress(Progress { done: sign.progress, total: sign.total, message });
    }
}

impl<T: Transport<RoleClient>> Tap<T> {
    pub(crate) fn new(transport: T, signals: Signals) -> Self {
        let ended = signals.ended.clone().drop_guard();
        let answers = FuturesUnordered::new();
        Self { transport, answers, signals, receivers: HashMap::new(), tokens: HashMap::new(), _ended: ended }
    }

    fn see_sent(&mut self, message: &mut TxJsonRpcMessage<RoleClient>) {
        match message {
            JsonRpcMessage::Request(sent) => {
                let ClientRequest::CallToolRequest(call) = &mut sent.request else { return };
                let receiver = call.extensions_mut().remove::<Weak<ProgressReceiver>>();
                if let (Some(receiver), Some(token)) = (receiver, sent.request.get_meta().get_progress_token()) {
                    self.tokens.insert(sent.id.clone(), token.clone());
                    self.receivers.insert(token, receiver);
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
            self.receivers.remove(&token);
        }
    }

    /// Handles the messages for this wrapper, and returns those for the SDK.
    fn see_received(&mut self, message: RxJsonRpcMessage<RoleClient>) -> Option<RxJsonRpcMessage<RoleClient>> {
        match message {
            JsonRpcMessage::Notification(mut received) => match received.notification {
                ServerNotification::ProgressNotification(sign) => {
                    if let Some(receiver) = self.receivers.get(&sign.params.progress_token).and_then(Weak::upgrade) {
                        receiver.show(sign.params);
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
                    None => self.signals.rejected.notify_one(),
                }
                Some(JsonRpcMessage::Error(error))
            }
            JsonRpcMessage::Request(asked) => {
                let is_short = !matches!(&asked.id, RequestId::String(id) if id.len() > MAX_ID);
                if is_short && self.answers.len() < MAX_ANSWERS {
                    let answer = match answer(&asked.request) {
                        Ok(result) => JsonRpcMessage::response(result, asked.id),
                        Err(error) => JsonRpcMessage::error(error, Some(asked.id)),
                    };
                    self.answers.push(Box::pin(self.transport.send(answer)));
                }
                None
            }
        }
    }
}

/// The answer to a request of the server. Only pings are supported: no sampling, no elicitation, no roots.
fn answer(request: &ServerRequest) -> Result<ClientResult, ErrorData> {
    match request {
        ServerRequest::PingRequest(_) => Ok(ClientResult::empty(())),
        _ => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "this client answers no requests", None)),
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
            let message = tokio::select! {
                // A failure to send an answer affects only the server.
                Some(_) = self.answers.next() => continue,
                message = self.transport.receive() => message,
            };
            let Some(message) = message else {
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

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::io;

    use futures_util::FutureExt as _;
    use serde_json::{Value, json};

    use super::*;

    /// A server that sends 10,000 requests and reads only this many answers.
    struct Curious {
        asked: usize,
        taken: usize,
        answers: Vec<Value>,
    }

    impl Transport<RoleClient> for Curious {
        type Error = io::Error;

        fn send(
            &mut self,
            message: TxJsonRpcMessage<RoleClient>,
        ) -> impl Future<Output = io::Result<()>> + Send + 'static {
            self.answers.push(serde_json::to_value(message).unwrap());
            if self.answers.len() <= self.taken { ready(Ok(())).boxed() } else { pending().boxed() }
        }

        async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
            if self.asked == 10_000 {
                return None;
            }
            self.asked += 1;
            let (id, method) = match self.asked {
                1 => (json!("long".repeat(MAX_ID)), "ping"),
                2 => (json!("a"), "ping"),
                asked => (json!(asked), "roots/list"),
            };
            serde_json::from_value(json!({"jsonrpc": "2.0", "id": id, "method": method})).unwrap()
        }

        async fn close(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_server_that_asks_and_takes_no_answers_is_not_answered_without_end() {
        let mut tap = Tap::new(Curious { asked: 0, taken: 500, answers: Vec::new() }, Signals::default());
        assert!(tap.receive().now_or_never().is_some_and(|end| end.is_none()), "the SDK has nothing to do");
        let answers = tap.transport.answers;
        assert_eq!(answers.len(), 500 + MAX_ANSWERS);
        assert_eq!(answers[0], json!({"jsonrpc": "2.0", "id": "a", "result": {}}));
        assert_eq!(answers[1]["error"]["code"], -32601);
    }
}
