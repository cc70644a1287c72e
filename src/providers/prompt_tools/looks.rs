//! Lookahead: does a text begin with a call or a mere mention, or is more text needed? Plain functions.

use super::mark::{Begins, Mark, TagKind};
use super::offered_tools::{OfferedTools, plain_name};

/// The result of a lookahead: a call, text, or incomplete, if more text is needed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Lookahead {
    Call,
    Text,
    Incomplete,
}

/// The beginning of the tag of a call.
pub(super) const CALL: &str = "<tool_call";
/// The beginning of Mistral's calls.
pub(super) const MISTRAL: &str = "[TOOL_CALLS]";
/// The longest opening tag, info string or space that lookahead waits for, in bytes.
pub(super) const MAX_HEAD: usize = 1024;
/// The longest word that may name a call within a block, in bytes.
const MAX_WORD: usize = 80;

/// Returns whether the text behind `<tool_call>` is a call: an element, JSON, a fence, the name of a tool, or `name:`.
pub(super) fn call_looks(inside: &str, tools: &OfferedTools, is_whole: bool) -> Lookahead {
    match inside.bytes().next() {
        None => Lookahead::Incomplete,
        Some(b'{' | b'[') => Lookahead::Call,
        Some(b'`') if inside.starts_with("```") => Lookahead::Call,
        Some(b'`') if inside.len() < 3 && !is_whole => Lookahead::Incomplete,
        Some(b'<') if inside.len() == 1 && !is_whole => Lookahead::Incomplete,
        Some(b'<') if inside[1..].starts_with(|c: char| c.is_ascii_alphabetic()) => Lookahead::Call,
        Some(_) if inside.starts_with("name:") || inside.starts_with("Name:") => Lookahead::Call,
        Some(_) => {
            let is_end = |c: char| c.is_whitespace() || matches!(c, '<' | '{' | '(');
            let word = inside.split(is_end).next().unwrap_or_default();
            // More letters may follow.
            let may_go_on = word.len() == inside.len() && !is_whole;
            if may_go_on && word.len() <= 64 {
                Lookahead::Incomplete
            } else if !may_go_on && !word.is_empty() && tools.contains(word) {
                Lookahead::Call
            } else {
                Lookahead::Text
            }
        }
    }
}

/// Returns whether the text behind another tag of calls is a call: JSON, elements, a fence, code, or the name of a
/// tool.
pub(super) fn block_looks(inside: &str, tools: &OfferedTools, is_whole: bool) -> Lookahead {
    let is_end = |c: char| !c.is_alphanumeric() && !"_-.:".contains(c);
    let word = inside.split(is_end).next().unwrap_or_default();
    let behind = &inside[word.len()..];
    match inside.bytes().next() {
        None => Lookahead::Incomplete,
        Some(b'{' | b'[' | b'`') => Lookahead::Call,
        Some(b'<') if inside.len() == 1 && !is_whole => Lookahead::Incomplete,
        Some(b'<') if !inside[1..].starts_with([' ', '/']) => Lookahead::Call,
        _ if word.len() > MAX_WORD => Lookahead::Text,
        _ if behind.is_empty() && !is_whole => Lookahead::Incomplete,
        _ if behind.starts_with('(') || word.starts_with("call:") => Lookahead::Call,
        _ if word == "function" && behind.starts_with('<') || tools.contains(plain_name(word)) => Lookahead::Call,
        _ => Lookahead::Text,
    }
}

/// Returns whether the text behind the name in `<function=…` is a call, from the byte behind the name on.
pub(super) fn function_looks(inside: &str, is_whole: bool) -> Lookahead {
    let inside = inside.trim_start();
    if inside.starts_with('{') || inside.starts_with("({") || inside.starts_with("()") {
        return Lookahead::Call;
    }
    let Some(inside) = inside.strip_prefix('>') else {
        return if (inside.is_empty() || inside == "(") && !is_whole { Lookahead::Incomplete } else { Lookahead::Text };
    };
    let inside = inside.trim_start();
    let tags = ["{", "<parameter", "<PARAMETER", "</function>", "```", "\"", "</tool_call>"];
    if tags.into_iter().any(|tag| inside.starts_with(tag)) {
        Lookahead::Call
    } else if !is_whole && tags.into_iter().any(|tag| tag.starts_with(inside)) {
        Lookahead::Incomplete
    } else {
        Lookahead::Text
    }
}

/// Returns the position of the JSON behind `[TOOL_CALLS]`, or behind the name and the markers that may stand between.
pub(super) fn mistral_arguments(text: &str, is_whole: bool) -> Result<usize, Lookahead> {
    let is_name = |c: char| c.is_alphanumeric() || c.is_whitespace() || "_-.".contains(c);
    let mut at = MISTRAL.len();
    loop {
        at = text.len() - text[at..].trim_start_matches(is_name).len();
        let rest = &text[at..];
        match MARKERS.iter().find(|marker| rest.starts_with(**marker)) {
            _ if at > MAX_HEAD => return Err(Lookahead::Text),
            Some(marker) => at += marker.len(),
            None if !is_whole && MARKERS.iter().any(|marker| marker.starts_with(rest)) => {
                return Err(Lookahead::Incomplete);
            }
            None if rest.starts_with(['{', '[']) => return Ok(at),
            None => return Err(Lookahead::Text),
        }
    }
}

/// The markers between Mistral's names and arguments.
const MARKERS: [&str; 2] = ["[CALL_ID]", "[ARGS]"];

/// Returns whether JSON begins as a call does: an object whose first key names a tool or its arguments, or an array of
/// such objects.
pub(super) fn json_looks(text: &str, is_whole: bool) -> Lookahead {
    const KEYS: [&str; 19] = [
        "name",
        "tool",
        "tool_name",
        "function",
        "action",
        "type",
        "id",
        "arguments",
        "parameters",
        "args",
        "input",
        "action_input",
        "tool_input",
        "call_id",
        "tool_call_id",
        "tool_calls",
        "tool_call",
        "function_call",
        "function_name",
    ];
    let object = text.strip_prefix('[').map_or(text, str::trim_start);
    let key = object.strip_prefix('{').map(str::trim_start);
    let word = key.and_then(|key| key.strip_prefix(['"', '\'']));
    let Some(word) = word else {
        let is_open = object.is_empty() || key == Some("");
        return if is_open && !is_whole { Lookahead::Incomplete } else { Lookahead::Text };
    };
    match word.find(['"', '\'']) {
        Some(end) if KEYS.contains(&&word[..end]) => Lookahead::Call,
        None if !is_whole && KEYS.iter().any(|key| key.starts_with(word)) => Lookahead::Incomplete,
        _ => Lookahead::Text,
    }
}

/// Returns whether a `[` begins calls that are written as code, `[f(a=1)]`.
pub(super) fn code_looks(text: &str, tools: &OfferedTools, is_whole: bool) -> Lookahead {
    let inside = text[1..].trim_start();
    let is_end = |c: char| !c.is_alphanumeric() && !"_-.".contains(c);
    let word = inside.split(is_end).next().unwrap_or_default();
    let behind = inside[word.len()..].trim_start();
    if behind.is_empty() && !is_whole && (word.is_empty() || tools.begins(word)) {
        Lookahead::Incomplete
    } else if behind.starts_with('(') && tools.contains(word) {
        Lookahead::Call
    } else {
        Lookahead::Text
    }
}

/// The known beginnings of a line.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    /// The name of a tool from `name.0` to `name.1`, and its arguments as JSON from `body` on.
    Named {
        name: (usize, usize),
        body: usize,
        how: Named,
    },
    /// The name of a tool and a `(`. The call begins at `body`.
    Code {
        body: usize,
    },
    /// Text before a call that is not part of it; its length in bytes.
    Passed(usize),
    /// A call that cannot be read.
    Unreadable,
    /// The beginning of reasoning of GPT-OSS without its tags; its length in bytes.
    Thought(usize),
    /// A made-up result.
    Result,
    Text,
    Incomplete,
}

/// The form of a named call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Named {
    /// The arguments follow the name.
    Plain,
    /// The arguments stand in a fence behind the name.
    Fenced,
    /// A word marks it as a call.
    Marked,
    /// A word marks it as a call, and the arguments stand in a fence.
    MarkedFenced,
}

/// The first bytes of the words that a line may begin with, except names of tools.
pub(super) const LEADS: &[u8] = b"A*faOc>\xE3";

/// Reads the beginning of a line.
pub(super) fn line_looks(text: &str, tools: &OfferedTools, is_whole: bool) -> Line {
    let is_whole = is_whole || text.len() >= MAX_HEAD;
    let text = &text[..text.floor_char_boundary(MAX_HEAD)];
    let line = Reader { text, tools, is_whole };
    let bold = text.trim_start_matches('*');
    let unclear = |words: &[&str], text: &str| !is_whole && words.iter().any(|word| word.starts_with(text));
    if bold.starts_with("Action:") {
        return line.react(text.len() - bold.len() + "Action:".len());
    }
    if text.starts_with("Observation:") {
        return Line::Result;
    }
    if bold.is_empty() && !is_whole || unclear(&["Action:", "Observation:"], bold) {
        return Line::Incomplete;
    }
    if bold.len() < text.len() {
        return Line::Text;
    }
    if text.starts_with("functools[") {
        return Line::Passed("functools".len());
    }
    if unclear(
        &["functools[", "analysis", "assistantfinal", "assistantcommentary to=", "commentary to=", ">>>", "functions."],
        text,
    ) {
        return Line::Incomplete;
    }
    if let Some(behind) = text.strip_prefix("assistantfinal") {
        return Line::Passed(text.len() - behind.len());
    }
    if let Some(behind) = text.strip_prefix("assistantcommentary to=").or_else(|| text.strip_prefix("commentary to=")) {
        return line.recipient(text.len() - behind.len());
    }
    if let Some(behind) = text.strip_prefix("analysis").filter(|behind| behind.starts_with(|c: char| c.is_uppercase()))
    {
        return Line::Thought(text.len() - behind.len());
    }
    if let Some(behind) = text.strip_prefix(">>>") {
        return line.named(text.len() - behind.len(), true);
    }
    const SEPARATOR: &str = "<｜tool▁sep｜>";
    match text.strip_prefix("function").filter(|_| !tools.contains("function")) {
        Some(behind) if !is_whole && SEPARATOR.starts_with(behind) => Line::Incomplete,
        Some(behind) if behind.starts_with(SEPARATOR) => line.named(text.len() - behind.len() + SEPARATOR.len(), true),
        Some(behind)
            if behind.starts_with([' ', '\n'])
                || tools.begins(behind.split(Reader::is_end).next().unwrap_or_default()) =>
        {
            match line.named(text.len() - behind.trim_start().len(), true) {
                named @ (Line::Incomplete | Line::Named { how: Named::MarkedFenced, .. }) => named,
                _ => Line::Text,
            }
        }
        _ => line.named(0, false),
    }
}

struct Reader<'a> {
    text: &'a str,
    tools: &'a OfferedTools,
    is_whole: bool,
}

impl Reader<'_> {
    fn is_end(c: char) -> bool {
        !c.is_alphanumeric() && !"_-.:".contains(c)
    }

    /// Returns the result if the text ends here.
    fn open(&self) -> Line {
        if self.is_whole { Line::Text } else { Line::Incomplete }
    }

    /// Reads a name, and what stands behind it.
    fn named(&self, at: usize, is_marked: bool) -> Line {
        let word = self.text[at..].split(Self::is_end).next().unwrap_or_default();
        let end = at + word.len();
        let name = plain_name(word);
        if end == self.text.len() {
            let may_be = word.is_empty()
                || self.tools.begins(name)
                || self.tools.contains(name.split([':', '.']).next().unwrap_or_default());
            return if may_be { self.open() } else { Line::Text };
        }
        if !self.tools.contains(name) {
            // The form of Llama's built-in tools.
            let is_call = name.strip_suffix(".call").is_some_and(|name| self.tools.contains(name));
            return if is_call && self.text[end..].starts_with('(') { Line::Code { body: end } } else { Line::Text };
        }
        let begin = at + (word.len() - word.strip_prefix("functions.").unwrap_or(word).len());
        let name = (begin, begin + name.len());
        match self.text.as_bytes()[end] {
            b'[' => self.marked(name, end),
            b'(' if !is_marked => Line::Code { body: end },
            _ => self.arguments(name, end, is_marked),
        }
    }

    /// Reads `[ARGS]` and similar markers, from `at` on.
    fn marked(&self, name: (usize, usize), mut at: usize) -> Line {
        let mut is_marked = false;
        loop {
            let rest = &self.text[at..];
            match MARKERS.iter().find(|marker| rest.starts_with(**marker)) {
                Some(marker) => at += marker.len(),
                None if MARKERS.iter().any(|marker| marker.starts_with(rest)) => return self.open(),
                None if is_marked && rest.starts_with('{') => {
                    return Line::Named { name, body: at, how: Named::Marked };
                }
                None => return Line::Text,
            }
            is_marked = true;
            // The id of the call.
            at = self.text.len() - self.text[at..].trim_start_matches(char::is_alphanumeric).len();
        }
    }

    /// Reads the arguments behind a name, or behind `Action Input:`.
    fn arguments(&self, name: (usize, usize), at: usize, is_marked: bool) -> Line {
        let rest = self.text[at..].trim_start();
        let at = self.text.len() - rest.len();
        if rest.starts_with('{') {
            let how = if is_marked { Named::Marked } else { Named::Plain };
            return Line::Named { name, body: at, how };
        }
        let Some(fenced) = rest.strip_prefix("```") else {
            return if "```".starts_with(rest) { self.open() } else { Line::Text };
        };
        let inside = fenced.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').trim_start();
        match inside.bytes().next() {
            None => self.open(),
            Some(b'{') => {
                let how = if is_marked { Named::MarkedFenced } else { Named::Fenced };
                Line::Named { name, body: self.text.len() - inside.len(), how }
            }
            Some(_) => Line::Text,
        }
    }

    /// Reads `f`, a line break and `Action Input: {…}`, behind `Action:`.
    fn react(&self, at: usize) -> Line {
        let rest = self.text[at..].trim_start_matches([' ', '*', '`']);
        if self.text[at..].trim_start_matches([' ', '*']).starts_with("```") {
            return Line::Passed(self.text.len() - self.text[at..].trim_start_matches([' ', '*']).len());
        }
        if rest.is_empty() {
            return self.open();
        }
        let at = self.text.len() - rest.len();
        let word = rest.split(Self::is_end).next().unwrap_or_default();
        let name = (at, at + plain_name(word).len());
        let behind = rest[word.len()..].trim_start_matches([' ', '*', '`', '\r']);
        let is_known = self.tools.contains(plain_name(word));
        let unreadable = || if is_known { Line::Unreadable } else { Line::Text };
        if word.is_empty() {
            return Line::Text;
        }
        if is_known && rest[word.len()..].starts_with('(') {
            return Line::Passed(at);
        }
        let Some(behind) = behind.strip_prefix('\n') else {
            return if behind.is_empty() && !self.is_whole { Line::Incomplete } else { unreadable() };
        };
        let behind = behind.trim_start().trim_start_matches('*');
        const INPUT: &str = "Action Input:";
        let is_begun = |length: usize| {
            behind.get(..length).zip(INPUT.get(..length)).is_some_and(|(one, other)| one.eq_ignore_ascii_case(other))
        };
        if !is_begun(INPUT.len()) {
            return if is_begun(behind.len()) && !self.is_whole { Line::Incomplete } else { unreadable() };
        }
        let input = &behind[INPUT.len()..];
        let input = input.trim_start_matches('*').trim_start();
        match self.arguments(name, self.text.len() - input.len(), true) {
            Line::Text => unreadable(),
            line => line,
        }
    }

    /// Reads `functions.f json{…}`, behind `to=`.
    fn recipient(&self, at: usize) -> Line {
        let word = self.text[at..].split(char::is_whitespace).next().unwrap_or_default();
        let end = at + word.len();
        if word.is_empty() && end < self.text.len() {
            return Line::Text;
        }
        let behind = self.text[end..].trim_start();
        if behind.is_empty() || "json".starts_with(behind) || "code".starts_with(behind) {
            return self.open();
        }
        let begin = at + (word.len() - word.strip_prefix("functions.").unwrap_or(word).len());
        let behind = behind.strip_prefix("json").or_else(|| behind.strip_prefix("code")).unwrap_or(behind);
        self.arguments((begin, end), self.text.len() - behind.len(), true)
    }
}

/// The opening of a code fence.
#[derive(Clone, Copy)]
pub(super) struct Fence {
    pub(super) mark: u8,
    pub(super) length: usize,
}

impl Fence {
    /// Returns whether a line closes the fence: at least as many marks, and nothing behind them but the end of the
    /// turn.
    pub(super) fn closes(self, line: &str) -> bool {
        let line = line.trim();
        let line = match line.find('<').map(|place| (place, Mark::read(&line[place..], true))) {
            Some((place, Begins::Mark(mark))) if mark.kind() == Some(TagKind::Turn) => line[..place].trim_end(),
            _ => line,
        };
        line.len() >= self.length && line.bytes().all(|byte| byte == self.mark)
    }

    /// Returns whether an incomplete line may still close the fence.
    pub(super) fn may_close(self, line: &str) -> bool {
        let line = line.trim();
        let line = line.split('<').next().filter(|marks| !marks.is_empty()).unwrap_or(line);
        line.len() < MAX_HEAD && line.trim().bytes().all(|byte| byte == self.mark)
    }
}
