//! The text of an answer while it is streamed, whichever way the model ends: by text, or by `finish`.
//!
//! Nothing here waits or fails. Arguments that are no JSON give no text; [`turn`](crate::turn) decides what they mean.

use std::sync::Arc;

use crate::name::FINISH;
use crate::provider::Delta;

/// Finds the pieces of the answer in the pieces of one reply.
pub(crate) struct AnswerDeltas {
    /// The index of the tool call that is the first `finish`.
    finish: Option<usize>,
    message: MessageReader,
    /// Whether the next piece begins the answer.
    begins: bool,
}

impl AnswerDeltas {
    /// `continues`: the reply goes on where a paused one stopped.
    pub(crate) fn new(continues: bool) -> Self {
        Self { finish: None, message: MessageReader::default(), begins: !continues }
    }

    /// Returns the piece of the answer that a piece of the reply contains.
    pub(crate) fn next(&mut self, delta: &Delta) -> Option<Delta> {
        let text: Arc<str> = match delta {
            Delta::Text(text) if self.finish.is_none() => Arc::clone(text),
            Delta::ToolCall { index, name, arguments } if &**name == FINISH => {
                if *self.finish.get_or_insert(*index) != *index {
                    return None;
                }
                let (text, begins) = self.message.read(arguments);
                self.begins |= begins;
                text.into()
            }
            Delta::Text(_) | Delta::Reasoning(_) | Delta::ToolCall { .. } | Delta::Answer { .. } => return None,
        };
        let begins = std::mem::take(&mut self.begins);
        (begins || !text.is_empty()).then_some(Delta::Answer { text, begins })
    }
}

/// Reads the text of `message` in the arguments of `finish`, however these are cut.
#[derive(Default)]
struct MessageReader {
    depth: usize,
    state: ReaderState,
    /// The last string at the first level, which may be a key.
    key: String,
    is_value: bool,
    /// The first half of a surrogate pair.
    high: Option<u16>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum ReaderState {
    #[default]
    Outside,
    InString,
    Escape,
    /// Within `\u`, with the digits so far and their number.
    Unicode(u16, u8),
}

impl MessageReader {
    /// Returns the text in the next piece, and whether a message begins in it.
    fn read(&mut self, piece: &str) -> (String, bool) {
        let (mut text, mut begins) = (String::new(), false);
        for c in piece.chars() {
            let is_message = self.depth == 1 && self.is_value && self.key == "message";
            if self.state == ReaderState::Outside {
                begins |= is_message && c == '"';
                if begins && is_message && c == '"' {
                    text.clear();
                }
                self.outside(c);
            } else if let Some(c) = self.in_string(c) {
                if is_message {
                    text.push(c);
                } else if self.depth == 1 && !self.is_value {
                    self.key.push(c);
                }
            }
        }
        (text, begins)
    }

    fn outside(&mut self, c: char) {
        match c {
            '"' => {
                self.state = ReaderState::InString;
                if self.depth == 1 && !self.is_value {
                    self.key.clear();
                }
            }
            '{' | '[' => self.depth += 1,
            '}' | ']' => self.depth = self.depth.saturating_sub(1),
            ':' if self.depth == 1 => self.is_value = true,
            ',' if self.depth == 1 => self.is_value = false,
            _ => {}
        }
    }

    /// Returns the character that the next one in a string completes.
    fn in_string(&mut self, c: char) -> Option<char> {
        let (state, read) = match (self.state, c) {
            (ReaderState::InString, '"') => (ReaderState::Outside, None),
            (ReaderState::InString, '\\') => (ReaderState::Escape, None),
            (ReaderState::Escape, 'u') => (ReaderState::Unicode(0, 0), None),
            (ReaderState::Escape, 'n') => (ReaderState::InString, Some('\n')),
            (ReaderState::Escape, 't') => (ReaderState::InString, Some('\t')),
            (ReaderState::Escape, 'r') => (ReaderState::InString, Some('\r')),
            (ReaderState::Escape, 'b') => (ReaderState::InString, Some('\u{8}')),
            (ReaderState::Escape, 'f') => (ReaderState::InString, Some('\u{c}')),
            (ReaderState::Unicode(digits, count), c) => {
                let digits = digits << 4 | c.to_digit(16).unwrap_or_default() as u16;
                match count {
                    3 => (ReaderState::InString, self.unit(digits)),
                    _ => (ReaderState::Unicode(digits, count + 1), None),
                }
            }
            (ReaderState::InString | ReaderState::Escape | ReaderState::Outside, c) => (ReaderState::InString, Some(c)),
        };
        self.state = state;
        read
    }

    /// Returns the character of a UTF-16 unit, once a surrogate pair is complete.
    fn unit(&mut self, unit: u16) -> Option<char> {
        match self.high.take() {
            Some(high) => char::decode_utf16([high, unit]).next().and_then(Result::ok),
            None if (0xD800..0xDC00).contains(&unit) => {
                self.high = Some(unit);
                None
            }
            None => char::from_u32(unit.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn finish(index: usize, arguments: &str) -> Delta {
        Delta::ToolCall { index, name: FINISH.into(), arguments: arguments.into() }
    }

    /// The answer that a reader of the pieces has at the end.
    fn answer(deltas: &[Delta]) -> String {
        let mut pieces = AnswerDeltas::new(false);
        let mut answer = String::new();
        for delta in deltas {
            if let Some(Delta::Answer { text, begins }) = pieces.next(delta) {
                if begins {
                    answer.clear();
                }
                answer.push_str(&text);
            }
        }
        answer
    }

    #[test]
    fn text_before_a_finish_is_no_part_of_the_answer() {
        let text = |text: &str| Delta::Text(text.into());
        assert_eq!(answer(&[text("Hel"), text("lo")]), "Hello");
        assert_eq!(answer(&[text("Let me see. "), finish(0, "{\"message\": \"do"), finish(0, "ne\"}")]), "done");
        assert_eq!(answer(&[finish(0, r#"{"message":"one"}"#), finish(1, r#"{"message":"two"}"#)]), "one");
        assert_eq!(answer(&[finish(0, r#"{"message":"one","message":"two"}"#)]), "two");
        assert_eq!(answer(&[finish(0, r#"{"a":{"message":"no"},"b":["message","no"],"message":"yes"}"#)]), "yes");
        assert_eq!(answer(&[finish(0, r#"{"message":{"message":"no"}}"#)]), "");
        assert_eq!(answer(&[Delta::Reasoning("hm".into()), finish(0, "}]]{\"")]), "");
    }

    proptest! {
        #[test]
        fn a_message_is_read_however_its_arguments_are_cut(
            message in any::<String>(), other in any::<String>(), cuts in prop::collection::vec(any::<usize>(), 0..8),
            is_escaped in any::<bool>(),
        ) {
            let mut written = json!({"other": {"message": other}, "message": message, "last": [other]}).to_string();
            if is_escaped {
                let escape = |c: char| match c.is_ascii() {
                    true => c.to_string(),
                    false => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
                };
                written = written.chars().map(escape).collect();
            }
            let chars: Vec<char> = written.chars().collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % chars.len()).chain([0, chars.len()]).collect();
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|cut| finish(0, &chars[cut[0]..cut[1]].iter().collect::<String>()));
            prop_assert_eq!(answer(&pieces.collect::<Vec<_>>()), message);
        }
    }
}
