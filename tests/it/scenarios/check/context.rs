//! Compares what models were shown.

use agentouto::{ChatMessage, Request, ToolCall};
use serde_json::Value;

use crate::scenarios::expect::{Absent, Expect, Shown, ShownCall, ShownMessage, ToolResult, ToolResults};
use crate::scenarios::ids::{Ids, Renaming};
use crate::scenarios::mismatches::{Mismatches, shown};
use crate::scenarios::record::Record;

pub(super) fn compare(found: &mut Mismatches, expect: &Expect, record: &Record, ids: Ids) {
    for expected in &expect.contexts {
        if let Some((what, request)) = request(found, record, &expected.agent, expected.nth) {
            context(found, &what, expected, &request, &mut ids.of_a_context());
        }
    }
    for expected in &expect.tool_results {
        if let Some((what, request)) = request(found, record, &expected.agent, expected.nth) {
            tool_results(found, &what, expected, &request, &mut ids.of_a_context());
        }
    }
    for absent in &expect.contexts_not_contain {
        for nth in 1..=record.model_calls(&absent.agent) {
            if let Some((what, request)) = request(found, record, &absent.agent, nth) {
                not_contained(found, &what, absent, &request);
            }
        }
    }
}

fn request(found: &mut Mismatches, record: &Record, agent: &str, nth: usize) -> Option<(String, Request)> {
    let request = record.request(agent, nth);
    let calls = record.model_calls(agent);
    found.holds(request.is_some(), || format!("model call {nth} of {agent}: there were only {calls}"));
    request.map(|request| (format!("model call {nth} of {agent}"), request))
}

fn context(found: &mut Mismatches, what: &str, expected: &Shown, request: &Request, ids: &mut Renaming) {
    let system = request.context.system();
    let what_system = format!("{what}: system");
    if let Some(expected) = &expected.system {
        found.equal(&what_system, expected.as_str(), system);
    }
    if let Some(texts) = &expected.system_contains {
        found.contains(&what_system, texts, system);
    }
    if let Some(texts) = &expected.system_not_contains {
        found.contains_none(&what_system, texts, system);
    }
    let tools = request.tools.iter().map(|tool| tool.name.to_string()).collect();
    found.equal_if_stated(&format!("{what}: tools"), expected.tools.as_ref(), Some(&tools));
    if let Some(expected) = &expected.messages {
        let actual: Vec<_> = request.context.messages().collect();
        found.equal(&format!("{what}: number of messages"), &expected.len(), &actual.len());
        for (place, (expected, actual)) in expected.iter().zip(actual).enumerate() {
            message(found, &format!("{what}: message {place}"), expected, actual, ids);
        }
    }
}

fn message(found: &mut Mismatches, what: &str, expected: &ShownMessage, actual: &ChatMessage, ids: &mut Renaming) {
    let (role, text, tool_calls, tool) = match actual {
        ChatMessage::User(content) => ("user", &*content.text, &[][..], None),
        ChatMessage::Assistant { text, tool_calls, .. } => {
            ("assistant", text.as_deref().unwrap_or_default(), &tool_calls[..], None)
        }
        ChatMessage::Tool { id, name, output } => ("tool", &*output.content.text, &[][..], Some((id, name))),
    };
    found.equal_if_stated(&format!("{what}: role"), expected.role.as_ref(), Some(&role.to_owned()));
    if let Some(expected) = &expected.content {
        found.equal(&format!("{what}: content"), expected.as_deref().unwrap_or_default(), text);
    }
    if let Some(expected) = &expected.tool_calls {
        found.equal(&format!("{what}: number of tool calls"), &expected.len(), &tool_calls.len());
        for (place, (expected, actual)) in expected.iter().zip(tool_calls).enumerate() {
            tool_call(found, &format!("{what}: tool call {place}"), expected, actual, ids);
        }
    }
    let (id, name) = tool.map(|(id, name)| (id.to_string(), name.to_string())).unzip();
    let expected_id = expected.tool_call_id.as_ref();
    let expected_id = expected_id.map(|written| ids.expected(written, id.as_deref().unwrap_or_default()));
    found.equal_if_stated(&format!("{what}: tool_call_id"), expected_id.as_ref(), id.as_ref());
    found.equal_if_stated(&format!("{what}: tool_name"), expected.tool_name.as_ref(), name.as_ref());
}

fn tool_call(found: &mut Mismatches, what: &str, expected: &ShownCall, actual: &ToolCall, ids: &mut Renaming) {
    let raw = actual.arguments.to_string();
    let arguments: Option<Value> = serde_json::from_str(&raw).ok();
    let expected_id = expected.id.as_ref().map(|written| ids.expected(written, &actual.id));
    found.equal_if_stated(&format!("{what}: id"), expected_id.as_ref(), Some(&actual.id.to_string()));
    found.equal_if_stated(&format!("{what}: name"), expected.name.as_ref(), Some(&actual.name.to_string()));
    found.equal_if_stated(&format!("{what}: arguments"), expected.arguments.as_ref(), arguments.as_ref());
    found.equal_if_stated(&format!("{what}: arguments_raw"), expected.arguments_raw.as_ref(), Some(&raw));
}

fn tool_results(found: &mut Mismatches, what: &str, expected: &ToolResults, request: &Request, ids: &mut Renaming) {
    let actual: Vec<Answered> = request.context.messages().filter_map(answered).collect();
    let texts: Vec<String> = actual.iter().map(|answered| answered.content.clone()).collect();
    if let Some(expected) = &expected.results {
        found.equal(&format!("{what}: number of tool results"), &expected.len(), &actual.len());
        for (place, (expected, actual)) in expected.iter().zip(&actual).enumerate() {
            tool_result(found, &format!("{what}: tool result {place}"), expected, actual, ids);
        }
    }
    let in_order = expected.results_in_order.as_ref();
    found.equal_if_stated(&format!("{what}: tool results in order"), in_order, Some(&texts));
    found.equal_if_stated(&format!("{what}: count of tool results"), expected.count.as_ref(), Some(&texts.len()));
    found.equal_if_stated(&format!("{what}: first tool result"), expected.first.as_ref(), texts.first());
    found.equal_if_stated(&format!("{what}: last tool result"), expected.last.as_ref(), texts.last());
}

fn tool_result(found: &mut Mismatches, what: &str, expected: &ToolResult, actual: &Answered, ids: &mut Renaming) {
    let expected_id = expected.tool_call_id.as_ref().map(|written| ids.expected(written, &actual.id));
    found.equal_if_stated(&format!("{what}: tool_call_id"), expected_id.as_ref(), Some(&actual.id));
    found.equal_if_stated(&format!("{what}: name"), expected.name.as_ref(), Some(&actual.name));
    found.equal_if_stated(&format!("{what}: content"), expected.content.as_ref(), Some(&actual.content));
    if let Some(texts) = &expected.content_contains {
        found.contains(&format!("{what}: content"), texts, &actual.content);
    }
}

/// What came of a tool call, as texts.
struct Answered {
    id: String,
    name: String,
    content: String,
}

fn answered(message: &ChatMessage) -> Option<Answered> {
    match message {
        ChatMessage::Tool { id, name, output } => {
            Some(Answered { id: id.to_string(), name: name.to_string(), content: output.content.to_string() })
        }
        ChatMessage::User(_) | ChatMessage::Assistant { .. } => None,
    }
}

fn not_contained(found: &mut Mismatches, what: &str, absent: &Absent, request: &Request) {
    found.contains_none(&format!("{what}: system"), &absent.text, request.context.system());
    for message in request.context.messages() {
        let what = format!("{what}: {}", shown(message));
        match message {
            ChatMessage::User(content) => found.contains_none(&what, &absent.text, &content.text),
            ChatMessage::Tool { output, .. } => found.contains_none(&what, &absent.text, &output.content.text),
            ChatMessage::Assistant { text, tool_calls, .. } => {
                found.contains_none(&what, &absent.text, text.as_deref().unwrap_or_default());
                for call in tool_calls {
                    found.contains_none(&what, &absent.text, &call.name);
                    found.contains_none(&what, &absent.text, &call.arguments);
                }
            }
        }
    }
}
