//! A [`Reply`] as it grows out of chat completions: one that is whole, or the chunks of a stream.
//!
//! Servers differ from OpenAI and from each other; what they agree on is read, what is unknown is ignored.
//! Nothing here asks a server or repairs what a model wrote.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::error::{ProviderError, ProviderErrorKind};
use crate::provider::{Delta, Growth, Reply, StopReason, Usage};
use crate::providers::failure::Failure;
use crate::tool::ToolCall;

/// A [chat completion](https://platform.openai.com/docs/api-reference/chat/object) or a
/// [chunk](https://platform.openai.com/docs/api-reference/chat-streaming) of one, or an error in place of it.
#[derive(Debug, Deserialize)]
pub(super) struct Completion {
    choices: Option<Vec<Choice>>,
    usage: Option<Value>,
    error: Option<Value>,
    // Some servers write an error without a wrapper, with the object `error`.
    object: Option<String>,
    message: Option<Value>,
    code: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    index: Option<u64>,
    message: Option<Message>,
    delta: Option<Message>,
    finish_reason: Option<Arc<str>>,
}

#[derive(Debug, Deserialize)]
struct Message {
    content: Option<Text>,
    refusal: Option<Text>,
    reasoning_content: Option<Text>,
    reasoning: Option<Text>,
    tool_calls: Option<Vec<CallPiece>>,
}

/// Text, or parts of it: Mistral sends a list in which some parts are the model's thinking.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Text {
    Plain(String),
    Parts(Vec<Part>),
    Other(IgnoredAny),
}

#[derive(Debug, Deserialize)]
struct Part {
    text: Option<String>,
    thinking: Option<Text>,
}

#[derive(Debug, Deserialize)]
struct CallPiece {
    index: Option<u64>,
    id: Option<String>,
    function: Option<FunctionPiece>,
}

#[derive(Debug, Default, Deserialize)]
struct FunctionPiece {
    name: Option<String>,
    arguments: Option<Value>,
}

impl Completion {
    /// Reads the data of an event of the type `name`.
    pub(super) fn read(name: &str, data: &str) -> serde_json::Result<Self> {
        let mut completion: Self = serde_json::from_str(data)?;
        if name == "error" {
            completion.object = Some(name.to_owned());
        }
        Ok(completion)
    }

    /// What the server says went wrong.
    pub(super) fn failure(&self) -> Option<Failure> {
        let Self { error, object, message, code, .. } = self;
        match error {
            Some(error) => Some(Failure::reported(&json!({ "error": error }))),
            None if object.as_deref() == Some("error") => {
                Some(Failure::reported(&json!({ "message": message, "code": code })))
            }
            None => None,
        }
    }
}

/// What of a reply has arrived.
#[derive(Debug, Default)]
pub(super) struct Draft {
    has_choices: bool,
    text: String,
    refusal: String,
    reasoning: String,
    calls: Vec<Call>,
    stop_reason: Option<StopReason>,
    usage: Option<Usage>,
}

#[derive(Debug)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Draft {
    /// Takes in a completion, or one more chunk of it, and shows what is new.
    pub(super) fn take(&mut self, completion: Completion, growth: &mut Growth<'_>) {
        if let Some(usage) = completion.usage.as_ref().and_then(usage) {
            self.usage = Some(usage);
            growth.usage_so_far(usage);
        }
        // More than one choice comes only if asked for.
        let first = completion.choices.into_iter().flatten().find(|choice| choice.index.unwrap_or(0) == 0);
        let Some(choice) = first else { return };
        self.has_choices = true;
        // Chunks of some servers hold the message so far beside the delta.
        match (choice.delta, choice.message) {
            (Some(mut delta), _) => {
                delta.tool_calls.take().into_iter().flatten().for_each(|piece| self.grow_call(piece));
                self.take_message(delta, growth);
            }
            (None, Some(mut message)) => {
                self.calls.extend(message.tool_calls.take().into_iter().flatten().map(Call::from));
                self.take_message(message, growth);
            }
            (None, None) => {}
        }
        if let Some(word) = choice.finish_reason.filter(|word| !word.is_empty()) {
            self.stop_reason = Some(stop_reason(word));
        }
    }

    /// Whether the model has said why it stopped.
    pub(super) fn is_finished(&self) -> bool {
        self.stop_reason.is_some()
    }

    /// The reply, if there is anything in it.
    pub(super) fn into_reply(self) -> Result<Reply, ProviderError> {
        if !(self.text.is_empty() && self.refusal.is_empty() && self.calls.is_empty()) {
            return Ok(self.into());
        }
        let reason = match (&self.stop_reason, self.has_choices) {
            (_, false) => "no choices".to_owned(),
            (None, true) => "neither text nor tool calls".to_owned(),
            (Some(reason), true) => format!("neither text nor tool calls; the model stopped for `{reason}`"),
        };
        let error = ProviderError::new(ProviderErrorKind::EmptyResponse, format!("Empty response: {reason}"));
        Err(ProviderError { partial: self.into_partial(), ..error })
    }

    /// What has arrived of a reply that will not be whole.
    pub(super) fn into_partial(self) -> Option<Box<Reply>> {
        let is_anything = self.has_choices || self.usage.is_some();
        is_anything.then(|| Box::new(self.into()))
    }

    fn take_message(&mut self, message: Message, growth: &mut Growth<'_>) {
        let reasoning = message.reasoning_content.or(message.reasoning);
        self.think(&reasoning.map(Text::into_string).unwrap_or_default(), growth);
        match message.content {
            Some(Text::Plain(text)) => self.say(&text, growth),
            Some(Text::Parts(parts)) => {
                for part in parts {
                    self.think(&part.thinking.map(Text::into_string).unwrap_or_default(), growth);
                    self.say(&part.text.unwrap_or_default(), growth);
                }
            }
            Some(Text::Other(_)) | None => {}
        }
        let refusal = message.refusal.map(Text::into_string).unwrap_or_default();
        if !refusal.is_empty() {
            self.refusal.push_str(&refusal);
            growth.delta(Delta::Text(refusal.into()));
        }
    }

    fn think(&mut self, piece: &str, growth: &mut Growth<'_>) {
        if !piece.is_empty() {
            self.reasoning.push_str(piece);
            growth.delta(Delta::Reasoning(piece.into()));
        }
    }

    fn say(&mut self, piece: &str, growth: &mut Growth<'_>) {
        if !piece.is_empty() {
            self.text.push_str(piece);
            growth.delta(Delta::Text(piece.into()));
        }
    }

    fn grow_call(&mut self, piece: CallPiece) {
        let piece = Call::from(piece);
        match self.continued(&piece) {
            Some(call) => call.grow(piece),
            None => self.calls.push(piece),
        }
    }

    /// The call that a piece of a stream belongs to, unless it begins one.
    ///
    /// The index should tell, but some servers give all calls the same one or none, and some give every
    /// piece of one call another id. What begins a call has a name.
    fn continued(&mut self, piece: &Call) -> Option<&mut Call> {
        let here = |call: &Call| piece.index.is_none() || call.index == piece.index;
        let same = |call: &Call| here(call) && !piece.id.is_empty() && call.id == piece.id;
        let position = self.calls.iter().rposition(same).or_else(|| self.calls.iter().rposition(here))?;
        let call = &mut self.calls[position];
        let differs = !piece.id.is_empty() && !call.id.is_empty() && call.id != piece.id;
        let lacks_id = piece.id.is_empty() || call.id.is_empty();
        let begins = !piece.name.is_empty() && (differs || (lacks_id && call.is_whole()));
        (!begins).then_some(call)
    }
}

impl Call {
    fn grow(&mut self, piece: Self) {
        if self.id.is_empty() {
            self.id = piece.id;
        }
        // A name comes in pieces, or is repeated with every piece of the arguments.
        if self.name != piece.name {
            self.name.push_str(&piece.name);
        }
        self.arguments.push_str(&piece.arguments);
    }

    fn is_whole(&self) -> bool {
        self.arguments.ends_with('}') && serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
    }
}

impl From<CallPiece> for Call {
    fn from(piece: CallPiece) -> Self {
        let function = piece.function.unwrap_or_default();
        let arguments = match function.arguments {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            Some(object) => object.to_string(),
        };
        Self {
            index: piece.index,
            id: piece.id.unwrap_or_default(),
            name: function.name.unwrap_or_default(),
            arguments,
        }
    }
}

impl From<Call> for ToolCall {
    fn from(call: Call) -> Self {
        Self { id: call.id.into(), name: call.name.into(), arguments: call.arguments.into() }
    }
}

impl From<Draft> for Reply {
    fn from(draft: Draft) -> Self {
        let given = |text: String| (!text.is_empty()).then(|| text.into());
        let default = if draft.calls.is_empty() { StopReason::Stop } else { StopReason::ToolCalls };
        Self {
            text: given(draft.text),
            refusal: given(draft.refusal),
            attachments: Vec::new(),
            reasoning: given(draft.reasoning),
            tool_calls: draft.calls.into_iter().map(ToolCall::from).collect(),
            stop_reason: draft.stop_reason.unwrap_or(default),
            usage: draft.usage,
            opaque: None,
        }
    }
}

impl Text {
    fn into_string(self) -> String {
        match self {
            Self::Plain(text) => text,
            Self::Parts(parts) => parts.into_iter().filter_map(|part| part.text).collect(),
            Self::Other(_) => String::new(),
        }
    }
}

fn stop_reason(word: Arc<str>) -> StopReason {
    match &*word {
        "stop" => StopReason::Stop,
        "tool_calls" | "function_call" => StopReason::ToolCalls,
        "length" | "model_length" => StopReason::Length,
        "content_filter" => StopReason::ContentFilter,
        _ => StopReason::Other(word),
    }
}

/// Reads a [usage](https://platform.openai.com/docs/api-reference/completions/object#completions-object-usage).
fn usage(value: &Value) -> Option<Usage> {
    let count = |path| value.pointer(path).and_then(count);
    let (input, output) = (count("/prompt_tokens"), count("/completion_tokens"));
    input.or(output)?;
    let (input, output) = (input.unwrap_or(0), output.unwrap_or(0));
    let cached = ["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens", "/num_cached_tokens"];
    let reasoning = count("/completion_tokens_details/reasoning_tokens").unwrap_or(0);
    // xAI counts the reasoning beside the completion instead of within it.
    let with_reasoning = output.saturating_add(reasoning);
    let is_beside = count("/total_tokens") == Some(input.saturating_add(with_reasoning));
    Some(Usage {
        input_tokens: input,
        output_tokens: if is_beside { with_reasoning } else { output },
        cached_tokens: cached.into_iter().find_map(count).unwrap_or(0),
        reasoning_tokens: reasoning,
    })
}

/// A number of tokens, which some servers write with a fraction.
fn count(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_f64().filter(|number| *number >= 0.0).map(|number| number as u64))
}
