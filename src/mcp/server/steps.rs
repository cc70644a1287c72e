//! The text of progress notifications: the steps of a call in words. Pure.

use std::collections::HashMap;

use crate::call_id::CallId;
use crate::event::{Event, EventKind};
use crate::message::Return;
use crate::name::Name;

/// Describes the events of one call and of all calls below it. It remembers the agent that serves each call.
#[derive(Default)]
pub(super) struct ProgressText {
    callees: HashMap<CallId, Name>,
}

impl ProgressText {
    /// A short description of the event, without message texts; `None` if the event is not a step.
    pub(super) fn words(&mut self, event: &Event) -> Option<String> {
        if let EventKind::Forward { forward } = &event.kind {
            self.callees.insert(event.call_id, Name::clone(&forward.receiver));
            return Some(format!("{} calls {}", forward.sender, forward.receiver));
        }
        if let EventKind::Return { answer } = &event.kind {
            self.callees.remove(&event.call_id);
            return Some(returned(answer));
        }
        let who = self.callees.get(&event.call_id).map_or("an agent", |name| name);
        Some(match &event.kind {
            EventKind::Undelivered { agent } => format!("{who} calls {agent}, but nobody has that name"),
            EventKind::ModelRequest { turn, .. } => format!("{who} asks its model, turn {turn}"),
            EventKind::ModelReply { .. } => format!("{who} has its model's reply"),
            EventKind::ModelError { error, .. } => format!("{who} gets no reply from its model: {error}"),
            EventKind::ToolStart { call } => format!("{who} uses {}", call.name),
            EventKind::ToolProgress { progress, .. } => {
                let message = progress.message.as_deref().unwrap_or("a tool goes on");
                match progress.total {
                    Some(total) => format!("{who}: {message} ({} of {total})", progress.done),
                    None => format!("{who}: {message}"),
                }
            }
            EventKind::ToolApproval(approval) => format!("{} has decided on {}", approval.by, approval.tool),
            EventKind::ToolEnd { name, error: None, .. } => format!("{who} has used {name}"),
            EventKind::ToolEnd { name, error: Some(_), .. } => format!("{who} has used {name}, which failed"),
            EventKind::ToolRefused { call, .. } => format!("{who} cannot use {}", call.name),
            _ => return None,
        })
    }
}

fn returned(answer: &Return) -> String {
    match &answer.result {
        Ok(_) => format!("{} answers {}", answer.sender, answer.receiver),
        Err(error) => format!("{} fails {}: {error}", answer.sender, answer.receiver),
    }
}
