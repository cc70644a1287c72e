//! The lines of a text that one answer shows. Pure.

/// Collects the lines of a page while a text passes, in pieces of any size. It keeps no more than the page.
pub(super) struct Page {
    offset: u64,
    limit: u64,
    max_bytes: usize,
    /// The lines so far that have ended.
    lines: u64,
    /// The bytes of the current line, with its end.
    line_bytes: u64,
    /// The lines so far that ended with CR LF.
    crlf_lines: u64,
    last_byte: u8,
    text: String,
    /// The length of `text` before the current line.
    line_start: usize,
    shown: u64,
    /// The number of bytes of the first line, if only a part of it is shown.
    cut: Option<u64>,
    is_cut: bool,
    is_full: bool,
}

impl Page {
    /// A page of at most `limit` lines after the first `offset`, and of at most `max_bytes`.
    pub(super) fn new(offset: u64, limit: u64, max_bytes: usize) -> Self {
        Self {
            offset,
            limit: limit.max(1),
            max_bytes,
            lines: 0,
            line_bytes: 0,
            crlf_lines: 0,
            last_byte: 0,
            text: String::new(),
            line_start: 0,
            shown: 0,
            cut: None,
            is_cut: false,
            is_full: false,
        }
    }

    /// Adds the next piece of the text.
    pub(super) fn push(&mut self, mut piece: &str) {
        while let Some(end) = memchr::memchr(b'\n', piece.as_bytes()) {
            let (line, rest) = piece.split_at(end + 1);
            self.extend_line(line);
            let before = if end == 0 { self.last_byte } else { line.as_bytes()[end - 1] };
            self.crlf_lines += u64::from(before == b'\r');
            self.last_byte = b'\n';
            self.end_line();
            piece = rest;
        }
        self.extend_line(piece);
        self.last_byte = piece.bytes().next_back().unwrap_or(self.last_byte);
    }

    fn extend_line(&mut self, part: &str) {
        self.line_bytes += part.len() as u64;
        if self.is_full || self.is_cut || self.lines < self.offset {
            return;
        }
        if self.text.len() + part.len() <= self.max_bytes {
            self.text.push_str(part);
        } else if self.shown > 0 {
            self.text.truncate(self.line_start);
            self.is_full = true;
        } else {
            self.text.push_str(&part[..part.floor_char_boundary(self.max_bytes - self.text.len())]);
            self.is_cut = true;
        }
    }

    fn end_line(&mut self) {
        if !self.is_full && self.lines >= self.offset {
            self.shown += 1;
            self.cut = self.is_cut.then_some(self.line_bytes);
            self.is_full = self.is_cut || self.shown == self.limit;
        }
        self.lines += 1;
        self.line_bytes = 0;
        self.line_start = self.text.len();
    }

    /// Returns whether no further text changes what is shown.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// The number of the current line, from 1.
    pub(super) fn line(&self) -> u64 {
        self.lines + 1
    }

    /// Ends the page. `is_whole`: the text has passed to its end.
    pub(super) fn finish(mut self, is_whole: bool) -> FinishedPage {
        let ends_with_newline = self.line_bytes == 0;
        let crlf_lines = self.crlf_lines;
        let ended = self.lines;
        if is_whole && !ends_with_newline {
            self.end_line();
        }
        let all_crlf = crlf_lines > 0 && crlf_lines == ended;
        FinishedPage {
            text: if all_crlf { self.text.replace("\r\n", "\n") } else { self.text },
            skipped: self.offset,
            shown: self.shown,
            total: is_whole.then_some(self.lines),
            cut: self.cut,
            line_ends: match crlf_lines {
                0 => LineEnds::Lf,
                _ if all_crlf => LineEnds::CrLf,
                _ => LineEnds::Mixed,
            },
            ends_with_newline,
        }
    }
}

/// The lines that an answer shows, and what is known of the others.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FinishedPage {
    pub(super) text: String,
    /// The number of lines before those that are shown.
    pub(super) skipped: u64,
    /// The number of lines that are shown.
    pub(super) shown: u64,
    /// The number of all lines, if they were counted.
    pub(super) total: Option<u64>,
    /// The number of bytes of the only line, if only a part of it is shown.
    pub(super) cut: Option<u64>,
    pub(super) line_ends: LineEnds,
    pub(super) ends_with_newline: bool,
}

/// The ends of the lines of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineEnds {
    Lf,
    /// All are CR LF.
    CrLf,
    Mixed,
}

impl LineEnds {
    /// Returns the line ends of a whole text.
    pub(super) fn of(text: &str) -> Self {
        let all = memchr::memchr_iter(b'\n', text.as_bytes()).count();
        let crlf = memchr::memmem::find_iter(text.as_bytes(), b"\r\n").count();
        match crlf {
            0 => Self::Lf,
            _ if crlf == all => Self::CrLf,
            _ => Self::Mixed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of a page, the numbers of lines shown and of all, and the cut, the same for pieces of every size.
    #[track_caller]
    fn check(text: &str, (offset, limit, max): (u64, u64, usize), expected: (&str, u64, u64, Option<u64>)) {
        for size in 1..=text.len().max(1) {
            let mut page = Page::new(offset, limit, max);
            let mut rest = text;
            while !rest.is_empty() {
                let mut end = size.min(rest.len());
                while !rest.is_char_boundary(end) {
                    end += 1;
                }
                page.push(&rest[..end]);
                rest = &rest[end..];
            }
            let page = page.finish(true);
            let actual = (&*page.text, page.shown, page.total.unwrap(), page.cut);
            assert_eq!(actual, expected, "{text:?} in pieces of {size}");
        }
    }

    #[test]
    fn fault_70_a_page_holds_whole_lines_and_counts_all() {
        check("", (0, 9, 99), ("", 0, 0, None));
        check("a", (0, 9, 99), ("a", 1, 1, None));
        check("a\nb\n", (0, 9, 99), ("a\nb\n", 2, 2, None));
        check("a\nb\nc", (1, 1, 99), ("b\n", 1, 3, None));
        check("a\nb\nc", (2, 9, 99), ("c", 1, 3, None));
        check("a\nb\nc", (3, 9, 99), ("", 0, 3, None));
        check("aa\nbb\ncc\n", (0, 9, 7), ("aa\nbb\n", 2, 3, None));
        check("aa\nbb\ncc\n", (1, 9, 3), ("bb\n", 1, 3, None));
        check("가나다\nb", (0, 9, 4), ("가", 1, 2, Some(10)));
        check("a\n가나다", (1, 9, 7), ("가나", 1, 2, Some(9)));
        check("a\r\nb\r\n", (0, 9, 99), ("a\nb\n", 2, 2, None));
        check("a\r\nb\n", (0, 9, 99), ("a\r\nb\n", 2, 2, None));
        check("a\r\nb", (0, 9, 99), ("a\nb", 2, 2, None));
    }
}
