//! The tools of one server: which there are, which were approved, which are refused. Nothing here waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::definition::{Definition, Fingerprint, Refused};

/// The most tools of one server.
pub(super) const MOST_TOOLS: usize = 10_000;

/// The most definitions of one server that are kept as approved.
const MOST_PINS: usize = 2 * MOST_TOOLS;

/// What becomes of a tool whose definition is not the one that was approved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnChange {
    /// It is not offered, and calls of it fail, until [`Connection::approve`](super::Connection::approve).
    #[default]
    Disable,
    /// It is offered as it is now.
    Accept,
}

/// What is known of a server's tools.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    /// By the server's names, sorted.
    tools: BTreeMap<Arc<str>, Arc<Definition>>,
    /// The definitions that were approved; kept when a tool goes, so that it cannot come back as another.
    pins: BTreeMap<Arc<str>, Fingerprint>,
    refused: Vec<Refused>,
}

impl Catalogue {
    pub(super) fn with_pins(pins: BTreeMap<Arc<str>, Fingerprint>) -> Self {
        Self { pins, ..Self::default() }
    }

    /// Replaces what is known by what the server lists now. A tool that was never seen is approved as it is.
    pub(super) fn update(&mut self, listed: &[Value], on_change: OnChange) {
        self.tools.clear();
        self.refused.clear();
        if listed.len() > MOST_TOOLS {
            let reason = format!("the server has {} tools; the first {MOST_TOOLS} are offered", listed.len());
            self.refused.push(Refused::new("", reason));
        }
        for entry in &listed[..listed.len().min(MOST_TOOLS)] {
            match Definition::read(entry) {
                Ok(definition) => self.add(definition, on_change),
                Err(refused) => self.refused.push(refused),
            }
        }
    }

    fn add(&mut self, definition: Definition, on_change: OnChange) {
        let tool = Arc::clone(&definition.tool);
        if self.tools.contains_key(&tool) {
            self.refused.push(Refused::new(&tool, "the server has another tool of that name"));
            return;
        }
        let is_known = self.pins.contains_key(&tool);
        if !is_known && self.pins.len() >= MOST_PINS {
            let reason = format!("the server has had {MOST_PINS} tools of other names; more are not taken");
            self.refused.push(Refused::new(&tool, reason));
            return;
        }
        if on_change == OnChange::Accept || !is_known {
            self.pins.insert(Arc::clone(&tool), definition.fingerprint.clone());
        }
        self.tools.insert(tool, Arc::new(definition));
    }

    /// Approves the definition that a tool has now; `false` if there is no such tool.
    pub(super) fn approve(&mut self, tool: &str) -> bool {
        let Some(definition) = self.tools.get(tool) else { return false };
        self.pins.insert(Arc::clone(&definition.tool), definition.fingerprint.clone());
        true
    }

    pub(super) fn is_approved(&self, definition: &Definition) -> bool {
        self.pins.get(&definition.tool) == Some(&definition.fingerprint)
    }

    /// Why a tool as it was offered may not be called now.
    pub(super) fn objection(&self, offered: &Definition) -> Option<&'static str> {
        match self.tools.get(&offered.tool) {
            None => Some("the server has it no more"),
            Some(now) if now.fingerprint != offered.fingerprint => {
                Some("its definition has changed since it was offered")
            }
            Some(_) if !self.is_approved(offered) => Some("its definition is not approved"),
            Some(_) => None,
        }
    }

    /// All tools, sorted by name.
    pub(super) fn tools(&self) -> impl Iterator<Item = &Arc<Definition>> {
        self.tools.values()
    }

    pub(super) fn pins(&self) -> &BTreeMap<Arc<str>, Fingerprint> {
        &self.pins
    }

    /// What is not offered whatever it is called, and why.
    pub(super) fn refused(&self) -> impl Iterator<Item = Refused> {
        let changed = self.tools.values().filter(|definition| !self.is_approved(definition));
        let changed =
            changed.map(|definition| Refused::new(&definition.tool, "its definition has changed; approve it"));
        self.refused.iter().cloned().chain(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool(name: &str, description: &str) -> Value {
        json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
    }

    fn offered(catalogue: &Catalogue) -> Vec<&str> {
        catalogue.tools().filter(|tool| catalogue.is_approved(tool)).map(|tool| &*tool.tool).collect()
    }

    #[test]
    fn a_changed_definition_is_out_until_it_is_approved_even_if_the_tool_was_gone_in_between() {
        let mut catalogue = Catalogue::default();
        catalogue.update(&[tool("b", "good"), tool("a", "good")], OnChange::Disable);
        assert_eq!(offered(&catalogue), ["a", "b"]);
        let before = Arc::clone(catalogue.tools().next().unwrap());

        catalogue.update(&[tool("b", "good")], OnChange::Disable);
        assert_eq!(offered(&catalogue), ["b"]);
        assert_eq!(catalogue.objection(&before), Some("the server has it no more"));

        catalogue.update(&[tool("a", "evil"), tool("b", "good"), tool("c", "new")], OnChange::Disable);
        assert_eq!(offered(&catalogue), ["b", "c"]);
        assert_eq!(catalogue.objection(&before), Some("its definition has changed since it was offered"));
        assert_eq!(&*catalogue.refused().next().unwrap().tool, "a");

        assert!(catalogue.approve("a") && !catalogue.approve("d"));
        assert_eq!(offered(&catalogue), ["a", "b", "c"]);
        assert_eq!(catalogue.objection(&before), Some("its definition has changed since it was offered"));
    }

    #[test]
    fn pins_of_an_earlier_run_hold() {
        let mut before = Catalogue::default();
        before.update(&[tool("a", "good")], OnChange::Disable);
        let mut now = Catalogue::with_pins(before.pins().clone());
        now.update(&[tool("a", "evil")], OnChange::Disable);
        assert!(offered(&now).is_empty());
        now.update(&[tool("a", "evil")], OnChange::Accept);
        assert_eq!(offered(&now), ["a"]);
    }

    #[test]
    fn a_server_with_ever_new_names_is_not_followed_for_ever() {
        let mut catalogue = Catalogue::default();
        catalogue.update(&[tool("old", "good")], OnChange::Disable);
        let pin = &catalogue.pins()["old"];
        let names = (1..MOST_PINS).map(|n| n.to_string().into()).chain(["old".into()]);
        let mut full = Catalogue::with_pins(names.map(|name: Arc<str>| (name, pin.clone())).collect());
        full.update(&[tool("old", "good"), tool("new", "good")], OnChange::Accept);
        assert_eq!((offered(&full), full.pins().len()), (vec!["old"], MOST_PINS));
        let refused: Vec<Refused> = full.refused().collect();
        assert_eq!(refused.len(), 1);
        assert_eq!(&*refused[0].reason, "the server has had 20000 tools of other names; more are not taken");
    }

    #[test]
    fn too_many_tools_are_cut_at_a_count_that_is_told() {
        let mut catalogue = Catalogue::default();
        let many: Vec<Value> = (0..=MOST_TOOLS).map(|n| tool(&format!("t{n}"), "")).collect();
        catalogue.update(&many, OnChange::Disable);
        assert_eq!(offered(&catalogue).len(), MOST_TOOLS);
        let refused: Vec<Refused> = catalogue.refused().collect();
        assert_eq!(refused.len(), 1);
        assert_eq!(&*refused[0].reason, "the server has 10001 tools; the first 10000 are offered");
    }
}
