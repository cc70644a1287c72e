//! A transport whose messages contain no secret, neither for their readers nor for the SDK, which logs them.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::RoleClient;
use rmcp::model::JsonRpcMessage;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;

use crate::mcp::client::definition::NAMED_SCHEMAS;
use crate::mcp::client::output::decode;
use crate::mcp::client::redaction::Redaction;

/// A transport that removes the secrets of a server's configuration from messages: all values of the configuration from
/// an error, the credentials from any other message.
pub(crate) struct Redacted<T> {
    transport: T,
    redaction: Redaction,
}

impl<T> Redacted<T> {
    pub(crate) fn new(transport: T, redaction: Redaction) -> Self {
        Self { transport, redaction }
    }

    /// A text of a message without secrets.
    fn text<'t>(&self, is_error: bool, text: &'t str) -> Cow<'t, str> {
        if is_error { self.redaction.of_failure(text) } else { self.redaction.of_result(text) }
    }

    /// The message without secrets; `None` if the result cannot be parsed.
    fn redact(&self, message: RxJsonRpcMessage<RoleClient>) -> Option<RxJsonRpcMessage<RoleClient>> {
        let is_error = matches!(message, JsonRpcMessage::Error(_));
        // Few messages contain a secret, and the others are not parsed twice.
        let may_hold = |json: &String| {
            // Control characters are escaped, and text may be in base64.
            matches!(self.text(is_error, json), Cow::Owned(_))
                || ["\\u", "\\b", "\\f", "\"blob\""].iter().any(|sign| json.contains(sign))
        };
        if self.redaction.is_empty() || !serde_json::to_string(&message).as_ref().is_ok_and(may_hold) {
            return Some(message);
        }
        let redact = |text: &str| self.text(is_error, text).into_owned();
        let mut json = serde_json::to_value(&message).ok()?;
        let said = ["params", "result", "error"];
        for (_, said) in json.as_object_mut()?.iter_mut().filter(|(key, _)| said.contains(&key.as_str())) {
            redact_lists(said, &redact);
        }
        serde_json::from_value(json).ok()
    }
}

/// Redacts the content of a message: a list of definitions, or any other value.
fn redact_lists(said: &mut Value, redact: &impl Fn(&str) -> String) {
    let Value::Object(members) = said else { return redact_all(said, redact) };
    for (key, value) in members {
        match (key.as_str(), value) {
            ("tools" | "prompts", Value::Array(entries)) => {
                entries.iter_mut().for_each(|entry| redact_definition(entry, redact));
            }
            (_, value) => redact_all(value, redact),
        }
    }
}

/// Redacts the definition of a tool, a prompt or a prompt's argument. Names and schemas stay valid: they are sent back
/// to the server, and a simple password may be part of one.
fn redact_definition(entry: &mut Value, redact: &impl Fn(&str) -> String) {
    for (key, value) in entry.as_object_mut().into_iter().flatten() {
        match (key.as_str(), value) {
            ("name", _) => {}
            ("inputSchema" | "outputSchema", schema) => redact_schema(schema, redact),
            ("arguments", Value::Array(arguments)) => {
                arguments.iter_mut().for_each(|argument| redact_definition(argument, redact));
            }
            (_, value) => redact_all(value, redact),
        }
    }
}

/// Redacts the descriptive texts of a schema, but not the names and values that it allows.
fn redact_schema(schema: &mut Value, redact: &impl Fn(&str) -> String) {
    match schema {
        Value::Object(members) => members.iter_mut().for_each(|(key, value)| match (key.as_str(), value) {
            ("enum" | "const" | "required" | "$ref", _) => {}
            (key, Value::Object(named)) if NAMED_SCHEMAS.contains(&key) => {
                named.values_mut().for_each(|schema| redact_schema(schema, redact));
            }
            ("default" | "examples", data) => redact_all(data, redact),
            (_, value) => redact_schema(value, redact),
        }),
        Value::Array(items) => items.iter_mut().for_each(|item| redact_schema(item, redact)),
        Value::String(text) => *text = redact(text),
        _ => {}
    }
}

/// Redacts every text and number within a value, including the names of members. The SDK has parsed it, so its nesting
/// is limited.
fn redact_all(value: &mut Value, redact: &impl Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = redact(text),
        Value::Number(number) => {
            let text = number.to_string();
            let redacted = redact(&text);
            if redacted != text {
                *value = redacted.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| redact_all(item, redact)),
        Value::Object(members) => {
            let redacted = std::mem::take(members).into_iter().map(|(name, mut member)| {
                match (name.as_str(), &member) {
                    ("blob", Value::String(base64)) => member = redact_blob(base64, redact).into(),
                    _ => redact_all(&mut member, redact),
                }
                (redact(&name), member)
            });
            *members = redacted.collect();
        }
        _ => {}
    }
}

/// Redacts text in base64.
fn redact_blob(base64: &str, redact: &impl Fn(&str) -> String) -> String {
    let text = decode(base64).and_then(|bytes| String::from_utf8(bytes).ok());
    match text.map(|text| (redact(&text), text)) {
        Some((redacted, text)) if redacted != text => STANDARD.encode(redacted),
        _ => base64.to_owned(),
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
        loop {
            let message = self.transport.receive().await?;
            match self.redact(message) {
                Some(message) => return Some(message),
                None => tracing::warn!("a message of an MCP server that holds a secret is passed over"),
            }
        }
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.transport.close().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::client::config::ServerConfig;
    use serde_json::json;

    /// The message as the SDK and the model see it.
    fn seen(message: Value) -> Value {
        let server =
            ServerConfig::stdio("x", [""; 0]).env("API_KEY", "sk-can\u{e9}ry-0123").env("DB_PASSWORD", "postgres");
        let server = server.env("PIN_CODE_KEY", "123456789012").env("ZONE", "zone-12345");
        let redacted = Redacted::new((), server.redaction());
        serde_json::to_value(redacted.redact(serde_json::from_value(message).unwrap()).unwrap()).unwrap()
    }

    fn result(result: Value) -> Value {
        seen(json!({"jsonrpc": "2.0", "id": 123456789012_u64, "result": result}))["result"].take()
    }

    #[test]
    fn credentials_are_hidden_however_they_are_written() {
        for text in [
            "sk-canéry-0123",
            "sk-can\u{200b}éry-0123",
            "sk-can\u{0}éry-0123",
            "sk-can%C3%A9ry-0123",
            "c2stY2Fuw6lyeS0wMTIz",
        ] {
            let said = json!({"content": [{"type": "text", "text": format!("it is {text}!")}], "zone": "zone-12345"});
            assert_eq!(result(said)["content"][0]["text"], "it is [redacted]!", "{text:?}");
        }
        let structured =
            json!({"content": [], "structuredContent": {"pin": 123456789012_u64, "postgres": 1, "zone": "zone-12345"}});
        let shown = json!({"pin": "[redacted]", "[redacted]": 1, "zone": "zone-12345"});
        assert_eq!(result(structured)["structuredContent"], shown);
        let blob = STANDARD.encode("zone-12345, sk-canéry-0123");
        let document = json!({"contents": [{"uri": "x://a", "blob": blob}]});
        assert_eq!(result(document)["contents"][0]["blob"], STANDARD.encode("zone-12345, [redacted]"));
        let error = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "zone-12345 postgres"}});
        assert_eq!(seen(error)["error"]["message"], "[redacted] [redacted]");
    }

    #[test]
    fn the_names_of_tools_and_parameters_stay_although_a_simple_password_is_in_them() {
        let tools = |said: &str| {
            json!({"tools": [{"name": "postgres_query", "description": format!("Asks {said}."), "inputSchema": {
                "type": "object",
                "properties": {"postgres": {"type": "string", "enum": ["postgres"], "description": said, "default": said}},
                "required": ["postgres"],
            }}]})
        };
        assert_eq!(result(tools("postgres")), tools("[redacted]"));
    }
}
