//! What a request body says, whatever its wire form: the recorded body and ours must say the same.
//!
//! What is mere form is no part of it: whether the system prompt is a message or a field, whether content is a string
//! or a list, where one user message ends and the next begins, and on which side of the text an attachment stands.

use agentouto::{Agent, Attachment, ChatMessage, Content, Reasoning, Reply, Request, ToolCall, ToolOutput, ToolSpec};
use serde_json::Value;

use super::case::Wire;
use super::differences::Differences;
use super::kept::{is_kept, is_tool_kept, plain, sources};
use crate::openai::request;

#[derive(Debug, Default)]
pub(super) struct Conversation {
    pub(super) model: String,
    pub(super) most_tokens: Option<u64>,
    pub(super) temperature: Option<f64>,
    pub(super) reasoning: Option<Reasoning>,
    pub(super) system: Vec<String>,
    pub(super) turns: Vec<Turn>,
    pub(super) tools: Vec<ToolSpec>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Turn {
    User { texts: Vec<String>, attachments: Vec<Attachment> },
    Assistant(Said),
    Result { id: Option<String>, name: Option<String>, content: Content, is_error: bool },
}

/// What the model said at a time.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Said {
    pub(super) text: String,
    pub(super) calls: Vec<Call>,
    /// What the vendor wants back as it came: signatures, encrypted reasoning, and reasoning where it says so.
    pub(super) returned: Vec<String>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Call {
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) arguments: Value,
    /// What the vendor wants back with this call.
    pub(super) signature: Option<String>,
}

impl Conversation {
    pub(super) fn system(&mut self, content: Content) {
        self.system.extend(Some(content.text.to_string()).filter(|text| !text.is_empty()));
    }

    pub(super) fn user(&mut self, content: Content) {
        if !matches!(self.turns.last(), Some(Turn::User { .. })) {
            self.turns.push(Turn::User { texts: Vec::new(), attachments: Vec::new() });
        }
        if let Some(Turn::User { texts, attachments }) = self.turns.last_mut() {
            texts.extend(Some(content.text.to_string()).filter(|text| !text.is_empty()));
            attachments.extend(content.attachments);
        }
    }

    pub(super) fn assistant(&mut self) -> &mut Said {
        if !matches!(self.turns.last(), Some(Turn::Assistant(_))) {
            self.turns.push(Turn::Assistant(Said::default()));
        }
        match self.turns.last_mut() {
            Some(Turn::Assistant(said)) => said,
            _ => unreachable!("one was just pushed"),
        }
    }

    pub(super) fn result(&mut self, id: Option<String>, name: Option<String>, content: Content, is_error: bool) {
        self.turns.push(Turn::Result { id, name, content, is_error });
    }

    /// The same, to be asked, and how many of our replies have no part in it.
    ///
    /// Where the model said what one of our replies says, it is that reply which goes back.
    /// What only a reply of ours could bring back is struck out of the other messages of this: signatures, whose form
    /// is known to nobody but their provider, and with Gemini the ids of calls, which it gives only now and then.
    pub(super) fn request(&mut self, wire: Wire, replies: &[Reply]) -> (Request, usize) {
        let mut replies: Vec<&Reply> = replies.iter().collect();
        let mut messages = Vec::new();
        // The calls that have no result yet, and whether a reply of ours made them. Without ids their order tells.
        let mut open: Vec<(ToolCall, bool)> = Vec::new();
        for turn in &mut self.turns {
            match turn {
                Turn::User { texts, attachments } => messages.extend(user(texts, attachments)),
                Turn::Assistant(said) => {
                    let reply = said.take_reply(&mut replies);
                    let message = match reply {
                        Some(reply) => said.ours(reply),
                        None => said.foreign(wire, messages.len()),
                    };
                    if let ChatMessage::Assistant { tool_calls, .. } = &message {
                        open.extend(tool_calls.iter().map(|call| (call.clone(), reply.is_some())));
                    }
                    messages.push(message);
                }
                Turn::Result { id, name, content, is_error } => {
                    let is_of = |(call, _): &(ToolCall, bool)| match (&*id, &*name) {
                        (Some(id), _) => *call.id == **id,
                        (None, Some(name)) => *call.name == **name,
                        (None, None) => true,
                    };
                    let of = open.iter().position(is_of).map(|nth| open.remove(nth));
                    let known = of.as_ref().map(|(call, _)| (&*call.id, &*call.name)).unwrap_or_default();
                    messages.push(ChatMessage::Tool {
                        id: id.as_deref().unwrap_or(known.0).into(),
                        name: name.as_deref().unwrap_or(known.1).into(),
                        output: ToolOutput { content: content.clone(), is_error: *is_error },
                    });
                    if wire == Wire::Gemini && !of.is_some_and(|(_, is_ours)| is_ours) {
                        *id = None;
                    }
                }
            }
        }
        (request(self.agent(), &self.system.join("\n"), &messages, &self.tools), replies.len())
    }

    fn agent(&self) -> Agent {
        let mut agent = Agent::new("a", "").model(&*self.model);
        agent.max_output_tokens = self.most_tokens.and_then(|most| most.try_into().ok());
        agent.temperature = self.temperature;
        agent.reasoning = self.reasoning;
        agent
    }

    /// What this carries and `ours` does not. Ours may carry more: ids, signatures, settings.
    pub(super) fn lost_in(&self, ours: &Self, wire: Wire) -> Vec<String> {
        let mut lost = Differences::default();
        lost.same("the request's model", &ours.model, &self.model);
        // With reasoning, some wires fix the temperature and need room for more tokens.
        if self.reasoning.is_none() {
            let kept = self.most_tokens.is_none() || ours.most_tokens == self.most_tokens;
            lost.hold(kept, || format!("the request's most tokens: {:?}", ours.most_tokens));
            let kept = self.temperature.is_none() || ours.temperature == self.temperature;
            lost.hold(kept, || format!("the request's temperature: {:?}", ours.temperature));
        }
        lost.same("the request's system prompt", ours.system.join("\n"), self.system.join("\n"));
        let has_tools = self.tools.len() == ours.tools.len()
            && std::iter::zip(&self.tools, &ours.tools).all(|(recorded, ours)| is_tool_kept(recorded, ours, wire));
        lost.hold(has_tools, || format!("the request's tools: {:?} instead of {:?}", ours.tools, self.tools));
        if ours.turns.len() != self.turns.len() {
            lost.0.push(format!("the request's messages: {:?} instead of {:?}", ours.turns, self.turns));
        }
        for (ours, recorded) in std::iter::zip(&ours.turns, &self.turns) {
            lost.hold(recorded.is_kept_in(ours), || {
                format!("a message of the request: {ours:?} instead of {recorded:?}")
            });
        }
        lost.0
    }
}

impl Turn {
    fn is_kept_in(&self, ours: &Self) -> bool {
        match (self, ours) {
            (Self::User { texts, attachments }, Self::User { texts: our_texts, attachments: our_attachments }) => {
                texts == our_texts && sources(attachments).eq(sources(our_attachments))
            }
            (Self::Assistant(said), Self::Assistant(ours)) => said.is_kept_in(ours),
            (
                Self::Result { id, name, content, is_error },
                Self::Result { id: our_id, name: our_name, content: our_content, is_error: our_is_error },
            ) => {
                // A result may be wrapped in an object, or be JSON in a string.
                is_kept(id, our_id)
                    && is_kept(name, our_name)
                    && plain(&content.text) == plain(&our_content.text)
                    && sources(&content.attachments).eq(sources(&our_content.attachments))
                    && is_error == our_is_error
            }
            _ => false,
        }
    }
}

impl Said {
    /// Whether nothing was said, not even in secret.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The first of our replies that says the same.
    fn take_reply<'r>(&self, replies: &mut Vec<&'r Reply>) -> Option<&'r Reply> {
        replies.iter().position(|reply| self.is_said_by(reply)).map(|at| replies.remove(at))
    }

    /// This as our own reply.
    fn ours(&self, reply: &Reply) -> ChatMessage {
        let mut tool_calls = reply.tool_calls.clone();
        for (call, recorded) in std::iter::zip(&mut tool_calls, &self.calls) {
            // Clients rename ids that a server uses twice. So does the runtime.
            if let Some(id) = &recorded.id {
                call.id = id.as_str().into();
            }
        }
        let (text, reasoning, opaque) = (reply.text.clone(), reply.reasoning.clone(), reply.opaque.clone());
        let attachments = reply.attachments.clone();
        ChatMessage::Assistant { text, reasoning, attachments, tool_calls, opaque }
    }

    fn is_said_by(&self, reply: &Reply) -> bool {
        let same_text = reply.text.as_deref().unwrap_or_default() == self.text;
        let same_calls = reply.tool_calls.len() == self.calls.len()
            && std::iter::zip(&reply.tool_calls, &self.calls).all(|(call, recorded)| {
                *call.name == recorded.name && plain(&call.arguments) == plain(&recorded.written_arguments())
            });
        // A client may have dropped the text beside the calls.
        same_calls && (same_text || self.text.is_empty() && !self.calls.is_empty())
    }

    /// This as a message that came from elsewhere.
    fn foreign(&mut self, wire: Wire, nth: usize) -> ChatMessage {
        self.returned.clear();
        let calls = self.calls.iter_mut().enumerate().map(|(at, call)| {
            let id = call.id.clone().unwrap_or_else(|| format!("call_{nth}_{at}"));
            call.signature = None;
            if wire == Wire::Gemini {
                call.id = None;
            }
            ToolCall::new(id, &*call.name, call.written_arguments())
        });
        let tool_calls = calls.collect();
        let text = Some(&*self.text).filter(|text| !text.is_empty()).map(Into::into);
        ChatMessage::Assistant { text, reasoning: None, attachments: Vec::new(), tool_calls, opaque: None }
    }

    fn is_kept_in(&self, ours: &Self) -> bool {
        let mut ours_returned = ours.returned.iter();
        let has_text = self.text == ours.text || self.text.is_empty();
        let has_calls = self.calls.len() == ours.calls.len()
            && std::iter::zip(&self.calls, &ours.calls).all(|(recorded, ours)| {
                recorded.name == ours.name
                    && plain(&recorded.written_arguments()) == plain(&ours.written_arguments())
                    && is_kept(&recorded.id, &ours.id)
                    && is_kept(&recorded.signature, &ours.signature)
            });
        has_text && has_calls && self.returned.iter().all(|recorded| ours_returned.any(|ours| ours == recorded))
    }
}

impl Call {
    fn written_arguments(&self) -> String {
        match &self.arguments {
            Value::String(raw) => raw.clone(),
            Value::Null => "{}".to_owned(),
            json => json.to_string(),
        }
    }
}

/// One message for each text; the attachments go with the last.
fn user(texts: &[String], attachments: &[Attachment]) -> Vec<ChatMessage> {
    let mut contents: Vec<Content> = texts.iter().map(|text| Content::from(text.as_str())).collect();
    if contents.is_empty() {
        contents.push(Content::default());
    }
    if let Some(last) = contents.last_mut() {
        last.attachments = attachments.to_vec();
    }
    contents.into_iter().map(ChatMessage::User).collect()
}
