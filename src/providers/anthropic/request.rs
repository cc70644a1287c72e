//! A [`Request`] as the [body](https://docs.anthropic.com/en/api/messages) of a message, written straight from what it
//! borrows.
//!
//! Nothing here asks a server.

use std::borrow::Cow;

use base64::Engine as _;
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::OPAQUE;
use crate::agent::{Effort, Reasoning};
use crate::context::{ChatMessage, Context};
use crate::message::{Attachment, AttachmentKind, AttachmentSource, Content};
use crate::provider::Request;
use crate::providers::body::{Fields, List, sound_json, with_attached};
use crate::providers::http::Expect;
use crate::tool::{ToolCall, ToolOutput, ToolSpec};

/// Writes the settings, the system prompt and the tools.
pub(super) fn fields(request: &Request, expect: Expect, fields: &mut Fields<'_>) -> serde_json::Result<()> {
    let Request { agent, context, tools, .. } = request;
    let budget = agent.reasoning.filter(|reasoning| reasoning.effort != Effort::None).map(budget);
    let limit = agent.max_output_tokens.unwrap_or(MAX_TOKENS.saturating_add(budget.unwrap_or(0)));
    let thinking = agent.reasoning.map(|_| match budget {
        // The budget is part of the limit.
        Some(budget) => Thinking::Enabled { budget_tokens: budget.min(limit.saturating_sub(1)) },
        None => Thinking::Disabled,
    });
    fields.set("model", Some(&agent.model).filter(|model| !model.is_empty()))?;
    fields.set("max_tokens", Some(limit))?;
    fields.set("system", Some(context.system()).filter(|system| !system.is_empty()))?;
    fields.set("tools", (!tools.is_empty()).then_some(Tools(tools)))?;
    fields.set("thinking", thinking)?;
    fields.set("temperature", agent.temperature.filter(|_| budget.is_none()))?;
    fields.set("stream", (expect == Expect::Events).then_some(true))
}

/// Writes the messages behind the first `encoded`. The results of one turn are one message.
pub(super) fn messages(context: &Context, encoded: usize, list: &mut List<'_>) -> serde_json::Result<()> {
    let mut results = Vec::new();
    for message in context.messages().skip(encoded) {
        if !results.is_empty() && !matches!(message, ChatMessage::Tool { .. }) {
            list.push(&Message { role: "user", content: Blocks::List(std::mem::take(&mut results)) })?;
        }
        match message {
            ChatMessage::User(content) => list.push(&Message { role: "user", content: Blocks::of(content)? })?,
            ChatMessage::Assistant { text, attachments, tool_calls, opaque, .. } => {
                let kept = opaque.as_ref().and_then(|opaque| opaque.get(OPAQUE)?.as_array());
                let content = match kept {
                    Some(kept) => again(kept, tool_calls)?,
                    None => said(with_attached(text.as_deref(), attachments), tool_calls)?,
                };
                // The API refuses a message without content.
                if !content.is_empty() {
                    list.push(&Message { role: "assistant", content: Blocks::List(content) })?;
                }
            }
            ChatMessage::Tool { id, output: ToolOutput { content, is_error }, .. } => {
                let content = Blocks::of(content)?;
                results.push(Block::ToolResult { tool_use_id: id, content, is_error: *is_error });
            }
        }
    }
    match results.is_empty() {
        true => Ok(()),
        false => list.push(&Message { role: "user", content: Blocks::List(results) }),
    }
}

/// The blocks of a reply that was plain, or another provider's.
fn said<'a>(text: Option<Cow<'a, str>>, calls: &'a [ToolCall]) -> serde_json::Result<Vec<Block<'a>>> {
    let text = text.filter(|text| !text.is_empty()).map(|text| Ok(Block::text(text)));
    text.into_iter().chain(calls.iter().map(Block::call)).collect()
}

/// The blocks that the server sent, as it sent them. Only the tool calls are written anew: their ids may have been
/// changed, because they were not unique.
fn again<'a>(kept: &'a [Value], calls: &'a [ToolCall]) -> serde_json::Result<Vec<Block<'a>>> {
    let mut calls = calls.iter();
    let block = |block: &'a Value| match block["type"].as_str() {
        Some("tool_use") => calls.next().map(Block::call),
        _ => Some(Ok(Block::Kept(block))),
    };
    kept.iter().filter_map(block).collect()
}

/// How many tokens an effort stands for.
fn budget(reasoning: Reasoning) -> u32 {
    reasoning.budget.unwrap_or(match reasoning.effort {
        Effort::None | Effort::Low => 1_024,
        Effort::Medium => 4_096,
        Effort::High => 16_384,
    })
}

/// The limit of tokens where the agent says none; the API has no default.
const MAX_TOKENS: u32 = 4_096;

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Thinking {
    Enabled { budget_tokens: u32 },
    Disabled,
}

struct Tools<'a>(&'a [ToolSpec]);

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|ToolSpec { name, description, parameters }| Tool {
            name,
            description,
            input_schema: parameters,
        }))
    }
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Value,
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
    fn of(content: &'a Content) -> serde_json::Result<Self> {
        if content.attachments.is_empty() {
            return Ok(Self::Text(&content.text));
        }
        let text = Some(&*content.text).filter(|text| !text.is_empty()).map(|text| Ok(Block::text(text)));
        content.attachments.iter().map(Block::attachment).chain(text).collect::<Result<_, _>>().map(Self::List)
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
        id: &'a str,
        name: &'a str,
        input: &'a RawValue,
    },
    ToolResult {
        tool_use_id: &'a str,
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
    Base64 { media_type: &'a str, data: &'a str },
    Text { media_type: &'static str, data: String },
    Url { url: &'a str },
}

impl<'a> Block<'a> {
    fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text { text: text.into() }
    }

    fn call(call: &'a ToolCall) -> serde_json::Result<Self> {
        let input = sound_json(&call.arguments)?;
        Ok(Self::ToolUse { id: &call.id, name: &call.name, input })
    }

    fn attachment(attachment: &'a Attachment) -> serde_json::Result<Self> {
        use AttachmentKind::*;
        use AttachmentSource::*;
        let source = match &attachment.source {
            Url { url } => Source::Url { url },
            Inline { media_type, base64 } if attachment.kind == Document && media_type.starts_with("text/") => {
                Source::Text { media_type: "text/plain", data: decoded(base64)? }
            }
            Inline { media_type, base64 } => Source::Base64 { media_type, data: base64 },
        };
        match (attachment.kind, source) {
            (Image, source) => Ok(Self::Image { source }),
            (Document, source) => Ok(Self::Document { source, title: attachment.name.as_deref() }),
            (Audio, Source::Url { url }) => Ok(Self::text(format!("Attached sound: {url}"))),
            (Audio, _) => Err(serde_json::Error::custom("the Messages API takes no sounds, and one is attached")),
        }
    }
}

fn decoded(base64: &str) -> serde_json::Result<String> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(base64).map_err(serde_json::Error::custom)?;
    String::from_utf8(bytes).map_err(serde_json::Error::custom)
}
