//! What the tests have in common: agents on a script.

use agentouto::providers::scripted::Scripted;
use agentouto::{Agent, Log, Runtime, RuntimeBuilder};

/// Agents of these names, whose model is `fake`.
pub(crate) fn team<const N: usize>(model: Scripted, agents: [&str; N]) -> RuntimeBuilder {
    let agents = agents.map(|name| Agent::new(name, format!("{name} instructions.")));
    Runtime::builder().provider("fake", model).agents(agents)
}

/// The messages of a run, one line each.
pub(crate) fn path(log: &Log) -> Vec<String> {
    log.messages().map(|message| message.to_string()).collect()
}
