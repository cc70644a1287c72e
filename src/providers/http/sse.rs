//! A decoder of server-sent events. It takes bytes, split at any position, and returns events.
//!
//! Follows the
//! [specification](https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation), except
//! that bytes which are not UTF-8 are an error instead of U+FFFD, and that the size of an event is limited. Nothing
//! here reads from a connection or knows what the events mean.

use std::ops::Range;

use crate::provider::{ProviderError, ProviderErrorKind};

/// One event, borrowed from the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its type; empty if the server gave none.
    pub(crate) name: &'a str,
    /// Its data, with lines joined by `\n`.
    pub(crate) data: &'a str,
}

/// The reason why the bytes are not an event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SseError {
    #[error("the event stream is not valid UTF-8 at byte {offset}")]
    BadUtf8 { offset: usize },
    #[error("an event is larger than {MAX_EVENT_BYTES} bytes")]
    EventTooLarge,
}

impl From<SseError> for ProviderError {
    fn from(error: SseError) -> Self {
        Self::new(ProviderErrorKind::InvalidResponse, error.to_string())
    }
}

/// Returns whether a text is an event stream, which some servers send with another content type.
///
/// No JSON begins like one.
pub(crate) fn is_stream(text: &[u8]) -> bool {
    ["data:", "event:", "id:", "retry:", ":"].iter().any(|begin| text.starts_with(begin.as_bytes()))
}

/// Decodes events: add bytes with [`feed`](Decoder::feed), then call [`advance`](Decoder::advance) for each event.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    buffer: Vec<u8>,
    /// The start, in the buffer, of the first line that is not read yet.
    start: usize,
    /// The position in the buffer before which that line has no end.
    scanned: usize,
    /// The number of bytes of the stream before the buffer.
    passed: usize,
    /// `true` if the previous line ended with `\r`, so that a `\n` now is the rest of its end.
    after_cr: bool,
    name: String,
    data: Data,
    /// `true` if the event is complete: the next line begins another one.
    is_complete: bool,
    stray: String,
}

/// The data of the event whose lines are arriving.
#[derive(Debug, Default)]
enum Data {
    #[default]
    None,
    /// One line, still in the buffer.
    Line(Range<usize>),
    /// Several lines joined, or lines that were moved out of the buffer.
    Joined(String),
}

impl Decoder {
    /// Adds the next bytes of the stream.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        if let Data::Line(range) = &self.data
            && !self.is_complete
        {
            self.data = Data::Joined(self.text(range).to_owned());
        }
        self.buffer.drain(..self.start);
        self.passed += self.start;
        self.scanned -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Moves to the next event; `false` if it needs more bytes.
    pub(crate) fn advance(&mut self) -> Result<bool, SseError> {
        if std::mem::take(&mut self.is_complete) {
            self.name.clear();
            self.data = Data::None;
        }
        while let Some(range) = self.line() {
            if range.len() + self.data_len() > MAX_EVENT_BYTES {
                return Err(SseError::EventTooLarge);
            }
            let offset = self.passed + range.start;
            std::str::from_utf8(&self.buffer[range.clone()])
                .map_err(|error| SseError::BadUtf8 { offset: offset + error.valid_up_to() })?;
            self.take(match offset == 0 && self.buffer[range.clone()].starts_with(BYTE_ORDER_MARK) {
                true => range.start + BYTE_ORDER_MARK.len()..range.end,
                false => range,
            });
            if self.is_complete {
                return Ok(true);
            }
        }
        match self.buffer.len() - self.start + self.data_len() > MAX_EVENT_BYTES {
            true => Err(SseError::EventTooLarge),
            false => Ok(false),
        }
    }

    /// The event that [`advance`](Decoder::advance) has moved to.
    pub(crate) fn event(&self) -> Event<'_> {
        let data = match &self.data {
            Data::None => "",
            Data::Line(range) => self.text(range),
            Data::Joined(text) => text,
        };
        Event { name: &self.name, data }
    }

    /// The text of the stream outside of events, once the stream has ended: some servers append a bare JSON error.
    ///
    /// Only about the first [`MAX_STRAY_BYTES`] bytes of it are kept.
    pub(crate) fn into_stray(mut self) -> String {
        let rest = self.start..self.buffer.len();
        if std::str::from_utf8(&self.buffer[rest.clone()]).is_ok() {
            self.take(rest);
        }
        self.stray
    }

    /// The next complete line, without its end.
    fn line(&mut self) -> Option<Range<usize>> {
        if self.after_cr && self.start < self.buffer.len() {
            self.after_cr = false;
            self.start += usize::from(self.buffer[self.start] == b'\n');
        }
        self.scanned = self.scanned.max(self.start);
        let Some(end) = memchr::memchr2(b'\r', b'\n', &self.buffer[self.scanned..]) else {
            self.scanned = self.buffer.len();
            return None;
        };
        let end = self.scanned + end;
        let line = self.start..end;
        self.after_cr = self.buffer[end] == b'\r';
        self.start = end + 1;
        self.scanned = self.start;
        Some(line)
    }

    /// Reads one line of UTF-8; an empty line completes the event.
    fn take(&mut self, line: Range<usize>) {
        if line.is_empty() {
            // Without data there is no event.
            self.is_complete = !matches!(self.data, Data::None);
            if !self.is_complete {
                self.name.clear();
            }
            return;
        }
        let bytes = &self.buffer[line.clone()];
        let colon = memchr::memchr(b':', bytes).unwrap_or(bytes.len());
        let begin = colon + 1 + usize::from(bytes.get(colon + 1) == Some(&b' '));
        let value = (line.start + begin).min(line.end)..line.end;
        match &bytes[..colon] {
            b"data" => {
                self.data = match std::mem::take(&mut self.data) {
                    Data::None => Data::Line(value),
                    Data::Line(first) => Data::Joined([self.text(&first), self.text(&value)].join("\n")),
                    Data::Joined(text) => Data::Joined(text + "\n" + self.text(&value)),
                }
            }
            b"event" => {
                let mut name = std::mem::take(&mut self.name);
                name.clear();
                name.push_str(self.text(&value));
                self.name = name;
            }
            // A comment, or a field that only browsers need.
            b"" | b"id" | b"retry" => {}
            _ if self.stray.len() < MAX_STRAY_BYTES => self.stray = format!("{}{}\n", self.stray, self.text(&line)),
            _ => {}
        }
    }

    /// A piece of a line. The line is known to be UTF-8, and the piece begins and ends next to ASCII.
    fn text(&self, range: &Range<usize>) -> &str {
        std::str::from_utf8(&self.buffer[range.clone()]).unwrap_or_default()
    }

    fn data_len(&self) -> usize {
        match &self.data {
            Data::None => 0,
            Data::Line(range) => range.len(),
            Data::Joined(text) => text.len(),
        }
    }
}

/// The most bytes of one event.
pub(crate) const MAX_EVENT_BYTES: usize = 16 << 20;

const MAX_STRAY_BYTES: usize = 64 << 10;
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<(String, String)>, SseError> {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        for piece in pieces {
            decoder.feed(piece);
            while decoder.advance()? {
                let Event { name, data } = decoder.event();
                events.push((name.to_owned(), data.to_owned()));
            }
        }
        Ok(events)
    }

    fn check(stream: &str, expected: &[(&str, &str)]) {
        let expected: Vec<_> = expected.iter().map(|(name, data)| (name.to_string(), data.to_string())).collect();
        assert_eq!(decode([stream.as_bytes()]), Ok(expected.clone()), "{stream:?}");
        assert_eq!(decode(stream.as_bytes().chunks(1)), Ok(expected), "{stream:?} in single bytes");
    }

    #[test]
    fn fault_3_lines_end_in_three_ways_and_may_be_comments() {
        check("data: a\n\ndata:b\r\n\r\ndata: c\r\rdata:  d\r\n\n", &[("", "a"), ("", "b"), ("", "c"), ("", " d")]);
        check("\u{feff}data: a\n\n", &[("", "a")]);
        check(": keep-alive\n\n:\n\ndata: a\n: in between\n\n", &[("", "a")]);
        check("event: error\ndata: {}\n\ndata: next\n\n", &[("error", "{}"), ("", "next")]);
        check("id: 1\nretry: 5\nunknown: x\n\ndata\n\ndata: cut off", &[("", "")]);
    }

    #[test]
    fn fault_4_lines_of_data_are_joined() {
        check("data: {\ndata:  \"a\": 1\ndata:\ndata: }\n\n", &[("", "{\n \"a\": 1\n\n}")]);
    }

    #[test]
    fn fault_2_bytes_that_are_not_utf_8_are_named_by_their_offset() {
        let stream = b"data: ok\n\ndata: a\xff\n\n";
        assert_eq!(decode([&stream[..]]), Err(SseError::BadUtf8 { offset: 17 }));
        assert_eq!(decode(stream.chunks(1)), Err(SseError::BadUtf8 { offset: 17 }));
        let mut decoder = Decoder::default();
        decoder.feed(stream);
        assert_eq!((decoder.advance(), decoder.event().data), (Ok(true), "ok"));
    }

    #[test]
    fn fault_25_an_event_without_end_is_given_up_at_the_limit() {
        let piece = vec![b'a'; 1 << 20];
        let endless = std::iter::once(&b"data: "[..]).chain(std::iter::repeat_n(&piece[..], 17));
        assert_eq!(decode(endless), Err(SseError::EventTooLarge));
        let mut line = b"data: ".to_vec();
        line.extend_from_slice(&piece);
        line.push(b'\n');
        assert_eq!(decode(std::iter::repeat_n(&line[..], 17)), Err(SseError::EventTooLarge));
    }

    #[test]
    fn what_stands_outside_of_events_is_kept() {
        let mut decoder = Decoder::default();
        decoder.feed(b"data: a\n\n{\n  \"error\": 1\n}");
        assert_eq!((decoder.advance(), decoder.event().data), (Ok(true), "a"));
        assert_eq!(decoder.advance(), Ok(false));
        assert_eq!(decoder.into_stray(), "{\n  \"error\": 1\n}\n");
    }

    proptest! {
        #[test]
        fn fault_1_the_split_points_do_not_matter(
            data in proptest::collection::vec("[a-z한글漢字🦀é: ]{0,12}", 1..8),
            end in prop::sample::select(vec!["\n", "\r", "\r\n"]),
            mut cuts in proptest::collection::vec(0usize..400, 0..12),
        ) {
            let stream: String = data.iter().map(|data| format!("data: {data}{end}{end}")).collect();
            cuts.retain(|cut| *cut < stream.len());
            cuts.sort_unstable();
            let bounds: Vec<usize> = [0].into_iter().chain(cuts).chain([stream.len()]).collect();
            let pieces = bounds.windows(2).map(|pair| &stream.as_bytes()[pair[0]..pair[1]]);
            let expected: Vec<_> = data.into_iter().map(|data| (String::new(), data)).collect();
            prop_assert_eq!(decode(pieces), Ok(expected));
        }
    }
}
