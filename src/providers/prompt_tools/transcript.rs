//! A conversation with tools, written as text only.

use std::sync::Arc;

use super::dialect::{Dialect, frame};
use crate::content::Content;
use crate::context::{ChatMessage, Context};
use crate::provider::Request;

/// The request to a model without function calling. It is kept from turn to turn, and grows with the conversation.
pub(super) struct Transcript {
    request: Request,
    /// The number of messages of the conversation that it contains.
    told: usize,
    dialect: Dialect,
}

impl Transcript {
    /// Returns the same request in text. `prompt`, which describes the tools, follows the system prompt.
    pub(super) fn of(request: &Request, prompt: &str, dialect: Dialect) -> Self {
        let (history, _) = request.context.parts();
        let is_text = history.iter().all(is_text);
        let history = if is_text { Arc::clone(history) } else { tell(history, dialect).into() };
        let system = match request.context.system() {
            "" => prompt.into(),
            system => format!("{system}\n\n{prompt}").into(),
        };
        let (call_id, agent) = (request.call_id, Arc::clone(&request.agent));
        let context = Context::with_history(system, history);
        Self { request: Request { call_id, agent, context, tools: Arc::default() }, told: 0, dialect }
    }

    /// Returns the request with all messages of the conversation.
    pub(super) fn up_to_date(&mut self, context: &Context) -> &Request {
        let (_, messages) = context.parts();
        for message in tell(&messages[self.told.min(messages.len())..], self.dialect) {
            self.request.context.push(message);
        }
        self.told = messages.len();
        &self.request
    }
}

fn is_text(message: &ChatMessage) -> bool {
    match message {
        ChatMessage::User(_) => true,
        ChatMessage::Assistant { tool_calls, .. } => tool_calls.is_empty(),
        ChatMessage::Tool { .. } => false,
    }
}

/// Returns messages as text. Results that follow each other become one message of the user, because the model did not
/// write them.
fn tell(messages: &[ChatMessage], dialect: Dialect) -> Vec<ChatMessage> {
    let mut told = Vec::with_capacity(messages.len());
    let mut results: Option<(String, Vec<_>)> = None;
    for message in messages {
        if let ChatMessage::Tool { name, output, .. } = message {
            let (frames, attachments) = results.get_or_insert_default();
            frame(name, &output.content.text, frames);
            attachments.extend(output.content.attachments.iter().cloned());
            continue;
        }
        told.extend(results.take().map(said_by_user));
        told.push(match message {
            ChatMessage::Assistant { text, reasoning, attachments, tool_calls, .. } if !tool_calls.is_empty() => {
                let mut said = text.as_deref().unwrap_or_default().to_owned();
                let calls = dialect.render(tool_calls);
                if !said.is_empty() && !said.ends_with('\n') && !calls.is_empty() {
                    said.push('\n');
                }
                said.push_str(&calls);
                let (text, reasoning, attachments) = (Some(said.into()), reasoning.clone(), attachments.clone());
                // Opaque data belongs to calls that the server never received.
                ChatMessage::Assistant { text, reasoning, attachments, tool_calls: Vec::new(), opaque: None }
            }
            other => other.clone(),
        });
    }
    told.extend(results.map(said_by_user));
    told
}

fn said_by_user((frames, attachments): (String, Vec<crate::content::Attachment>)) -> ChatMessage {
    ChatMessage::User(Content { text: frames.into(), attachments })
}
