//! A [`Request`] as the [body](https://docs.anthropic.com/en/api/messages) of a message, written directly from borrowed
//! data.
//!
//! Nothing here sends a request.

use std::borrow::Cow;

use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{OPAQUE, PromptCaching};
use crate::agent::{Effort, Reasoning};
use crate::content::{Attachment, AttachmentKind, AttachmentSource, Content};
use crate::context::{ChatMessage, Context};
use crate::provider::Request;
use crate::providers::http::client::ResponseMode;
use crate::providers::http::encode::{self, MessageList, RequestFields, json_object_or_empty, with_attached};
use crate::providers::http::wire_format::CacheMark;
use crate::providers::models::{self, ClaudeThinking};
use crate::providers::offer::{self, OfferedTool, References};
use crate::tool_call::{ToolCall, ToolOutput, ToolSpec};

/// Writes the settings, the system prompt and the tools.
pub(super) fn fields(
    request: &Request,
    expect: ResponseMode,
    caching: PromptCaching,
    fields: &mut RequestFields<'_>,
) -> serde_json::Result<()> {
    let Request { agent, context, tools, .. } = request;
    let family = models::claude(&agent.model);
    let reasoning = agent.reasoning.filter(|reasoning| reasoning.effort != Effort::None);
    let takes_budget = |reasoning: &Reasoning| match family.thinking {
        ClaudeThinking::Budget => true,
        ClaudeThinking::EffortOrBudget => reasoning.budget.is_some(),
        ClaudeThinking::Effort | ClaudeThinking::EffortByDefault | ClaudeThinking::Always => false,
    };
    let budget = reasoning.filter(takes_budget).map(budget);
    let least = budget.map_or(0, |budget| budget.saturating_add(MIN_ANSWER));
    let limit = agent.max_output_tokens.unwrap_or(family.max_tokens.max(least));
    let is_off = agent.reasoning.is_some() && reasoning.is_none();
    let (thinking, effort) = match (reasoning, budget, family.thinking) {
        // The limit includes the budget.
        (_, Some(_), _) if limit <= MIN_BUDGET => return Err(too_few(limit)),
        (_, Some(budget), _) => (Some(Thinking::Enabled { budget_tokens: budget.min(limit - 1) }), None),
        (Some(Reasoning { effort, .. }), None, _) => (Some(Thinking::Adaptive { display: "summarized" }), Some(effort)),
        (None, None, ClaudeThinking::Budget | ClaudeThinking::EffortByDefault) if is_off => {
            (Some(Thinking::Disabled), None)
        }
        (None, None, ClaudeThinking::Always) if is_off => (None, Some(Effort::Low)),
        (None, None, _) => (None, None),
    };
    let has_temperature = family.has_temperature && reasoning.is_none();
    fields.set("model", Some(&agent.model).filter(|model| !model.is_empty()))?;
    fields.set("max_tokens", Some(limit))?;
    fields.set("system", Some(System { text: context.system(), caching }).filter(|system| !system.text.is_empty()))?;
    fields.set("tools", (!tools.is_empty()).then_some(Tools { tools, caching }))?;
    fields.set("thinking", thinking)?;
    fields.set("output_config", effort.map(|effort| OutputConfig { effort }))?;
    fields.set("temperature", agent.temperature.filter(|_| has_temperature))?;
    fields.set("stream", (expect == ResponseMode::EventStream).then_some(true))
}

/// Returns whether this request gets marks. If the agent sets marks of its own, there are no others: the API takes
/// four.
pub(super) fn caching(request: &Request, profile: PromptCaching) -> PromptCaching {
    fn has_mark(value: &Value) -> bool {
        match value {
            Value::Object(fields) => fields.iter().any(|(key, value)| key == CACHE_CONTROL || has_mark(value)),
            Value::Array(items) => items.iter().any(has_mark),
            _ => false,
        }
    }
    let extra = &request.agent.extra;
    let is_set = extra.contains_key(CACHE_CONTROL) || extra.values().any(has_mark);
    if is_set { PromptCaching::Off } else { profile }
}

/// The mark of the last message. Only a message of the user gets one: the last block of a reply may be a thought, which
/// [takes none](https://platform.claude.com/docs/en/build-with-claude/prompt-caching#what-cannot-be-cached).
pub(super) fn cache_mark(context: &Context, caching: PromptCaching) -> Option<CacheMark> {
    let is_of_user = !matches!(context.messages().next_back()?, ChatMessage::Assistant { .. });
    let mark = CacheMark { text: ",\"cache_control\":{\"type\":\"ephemeral\"}", end: "}]}" };
    (is_of_user && caching == PromptCaching::On).then_some(mark)
}

/// Writes the messages after the first `encoded`. The results of one turn are one message. With caching, each content
/// is a list of blocks, of which the last one may be marked.
pub(super) fn messages(
    context: &Context,
    encoded: usize,
    caching: PromptCaching,
    list: &mut MessageList<'_>,
) -> serde_json::Result<()> {
    let mut results = Vec::new();
    for message in context.messages().skip(encoded) {
        if !results.is_empty() && !matches!(message, ChatMessage::Tool { .. }) {
            list.push(&Message { role: "user", content: Blocks::List(std::mem::take(&mut results)) })?;
        }
        match message {
            ChatMessage::User(content) => {
                let content = match caching {
                    PromptCaching::On => Blocks::List(Blocks::of(content).into_list()),
                    PromptCaching::Off => Blocks::of(content),
                };
                list.push(&Message { role: "user", content })?;
            }
            ChatMessage::Assistant { text, attachments, tool_calls, opaque, .. } => {
                let kept = opaque.as_ref().and_then(|opaque| opaque.get(OPAQUE)?.as_array());
                let content = match kept {
                    Some(kept) => kept_blocks(kept, tool_calls)?,
                    None => assistant_blocks(with_attached(text.as_deref(), attachments), tool_calls)?,
                };
                // The API refuses a message without content.
                if !content.is_empty() {
                    list.push(&Message { role: "assistant", content: Blocks::List(content) })?;
                }
            }
            ChatMessage::Tool { id, output: ToolOutput { content, is_error }, .. } => {
                let content = Blocks::of(content);
                results.push(Block::ToolResult { tool_use_id: call_id(id), content, is_error: *is_error });
            }
        }
    }
    match results.is_empty() {
        true => Ok(()),
        false => list.push(&Message { role: "user", content: Blocks::List(results) }),
    }
}

/// The blocks of a reply without special blocks, or of another provider's reply.
fn assistant_blocks<'a>(text: Option<Cow<'a, str>>, calls: &'a [ToolCall]) -> serde_json::Result<Vec<Block<'a>>> {
    let text = text.filter(|text| !text.trim().is_empty()).map(|text| Ok(Block::text(text)));
    text.into_iter().chain(calls.iter().map(Block::call)).collect()
}

/// The blocks of a reply, as the server sent them. Only the tool calls are written from the context: their ids may have
/// been replaced, because they were not unique.
fn kept_blocks<'a>(kept: &'a [Value], calls: &'a [ToolCall]) -> serde_json::Result<Vec<Block<'a>>> {
    let mut calls = calls.iter();
    let block = |block: &'a Value| match block["type"].as_str() {
        Some("tool_use") => calls.next().map(Block::call),
        _ => Some(Ok(Block::Kept(block))),
    };
    kept.iter().filter_map(block).collect()
}

/// The budget that an effort stands for, in tokens; at least the smallest that the API accepts.
fn budget(reasoning: Reasoning) -> u32 {
    let tokens = reasoning.budget.unwrap_or(match reasoning.effort {
        Effort::None | Effort::Low => 1_024,
        Effort::Medium => 4_096,
        Effort::High => 16_384,
    });
    tokens.max(MIN_BUDGET)
}

fn too_few(limit: u32) -> serde_json::Error {
    serde_json::Error::custom(format_args!(
        "`max_output_tokens` is {limit}, and reasoning takes at least {MIN_BUDGET} of them; raise it or leave out `reasoning`"
    ))
}

/// The smallest [budget](https://platform.claude.com/docs/en/build-with-claude/extended-thinking) that the API accepts.
const MIN_BUDGET: u32 = 1_024;
/// The tokens that are left for the answer after a budget, if the agent has no limit.
const MIN_ANSWER: u32 = 4_096;

#[derive(Serialize)]
struct OutputConfig {
    effort: Effort,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Thinking {
    Enabled { budget_tokens: u32 },
    Adaptive { display: &'static str },
    Disabled,
}

/// A mark up to which the server caches.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CacheControl {
    Ephemeral,
}

impl CacheControl {
    fn of(caching: PromptCaching) -> Option<Self> {
        (caching == PromptCaching::On).then_some(Self::Ephemeral)
    }
}

const CACHE_CONTROL: &str = "cache_control";

struct System<'a> {
    text: &'a str,
    caching: PromptCaching,
}

impl Serialize for System<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(tag = "type", rename = "text")]
        struct Text<'a> {
            text: &'a str,
            cache_control: CacheControl,
        }
        match CacheControl::of(self.caching) {
            Some(cache_control) => [Text { text: self.text, cache_control }].serialize(serializer),
            None => serializer.serialize_str(self.text),
        }
    }
}

struct Tools<'a> {
    tools: &'a [ToolSpec],
    caching: PromptCaching,
}

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let last = self.tools.len() - 1;
        serializer.collect_seq(self.tools.iter().enumerate().map(|(nth, tool)| {
            let OfferedTool { name, description, parameters } = OfferedTool::new(tool, References::Kept);
            let cache_control = CacheControl::of(self.caching).filter(|_| nth == last);
            Tool { name, description, input_schema: parameters, cache_control }
        }))
    }
}

#[derive(Serialize)]
struct Tool<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    input_schema: Cow<'a, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Blocks<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Blocks<'a> {
    Text(&'a str),
    List(Vec<Block<'a>>),
}

impl<'a> Blocks<'a> {
    fn of(content: &'a Content) -> Self {
        if content.attachments.is_empty() {
            return Self::Text(encode::or_blank(&content.text));
        }
        let text = Some(&*content.text).filter(|text| !text.trim().is_empty()).map(Block::text);
        Self::List(content.attachments.iter().map(Block::attachment).chain(text).collect())
    }

    fn into_list(self) -> Vec<Block<'a>> {
        match self {
            Self::Text(text) => vec![Block::text(text)],
            Self::List(blocks) => blocks,
        }
    }
}

/// A content block.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: Cow<'a, str>,
    },
    Image {
        source: Source<'a>,
    },
    Document {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        input: &'a RawValue,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        content: Blocks<'a>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    #[serde(untagged)]
    Kept(&'a Value),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Source<'a> {
    Base64 { media_type: Cow<'a, str>, data: &'a str },
    Text { media_type: &'static str, data: String },
    Url { url: &'a str },
}

impl<'a> Block<'a> {
    fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text { text: text.into() }
    }

    fn call(call: &'a ToolCall) -> serde_json::Result<Self> {
        let input = json_object_or_empty(&call.arguments)?;
        Ok(Self::ToolUse { id: call_id(&call.id), name: offer::name(&call.name), input })
    }

    fn attachment(attachment: &'a Attachment) -> Self {
        use AttachmentKind::{Audio, Document, Image};
        let title = attachment.name.as_deref();
        let not_shown = |why| Self::text(encode::not_shown(attachment, why));
        let (media_type, data) = match &attachment.source {
            AttachmentSource::Inline { media_type, base64 } => (&**media_type, &**base64),
            AttachmentSource::Url { url } => {
                return match attachment.kind {
                    Image => Self::Image { source: Source::Url { url } },
                    Document => Self::Document { source: Source::Url { url }, title },
                    Audio => Self::text(format!("Attached sound: {url}")),
                };
            }
        };
        let source = Source::Base64 { media_type: encode::essence(media_type), data };
        match attachment.kind {
            Image => match encode::picture_problem(media_type, data) {
                None if data.len() > MAX_PICTURE_BYTES => not_shown("it is too large"),
                None => Self::Image { source },
                Some(flaw) => not_shown(flaw),
            },
            Audio => not_shown("the model takes no sounds"),
            Document => match (encode::text_of(media_type, data), encode::too_large(data)) {
                (Some(data), _) => Self::Document { source: Source::Text { media_type: "text/plain", data }, title },
                (None, None) if encode::essence(media_type) == "application/pdf" => Self::Document { source, title },
                (None, flaw) => not_shown(flaw.unwrap_or("the model takes text and PDF only")),
            },
        }
    }
}

/// The id of a tool call. The API [refuses](https://platform.claude.com/docs/en/api/messages) others than
/// `^[a-zA-Z0-9_-]+$`.
fn call_id(id: &str) -> Cow<'_, str> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    offer::call_id(id, !id.is_empty() && id.bytes().all(is_fine))
}

/// The most bytes of an [image](https://platform.claude.com/docs/en/build-with-claude/vision) in base64.
const MAX_PICTURE_BYTES: usize = 5 << 20;
