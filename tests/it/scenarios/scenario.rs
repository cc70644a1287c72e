//! A scenario as its file says it, parsed once. A key that is not known here is an error that names it.

use std::collections::HashMap;
use std::sync::Arc;

use agentouto::Agent;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::expect::Expect;
use super::script::Script;
use super::tool::ScriptedTool;

/// Who there is, what their models say, what the user asks, and what must follow.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    pub(super) agents: Vec<ScriptedAgent>,
    pub(super) entry: String,
    #[serde(default)]
    pub(super) tools: Vec<ScriptedTool>,
    pub(super) script: Arc<HashMap<String, Script>>,
    /// What the user says. `{{i}}` is the run's number, from 0.
    pub(super) input: String,
    pub(super) expect: Expect,
    /// A run that asks models more often than this is cancelled, and the scenario fails.
    pub(super) max_llm_calls: Option<usize>,

    // For readers only.
    #[serde(rename = "name")]
    _name: Option<IgnoredAny>,
    #[serde(rename = "title")]
    _title: Option<IgnoredAny>,
    #[serde(rename = "system")]
    _system: Option<IgnoredAny>,
    #[serde(rename = "basis")]
    _basis: Option<IgnoredAny>,
    #[serde(rename = "ref")]
    _reference: Option<IgnoredAny>,
    #[serde(rename = "rust_only")]
    _rust_only: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedAgent {
    pub(super) name: String,
    pub(super) instructions: String,
}

impl ScriptedAgent {
    /// The agent, whose provider is `fake`.
    pub(super) fn agent(&self) -> Agent {
        Agent::new(self.name.as_str(), self.instructions.as_str()).model("fake-model").provider("fake")
    }
}

impl Scenario {
    pub(super) fn parse(scenario: Value) -> Result<Self, serde_json::Error> {
        serde_json::from_value(with_texts_repeated(scenario)?)
    }
}

/// The same value, where every `{repeat_text, times}` is the text that it stands for.
pub(super) fn with_texts_repeated(value: Value) -> Result<Value, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Repeated {
        repeat_text: String,
        times: usize,
    }
    Ok(match value {
        Value::Object(fields) if fields.contains_key("repeat_text") => {
            let Repeated { repeat_text, times } = serde_json::from_value(Value::Object(fields))?;
            repeat_text.repeat(times).into()
        }
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| Ok((key, with_texts_repeated(value)?)));
            Value::Object(fields.collect::<Result<_, serde_json::Error>>()?)
        }
        Value::Array(items) => items.into_iter().map(with_texts_repeated).collect::<Result<_, _>>()?,
        other => other,
    })
}
