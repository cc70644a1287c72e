//! Regions of text with rules of their own: reasoning, inline code, fences, and text up to a known end.

use super::*;

impl Parser {
    /// Reads a tag that opens reasoning at the beginning of a line. Elsewhere it is a mention, unless its end follows.
    pub(super) fn reasoning(
        &mut self,
        closes: Closes,
        end: usize,
        input: Input<'_>,
        shown: &mut String,
    ) -> Option<usize> {
        let Input { rest, .. } = input;
        let is_mention = self.lead().is_quoted() || !self.line_is_blank && !self.is_closed(closes, end, input)?;
        if is_mention {
            return Some(self.show(rest, end, shown));
        }
        self.think(closes);
        Some(end)
    }

    /// Reads the end of reasoning that was not opened: at the beginning or the end of a line, or at the end of a
    /// sentence.
    pub(super) fn reasoning_end(&mut self, end: usize, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, is_whole } = input;
        let behind = head(&rest[end..]);
        let visible = behind.trim_start_matches([' ', '\t', '\r']);
        if visible.is_empty() && behind.len() < MAX_HEAD && !is_whole {
            return None;
        }
        let is_glued = self.line_is_blank || self.has_calls() || !self.before.ends_with(char::is_whitespace);
        match !self.lead().is_quoted() && (is_glued || visible.is_empty() || visible.starts_with('\n')) {
            true => self.was_reasoning(),
            false => {
                self.show(rest, end, shown);
            }
        }
        Some(end)
    }

    /// Returns whether the region that begins here has an end; `None` if more text is needed. A region that is too long
    /// to be held back counts as closed.
    pub(super) fn is_closed(&mut self, closes: Closes, from: usize, input: Input<'_>) -> Option<bool> {
        let Input { rest, is_whole } = input;
        if self.unclosed.iter().any(|other| other.is_same(closes)) {
            return Some(false);
        }
        let within = &rest[..rest.floor_char_boundary(self.longest)];
        let is_final = is_whole || within.len() < rest.len();
        let first = if let Closes::Text(close) = closes { close.as_bytes()[0] } else { b'<' };
        let mut at = self.seen.max(from);
        while let Some(place) = within.as_bytes().get(at..)?.iter().position(|byte| *byte == first) {
            at += place;
            match closed(&within[at..], closes, is_final) {
                Closed::Yes(_) => return Some(true),
                Closed::Incomplete => {
                    self.seen = at;
                    return None;
                }
                Closed::No => at += 1,
            }
        }
        self.seen = within.len();
        if is_final && within.len() == rest.len() {
            self.unclosed.push(closes);
        }
        is_final.then_some(within.len() < rest.len())
    }

    pub(super) fn think(&mut self, closes: Closes) {
        if !self.reasoning.is_empty() && !self.reasoning.ends_with('\n') {
            self.reasoning.push('\n');
        }
        self.state = State::Reasoning(closes);
    }

    /// Marks all text so far as reasoning.
    pub(super) fn was_reasoning(&mut self) {
        self.calls.clear();
        self.malformed = 0;
        self.tentative = None;
        self.blank.clear();
        self.before.clear();
        self.has_marker = false;
        self.has_text = false;
        self.line_is_blank = true;
        self.skips_space = true;
        self.reasoned = self.shown;
    }

    /// Reads reasoning in other brackets, or text.
    pub(super) fn thought_in_brackets(&mut self, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, .. } = input;
        match self.thought_in_brackets_if_any(input, shown) {
            Some(step) => step,
            None => {
                let first = rest.chars().next().map_or(1, char::len_utf8);
                Some(self.show(rest, first, shown))
            }
        }
    }

    pub(super) fn thought_in_brackets_if_any(&mut self, input: Input<'_>, shown: &mut String) -> Option<Option<usize>> {
        let Input { rest, is_whole } = input;
        if self.open_backticks > 0 {
            return None;
        }
        let begins = |word: &str| rest.get(..word.len()).is_some_and(|text| text.eq_ignore_ascii_case(word));
        if let Some((open, close)) = BRACKETS.iter().find(|(open, _)| begins(open)) {
            // A `(` behind the bracket makes it a link.
            return match rest.as_bytes().get(open.len()) {
                Some(b'(') => None,
                None if !is_whole => Some(None),
                _ => Some(self.reasoning(Closes::Text(close), open.len(), input, shown)),
            };
        }
        if let Some((_, close)) = BRACKETS.iter().find(|(_, close)| begins(close)) {
            return Some(self.reasoning_end(close.len(), input, shown));
        }
        let lower = head(rest).len() < 16;
        let may_be = |word: &str| word.len() > rest.len() && word.starts_with(&rest.to_ascii_lowercase());
        let waits = lower && !is_whole && BRACKETS.iter().any(|(open, close)| may_be(open) || may_be(close));
        waits.then_some(None)
    }

    /// Skips reasoning, and returns how many bytes certainly belong to it.
    pub(super) fn reason(&mut self, input: Input<'_>, closes: Closes) -> usize {
        let Input { rest, is_whole } = input;
        let mut at = 0;
        let first = if let Closes::Text(close) = closes { close.as_bytes()[0] } else { b'<' };
        loop {
            let found = match closes {
                Closes::Untagged => rest[at..].find("assistant"),
                _ => rest.as_bytes()[at..].iter().position(|byte| *byte == first),
            };
            let Some(found) = found else {
                let held = if matches!(closes, Closes::Untagged) && !is_whole { partial(rest, "assistant") } else { 0 };
                let end = rest.len().max(at) - held;
                self.reasoning.push_str(&rest[..end]);
                return end;
            };
            at += found;
            match closed(&rest[at..], closes, is_whole) {
                Closed::Yes(length) => {
                    self.reasoning.push_str(&rest[..at]);
                    self.state = State::Text;
                    if !self.has_text {
                        self.blank.clear();
                        self.line_is_blank = true;
                        self.skips_space = true;
                    }
                    return at + length;
                }
                Closed::Incomplete => {
                    self.reasoning.push_str(&rest[..at]);
                    return at;
                }
                Closed::No => at += 1,
            }
        }
    }

    /// Shows or drops the text up to `end`, and returns the number of bytes.
    pub(super) fn until(&mut self, input: Input<'_>, end: &'static str, how: Shown, shown: &mut String) -> usize {
        let Input { rest, is_whole } = input;
        let length = match rest.find(end) {
            Some(place) => {
                self.state = State::Text;
                place + end.len()
            }
            None if is_whole => rest.len(),
            None => rest.len() - partial(rest, end),
        };
        if how == Shown::Yes { self.show(rest, length, shown) } else { length }
    }

    /// Reads a run of backticks or tildes.
    pub(super) fn marks(&mut self, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, is_whole } = input;
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
        if self.line_is_blank && self.open_backticks == 0 && length >= 3 {
            return self.fence(Fence { mark, length }, input, shown);
        }
        let is_letter = |c: char| c.is_alphanumeric();
        let is_apostrophe = length == 1 && self.before.ends_with(is_letter) && rest[1..].starts_with(is_letter);
        let ticks = match self.open_backticks {
            _ if mark == b'~' => self.open_backticks,
            0 if is_apostrophe => 0,
            0 => length,
            open if open == length => 0,
            open => open,
        };
        let taken = self.show(rest, length, shown);
        self.open_backticks = ticks;
        Some(taken)
    }

    /// Reads a fence at the beginning of a line. It is held back if calls follow directly.
    pub(super) fn fence(&mut self, fence: Fence, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, is_whole } = input;
        let line = rest[..rest.floor_char_boundary(fence.length + MAX_HEAD)].find('\n').map(|end| end + 1);
        let body = match line {
            Some(body) if !rest[fence.length..body].contains('`') => body,
            None if !is_whole && rest.len() < fence.length + MAX_HEAD => return None,
            _ => {
                let taken = self.show(rest, fence.length, shown);
                self.open_backticks = if fence.mark == b'`' { fence.length } else { 0 };
                return Some(taken);
            }
        };
        let holds = match rest[fence.length..body].trim() {
            "tool_code" => Holds::Code,
            "tool_call" | "tool_calls" | "tool_use" | "function_call" | "function_calls" => Holds::Calls,
            "thought" | "thoughts" | "thinking" | "reasoning" => {
                self.state = State::Code(fence);
                return Some(self.show(rest, body, shown));
            }
            "tool_output" | "tool_result" if self.has_calls() => {
                self.commit();
                self.state = State::Dropped;
                return Some(rest.len());
            }
            _ => Holds::Anything,
        };
        let inside = head(&rest[body..]).trim_start();
        let looks = match holds {
            Holds::Anything => self.fence_looks(inside, is_whole),
            _ => Lookahead::Call,
        };
        match looks {
            Lookahead::Call if self.is_meant_in_a_fence() => {
                self.state = State::Held { fence, body, holds };
                self.seen = body;
                self.held(fence, body, holds, input, shown)
            }
            Lookahead::Incomplete if rest.len() - body < MAX_HEAD && !is_whole => None,
            _ => {
                self.before_fence = (looks == Lookahead::Call).then(|| self.before.clone());
                self.state = State::Code(fence);
                Some(self.show(rest, body, shown))
            }
        }
    }

    pub(super) fn is_meant_in_a_fence(&self) -> bool {
        !self.is_in_element() && self.listed.is_none() && self.lead().is_meant_in_a_fence()
    }

    pub(super) fn fence_looks(&self, inside: &str, is_whole: bool) -> Lookahead {
        let may_begin = |tag: &str| inside.starts_with(tag) || tag.starts_with(inside) && !is_whole;
        match inside.bytes().next() {
            Some(b'{') => json_looks(inside, is_whole),
            Some(b'[') if inside.starts_with(MISTRAL) => Lookahead::Call,
            Some(b'[') if may_begin(MISTRAL) => Lookahead::Incomplete,
            Some(b'[') => match code_looks(inside, &self.tools, is_whole) {
                Lookahead::Text => json_looks(inside, is_whole),
                looks => looks,
            },
            Some(b'<') => match Mark::read(inside, is_whole) {
                Begins::Mark(mark) if is_opening(&mark) => Lookahead::Call,
                Begins::Incomplete if mark::may_begin(inside) => Lookahead::Incomplete,
                _ => Lookahead::Text,
            },
            None => Lookahead::Incomplete,
            Some(_) => Lookahead::Text,
        }
    }

    /// Reads a fence that may hold calls, once it is complete.
    pub(super) fn held(
        &mut self,
        fence: Fence,
        body: usize,
        holds: Holds,
        input: Input<'_>,
        shown: &mut String,
    ) -> Option<usize> {
        let rest = input.rest;
        let Some((end, next, known)) = self.end_of_fence(fence, input) else {
            if rest.len() <= self.longest {
                return None;
            }
            self.state = State::Code(fence);
            return Some(self.show(rest, self.seen, shown));
        };
        self.state = State::Text;
        if known > self.longest {
            return Some(self.show(rest, next, shown));
        }
        Some(match self.calls_in_fence(&rest[body..end], holds) {
            Some(calls) if holds == Holds::Anything => self.hold_as_calls(&rest[..next], calls, true, shown),
            Some(calls) => {
                self.commit();
                self.read += next;
                self.add(calls);
                next
            }
            None => {
                self.has_marker |= holds != Holds::Anything;
                self.show(rest, next, shown)
            }
        })
    }

    /// Returns the end of what a fence holds, the position where the text goes on, and the length of the text that
    /// shows both. `None`: the fence has no end yet, and `seen` is the beginning of the line that may close it.
    fn end_of_fence(&mut self, fence: Fence, input: Input<'_>) -> Option<(usize, usize, usize)> {
        let Input { rest, is_whole } = input;
        let mut line = self.seen;
        while let Some(length) = rest[line..].find('\n') {
            if fence.closes(&rest[line..line + length]) {
                return Some((line, line + length, line + length + 1));
            }
            line += length + 1;
        }
        if is_whole {
            let end = if fence.closes(&rest[line..]) { line } else { rest.len() };
            return Some((end, rest.len(), rest.len()));
        }
        self.seen = line;
        None
    }

    /// Reads the calls that fill a fence.
    fn calls_in_fence(&self, inside: &str, holds: Holds) -> Option<Vec<ToolCall>> {
        let code = if holds == Holds::Code { call::code(inside, &self.tools) } else { None };
        code.or_else(|| {
            let read = self.inside().read(inside);
            Some(read.calls).filter(|calls| !calls.is_empty() && read.text.trim().is_empty())
        })
    }

    pub(super) fn code(&mut self, fence: Fence, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, is_whole } = input;
        let line = match rest.find('\n') {
            Some(end) => end + 1,
            None if !is_whole && self.line_is_blank && fence.may_close(rest) => return None,
            None => rest.len(),
        };
        let is_end = self.line_is_blank && fence.closes(&rest[..line]);
        self.show(rest, line, shown);
        if is_end {
            self.state = State::Text;
            if let Some(before) = self.before_fence.take() {
                (self.before, self.listed) = (before, Some(Is::Quoted));
            }
        }
        Some(line)
    }
}

enum Closed {
    Yes(usize),
    No,
    Incomplete,
}

/// Returns whether reasoning is closed at the beginning of a text.
fn closed(text: &str, closes: Closes, is_whole: bool) -> Closed {
    let unclear = |may_be: bool| if may_be && !is_whole { Closed::Incomplete } else { Closed::No };
    match closes {
        Closes::Text(close) => match text.get(..close.len()) {
            Some(begin) if begin.eq_ignore_ascii_case(close) => Closed::Yes(close.len()),
            Some(_) => Closed::No,
            None => unclear(text.len() < close.len() && close.starts_with(&text.to_ascii_lowercase())),
        },
        Closes::Untagged => {
            let ends = ["assistantfinal", "assistantcommentary to="];
            match ends.iter().find(|end| text.starts_with(**end)) {
                Some(_) => Closed::Yes(0),
                None => unclear(ends.iter().any(|end| end.starts_with(text))),
            }
        }
        Closes::Tag(_) | Closes::Message => match Mark::read(text, is_whole) {
            Begins::Mark(mark) => match (closes, mark.end, mark.word()) {
                (Closes::Tag(opening), Some(end), _) if mark.closes(opening.word()) => Closed::Yes(end),
                (Closes::Message, Some(end), "end" | "return" | "call") => Closed::Yes(end),
                (Closes::Message, Some(_), "start" | "channel") => Closed::Yes(0),
                _ => Closed::No,
            },
            Begins::Incomplete => unclear(mark::may_begin(text)),
            Begins::Text => Closed::No,
        },
    }
}

/// Returns the length of the end of a text that may be the beginning of `end`.
fn partial(text: &str, end: &str) -> usize {
    let begins = |begun: &usize| end.is_char_boundary(*begun) && text.ends_with(&end[..*begun]);
    (0..end.len()).rev().find(begins).unwrap_or(0)
}
