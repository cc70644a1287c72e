//! Acceptance scenarios: scripted models, and the messages, contexts and results that must follow.
//!
//! Every scenario of `agentouto.json` is run, from `tests/data/scenarios` or from the folder that the environment
//! variable `AGENTOUTO_SCENARIOS` names. The head of that file describes the format. Nothing in a scenario is
//! passed over: a key that is not known here fails it.

mod check;
mod expect;
mod record;
mod runner;
mod scenario;
mod script;
mod stage;
mod tests;
mod tool;

use std::path::PathBuf;

use runner::Suite;

#[test]
fn agentouto() {
    let folder = std::env::var_os("AGENTOUTO_SCENARIOS")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/scenarios"), PathBuf::from);
    let verdicts = Suite::read(&folder, "agentouto").unwrap_or_else(|error| panic!("{error}")).run();
    println!("{verdicts}");
    assert!(verdicts.all_passed(), "a scenario failed, or there was none");
}
