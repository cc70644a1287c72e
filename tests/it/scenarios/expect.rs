//! What must follow from a scenario. What is not stated, or null, is not compared.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    pub(super) output: Option<String>,
    /// `{{i}}` is the run's number, from 0.
    pub(super) output_each: Option<String>,
    pub(super) error_contains: Option<Texts>,
    pub(super) build_error_contains: Option<Texts>,
    #[serde(default)]
    pub(super) llm_calls: BTreeMap<String, usize>,
    #[serde(default)]
    pub(super) tool_exec: BTreeMap<String, usize>,
    pub(super) max_concurrent_llm_at_least: Option<usize>,
    /// Of each run: type, sender, receiver, content.
    pub(super) messages: Option<Vec<[String; 4]>>,
    /// Of each run.
    pub(super) forwards: Option<usize>,
    /// Of each run.
    pub(super) returns: Option<usize>,
    /// Of each run.
    pub(super) call_ids_unique: Option<UniqueIds>,
    /// Words for the reader, unless they are `{agent}'s call id`.
    pub(super) parent_of_children: Option<Value>,
    #[serde(default)]
    pub(super) contexts: Vec<Shown>,
    #[serde(default)]
    pub(super) tool_results: Vec<ToolResults>,
    #[serde(default)]
    pub(super) contexts_not_contain: Vec<Absent>,
    pub(super) min_ms: Option<u64>,
    pub(super) max_ms: Option<u64>,
    #[serde(default = "one")]
    pub(super) runs: NonZeroUsize,
    pub(super) live_actors_after: Option<usize>,
    pub(super) cancel_after_ms: Option<u64>,
    pub(super) all_actors_stopped_within_ms: Option<u64>,
}

fn one() -> NonZeroUsize {
    NonZeroUsize::MIN
}

/// One text or several.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Texts {
    One(String),
    Several(Vec<String>),
}

impl Texts {
    pub(super) fn iter(&self) -> impl Iterator<Item = &String> {
        match self {
            Self::One(text) => std::slice::from_ref(text).iter(),
            Self::Several(texts) => texts.iter(),
        }
    }
}

#[derive(Deserialize)]
#[serde(try_from = "Value")]
pub(super) enum UniqueIds {
    HoweverMany,
    Exactly(usize),
}

impl TryFrom<Value> for UniqueIds {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match (value.as_bool(), value.as_u64().map(usize::try_from)) {
            (Some(true), _) => Ok(Self::HoweverMany),
            (_, Some(Ok(count))) => Ok(Self::Exactly(count)),
            _ => Err(format!("`call_ids_unique` is a number or true, not {value}")),
        }
    }
}

/// What a model was shown at its agent's `nth` call, from 1.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shown {
    pub(super) agent: String,
    pub(super) nth: usize,
    pub(super) system: Option<String>,
    pub(super) system_contains: Option<Texts>,
    pub(super) system_not_contains: Option<Texts>,
    /// The names of the tools that it was offered, in order.
    pub(super) tools: Option<Vec<String>>,
    /// All messages after the system prompt.
    pub(super) messages: Option<Vec<ShownMessage>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShownMessage {
    pub(super) role: Option<String>,
    /// Stated as null it is no text.
    #[serde(default, deserialize_with = "stated")]
    pub(super) content: Option<Option<String>>,
    pub(super) tool_calls: Option<Vec<ShownCall>>,
    pub(super) tool_call_id: Option<String>,
    pub(super) tool_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShownCall {
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) arguments: Option<Value>,
    pub(super) arguments_raw: Option<String>,
}

/// Tells a stated null from what is not stated.
fn stated<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// The tool messages in an agent's context at its `nth` model call, from 1.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolResults {
    pub(super) agent: String,
    pub(super) nth: usize,
    pub(super) results: Option<Vec<ToolResult>>,
    /// All texts.
    pub(super) results_in_order: Option<Vec<String>>,
    pub(super) count: Option<usize>,
    pub(super) first: Option<String>,
    pub(super) last: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolResult {
    pub(super) tool_call_id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) content: Option<String>,
    pub(super) content_contains: Option<Texts>,
}

/// What must not stand in any context of an agent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Absent {
    pub(super) agent: String,
    pub(super) text: Texts,
}
