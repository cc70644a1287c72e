//! What one invocation has said and heard. It only grows: nothing in it is changed or cloned.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::{Attachment, Content};
use crate::name::Name;
use crate::reply::Reply;
use crate::tool_call::{ToolCall, ToolCallId, ToolOutput};

/// What the model of one invocation is shown: the system prompt, then the messages in order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Context {
    system: Arc<str>,
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    history: Arc<[ChatMessage]>,
    messages: Vec<ChatMessage>,
    turns: usize,
    /// The ids of all tool calls so far; read off the messages when first needed.
    #[serde(skip)]
    ids: Option<HashSet<ToolCallId>>,
    #[serde(skip)]
    memo: Memo,
}

impl Context {
    /// The context at the beginning of a call: what was said before, then `input` as one user message.
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

    /// A context for a provider that asks another one in other words; it begins without messages of its own.
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

    /// Adds a message to it.
    #[cfg(feature = "prompt_tools")]
    pub(crate) fn push(&mut self, message: ChatMessage) {
        self.turns += usize::from(matches!(message, ChatMessage::Assistant { .. }));
        self.messages.push(message);
    }

    /// The messages of the Forward's history, and those since.
    #[cfg(feature = "prompt_tools")]
    pub(crate) fn parts(&self) -> (&Arc<[ChatMessage]>, &[ChatMessage]) {
        (&self.history, &self.messages)
    }

    /// What a provider has made of these messages so far.
    #[cfg_attr(not(any(feature = "http", feature = "prompt_tools")), expect(dead_code, reason = "nobody encodes"))]
    pub(crate) fn memo(&self) -> &Memo {
        &self.memo
    }

    /// How many replies the model has given in this invocation so far.
    #[must_use]
    pub fn turns(&self) -> usize {
        self.turns
    }

    /// Records what the model said. A tool call whose id is empty or was used before gets a new one,
    /// because servers refuse a conversation in which ids repeat.
    pub(crate) fn push_reply(&mut self, reply: Reply) {
        let text = reply.text_or_refusal().cloned();
        let Reply { reasoning, attachments, mut tool_calls, opaque, .. } = reply;
        self.make_unique(&mut tool_calls);
        if self.turns == 0 {
            // Many invocations have one turn of tool calls: just the room for that.
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

    /// What the model said in the replies that paused just before, and then `last`.
    pub(crate) fn resumed(&self, last: Option<&Arc<str>>) -> Arc<str> {
        let is_paused = |message: &&ChatMessage| matches!(message, ChatMessage::Assistant { tool_calls, .. } if tool_calls.is_empty());
        let mut paused = self.messages.iter().rev().take_while(is_paused).peekable();
        if paused.peek().is_none() {
            return last.cloned().unwrap_or_default();
        }
        let mut texts: Vec<&str> = paused.filter_map(ChatMessage::text).collect();
        texts.reverse();
        texts.extend(last.map(|last| &**last));
        texts.concat().into()
    }

    /// What the model attached in this invocation so far, and then what it attached `last`.
    pub(crate) fn attachments(&self, last: Vec<Attachment>) -> Vec<Attachment> {
        self.messages.iter().flat_map(ChatMessage::attachments).cloned().chain(last).collect()
    }

    /// The tool calls of the last reply.
    pub(crate) fn last_tool_calls(&self) -> &[ToolCall] {
        self.messages.last().map_or(&[], ChatMessage::tool_calls)
    }

    /// Records what came of the tool calls of the last reply, in their order.
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

/// A place where a provider keeps what it has made of a context's messages, which never change, until the next turn.
/// A clone of the context begins with an empty one.
#[derive(Default)]
pub(crate) struct Memo(Mutex<Option<Box<dyn Any + Send>>>);

#[cfg_attr(not(any(feature = "http", feature = "prompt_tools")), expect(dead_code, reason = "nobody encodes"))]
impl Memo {
    /// Takes out what was put in last, if it is a `T`.
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

impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memo")
    }
}

/// One message in a [`Context`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum ChatMessage {
    /// What the caller said.
    User(Content),
    /// What the model said.
    Assistant {
        /// Its text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<Arc<str>>,
        /// Its reasoning, where the provider tells it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning: Option<Arc<str>>,
        /// The images, sounds and documents that it made. A format whose replies cannot carry them says in the text
        /// what they were.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Attachment>,
        /// The tools that it called.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
        /// See [`Reply::opaque`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<Arc<Value>>,
    },
    /// What came of one tool call.
    Tool {
        /// The call's id.
        id: ToolCallId,
        /// The tool's name.
        name: Name,
        /// What it gave.
        output: ToolOutput,
    },
}

impl ChatMessage {
    /// Something that a user said, for a [`Forward::history`](crate::Forward::history).
    pub fn user(content: impl Into<Content>) -> Self {
        Self::User(content.into())
    }

    /// Something that a model said, for a [`Forward::history`](crate::Forward::history).
    pub fn assistant(text: impl Into<Arc<str>>) -> Self {
        let (attachments, tool_calls) = Default::default();
        Self::Assistant { text: Some(text.into()), reasoning: None, attachments, tool_calls, opaque: None }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Assistant { text, .. } => text.as_deref(),
            Self::User(_) | Self::Tool { .. } => None,
        }
    }

    fn attachments(&self) -> &[Attachment] {
        match self {
            Self::Assistant { attachments, .. } => attachments,
            Self::User(_) | Self::Tool { .. } => &[],
        }
    }

    fn tool_calls(&self) -> &[ToolCall] {
        match self {
            Self::Assistant { tool_calls, .. } => tool_calls,
            Self::User(_) | Self::Tool { .. } => &[],
        }
    }
}
