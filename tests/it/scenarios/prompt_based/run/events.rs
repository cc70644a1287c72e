//! What an observer sees of a run, in the words of the scenarios.

use std::collections::HashMap;

use agentouto::{CallId, Delta, Event, EventKind};

/// The text that was seen to grow, by model call, in the order in which the models were asked.
pub(super) fn streamed(events: &[Event]) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    let mut growing: HashMap<CallId, usize> = HashMap::new();
    for event in events {
        match &event.kind {
            EventKind::ModelRequest { .. } => {
                growing.insert(event.call_id, texts.len());
                texts.push(String::new());
            }
            EventKind::ModelDelta { delta: Delta::Text(text) } => {
                texts[growing[&event.call_id]].push_str(text);
            }
            _ => {}
        }
    }
    texts
}

/// `token`, `tool_start:NAME`, `tool_end:NAME` and `finish`; tokens in a row are one.
pub(super) fn in_order(events: &[Event], run: CallId) -> Vec<String> {
    let word = |event: &Event| match &event.kind {
        EventKind::ModelDelta { delta: Delta::Text(text) } if !text.is_empty() => Some("token".to_owned()),
        EventKind::ToolStart { call } => Some(format!("tool_start:{}", call.name)),
        EventKind::ToolEnd { name, .. } => Some(format!("tool_end:{name}")),
        EventKind::Return { .. } if event.call_id == run => Some("finish".to_owned()),
        _ => None,
    };
    let mut words: Vec<String> = events.iter().filter_map(word).collect();
    words.dedup_by(|one, other| one == other && one == "token");
    words
}
