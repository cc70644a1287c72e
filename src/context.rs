//! The messages of one invocation. Messages are only added: none is changed or cloned.

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::{Attachment, Content};
use crate::name::Name;
use crate::reply::Reply;
use crate::tool_call::{ToolCall, ToolCallId, ToolOutput};

/// The conversation that the model of one invocation reads: the system prompt, then the messages in order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Context {
    system: Arc<str>,
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    history: Arc<[ChatMessage]>,
    messages: Vec<ChatMessage>,
    turns: usize,
    /// The ids of all tool calls so far; collected from the messages when first needed.
    #[serde(skip)]
    ids: Option<HashSet<ToolCallId>>,
    #[serde(skip)]
    pub(crate) memo: Memo,
}

impl Context {
    /// The context at the beginning of a call: the history, then `input` as one user message.
    #[must_use]
    pub fn new(system: impl Into<Arc<str>>, history: Arc<[ChatMessage]>, input: Content) -> Self {
        Self {
            system: system.into(),
            history,
            messages: vec![ChatMessage::User(input)],
            turns: 0,
            ids: None,
            memo: Memo::default(),
        }
    }

    /// A context with these messages, for tests of a provider.
    #[must_use]
    pub fn with_messages(system: impl Into<Arc<str>>, messages: impl Into<Vec<ChatMessage>>) -> Self {
        let messages = messages.into();
        let turns = messages.iter().filter(|message| matches!(message, ChatMessage::Assistant { .. })).count();
        Self { system: system.into(), messages, turns, ..Self::default() }
    }

    /// A context for a provider that wraps another one and rewrites the messages. It begins with the history alone.
    #[cfg(feature = "prompt_tools")]
    pub(crate) fn with_history(system: Arc<str>, history: Arc<[ChatMessage]>) -> Self {
        Self { system, history, ..Self::default() }
    }

    /// The system prompt.
    #[must_use]
    pub fn system(&self) -> &str {
        &self.system
    }

    /// The messages in order, those of the Forward's history first.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = &ChatMessage> {
        self.history.iter().chain(&self.messages)
    }

    /// The text of the Forward that this context serves.
    #[must_use]
    pub fn input(&self) -> &str {
        match self.messages.first() {
            Some(ChatMessage::User(content)) => &content.text,
            _ => "",
        }
    }

    /// Appends a message.
    pub(crate) fn push(&mut self, message: ChatMessage) {
        self.turns += usize::from(matches!(message, ChatMessage::Assistant { .. }));
        self.messages.push(message);
    }

    /// The messages of the Forward's history, and the messages after them.
    #[cfg(feature = "prompt_tools")]
    pub(crate) fn parts(&self) -> (&Arc<[ChatMessage]>, &[ChatMessage]) {
        (&self.history, &self.messages)
    }

    /// The number of replies that the model has given in this invocation so far.
    #[must_use]
    pub fn turns(&self) -> usize {
        self.turns
    }

    /// Appends the model's reply. A tool call whose id is empty or was used before gets a new id, because servers
    /// refuse a conversation in which ids repeat.
    pub(crate) fn push_reply(&mut self, reply: Reply) {
        let text = reply.text_or_refusal().cloned();
        let Reply { reasoning, attachments, mut tool_calls, opaque, .. } = reply;
        self.make_unique(&mut tool_calls);
        if self.turns == 0 {
            // Many invocations have one turn of tool calls, so exactly the room for that is reserved.
            self.messages.reserve_exact(1 + tool_calls.len());
        }
        self.messages.push(ChatMessage::Assistant { text, reasoning, attachments, tool_calls, opaque });
        self.turns += 1;
    }

    /// Gives a new id to each call whose id is empty or was used before.
    fn make_unique(&mut self, tool_calls: &mut [ToolCall]) {
        let is_first = self.turns == 0 && self.history.is_empty();
        if let ([only], true) = (&*tool_calls, is_first)
            && !only.id.is_empty()
        {
            return;
        }
        let ids = self.ids.get_or_insert_with(|| {
            let earlier = self.history.iter().chain(&self.messages).flat_map(ChatMessage::tool_calls);
            earlier.map(|call| Arc::clone(&call.id)).collect()
        });
        for call in tool_calls {
            if call.id.is_empty() || ids.contains(&call.id) {
                let stem = if call.id.is_empty() { "call" } else { &*call.id };
                call.id = (ids.len()..)
                    .map(|n| ToolCallId::from(format!("{stem}_{n}")))
                    .find(|id| !ids.contains(id))
                    .unwrap_or_default();
            }
            ids.insert(Arc::clone(&call.id));
        }
    }

    /// Returns whether the last message is a reply that paused.
    pub(crate) fn is_paused(&self) -> bool {
        matches!(self.messages.last(), Some(ChatMessage::Assistant { tool_calls, .. }) if tool_calls.is_empty())
    }

    /// The text of the paused replies directly before, followed by `last`.
    pub(crate) fn resumed(&self, last: Option<&Arc<str>>) -> Arc<str> {
        let paused = self.messages.iter().rev().map_while(|message| match message {
            ChatMessage::Assistant { text, tool_calls, .. } if tool_calls.is_empty() => Some(text.as_deref()),
            _ => None,
        });
        let mut texts: Vec<&str> = paused.flatten().collect();
        if texts.is_empty() {
            return last.cloned().unwrap_or_default();
        }
        texts.reverse();
        texts.extend(last.map(|last| &**last));
        texts.concat().into()
    }

    /// The attachments of all replies of this invocation so far, followed by `last`.
    pub(crate) fn attachments(&self, last: Vec<Attachment>) -> Vec<Attachment> {
        let earlier = self.messages.iter().filter_map(|message| match message {
            ChatMessage::Assistant { attachments, .. } => Some(attachments),
            _ => None,
        });
        earlier.flatten().cloned().chain(last).collect()
    }

    /// The tool calls of the last reply.
    pub(crate) fn last_tool_calls(&self) -> &[ToolCall] {
        self.messages.last().map_or(&[], ChatMessage::tool_calls)
    }

    /// Appends the outputs of the last reply's tool calls, in the order of the calls.
    pub(crate) fn push_outputs(&mut self, outputs: Vec<ToolOutput>) {
        let said = self.messages.len() - 1;
        self.messages.reserve(outputs.len());
        for (nth, output) in outputs.into_iter().enumerate() {
            let ToolCall { id, name, .. } = &self.messages[said].tool_calls()[nth];
            let (id, name) = (Arc::clone(id), Arc::clone(name));
            self.messages.push(ChatMessage::Tool { id, name, output });
        }
    }
}

/// A place where a provider keeps its encoding of a context's messages until the next turn. The encoding stays valid,
/// because messages never change. A clone of the context begins with an empty memo.
#[derive(Debug, Default)]
pub(crate) struct Memo(Mutex<Option<Box<dyn Any + Send>>>);

impl Memo {
    /// Takes out the value that was put in last, if it is a `T`.
    pub(crate) fn take<T: 'static>(&self) -> Option<T> {
        let kept = self.0.lock().take()?;
        kept.downcast().ok().map(|kept| *kept)
    }

    pub(crate) fn put<T: Send + 'static>(&self, value: T) {
        *self.0.lock() = Some(Box::new(value));
    }
}

impl Clone for Memo {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// One message in a [`Context`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum ChatMessage {
    /// A message from the caller.
    User(Content),
    /// A reply of the model.
    Assistant {
        /// The text of the reply.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<Arc<str>>,
        /// The reasoning of the reply, where the provider returns it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning: Option<Arc<str>>,
        /// The images, sounds and documents that the model made. A format whose replies cannot carry them describes
        /// them in the text.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Attachment>,
        /// The tool calls of the reply.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
        /// The provider's own data for the next request, see [`Reply::opaque`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<Arc<Value>>,
    },
    /// The output of one tool call.
    Tool {
        /// The id of the tool call.
        id: ToolCallId,
        /// The tool's name.
        name: Name,
        /// The output, or the failure.
        output: ToolOutput,
    },
}

impl ChatMessage {
    /// A user message, for a [`Forward::history`](crate::Forward::history).
    pub fn user(content: impl Into<Content>) -> Self {
        Self::User(content.into())
    }

    /// An assistant message, for a [`Forward::history`](crate::Forward::history).
    pub fn assistant(text: impl Into<Arc<str>>) -> Self {
        let (attachments, tool_calls) = Default::default();
        Self::Assistant { text: Some(text.into()), reasoning: None, attachments, tool_calls, opaque: None }
    }

    fn tool_calls(&self) -> &[ToolCall] {
        match self {
            Self::Assistant { tool_calls, .. } => tool_calls,
            Self::User(_) | Self::Tool { .. } => &[],
        }
    }
}
