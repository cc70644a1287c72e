//! The tags that models put around calls, thoughts and turns, in all their spellings. Plain functions.
//!
//! `<tool_call>`, `<TOOL_CALL>`, `</think>`, `<|tool_call_begin|>`, `<｜tool▁call▁begin｜>`, `<｜DSML｜invoke name="f">`
//! and `<seed:think>` are read as one word each: in lower case, joined by `_`, and without the part before a `:` or a
//! bar.

use super::looks::MAX_HEAD;

/// A tag at the beginning of a text.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    /// `true` if it begins with `</`.
    pub(super) is_closing: bool,
    /// `true` if a bar stands before its word; and the same behind it.
    bars: (bool, bool),
    word: [u8; MAX_WORD],
    length: usize,
    /// The position where its word ends in the text.
    pub(super) named: usize,
    /// The position where the tag ends; `None` if its word is followed by `=`.
    pub(super) end: Option<usize>,
}

/// The beginning of a text, as far as it has arrived.
pub(super) enum Begins {
    Mark(Mark),
    Text,
    Incomplete,
}

/// The kind of a tag.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TagKind {
    /// The taught tag.
    Call,
    /// `<function=…>`
    Function,
    /// One call or several, in any form.
    Block,
    /// One call or several, or something around tags of calls.
    Wrapper,
    /// A tag of calls whose content has no known form.
    Unread,
    /// The tag that Llama writes before code, and before calls as well.
    Python,
    /// An end, or a separator between the parts of a call.
    Stray,
    /// A separator between turns, which is not shown.
    Turn,
    Reasoning,
    ReasoningEnd,
    Result,
    /// The head of a message of GPT-OSS, or a channel of Gemma.
    Channel,
}

const MAX_WORD: usize = 32;
/// The longest word, with the part before it, in bytes of the text.
const MAX_SPELLING: usize = 64;

const REASONING: [&str; 15] = [
    "think",
    "thinking",
    "reasoning",
    "thought",
    "thoughts",
    "scratchpad",
    "analysis",
    "reflection",
    "inner_monologue",
    "inner_thoughts",
    "inner_thought",
    "internal_monologue",
    "internal_thoughts",
    "thought_process",
    "chain_of_thought",
];
/// The words of elements that hold the words of others, or examples.
const ELEMENTS: [&str; ELEMENT_COUNT] = [
    "tool_result",
    "tool_response",
    "tool_results",
    "function_results",
    "tool_output",
    "function_result",
    "search_results",
    "observation",
    "result",
    "output",
    "example",
    "examples",
    "blockquote",
    "quote",
    "pre",
    "code",
    "details",
    "textarea",
    "email",
    "document",
    "user_message",
    "untrusted",
];
pub(super) const ELEMENT_COUNT: usize = 22;
/// The parts that may stand before a `:` or a bar, in front of a word.
const NAMESPACES: [&str; 11] =
    ["dsml", "seed", "antml", "minimax", "longcat", "steptml", "xai", "mm", "qwen", "glm", "hunyuan"];
/// The words of tags within calls.
const PARTS: [&str; 4] = ["parameter", "arg_key", "arg_value", "escape"];
/// The words of opening tags, by kind.
const OPENING: [(TagKind, &[&str]); 11] = [
    (TagKind::Call, &["tool_call"]),
    (TagKind::Function, &["function"]),
    (
        TagKind::Block,
        &[
            "tool_call_begin",
            "tool_call_start",
            "start_function_call",
            "invoke",
            "use_mcp_tool",
            "toolcall",
            "functioncall",
            "start_action",
            "action_start",
            "tool_use",
        ],
    ),
    (
        TagKind::Wrapper,
        &[
            "tool_calls",
            "function_calls",
            "function_call",
            "tools",
            "toolcalls",
            "tool_calls_begin",
            "tool_calls_section_begin",
        ],
    ),
    (TagKind::Unread, &["tool_code", "call_tool", "execute_tool"]),
    (TagKind::Python, &["python_tag", "python_start"]),
    (
        TagKind::Stray,
        &[
            "tool_call_end",
            "tool_calls_end",
            "tool_calls_section_end",
            "end_action",
            "action_end",
            "end_function_call",
            "plugin",
            "tool_sep",
            "python_end",
            "tool_call_argument_begin",
        ],
    ),
    (
        TagKind::Turn,
        &[
            "im_end",
            "eot",
            "eot_id",
            "eom_id",
            "eom",
            "end_of_turn_token",
            "endoftext",
            "end_of_text",
            "end_of_turn",
            "eos",
            "end_of_sentence",
            "eop",
            "start_response",
            "end_response",
            "start_text",
            "end_text",
            "begin_of_solution",
            "end_of_solution",
            "begin_of_text",
            "begin_of_sentence",
        ],
    ),
    (TagKind::Reasoning, &["start_thinking", "begin_of_thought", "unused94"]),
    (TagKind::ReasoningEnd, &["end_thinking", "end_of_thought", "unused95"]),
    (TagKind::Result, &["tool_result", "tool_response", "tool_results", "function_results", "tool_output"]),
];
/// The words of tags that are known only with bars around them.
const BARRED: [(TagKind, &[&str]); 2] = [
    (TagKind::Channel, &["channel", "start"]),
    (TagKind::Turn, &["end", "return", "call", "observation", "user", "message"]),
];

/// Returns whether `<` and this byte may begin a tag or a comment.
pub(super) fn may_be_a_tag(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'/' | b'|' | b'!' | 0xEF)
}

impl Mark {
    /// Reads the tag at the beginning of a text. The text begins with `<`.
    pub(super) fn read(text: &str, is_whole: bool) -> Begins {
        // Most text that looks like a tag is not one, and its second byte shows it.
        match text.as_bytes().get(1) {
            Some(byte) if !may_be_a_tag(*byte) => return Begins::Text,
            _ => {}
        }
        let mut mark =
            Self { is_closing: false, bars: (false, false), word: [0; MAX_WORD], length: 0, named: 1, end: None };
        let Some(mut rest) = text.strip_prefix('<') else { return Begins::Text };
        for _ in 0..2 {
            if let Some(behind) = rest.strip_prefix('/') {
                (mark.is_closing, rest) = (true, behind);
            } else if let Some(behind) = rest.strip_prefix(['|', '｜']) {
                (mark.bars.0, rest) = (true, behind);
            }
        }
        rest = match mark.read_word(text, rest, is_whole) {
            Ok(behind) => behind,
            Err(begins) => return begins,
        };
        mark.named = text.len() - rest.len();
        if let Some(behind) = rest.strip_prefix(['|', '｜']) {
            (mark.bars.1, rest) = (true, behind);
        }
        match ending(rest, is_whole) {
            Ok(length) => {
                mark.end = length.map(|length| text.len() - rest.len() + length);
                Begins::Mark(mark)
            }
            Err(begins) => begins,
        }
    }

    /// Reads the word at the beginning of `rest`, which is the rest of `text`. Returns the text behind the word.
    ///
    /// # Errors
    ///
    /// What the text begins with instead: no tag, or not yet a whole word.
    fn read_word<'a>(&mut self, text: &str, mut rest: &'a str, is_whole: bool) -> Result<&'a str, Begins> {
        let unclear = if is_whole { Begins::Text } else { Begins::Incomplete };
        loop {
            let mut chars = rest.chars();
            if text.len() - rest.len() > MAX_SPELLING {
                return Err(Begins::Text);
            }
            match chars.next() {
                None => return Err(unclear),
                Some(c) if c.is_ascii_alphanumeric() || c == '_' => self.push(c as u8),
                Some('-' | '.' | '▁') => self.push(b'_'),
                Some('\\') if chars.as_str().is_empty() => return Err(unclear),
                Some('\\') if chars.as_str().starts_with('_') => {}
                Some(':') if self.is_namespace() => self.length = 0,
                Some('｜') if self.is_namespace() && chars.as_str().starts_with(|c: char| c.is_ascii_alphabetic()) => {
                    self.length = 0;
                }
                Some('|' | '｜') if chars.as_str().is_empty() => return Err(unclear),
                Some(_) => break,
            }
            rest = chars.as_str();
        }
        const LONGCAT: &[u8] = b"longcat_";
        if self.word.starts_with(LONGCAT) && self.length <= MAX_WORD {
            self.word.copy_within(LONGCAT.len().., 0);
            self.length -= LONGCAT.len();
        }
        if self.length == 0 || self.length > MAX_WORD { Err(Begins::Text) } else { Ok(rest) }
    }

    fn is_namespace(&self) -> bool {
        self.length <= MAX_WORD && NAMESPACES.contains(&self.word())
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.word.get_mut(self.length) {
            *place = byte.to_ascii_lowercase();
        }
        self.length = self.length.saturating_add(1);
    }

    pub(super) fn word(&self) -> &str {
        std::str::from_utf8(&self.word[..self.length.min(MAX_WORD)]).unwrap_or_default()
    }

    /// Returns whether it closes a tag of the word `opening`: `</f>`, `<f|>` as Gemma writes it, or the tag of an end.
    pub(super) fn closes(&self, opening: &str) -> bool {
        let word = self.word();
        match opening {
            "tool_call_begin" | "tool_call_start" => {
                matches!(word, "tool_call_end" | "tool_calls_section_end" | "tool_calls_end")
            }
            "start_function_call" => word == "end_function_call",
            "start_action" => word == "end_action",
            "action_start" => word == "action_end",
            "start_thinking" => word == "end_thinking",
            "begin_of_thought" => word == "end_of_thought",
            "unused94" => word == "unused95",
            _ => word == opening && self.is_end(),
        }
    }

    /// Returns whether it is an end: `</f>`, or `<f|>` as Gemma writes it.
    pub(super) fn is_end(&self) -> bool {
        self.is_closing || !self.bars.0 && self.bars.1
    }

    /// Returns the index of the element that it opens or closes, if that element holds the words of others, or
    /// examples.
    pub(super) fn element(&self) -> Option<usize> {
        ELEMENTS.iter().position(|word| *word == self.word())
    }

    /// Returns whether models use this tag.
    pub(super) fn means_something(&self) -> bool {
        self.kind().is_some() || PARTS.contains(&self.word())
    }

    pub(super) fn kind(&self) -> Option<TagKind> {
        let word = self.word();
        let among =
            |all: &[(TagKind, &[&str])]| all.iter().find(|(_, words)| words.contains(&word)).map(|(kind, _)| *kind);
        if REASONING.contains(&word) {
            return Some(if self.is_closing { TagKind::ReasoningEnd } else { TagKind::Reasoning });
        }
        let is_barred = self.bars.0 || self.bars.1;
        let kind = among(&OPENING).or_else(|| among(&BARRED).filter(|_| is_barred && !self.is_closing))?;
        match kind {
            TagKind::Function if self.is_closing => Some(TagKind::Stray),
            TagKind::Function if self.end.is_some() => None,
            _ if self.end.is_none() && !matches!(kind, TagKind::Function) => None,
            TagKind::Call | TagKind::Block | TagKind::Wrapper | TagKind::Unread if self.is_end() => {
                Some(TagKind::Stray)
            }
            TagKind::Call if is_barred => Some(TagKind::Block),
            TagKind::Result if self.is_end() => None,
            kind => Some(kind),
        }
    }
}

/// Returns the length of the end behind a word and its bar; `None` if `=` follows, which belongs to a name.
///
/// # Errors
///
/// What the text begins with instead: no tag, or one whose end has not arrived.
fn ending(rest: &str, is_whole: bool) -> Result<Option<usize>, Begins> {
    let unclear = if is_whole || rest.len() >= MAX_HEAD { Begins::Text } else { Begins::Incomplete };
    match rest.bytes().next() {
        None => Err(unclear),
        Some(b'>') => Ok(Some(1)),
        Some(b'=') => Ok(None),
        Some(b'/' | b'\\') if rest.len() == 1 => Err(unclear),
        Some(b'/' | b'\\') if rest[1..].starts_with('>') => Ok(Some(2)),
        Some(byte) if byte.is_ascii_whitespace() => {
            let head = &rest[..rest.floor_char_boundary(MAX_HEAD)];
            match head.find(['<', '>']) {
                Some(place) if head[place..].starts_with('>') => Ok(Some(place + 1)),
                Some(_) => Err(Begins::Text),
                None => Err(unclear),
            }
        }
        Some(_) => Err(Begins::Text),
    }
}

/// Returns whether a text that begins with `<` may become a known tag. Lookahead waits for no other.
pub(super) fn may_begin(text: &str) -> bool {
    // The taught tags are by far the most frequent.
    if "<tool_call>".starts_with(text) || "</tool_call>".starts_with(text) {
        return true;
    }
    let is_bar = |c: &char| matches!(c, '/' | '|' | '｜' | '\\');
    let same = |c: char| if matches!(c, '▁' | '-' | '.') { '_' } else { c.to_ascii_lowercase() };
    let written: String = text.chars().skip(1).filter(|c| !is_bar(c)).map(same).collect();
    let (word, is_complete) = match written.find(|c: char| c.is_whitespace() || c == '=') {
        Some(end) => (&written[..end], true),
        None => (&*written, false),
    };
    let word = word.rsplit(':').next().unwrap_or_default();
    let is_known = |known: &&str| if is_complete { *known == word } else { known.starts_with(word) };
    REASONING.iter().chain(&PARTS).chain(&ELEMENTS).any(is_known)
        || OPENING.iter().chain(&BARRED).flat_map(|(_, words)| *words).any(is_known)
        || NAMESPACES
            .iter()
            .any(|known| if word.len() < known.len() { known.starts_with(word) } else { word.starts_with(known) })
}
