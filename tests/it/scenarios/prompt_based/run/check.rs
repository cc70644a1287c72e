//! Compares what was expected of a run with what was seen of it.

use std::collections::BTreeMap;
use std::time::Duration;

use agentouto::{ChatMessage, Request};
use serde::Deserialize;

use super::{Seen, events};
use crate::scenarios::expect::Texts;
use crate::scenarios::mismatches::{Mismatches, shown};
use crate::scenarios::prompt_based::NoError;
use crate::scenarios::record::Record;
use crate::scenarios::stage::Outcome;

/// What must follow. What is not stated is not compared.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    output: Option<String>,
    output_not_contains: Option<Texts>,
    error_contains: Option<Texts>,
    /// That the run has an answer, as it must wherever no error is stated.
    #[serde(rename = "no_error")]
    no_error: Option<NoError>,
    result_contains: Option<Texts>,
    result_text: Option<String>,
    result_role_not: Option<Texts>,
    #[serde(default)]
    tool_exec: BTreeMap<String, usize>,
    #[serde(default)]
    llm_calls: BTreeMap<String, usize>,
    #[serde(default)]
    llm_calls_at_most: BTreeMap<String, usize>,
    max_ms: Option<u64>,
    /// A model call of which no text is seen need not be stated. Whether a text ends in space is not compared: beside a
    /// call that says nothing.
    streamed: Option<Vec<String>>,
    events_in_order: Option<Vec<String>>,
}

pub(super) fn mismatches(expect: &Expect, seen: &Seen) -> Vec<String> {
    let mut found = Mismatches::default();
    seen.record.complaints().into_iter().for_each(|complaint| found.add(complaint));
    outcome(&mut found, expect, seen);
    if expect.result_contains.is_some() || expect.result_text.is_some() || expect.result_role_not.is_some() {
        match first_result(&seen.record) {
            Some(result) => first(&mut found, expect, &result),
            None => found.add("no tool result has reached a model".to_owned()),
        }
    }
    counts(&mut found, expect, &seen.record);
    if let Some(most) = expect.max_ms {
        let holds = seen.elapsed <= Duration::from_millis(most);
        found.holds(holds, || format!("max_ms: expected at most {most}, got {:?}", seen.elapsed));
    }
    observed(&mut found, expect, seen);
    found.list()
}

fn outcome(found: &mut Mismatches, expect: &Expect, seen: &Seen) {
    match (&seen.outcome, &expect.error_contains) {
        (Outcome::Output(output), None) => {
            found.equal_if_stated("output", expect.output.as_deref().as_ref(), Some(&&**output));
            if let Some(texts) = &expect.output_not_contains {
                found.contains_none("output", texts, output);
            }
        }
        (Outcome::Output(output), Some(_)) => {
            found.add(format!("run() should fail; its output is {}", shown(output)));
        }
        (Outcome::Failed(error) | Outcome::Cancelled(error), Some(texts)) => {
            found.contains("error", texts, error);
            found.holds(expect.no_error.is_none(), || format!("no_error: run() fails: {error}"));
        }
        (Outcome::Failed(error) | Outcome::Cancelled(error), None) => found.add(format!("run() fails: {error}")),
        (Outcome::OverBudget, _) => {
            found.add(format!("cancelled after more than {} model calls", seen.record.budget()));
        }
        (Outcome::Hung, _) => found.add("the run hangs: nobody works, nobody waits for time".to_owned()),
    }
}

fn counts(found: &mut Mismatches, expect: &Expect, record: &Record) {
    for (tool, count) in &expect.tool_exec {
        found.equal(&format!("tool_exec of {tool}"), count, &record.tool_runs(tool));
    }
    for (agent, count) in &expect.llm_calls {
        found.equal(&format!("llm_calls of {agent}"), count, &record.model_calls(agent));
    }
    for (agent, most) in &expect.llm_calls_at_most {
        let calls = record.model_calls(agent);
        found.holds(calls <= *most, || format!("llm_calls of {agent}: expected at most {most}, got {calls}"));
    }
}

fn observed(found: &mut Mismatches, expect: &Expect, seen: &Seen) {
    if let Some(expected) = &expect.streamed {
        let expected: Vec<&str> = expected.iter().map(|text| text.trim_end()).collect();
        let actual = events::streamed(&seen.events);
        let mut actual: Vec<&str> = actual.iter().map(|text| text.trim_end()).collect();
        if actual != expected {
            actual.retain(|text| !text.is_empty());
        }
        found.equal("streamed", &expected, &actual);
    }
    let in_order = events::in_order(&seen.events, seen.call);
    found.equal_if_stated("events_in_order", expect.events_in_order.as_ref(), Some(&in_order));
}

/// A tool result in its frame, as a model was shown it.
struct Framed {
    role: &'static str,
    frame: String,
}

fn first(found: &mut Mismatches, expect: &Expect, result: &Framed) {
    if let Some(texts) = &expect.result_contains {
        found.contains("first tool result", texts, &result.frame);
    }
    if let Some(expected) = &expect.result_text {
        found.equal("first tool result", expected.trim(), result.frame.trim());
    }
    for role in expect.result_role_not.iter().flat_map(Texts::iter) {
        let otherwise = || format!("the first tool result is carried by a message of role {role}");
        found.holds(result.role != role, otherwise);
    }
}

fn first_result(record: &Record) -> Option<Framed> {
    record.requests().iter().find_map(first_frame)
}

/// The first frame in what was said after the input.
fn first_frame(request: &Request) -> Option<Framed> {
    request.context.messages().skip(1).find_map(|message| {
        let (role, text) = match message {
            ChatMessage::User(content) => ("user", &*content.text),
            ChatMessage::Assistant { text, .. } => ("assistant", text.as_deref().unwrap_or_default()),
            ChatMessage::Tool { output, .. } => ("tool", &*output.content.text),
        };
        let begun = &text[text.find("<tool_result")?..];
        let end = begun.find("</tool_result>")? + "</tool_result>".len();
        Some(Framed { role, frame: begun[..end].to_owned() })
    })
}
