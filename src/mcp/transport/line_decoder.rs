//! A decoder that splits a server's output into lines of JSON. Pure: bytes in, lines out.
//!
//! The length of a line is limited, and its nesting is limited to the depth that a recursive parser can handle.

use std::collections::VecDeque;

use memchr::memchr;
use serde_json::{Map, Value};

/// The number of bytes that are kept from each end of a line that is too long, to find the request that it answers.
const EDGE: usize = 256;

/// Splits bytes into lines.
pub(crate) struct LineDecoder {
    limit: usize,
    line: Vec<u8>,
    /// Set while a line that is too long is discarded.
    discarding: Option<Discarding>,
}

/// A line that is too long and is being discarded.
struct Discarding {
    length: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
}

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Whole(Vec<u8>),
    /// A line that was longer than the limit, and was discarded.
    TooLong {
        length: usize,
        /// The request that it answers, if its two ends show that.
        answered: Option<i64>,
    },
}

impl LineDecoder {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, line: Vec::new(), discarding: None }
    }

    /// Reads bytes up to the end of a line. Returns the remaining bytes, and the line if it is complete.
    pub(crate) fn take<'a>(&mut self, bytes: &'a [u8]) -> (&'a [u8], Option<Line>) {
        let end = memchr(b'\n', bytes);
        let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        self.extend(piece);
        match end {
            None => (rest, None),
            Some(_) => (&rest[1..], Some(self.end())),
        }
    }

    /// The last line if it has no end, once the output has ended.
    pub(crate) fn rest(&mut self) -> Option<Line> {
        (!self.line.is_empty() || self.discarding.is_some()).then(|| self.end())
    }

    fn extend(&mut self, piece: &[u8]) {
        if self.discarding.is_none() && self.line.len() + piece.len() <= self.limit {
            self.line.extend_from_slice(piece);
            return;
        }
        let line = std::mem::take(&mut self.line);
        let discarding = self.discarding.get_or_insert_with(Discarding::default);
        discarding.extend(&line);
        discarding.extend(piece);
    }

    fn end(&mut self) -> Line {
        match self.discarding.take() {
            Some(discarding) => Line::TooLong { length: discarding.length, answered: discarding.answered() },
            None => {
                let mut line = std::mem::take(&mut self.line);
                if line.ends_with(b"\r") {
                    line.pop();
                }
                Line::Whole(line)
            }
        }
    }
}

impl Default for Discarding {
    fn default() -> Self {
        Self { length: 0, head: Vec::with_capacity(EDGE), tail: VecDeque::with_capacity(2 * EDGE) }
    }
}

impl Discarding {
    fn extend(&mut self, piece: &[u8]) {
        self.length += piece.len();
        let room = EDGE - self.head.len();
        self.head.extend_from_slice(&piece[..room.min(piece.len())]);
        self.tail.extend(&piece[piece.len().saturating_sub(EDGE)..]);
        let surplus = self.tail.len().saturating_sub(EDGE);
        self.tail.drain(..surplus);
    }

    /// The `id` of a response whose first or last members are `jsonrpc` and `id`. It is never that of an inner object:
    /// the text before the line's last brace belongs to the outermost object, as does the text after its first brace.
    fn answered(&self) -> Option<i64> {
        let compact = |bytes: &mut dyn Iterator<Item = u8>| {
            let kept: Vec<u8> = bytes.filter(|byte| !byte.is_ascii_whitespace()).collect();
            String::from_utf8_lossy(&kept).into_owned()
        };
        let (head, tail) = (compact(&mut self.head.iter().copied()), compact(&mut self.tail.iter().copied()));
        let inside = head.strip_prefix('{')?;
        let inside = inside.strip_prefix(VERSION).unwrap_or(inside);
        let is_answer = |members: &str| ["\"result\":", "\"error\":"].iter().any(|name| members.starts_with(name));
        if let Some((written, rest)) = inside.strip_prefix("\"id\":").and_then(|rest| rest.split_once(',')) {
            return id(written).filter(|_| is_answer(rest.strip_prefix(VERSION).unwrap_or(rest)));
        }
        let outside = tail.strip_suffix('}').filter(|_| is_answer(inside))?;
        let outside = outside.strip_suffix(",\"jsonrpc\":\"2.0\"").unwrap_or(outside);
        id(&outside[outside.rfind("\"id\":")? + "\"id\":".len()..])
    }
}

/// The beginning of a message that starts with its version.
const VERSION: &str = "\"jsonrpc\":\"2.0\",";

/// An id of this client, written as a number or as a text.
fn id(written: &str) -> Option<i64> {
    written.strip_prefix('"').and_then(|written| written.strip_suffix('"')).unwrap_or(written).parse().ok()
}

/// The request that an invalid message answers; `None` if the message is not a response.
pub(crate) fn answered(json: &[u8]) -> Option<i64> {
    let Ok(message) = serde_json::from_slice::<Map<String, Value>>(json) else {
        let mut line = Discarding::default();
        line.extend(json);
        return line.answered();
    };
    // A logged object may have an id as well.
    let is_known = |name: &String| ["jsonrpc", "id", "result", "error"].contains(&name.as_str());
    let is_answer = message.contains_key("jsonrpc") || message.keys().all(is_known);
    let number = message.get("id").filter(|_| is_answer && !message.contains_key("method"))?;
    number.as_i64().or_else(|| id(number.as_str()?))
}

/// The same JSON with U+FFFD in place of invalid UTF-8 and of unpaired surrogates (`\ud83c`), which programs write that
/// cut texts; `None` if there are none.
pub(crate) fn repaired(json: &[u8]) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(json);
    let (mut kept, mut rest) = (String::new(), &*text);
    while let Some(place) = rest.find('\\') {
        let (before, escape) = rest.split_at(place);
        let (length, written) = match (unit(escape), escape.get(6..).and_then(unit)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => (12, &escape[..12]),
            (Some(0xD800..=0xDFFF), _) => (6, "\\ufffd"),
            _ => {
                let length = escape.chars().take(2).map(char::len_utf8).sum();
                (length, &escape[..length])
            }
        };
        kept.push_str(before);
        kept.push_str(written);
        rest = &escape[length..];
    }
    kept.push_str(rest);
    (kept.as_bytes() != json).then(|| kept.into_bytes())
}

/// The code unit of a `\uXXXX` at the beginning of a text.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u16::from_str_radix(digits, 16).ok())?
}

/// The same JSON with every value deeper than `limit` levels replaced by a text that says so; `None` if no value is
/// that deep.
pub(crate) fn cut_nesting(json: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut kept = Vec::new();
    let (mut depth, mut is_text, mut is_escaped, mut from) = (0_usize, false, false, 0);
    for (place, byte) in json.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            _ if is_text => {}
            b'{' | b'[' => {
                depth += 1;
                if depth == limit + 1 {
                    kept.extend_from_slice(&json[from..place]);
                    kept.extend_from_slice(b"\"(nested too deep)\"");
                }
            }
            b'}' | b']' => {
                if depth == limit + 1 {
                    from = place + 1;
                }
                depth = depth.saturating_sub(1);
            }
            _ => {}
        }
    }
    if kept.is_empty() {
        return None;
    }
    kept.extend_from_slice(&json[from..]);
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(limit: usize, pieces: &[&[u8]]) -> Vec<Line> {
        let mut lines = LineDecoder::new(limit);
        let mut found = Vec::new();
        for mut piece in pieces.iter().copied() {
            while !piece.is_empty() {
                let (rest, line) = lines.take(piece);
                found.extend(line);
                piece = rest;
            }
        }
        found.extend(lines.rest());
        found
    }

    #[test]
    fn lines_are_the_same_however_the_bytes_arrive() {
        let text = "{\"a\":1}\r\n\n{\"b\":\"é\"}\nrest".as_bytes();
        let expected: Vec<Line> =
            ["{\"a\":1}", "", "{\"b\":\"é\"}", "rest"].map(|line| Line::Whole(line.as_bytes().to_vec())).into();
        for split in 0..text.len() {
            let (left, right) = text.split_at(split);
            assert_eq!(all(100, &[left, right]), expected, "split at {split}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_goes_by_without_being_kept_and_its_neighbours_arrive() {
        let mut lines = LineDecoder::new(1_000);
        let chunk = vec![b'x'; 64 * 1024];
        assert_eq!(lines.take(b"first\n").1, Some(Line::Whole(b"first".to_vec())));
        for _ in 0..1_600 {
            assert_eq!(lines.take(&chunk), (&b""[..], None));
            assert!(lines.line.capacity() <= 1_000, "{} bytes are kept", lines.line.capacity());
        }
        let (rest, line) = lines.take(b"\nnext\n");
        assert_eq!(line, Some(Line::TooLong { length: 1_600 * 64 * 1024, answered: None }));
        assert_eq!(lines.take(rest).1, Some(Line::Whole(b"next".to_vec())));
    }

    #[test]
    fn the_ends_of_a_line_that_is_too_long_tell_what_it_answered() {
        let long = "x".repeat(2_000);
        let check = |line: String, answered: Option<i64>| {
            let length = line.len();
            assert_eq!(all(1_000, &[line.as_bytes(), b"\n"]), [Line::TooLong { length, answered }]);
        };
        check(format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{{\"text\":\"{long}\"}}}}"), Some(7));
        check(format!("{{\"jsonrpc\": \"2.0\", \"id\": 7, \"result\": {{\"text\": \"{long}\"}}}}"), Some(7));
        check(format!("{{\"result\":{{\"text\":\"{long}\"}},\"jsonrpc\":\"2.0\",\"id\":12}}"), Some(12));
        check(format!("{{\"result\":{{\"text\":\"{long}\"}},\"id\":12,\"jsonrpc\":\"2.0\"}}"), Some(12));
        check(format!("{{\"result\":{{\"text\":\"{long}\",\"id\":3}}}}"), None);
        check(format!("{{\"result\":{{\"text\":\"{long}\\\"id\\\":3\"}}}}"), None);
        check(format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"{long}\"}}"), None);
        check(format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{long}\",\"id\":7}}"), None);
        check(long.clone(), None);
    }

    #[test]
    fn an_answer_that_is_no_message_as_it_should_be_tells_what_it_answered() {
        let check = |line: &str, expected: Option<i64>| assert_eq!(answered(line.as_bytes()), expected, "{line}");
        check(r#"{"jsonrpc":"2.0","id":7,"error":"boom"}"#, Some(7));
        check(r#"{"jsonrpc":"2.0","error":{"code":"ENOENT"},"trace":[],"id":"7"}"#, Some(7));
        check(r#"{"id":7,"result":{}}"#, Some(7));
        check(r#"{"jsonrpc":"2.0","id":7,"result":{"n":1e999}}"#, Some(7));
        check(r#"{"jsonrpc":"2.0","id":"7","result":{"n":1e999}}"#, Some(7));
        check(r#"{"result":{"n":1e999},"jsonrpc":"2.0","id":7}"#, Some(7));
        check(r#"{"jsonrpc":"2.0","id":7}"#, Some(7));
        check(r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":1}"#, None);
        check(r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":1e999}"#, None);
        check(r#"{"id":7,"level":"info","error":"logged"}"#, None);
        check(r#"{"id":7,"level":1e999}"#, None);
        check(r#"{"jsonrpc":"2.0","id":null,"error":"boom"}"#, None);
        check("[]", None);
        check("{", None);
    }

    #[test]
    fn bytes_and_escapes_that_are_no_text_are_replaced() {
        let check = |json: &[u8], expected: Option<&str>| {
            assert_eq!(repaired(json).map(|kept| String::from_utf8(kept).unwrap()).as_deref(), expected, "{json:?}");
        };
        check(br#""Party \ud83c""#, Some(r#""Party \ufffd""#));
        check(br#""\udf89\ud83c\ud83c\udf89\ud83cx""#, Some(r#""\ufffd\ufffd\ud83c\udf89\ufffdx""#));
        check(b"\"caf\xe9\"", Some("\"caf\u{fffd}\""));
        for whole in [r#""\ud83c\udf89""#, r#""\\ud83c \n\u0041""#, r#""한글 😀 \"#, r#""\u12"#, r#""\+123"#] {
            check(whole.as_bytes(), None);
        }
    }

    #[test]
    fn what_is_nested_too_deep_is_replaced_and_the_rest_stays() {
        let deep = format!("{{\"a\":{}1{},\"b\":\"[[[[\\\"[[\",\"c\":[2]}}", "[".repeat(5_000), "]".repeat(5_000));
        let kept = String::from_utf8(cut_nesting(deep.as_bytes(), 2).unwrap()).unwrap();
        assert_eq!(kept, "{\"a\":[\"(nested too deep)\"],\"b\":\"[[[[\\\"[[\",\"c\":[2]}");
        assert_eq!(cut_nesting(br#"{"a":[1]}"#, 2), None);
    }
}
