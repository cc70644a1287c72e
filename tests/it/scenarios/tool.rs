//! A tool that behaves as the scenario says.

use std::sync::Arc;
use std::time::Duration;

use agentouto::tool::{self, FunctionTool};
use agentouto::{Arguments, ToolError, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::record::Record;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedTool {
    name: Arc<str>,
    #[serde(default)]
    description: Arc<str>,
    parameters: Value,
    /// Not stated for a tool that never runs.
    behaviour: Option<Arc<Behaviour>>,
}

impl ScriptedTool {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What a model is told of it, as it is written.
    pub(super) fn spec(&self) -> ToolSpec {
        let Self { name, description, parameters, .. } = self;
        ToolSpec { name: Arc::clone(name), description: Arc::clone(description), parameters: parameters.clone() }
    }

    /// The tool, which writes down when it runs. Where its parameters are null it takes any.
    pub(super) fn recorded_in(&self, record: &Arc<Record>) -> FunctionTool {
        let mut spec = self.spec();
        if spec.parameters.is_null() {
            spec.parameters = json!({"type": "object", "properties": {}});
        }
        let (name, behaviour, record) = (Arc::clone(&self.name), self.behaviour.clone(), Arc::clone(record));
        tool::from_spec(spec, move |arguments| {
            let before = record.tool_runs(&name);
            let at_work = record.run_tool(&name);
            let behaviour = behaviour.clone();
            if behaviour.is_none() {
                record.complain(format!("tool `{name}` runs, and has no `behaviour`"));
            }
            let name = Arc::clone(&name);
            async move {
                let _at_work = at_work;
                let behaviour = behaviour.ok_or("no behaviour")?;
                tokio::time::sleep(behaviour.delay()).await;
                behaviour.perform(&name, before, &arguments)
            }
        })
    }
}

/// What a tool does, after its delay.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Behaviour {
    Return {
        value: Value,
        #[serde(default)]
        delay_ms: u64,
    },
    /// A text in which `{parameter}` is that argument.
    Template {
        value: String,
        #[serde(default)]
        delay_ms: u64,
    },
    /// Another value each time it runs; the last one repeats.
    Sequence {
        values: Vec<Step>,
        #[serde(default)]
        delay_ms: u64,
    },
    Error {
        message: String,
        #[serde(default)]
        kind: Kind,
        #[serde(default)]
        delay_ms: u64,
    },
    Panic {
        message: String,
        #[serde(default)]
        delay_ms: u64,
    },
}

impl Behaviour {
    fn delay(&self) -> Duration {
        let (Self::Return { delay_ms, .. }
        | Self::Template { delay_ms, .. }
        | Self::Sequence { delay_ms, .. }
        | Self::Error { delay_ms, .. }
        | Self::Panic { delay_ms, .. }) = self;
        Duration::from_millis(*delay_ms)
    }

    /// `before` is how often the tool ran before.
    fn perform(&self, tool: &str, before: usize, arguments: &Arguments) -> Result<String, ToolError> {
        match self {
            Self::Return { value, .. } => Ok(text(value)),
            Self::Template { value, .. } => Ok(filled(value, arguments)),
            Self::Sequence { values, .. } => match values.get(before).or(values.last()) {
                Some(Step::Value(value)) => Ok(text(value)),
                Some(Step::Failure { error, kind }) => Err(kind.error(tool, error)),
                None => Err("the sequence has no values".into()),
            },
            Self::Error { message, kind, .. } => Err(kind.error(tool, message)),
            // As `panic!` does it, without the backtrace on stderr.
            Self::Panic { message, .. } => std::panic::resume_unwind(Box::new(message.clone())),
        }
    }
}

/// What a tool gives one of the times that it runs: a value, or `{error, kind}`.
#[derive(Deserialize)]
#[serde(try_from = "Value")]
enum Step {
    Value(Value),
    Failure { error: String, kind: Kind },
}

impl TryFrom<Value> for Step {
    type Error = serde_json::Error;

    fn try_from(step: Value) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Failure {
            error: String,
            #[serde(default)]
            kind: Kind,
        }
        if step.get("error").is_none() {
            return Ok(Self::Value(step));
        }
        let Failure { error, kind } = serde_json::from_value(step)?;
        Ok(Self::Failure { error, kind })
    }
}

/// What kind of failure a tool says that it is.
#[derive(Default, Deserialize)]
#[serde(from = "String")]
enum Kind {
    Network,
    Authentication,
    Timeout,
    #[default]
    Other,
}

impl From<String> for Kind {
    fn from(kind: String) -> Self {
        match kind.as_str() {
            "network" => Self::Network,
            "auth" | "authentication" => Self::Authentication,
            "timeout" => Self::Timeout,
            _ => Self::Other,
        }
    }
}

impl Kind {
    fn error(&self, tool: &str, text: &str) -> ToolError {
        match self {
            Self::Network => ToolError::network(text),
            Self::Authentication => ToolError::authentication(tool, text),
            Self::Timeout => {
                let mut error = ToolError::timeout(Duration::from_secs(30));
                error.message = format!("{}: {text}", error.message).into();
                error
            }
            Self::Other => text.into(),
        }
    }
}

/// A text as it is, anything else as JSON.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What is filled in is not itself a template. Braces around anything but an argument's name stay.
fn filled(template: &str, arguments: &Arguments) -> String {
    let mut filled = String::new();
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        let name = rest[open + 1..].split('}').next().unwrap_or_default();
        let end = open + 1 + name.len() + 1;
        match arguments.get(name).filter(|_| end <= rest.len()) {
            Some(value) => {
                filled.push_str(&rest[..open]);
                filled.push_str(&text(value));
                rest = &rest[end..];
            }
            None => {
                filled.push_str(&rest[..=open]);
                rest = &rest[open + 1..];
            }
        }
    }
    filled + rest
}
