//! A transport whose messages show no secret, neither to those who read them nor to the SDK, which logs them.

use std::borrow::Cow;

use rmcp::RoleClient;
use rmcp::model::JsonRpcMessage;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;

use super::redaction::Redaction;

/// A transport from whose messages the secrets of a server's configuration are taken: from an error all that the server
/// was given, from all others its credentials.
pub(super) struct Redacted<T> {
    transport: T,
    redaction: Redaction,
}

impl<T> Redacted<T> {
    pub(super) fn new(transport: T, redaction: Redaction) -> Self {
        Self { transport, redaction }
    }

    fn redact(&self, message: RxJsonRpcMessage<RoleClient>) -> RxJsonRpcMessage<RoleClient> {
        let secrets = match message {
            JsonRpcMessage::Error(_) => &self.redaction.given,
            _ => &self.redaction.credentials,
        };
        // Few messages hold a secret, and those that do not are not read twice.
        let holds = |json: &String| matches!(secrets.redact(json), Cow::Owned(_));
        if !self.redaction.hides || !serde_json::to_string(&message).as_ref().is_ok_and(holds) {
            return message;
        }
        let Ok(mut json) = serde_json::to_value(&message) else { return message };
        strings(&mut json, &|text| secrets.redact(text));
        serde_json::from_value(json).unwrap_or(message)
    }
}

/// Replaces every string within a value, names of members too. The SDK has parsed it, so it is not deep.
fn strings(value: &mut Value, replace: &impl Fn(&str) -> Cow<'_, str>) {
    match value {
        Value::String(text) => *text = replace(text).into_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| strings(item, replace)),
        Value::Object(members) => {
            let replaced = std::mem::take(members).into_iter().map(|(name, mut member)| {
                strings(&mut member, replace);
                (replace(&name).into_owned(), member)
            });
            *members = replaced.collect();
        }
        _ => {}
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Redacted<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.transport.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.transport.receive().await.map(|message| self.redact(message))
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.transport.close().await
    }
}
