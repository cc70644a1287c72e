//! A server's output, cut into lines of JSON. Pure: bytes in, lines out.
//!
//! A line is never kept beyond its limit, and never nested deeper than a parser that recurses can take.

use std::collections::VecDeque;

use memchr::memchr;

/// How much is kept of either end of a line that is too long, to find out what it answered.
const EDGE: usize = 256;

/// Cuts bytes into lines.
pub(super) struct Lines {
    limit: usize,
    line: Vec<u8>,
    /// Set while a line that is too long goes by.
    passing: Option<Passing>,
}

/// A line that is too long.
struct Passing {
    length: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
}

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Whole(Vec<u8>),
    /// It was longer than the limit, and is gone.
    TooLong {
        length: usize,
        /// The request that it answered, as far as its ends tell.
        answered: Option<i64>,
    },
}

impl Lines {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, line: Vec::new(), passing: None }
    }

    /// Takes bytes up to the end of a line; gives what is left of them and the line, if it is whole.
    pub(super) fn take<'a>(&mut self, bytes: &'a [u8]) -> (&'a [u8], Option<Line>) {
        let end = memchr(b'\n', bytes);
        let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        self.extend(piece);
        match end {
            None => (rest, None),
            Some(_) => (&rest[1..], Some(self.end())),
        }
    }

    fn extend(&mut self, piece: &[u8]) {
        if self.passing.is_none() && self.line.len() + piece.len() <= self.limit {
            self.line.extend_from_slice(piece);
            return;
        }
        let line = std::mem::take(&mut self.line);
        let passing = self.passing.get_or_insert_with(Passing::default);
        passing.extend(&line);
        passing.extend(piece);
    }

    fn end(&mut self) -> Line {
        match self.passing.take() {
            Some(passing) => Line::TooLong { length: passing.length, answered: passing.answered() },
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

impl Default for Passing {
    fn default() -> Self {
        Self { length: 0, head: Vec::with_capacity(EDGE), tail: VecDeque::with_capacity(2 * EDGE) }
    }
}

impl Passing {
    fn extend(&mut self, piece: &[u8]) {
        self.length += piece.len();
        let room = EDGE - self.head.len();
        self.head.extend_from_slice(&piece[..room.min(piece.len())]);
        self.tail.extend(&piece[piece.len().saturating_sub(EDGE)..]);
        let surplus = self.tail.len().saturating_sub(EDGE);
        self.tail.drain(..surplus);
    }

    /// The `id` of a response whose first or last members are `jsonrpc` and `id`. It is never that of an inner object:
    /// what precedes the line's last brace belongs to the outermost one, as does what follows its first.
    fn answered(&self) -> Option<i64> {
        let compact = |bytes: &mut dyn Iterator<Item = u8>| {
            let kept: Vec<u8> = bytes.filter(|byte| !byte.is_ascii_whitespace()).collect();
            String::from_utf8_lossy(&kept).into_owned()
        };
        let (head, tail) = (compact(&mut self.head.iter().copied()), compact(&mut self.tail.iter().copied()));
        let from_head = ["{\"jsonrpc\":\"2.0\",\"id\":", "{\"id\":"].into_iter().find_map(|start| {
            let rest = head.strip_prefix(start)?;
            rest[..rest.find(',')?].parse().ok()
        });
        let from_tail = || {
            let rest = tail.strip_suffix('}')?;
            let rest = rest.strip_suffix(",\"jsonrpc\":\"2.0\"").unwrap_or(rest);
            rest[rest.rfind("\"id\":")? + "\"id\":".len()..].parse().ok()
        };
        from_head.or_else(from_tail)
    }
}

/// The same JSON with whatever lies deeper than `limit` levels replaced by a text that says so; nothing if there is
/// nothing that deep.
pub(super) fn shallow(json: &[u8], limit: usize) -> Option<Vec<u8>> {
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
        let mut lines = Lines::new(limit);
        let mut found = Vec::new();
        for mut piece in pieces.iter().copied() {
            while !piece.is_empty() {
                let (rest, line) = lines.take(piece);
                found.extend(line);
                piece = rest;
            }
        }
        found
    }

    #[test]
    fn lines_are_the_same_however_the_bytes_arrive() {
        let text = "{\"a\":1}\r\n\n{\"b\":\"é\"}\nrest".as_bytes();
        let expected: Vec<Line> =
            ["{\"a\":1}", "", "{\"b\":\"é\"}"].map(|line| Line::Whole(line.as_bytes().to_vec())).into();
        for split in 0..text.len() {
            let (left, right) = text.split_at(split);
            assert_eq!(all(100, &[left, right]), expected, "split at {split}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_goes_by_without_being_kept_and_its_neighbours_arrive() {
        let mut lines = Lines::new(1_000);
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
        check(long.clone(), None);
    }

    #[test]
    fn what_is_nested_too_deep_is_replaced_and_the_rest_stays() {
        let deep = format!("{{\"a\":{}1{},\"b\":\"[[[[\\\"[[\",\"c\":[2]}}", "[".repeat(5_000), "]".repeat(5_000));
        let kept = String::from_utf8(shallow(deep.as_bytes(), 2).unwrap()).unwrap();
        assert_eq!(kept, "{\"a\":[\"(nested too deep)\"],\"b\":\"[[[[\\\"[[\",\"c\":[2]}");
        assert_eq!(shallow(br#"{"a":[1]}"#, 2), None);
    }
}
