//! Compares the Forwards and Returns of a run.

use std::collections::{HashMap, HashSet};

use agentouto::{CallId, Forward, Log, Message, Return};

use crate::scenarios::expect::{Expect, UniqueIds};
use crate::scenarios::mismatches::{Mismatches, shown};

pub(super) fn compare(found: &mut Mismatches, expect: &Expect, log: &Log) {
    let forwards: Vec<_> = log.messages().filter_map(forward).collect();
    let returns: Vec<_> = log.messages().filter_map(answer).collect();
    if let Some(expected) = &expect.messages {
        messages(found, expected, &log.messages().map(row).collect::<Vec<_>>());
    }
    found.equal_if_stated("forwards", expect.forwards.as_ref(), Some(&forwards.len()));
    found.equal_if_stated("returns", expect.returns.as_ref(), Some(&returns.len()));
    if let Some(expected) = &expect.call_ids_unique {
        call_ids(found, expected, &forwards, &returns);
    }
    if let Some(words) = &expect.parent_of_children {
        parents(found, words.as_str().and_then(|words| words.strip_suffix("'s call id")), &forwards);
    }
}

fn messages(found: &mut Mismatches, expected: &[[String; 4]], actual: &[[String; 4]]) {
    let (expected_count, count) = (expected.len(), actual.len());
    let all = || format!("messages: expected {expected_count}, got {count}: {}", shown(actual));
    found.holds(expected_count == count, all);
    for (place, (expected, actual)) in expected.iter().zip(actual).enumerate() {
        found.equal(&format!("message {place}"), expected, actual);
    }
}

/// Each call has an id of its own, and a Return the id of the Forward that it answers.
fn call_ids(found: &mut Mismatches, expected: &UniqueIds, forwards: &[&Forward], returns: &[&Return]) {
    let ids: HashSet<CallId> = forwards.iter().map(|forward| forward.call_id).collect();
    if let UniqueIds::Exactly(expected) = expected {
        found.equal("distinct call ids", expected, &ids.len());
    }
    found.equal("call ids that are distinct, of all Forwards", &forwards.len(), &ids.len());
    let mut unanswered: HashMap<CallId, &Forward> =
        forwards.iter().map(|forward| (forward.call_id, *forward)).collect();
    for answer in returns {
        let answers = unanswered
            .remove(&answer.call_id)
            .is_some_and(|forward| (&forward.sender, &forward.receiver) == (&answer.receiver, &answer.sender));
        found.holds(answers, || format!("a Return that answers no Forward: {}", shown(answer)));
    }
}

/// A child is whatever the user did not send.
fn parents(found: &mut Mismatches, parent_agent: Option<&str>, forwards: &[&Forward]) {
    let receivers: HashMap<CallId, &str> =
        forwards.iter().map(|forward| (forward.call_id, &*forward.receiver)).collect();
    let (roots, children): (Vec<&Forward>, Vec<&Forward>) =
        forwards.iter().partition(|forward| &*forward.sender == "user");
    found.equal("Forwards from the user", &1, &roots.len());
    found.holds(!children.is_empty(), || "parent_of_children: there are no child calls".to_owned());
    for root in roots {
        found.equal("parent of the user's call", &None, &root.parent);
    }
    for child in children {
        let parent = child.parent.and_then(|parent| receivers.get(&parent).copied());
        let what = format!("agent whose call is the parent of {} > {}", child.sender, child.receiver);
        found.equal(&what, &Some(&*child.sender), &parent);
        found.equal_if_stated(&what, parent_agent.as_ref(), parent.as_ref());
    }
}

/// An error is shown as a calling model reads it.
fn row(message: Message<'_>) -> [String; 4] {
    let (kind, sender, receiver, content) = match message {
        Message::Forward(Forward { sender, receiver, content, .. }) => {
            ("forward", sender, receiver, content.text.to_string())
        }
        Message::Return(Return { sender, receiver, result, .. }) => {
            let text = result.as_ref().map_or_else(|error| format!("Error: {error}"), |content| content.to_string());
            ("return", sender, receiver, text)
        }
    };
    [kind.to_owned(), sender.to_string(), receiver.to_string(), content]
}

fn forward(message: Message<'_>) -> Option<&Forward> {
    match message {
        Message::Forward(forward) => Some(forward),
        Message::Return(_) => None,
    }
}

fn answer(message: Message<'_>) -> Option<&Return> {
    match message {
        Message::Return(answer) => Some(answer),
        Message::Forward(_) => None,
    }
}
