//! Scenarios of `prompt_based.json`: tools for models that know text alone.

mod factory;
mod parse;
mod prompt;
mod run;

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::mismatches::Mismatches;
use super::scenario::with_texts_repeated;

/// What is wrong with what comes of a scenario.
pub(super) fn judge(scenario: Value) -> Result<Vec<String>, String> {
    let scenario = without_words_for_readers(scenario);
    let parsed = with_texts_repeated(scenario.clone()).and_then(serde_json::from_value);
    let mut found = Mismatches::default();
    match parsed.map_err(|error| error.to_string())? {
        Scenario::Parse(parse) => parse.judge(&mut found),
        Scenario::Prompt(prompt) => prompt.judge(&mut found),
        Scenario::Run(run) => run.judge(&mut found)?,
        Scenario::Factory(factory) => factory.judge(&mut found),
    }
    Ok(found.list())
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Scenario {
    /// What becomes of a model's answer.
    Parse(parse::Parse),
    /// What a model is told of tools.
    Prompt(prompt::Prompt),
    /// A whole run.
    Run(Box<run::Run>),
    /// Which models call functions themselves.
    Factory(factory::Factory),
}

fn without_words_for_readers(mut scenario: Value) -> Value {
    if let Some(fields) = scenario.as_object_mut() {
        fields
            .retain(|key, _| !["name", "title", "system", "basis", "ref", "rust_only", "note"].contains(&key.as_str()));
    }
    if let Some(expect) = scenario.get_mut("expect").and_then(Value::as_object_mut) {
        expect.remove("note");
    }
    scenario
}

/// That nothing fails, which is always so where it is stated.
struct NoError;

impl<'de> Deserialize<'de> for NoError {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match bool::deserialize(deserializer)? {
            true => Ok(Self),
            false => Err(de::Error::custom("`no_error` is true where it is stated")),
        }
    }
}
