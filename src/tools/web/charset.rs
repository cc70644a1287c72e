//! The text of a body in whatever charset it has. Pure.

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

/// Decodes a body. Its charset is, in this order: that of its byte order mark, that of the header, that which HTML or
/// XML declares in its first bytes, UTF-8 or UTF-16 if the bytes are that, and else the one that fits best. A label
/// that names no charset is passed over. Bytes that are no text become U+FFFD.
///
/// This is the order of [the HTML
/// standard](https://html.spec.whatwg.org/multipage/parsing.html#determining-the-character-encoding).
pub(super) fn decode(bytes: &[u8], label: Option<&str>) -> String {
    let encoding = match Encoding::for_bom(bytes) {
        Some((encoding, _)) => encoding,
        None => labelled(label).or_else(|| declared(bytes)).unwrap_or_else(|| guessed(bytes)),
    };
    encoding.decode(bytes).0.into_owned()
}

fn labelled(label: Option<&str>) -> Option<&'static Encoding> {
    Encoding::for_label_no_replacement(label?.trim_matches(['"', '\'', ' ']).as_bytes())
}

/// Returns the charset that the first bytes declare, as `<meta charset="…">`, `<meta content="…; charset=…">` or
/// `<?xml encoding="…"?>`. They are readable, so they are not in UTF-16, whatever they say.
fn declared(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(DECLARED_WITHIN)]).to_ascii_lowercase();
    let tags = head.split('<').filter_map(|tag| tag.split_once('>').map(|(tag, _)| tag));
    let label = tags.filter_map(|tag| match tag {
        tag if tag.starts_with("meta") => value_after(tag, "charset"),
        tag if tag.starts_with("?xml") => value_after(tag, "encoding"),
        _ => None,
    });
    let encoding = label.filter_map(|label| labelled(Some(label))).next()?;
    Some(if encoding == UTF_16BE || encoding == UTF_16LE { UTF_8 } else { encoding })
}

/// The bytes in which the standard looks for a declaration.
const DECLARED_WITHIN: usize = 1024;

/// Returns what follows `name=` in a tag.
fn value_after<'t>(tag: &'t str, name: &str) -> Option<&'t str> {
    let value = tag.split_once(name)?.1.trim_start().strip_prefix('=')?.trim_start_matches([' ', '"', '\'']);
    Some(value.split(['"', '\'', ';', ' ', '?', '/']).next().unwrap_or_default())
}

fn guessed(bytes: &[u8]) -> &'static Encoding {
    if let Some(encoding) = utf16(bytes) {
        return encoding;
    }
    // A body that was cut may end in the middle of a character.
    let is_utf8 = std::str::from_utf8(bytes).map_or_else(|error| error.error_len().is_none(), |_| true);
    if is_utf8 {
        return UTF_8;
    }
    let mut detector = chardetng::EncodingDetector::new(chardetng::Iso2022JpDetection::Allow);
    detector.feed(&bytes[..bytes.len().min(GUESSED_WITHIN)], true);
    detector.guess(None, chardetng::Utf8Detection::Deny)
}

/// Enough for a guess, and little enough to take no time.
const GUESSED_WITHIN: usize = 256 << 10;

/// Returns the kind of UTF-16 in which a text without a mark is: there, every other byte of a Latin letter or a blank
/// is zero.
pub(super) fn utf16(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = &bytes[..bytes.len().min(DECLARED_WITHIN)];
    let zeros = |first: usize| head.iter().skip(first).step_by(2).filter(|byte| **byte == 0).count();
    let (even, odd, pairs) = (zeros(0), zeros(1), head.len() / 2);
    let is_most = |zeros: usize, others: usize| zeros * 4 >= pairs && others * 10 <= zeros && zeros >= 2;
    match (is_most(even, odd), is_most(odd, even)) {
        (true, false) => Some(UTF_16BE),
        (false, true) => Some(UTF_16LE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], label: Option<&str>, expected: &str) {
        assert_eq!(decode(bytes, label), expected, "{label:?}");
    }

    fn encoded(text: &str, label: &str) -> Vec<u8> {
        Encoding::for_label(label.as_bytes()).unwrap().encode(text).0.into_owned()
    }

    fn utf16_bytes(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(bytes).collect()
    }

    #[test]
    fn a_mark_wins_over_the_header_and_the_header_over_the_page() {
        check(b"\xef\xbb\xbf\xc3\xbc", Some("iso-8859-1"), "ü");
        check(b"\xff\xfea\0", Some("utf-8"), "a");
        check(b"<meta charset=utf-8>\xfc", Some("ISO-8859-1"), "<meta charset=utf-8>ü");
        check(b"<meta charset=utf-8>\xfc", Some("\"latin1\""), "<meta charset=utf-8>ü");
    }

    #[test]
    fn a_page_declares_its_charset_in_three_ways() {
        for head in [
            "<meta charset=euc-kr>",
            "<META CHARSET = 'EUC-KR' />",
            "<meta http-equiv=content-type content=\"text/html; charset=euc-kr\">",
            "<?xml version=\"1.0\" encoding=\"euc-kr\"?>",
            "<meta charset=x-none><meta charset=\"euc-kr\">",
        ] {
            let page = format!("{head}안녕하세요");
            check(&encoded(&page, "euc-kr"), None, &page);
            check(&encoded(&page, "euc-kr"), Some("no-such-charset"), &page);
        }
        check("<meta charset=utf-16le>ü".as_bytes(), None, "<meta charset=utf-16le>ü");
    }

    #[test]
    fn a_text_without_a_label_is_recognised() {
        check("ü 안녕".as_bytes(), None, "ü 안녕");
        check(b"caf\xc3", None, "caf\u{fffd}");
        let text = "오늘 날씨가 매우 좋습니다. 산책을 가고 싶습니다. 내일은 비가 온다고 합니다.";
        check(&encoded(text, "euc-kr"), None, text);
        let text = "Le café est fermé à partir de midi, désolé.";
        check(&encoded(text, "windows-1252"), None, text);
        let text = "This is UTF-16 without a mark. 오늘 날씨가 매우 좋습니다.";
        check(&utf16_bytes(text, u16::to_le_bytes), None, text);
        check(&utf16_bytes(text, u16::to_be_bytes), None, text);
        check(b"", None, "");
        check(b"\0", None, "\0");
    }

    #[test]
    fn fault_97_a_wrong_label_or_broken_bytes_give_a_text_and_no_failure() {
        check(b"a\xff\xfe\xfdb", Some("utf-8"), "a\u{fffd}\u{fffd}\u{fffd}b");
        check("ü".as_bytes(), Some("utf-7\0\u{1b}"), "ü");
        // What a browser would not decode either.
        check(b"abc", Some("iso-2022-kr"), "abc");
        check(b"<meta charset=\"", None, "<meta charset=\"");
        check(b"<meta charset", None, "<meta charset");
    }
}
