//! The decoder of responses: a complete one, or the events of a stream.
//!
//! A response is a list of items. In a stream each item is added, grows and is completed; the complete response comes
//! last. Servers omit some of these events. Each piece is passed on when it first arrives, and only once. Nothing here
//! sends a request or repairs the model's output.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::OPAQUE;
use crate::content::{Attachment, AttachmentKind};
use crate::providers::http::error_body::ErrorBody;
use crate::providers::http::reply_builder::{PartialCall, ReplyBuilder};
use crate::providers::http::sse::Event;
use crate::providers::http::wire_format::{self, DecodeError, Decoded, Str, Tokens, lenient};
use crate::reply::{StopReason, Usage};

/// A [response](https://platform.openai.com/docs/api-reference/responses/object), or an error in place of it.
#[derive(Debug, Default, Deserialize)]
struct Response {
    output: Option<Vec<Value>>,
    status: Option<String>,
    incomplete_details: Option<Incomplete>,
    usage: Option<TokenCounts>,
    #[serde(default, deserialize_with = "lenient")]
    id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    model: Option<String>,
    error: Option<Value>,
    // Some servers send an error without a wrapper.
    message: Option<Value>,
    code: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Incomplete {
    reason: Option<String>,
}

/// One [event](https://platform.openai.com/docs/api-reference/responses-streaming) of a stream, of any type.
#[derive(Debug, Deserialize)]
struct Piece<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Str<'a>>,
    #[serde(borrow)]
    item_id: Option<Str<'a>>,
    output_index: Option<u64>,
    content_index: Option<u64>,
    summary_index: Option<u64>,
    #[serde(borrow)]
    delta: Option<Text<'a>>,
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    refusal: Option<Text<'a>>,
    #[serde(borrow)]
    arguments: Option<Text<'a>>,
    item: Option<Value>,
    response: Option<Response>,
    error: Option<Value>,
    message: Option<Value>,
    code: Option<Value>,
    status: Option<Value>,
}

/// A text. Events that are ignored here may have another value in its place.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Text<'a> {
    Plain(#[serde(borrow)] Str<'a>),
    Other(Value),
}

/// [Usage](https://platform.openai.com/docs/api-reference/responses/object#responses-object-usage).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TokenCounts {
    input_tokens: Tokens,
    output_tokens: Tokens,
    #[serde(deserialize_with = "lenient")]
    input_tokens_details: Option<InputDetails>,
    #[serde(deserialize_with = "lenient")]
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Tokens,
    // https://learn.microsoft.com/javascript/api/@azure/ai-projects/responseusageinputtokensdetails
    cache_write_tokens: Tokens,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    reasoning_tokens: Tokens,
}

/// The decoder of one response.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The items of the output, in order.
    items: Vec<Item>,
}

/// The part of an item that has arrived.
#[derive(Debug)]
struct Item {
    id: Option<String>,
    /// Its index in the output, as the server counts.
    index: u64,
    /// Its index among the builder's tool calls, if it is one.
    call: Option<usize>,
    /// The text of each of its parts that was passed on.
    told: Vec<(Part, String)>,
    /// The complete item, once it is done.
    whole: Option<Value>,
}

/// A part of an item, by its index among the parts of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Text(u64),
    Refusal(u64),
    Summary(u64),
    Thought(u64),
}

impl wire_format::Decoder for Decoder {
    fn whole(&mut self, body: &[u8], builder: &mut ReplyBuilder<'_, '_>) -> Result<(), DecodeError> {
        self.finish(serde_json::from_slice(body)?, builder)
    }

    fn event(&mut self, event: Event<'_>, builder: &mut ReplyBuilder<'_, '_>) -> Result<Decoded, DecodeError> {
        match event.data.trim() {
            // Some servers end the stream as in Chat Completions; that end says nothing about the reply.
            "" | "[DONE]" => Ok(Decoded::More),
            data => self.take(serde_json::from_str(data)?, event.name, builder),
        }
    }

    fn opaque(self) -> Option<Value> {
        let items: Vec<_> = self.items.into_iter().map(|item| item.whole).collect::<Option<_>>()?;
        let keep = !items.iter().all(is_plain);
        keep.then(|| json!({ OPAQUE: items.into_iter().map(as_input).collect::<Vec<_>>() }))
    }
}

impl Decoder {
    /// Reads one event. Its type is in the data, or else the event's `name`.
    fn take(
        &mut self,
        mut piece: Piece<'_>,
        name: &str,
        builder: &mut ReplyBuilder<'_, '_>,
    ) -> Result<Decoded, DecodeError> {
        let kind = piece.kind.take();
        let kind = kind.as_deref().unwrap_or(name);
        if kind == "error" || piece.error.is_some() {
            return Err(DecodeError::Reported(piece.failure()));
        }
        let content = piece.content_index.unwrap_or(0);
        let summary = piece.summary_index.unwrap_or(0);
        match kind {
            "response.output_item.added" => self.add(piece, builder),
            "response.output_item.done" => self.done(piece, builder),
            "response.output_text.delta" => self.grow(Part::Text(content), &piece, builder),
            "response.refusal.delta" => self.grow(Part::Refusal(content), &piece, builder),
            "response.reasoning_summary_text.delta" => self.grow(Part::Summary(summary), &piece, builder),
            "response.reasoning_text.delta" => self.grow(Part::Thought(content), &piece, builder),
            "response.function_call_arguments.delta" => self.argue(&piece, builder),
            "response.output_text.done" => self.complete(Part::Text(content), &piece, builder),
            "response.refusal.done" => self.complete(Part::Refusal(content), &piece, builder),
            "response.reasoning_summary_text.done" => self.complete(Part::Summary(summary), &piece, builder),
            "response.reasoning_text.done" => self.complete(Part::Thought(content), &piece, builder),
            "response.function_call_arguments.done" => self.argue_all(&piece, builder),
            "response.completed" | "response.incomplete" | "response.failed" => {
                let mut response = piece.response.unwrap_or_default();
                response.status.get_or_insert_with(|| kind.trim_start_matches("response.").to_owned());
                self.finish(response, builder)?;
                builder.set_complete();
                return Ok(Decoded::Last);
            }
            // So that they are known even if the stream breaks off.
            "response.created" => {
                let Response { id, model, .. } = piece.response.unwrap_or_default();
                builder.identify(id.as_deref(), model.as_deref());
            }
            // Other events contain the same information in a better form.
            _ if kind.starts_with("response.") => {}
            _ => return Ok(Decoded::Unknown),
        }
        Ok(Decoded::More)
    }

    /// Reads the complete response and adds what the events before it did not contain.
    fn finish(&mut self, response: Response, builder: &mut ReplyBuilder<'_, '_>) -> Result<(), DecodeError> {
        builder.identify(response.id.as_deref(), response.model.as_deref());
        if let Some(usage) = response.usage.and_then(Option::<Usage>::from) {
            builder.set_usage(usage);
        }
        if response.output.is_some() {
            builder.begin();
        }
        for (index, item) in (0..).zip(response.output.into_iter().flatten()) {
            let place = match self.find(id(&item), Some(index)) {
                Some(place) if self.items[place].whole.is_some() => continue,
                Some(place) => place,
                None => self.insert(usize::try_from(index).unwrap_or(usize::MAX), Item::new(id(&item), index)),
            };
            self.items[place].take(item, builder);
        }
        let status = response.status.as_deref();
        if matches!(status, Some("failed" | "cancelled")) || response.error.is_some() || response.message.is_some() {
            let said = match response.error {
                Some(error) => json!({ "error": error }),
                None if response.message.is_some() => json!({ "message": response.message, "code": response.code }),
                None => json!({ "message": format!("the response is {}", status.unwrap_or_default()) }),
            };
            return Err(DecodeError::Reported(ErrorBody::reported(&said)));
        }
        let reason = response.incomplete_details.and_then(|details| details.reason);
        if let Some(reason) = status.map(|status| stop_reason(status, reason.as_deref())) {
            builder.set_stop_reason(reason);
        }
        Ok(())
    }

    /// Reads the start of an item.
    fn add(&mut self, piece: Piece<'_>, builder: &mut ReplyBuilder<'_, '_>) {
        builder.begin();
        let item = piece.item.unwrap_or_default();
        let place = self.open(id(&item), piece.output_index);
        if kind(&item) == "function_call" {
            // Some servers send the arguments here already, and then once more.
            self.items[place].call = Some(builder.add_call(call(&item, String::new())));
        }
    }

    /// Reads a completed item.
    fn done(&mut self, piece: Piece<'_>, builder: &mut ReplyBuilder<'_, '_>) {
        builder.begin();
        let item = piece.item.unwrap_or_default();
        let place = self.find(id(&item), piece.output_index).filter(|place| self.items[*place].whole.is_none());
        let place = place.unwrap_or_else(|| self.open(id(&item), piece.output_index));
        self.items[place].take(item, builder);
    }

    /// Reads more of a part.
    fn grow(&mut self, part: Part, piece: &Piece<'_>, builder: &mut ReplyBuilder<'_, '_>) {
        self.item(piece).grow(part, text(&piece.delta), builder);
    }

    /// Reads a completed part.
    fn complete(&mut self, part: Part, piece: &Piece<'_>, builder: &mut ReplyBuilder<'_, '_>) {
        let all = if matches!(part, Part::Refusal(_)) { &piece.refusal } else { &piece.text };
        self.item(piece).complete(part, text(all), builder);
    }

    /// Reads more of the arguments of a call. Those of an unknown call are repeated in its completed item.
    fn argue(&self, piece: &Piece<'_>, builder: &mut ReplyBuilder<'_, '_>) {
        if let Some(call) = self.call_of(piece) {
            builder.push_arguments(call, text(&piece.delta));
        }
    }

    /// Reads the completed arguments of a call.
    fn argue_all(&self, piece: &Piece<'_>, builder: &mut ReplyBuilder<'_, '_>) {
        if let Some(call) = self.call_of(piece) {
            match &piece.arguments {
                Some(Text::Plain(all)) => set_arguments(call, all, builder),
                Some(Text::Other(object)) => set_arguments(call, &arguments(object), builder),
                None => {}
            }
        }
    }

    /// The item that an event refers to; a new one if it is unknown.
    fn item(&mut self, piece: &Piece<'_>) -> &mut Item {
        let id = piece.item_id.as_deref();
        let place = self.find(id, piece.output_index).unwrap_or_else(|| self.open(id, piece.output_index));
        &mut self.items[place]
    }

    /// The tool call that an event refers to.
    fn call_of(&self, piece: &Piece<'_>) -> Option<usize> {
        self.items[self.find(piece.item_id.as_deref(), piece.output_index)?].call
    }

    /// The index of an item: by its id, or else by the server's index, because some servers give every event another
    /// id. An event with neither refers to the last item.
    fn find(&self, id: Option<&str>, index: Option<u64>) -> Option<usize> {
        let with_id = |id| self.items.iter().rposition(|item| item.id.as_deref() == Some(id));
        let with_index = |index| self.items.iter().rposition(|item| item.index == index);
        match (id, index) {
            (None, None) => self.items.len().checked_sub(1),
            _ => id.and_then(with_id).or_else(|| index.and_then(with_index)),
        }
    }

    /// Adds an item.
    fn open(&mut self, id: Option<&str>, index: Option<u64>) -> usize {
        let place = self.items.len();
        self.insert(place, Item::new(id, index.unwrap_or(place as u64)))
    }

    fn insert(&mut self, place: usize, item: Item) -> usize {
        let place = place.min(self.items.len());
        self.items.insert(place, item);
        place
    }
}

impl Item {
    fn new(id: Option<&str>, index: u64) -> Self {
        Self { id: id.map(str::to_owned), index, call: None, told: Vec::new(), whole: None }
    }

    /// Adds more of a part.
    fn grow(&mut self, part: Part, piece: &str, builder: &mut ReplyBuilder<'_, '_>) {
        match self.told.iter_mut().find(|(told, _)| *told == part) {
            Some((_, text)) => text.push_str(piece),
            None => self.told.push((part, piece.to_owned())),
        }
        match part {
            Part::Text(_) => builder.push_text(piece),
            Part::Refusal(_) => builder.push_refusal(piece),
            Part::Summary(_) | Part::Thought(_) => builder.push_reasoning(piece),
        }
    }

    /// Completes a part: adds the rest of its text, unless the text differs from the part that was passed on.
    fn complete(&mut self, part: Part, text: &str, builder: &mut ReplyBuilder<'_, '_>) {
        let told = self.told.iter().find(|(told, _)| *told == part).map_or("", |(_, text)| text);
        if let Some(rest) = text.strip_prefix(told).filter(|rest| !rest.is_empty()) {
            self.grow(part, rest, builder);
        }
    }

    /// The only part so far, if it is text. In some servers, the part of a stream has another index than in the
    /// completed item.
    fn only_text(&self) -> Option<Part> {
        match self.told[..] {
            [(part @ Part::Text(_), _)] => Some(part),
            _ => None,
        }
    }

    /// Reads the complete item.
    fn take(&mut self, item: Value, builder: &mut ReplyBuilder<'_, '_>) {
        match kind(&item) {
            "message" => {
                let only = self.only_text().filter(|_| parts(&item["content"]).count() == 1);
                for (nth, part) in parts(&item["content"]) {
                    self.complete(only.unwrap_or(Part::Text(nth)), string(&part["text"]), builder);
                    self.complete(Part::Refusal(nth), string(&part["refusal"]), builder);
                }
            }
            "reasoning" => {
                parts(&item["summary"])
                    .for_each(|(nth, part)| self.complete(Part::Summary(nth), string(&part["text"]), builder));
                parts(&item["content"])
                    .for_each(|(nth, part)| self.complete(Part::Thought(nth), string(&part["text"]), builder));
            }
            "function_call" => self.take_call(&item, builder),
            "image_generation_call" => {
                if let Some(base64) = item["result"].as_str() {
                    let media_type = format!("image/{}", item["output_format"].as_str().unwrap_or("png"));
                    builder.add_attachment(Attachment::encoded(AttachmentKind::Image, &media_type, base64));
                }
            }
            // Items of built-in tools concern only the server.
            _ => {}
        }
        self.whole = Some(item);
    }

    fn take_call(&mut self, item: &Value, builder: &mut ReplyBuilder<'_, '_>) {
        let all = call(item, arguments(&item["arguments"]));
        let Some(place) = self.call else {
            self.call = Some(builder.add_call(all));
            return;
        };
        set_arguments(place, &all.arguments, builder);
        if let Some(call) = builder.calls().get_mut(place) {
            (call.id, call.name) = (all.id, all.name);
        }
    }
}

impl Piece<'_> {
    /// The error that an event reports. In the reference its fields are at the top level; some servers wrap them.
    fn failure(self) -> ErrorBody {
        let mut failure = match self.error {
            Some(error) => ErrorBody::reported(&json!({ "error": error })),
            None => ErrorBody::reported(&json!({ "message": self.message, "code": self.code })),
        };
        let status = self.status.and_then(|status| u16::try_from(status.as_u64()?).ok());
        failure.status = failure.status.or(status);
        failure
    }
}

/// Sets the complete arguments of a call, of which a part may have arrived before.
fn set_arguments(place: usize, all: &str, builder: &mut ReplyBuilder<'_, '_>) {
    let Some(call) = builder.calls().get_mut(place) else { return };
    match all.strip_prefix(call.arguments.as_str()) {
        Some(rest) => builder.push_arguments(place, rest),
        None if all.is_empty() => {}
        None => all.clone_into(&mut call.arguments),
    }
}

fn call(item: &Value, arguments: String) -> PartialCall {
    PartialCall { id: string(&item["call_id"]).to_owned(), name: string(&item["name"]).to_owned(), arguments }
}

/// The arguments as JSON text; some servers send the object itself.
fn arguments(written: &Value) -> String {
    match written {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        object => object.to_string(),
    }
}

/// Returns whether an item contains no more than the text and the tool calls of a reply.
fn is_plain(item: &Value) -> bool {
    match kind(item) {
        "message" => item["phase"].is_null(),
        "function_call" => item["namespace"].is_null() && item["caller"].is_null(),
        _ => false,
    }
}

/// An output item in the form that the server accepts as input: without the fields that it
/// [refuses](https://github.com/openai/openai-python/pull/3053) there, and without those that have no use.
fn as_input(mut item: Value) -> Value {
    let kind = kind(&item).to_owned();
    let Value::Object(fields) = &mut item else { return item };
    match kind.as_str() {
        "reasoning" => {
            let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
            fields.retain(|key, value| !(value.is_null() || key == "status" || key == "content" && is_empty(value)));
        }
        "message" => {
            fields.retain(|_, value| !value.is_null());
            let parts = fields.get_mut("content").and_then(Value::as_array_mut).into_iter().flatten();
            for part in parts.filter_map(Value::as_object_mut).filter(|part| part.contains_key("text")) {
                part.insert("logprobs".to_owned(), json!([]));
                part.entry("annotations").or_insert_with(|| json!([]));
            }
        }
        "function_call" => fields.retain(|_, value| !value.is_null()),
        "image_generation_call" => fields.retain(|key, _| ["type", "id", "status", "result"].contains(&key.as_str())),
        _ => {}
    }
    item
}

fn kind(item: &Value) -> &str {
    string(&item["type"])
}

/// The id by which events refer to an item.
fn id(item: &Value) -> Option<&str> {
    item["id"].as_str().or(item["call_id"].as_str())
}

fn parts(list: &Value) -> impl Iterator<Item = (u64, &Value)> {
    (0..).zip(list.as_array().into_iter().flatten())
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn text<'a>(text: &'a Option<Text<'_>>) -> &'a str {
    match text {
        Some(Text::Plain(text)) => text,
        Some(Text::Other(_)) | None => "",
    }
}

fn stop_reason(status: &str, reason: Option<&str>) -> StopReason {
    match (status, reason) {
        ("completed", _) => StopReason::Stop,
        ("incomplete", Some("max_output_tokens")) => StopReason::Length,
        ("incomplete", Some("content_filter")) => StopReason::ContentFilter,
        (status, reason) => StopReason::Other(Arc::from(reason.unwrap_or(status))),
    }
}

impl From<TokenCounts> for Option<Usage> {
    fn from(counts: TokenCounts) -> Self {
        counts.input_tokens.0.or(counts.output_tokens.0)?;
        let details = counts.input_tokens_details.unwrap_or_default();
        Some(Usage {
            input_tokens: counts.input_tokens.count(),
            output_tokens: counts.output_tokens.count(),
            cached_tokens: details.cached_tokens.count(),
            cache_write_tokens: details.cache_write_tokens.count(),
            reasoning_tokens: counts.output_tokens_details.unwrap_or_default().reasoning_tokens.count(),
        })
    }
}
