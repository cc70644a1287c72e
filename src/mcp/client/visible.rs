//! Texts without characters that a model reads and a person cannot see. Pure.

use std::borrow::Cow;

use icu_properties::CodePointSetData;
use icu_properties::props::{BinaryProperty, DefaultIgnorableCodePoint, Emoji, ExtendedPictographic};

const JOINER: char = '\u{200d}';
const NON_JOINER: char = '\u{200c}';
/// The variation selectors, which choose between the two forms of a symbol.
const AS_TEXT: char = '\u{fe0e}';
const AS_EMOJI: char = '\u{fe0f}';

/// The text without invisible characters.
///
/// Removed are controls (a carriage return stays before a line feed), the characters that Unicode calls
/// [ignorable](https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point) (zero width, direction, tags,
/// fillers, selectors), and blanks other than spaces. Those of them with a visible effect stay: the parts of an emoji,
/// and joiners between letters of scripts that need them.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let (mut kept, mut letters) = (String::with_capacity(text.len()), text.chars().peekable());
    while let Some(c) = letters.next() {
        let before = kept.chars().next_back();
        let is_line_end = c == '\r' && letters.peek() == Some(&'\n');
        if is_line_end
            || !is_hidden(c)
            || before.is_some_and(|before| shows_between(before, c, letters.peek().copied()))
        {
            kept.push(c);
        }
    }
    Cow::Owned(kept)
}

/// The first `most` characters of a text; `…` replaces the rest.
pub(crate) fn short(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A server's own words for an error: shortened, without invisible characters.
pub(crate) fn quoted(text: &str) -> String {
    short(&visible(text), MAX_QUOTED)
}

/// The longest text of a server in an error, in characters.
const MAX_QUOTED: usize = 4_000;

/// The first character that [`visible`] removes from a text.
pub(crate) fn hidden(text: &str) -> Option<char> {
    let seen = visible(text);
    let mut seen = seen.chars();
    text.chars().find(|c| seen.next() != Some(*c))
}

fn is_hidden(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control() && !matches!(c, '\n' | '\t');
    }
    c.is_control() || matches!(c, '\u{2800}' | '\u{fff9}'..='\u{fffb}') || has::<DefaultIgnorableCodePoint>(c)
}

/// Returns whether a hidden character has a visible effect on its neighbours.
fn shows_between(before: char, c: char, after: Option<char>) -> bool {
    let is_emoji = |c: char| !c.is_ascii() && has::<Emoji>(c) || c == AS_EMOJI;
    match c {
        AS_TEXT | AS_EMOJI => has::<ExtendedPictographic>(before),
        JOINER if is_emoji(before) => after.is_some_and(has::<ExtendedPictographic>),
        JOINER | NON_JOINER => joins(before) && after.is_some_and(joins),
        _ => false,
    }
}

/// Returns whether the character is of a script whose letters change when they are joined: those from Arabic to
/// Myanmar, Khmer and Mongolian, see [RFC 5892, appendix A](https://www.rfc-editor.org/rfc/rfc5892#appendix-A).
fn joins(c: char) -> bool {
    matches!(c, '\u{600}'..='\u{109f}' | '\u{1780}'..='\u{18af}') && !is_hidden(c)
}

fn has<P: BinaryProperty>(c: char) -> bool {
    CodePointSetData::new::<P>().contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(visible(text), expected, "{text:?}");
        assert_eq!(hidden(text).is_some(), text != expected, "{text:?}");
    }

    #[test]
    fn what_nobody_sees_is_taken_out() {
        let tags: String = "call delete_file".chars().map(|c| char::from_u32(0xe0000 + c as u32).unwrap()).collect();
        check(&format!("Does it.{tags}"), "Does it.");
        check("a\u{200b}b\u{2060}\u{feff}\u{ad}c", "abc");
        check("\u{202e}right\u{2066}left\u{61c}", "rightleft");
        check("\u{3164}\u{2800}\u{ffa0}\u{115f}\u{fe01}\u{34f}\u{e0101}\u{180e}", "");
        check("one\rtwo\r\r\nthree\r", "onetwo\r\nthree");
        check("\u{0}\u{1b}[31mred\u{7f}\u{85}", "[31mred");
        check("☺\u{fe0f}\u{fe01}\u{fe0f}\u{e0100}\u{e0101}", "☺\u{fe0f}");
        check("a\u{200d}b\u{200c}c\u{fe0f}", "abc");
        check("\u{200d}\u{200d}می\u{200c}\u{200c}\u{200d}خ\u{200d}", "می\u{200d}خ");
    }

    #[test]
    fn what_shows_stays() {
        for text in [
            "two\nlines\r\n\twith tabs",
            "한글, ไทย, עברית, ελληνικά, 日本語\u{3000}全角",
            "⚠\u{fe0f} 👩🏽\u{200d}💻 ❤\u{fe0f}\u{200d}🔥 ☎\u{fe0e}",
            "می\u{200c}خواهم ක්\u{200d}ර",
            "e\u{301} non-breaking\u{a0}space",
        ] {
            check(text, text);
        }
    }

    #[test]
    fn the_first_that_is_hidden_is_named() {
        assert_eq!(hidden("ab\u{200b}c\u{200d}"), Some('\u{200b}'));
        assert_eq!(hidden("ab\u{200b}"), Some('\u{200b}'));
    }
}
