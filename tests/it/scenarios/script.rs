//! What an agent's model says, one response a call.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentouto::providers::scripted::ScriptedReply;
use agentouto::{ChatMessage, ProviderError, ProviderErrorKind, Reply, Request, StopReason, ToolCall};
use serde::Deserialize;
use serde_json::Value;

/// In which form a model says what it does.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// It calls functions.
    Calls,
    /// It writes its calls into its text.
    Text,
}

/// The responses of one agent's model.
#[derive(Deserialize)]
#[serde(try_from = "Value")]
pub(super) enum Script {
    /// In the order of the agent's model calls over the whole scenario.
    InOrder { responses: Vec<Arc<Response>>, said: AtomicUsize },
    /// By the forward's message, or `*` for any other; within an invocation turn by turn.
    ByInput(HashMap<String, Vec<Arc<Response>>>),
}

impl Script {
    /// The response to this request. Each request must be asked about once.
    pub(super) fn reply(&self, request: &Request, form: Form) -> ScriptedReply {
        let (agent, input) = (&request.agent.name, request.context.input());
        let (responses, place) = match self {
            Self::InOrder { responses, said } => (responses, said.fetch_add(1, Ordering::Relaxed)),
            Self::ByInput(by_input) => match by_input.get(input).or_else(|| by_input.get("*")) {
                Some(responses) => (responses, request.context.turns()),
                None => return failure(format!("the script of agent `{agent}` has nothing for the input `{input}`")),
            },
        };
        match responses.get(place) {
            Some(response) => response.reply(request, form),
            None => failure(format!("the script of agent `{agent}` has ended after {} responses", responses.len())),
        }
    }
}

pub(super) fn failure(message: impl Into<Arc<str>>) -> ScriptedReply {
    ProviderError::new(ProviderErrorKind::Other, message).into()
}

impl TryFrom<Value> for Script {
    type Error = serde_json::Error;

    fn try_from(script: Value) -> Result<Self, Self::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Keyed {
            by_input: HashMap<String, Vec<Entry>>,
        }
        match script {
            Value::Array(_) => {
                let responses = unrolled(serde_json::from_value(script)?);
                Ok(Self::InOrder { responses, said: AtomicUsize::new(0) })
            }
            keyed => {
                let Keyed { by_input } = serde_json::from_value(keyed)?;
                Ok(Self::ByInput(by_input.into_iter().map(|(input, entries)| (input, unrolled(entries))).collect()))
            }
        }
    }
}

/// A response, or one that is given several times.
#[derive(Deserialize)]
#[serde(try_from = "Value")]
struct Entry {
    repeat: usize,
    response: Arc<Response>,
}

impl TryFrom<Value> for Entry {
    type Error = serde_json::Error;

    fn try_from(entry: Value) -> Result<Self, Self::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Repeated {
            repeat: usize,
            response: Arc<Response>,
        }
        if entry.get("repeat").is_some() || entry.get("response").is_some() {
            let Repeated { repeat, response } = serde_json::from_value(entry)?;
            return Ok(Self { repeat, response });
        }
        Ok(Self { repeat: 1, response: serde_json::from_value(entry)? })
    }
}

fn unrolled(entries: Vec<Entry>) -> Vec<Arc<Response>> {
    entries.into_iter().flat_map(|entry| std::iter::repeat_n(entry.response, entry.repeat)).collect()
}

/// One answer of a model, with templates in it: `{{input}}` and `{{last_tool_result}}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Response {
    content: Option<String>,
    #[serde(default)]
    tool_calls: Vec<ScriptedCall>,
    #[serde(default)]
    delay_ms: u64,
    /// The call fails with this text instead.
    error: Option<String>,
    stop_reason: Option<StopReason>,
}

impl Response {
    fn reply(&self, request: &Request, form: Form) -> ScriptedReply {
        let reply = match (&self.error, form) {
            (Some(error), _) => failure(error.as_str()),
            (None, Form::Calls) => self.called(&Blanks::of(request)).into(),
            (None, Form::Text) => self.written(&Blanks::of(request)).into(),
        };
        reply.after(Duration::from_millis(self.delay_ms))
    }

    fn called(&self, blanks: &Blanks<'_>) -> Reply {
        let usual = if self.tool_calls.is_empty() { StopReason::Stop } else { StopReason::ToolCalls };
        Reply {
            text: self.content.as_ref().map(|text| blanks.fill(text).into()),
            tool_calls: self.tool_calls.iter().map(|call| call.filled(blanks)).collect(),
            stop_reason: self.stop_reason.clone().unwrap_or(usual),
            ..Reply::default()
        }
    }

    /// The same as text alone, with nothing around the calls that would be text of its own.
    fn written(&self, blanks: &Blanks<'_>) -> Reply {
        let text = self.content.as_ref().map(|text| blanks.fill(text));
        let calls = self.tool_calls.iter().map(|call| written(&call.filled(blanks)));
        Reply {
            text: text.into_iter().chain(calls).reduce(|all, part| all + &part).map(Into::into),
            stop_reason: self.stop_reason.clone().unwrap_or_default(),
            ..Reply::default()
        }
    }
}

/// A call as a model writes it that was told how.
fn written(call: &ToolCall) -> String {
    let ToolCall { name, arguments, .. } = call;
    format!("<tool_call>\n<name>{name}</name>\n<arguments>{arguments}</arguments>\n</tool_call>")
}

/// A tool call: its arguments as JSON, or as the characters that stand on the wire.
#[derive(Deserialize)]
#[serde(try_from = "WrittenCall")]
struct ScriptedCall {
    id: Arc<str>,
    name: Arc<str>,
    arguments: Written,
}

enum Written {
    Json(Value),
    Raw(Arc<str>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCall {
    id: Arc<str>,
    name: Arc<str>,
    arguments: Option<Value>,
    arguments_raw: Option<Arc<str>>,
}

impl TryFrom<WrittenCall> for ScriptedCall {
    type Error = String;

    fn try_from(call: WrittenCall) -> Result<Self, Self::Error> {
        let WrittenCall { id, name, arguments, arguments_raw } = call;
        let arguments = match (arguments, arguments_raw) {
            (Some(json), None) => Written::Json(json),
            (None, Some(raw)) => Written::Raw(raw),
            _ => return Err(format!("tool call `{id}`: has not exactly one of `arguments`, `arguments_raw`")),
        };
        Ok(Self { id, name, arguments })
    }
}

impl ScriptedCall {
    fn filled(&self, blanks: &Blanks<'_>) -> ToolCall {
        let arguments = match &self.arguments {
            Written::Json(json) => blanks.fill_all(json).to_string().into(),
            Written::Raw(raw) => Arc::clone(raw),
        };
        ToolCall::new(Arc::clone(&self.id), Arc::clone(&self.name), arguments)
    }
}

/// What templates are filled with.
struct Blanks<'a> {
    input: &'a str,
    last_tool_result: &'a str,
}

impl<'a> Blanks<'a> {
    fn of(request: &'a Request) -> Self {
        let last = request.context.messages().rev().find_map(|message| match message {
            ChatMessage::Tool { output, .. } => Some(&*output.content.text),
            _ => None,
        });
        Self { input: request.context.input(), last_tool_result: last.unwrap_or_default() }
    }

    /// What is filled in is not itself a template.
    fn fill(&self, template: &str) -> String {
        let mut filled = String::new();
        let mut rest = template;
        while let Some(place) = rest.find("{{") {
            filled.push_str(&rest[..place]);
            rest = &rest[place..];
            let (blank, value) = [("{{input}}", self.input), ("{{last_tool_result}}", self.last_tool_result)]
                .into_iter()
                .find(|(blank, _)| rest.starts_with(blank))
                .unwrap_or(("{", "{"));
            filled.push_str(value);
            rest = &rest[blank.len()..];
        }
        filled + rest
    }

    fn fill_all(&self, value: &Value) -> Value {
        match value {
            Value::String(template) => self.fill(template).into(),
            Value::Array(items) => items.iter().map(|item| self.fill_all(item)).collect(),
            Value::Object(fields) => {
                Value::Object(fields.iter().map(|(key, value)| (key.clone(), self.fill_all(value))).collect())
            }
            other => other.clone(),
        }
    }
}
