//! Reads tool calls out of a model's text while it arrives.
//!
//! Text is shown at once. It is held back only while it may still become part of a call, and the amount is bounded.
//! Each byte is read a bounded number of times. Nothing here waits or fails.
//!
//! **What is a call**: a [tag](super::mark) of calls, in any spelling, with a call inside; `<function=…>`;
//! `[TOOL_CALLS]`; a message of GPT-OSS to a function. At the beginning of a line: the name of a tool with JSON behind
//! it, an `Action:`, and an element with a tool's name. If nothing but calls follows: JSON or code at the beginning of
//! a line that names a tool, and a code fence that holds nothing but calls.
//!
//! **What is not**: anything within [reasoning](Parser::take_reasoning); within a comment, a quotation or code (inline,
//! indented, or in a fence with anything else in it or text behind it); within a result that the model has made up;
//! within an element for examples or for the words of others; a call that the text before it calls
//! [an example](super::meant) or the words of another; a tag that is only mentioned. After the first call a made-up
//! result ends the answer, because the text behind it refers to a result that does not exist.
//!
//! If an answer has no calls, but the tag of one that is not a mention, the parser returns one call that cannot be
//! read. If only the words before a call speak against it, and nothing follows it, the call is returned as malformed.

mod openings;
mod regions;

use std::fmt;
use std::sync::Arc;

use crate::providers::prompt_tools::Parsed;
use crate::providers::prompt_tools::call::{self, Bare, MAX_MALFORMED, Place};
use crate::providers::prompt_tools::dialect::Dialect;
use crate::providers::prompt_tools::looks::{
    CALL, Fence, Line, Lookahead, MAX_HEAD, MISTRAL, Named, block_looks, call_looks, code_looks, function_looks,
    json_looks, line_looks, mistral_arguments,
};
use crate::providers::prompt_tools::mark::{self, Begins, ELEMENT_COUNT, Mark, TagKind, may_be_a_tag};
use crate::providers::prompt_tools::meant::{Lead, MAX_LEAD};
use crate::providers::prompt_tools::offered_tools::{OfferedTools, escaped, without_entities};
use crate::providers::prompt_tools::scan::{End, MAX_CALL, Scan};
use crate::tool_call::{ToolCall, ToolSpec};

/// A parser for text that arrives in pieces. It runs in time linear in the text's length. The text that it holds back
/// is bounded: 16 MiB for one call, and for all calls together.
///
/// ```
/// use agentouto::providers::prompt_tools::Parser;
/// use agentouto::tool::{self, NoArguments};
/// use agentouto::Tool;
///
/// let time = tool::function("time", "Tells the time.", |_: NoArguments| async { "noon" }).spec();
/// let (mut parser, mut shown) = (Parser::new(&[time]), String::new());
/// parser.push("One moment. <tool_", &mut shown);
/// assert_eq!(shown, "One moment.");
/// parser.push("call><name>time</name></tool_call>", &mut shown);
/// let calls = parser.end(&mut shown);
/// assert_eq!((&*shown, &*calls[0].name), ("One moment.", "time"));
/// ```
pub struct Parser {
    tools: Arc<OfferedTools>,
    /// The text that has arrived and is not decided yet.
    rest: String,
    /// The position in `rest` up to which the end of its first part was searched.
    seen: usize,
    state: State,
    /// `true` if nothing visible stands before `rest` on its line.
    line_is_blank: bool,
    /// The indentation of the line; and `true` if the line begins with the mark of a quotation.
    indent: usize,
    is_quoted: bool,
    /// The number of backticks that opened the inline code around `rest`; 0 outside.
    open_backticks: usize,
    /// The latest text before `rest`.
    before: String,
    /// The text that is shown once something visible follows: space, and what stands around calls.
    blank: String,
    /// The verdict on the last call that is not meant, while only space and punctuation follow it. The next call gets
    /// the same.
    listed: Option<Is>,
    /// The number of open elements that hold the words of others, or examples, by kind.
    elements: [u8; ELEMENT_COUNT],
    /// `Some` after the mention of a result in a line; `Some(true)` once a call has followed that counts as part of the
    /// mention.
    is_within_mention: Option<bool>,
    /// The text before a fence with calls that are not meant, while the text is in that fence.
    before_fence: Option<String>,
    /// `true` if anything visible was shown.
    has_text: bool,
    /// `true` if the next space belongs to reasoning.
    skips_space: bool,
    /// Calls that count only if no text follows.
    tentative: Option<Tentative>,
    calls: Vec<ToolCall>,
    /// The length of the text of the calls, in bytes.
    read: usize,
    /// The number of malformed calls.
    malformed: usize,
    /// `true` if a tag of calls was found that is not a call.
    has_marker: bool,
    /// The reasoning that was not taken yet.
    reasoning: String,
    /// The number of bytes that were shown; and how many of them turned out to be reasoning.
    shown: usize,
    reasoned: usize,
    /// The ends that were searched in the whole text and are missing.
    unclosed: Vec<Closes>,
    /// The number of times that text was read again, behind the beginning of JSON or code without an end.
    reread: usize,
    /// `true` if this parser reads the inside of a fence, where another fence has no meaning.
    is_inside: bool,
    /// The maximum length of the text of a call, and of all calls together, in bytes.
    pub(in crate::providers::prompt_tools) longest: usize,
}

#[derive(Clone, Copy)]
enum State {
    Text,
    /// Text without calls up to this end; and whether it is shown.
    Until(&'static str, Shown),
    Reasoning(Closes),
    /// Code in this fence.
    Code(Fence),
    /// A fence that may hold calls, from its first mark on. The code begins at `body`.
    Held {
        fence: Fence,
        body: usize,
        holds: Holds,
    },
    Call {
        form: Form,
        body: usize,
        scan: Scan,
        is: Is,
    },
    /// The rest of a call that is too long, or the text behind the end. It is ignored.
    Dropped,
}

#[derive(Clone, Copy, PartialEq)]
enum Shown {
    Yes,
    No,
}

/// The end of reasoning.
#[derive(Clone, Copy)]
enum Closes {
    /// The close tag of this tag.
    Tag(Mark),
    /// A text, in upper or lower case.
    Text(&'static str),
    /// The end of a message of GPT-OSS. `Untagged`: without tags, the beginning of the next message.
    Message,
    Untagged,
}

impl Closes {
    /// Returns whether both are the same tag or text.
    fn is_same(self, other: Self) -> bool {
        match (self, other) {
            (Self::Tag(one), Self::Tag(two)) => one.word() == two.word(),
            (Self::Text(one), Self::Text(two)) => one == two,
            _ => false,
        }
    }
}

/// The content of a fence, by its info string.
#[derive(Clone, Copy, PartialEq)]
enum Holds {
    Anything,
    /// Calls.
    Calls,
    /// Code that may be a call.
    Code,
}

#[derive(Clone, Copy)]
enum Form {
    /// `<tool_call>`
    Tagged,
    /// Another tag of calls.
    Block(Mark),
    /// `<function=…>`
    Function,
    /// `[TOOL_CALLS]`, then JSON, or a name and JSON.
    Mistral,
    /// JSON alone.
    Json,
    /// Code alone.
    Code,
    /// A name, with its begin and end, and JSON.
    Named((usize, usize), Named),
    /// An element with the name of a tool. The name ends at this position.
    Element(usize),
    /// Tags written with entities, with backslashes or in upper case; the text of the close tag.
    Escaped(&'static str),
}

struct Tentative {
    written: String,
    calls: Vec<ToolCall>,
    /// The number of them that are malformed.
    malformed: usize,
    /// `true` if a fence is among them.
    is_fenced: bool,
}

/// The maximum number of times in an answer that text is read again, behind the beginning of JSON or code without an
/// end.
const MAX_REREAD: usize = 16;
/// The maximum number of bytes that are read in one step.
const PIECE: usize = 64 << 10;
/// The words of tags that are read when escaped, with both spellings of the close tag.
const ESCAPED: [(&str, &str, &str); 5] = [
    ("tool_call", "&lt;/tool_call&gt;", "\\</tool_call\\>"),
    ("tool_calls", "&lt;/tool_calls&gt;", "\\</tool_calls\\>"),
    ("function_call", "&lt;/function_call&gt;", "\\</function_call\\>"),
    ("function_calls", "&lt;/function_calls&gt;", "\\</function_calls\\>"),
    ("invoke", "&lt;/invoke&gt;", "\\</invoke\\>"),
];
/// The tags of `<function=…>` in upper case, and in lower case as they are read.
const UPPER: [(&str, &str); 4] = [
    ("<FUNCTION=", "<function="),
    ("</FUNCTION>", "</function>"),
    ("<PARAMETER=", "<parameter="),
    ("</PARAMETER>", "</parameter>"),
];
/// Brackets around reasoning, in lower case.
const BRACKETS: [(&str, &str); 7] = [
    ("[think]", "[/think]"),
    ("[thinking]", "[/thinking]"),
    ("[reasoning]", "[/reasoning]"),
    ("[thought]", "[/thought]"),
    ("◁think▷", "◁/think▷"),
    ("◁thinking▷", "◁/thinking▷"),
    ("【思考】", "【/思考】"),
];
/// The bytes behind a `[` that begin known words.
const BRACKETED: &[u8] = b"Tt/rRE";
/// The opening tag of calls in the format of LM Studio.
const REQUEST: &str = "[TOOL_REQUEST]";
/// The tags that Mistral writes around results.
const RESULTS: (&str, &str) = ("[TOOL_RESULTS]", "[/TOOL_RESULTS]");
/// The index of [`RESULTS`] among the elements.
const NTH_RESULTS: usize = 0;
/// Closing tags of blocks in brackets.
const STRAYS: [&str; 4] = ["[END_TOOL_REQUEST]", "[/TOOL_REQUEST]", "[/TOOL_CALLS]", "[/TOOL_CALL]"];

/// The verdict on a possible call.
#[derive(Clone, Copy, PartialEq)]
enum Is {
    Meant,
    /// The words before it call it an example, refuse it, or attribute it to another author.
    Told,
    /// It stands in a quotation, a comment, or another place where text is only shown.
    Quoted,
    /// It stands in inline code.
    InCode,
}

/// The text that is not decided yet; `is_whole` if no more text follows.
#[derive(Clone, Copy)]
struct Input<'a> {
    rest: &'a str,
    is_whole: bool,
}

impl Parser {
    /// Creates a parser for an answer to which these tools were offered.
    #[must_use]
    pub fn new(tools: &[ToolSpec]) -> Self {
        Self::over(Arc::new(OfferedTools::new(tools.into(), Dialect::default())))
    }

    pub(in crate::providers::prompt_tools) fn over(tools: Arc<OfferedTools>) -> Self {
        Self {
            tools,
            rest: String::new(),
            seen: 0,
            state: State::Text,
            line_is_blank: true,
            indent: 0,
            is_quoted: false,
            open_backticks: 0,
            before: String::new(),
            blank: String::new(),
            listed: None,
            elements: [0; ELEMENT_COUNT],
            is_within_mention: None,
            before_fence: None,
            has_text: false,
            skips_space: false,
            tentative: None,
            calls: Vec::new(),
            read: 0,
            malformed: 0,
            has_marker: false,
            reasoning: String::new(),
            shown: 0,
            reasoned: 0,
            unclosed: Vec::new(),
            reread: 0,
            is_inside: false,
            longest: MAX_CALL,
        }
    }

    /// Creates a parser with the same tools and limit for text inside a fence or an escaped tag.
    fn inside(&self) -> Self {
        Self { is_inside: true, longest: self.longest, ..Self::over(Arc::clone(&self.tools)) }
    }

    /// Reads the next piece of the answer. Text that may be shown now is appended to `shown`.
    pub fn push(&mut self, mut piece: &str, shown: &mut String) {
        while !piece.is_empty() {
            let (now, later) = piece.split_at(piece.floor_char_boundary(PIECE));
            self.rest.push_str(now);
            self.advance(false, shown);
            piece = later;
        }
    }

    /// Returns the reasoning in tags of its own that was read since the last call, without the tags. Reasoning is never
    /// shown.
    pub fn take_reasoning(&mut self) -> String {
        std::mem::take(&mut self.reasoning)
    }

    /// Ends the text and returns its calls. Text that was held back and is not part of a call is appended to `shown`.
    ///
    /// A call that cannot be carried out has the reason in [`ToolCall::malformed`]: there is no tool of that name, its
    /// arguments are not JSON, or they do not fit the tool's schema. A call without a name could not be read.
    pub fn end(mut self, shown: &mut String) -> Vec<ToolCall> {
        self.finish(shown);
        self.calls
    }

    /// Ends the text; returns its calls, and the reasoning that was not taken.
    pub(in crate::providers::prompt_tools) fn end_with_reasoning(
        mut self,
        shown: &mut String,
    ) -> (Vec<ToolCall>, String) {
        self.finish(shown);
        (self.calls, self.reasoning)
    }

    /// Reads a complete text.
    pub(in crate::providers::prompt_tools) fn read(mut self, text: &str) -> Parsed {
        let mut shown = String::with_capacity(text.len());
        self.push(text, &mut shown);
        self.finish(&mut shown);
        let mut reasoning = shown[..self.reasoned].to_owned();
        reasoning.push_str(&self.reasoning);
        if self.reasoned > 0 {
            shown = shown.split_off(self.reasoned);
        }
        Parsed { text: shown, reasoning, calls: self.calls }
    }

    fn finish(&mut self, shown: &mut String) {
        self.advance(true, shown);
        self.commit();
        self.has_marker |= self.is_within_mention == Some(true);
        if self.calls.is_empty() && self.has_marker && !self.is_inside {
            self.calls.push(self.tools.unreadable("the text has the mark of a call, but no call that can be read", ""));
        }
        if self.calls.is_empty() {
            let blank = std::mem::take(&mut self.blank);
            self.emit(&blank, shown);
        }
        for (nth, call) in self.calls.iter_mut().enumerate() {
            call.id = format!("call_{nth}").into();
        }
    }

    fn advance(&mut self, is_whole: bool, shown: &mut String) {
        let text = std::mem::take(&mut self.rest);
        let mut rest = &*text;
        while !rest.is_empty() {
            let Some(taken) = self.step(Input { rest, is_whole }, shown) else { break };
            rest = &rest[taken..];
            if taken > 0 {
                self.seen = 0;
            }
        }
        self.rest = match rest.len() == text.len() {
            true => text,
            false => rest.to_owned(),
        };
    }

    /// The length of the text that is held back, in bytes.
    #[cfg(test)]
    pub(in crate::providers::prompt_tools) fn held_back(&self) -> usize {
        self.rest.len() + self.blank.len() + self.tentative.as_ref().map_or(0, |tentative| tentative.written.len())
    }

    /// Decides what the text begins with, and returns the number of bytes that are done. `None`: more text is needed,
    /// which never happens with the whole text.
    fn step(&mut self, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, .. } = input;
        match self.state {
            State::Text => self.text(input, shown),
            State::Until(end, how) => Some(self.until(input, end, how, shown)).filter(|taken| *taken > 0),
            State::Reasoning(closes) => Some(self.reason(input, closes)).filter(|taken| *taken > 0),
            State::Code(fence) => self.code(fence, input, shown),
            State::Held { fence, body, holds } => self.held(fence, body, holds, input, shown),
            State::Call { form, body, is, .. } => self.call(form, body, is, input, shown),
            State::Dropped => Some(rest.len()),
        }
    }

    fn text(&mut self, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, .. } = input;
        if self.skips_space {
            let space = rest.len() - rest.trim_start().len();
            self.skips_space = space == rest.len();
            if space > 0 {
                self.remember(&rest[..space]);
                return Some(space);
            }
        }
        let byte = rest.as_bytes()[0];
        if byte == 0xE3
            && self.line_is_blank
            && let Some(step) = self.thought_in_brackets_if_any(input, shown)
        {
            return step;
        }
        if self.line_is_blank && self.open_backticks == 0 && !self.is_inside && self.tools.leads(byte) {
            match self.line(input) {
                Step::Taken(length) => return Some(length),
                Step::Wait => return None,
                Step::Text => {}
            }
        }
        let plain = self.plain(input);
        if plain > 0 {
            return Some(self.show(rest, plain, shown));
        }
        if let Some(step) = self.separator(input) {
            return step;
        }
        match byte {
            b'`' | b'~' if !self.is_inside => self.marks(input, shown),
            b'<' => self.tag(input, shown),
            b'[' => self.bracket(input, shown),
            b'{' => self.json(input, shown),
            b'&' | b'\\' if !self.is_inside => self.escaped(input, shown),
            0xE2 => self.thought_in_brackets(input, shown),
            _ => Some(self.show(rest, 1, shown)),
        }
    }

    /// Returns the length of the plain text at the beginning.
    fn plain(&self, input: Input<'_>) -> usize {
        let Input { rest, is_whole } = input;
        let bytes = rest.as_bytes();
        let space = |at: usize| rest.len() - at - rest[at..].trim_start().len();
        let mut at = if self.line_is_blank { space(0) } else { 0 };
        if at > 0 && bytes.get(at).is_some_and(|byte| self.tools.leads(*byte)) {
            return at;
        }
        if self.tentative.is_some() && matches!(bytes.get(space(0)), Some(b',' | b';')) {
            return space(0);
        }
        loop {
            at += bytes[at..].iter().position(|byte| STOPS[usize::from(*byte)]).unwrap_or(bytes.len() - at);
            let next = bytes.get(at + 1);
            let is_plain = match bytes.get(at) {
                None => return at,
                Some(b'\n') => {
                    at += space(at);
                    if bytes.get(at).is_some_and(|byte| self.tools.leads(*byte)) {
                        return at;
                    }
                    continue;
                }
                Some(b'<') => next.is_some_and(|next| !may_be_a_tag(*next)),
                Some(b'{') => is_mid_line(&bytes[..at]),
                Some(b'[') => is_mid_line(&bytes[..at]) && next.is_some_and(|next| !BRACKETED.contains(next)),
                Some(b'&') => next.map_or(is_whole, |next| *next != b'l'),
                Some(b'\\') => next.map_or(is_whole, |next| *next != b'<'),
                Some(0xE2) => bytes[at + 1..at + 3] != [0x97, 0x81],
                Some(_) => false,
            };
            if !is_plain {
                return at;
            }
            at += 1;
        }
    }

    /// Reads a `,` or `;` between calls that count only if no text follows.
    fn separator(&mut self, input: Input<'_>) -> Option<Option<usize>> {
        let Input { rest, is_whole } = input;
        if !rest.starts_with([',', ';']) || self.tentative.is_none() {
            return None;
        }
        match head(&rest[1..]).trim_start().bytes().next() {
            Some(b'{' | b'[' | b'<') => {
                self.blank.push_str(&rest[..1]);
                self.line_is_blank = true;
                Some(Some(1))
            }
            None if is_whole => {
                self.blank.push_str(&rest[..1]);
                Some(Some(1))
            }
            None if rest.len() < MAX_HEAD => Some(None),
            _ => None,
        }
    }

    /// Shows the first `length` bytes of the text, and returns `length`.
    fn show(&mut self, rest: &str, length: usize, shown: &mut String) -> usize {
        let text = &rest[..length];
        let visible = text.trim_end();
        if !visible.is_empty() {
            if self.tentative.is_some() {
                self.settle(text, shown);
            }
            shown.push_str(&self.blank);
            shown.push_str(visible);
            self.shown += self.blank.len() + visible.len();
            self.blank.clear();
            self.has_text = true;
        }
        if visible.len() < text.len() {
            self.hold(&text[visible.len()..]);
        }
        while self.blank.len() > PIECE && self.tentative.is_none() {
            let now: String = self.blank.drain(..self.blank.floor_char_boundary(PIECE)).collect();
            self.emit(&now, shown);
        }
        self.remember(text);
        length
    }

    /// Holds space back. Behind tentative calls it is cut to the size of a piece.
    fn hold(&mut self, space: &str) {
        match self.tentative {
            None => self.blank.push_str(space),
            Some(_) => {
                let left = PIECE.saturating_sub(self.blank.len());
                self.blank.push_str(&space[..space.ceil_char_boundary(left)]);
            }
        }
    }

    /// Records the text that stands before the next text.
    fn remember(&mut self, text: &str) {
        self.listed = self.listed.filter(|_| !text.contains(char::is_alphanumeric));
        let line = match text.rfind('\n') {
            Some(end) => {
                (self.open_backticks, self.indent, self.line_is_blank, self.is_quoted) = (0, 0, true, false);
                &text[end + 1..]
            }
            None => text,
        };
        if self.line_is_blank {
            let visible = line.trim_start();
            let width = |c: char| if c == '\t' { 4 } else { 1 };
            self.indent += line[..line.len() - visible.len()].chars().map(width).sum::<usize>();
            self.line_is_blank = visible.is_empty();
            self.is_quoted = visible.starts_with('>');
        }
        if text.len() >= MAX_LEAD {
            self.before.clear();
        } else if self.before.len() > 8 * MAX_LEAD {
            self.before.drain(..self.before.ceil_char_boundary(self.before.len() - MAX_LEAD));
        }
        self.before.push_str(&text[text.ceil_char_boundary(text.len().saturating_sub(MAX_LEAD))..]);
    }

    fn emit(&mut self, text: &str, shown: &mut String) {
        shown.push_str(text);
        self.shown += text.len();
    }

    /// Decides on tentative calls when text follows them. In a fence, or with the text on their line, they become text.
    /// Otherwise they become malformed calls, because they may have been meant.
    fn settle(&mut self, text: &str, shown: &mut String) {
        let Some(Tentative { written, calls, is_fenced, .. }) = self.tentative.take() else { return };
        let space = &text[..text.len() - text.trim_start().len()];
        if is_fenced || !self.blank.contains('\n') && !space.contains('\n') {
            self.emit(&written, shown);
            return;
        }
        let reason = "not carried out, because text follows it. If it is meant, write it again, and nothing behind it";
        let told = |call: ToolCall| ToolCall { malformed: call.malformed.or_else(|| Some(reason.into())), ..call };
        self.add(calls.into_iter().map(told));
    }

    /// Returns the verdict on a call that begins here; `None` if more text is needed.
    fn is_meant(&self, input: Input<'_>) -> Option<Is> {
        if self.open_backticks > 0 && self.is_in_code(input)? {
            return Some(Is::InCode);
        }
        Some(self.verdict())
    }

    /// Returns the verdict on a call that begins here, from the text before it.
    fn verdict(&self) -> Is {
        if self.is_in_element() {
            return Is::Quoted;
        }
        if let Some(is) = self.listed {
            return is;
        }
        if !self.has_text && self.indent < 4 {
            return Is::Meant;
        }
        let lead = self.lead();
        if lead.is_shown() {
            Is::Quoted
        } else if lead.tells() {
            Is::Told
        } else {
            Is::Meant
        }
    }

    fn is_in_element(&self) -> bool {
        self.elements != [0; ELEMENT_COUNT]
    }

    /// Returns whether the text before a call allows that it is meant.
    fn leads_to_a_call(&self) -> bool {
        self.verdict() == Is::Meant
    }

    /// Shows a call that is not meant. The text before it is kept as the text before what follows.
    fn pass_over(&mut self, written: &str, is: Is, shown: &mut String) {
        let before = std::mem::take(&mut self.before);
        self.show(written, written.len(), shown);
        (self.before, self.listed) = (before, Some(is));
        self.is_within_mention = self.is_within_mention.map(|_| true);
    }

    fn lead(&self) -> Lead<'_> {
        let begin = self.before.ceil_char_boundary(self.before.len().saturating_sub(MAX_LEAD));
        let indent = if self.is_inside { 0 } else { self.indent };
        Lead { before: &self.before[begin..], indent, is_quoted: self.is_quoted }
    }

    /// Returns whether the inline code that was opened on this line is closed on it; `None` if more text is needed.
    fn is_in_code(&self, input: Input<'_>) -> Option<bool> {
        let Input { rest, is_whole } = input;
        let text = head(rest);
        let head = text.as_bytes();
        let mut at = match own_length(text) {
            None if !is_whole && rest.len() < MAX_HEAD => return None,
            length => length.unwrap_or(0),
        };
        while at < head.len() {
            match head[at] {
                b'\n' => return Some(false),
                b'`' => {
                    let length = head[at..].iter().take_while(|byte| **byte == b'`').count();
                    at += length;
                    if at == head.len() && !is_whole && rest.len() < MAX_HEAD {
                        return None;
                    }
                    let is_letter = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphabetic);
                    let is_apostrophe = length == 1 && at > 1 && is_letter(head.get(at - 2)) && is_letter(head.get(at));
                    if length == self.open_backticks && !is_apostrophe {
                        return Some(true);
                    }
                }
                _ => at += 1,
            }
        }
        // Code that does not end within the limit counts as closed.
        let is_short = rest.len() < MAX_HEAD;
        if is_short && !is_whole { None } else { Some(!is_short) }
    }

    fn has_calls(&self) -> bool {
        let may_run = |tentative: &Tentative| tentative.calls.len() > tentative.malformed;
        !self.calls.is_empty() || self.tentative.as_ref().is_some_and(may_run)
    }

    /// Reads a call whose text begins at `body`.
    fn call(&mut self, form: Form, body: usize, is: Is, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, .. } = input;
        let is_long = rest.len() > self.longest;
        let (end, next, is_closed) = self.delimited(form, body, input)?;
        let is_cut = is_long && !is_closed;
        self.state = State::Text;
        if matches!(is, Is::Quoted | Is::InCode) {
            self.pass_over(&rest[..next], is, shown);
            return Some(next);
        }
        if matches!(form, Form::Json | Form::Code | Form::Named(_, Named::Plain | Named::Fenced)) {
            return Some(self.untagged(form, &rest[..next], (body, end), !is_cut, is_closed, shown));
        }
        if is == Is::Told {
            let calls = if is_cut { Vec::new() } else { self.take(form, &rest[..end], &rest[..next], body, is_closed) };
            self.tell(&rest[..next], calls, shown);
            return Some(next);
        }
        self.read += end;
        if is_cut || self.read > self.longest {
            let reason = format!("the call is too long; of all calls at most {} bytes are read", self.longest);
            self.add([self.tools.unreadable(&reason, "")]);
            self.state = if is_cut { State::Until("</tool_call>", Shown::No) } else { State::Dropped };
            return Some(next);
        }
        let calls = self.take(form, &rest[..end], &rest[..next], body, is_closed);
        if calls.is_empty() {
            // A tag without a call behind it is a mention.
            let behind = rest[..next].split_once("&gt;").or_else(|| rest[..next].split_once("\\>"));
            self.has_marker |= behind.is_some_and(|(_, behind)| behind.trim_start().starts_with(['{', '[', '&', '\\']));
            return Some(self.show(rest, next, shown));
        }
        self.add(calls);
        Some(next)
    }

    /// Returns the end of a call, the position where the text goes on, and whether the call was closed; `None` if more
    /// text is needed.
    fn delimited(&mut self, form: Form, body: usize, input: Input<'_>) -> Option<(usize, usize, bool)> {
        let Input { rest, is_whole } = input;
        let State::Call { scan, .. } = &mut self.state else { return None };
        let (within, is_long) = (&rest[..rest.floor_char_boundary(self.longest)], rest.len() > self.longest);
        let is_end = is_whole && !is_long;
        let end = match form {
            Form::Tagged => scan.tagged(within, "</tool_call>", is_end),
            Form::Function => scan.tagged(within, "</function>", is_end),
            Form::Block(mark) => scan.block(within, mark.word(), is_end),
            Form::Mistral | Form::Json | Form::Code | Form::Named(..) => scan.value(within),
            Form::Element(named) => {
                let close = format!("</{}>", &rest[1..named]);
                found(within, body, &close, &mut self.seen)
            }
            Form::Escaped(close) => found(within, body, close, &mut self.seen),
        };
        let (end, next, is_closed) = match end {
            End::Found { body, next } => (body, next, true),
            End::Open if is_long || is_whole => (within.len(), within.len(), false),
            End::Open => return None,
        };
        let next = match form {
            Form::Named(_, Named::Fenced | Named::MarkedFenced) if is_closed => behind_fence(rest, next, is_whole)?,
            _ => next,
        };
        Some((end, next, is_closed))
    }

    /// Holds calls that only the words before them speak against. They are returned as malformed if no text follows.
    fn tell(&mut self, written: &str, calls: Vec<ToolCall>, shown: &mut String) {
        if calls.is_empty() || calls.iter().any(is_malformed) {
            return self.pass_over(written, Is::Told, shown);
        }
        let reason = "not carried out, because the text before it says that it is an example or somebody else's words. If \
                      it is meant, write it again with nothing before it; if not, put it into a code fence";
        let told = |call| ToolCall { malformed: Some(reason.into()), ..call };
        self.hold_as_calls(written, calls.into_iter().map(told).collect(), true, shown);
        self.listed = Some(Is::Told);
    }

    /// Reads a call without tags, which only its form identifies.
    fn untagged(
        &mut self,
        form: Form,
        written: &str,
        body: (usize, usize),
        is_read: bool,
        is_closed: bool,
        shown: &mut String,
    ) -> usize {
        let inside = &written[body.0..body.1];
        let place = if self.is_inside { Place::Fenced } else { Place::Alone };
        let calls = match form {
            _ if !is_read => None,
            Form::Json => match call::bare_json(inside, place, &self.tools) {
                Bare::Calls(calls) => Some(calls),
                Bare::Text => None,
            },
            Form::Named(name, _) => {
                let is_object = serde_json::from_str::<serde::de::IgnoredAny>(&escaped(inside)).is_ok();
                is_object.then(|| vec![self.tools.validate(&written[name.0..name.1], inside)])
            }
            _ => {
                let calls = call::code(written, &self.tools);
                self.has_marker |= calls.is_none() && written.starts_with('[');
                calls
            }
        };
        match calls {
            Some(calls) => self.hold_as_calls(written, calls, self.is_inside, shown),
            None if is_closed || !is_read || self.reread == MAX_REREAD => self.show(written, written.len(), shown),
            None => {
                // Without an end, only the first line is text: a call may follow that line.
                self.reread += 1;
                let line = written.find('\n').map_or(written.len(), |end| end + 1);
                self.show(written, line, shown)
            }
        }
    }

    /// Returns the calls in a text whose end is known.
    fn take(&self, form: Form, written: &str, whole: &str, body: usize, is_closed: bool) -> Vec<ToolCall> {
        let inside = written.get(body..).unwrap_or_default();
        match form {
            Form::Function => vec![call::function(&written["<function=".len()..], is_closed, &self.tools)],
            Form::Mistral => {
                let name = written[MISTRAL.len()..body].split('[').next().unwrap_or_default().trim();
                match name.is_empty() {
                    true => call::json(inside, &self.tools),
                    false => vec![self.tools.validate(name, inside)],
                }
            }
            Form::Named(name, _) => vec![self.tools.validate(&written[name.0..name.1], inside)],
            Form::Element(named) => {
                let name = &written[1..named];
                vec![match is_closed {
                    true => call::named_elements(inside, name, &self.tools),
                    false => ToolCall { name: name.into(), ..self.tools.unreadable("the call does not end", written) },
                }]
            }
            Form::Escaped(_) => {
                let plain = match whole.as_bytes()[0] {
                    b'&' => without_entities(whole),
                    b'<' => UPPER.iter().fold(whole.to_owned(), |text, (upper, lower)| text.replace(upper, lower)),
                    _ => whole.replace("\\<", "<").replace("\\>", ">").replace("\\_", "_"),
                };
                self.inside().read(&plain).calls
            }
            Form::Block(_) => call::block(inside, &written[..body], is_closed, &self.tools),
            Form::Tagged | Form::Json | Form::Code => {
                let name = call::attribute(&written[..body], "name");
                call::tagged(inside, name.as_deref(), is_closed, &self.tools)
            }
        }
    }

    /// Holds calls that count only if no text follows, and returns the length of their text.
    fn hold_as_calls(&mut self, written: &str, calls: Vec<ToolCall>, is_fenced: bool, shown: &mut String) -> usize {
        self.read += self.blank.len() + written.len();
        if self.read > self.longest {
            return self.show(written, written.len(), shown);
        }
        let new = || Tentative { written: String::new(), calls: Vec::new(), malformed: 0, is_fenced };
        let tentative = self.tentative.get_or_insert_with(new);
        tentative.written.push_str(&self.blank);
        tentative.written.push_str(written);
        tentative.is_fenced |= is_fenced;
        for call in calls {
            if tentative.malformed < MAX_MALFORMED {
                tentative.malformed += usize::from(is_malformed(&call));
                tentative.calls.push(call);
            }
        }
        self.blank.clear();
        self.line_is_blank = true;
        written.len()
    }

    /// Accepts the tentative calls, because no text follows them.
    fn commit(&mut self) {
        if let Some(tentative) = self.tentative.take() {
            self.add(tentative.calls);
        }
    }

    /// Adds calls, up to the limit of malformed ones.
    fn add(&mut self, calls: impl IntoIterator<Item = ToolCall>) {
        for call in calls {
            if self.malformed < MAX_MALFORMED {
                self.malformed += usize::from(is_malformed(&call));
                self.calls.push(call);
            }
        }
        if self.malformed == MAX_MALFORMED {
            self.state = State::Dropped;
        }
    }
}

impl fmt::Debug for Parser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parser").field("calls", &self.calls.len()).finish_non_exhaustive()
    }
}

/// The decision on the beginning of a line.
enum Step {
    Taken(usize),
    Wait,
    Text,
}

/// Searches the close tag of a call.
fn found(within: &str, body: usize, close: &str, seen: &mut usize) -> End {
    let from = within.floor_char_boundary((*seen).max(body));
    match within[from..].find(close) {
        Some(place) => End::Found { body: from + place, next: from + place + close.len() },
        None => {
            *seen = within.len().saturating_sub(close.len());
            End::Open
        }
    }
}

/// Returns the length of the element at the beginning of a text, if a call may stand in it and it is on one line. 0 if
/// not, and `None` if more text is needed.
fn own_length(text: &str) -> Option<usize> {
    let line = text.split('\n').next().unwrap_or_default();
    let Some((tag, behind)) = line.split_once('>') else {
        return (line.len() < text.len() || !text.starts_with('<')).then_some(0);
    };
    let word = tag.trim_start_matches('<').split([' ', '=']).next().unwrap_or_default();
    match behind.trim_start().bytes().next() {
        None if line.len() == text.len() => None,
        Some(b'<' | b'{' | b'[') => {
            let close = format!("</{word}>");
            let end = behind.find(&close).map(|place| tag.len() + 1 + place + close.len());
            end.or((line.len() < text.len()).then_some(0))
        }
        _ => Some(0),
    }
}

/// Returns the position behind a closing fence; `None` if more text is needed.
fn behind_fence(rest: &str, end: usize, is_whole: bool) -> Option<usize> {
    let behind = head(&rest[end..]).trim_start();
    match behind.strip_prefix("```") {
        Some(_) => Some(rest.len() - rest[end..].trim_start().len() + 3),
        None if !is_whole && "```".starts_with(behind) && rest.len() - end < MAX_HEAD => None,
        None => Some(end),
    }
}

fn is_opening(mark: &Mark) -> bool {
    matches!(mark.kind(), Some(TagKind::Call | TagKind::Block | TagKind::Wrapper | TagKind::Function))
}

fn is_malformed(call: &ToolCall) -> bool {
    call.malformed.is_some()
}

/// Returns whether a text ends in the middle of a line, and not with a colon.
fn is_mid_line(bytes: &[u8]) -> bool {
    let last = bytes.iter().rev().find(|byte| !matches!(byte, b' ' | b'\t'));
    last.is_some_and(|last| last.is_ascii() && *last != b':' && !char::from(*last).is_whitespace())
}

/// The beginning of a text, as far as lookahead reads it.
fn head(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_HEAD)]
}

/// The bytes at which something other than text may begin.
const STOPS: [bool; 256] = {
    let mut stops = [false; 256];
    let bytes = *b"<`~[{&\\\n\xE2";
    let mut nth = 0;
    while nth < bytes.len() {
        stops[bytes[nth] as usize] = true;
        nth += 1;
    }
    stops
};
