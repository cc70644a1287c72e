//! Names of files as models read them. Pure.
//!
//! A name is shown as it is, or as a JSON string if it has characters that a reader does not see or that turn text
//! around. A model that writes this string in the JSON of its arguments means the same file.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write as _;

use crate::name;

/// The longest path in an error, in characters.
const MAX_QUOTED: usize = 200;

/// The name as it is, or as a JSON string.
pub(super) fn shown(name: &str) -> Cow<'_, str> {
    if !name.contains(['"', '\\', '`']) && !name.chars().any(is_hidden) && name.trim() == name {
        return Cow::Borrowed(name);
    }
    let mut json = String::from('"');
    for c in name.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            '\n' => json.push_str("\\n"),
            c if is_hidden(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // A `String` takes every text.
                    let _ = write!(json, "\\u{unit:04x}");
                }
            }
            c => json.push(c),
        }
    }
    json.push('"');
    Cow::Owned(json)
}

/// The name of an entry of a folder, and whether a tool can be given it.
pub(super) fn shown_entry(name: &OsStr) -> (String, bool) {
    match name.to_str() {
        Some(name) => (shown(name).into_owned(), true),
        None => (shown(&name.to_string_lossy()).into_owned(), false),
    }
}

/// A path within a sentence: between backticks, or as a JSON string. A long one is shortened.
pub(super) fn quoted(path: &str) -> Cow<'_, str> {
    let short = match path.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => Cow::Owned(format!("{}…", &path[..end])),
        None => Cow::Borrowed(path),
    };
    match shown(&short) {
        Cow::Borrowed(plain) => format!("`{plain}`").into(),
        Cow::Owned(json) => json.into(),
    }
}

fn is_hidden(c: char) -> bool {
    let is_plain = c.is_ascii_graphic() || c == ' ';
    let is_variation = matches!(c, '\u{fe00}'..='\u{fe0e}' | '\u{e0100}'..='\u{e01ef}');
    !is_plain && (c.is_control() || c.is_whitespace() || is_variation || name::is_invisible(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_75_what_a_reader_cannot_see_is_escaped_and_means_the_same_name() {
        for (name, expected) in [
            ("a b.txt", "a b.txt"),
            ("가.txt", "가.txt"),
            ("two\nlines", "\"two\\nlines\""),
            ("\u{1b}[31mred", "\"\\u001b[31mred\""),
            ("\u{202e}txt.exe", "\"\\u202etxt.exe\""),
            ("back\\slash", "\"back\\\\slash\""),
            ("\"quoted\"", "\"\\\"quoted\\\"\""),
            ("tag\u{e0061}", "\"tag\\udb40\\udc61\""),
            (" blank", "\" blank\""),
        ] {
            assert_eq!(shown(name), expected);
            let read: String = serde_json::from_str(expected).unwrap_or_else(|_| expected.to_owned());
            assert_eq!(read, name);
        }
        assert_eq!(quoted("a"), "`a`");
        assert_eq!(quoted(&"é".repeat(300)).chars().count(), 203);
    }
}
