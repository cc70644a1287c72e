//! The messages, the tokens and the tree of calls of a log.
//!
//! A tree is a flat list of calls, each with the index of its parent, so no tree is too deep.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::call_id::CallId;
use crate::event::{Event, EventKind};
use crate::log::{Log, LogEntry, request_usage};
use crate::message::{Forward, Return};
use crate::name::Name;
use crate::reply::Usage;

impl Log {
    /// The messages in order.
    pub fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        self.entries.iter().filter_map(|entry| match entry {
            LogEntry::Forward(forward) => Some(Message::Forward(forward)),
            LogEntry::Return(answer) => Some(Message::Return(answer)),
            LogEntry::Usage(..) | LogEntry::Detail(_) | LogEntry::Approval(_) => None,
        })
    }

    /// The tokens of the whole run, as far as the servers reported them.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usages().map(|(_, usage)| usage).sum()
    }

    /// The tokens of one call, without the calls below it.
    #[must_use]
    pub fn usage_of(&self, call_id: CallId) -> Usage {
        self.usages().filter(|(call, _)| *call == call_id).map(|(_, usage)| usage).sum()
    }

    fn usages(&self) -> impl Iterator<Item = (CallId, Usage)> {
        self.entries.iter().filter_map(|entry| match entry {
            LogEntry::Usage(call_id, usage) => Some((*call_id, **usage)),
            _ => None,
        })
    }

    /// The calls as a tree, to print or to walk. A log does not count turns and tools; to count them, record the
    /// events.
    #[must_use]
    pub fn tree(&self) -> CallTree {
        let mut tree = CallTree::default();
        self.entries.iter().for_each(|entry| tree.add(entry));
        tree
    }
}

/// One message in a [`Log`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Message<'a> {
    /// The message that began a call.
    Forward(&'a Forward),
    /// The message that ended a call.
    Return(&'a Return),
}

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forward(forward) => write!(f, "{} > {}: {}", forward.sender, forward.receiver, forward.content),
            Self::Return(answer) => match &answer.result {
                Ok(content) => write!(f, "{} < {}: {content}", answer.receiver, answer.sender),
                Err(error) => write!(f, "{} < {}: error: {error}", answer.receiver, answer.sender),
            },
        }
    }
}

/// The calls of a run, as a tree that can be built while the run goes on.
///
/// Displayed as one line for each call, indented by depth.
#[derive(Clone, Debug, Default)]
pub struct CallTree {
    calls: Vec<CallNode>,
    places: HashMap<CallId, usize>,
}

/// One call in a [`CallTree`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallNode {
    /// The id of the call.
    pub call_id: CallId,
    /// The index of the parent in [`CallTree::calls`]; `None` if the call has no parent there.
    pub parent: Option<usize>,
    /// The number of calls above this one.
    pub depth: usize,
    /// The callee's name.
    pub receiver: Name,
    /// The number of requests to a model, as far as they were observed.
    pub turns: usize,
    /// The number of tools that were run, as far as they were observed.
    pub tools: usize,
    /// The tokens of the call, without those of the calls below it.
    pub usage: Usage,
    /// The Return that ended the call; `None` while the call is running.
    pub answer: Option<Arc<Return>>,
}

impl CallTree {
    /// Adds one more event to the tree. Events must come in the order in which they happened.
    pub fn record(&mut self, event: &Event) {
        if let EventKind::ToolEnd { .. } = event.kind {
            self.change(event.call_id, |call| call.tools += 1);
        }
        if request_usage(&event.kind).is_some() {
            self.change(event.call_id, |call| call.turns += 1);
        }
        if let Some(entry) = LogEntry::of(event) {
            self.add(&entry);
        }
    }

    fn add(&mut self, entry: &LogEntry) {
        match entry {
            LogEntry::Forward(forward) => {
                let parent = forward.parent.and_then(|parent| self.places.get(&parent).copied());
                self.places.insert(forward.call_id, self.calls.len());
                self.calls.push(CallNode {
                    call_id: forward.call_id,
                    parent,
                    depth: parent.map_or(0, |parent| self.calls[parent].depth + 1),
                    receiver: Arc::clone(&forward.receiver),
                    turns: 0,
                    tools: 0,
                    usage: Usage::default(),
                    answer: None,
                });
            }
            LogEntry::Return(answer) => self.change(answer.call_id, |call| call.answer = Some(Arc::clone(answer))),
            LogEntry::Usage(call_id, usage) => self.change(*call_id, |call| call.usage = call.usage + **usage),
            LogEntry::Detail(_) | LogEntry::Approval(_) => {}
        }
    }

    fn change(&mut self, call_id: CallId, change: impl FnOnce(&mut CallNode)) {
        if let Some(&place) = self.places.get(&call_id) {
            change(&mut self.calls[place]);
        }
    }

    /// The calls in the order in which they began.
    #[must_use]
    pub fn calls(&self) -> &[CallNode] {
        &self.calls
    }

    /// Returns the call with this id.
    #[must_use]
    pub fn call(&self, call_id: CallId) -> Option<&CallNode> {
        self.places.get(&call_id).map(|&place| &self.calls[place])
    }
}

impl fmt::Display for CallTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // From last to first, as they are put on the stack of open calls.
        let (mut children, mut open) = (vec![Vec::new(); self.calls.len()], Vec::new());
        for (place, call) in self.calls.iter().enumerate().rev() {
            match call.parent {
                Some(parent) => children[parent].push(place),
                None => open.push(place),
            }
        }
        while let Some(place) = open.pop() {
            writeln!(f, "{}", self.calls[place])?;
            open.append(&mut children[place]);
        }
        Ok(())
    }
}

impl fmt::Display for CallNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The depth up to which calls are indented. A deeper call shows its depth as a number, because otherwise the
        /// output of a chain would grow with the square of its length.
        const MAX_INDENTED_DEPTH: usize = 32;
        /// The maximum length of an answer that is shown, in characters.
        const MAX_SHOWN_CHARS: usize = 60;
        match self.depth {
            depth if depth <= MAX_INDENTED_DEPTH => write!(f, "{:1$}", "", depth * 2)?,
            depth => write!(f, "{:1$}[{depth}] ", "", MAX_INDENTED_DEPTH * 2)?,
        }
        write!(f, "{}", self.receiver)?;
        if self.usage != Usage::default() {
            write!(f, " ({} + {} tokens)", self.usage.input_tokens, self.usage.output_tokens)?;
        }
        let text = match self.answer.as_deref().map(|answer| &answer.result) {
            None => return f.write_str(" …"),
            Some(Ok(content)) => content.to_string(),
            Some(Err(error)) => format!("error: {error}"),
        };
        let mut line = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
        write!(f, ": {}", line.by_ref().take(MAX_SHOWN_CHARS).collect::<String>())?;
        if line.next().is_some() { f.write_str("…") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::CallError;

    fn forward(call_id: CallId, parent: Option<CallId>, receiver: &str) -> Event {
        let forward = Forward { parent, ..Forward::of_user(call_id, &"x".into(), receiver.into(), "".into()) };
        Event { sequence: 0, call_id, parent, kind: EventKind::Forward { forward: Arc::new(forward) } }
    }

    fn answer(call_id: CallId, result: Result<&str, CallError>) -> Event {
        let result = result.map(Into::into);
        let answer = Return { call_id, parent: None, sender: "x".into(), receiver: "y".into(), result };
        Event { sequence: 0, call_id, parent: None, kind: EventKind::Return { answer: Arc::new(answer) } }
    }

    #[test]
    fn a_tree_is_printed_in_order_of_calls_whatever_the_order_of_events() {
        let mut ids = CallId::seeded(1);
        let [root, left, right, leaf] = std::array::from_fn(|_| ids());
        let mut tree = CallTree::default();
        for event in [
            forward(root, None, "root"),
            forward(left, Some(root), "left"),
            forward(right, Some(root), "right"),
            forward(leaf, Some(left), "leaf"),
            answer(right, Err(CallError::Cancelled)),
            answer(leaf, Ok("two\nlines")),
            answer(left, Ok(&"long ".repeat(20))),
        ] {
            tree.record(&event);
        }
        let long = format!("  left: {}…", "long ".repeat(12));
        assert_eq!(
            tree.to_string().lines().collect::<Vec<_>>(),
            ["root …", &long, "    leaf: two lines", "  right: error: the call was cancelled"]
        );
    }

    #[test]
    fn a_chain_of_a_hundred_thousand_calls_is_printed_without_recursion_and_in_linear_space() {
        let mut ids = CallId::seeded(1);
        let mut tree = CallTree::default();
        let mut parent = None;
        for _ in 0..100_000 {
            let id = ids();
            tree.record(&forward(id, parent, "a"));
            parent = Some(id);
        }
        let printed = tree.to_string();
        assert_eq!(printed.lines().count(), 100_000);
        assert!(printed.len() < 10_000_000);
    }
}
