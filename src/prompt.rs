//! Who there is, and the system prompt that tells an agent so. Pure; a roster never changes.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use crate::agent::Agent;
use crate::message::Name;

/// Everybody who can be called, in the order in which they joined, as it stood at one moment.
#[derive(Default)]
pub(crate) struct Roster {
    peers: Vec<(Name, Arc<str>)>,
    places: HashMap<Name, usize>,
    /// The finished prompts, one a peer, each written when it is first needed.
    prompts: Vec<OnceLock<Arc<str>>>,
}

impl Roster {
    /// A roster of names, each with what the others are told of it.
    pub(crate) fn new(peers: Vec<(Name, Arc<str>)>) -> Self {
        let places = peers.iter().enumerate().map(|(place, (name, _))| (Arc::clone(name), place)).collect();
        let prompts = peers.iter().map(|_| OnceLock::new()).collect();
        Self { peers, places, prompts }
    }

    pub(crate) fn peers(&self) -> &[(Name, Arc<str>)] {
        &self.peers
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.peers.iter().map(|(name, _)| name)
    }

    /// The system prompt of an agent: who it is, who the others are, how to call them and how to end.
    pub(crate) fn prompt(&self, agent: &Agent) -> Arc<str> {
        let write = || self.write(agent);
        match self.places.get(&agent.name) {
            Some(&place) => Arc::clone(self.prompts[place].get_or_init(write)),
            None => write(),
        }
    }

    fn write(&self, agent: &Agent) -> Arc<str> {
        let mut prompt = format!("You are \"{}\". {}\n\n", agent.name, agent.instructions);
        let mut others = self.peers.iter().filter(|(name, _)| *name != agent.name).peekable();
        if others.peek().is_some() {
            prompt.push_str("Available agents:\n");
            for (name, description) in others {
                // Writing to a String cannot fail.
                let _ = writeln!(prompt, "- {name}: {description}");
            }
            prompt.push('\n');
        }
        prompt.push_str(
            "Use call_agent to delegate work to other agents.\nUse finish to complete your task and return the result.",
        );
        prompt.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(agents: &[Agent], of: usize, expected: &str) {
        let roster = Roster::new(
            agents.iter().map(|agent| (Arc::clone(&agent.name), Arc::clone(agent.description()))).collect(),
        );
        assert_eq!(&*roster.prompt(&agents[of]), expected);
        assert!(Arc::ptr_eq(&roster.prompt(&agents[of]), &roster.prompt(&agents[of])), "written once");
    }

    #[test]
    fn a_prompt_names_the_others_in_order_by_role_or_else_by_instructions() {
        let agents = [Agent::new("a", "Do a."), Agent::new("b", "Do b.").role("Knows b."), Agent::new("c", "Do c.")];
        check(
            &agents,
            2,
            "You are \"c\". Do c.\n\nAvailable agents:\n- a: Do a.\n- b: Knows b.\n\n\
             Use call_agent to delegate work to other agents.\nUse finish to complete your task and return the result.",
        );
        check(
            &agents[..1],
            0,
            "You are \"a\". Do a.\n\nUse call_agent to delegate work to other agents.\nUse finish to complete your task and return the result.",
        );
    }
}
