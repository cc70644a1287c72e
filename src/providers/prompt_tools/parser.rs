//! Reads tool calls out of a model's text while it arrives.
//!
//! What may be shown is shown at once: text is held back only while it may still become part of a call. Every byte is
//! looked at a bounded number of times, and what is held back is bounded. Nothing here waits or fails.
//!
//! **What is a call**: `<tool_call>` with elements, with JSON or with `<function=…>` inside; `<function=…>`;
//! `[TOOL_CALLS]`; and, if nothing but calls surrounds it or precedes it in the answer's last part, a fenced block that
//! holds nothing but calls or JSON that names a tool, and JSON that is the whole answer and names a tool.
//!
//! **What is not**: anything within `<think>`, within code (inline, or in a fence with anything else in it or text
//! behind it), within a result that the model has made up; a tag that is merely mentioned. After the first call a made-up
//! result ends the answer: what follows is about something that never happened.

use std::fmt;
use std::sync::Arc;

use super::call;
use super::dialect::Dialect;
use super::looks::{
    CALL, Fence, LONGEST_HEAD, Looks, MISTRAL, call_looks, function_looks, json_looks, mistral_arguments,
};
use super::scan::{End, LONGEST_CALL, Scan};
use super::toolset::Toolset;
use crate::tool::{ToolCall, ToolSpec};

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
    tools: Arc<Toolset>,
    /// What has arrived and is not decided.
    rest: String,
    /// Up to where `rest` was searched for the end of what it begins with.
    seen: usize,
    state: State,
    /// Whether nothing visible stands before `rest` on its line.
    line_is_blank: bool,
    /// How many backticks opened the inline code that `rest` is in; 0 outside.
    ticks: usize,
    /// Space that is shown once something visible follows.
    blank: String,
    /// Whether anything visible was shown.
    has_text: bool,
    /// Calls that are calls only if no text follows.
    tentative: Option<Tentative>,
    calls: Vec<ToolCall>,
    /// How much text the calls have.
    read: usize,
    /// How many calls are malformed, if only the last is counted of those that were written as one.
    malformed: usize,
    /// Whether this reads the inside of a fence, where another one is nothing special.
    is_inside: bool,
    /// How much text a call may have, and all calls together, in bytes.
    pub(super) longest: usize,
}

enum State {
    Text,
    /// Up to this text nothing is a call; whether it is shown.
    Until(&'static str, Shown),
    /// Code in a fence of this many marks.
    Code(Fence),
    /// A fence that may hold calls, from its first mark. The code begins at `body`.
    Held {
        fence: Fence,
        body: usize,
    },
    Call {
        form: Form,
        body: usize,
        scan: Scan,
    },
    /// A call that is too long to be read, or what follows the end.
    Dropped,
}

#[derive(Clone, Copy, PartialEq)]
enum Shown {
    Yes,
    No,
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// `<tool_call>`
    Tagged,
    /// `<function=…>`
    Function,
    /// `[TOOL_CALLS]`, then JSON, or a name and JSON.
    Mistral,
    /// JSON alone.
    Json,
}

struct Tentative {
    written: String,
    calls: Vec<ToolCall>,
}

/// How many calls of one answer are told to be malformed. What follows them is not read.
const MOST_MALFORMED: usize = 32;
/// How much is taken in at once, in bytes.
const PIECE: usize = 64 << 10;

/// What a `<` may begin.
const TAGS: [(&str, Opens); 17] = [
    ("<tool_call>", Opens::Call),
    ("<tool_call ", Opens::Call),
    ("<tool_call\n", Opens::Call),
    ("<tool_calls>", Opens::Wrapper),
    ("</tool_calls>", Opens::Stray),
    ("</tool_call>", Opens::Stray),
    ("<function=", Opens::Function),
    ("</function>", Opens::Stray),
    ("<|python_tag|>", Opens::Wrapper),
    ("<think>", Opens::Reasoning("</think>")),
    ("<thinking>", Opens::Reasoning("</thinking>")),
    ("<reasoning>", Opens::Reasoning("</reasoning>")),
    ("</think>", Opens::ReasoningEnd),
    ("</thinking>", Opens::ReasoningEnd),
    ("</reasoning>", Opens::ReasoningEnd),
    ("<tool_result", Opens::Result("</tool_result>")),
    ("<tool_response", Opens::Result("</tool_response>")),
];

#[derive(Clone, Copy)]
enum Opens {
    Call,
    Function,
    /// Something around calls, or before them.
    Wrapper,
    /// An end that belongs to a call before it.
    Stray,
    Reasoning(&'static str),
    ReasoningEnd,
    Result(&'static str),
}

impl Parser {
    /// A parser for an answer to which these tools were offered.
    #[must_use]
    pub fn new(tools: &[ToolSpec]) -> Self {
        Self::over(Arc::new(Toolset::new(tools.into(), Dialect::default())))
    }

    pub(super) fn over(tools: Arc<Toolset>) -> Self {
        Self {
            tools,
            rest: String::new(),
            seen: 0,
            state: State::Text,
            line_is_blank: true,
            ticks: 0,
            blank: String::new(),
            has_text: false,
            tentative: None,
            calls: Vec::new(),
            read: 0,
            malformed: 0,
            is_inside: false,
            longest: LONGEST_CALL,
        }
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

    /// The calls, when there is no more text. What was held back and is text is added to `shown`.
    ///
    /// A call that cannot be carried out says why in [`ToolCall::malformed`]: no tool has that name, its arguments are not
    /// JSON, or they do not fit the tool's schema.
    pub fn end(mut self, shown: &mut String) -> Vec<ToolCall> {
        self.advance(true, shown);
        self.commit();
        if self.calls.is_empty() {
            shown.push_str(&self.blank);
        }
        for (nth, call) in self.calls.iter_mut().enumerate() {
            call.id = format!("call_{nth}").into();
        }
        self.calls
    }

    fn advance(&mut self, is_whole: bool, shown: &mut String) {
        let text = std::mem::take(&mut self.rest);
        let mut rest = &*text;
        while !rest.is_empty() {
            let Some(taken) = self.step(rest, is_whole, shown) else { break };
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

    /// Decides what the text begins with, and says how much of it is done with; `None` if that takes more text. With the
    /// whole text something is always decided.
    fn step(&mut self, rest: &str, is_whole: bool, shown: &mut String) -> Option<usize> {
        match self.state {
            State::Text => self.text(rest, is_whole, shown),
            State::Until(end, how) => Some(self.until(rest, end, how, is_whole, shown)).filter(|taken| *taken > 0),
            State::Code(fence) => self.code(fence, rest, is_whole, shown),
            State::Held { fence, body } => self.held(fence, body, rest, is_whole, shown),
            State::Call { form, body, .. } => self.call(form, body, rest, is_whole, shown),
            State::Dropped => Some(rest.len()),
        }
    }

    fn text(&mut self, rest: &str, is_whole: bool, shown: &mut String) -> Option<usize> {
        let plain = rest.bytes().position(|byte| SPECIAL[usize::from(byte)]).unwrap_or(rest.len());
        if plain > 0 {
            return Some(self.show(rest, plain, shown));
        }
        let is_code = self.ticks > 0;
        match rest.as_bytes()[0] {
            b'`' | b'~' if !self.is_inside => self.marks(rest, is_whole, shown),
            b'<' if !is_code => self.tag(rest, is_whole, shown),
            b'[' if !is_code && rest.starts_with(MISTRAL) => self.mistral(rest, is_whole, shown),
            b'[' if !is_code && MISTRAL.starts_with(rest) && !is_whole => None,
            b'{' | b'[' if !self.has_text => self.json(rest, is_whole, shown),
            _ => Some(self.show(rest, 1, shown)),
        }
    }

    /// Shows the first bytes of the text, and says how many they are.
    fn show(&mut self, rest: &str, length: usize, shown: &mut String) -> usize {
        let text = &rest[..length];
        let visible = text.trim_end();
        if !visible.is_empty() {
            if let Some(tentative) = self.tentative.take() {
                shown.push_str(&tentative.written);
            }
            shown.push_str(&self.blank);
            self.blank.clear();
            shown.push_str(visible);
            self.has_text = true;
        }
        self.blank.push_str(&text[visible.len()..]);
        while self.blank.len() > PIECE && self.tentative.is_none() {
            shown.extend(self.blank.drain(..self.blank.floor_char_boundary(PIECE)));
        }
        match text.rfind('\n') {
            Some(end) => {
                self.ticks = 0;
                self.line_is_blank = text[end..].trim().is_empty();
            }
            None => self.line_is_blank &= visible.is_empty(),
        }
        length
    }

    /// A `<` outside of code.
    fn tag(&mut self, rest: &str, is_whole: bool, shown: &mut String) -> Option<usize> {
        // Most that looks like a tag is none, and is seen to be by its second byte.
        if rest.as_bytes().get(1).is_some_and(|byte| !b"t/f|r".contains(byte)) {
            return Some(self.show(rest, 1, shown));
        }
        let Some((tag, opens)) = TAGS.into_iter().find(|(tag, _)| rest.starts_with(tag)) else {
            let may_be = !is_whole && TAGS.iter().any(|(tag, _)| tag.starts_with(rest));
            return if may_be { None } else { Some(self.show(rest, 1, shown)) };
        };
        let has_calls = !self.calls.is_empty() || self.tentative.is_some();
        match opens {
            Opens::Call | Opens::Function => self.opening(rest, opens, is_whole, shown),
            Opens::Stray if has_calls => Some(tag.len()),
            Opens::Wrapper => {
                let inner = head(&rest[tag.len()..]).trim_start();
                let is_around = inner.starts_with(CALL) || inner.starts_with('{') || inner.starts_with('[');
                match is_around {
                    true => Some(tag.len()),
                    false if !is_whole && CALL.starts_with(inner) && rest.len() - tag.len() < LONGEST_HEAD => None,
                    false => Some(self.show(rest, 1, shown)),
                }
            }
            Opens::Stray => Some(self.show(rest, 1, shown)),
            Opens::Reasoning(end) => {
                self.state = State::Until(end, Shown::Yes);
                Some(self.show(rest, tag.len(), shown))
            }
            // What came before was reasoning all along.
            Opens::ReasoningEnd => {
                self.calls.clear();
                self.tentative = None;
                Some(self.show(rest, tag.len(), shown))
            }
            Opens::Result(_) if has_calls => {
                self.commit();
                self.state = State::Dropped;
                Some(rest.len())
            }
            Opens::Result(end) => {
                self.state = State::Until(end, Shown::Yes);
                Some(self.show(rest, tag.len(), shown))
            }
        }
    }

    /// An opening tag of a call: it is one if what follows looks like one, and else merely mentioned.
    fn opening(&mut self, rest: &str, opens: Opens, is_whole: bool, shown: &mut String) -> Option<usize> {
        let is_final = is_whole || head(rest).len() < rest.len();
        let found = head(rest).bytes().skip(self.seen.max(1)).position(|byte| matches!(byte, b'<' | b'>'));
        let end = match found.map(|place| self.seen.max(1) + place) {
            Some(end) if rest.as_bytes()[end] == b'>' => end + 1,
            Some(_) => return Some(self.show(rest, 1, shown)),
            None if is_final => return Some(self.show(rest, 1, shown)),
            None => {
                self.seen = rest.len();
                return None;
            }
        };
        let (tag, inside) = (&rest[..end], head(&rest[end..]).trim_start());
        if let Some(name) = call::attribute(tag, "name").filter(|_| tag.ends_with("/>")) {
            self.commit();
            let arguments = call::attribute(tag, "arguments").unwrap_or_default();
            self.calls.push(self.tools.judge(&name, &arguments));
            return Some(end);
        }
        let form = if matches!(opens, Opens::Call) { Form::Tagged } else { Form::Function };
        let looks = match form {
            Form::Function => function_looks(inside, is_whole),
            _ if call::attribute(tag, "name").is_some() => Looks::LikeACall,
            _ => call_looks(inside, &self.tools, is_whole),
        };
        match looks {
            Looks::LikeACall => {
                self.commit();
                self.state = State::Call { form, body: end, scan: Scan::from(end) };
                self.call(form, end, rest, is_whole, shown)
            }
            Looks::Unclear if rest.len() - end < LONGEST_HEAD && !is_whole => {
                // The tag itself is not looked for again.
                self.seen = end - 1;
                None
            }
            _ => Some(self.show(rest, 1, shown)),
        }
    }

    fn mistral(&mut self, rest: &str, is_whole: bool, shown: &mut String) -> Option<usize> {
        match mistral_arguments(rest, is_whole) {
            Ok(body) => {
                self.commit();
                self.state = State::Call { form: Form::Mistral, body, scan: Scan::from(body) };
                self.call(Form::Mistral, body, rest, is_whole, shown)
            }
            Err(Looks::Unclear) if !is_whole => None,
            Err(_) => Some(self.show(rest, 1, shown)),
        }
    }

    /// JSON where no text stands before it.
    fn json(&mut self, rest: &str, is_whole: bool, shown: &mut String) -> Option<usize> {
        match json_looks(head(rest), is_whole) {
            Looks::LikeACall => {
                self.state = State::Call { form: Form::Json, body: 0, scan: Scan::from(0) };
                self.call(Form::Json, 0, rest, is_whole, shown)
            }
            Looks::Unclear if rest.len() < LONGEST_HEAD => None,
            _ => Some(self.show(rest, 1, shown)),
        }
    }

    /// A call whose text begins at `body`.
    fn call(&mut self, form: Form, body: usize, rest: &str, is_whole: bool, shown: &mut String) -> Option<usize> {
        let State::Call { scan, .. } = &mut self.state else { return None };
        let (within, is_long) = (&rest[..rest.floor_char_boundary(self.longest)], rest.len() > self.longest);
        let end = match form {
            Form::Tagged => scan.tagged(within, "</tool_call>", is_whole && !is_long),
            Form::Function => scan.tagged(within, "</function>", is_whole && !is_long),
            Form::Mistral | Form::Json => scan.value(within),
        };
        let (end, next, is_cut) = match end {
            End::Found { body, next } => (body, next, false),
            End::Open if is_long || is_whole => (within.len(), within.len(), is_long),
            End::Open => return None,
        };
        self.state = State::Text;
        if form == Form::Json {
            let written = &rest[..end];
            let calls = Some(written).filter(|_| !is_cut).and_then(|written| call::bare_json(written, &self.tools));
            return Some(match calls {
                Some(calls) => self.try_on(written, calls),
                None => self.show(rest, end, shown),
            });
        }
        self.read += end;
        if is_cut || self.read > self.longest {
            let reason = format!("the call is too long; of all calls at most {} bytes are read", self.longest);
            self.calls.push(self.tools.unreadable(&reason, ""));
            self.state = if is_cut { State::Until("</tool_call>", Shown::No) } else { State::Dropped };
            return Some(next);
        }
        let inside = &rest[body..end];
        match form {
            Form::Function => self.calls.push(call::function(&rest["<function=".len()..end], &self.tools)),
            Form::Mistral => {
                let name = rest[MISTRAL.len()..body].split('[').next().unwrap_or_default().trim();
                match name.is_empty() {
                    true => self.calls.extend(call::json(inside, &self.tools)),
                    false => self.calls.push(self.tools.judge(name, inside)),
                }
            }
            Form::Tagged | Form::Json => {
                let name = call::attribute(&rest[..body], "name");
                self.calls.extend(call::tagged(inside, name.as_deref(), &self.tools));
            }
        }
        self.malformed += usize::from(self.calls.last().is_some_and(|call| call.malformed.is_some()));
        if self.malformed == MOST_MALFORMED {
            self.state = State::Dropped;
        }
        Some(next)
    }

    /// Shows text up to `end`, or drops it, and says how much that is.
    fn until(&mut self, rest: &str, end: &'static str, how: Shown, is_whole: bool, shown: &mut String) -> usize {
        let length = match rest.find(end) {
            Some(place) => {
                self.state = State::Text;
                place + end.len()
            }
            None if is_whole => rest.len(),
            // The end may have begun.
            None => (0..end.len())
                .rev()
                .find(|begun| rest.ends_with(&end[..*begun]))
                .map_or(rest.len(), |begun| rest.len() - begun),
        };
        if how == Shown::Yes { self.show(rest, length, shown) } else { length }
    }

    /// A run of backticks or tildes.
    fn marks(&mut self, rest: &str, is_whole: bool, shown: &mut String) -> Option<usize> {
        let mark = rest.as_bytes()[0];
        let counted = rest.bytes().skip(self.seen).position(|byte| byte != mark);
        let length = match counted {
            Some(more) => PIECE.min(self.seen + more),
            None if is_whole || rest.len() >= PIECE => PIECE.min(rest.len()),
            None => {
                self.seen = rest.len();
                return None;
            }
        };
        if self.line_is_blank && self.ticks == 0 && length >= 3 {
            return self.fence(Fence { mark, length }, rest, is_whole, shown);
        }
        let ticks = match self.ticks {
            _ if mark == b'~' => self.ticks,
            0 => length,
            open if open == length => 0,
            open => open,
        };
        let taken = self.show(rest, length, shown);
        self.ticks = ticks;
        Some(taken)
    }

    /// A fence at the beginning of a line. It is held back if calls follow at once.
    fn fence(&mut self, fence: Fence, rest: &str, is_whole: bool, shown: &mut String) -> Option<usize> {
        let line = rest[..rest.floor_char_boundary(fence.length + LONGEST_HEAD)].find('\n').map(|end| end + 1);
        let body = match line {
            Some(body) if !rest[fence.length..body].contains('`') => body,
            None if !is_whole && rest.len() < fence.length + LONGEST_HEAD => return None,
            _ => {
                let taken = self.show(rest, fence.length, shown);
                self.ticks = if fence.mark == b'`' { fence.length } else { 0 };
                return Some(taken);
            }
        };
        let inside = head(&rest[body..]).trim_start();
        let may_begin = |tag: &str| inside.starts_with(tag) || tag.starts_with(inside) && !is_whole;
        let looks = match inside.bytes().next() {
            Some(b'{') => json_looks(inside, is_whole),
            Some(b'[') if inside.starts_with(MISTRAL) => Looks::LikeACall,
            Some(b'[') if may_begin(MISTRAL) => Looks::Unclear,
            Some(b'[') => json_looks(inside, is_whole),
            _ => match [CALL, "<function="].into_iter().find(|tag| may_begin(tag)) {
                Some(tag) if inside.starts_with(tag) => Looks::LikeACall,
                Some(_) => Looks::Unclear,
                None => Looks::LikeText,
            },
        };
        match looks {
            Looks::LikeACall => {
                self.state = State::Held { fence, body };
                self.seen = body;
                self.held(fence, body, rest, is_whole, shown)
            }
            Looks::Unclear if rest.len() - body < LONGEST_HEAD && !is_whole => None,
            _ => {
                self.state = State::Code(fence);
                Some(self.show(rest, body, shown))
            }
        }
    }

    /// A fence that may hold calls. It is read when it is complete.
    fn held(&mut self, fence: Fence, body: usize, rest: &str, is_whole: bool, shown: &mut String) -> Option<usize> {
        let mut line = self.seen;
        let (end, next, known) = loop {
            let Some(length) = rest[line..].find('\n') else {
                if is_whole {
                    let end = if fence.closes(&rest[line..]) { line } else { rest.len() };
                    break (end, rest.len(), rest.len());
                }
                self.seen = line;
                if rest.len() <= self.longest {
                    return None;
                }
                self.state = State::Code(fence);
                return Some(self.show(rest, line, shown));
            };
            if fence.closes(&rest[line..line + length]) {
                break (line, line + length, line + length + 1);
            }
            line += length + 1;
        };
        self.state = State::Text;
        if known > self.longest {
            return Some(self.show(rest, next, shown));
        }
        let mut visible = String::new();
        let mut inside = Parser { is_inside: true, longest: self.longest, ..Parser::over(Arc::clone(&self.tools)) };
        inside.push(&rest[body..end], &mut visible);
        let calls = inside.end(&mut visible);
        Some(match calls.is_empty() || !visible.trim().is_empty() {
            true => self.show(rest, next, shown),
            false => self.try_on(&rest[..next], calls),
        })
    }

    fn code(&mut self, fence: Fence, rest: &str, is_whole: bool, shown: &mut String) -> Option<usize> {
        let line = match rest.find('\n') {
            Some(end) => end + 1,
            None if !is_whole && self.line_is_blank && fence.may_close(rest) => return None,
            None => rest.len(),
        };
        if self.line_is_blank && fence.closes(&rest[..line]) {
            self.state = State::Text;
        }
        Some(self.show(rest, line, shown))
    }

    /// Takes calls for calls as long as no text follows, and says how much text that was.
    fn try_on(&mut self, written: &str, calls: Vec<ToolCall>) -> usize {
        self.read += written.len();
        let tentative = self.tentative.get_or_insert_with(|| Tentative { written: String::new(), calls: Vec::new() });
        tentative.written.push_str(&self.blank);
        tentative.written.push_str(written);
        tentative.calls.extend(calls);
        self.blank.clear();
        self.line_is_blank = true;
        written.len()
    }

    /// No text follows: what was taken for calls is calls.
    fn commit(&mut self) {
        if let Some(tentative) = self.tentative.take() {
            self.calls.extend(tentative.calls);
        }
    }
}

impl fmt::Debug for Parser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parser").field("calls", &self.calls.len()).finish_non_exhaustive()
    }
}

/// What is looked at to see what a text begins with.
fn head(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_HEAD)]
}

/// The bytes at which something other than text may begin.
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let bytes = *b"<`~[{";
    let mut nth = 0;
    while nth < bytes.len() {
        special[bytes[nth] as usize] = true;
        nth += 1;
    }
    special
};
