//! Estimates of the tokens of a request before it is sent.

use std::sync::Arc;

use crate::content::{Attachment, AttachmentSource, Content};
use crate::context::ChatMessage;
use crate::provider::Request;
use crate::reply::Usage;
use crate::tool_call::ToolSpec;

/// What the replies so far say about the tokens of the next ones.
#[derive(Default)]
pub(super) struct Estimates {
    /// The largest output of a reply.
    largest_output: Option<u64>,
    /// The highest ratio of input tokens to bytes, up to one token for each.
    tokens_per_byte: Option<f64>,
    /// The most input tokens beyond one for each byte, which a server added: results of its own tools, for example.
    added: u64,
    /// The size of the tools that were offered last.
    tools: Option<(Arc<[ToolSpec]>, u64)>,
}

/// The estimate of one request, and the most that it may use. Only input and output tokens are set.
pub(super) struct Estimate {
    pub(super) likely: Usage,
    pub(super) most: Usage,
    /// The size of the input without attachments.
    bytes: u64,
}

/// The output that is expected before any reply was seen.
const FIRST_OUTPUT: u64 = 1_024;
/// The tokens of one byte of input before any reply was seen: about three bytes of English or JSON are a token.
const FIRST_TOKENS_PER_BYTE: f64 = 1.0 / 3.0;
/// An output without a limit may be this many times as long as expected.
const MAX_OUTPUT_RATIO: u64 = 8;
/// The tokens of an image, which vendors scale to a size of about this.
const ATTACHMENT: u64 = 1_600;
/// The bytes of base64 for a token of a document or a sound.
const ENCODED_BYTES_PER_TOKEN: u64 = 64;
/// The tokens that a vendor may add to a request with tools.
const ADDED: u64 = 1_000;

impl Estimates {
    pub(super) fn of(&mut self, request: &Request) -> Estimate {
        let bytes = self.bytes_of_tools(&request.tools)
            + text(request.context.system())
            + request.context.messages().map(bytes_of).sum::<u64>();
        let attached: u64 = request.context.messages().flat_map(attachments).map(tokens_of).sum();
        let allowed = request.agent.max_output_tokens.map_or(u64::MAX, u64::from);
        let output = self.largest_output.unwrap_or(FIRST_OUTPUT);
        let input = (bytes as f64 * self.tokens_per_byte.unwrap_or(FIRST_TOKENS_PER_BYTE)) as u64;
        let usage = |input_tokens, output_tokens| Usage { input_tokens, output_tokens, ..Usage::default() };
        Estimate {
            likely: usage(self.added.saturating_add(input + attached), output.min(allowed)),
            most: usage(
                self.added.saturating_add(bytes + 4 * attached + ADDED),
                output.saturating_mul(MAX_OUTPUT_RATIO).min(allowed),
            ),
            bytes: if attached == 0 { bytes } else { 0 },
        }
    }

    /// Learns from the usage of a request that was estimated.
    pub(super) fn learn(&mut self, estimate: &Estimate, used: Usage) {
        self.largest_output = self.largest_output.max(Some(used.output_tokens));
        if estimate.bytes > 0 && used.input_tokens > 0 {
            self.added = self.added.max(used.input_tokens.saturating_sub(estimate.bytes));
            let ratio = (used.input_tokens as f64 / estimate.bytes as f64).min(1.0);
            self.tokens_per_byte = Some(self.tokens_per_byte.map_or(ratio, |highest| highest.max(ratio)));
        }
    }

    fn bytes_of_tools(&mut self, tools: &Arc<[ToolSpec]>) -> u64 {
        match &self.tools {
            Some((known, bytes)) if Arc::ptr_eq(known, tools) => *bytes,
            _ => {
                let bytes = serde_json::to_vec(&**tools).map_or(0, |json| json.len() as u64);
                self.tools = Some((Arc::clone(tools), bytes));
                bytes
            }
        }
    }
}

fn text(text: &str) -> u64 {
    text.len() as u64
}

fn bytes_of(message: &ChatMessage) -> u64 {
    match message {
        ChatMessage::User(content) => text(&content.text),
        ChatMessage::Assistant { text: said, reasoning, tool_calls, .. } => {
            let calls = tool_calls.iter().map(|call| text(&call.id) + text(&call.name) + text(&call.arguments));
            said.as_deref().map_or(0, text) + reasoning.as_deref().map_or(0, text) + calls.sum::<u64>()
        }
        ChatMessage::Tool { id, name, output } => text(id) + text(name) + text(&output.content.text),
    }
}

fn attachments(message: &ChatMessage) -> &[Attachment] {
    match message {
        ChatMessage::User(Content { attachments, .. }) | ChatMessage::Assistant { attachments, .. } => attachments,
        ChatMessage::Tool { output, .. } => &output.content.attachments,
    }
}

fn tokens_of(attachment: &Attachment) -> u64 {
    match &attachment.source {
        AttachmentSource::Inline { media_type, base64 } if !media_type.starts_with("image/") => {
            ATTACHMENT.max(text(base64) / ENCODED_BYTES_PER_TOKEN)
        }
        AttachmentSource::Inline { .. } | AttachmentSource::Url { .. } => ATTACHMENT,
    }
}
