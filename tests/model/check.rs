//! What must hold of every stream of events, and of every log.

use std::collections::{HashMap, HashSet};

use agentouto::{CallId, Event, EventKind, Forward, Log, Message, Return};

use crate::program::Place;
use crate::world::World;

/// What is known of one call.
struct Seen<'a> {
    forward: &'a Forward,
    /// The number of the event that began it.
    first: u64,
    /// The highest number of its events.
    last: u64,
    requests: usize,
    is_asking: bool,
    is_over: bool,
}

/// Checks a stream of events that lost none.
pub(crate) fn stream(world: &World, events: &[Event], what: &str) {
    let mut checker = EventChecker { world, what, calls: HashMap::new(), failures: Vec::new() };
    let mut numbers = HashSet::new();
    for event in events {
        if !numbers.insert(event.sequence) {
            checker.fail(format!("two events have the number {}", event.sequence));
        }
        checker.event(event);
    }
    checker.end();
    let failures = std::mem::take(&mut checker.failures);
    report(world, what, failures, || events.iter().map(line).collect());
}

struct EventChecker<'a> {
    world: &'a World,
    what: &'a str,
    calls: HashMap<CallId, Seen<'a>>,
    failures: Vec<String>,
}

impl<'a> EventChecker<'a> {
    fn fail(&mut self, what: impl Into<String>) {
        self.failures.push(what.into());
    }

    fn event(&mut self, event: &'a Event) {
        match &event.kind {
            // Of calls that are not sent, and of Returns that come too late.
            EventKind::Undelivered { .. } | EventKind::LateReturn { .. } => return,
            EventKind::Forward { forward } => {
                if (event.call_id, event.parent) != (forward.call_id, forward.parent) {
                    self.fail(format!("an event has other ids than its Forward: {}", line(event)));
                }
                self.forward(forward, event.sequence);
                return;
            }
            _ => {}
        }
        let Some(seen) = self.calls.get_mut(&event.call_id) else {
            return self.fail(format!("an event of a call before its Forward: {}", line(event)));
        };
        if seen.is_over && (self.world.parts.checks("late_events") || matches!(event.kind, EventKind::Return { .. })) {
            self.failures.push(format!("an event of a call after its Return: {}", line(event)));
        }
        let is_return = matches!(event.kind, EventKind::Return { .. });
        let last = if is_return && self.world.parts.checks("late_events") { seen.last } else { seen.first };
        if event.sequence < last {
            self.failures.push(format!("an event has a lower number than what came before it: {}", line(event)));
        }
        seen.last = seen.last.max(event.sequence);
        match &event.kind {
            EventKind::ModelRequest { turn, .. } => {
                seen.requests += 1;
                if seen.is_asking || *turn != seen.requests {
                    self.failures.push(format!("request {turn}, where {} was to come: {}", seen.requests, line(event)));
                }
                seen.is_asking = true;
            }
            EventKind::ModelReply { .. } | EventKind::ModelError { .. } | EventKind::ModelAborted { .. } => {
                let was_asking = std::mem::take(&mut seen.is_asking);
                if !was_asking {
                    self.failures.push(format!("the end of a request that was not made: {}", line(event)));
                }
            }
            EventKind::Return { answer } => {
                seen.is_over = true;
                let is_asking = seen.is_asking;
                let forward = seen.forward;
                self.answer(forward, answer);
                let drives_all = self.world.program.roots.iter().all(|root| root.place != Place::Undriven);
                if is_asking && drives_all && self.world.parts.checks("requests") {
                    self.fail(format!("the call of `{}` has returned, and its request has not ended", forward.content));
                }
            }
            _ => {}
        }
    }

    fn forward(&mut self, forward: &'a Forward, number: u64) {
        if let Some(parent) = forward.parent {
            match self.calls.get(&parent) {
                None => self.fail(format!("`{}` was called before its parent", forward.content)),
                Some(parent) if parent.is_over && self.world.parts.checks("late_forwards") => {
                    let parent = parent.forward.content.clone();
                    self.fail(format!("`{}` was called after its parent `{parent}` had returned", forward.content));
                }
                Some(parent) if parent.first > number => {
                    self.fail(format!("`{}` has a lower number than its parent", forward.content));
                }
                Some(_) => {}
            }
        }
        let seen = Seen { forward, first: number, last: number, requests: 0, is_asking: false, is_over: false };
        if self.calls.insert(forward.call_id, seen).is_some() {
            self.fail(format!("two calls have the id {}", forward.call_id));
        }
    }

    fn answer(&mut self, forward: &Forward, answer: &Return) {
        let expected = (forward.call_id, forward.parent, &forward.receiver, &forward.sender);
        if expected != (answer.call_id, answer.parent, &answer.sender, &answer.receiver) {
            self.fail(format!("a Return does not fit its Forward: {answer:?} and {forward:?}"));
        }
    }

    fn end(&mut self) {
        let open = self.calls.values().filter(|seen| !seen.is_over).map(|seen| seen.forward.content.to_string());
        let mut open: Vec<_> = open.collect();
        open.sort();
        if !open.is_empty() && self.world.parts.checks("returns") {
            self.failures.push(format!("Forwards without a Return: {open:?} ({})", self.what));
        }
    }
}

/// Checks a log of a call that is over.
pub(crate) fn log(world: &World, log: &Log, what: &str) {
    let mut checker = EventChecker { world, what, calls: HashMap::new(), failures: Vec::new() };
    for (nth, message) in log.messages().enumerate() {
        match message {
            Message::Forward(forward) => checker.forward(forward, nth as u64),
            Message::Return(answer) => match checker.calls.get_mut(&answer.call_id) {
                None => checker.fail(format!("a Return before its Forward: {message}")),
                Some(seen) => {
                    let (forward, was_over) = (seen.forward, std::mem::replace(&mut seen.is_over, true));
                    checker.answer(forward, answer);
                    if was_over {
                        checker.fail(format!("a second Return: {message}"));
                    }
                }
            },
        }
    }
    checker.end();
    let failures = std::mem::take(&mut checker.failures);
    report(world, what, failures, || log.messages().map(|message| message.to_string()).collect());
}

/// The logs of all calls hold what the stream of all events shows of them.
pub(crate) fn logs_are_in(world: &World, events: &[Event]) {
    let mut roots: HashMap<CallId, CallId> = HashMap::new();
    let mut calls: HashMap<CallId, HashSet<CallId>> = HashMap::new();
    for event in events {
        if let EventKind::Forward { forward } = &event.kind {
            let above = forward.parent.and_then(|parent| roots.get(&parent).copied());
            let root = above.unwrap_or(forward.call_id);
            roots.insert(forward.call_id, root);
            calls.entry(root).or_default().insert(forward.call_id);
        }
    }
    let logs = if world.parts.checks("logs") { world.take_logs() } else { Vec::new() };
    for (root, logged, is_whole) in logs {
        let Some(first) = logged.first() else { continue };
        let logged: HashSet<_> = logged.iter().copied().collect();
        let shown = calls.get(first).cloned().unwrap_or_default();
        if !shown.is_subset(&logged) || (is_whole && shown != logged) {
            let differ = |event: &&Event| shown.symmetric_difference(&logged).any(|call_id| *call_id == event.call_id);
            let lines: Vec<_> = events.iter().filter(differ).map(line).collect();
            let (shown, logged) = (shown.len(), logged.len());
            let what = format!("root {root}: the stream shows {shown} calls, and the log holds {logged}");
            world.fail(format!("{what}; of the others the stream shows\n    {}", lines.join("\n    ")));
        }
    }
}

fn report(world: &World, what: &str, failures: Vec<String>, all: impl Fn() -> Vec<String>) {
    if !failures.is_empty() {
        world.fail(format!("{what}: {}\n    {}", failures.join("; "), all().join("\n    ")));
    }
}

/// One line for an event.
fn line(event: &Event) -> String {
    let call_id = &event.call_id.to_string()[..8];
    let kind = match &event.kind {
        EventKind::Forward { forward } => format!("{}", Message::Forward(forward)),
        EventKind::Return { answer } => format!("{}", Message::Return(answer)),
        kind => format!("{kind:?}").chars().take(60).collect(),
    };
    format!("{:>4} {call_id} {kind}", event.sequence)
}
