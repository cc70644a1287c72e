//! The tools of one server: known, approved and refused ones. Nothing here waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::mcp::client::config::Settings;
use crate::mcp::client::definition::{Definition, Fingerprint, RefusedTool};

/// The most tools of one server, and the most tools that are approved because they are seen for the first time.
pub(crate) const MAX_TOOLS: usize = 10_000;

/// The treatment of a tool whose definition is not the approved one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnChange {
    /// Disables the tool: it is not offered, and calls of it fail, until
    /// [`Connection::approve`](crate::mcp::Connection::approve).
    #[default]
    Disable,
    /// Offers the tool with its new definition.
    Accept,
}

/// The selected tools of a server, by the server's names. Default: all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub(crate) only: Option<BTreeSet<String>>,
    pub(crate) without: BTreeSet<String>,
}

impl Selection {
    fn takes(&self, tool: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(tool)) && !self.without.contains(tool)
    }
}

/// The known tools of a server.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    /// The tools by the server's names, sorted.
    tools: BTreeMap<Arc<str>, Arc<Definition>>,
    /// The approved definitions. They are kept when a tool is removed, so that it cannot return with another
    /// definition.
    pins: BTreeMap<Arc<str>, Fingerprint>,
    /// `true` if the pins come from an earlier run, so that a tool without a pin is new.
    is_pinned: bool,
    /// `true` once the server has listed its tools.
    is_listed: bool,
    refused: Vec<RefusedTool>,
}

impl Catalogue {
    /// A catalogue with the pins of an earlier run, if there are any.
    pub(crate) fn new(pins: Option<BTreeMap<Arc<str>, Fingerprint>>) -> Self {
        Self { is_pinned: pins.is_some(), pins: pins.unwrap_or_default(), ..Self::default() }
    }

    /// Replaces the tools with the server's current list. A tool that is seen for the first time is approved, unless
    /// there are pins of an earlier run.
    pub(crate) fn update(&mut self, listed: &[Value], settings: &Settings) {
        self.is_listed = true;
        self.tools.clear();
        self.refused.clear();
        if settings.on_change == OnChange::Accept {
            self.pins.clear();
        }
        let name = |entry: &Value| entry["name"].as_str().unwrap_or_default().to_owned();
        let listed: Vec<&Value> = listed.iter().filter(|entry| settings.tools.takes(&name(entry))).collect();
        if listed.len() > MAX_TOOLS {
            let reason = format!("the server has {} tools; the first {MAX_TOOLS} are offered", listed.len());
            self.refused.push(RefusedTool::new("", reason));
        }
        for entry in &listed[..listed.len().min(MAX_TOOLS)] {
            match Definition::read(entry) {
                Ok(definition) => self.add(definition, settings.on_change),
                Err(refused) => self.refused.push(refused),
            }
        }
        let there: BTreeSet<String> = listed.into_iter().map(name).collect();
        for missing in
            settings.tools.only.iter().flatten().filter(|tool| !there.contains(*tool) && settings.tools.takes(tool))
        {
            self.refused.push(RefusedTool::new(missing, "it is selected, but the server has no tool of that name"));
        }
    }

    fn add(&mut self, definition: Definition, on_change: OnChange) {
        let tool = Arc::clone(&definition.tool);
        if self.tools.contains_key(&tool) {
            self.refused.push(RefusedTool::new(&tool, "the server has another tool of that name"));
            return;
        }
        let is_first = !self.is_pinned && !self.pins.contains_key(&tool) && self.pins.len() < MAX_TOOLS;
        if on_change == OnChange::Accept || is_first {
            self.pins.insert(Arc::clone(&tool), definition.fingerprint.clone());
        }
        self.tools.insert(tool, Arc::new(definition));
    }

    /// Approves a tool's definition if it is still the one that was shown. `None`: there is no such tool.
    pub(crate) fn approve(&mut self, tool: &str, shown: &Fingerprint) -> Option<bool> {
        let definition = self.tools.get(tool)?;
        let is_shown = definition.fingerprint == *shown;
        if is_shown {
            self.pins.insert(Arc::clone(&definition.tool), shown.clone());
        }
        Some(is_shown)
    }

    pub(crate) fn is_approved(&self, definition: &Definition) -> bool {
        self.pins.get(&definition.tool) == Some(&definition.fingerprint)
    }

    /// The reason why a tool with the offered definition must not be called now; `None` if it may be called.
    pub(crate) fn objection(&self, offered: &Definition) -> Option<&'static str> {
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
    pub(crate) fn tools(&self) -> impl Iterator<Item = &Arc<Definition>> {
        self.tools.values()
    }

    /// The approved definitions; `None` if the server has not listed its tools and there are no pins of an earlier run.
    pub(crate) fn pins(&self) -> Option<&BTreeMap<Arc<str>, Fingerprint>> {
        (self.is_listed || self.is_pinned).then_some(&self.pins)
    }

    /// The tools that are not offered for a reason other than their offered names, with the reasons.
    pub(crate) fn refused(&self) -> impl Iterator<Item = RefusedTool> {
        let unapproved = self.tools.values().filter(|definition| !self.is_approved(definition));
        let unapproved = unapproved.map(|definition| {
            let is_known = self.pins.contains_key(&definition.tool);
            let reason = if is_known { "its definition has changed; approve it" } else { "it is new; approve it" };
            RefusedTool::new(&definition.tool, reason)
        });
        self.refused.iter().cloned().chain(unapproved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool(name: &str, description: &str) -> Value {
        json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
    }

    fn accepting() -> Settings {
        Settings { on_change: OnChange::Accept, ..Settings::default() }
    }

    fn refused(catalogue: &Catalogue) -> Vec<(String, String)> {
        catalogue.refused().map(|refused| (refused.tool.to_string(), refused.reason.to_string())).collect()
    }

    fn shown(catalogue: &Catalogue, tool: &str) -> Fingerprint {
        catalogue.tools[tool].fingerprint.clone()
    }

    fn offered(catalogue: &Catalogue) -> Vec<&str> {
        catalogue.tools().filter(|tool| catalogue.is_approved(tool)).map(|tool| &*tool.tool).collect()
    }

    #[test]
    fn a_changed_definition_is_out_until_it_is_approved_even_if_the_tool_was_gone_in_between() {
        let mut catalogue = Catalogue::default();
        catalogue.update(&[tool("b", "good"), tool("a", "good")], &Settings::default());
        assert_eq!(offered(&catalogue), ["a", "b"]);
        let before = Arc::clone(catalogue.tools().next().unwrap());

        catalogue.update(&[tool("b", "good")], &Settings::default());
        assert_eq!(offered(&catalogue), ["b"]);
        assert_eq!(catalogue.objection(&before), Some("the server has it no more"));

        catalogue.update(&[tool("a", "evil"), tool("b", "good"), tool("c", "new")], &Settings::default());
        assert_eq!(offered(&catalogue), ["b", "c"]);
        assert_eq!(catalogue.objection(&before), Some("its definition has changed since it was offered"));
        assert_eq!(&*catalogue.refused().next().unwrap().tool, "a");

        let shown = shown(&catalogue, "a");
        assert_eq!(catalogue.approve("d", &shown), None);
        catalogue.update(&[tool("a", "worse"), tool("b", "good"), tool("c", "new")], &Settings::default());
        assert_eq!(catalogue.approve("a", &shown), Some(false), "it has changed since it was shown");
        assert_eq!(offered(&catalogue), ["b", "c"]);
        catalogue.update(&[tool("a", "evil"), tool("b", "good"), tool("c", "new")], &Settings::default());
        assert_eq!(catalogue.approve("a", &shown), Some(true));
        assert_eq!(offered(&catalogue), ["a", "b", "c"]);
        assert_eq!(catalogue.objection(&before), Some("its definition has changed since it was offered"));
    }

    #[test]
    fn pins_of_an_earlier_run_hold() {
        let mut before = Catalogue::default();
        before.update(&[tool("a", "good")], &Settings::default());
        let mut now = Catalogue::new(before.pins().cloned());
        now.update(&[tool("a", "evil")], &Settings::default());
        assert!(offered(&now).is_empty());
        now.update(&[tool("a", "evil")], &accepting());
        assert_eq!(offered(&now), ["a"]);
    }

    #[test]
    fn a_tool_that_pins_of_an_earlier_run_do_not_have_is_out_until_it_is_approved() {
        let mut before = Catalogue::default();
        before.update(&[tool("a", "good")], &Settings::default());
        let mut now = Catalogue::new(before.pins().cloned());
        for _ in 0..2 {
            now.update(&[tool("a", "good"), tool("b", "new")], &Settings::default());
            assert_eq!(offered(&now), ["a"]);
            assert_eq!(refused(&now), [("b".to_owned(), "it is new; approve it".to_owned())]);
        }
        assert_eq!(now.pins(), before.pins());
        assert_eq!(now.approve("b", &shown(&now, "b")), Some(true));
        assert_eq!(offered(&now), ["a", "b"]);

        let mut none = Catalogue::new(Some(BTreeMap::new()));
        none.update(&[tool("a", "good")], &Settings::default());
        assert!(offered(&none).is_empty(), "in the earlier run the server had no tools");
        none.update(&[tool("a", "good")], &accepting());
        assert_eq!(offered(&none), ["a"]);
    }

    #[test]
    fn of_a_server_that_was_never_there_nothing_is_pinned_but_what_was_given() {
        assert_eq!(Catalogue::default().pins(), None);
        let mut there = Catalogue::default();
        there.update(&[], &Settings::default());
        assert_eq!(there.pins(), Some(&BTreeMap::new()), "it has no tools");
        there.update(&[tool("a", "good")], &Settings::default());
        assert_eq!(Catalogue::new(there.pins().cloned()).pins(), there.pins());
    }

    #[test]
    fn a_server_with_other_tools_every_time_does_not_fill_the_memory() {
        let list = |from: usize| -> Vec<Value> { (from..from + 4_000).map(|n| tool(&format!("t{n}"), "")).collect() };
        let (mut catalogue, mut accepted) = (Catalogue::default(), Catalogue::default());
        for from in (0..40_000).step_by(4_000) {
            catalogue.update(&list(from), &Settings::default());
            accepted.update(&list(from), &accepting());
        }
        assert_eq!((catalogue.pins().unwrap().len(), accepted.pins().unwrap().len()), (MAX_TOOLS, 4_000));
        assert!(offered(&catalogue).is_empty(), "what comes after so many is new");
        assert_eq!(offered(&accepted).len(), 4_000);
    }

    #[test]
    fn only_the_tools_that_are_selected_are_known() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
        let listed = ["a", "b.c", "d"].map(|name| tool(name, ""));
        let check = |only: Option<&[&str]>, without: &[&str], expected: &[&str], missing: &[&str]| {
            let tools = Selection { only: only.map(names), without: names(without) };
            let mut catalogue = Catalogue::default();
            catalogue.update(&listed, &Settings { tools, ..Settings::default() });
            assert_eq!(offered(&catalogue), expected);
            let reason = "it is selected, but the server has no tool of that name";
            assert_eq!(
                refused(&catalogue),
                missing.iter().map(|tool| ((*tool).to_owned(), reason.to_owned())).collect::<Vec<_>>()
            );
        };
        check(None, &[], &["a", "b.c", "d"], &[]);
        check(Some(&["b.c", "e"]), &[], &["b.c"], &["e"]);
        check(None, &["b.c", "e"], &["a", "d"], &[]);
        check(Some(&["a", "d"]), &["d"], &["a"], &[]);
    }

    #[test]
    fn too_many_tools_are_cut_at_a_count_that_is_told() {
        let mut catalogue = Catalogue::default();
        let many: Vec<Value> = (0..=MAX_TOOLS).map(|n| tool(&format!("t{n}"), "")).collect();
        catalogue.update(&many, &Settings::default());
        assert_eq!(offered(&catalogue).len(), MAX_TOOLS);
        let refused: Vec<RefusedTool> = catalogue.refused().collect();
        assert_eq!(refused.len(), 1);
        assert_eq!(&*refused[0].reason, "the server has 10001 tools; the first 10000 are offered");
    }
}
