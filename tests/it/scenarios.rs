//! Acceptance scenarios: scripted models, and the messages, contexts and results that must follow.
//!
//! Every scenario of `agentouto.json` and `prompt_based.json` is run, from `tests/data/scenarios` or from the folder
//! that the environment variable `AGENTOUTO_SCENARIOS` names. The heads of these files describe their formats. Nothing
//! in a scenario is passed over: a key that is not known here fails it.
#![cfg_attr(not(feature = "prompt_tools"), allow(dead_code, reason = "no model knows text alone"))]

mod check;
mod expect;
mod ids;
mod mismatches;
#[cfg(feature = "prompt_tools")]
mod prompt_based;
mod record;
mod runner;
mod scenario;
mod script;
mod stage;
mod tests;
#[cfg(feature = "prompt_tools")]
mod text_only;
mod tool;

use std::path::PathBuf;

use serde_json::Value;

use ids::Ids;
use runner::{Judge, Suite};
use scenario::Scenario;
use stage::Model;

#[test]
fn agentouto() {
    all_pass(suite("agentouto"), natively);
}

#[test]
#[cfg(feature = "prompt_tools")]
fn agentouto_on_text() {
    all_pass(suite("agentouto").named("agentouto on text"), on_text);
}

#[test]
#[cfg(feature = "prompt_tools")]
fn prompt_based() {
    all_pass(suite("prompt_based"), prompt_based::judge);
}

fn suite(name: &str) -> Suite {
    let folder = std::env::var_os("AGENTOUTO_SCENARIOS")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/scenarios"), PathBuf::from);
    Suite::read(&folder, name).unwrap_or_else(|error| panic!("{error}"))
}

fn all_pass(suite: Suite, judge: Judge) {
    let verdicts = suite.run(judge);
    println!("{verdicts}");
    assert!(verdicts.all_passed(), "a scenario failed, or there was none");
}

/// Judges a scenario of `agentouto.json` whose models call functions.
fn natively(scenario: Value) -> Result<Vec<String>, String> {
    let scenario = Scenario::parse(scenario).map_err(|error| error.to_string())?;
    Ok(check::mismatches(&scenario.expect, &stage::perform(&scenario, Model::Native), Ids::AsWritten))
}

/// Judges a scenario of `agentouto.json` whose models know text alone, in which tool calls have no ids, and reasoning in
/// tags is no part of the answer.
#[cfg(feature = "prompt_tools")]
fn on_text(mut scenario: Value) -> Result<Vec<String>, String> {
    if let Some(Value::String(output)) = scenario.pointer_mut("/expect/output") {
        *output = text_only::without_reasoning(output);
    }
    let scenario = Scenario::parse(scenario).map_err(|error| error.to_string())?;
    Ok(check::mismatches(&scenario.expect, &stage::perform(&scenario, Model::Text), Ids::Renamed))
}
