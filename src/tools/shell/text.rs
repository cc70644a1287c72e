//! Bytes of a program's output as text that is safe to show: no terminal escapes, and nothing invalid that is hidden.
//!
//! Nothing is lost in silence except escape sequences of terminals.

/// The longest escape sequence that is removed. What goes on for longer is shown as text.
const MAX_SEQUENCE: usize = 4 * 1024;

/// Turns the bytes of one stream into text, piece by piece. Invalid UTF-8 becomes `\xNN`, a control character becomes
/// its escape, a carriage return becomes a line end.
#[derive(Default)]
pub(super) struct Cleaner {
    /// The begin of a character whose end has not arrived; at most three bytes.
    cut: Vec<u8>,
    state: State,
    /// The characters of the present escape sequence.
    sequence: usize,
    /// Whether the last character was a carriage return.
    after_return: bool,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum State {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and a space, or one of `!"#$%&'()*+,-./`.
    Intermediate,
    /// In a control sequence, ended by one of `@` to `~`.
    Control,
    /// In a string (title of a window, link, …), ended by BEL, by ESC `\`, or by the end of the line.
    Command,
}

impl Cleaner {
    /// Appends the text of these bytes.
    pub(super) fn push(&mut self, bytes: &[u8], text: &mut String) {
        let joined;
        let bytes = if self.cut.is_empty() {
            bytes
        } else {
            joined = [std::mem::take(&mut self.cut), bytes.to_vec()].concat();
            &joined
        };
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.take_all(chunk.valid(), text);
            let invalid = chunk.invalid();
            if chunks.peek().is_none() && is_cut(invalid) {
                self.cut = invalid.to_vec();
            } else {
                show(invalid, text);
            }
        }
    }

    /// Appends what is left at the end of the stream.
    pub(super) fn finish(&mut self, text: &mut String) {
        show(&std::mem::take(&mut self.cut), text);
        self.state = State::Text;
    }

    fn take_all(&mut self, mut valid: &str, text: &mut String) {
        while !valid.is_empty() {
            if self.state == State::Text && !self.after_return {
                // Most output has nothing else.
                let plain = valid.bytes().take_while(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t')).count();
                let (plain, rest) = valid.split_at(plain);
                text.push_str(plain);
                valid = rest;
            }
            let mut chars = valid.chars();
            chars.next().into_iter().for_each(|c| self.take(c, text));
            valid = chars.as_str();
        }
    }

    fn take(&mut self, c: char, text: &mut String) {
        self.sequence = if self.state == State::Text { 0 } else { self.sequence + 1 };
        if self.sequence > MAX_SEQUENCE {
            self.state = State::Text;
        }
        self.state = match (self.state, c) {
            (_, '\u{1b}') => State::Escape,
            (
                State::Text | State::Escape | State::Intermediate | State::Control,
                '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}',
            ) => State::Command,
            (State::Text, '\u{9b}') | (State::Escape, '[') => State::Control,
            (State::Escape, ']' | 'P' | 'X' | '^' | '_') => State::Command,
            (State::Escape | State::Intermediate, ' '..='/') => State::Intermediate,
            (State::Escape | State::Intermediate, '0'..='~') => State::Text,
            (State::Control, ' '..='?') => State::Control,
            (State::Control, '@'..='~') => State::Text,
            (State::Command, '\u{7}' | '\u{9c}') => State::Text,
            (State::Command, c) if c != '\n' => State::Command,
            _ => {
                self.put(c, text);
                State::Text
            }
        };
    }

    fn put(&mut self, c: char, text: &mut String) {
        let after_return = std::mem::replace(&mut self.after_return, c == '\r');
        match c {
            '\n' if after_return => {}
            '\r' => text.push('\n'),
            '\n' | '\t' => text.push(c),
            // Overrides of the direction of text make it look like another one.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => text.extend(c.escape_unicode()),
            _ if c.is_control() => text.push_str(&format!("\\x{:02x}", u32::from(c))),
            _ => text.push(c),
        }
    }
}

/// Returns whether these bytes can be the begin of a character.
fn is_cut(bytes: &[u8]) -> bool {
    matches!(std::str::from_utf8(bytes), Err(error) if error.error_len().is_none())
}

fn show(bytes: &[u8], text: &mut String) {
    bytes.iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(bytes: &[u8], size: usize) -> String {
        let (mut cleaner, mut text) = (Cleaner::default(), String::new());
        bytes.chunks(size).for_each(|piece| cleaner.push(piece, &mut text));
        cleaner.finish(&mut text);
        text
    }

    fn check(bytes: &[u8], expected: &str) {
        for size in [1, 2, 3, 7, 1000] {
            assert_eq!(clean(bytes, size), expected, "{bytes:?} in pieces of {size}");
        }
    }

    #[test]
    fn fault_88_escapes_are_removed_and_what_is_invalid_is_visible() {
        check("plain äöü 漢字 🦀\n\ttab".as_bytes(), "plain äöü 漢字 🦀\n\ttab");
        check(b"\x1b[31mred\x1b[0m \x1b[2J\x1b[1;1Hhome", "red home");
        check(b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink");
        check(b"\x1b]0;never ended\nnext", "\nnext");
        check(b"\x1b(Bset \x1b7\x1b8\x1bcreset", "set reset");
        check("\u{9b}31mred\u{9d}0;t\u{9c}.".as_bytes(), "red.");
        check(b"a\xffb\xc3(\xe2\x82", "a\\xffb\\xc3(\\xe2\\x82");
        check(b"nul\0bell\x07back\x08del\x7f", "nul\\x00bell\\x07back\\x08del\\x7f");
        check(b"10%\r20%\r\nend\r", "10%\n20%\nend\n");
        check("a\u{202e}txt.exe\u{2066}".as_bytes(), "a\\u{202e}txt.exe\\u{2066}");
        check(b"\x1b[31", "");
        check("\u{1b}[é".as_bytes(), "é");
    }

    #[test]
    fn a_sequence_without_end_hides_no_more_than_its_limit() {
        let text = clean(&[b"\x1bP".as_slice(), &[b'x'; 10_000]].concat(), 1000);
        assert_eq!(text.len(), 10_000 + 1 - MAX_SEQUENCE);
    }
}
