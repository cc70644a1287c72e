//! The written forms of tool calls and their results.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::looks::MISTRAL;
use super::mark::{Begins, Mark};
use crate::builtin;
use crate::tool_call::ToolCall;

/// The written form of a tool call. All forms are read; one is taught, and earlier calls are shown in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// `<tool_call><name>…</name><arguments>{…}</arguments></tool_call>`, over several lines.
    #[default]
    Xml,
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, the form of
    /// [Hermes](https://github.com/NousResearch/Hermes-Function-Calling) and
    /// [Qwen](https://qwen.readthedocs.io/en/latest/framework/function_call.html).
    Hermes,
    /// `<function=…>{…}</function>`, the form of
    /// [Llama 3.1](https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1/#user-defined-custom-tool-calling).
    Llama,
    /// `[TOOL_CALLS][{"name": …, "arguments": {…}}, …]`, the form of
    /// [Mistral](https://docs.mistral.ai/capabilities/function_calling/). Nothing may follow it.
    Mistral,
    /// A code fence with JSON, `{"name": …, "arguments": {…}}`.
    Fenced,
}

impl Dialect {
    /// Returns the calls as text. A call whose arguments are not JSON is shown as it was written. A call with neither
    /// name nor arguments is left out: its text stands elsewhere.
    #[must_use]
    pub fn render(self, calls: &[ToolCall]) -> String {
        let is_known = |call: &&ToolCall| !call.name.is_empty() || !call.arguments.is_empty();
        let one = |call: &ToolCall| match self {
            // Only its text is known.
            _ if call.name.is_empty() => format!("<tool_call>\n{}\n</tool_call>", call.arguments),
            Self::Xml => format!(
                "<tool_call>\n<name>{}</name>\n<arguments>{}</arguments>\n</tool_call>",
                with_entities(&call.name),
                call.arguments
            ),
            Self::Hermes => format!("<tool_call>\n{}\n</tool_call>", object(call)),
            Self::Llama => format!("<function={}>{}</function>", with_entities(&call.name), call.arguments),
            Self::Mistral => object(call),
            Self::Fenced => format!("```json\n{}\n```", object(call)),
        };
        let written: Vec<String> = calls.iter().filter(is_known).map(one).collect();
        match self {
            Self::Mistral if !written.is_empty() => format!("[TOOL_CALLS][{}]", written.join(", ")),
            _ => written.join("\n"),
        }
    }
}

fn object(call: &ToolCall) -> String {
    let arguments = match builtin::arguments(&call.arguments) {
        Ok(arguments) => Value::Object(arguments),
        Err(_) => Value::String(call.arguments.to_string()),
    };
    json!({"name": &*call.name, "arguments": arguments}).to_string()
}

fn with_entities(name: &str) -> String {
    name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The tag around the result of a call.
const FRAME: &str = "tool_result";

/// Appends the result of a call, as the model reads it, to `frames`. The text can neither close its frame nor open
/// another.
pub(super) fn frame(name: &str, text: &str, frames: &mut String) {
    if !frames.is_empty() {
        frames.push('\n');
    }
    let name = with_entities(name).replace('\'', "&apos;");
    // Writing to a String cannot fail.
    let _ = writeln!(frames, "<{FRAME} name='{name}'>");
    let mut rest = text;
    while let Some(place) = rest.find('<') {
        let (before, tag) = rest.split_at(place);
        frames.push_str(before);
        let word = tag[1..].strip_prefix('/').unwrap_or(&tag[1..]);
        let is_frame = word.get(..FRAME.len()).is_some_and(|word| word.eq_ignore_ascii_case(FRAME));
        frames.push_str(if is_frame { "&lt;" } else { "<" });
        rest = &tag[1..];
    }
    frames.push_str(rest);
    let _ = write!(frames, "\n</{FRAME}>");
}

/// Returns a text without the tags of tool calls, for an answer whose calls could not be read.
pub(super) fn without_tags(text: &str) -> String {
    const TAGS: [&str; 7] = ["name", "arguments", "parameters", "parameter", "args", "input", "tool_name"];
    let mut cleaned = String::new();
    let mut rest = text;
    while let Some(place) = rest.find(['<', '[']) {
        cleaned.push_str(&rest[..place]);
        rest = &rest[place..];
        let length = match Mark::read(rest, true) {
            Begins::Mark(mark) if mark.kind().is_some() || TAGS.contains(&mark.word()) => {
                mark.end.or_else(|| rest.find('>').map(|end| end + 1)).unwrap_or(rest.len())
            }
            _ if rest.starts_with(MISTRAL) => MISTRAL.len(),
            _ => 0,
        };
        if length == 0 {
            cleaned.push_str(&rest[..1]);
        }
        rest = &rest[length.max(1)..];
    }
    cleaned.push_str(rest);
    cleaned.trim().to_owned()
}
