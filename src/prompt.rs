//! The roster of peers, and the system prompt that lists them for an agent. Pure; a roster never changes.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock, Weak};

use crate::agent::Agent;
use crate::name::{Name, NameMap};
use crate::spelling::Spellings;
use parking_lot::Mutex;

/// The peers that can be called at one moment, in the order in which they joined.
#[derive(Default)]
pub(crate) struct Roster {
    peers: NameMap<(Name, Arc<str>)>,
    prompts: Mutex<Prompts>,
    spellings: OnceLock<Spellings>,
}

/// A finished system prompt, shared by all running invocations of its agent.
pub(crate) struct Prompt {
    agent: Arc<Agent>,
    pub(crate) text: Arc<str>,
}

/// The prompts that were written: those in use, and the latest ones while they are small.
///
/// Every prompt lists all peers, so keeping a prompt for each peer would take memory with the square of their number.
#[derive(Default)]
struct Prompts {
    written: HashMap<Name, Weak<Prompt>>,
    kept: VecDeque<Arc<Prompt>>,
    bytes: usize,
}

/// The maximum size of the prompts that are kept without an invocation, in bytes.
const MAX_KEPT_BYTES: usize = 1 << 20;

impl Roster {
    /// Returns the roster with more peers: names, each with the description that other agents read.
    ///
    /// # Errors
    ///
    /// When a name is taken.
    pub(crate) fn with(&self, joining: impl IntoIterator<Item = (Name, Arc<str>)>) -> Result<Self, Name> {
        let mut peers = self.peers.clone();
        for (name, description) in joining {
            peers.insert(&Arc::clone(&name), (name, description))?;
        }
        Ok(Self { peers, ..Self::default() })
    }

    /// Returns the roster without one peer; `None` if there is none of that name.
    pub(crate) fn without(&self, name: &str) -> Option<Self> {
        let mut peers = self.peers.clone();
        peers.remove(name).then(|| Self { peers, ..Self::default() })
    }

    /// The names, each with the description that other agents read.
    pub(crate) fn peers(&self) -> impl Iterator<Item = &(Name, Arc<str>)> {
        self.peers.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    /// Returns the name of a peer as it joined.
    pub(crate) fn find(&self, name: &str) -> Option<&Name> {
        self.peers.find(name).map(|(name, _)| name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.peers().map(|(name, _)| name)
    }

    /// All names, or the nearest by spelling when there are many.
    pub(crate) fn nearest(&self, wanted: &str) -> Vec<Name> {
        self.spellings.get_or_init(|| Spellings::new(self.names())).nearest(wanted)
    }

    /// Returns the system prompt of an agent: its name and instructions, the other peers, how to call them and how to
    /// end.
    ///
    /// The prompt is written once while an invocation holds it. A small one is kept for longer than that.
    pub(crate) fn prompt(&self, agent: &Arc<Agent>) -> Arc<Prompt> {
        let mut prompts = self.prompts.lock();
        let written = prompts.written.get(&agent.name).and_then(Weak::upgrade);
        if let Some(prompt) = written.filter(|prompt| Arc::ptr_eq(&prompt.agent, agent)) {
            return prompt;
        }
        let prompt = Arc::new(Prompt { agent: Arc::clone(agent), text: self.write(agent) });
        prompts.keep(&prompt);
        prompt
    }

    fn write(&self, agent: &Agent) -> Arc<str> {
        let mut prompt = format!("You are \"{}\". {}\n\n", agent.name, agent.instructions);
        let mut others = self.peers().filter(|(name, _)| *name != agent.name).peekable();
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

impl Prompts {
    fn keep(&mut self, prompt: &Arc<Prompt>) {
        self.written.insert(Arc::clone(&prompt.agent.name), Arc::downgrade(prompt));
        self.kept.push_back(Arc::clone(prompt));
        self.bytes += prompt.text.len();
        while self.bytes > MAX_KEPT_BYTES {
            self.bytes -= self.kept.pop_front().map_or(self.bytes, |oldest| oldest.text.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roster(agents: &[Arc<Agent>]) -> Roster {
        let told = |agent: &Arc<Agent>| (Arc::clone(&agent.name), Arc::clone(agent.description()));
        Roster::default().with(agents.iter().map(told)).unwrap()
    }

    fn check(agents: &[Agent], of: usize, expected: &str) {
        let agents: Vec<_> = agents.iter().cloned().map(Arc::new).collect();
        assert_eq!(&*roster(&agents).prompt(&agents[of]).text, expected);
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

    #[test]
    fn a_prompt_is_written_once_while_it_is_in_use_and_once_for_a_small_team() {
        let small = ["a", "b", "c"].map(|name| Arc::new(Agent::new(name, "Works.")));
        let team = roster(&small);
        let first: Vec<_> = small.iter().map(|agent| Arc::as_ptr(&team.prompt(agent).text)).collect();
        let again: Vec<_> = small.iter().map(|agent| Arc::as_ptr(&team.prompt(agent).text)).collect();
        assert_eq!(first, again);

        let large = ["a", "b"].map(|name| Arc::new(Agent::new(name, "x".repeat(MAX_KEPT_BYTES))));
        let team = roster(&large);
        let (held, other) = (team.prompt(&large[0]), team.prompt(&large[1]));
        assert!(Arc::ptr_eq(&held.text, &team.prompt(&large[0]).text), "all calls at one time share one text");
        let ended = [held, other].map(|prompt| Arc::downgrade(&prompt));
        assert!(ended.iter().all(|prompt| prompt.upgrade().is_none()), "too large to be kept beyond that");
    }

    #[test]
    fn what_is_kept_of_prompts_does_not_grow_with_the_roster() {
        let agents: Vec<_> = (0..200).map(|n| Arc::new(Agent::new(n.to_string(), "x".repeat(500)))).collect();
        let team = roster(&agents);
        let lengths: usize = agents.iter().map(|agent| team.prompt(agent).text.len()).sum();
        let prompts = team.prompts.lock();
        assert!(lengths > 10 * MAX_KEPT_BYTES && prompts.bytes <= MAX_KEPT_BYTES, "{} of {lengths}", prompts.bytes);
        assert_eq!(prompts.bytes, prompts.kept.iter().map(|prompt| prompt.text.len()).sum::<usize>());
        let alive = prompts.written.values().filter(|prompt| prompt.strong_count() > 0).count();
        assert_eq!(alive, prompts.kept.len());
    }

    #[test]
    fn an_agent_of_the_same_name_is_never_given_the_prompt_of_another() {
        let [old, new] = ["Old.", "New."].map(|told| Arc::new(Agent::new("a", told)));
        let team = roster(std::slice::from_ref(&old));
        let _held = team.prompt(&old);
        assert!(team.prompt(&new).text.starts_with("You are \"a\". New."));
    }
}
