//! Reads tool calls out of a model's text while it arrives.
//!
//! What may be shown is shown at once: text is held back only while it may still become part of a call. Every byte is
//! looked at a bounded number of times, and what is held back is bounded. Nothing here waits or fails.
//!
//! **What is a call**: a [tag](super::mark) of calls, whatever its spelling, with a call inside; `<function=…>`;
//! `[TOOL_CALLS]`; a message of GPT-OSS to a function; at the beginning of a line the name of a tool with JSON behind it,
//! an `Action:`, and an element with a tool's name; and, if nothing but calls follows it, JSON or code at the beginning
//! of a line that names a tool, and a fenced block that holds nothing but calls.
//!
//! **What is not**: anything within [reasoning](Parser::take_reasoning), within a comment, a quotation or code (inline,
//! indented, or in a fence with anything else in it or text behind it), within a result that the model has made up, or an
//! element of examples or of others' words; what the text before it says to be [an example](super::meant) or the words of
//! another; a tag that is merely mentioned. After the first call a made-up result ends the answer: what follows is about
//! something that never happened.
//!
//! An answer without calls that holds the tag of one, and not as a mention, has one call that cannot be read. A call that
//! only the words before it deny, and that nothing follows, is one that is not carried out.

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

/// Reads a text that arrives in pieces, in time linear in its length. What it holds back of the text is bounded: all calls
/// together may have 16 MiB, and so may one alone.
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
    /// What has arrived and is not decided.
    rest: String,
    /// Up to where `rest` was searched for the end of what it begins with.
    seen: usize,
    state: State,
    /// Whether nothing visible stands before `rest` on its line.
    line_is_blank: bool,
    /// How far the line is indented, and whether it begins as a quotation does.
    indent: usize,
    is_quoted: bool,
    /// How many backticks opened the inline code that `rest` is in; 0 outside.
    open_backticks: usize,
    /// The last of the text before `rest`.
    before: String,
    /// What is shown once something visible follows: space, and what stands around calls.
    blank: String,
    /// What a call is that is not meant, while nothing but space and signs follows it: what comes next is the same.
    listed: Option<Is>,
    /// How many elements are open that hold what others wrote, or examples, by their kind.
    elements: [u8; ELEMENT_COUNT],
    /// Whether a result was mentioned in a line, and a call has followed that counts as part of it.
    is_within_mention: Option<bool>,
    /// What stood before a fence with calls that are not meant, while the text is in it.
    before_fence: Option<String>,
    /// Whether anything visible was shown.
    has_text: bool,
    /// Whether the space before what follows belongs to reasoning.
    skips_space: bool,
    /// Calls that are calls only if no text follows.
    tentative: Option<Tentative>,
    calls: Vec<ToolCall>,
    /// How much text the calls have.
    read: usize,
    /// How many calls are malformed.
    malformed: usize,
    /// Whether a tag of calls was met that is no call.
    has_marker: bool,
    /// The reasoning that nobody has taken.
    reasoning: String,
    /// How much was shown, and how much of it turned out to be reasoning, in bytes.
    shown: usize,
    reasoned: usize,
    /// The ends that were looked for in the whole text and are not there.
    unclosed: Vec<Closes>,
    /// How many times the text was read again behind the beginning of JSON or code without an end.
    reread: usize,
    /// Whether this reads the inside of a fence, where another one is nothing special.
    is_inside: bool,
    /// How much text a call may have, and all calls together, in bytes.
    pub(in crate::providers::prompt_tools) longest: usize,
}

#[derive(Clone, Copy)]
enum State {
    Text,
    /// Up to this text nothing is a call; whether it is shown.
    Until(&'static str, Shown),
    Reasoning(Closes),
    /// Code in a fence of this many marks.
    Code(Fence),
    /// A fence that may hold calls, from its first mark. The code begins at `body`.
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
    /// A call that is too long to be read, or what follows the end.
    Dropped,
}

#[derive(Clone, Copy, PartialEq)]
enum Shown {
    Yes,
    No,
}

/// What closes reasoning.
#[derive(Clone, Copy)]
enum Closes {
    /// The tag that belongs to this one.
    Tag(Mark),
    /// A text, in any case.
    Text(&'static str),
    /// What ends a message of GPT-OSS; or, without tags, begins the next.
    Message,
    Untagged,
}

impl Closes {
    /// Whether both are the same tag or text.
    fn is_same(self, other: Self) -> bool {
        match (self, other) {
            (Self::Tag(one), Self::Tag(two)) => one.word() == two.word(),
            (Self::Text(one), Self::Text(two)) => one == two,
            _ => false,
        }
    }
}

/// What a fence says that it holds.
#[derive(Clone, Copy, PartialEq)]
enum Holds {
    Anything,
    /// Calls.
    Calls,
    /// Code that is a call.
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
    /// A name, at these places, and JSON.
    Named((usize, usize), Named),
    /// An element with the name of a tool, which ends at this place.
    Element(usize),
    /// Tags that are written with entities, with backslashes or in upper case, and how the last one is.
    Escaped(&'static str),
}

struct Tentative {
    written: String,
    calls: Vec<ToolCall>,
    /// How many of them are malformed.
    malformed: usize,
    /// Whether a fence is among them.
    is_fenced: bool,
}

/// How many times in an answer the text is read again behind the beginning of JSON or code without an end.
const MAX_REREAD: usize = 16;
/// How much is taken in at once, in bytes.
const PIECE: usize = 64 << 10;
/// The words of tags that are read when they are escaped, and how they close.
const ESCAPED: [(&str, &str, &str); 5] = [
    ("tool_call", "&lt;/tool_call&gt;", "\\</tool_call\\>"),
    ("tool_calls", "&lt;/tool_calls&gt;", "\\</tool_calls\\>"),
    ("function_call", "&lt;/function_call&gt;", "\\</function_call\\>"),
    ("function_calls", "&lt;/function_calls&gt;", "\\</function_calls\\>"),
    ("invoke", "&lt;/invoke&gt;", "\\</invoke\\>"),
];
/// The tags of `<function=…>` in upper case, and as they are read.
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
/// The bytes behind a `[` that begin words.
const BRACKETED: &[u8] = b"Tt/rRE";
/// How LM Studio has calls written.
const REQUEST: &str = "[TOOL_REQUEST]";
/// What Mistral writes around results.
const RESULTS: (&str, &str) = ("[TOOL_RESULTS]", "[/TOOL_RESULTS]");
/// Its place among the elements.
const NTH_RESULTS: usize = 0;
/// The ends of blocks in brackets.
const STRAYS: [&str; 4] = ["[END_TOOL_REQUEST]", "[/TOOL_REQUEST]", "[/TOOL_CALLS]", "[/TOOL_CALL]"];

/// Whether what follows is a call.
#[derive(Clone, Copy, PartialEq)]
enum Is {
    Meant,
    /// The words before it say that it is an example, or refuse it, or name another who wrote it.
    Told,
    /// It stands in a quotation, a comment, or what else is only shown.
    Quoted,
    /// It stands in inline code.
    InCode,
}

/// The text that is not decided yet, and whether more may follow it.
#[derive(Clone, Copy)]
struct Input<'a> {
    rest: &'a str,
    is_whole: bool,
}

impl Parser {
    /// A parser for an answer to which these tools were offered.
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

    /// The same for the inside of something that was read with it.
    fn inside(&self) -> Self {
        Self { is_inside: true, longest: self.longest, ..Self::over(Arc::clone(&self.tools)) }
    }

    /// Takes in more text; what of the answer may be shown now is added to `shown`.
    pub fn push(&mut self, mut piece: &str, shown: &mut String) {
        while !piece.is_empty() {
            let (now, later) = piece.split_at(piece.floor_char_boundary(PIECE));
            self.rest.push_str(now);
            self.advance(false, shown);
            piece = later;
        }
    }

    /// The reasoning that the text had in tags of its own since it was taken last, without the tags. It is never shown.
    pub fn take_reasoning(&mut self) -> String {
        std::mem::take(&mut self.reasoning)
    }

    /// The calls, when there is no more text. What was held back and is text is added to `shown`.
    ///
    /// A call that cannot be carried out says why in [`ToolCall::malformed`]: no tool has that name, its arguments are not
    /// JSON, or they do not fit the tool's schema. A call without a name is one that cannot be read.
    pub fn end(mut self, shown: &mut String) -> Vec<ToolCall> {
        self.finish(shown);
        self.calls
    }

    /// The same, with the reasoning that was not taken.
    pub(in crate::providers::prompt_tools) fn end_with_reasoning(
        mut self,
        shown: &mut String,
    ) -> (Vec<ToolCall>, String) {
        self.finish(shown);
        (self.calls, self.reasoning)
    }

    /// Reads a text that is complete.
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

    /// How much text is held back, in bytes.
    #[cfg(test)]
    pub(in crate::providers::prompt_tools) fn held_back(&self) -> usize {
        self.rest.len() + self.blank.len() + self.tentative.as_ref().map_or(0, |tentative| tentative.written.len())
    }

    /// Decides what the text begins with, and says how much of it is done with; `None` if that takes more text. With the
    /// whole text something is always decided.
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

    /// How much of a text is nothing but text.
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

    /// A `,` or `;` between calls that are calls if no text follows.
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

    /// Shows the first bytes of the text, and says how many they are.
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

    /// Holds space back. Behind calls that may be none it is cut: more of it than a piece says nothing.
    fn hold(&mut self, space: &str) {
        match self.tentative {
            None => self.blank.push_str(space),
            Some(_) => {
                let left = PIECE.saturating_sub(self.blank.len());
                self.blank.push_str(&space[..space.ceil_char_boundary(left)]);
            }
        }
    }

    /// Notes what stands before what follows.
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

    /// Text follows what was taken for calls. In a fence, or on their line, they are part of it; else they are calls that
    /// may have been meant.
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

    /// Whether a call that begins here is meant; `None` if that takes more text.
    fn is_meant(&self, input: Input<'_>) -> Option<Is> {
        if self.open_backticks > 0 && self.is_in_code(input)? {
            return Some(Is::InCode);
        }
        Some(self.verdict())
    }

    /// What a call is that begins here, by what stands before it.
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
        match () {
            () if lead.is_shown() => Is::Quoted,
            () if lead.tells() => Is::Told,
            () => Is::Meant,
        }
    }

    fn is_in_element(&self) -> bool {
        self.elements != [0; ELEMENT_COUNT]
    }

    /// Whether what stands before a call leaves it one that is meant.
    fn leads_to_a_call(&self) -> bool {
        self.verdict() == Is::Meant
    }

    /// Shows a call that is not meant. What stood before it stands before what follows, too.
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

    /// Whether the inline code that was opened on this line is closed on it.
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
        match rest.len() < MAX_HEAD {
            true if !is_whole => None,
            is_short => Some(!is_short),
        }
    }

    fn has_calls(&self) -> bool {
        let may_run = |tentative: &Tentative| tentative.calls.len() > tentative.malformed;
        !self.calls.is_empty() || self.tentative.as_ref().is_some_and(may_run)
    }

    /// A call whose text begins at `body`.
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
            // What is not followed by a call is a mention.
            let behind = rest[..next].split_once("&gt;").or_else(|| rest[..next].split_once("\\>"));
            self.has_marker |= behind.is_some_and(|(_, behind)| behind.trim_start().starts_with(['{', '[', '&', '\\']));
            return Some(self.show(rest, next, shown));
        }
        self.add(calls);
        Some(next)
    }

    /// Where a call ends, where the text goes on, and whether the call has an end; `None` if that takes more text.
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

    /// Takes calls that are not meant by the words before them: they are told if no text follows.
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

    /// Reads a call that nothing but its form says to be one.
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
                // What has no end is not read on: there may be a call behind its line.
                self.reread += 1;
                let line = written.find('\n').map_or(written.len(), |end| end + 1);
                self.show(written, line, shown)
            }
        }
    }

    /// The calls that stand in a text that was delimited.
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

    /// Takes calls for calls as long as no text follows, and says how much text that was.
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

    /// No text follows: what was taken for calls is calls.
    fn commit(&mut self) {
        if let Some(tentative) = self.tentative.take() {
            self.add(tentative.calls);
        }
    }

    /// Adds calls, up to the last malformed one that is told.
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

/// What becomes of the beginning of a line.
enum Step {
    Taken(usize),
    Wait,
    Text,
}

/// Looks for the end of a call that is just a text.
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

/// How long the element is that a text begins with, if a call may stand in it and it is on one line: 0 if not, and `None`
/// if that takes more text.
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

/// Where the text goes on behind a fence that closes; `None` if that takes more text.
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

/// Whether a text ends on a line that it has begun, and not with a colon.
fn is_mid_line(bytes: &[u8]) -> bool {
    let last = bytes.iter().rev().find(|byte| !matches!(byte, b' ' | b'\t'));
    last.is_some_and(|last| last.is_ascii() && *last != b':' && !char::from(*last).is_whitespace())
}

/// What is looked at to see what a text begins with.
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
