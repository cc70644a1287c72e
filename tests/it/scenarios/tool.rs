//! A tool that behaves as the scenario says.

use std::sync::Arc;
use std::time::Duration;

use agentouto::tool::{self, FunctionTool};
use agentouto::{Arguments, ToolSpec};
use serde::Deserialize;
use serde_json::Value;

use super::record::Record;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedTool {
    name: Arc<str>,
    #[serde(default)]
    description: Arc<str>,
    parameters: Value,
    behaviour: Arc<Behaviour>,
}

impl ScriptedTool {
    /// The tool, which writes down when it runs.
    pub(super) fn recorded_in(&self, record: &Arc<Record>) -> FunctionTool {
        let Self { name, description, parameters, behaviour } = self;
        let spec =
            ToolSpec { name: Arc::clone(name), description: Arc::clone(description), parameters: parameters.clone() };
        let (name, behaviour, record) = (Arc::clone(name), Arc::clone(behaviour), Arc::clone(record));
        tool::from_spec(spec, move |arguments| {
            let before = record.tool_runs(&name);
            let at_work = record.run_tool(&name);
            let behaviour = Arc::clone(&behaviour);
            async move {
                let _at_work = at_work;
                tokio::time::sleep(behaviour.delay()).await;
                behaviour.perform(before, &arguments)
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
        values: Vec<Value>,
        #[serde(default)]
        delay_ms: u64,
    },
    Error {
        message: String,
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
    fn perform(&self, before: usize, arguments: &Arguments) -> Result<String, String> {
        match self {
            Self::Return { value, .. } => Ok(text(value)),
            Self::Template { value, .. } => Ok(filled(value, arguments)),
            Self::Sequence { values, .. } => {
                values.get(before).or(values.last()).map(text).ok_or_else(|| "the sequence has no values".to_owned())
            }
            Self::Error { message, .. } => Err(message.clone()),
            // As `panic!` does it, without the backtrace on stderr.
            Self::Panic { message, .. } => std::panic::resume_unwind(Box::new(message.clone())),
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
