//! The search for the end of a tool call. It reads each byte once, in pieces of any size.
//!
//! A close tag within a JSON string belongs to the string. The scan only finds the end; `call` reads the text.

use super::mark::{self, Begins, Mark, TagKind};

/// The maximum length of the text of calls that is read, for one call and for all of an answer, in bytes: the longest
/// arguments, and the tags around them.
pub(super) const MAX_CALL: usize = crate::builtin::MAX_ARGUMENTS_BYTES + 4096;

/// The state of the search for the end of one call.
#[derive(Clone, Copy, Default)]
pub(super) struct Scan {
    /// The position up to which the text was read.
    at: usize,
    /// The number of open braces and brackets.
    depth: usize,
    mode: Mode,
    /// `true` if a tag is open that stands for an element.
    in_element: bool,
    /// `true` if the arguments are over, so that text behind them is not part of the call.
    is_complete: bool,
    /// The quotation mark around the string that the scan is in.
    quote: u8,
    /// `true` if the scan reads code, in which `(` and `'` have a meaning.
    is_code: bool,
    /// The end of the call if the current value has no end of its own.
    ended: Option<(usize, usize)>,
    /// `true` if the call begins with JSON, so that text behind it is not part of the call.
    is_json: bool,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Mode {
    /// Between tags, or within JSON if a brace is open.
    #[default]
    Plain,
    /// Within a tag.
    Tag,
    String,
    Escape,
    /// Within an element whose value is raw text.
    Raw,
}

/// The result of a scan.
#[derive(Debug, PartialEq)]
pub(super) enum End {
    /// The call is `..body`; the text goes on at `next`.
    Found { body: usize, next: usize },
    /// The call goes on behind the text so far.
    Open,
}

/// Tags that begin a call, and so end a call before them whose close tag is missing.
const OPENING: [&str; 3] = ["<tool_call>", "<tool_call ", "<tool_call\n"];
/// Tags of results, which no call contains.
const RESULTS: [&str; 2] = ["<tool_result", "<tool_response"];
/// Elements whose values are raw text, up to the close tag.
const RAW: [(&str, &str); 2] = [("<parameter=", "</parameter>"), ("<arg_value>", "</arg_value>")];
/// A tag around elements; it holds no text itself.
const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
/// The end of a function as some models write it.
const FUNCTION_AGAIN: &str = "<function>";
/// The beginnings of tags that end a turn.
const TURN: [&str; 2] = ["<|", "<｜"];
/// The ends of elements that hold arguments.
const ARGUMENTS: [&str; 5] = ["</arguments>", "</parameters>", "</args>", "</input>", "</function>"];

impl Scan {
    /// Creates a scan that begins at `at`.
    pub(super) fn from(at: usize) -> Self {
        Self { at, ..Self::default() }
    }

    /// Searches the end of a call with tags around it. `text` is the previous `text` with more appended.
    pub(super) fn tagged(&mut self, text: &str, close: &str, is_whole: bool) -> End {
        while let Some(&byte) = text.as_bytes().get(self.at) {
            match (self.mode, byte) {
                (Mode::Plain, b'<') => match self.tag(&text[self.at..], close, is_whole) {
                    Tag::Ends(length) => return End::Found { body: self.at, next: self.at + length },
                    Tag::Unknown => return End::Open,
                    Tag::Passed => {}
                },
                (Mode::Plain, _) if self.depth > 0 => self.json(byte),
                (Mode::Plain, b'{' | b'[') => self.json(byte),
                (Mode::Plain, _) if self.is_complete && !self.in_element && is_text(byte) => {
                    // The space before a text belongs to it.
                    let end = text[..self.at].trim_end().len();
                    return End::Found { body: end, next: end };
                }
                (Mode::Plain, _) => self.step(),
                (Mode::Tag, b'<') => self.mode = Mode::Plain,
                (Mode::Tag, b'>') => self.turn(Mode::Plain),
                (Mode::Tag, _) => self.step(),
                (Mode::Raw, b'<') => match self.raw(&text[self.at..], close, is_whole) {
                    Tag::Ends(_) => return self.without_end(),
                    Tag::Unknown => return End::Open,
                    Tag::Passed => {}
                },
                (Mode::Raw, _) => self.step(),
                (Mode::String | Mode::Escape, _) => self.json(byte),
            }
        }
        if is_whole { self.without_end() } else { End::Open }
    }

    /// Reads a `<` in a value that is raw text. The value ends with its own tag. If that tag is missing, or comes only
    /// behind the next call, the value ended with the first end of an element around it.
    fn raw(&mut self, rest: &str, close: &str, is_whole: bool) -> Tag {
        if RAW.iter().any(|(_, end)| rest.starts_with(end)) {
            self.ended = None;
            self.turn(Mode::Tag);
            return Tag::Passed;
        }
        let ends = [FUNCTION_END, close];
        let opens = || OPENING.iter().copied().chain([FUNCTION]);
        let known = || RAW.iter().map(|(_, end)| *end).chain(ends).chain(opens());
        if !is_whole && known().any(|tag| tag.len() > rest.len() && tag.starts_with(rest)) {
            return Tag::Unknown;
        }
        if self.ended.is_some() && opens().any(|tag| rest.starts_with(tag)) {
            return Tag::Ends(0);
        }
        if rest.starts_with(close) {
            // The end of the element around it counts, if there is one.
            self.ended = match self.ended {
                Some((body, next)) if close != FUNCTION_END && next <= self.at => Some((body, self.at + close.len())),
                Some(ended) => Some(ended),
                None => Some((self.at, self.at + close.len())),
            };
        } else if rest.starts_with(FUNCTION_END) && self.ended.is_none() {
            let body = self.at + if close == FUNCTION_END { 0 } else { FUNCTION_END.len() };
            self.ended = Some((body, self.at + FUNCTION_END.len()));
        }
        self.step();
        Tag::Passed
    }

    /// Returns the end of a call whose last value has none.
    fn without_end(&self) -> End {
        self.ended.filter(|_| self.mode == Mode::Raw).map_or(End::Open, |(body, next)| End::Found { body, next })
    }

    /// Searches the end of a call that begins with a tag of this word: a tag that closes it, one that opens the next
    /// call, or text behind complete JSON.
    pub(super) fn block(&mut self, text: &str, opening: &str, is_whole: bool) -> End {
        while let Some(&byte) = text.as_bytes().get(self.at) {
            match (self.mode, byte) {
                (Mode::String | Mode::Escape, _) => self.json(byte),
                (_, b'<') => match self.mark(&text[self.at..], opening, is_whole) {
                    Tag::Ends(_) if self.mode == Mode::Raw => return self.without_end(),
                    Tag::Ends(length) => return End::Found { body: self.at, next: self.at + length },
                    Tag::Unknown => return End::Open,
                    Tag::Passed => {}
                },
                (Mode::Raw, _) => self.step(),
                (_, b'"' | b'\'') if self.depth == 0 => self.step(),
                (_, byte) if self.is_complete && self.is_json && is_text(byte) && !matches!(byte, b'{' | b'[') => {
                    let end = text[..self.at].trim_end().len();
                    return End::Found { body: end, next: end };
                }
                (_, byte) => {
                    if self.depth == 0 && matches!(byte, b'{' | b'[' | b'(') {
                        self.is_complete = false;
                    }
                    self.json(byte);
                }
            }
        }
        if is_whole { self.without_end() } else { End::Open }
    }

    /// Reads a tag within a block, outside of strings.
    fn mark(&mut self, rest: &str, opening: &str, is_whole: bool) -> Tag {
        let mark = match Mark::read(rest, is_whole) {
            // An unknown tag is text, as it was before it had arrived completely.
            Begins::Mark(mark) if mark.means_something() || mark.word() == opening => mark,
            Begins::Incomplete if mark::may_begin(rest) => return Tag::Unknown,
            _ if self.mode != Mode::Raw && self.is_json && self.is_complete && self.depth == 0 => return Tag::Ends(0),
            _ => {
                self.step();
                return Tag::Passed;
            }
        };
        let is_opening = matches!(
            mark.kind(),
            Some(TagKind::Call | TagKind::Block | TagKind::Wrapper | TagKind::Function | TagKind::Result)
        );
        match (mark.end, mark.word()) {
            // It may be part of the value. That is decided when another call begins, or when the element around this
            // one ends.
            (Some(end), _) if mark.closes(opening) && self.mode == Mode::Raw => {
                self.ended = self.ended.or(Some((self.at, self.at + end)));
                self.at += end;
                return Tag::Passed;
            }
            (Some(end), _) if mark.closes(opening) => return Tag::Ends(end),
            (Some(_), _) if self.ended.is_some() && (is_opening || mark.kind() == Some(TagKind::Stray)) => {
                return Tag::Ends(0);
            }
            (Some(end), "parameter" | "arg_value") => {
                self.ended = None;
                self.mode = if mark.is_closing { Mode::Plain } else { Mode::Raw };
                self.at += end;
                return Tag::Passed;
            }
            (Some(end), "escape") => {
                self.ended = None;
                self.mode = if self.mode == Mode::Raw { Mode::Plain } else { Mode::Raw };
                self.at += end;
                return Tag::Passed;
            }
            (Some(_), _) if self.mode != Mode::Raw && is_opening && mark.word() == opening => return Tag::Ends(0),
            (Some(_), _) if self.mode != Mode::Raw && self.is_complete && (is_opening || self.is_json) => {
                return Tag::Ends(0);
            }
            _ => {}
        }
        self.step();
        Tag::Passed
    }

    /// Sets whether the block begins with JSON.
    pub(super) fn of_json(self) -> Self {
        Self { is_json: true, ..self }
    }

    /// Sets the scan to code.
    pub(super) fn of_code(self) -> Self {
        Self { is_code: true, ..self }
    }

    /// Searches the end of one JSON value, which begins where the scan began.
    pub(super) fn value(&mut self, text: &str) -> End {
        if self.is_complete {
            return End::Found { body: self.at, next: self.at };
        }
        while let Some(&byte) = text.as_bytes().get(self.at) {
            self.json(byte);
            if self.depth == 0 && self.mode == Mode::Plain {
                return End::Found { body: self.at, next: self.at };
            }
        }
        End::Open
    }

    fn step(&mut self) {
        self.at += 1;
    }

    fn turn(&mut self, mode: Mode) {
        self.mode = mode;
        self.at += 1;
    }

    fn json(&mut self, byte: u8) {
        self.at += 1;
        match (self.mode, byte) {
            (Mode::Escape, _) => self.mode = Mode::String,
            (Mode::String, b'\\') => self.mode = Mode::Escape,
            (Mode::String, byte) if byte == self.quote => self.mode = Mode::Plain,
            (Mode::String, _) => {}
            (_, b'"') => (self.mode, self.quote) = (Mode::String, byte),
            (_, b'\'') if self.is_code => (self.mode, self.quote) = (Mode::String, byte),
            (_, b'{' | b'[') => self.depth += 1,
            (_, b'(') if self.is_code => self.depth += 1,
            (_, b'}' | b']' | b')') if byte != b')' || self.is_code => {
                self.depth = self.depth.saturating_sub(1);
                self.is_complete |= self.depth == 0 && !self.in_element;
            }
            _ => {}
        }
    }

    /// Reads what begins with `<` outside of a JSON string.
    fn tag(&mut self, rest: &str, close: &str, is_whole: bool) -> Tag {
        if rest.starts_with(close) {
            return Tag::Ends(close.len());
        }
        let ends = |tags: &[&str]| tags.iter().any(|tag| rest.starts_with(tag));
        let is_over = self.depth == 0 && self.is_complete;
        if ends(&OPENING) || is_over && (ends(&RESULTS) || ends(&TURN)) {
            return Tag::Ends(0);
        }
        if is_over && close == FUNCTION_END && rest.starts_with(FUNCTION_AGAIN) {
            return Tag::Ends(FUNCTION_AGAIN.len());
        }
        let may_become = |tag: &str| tag.len() > rest.len() && tag.starts_with(rest);
        let known =
            OPENING.iter().chain(&RESULTS).chain(&ARGUMENTS).chain([&FUNCTION]).chain(RAW.iter().map(|(tag, _)| tag));
        if !is_whole && (may_become(close) || known.copied().any(may_become)) {
            return Tag::Unknown;
        }
        if self.depth > 0 {
            self.step();
            return Tag::Passed;
        }
        if RAW.iter().any(|(tag, _)| rest.starts_with(tag)) {
            self.turn(Mode::Raw);
        } else {
            self.in_element = !rest.starts_with("</") && !rest.starts_with(FUNCTION);
            self.is_complete |= ends(&ARGUMENTS);
            self.turn(Mode::Tag);
        }
        Tag::Passed
    }
}

enum Tag {
    /// The call ends here; the length of the end itself in bytes.
    Ends(usize),
    /// More text is needed.
    Unknown,
    /// It is part of the call.
    Passed,
}

/// Returns whether a byte between elements is neither space nor part of what models put around JSON.
fn is_text(byte: u8) -> bool {
    !byte.is_ascii_whitespace() && !matches!(byte, b'`' | b']' | b'}' | b'>' | b',' | b';')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the end of the call in `text`, given whole and byte by byte.
    fn check(text: &str, expected: Option<&str>) {
        let found = |end| match end {
            End::Found { body, .. } => Some(&text[..body]),
            End::Open => None,
        };
        assert_eq!(found(Scan::default().tagged(text, "</tool_call>", true)), expected, "{text}");
        let mut scan = Scan::default();
        let ends = (0..=text.len()).filter(|end| text.is_char_boundary(*end));
        let mut ends = ends.map(|end| scan.tagged(&text[..end], "</tool_call>", end == text.len()));
        let end = ends.find(|end| *end != End::Open).unwrap_or(End::Open);
        assert_eq!(found(end), expected, "byte by byte: {text}");
    }

    #[test]
    fn a_close_tag_ends_a_call_unless_it_stands_in_a_string() {
        check("<name>a</name></tool_call> b", Some("<name>a</name>"));
        check(r#"{"c": "</tool_call>"}</tool_call>"#, Some(r#"{"c": "</tool_call>"}"#));
        check(r#"{"c": "\"</tool_call>"}</tool_call>"#, Some(r#"{"c": "\"</tool_call>"}"#));
        check(r#"<arguments>{"a": [1, {</tool_call> x"#, Some(r#"<arguments>{"a": [1, {"#));
        check(r#"{"open </tool_call>"#, None);
    }

    #[test]
    fn without_a_close_tag_a_call_ends_where_its_arguments_do() {
        check(r#"{"name": "a"} and so on"#, Some(r#"{"name": "a"}"#));
        check("<name>a</name><arguments>{}</arguments> and", Some("<name>a</name><arguments>{}</arguments>"));
        check("<arguments>{}</arguments><name>a</name></tool_call>", Some("<arguments>{}</arguments><name>a</name>"));
        check("<name>a</name><tool_call>", Some("<name>a</name>"));
        check("<name>a</name><arguments>{}</arguments><tool_result>", Some("<name>a</name><arguments>{}</arguments>"));
    }

    #[test]
    fn a_raw_value_may_hold_anything() {
        let body = "<function=a><parameter=c>if (a < b) { \"</parameter></function>";
        check(&format!("{body}</tool_call>"), Some(body));
    }
}
