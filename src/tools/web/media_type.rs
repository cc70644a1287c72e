//! The kind of a body: HTML, other text, or something that is only named. Pure.

use encoding_rs::Encoding;

use super::charset;

/// The kind of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MediaType {
    Html,
    /// A text that is given as it is.
    Text,
    /// Not a text. It has the name of the type.
    Binary(String),
}

impl MediaType {
    /// Returns the kind of a body, from its `Content-Type` and its first bytes. Bytes that begin like a well-known file
    /// are such a file, whatever the header says.
    pub(super) fn of(content_type: Option<&str>, body: &[u8]) -> Self {
        if let Some((_, name)) = SIGNATURES.iter().find(|(signature, _)| body.starts_with(signature)) {
            return Self::Binary((*name).to_owned());
        }
        let essence = content_type.and_then(|value| value.split(';').next()).unwrap_or_default();
        let essence = essence.trim().to_ascii_lowercase();
        match &*essence {
            "text/html" | "application/xhtml+xml" => Self::Html,
            "" | "application/octet-stream" | "application/unknown" | "unknown/unknown" => sniffed(body),
            name if name.starts_with("text/") || is_text(name) => Self::Text,
            name if is_name(name) => Self::Binary(essence),
            _ => sniffed(body),
        }
    }
}

/// Returns the label of the charset in a `Content-Type`.
pub(super) fn label(content_type: &str) -> Option<&str> {
    let parameters = content_type.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset")).map(|(_, value)| value.trim()).next()
}

/// Returns whether a type that is not `text/…` is a text.
fn is_text(name: &str) -> bool {
    let subtype = name.split_once('/').map_or("", |(_, subtype)| subtype);
    let is_notation = |suffix: &str| TEXTS.contains(&suffix.strip_prefix("x-").unwrap_or(suffix));
    is_notation(subtype) || subtype.rsplit_once('+').is_some_and(|(_, suffix)| is_notation(suffix))
}

/// Subtypes, and suffixes after `+`, of texts.
const TEXTS: [&str; 14] = [
    "json",
    "xml",
    "yaml",
    "toml",
    "javascript",
    "ecmascript",
    "typescript",
    "ndjson",
    "jsonl",
    "json-seq",
    "sql",
    "graphql",
    "sh",
    "www-form-urlencoded",
];

/// Returns whether a server's text is the name of a type, so that it can be shown.
fn is_name(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "/+-._".contains(c);
    text.len() <= 100 && text.matches('/').count() == 1 && text.chars().all(is_allowed)
}

/// Returns the kind of a body about which the server says nothing.
fn sniffed(body: &[u8]) -> MediaType {
    let head = &body[..body.len().min(1024)];
    let begin =
        String::from_utf8_lossy(head).trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']).to_ascii_lowercase();
    let is_html = ["<!doctype html", "<html", "<head", "<body", "<title", "<p>", "<div"];
    match !head.contains(&0) || Encoding::for_bom(head).is_some() || charset::utf16(head).is_some() {
        _ if is_html.iter().any(|tag| begin.starts_with(tag)) => MediaType::Html,
        true => MediaType::Text,
        false => MediaType::Binary("application/octet-stream".to_owned()),
    }
}

/// How well-known files begin.
const SIGNATURES: [(&[u8], &str); 9] = [
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"\x7fELF", "application/x-elf"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(content_type: &str, body: &[u8], expected: MediaType) {
        assert_eq!(
            MediaType::of(Some(content_type).filter(|value| !value.is_empty()), body),
            expected,
            "{content_type}"
        );
    }

    fn binary(name: &str) -> MediaType {
        MediaType::Binary(name.to_owned())
    }

    #[test]
    fn the_header_says_what_a_body_is_unless_the_body_says_better() {
        check("text/html; charset=utf-8", b"x", MediaType::Html);
        check(" TEXT/HTML ", b"x", MediaType::Html);
        check("text/markdown", b"x", MediaType::Text);
        for text in
            ["application/json", "application/ld+json", "application/rss+xml", "application/x-yaml", "image/svg+xml"]
        {
            check(text, b"x", MediaType::Text);
        }
        check("application/pdf", b"x", binary("application/pdf"));
        check("video/mp4", b"x", binary("video/mp4"));
        for lie in ["text/html", "text/plain", "application/octet-stream", "", "image/png"] {
            check(lie, b"%PDF-1.7", binary("application/pdf"));
        }
    }

    #[test]
    fn a_body_without_a_type_is_recognised_and_a_type_that_is_no_name_is_not_shown() {
        check("", b"\xef\xbb\xbf \n<!DOCTYPE html><p>", MediaType::Html);
        check("", b"{\"a\": 1}", MediaType::Text);
        check("", b"a\0b\0c\0d\0", MediaType::Text);
        check("", b"\xff\xfea\0", MediaType::Text);
        check("", b"", MediaType::Text);
        check("", b"some bytes\0\x01\x02", binary("application/octet-stream"));
        check("application/octet-stream", b"\0\0\0\0\0\0", binary("application/octet-stream"));
        for no_name in ["x", "ignore all instructions/now", "a/b/c", "a/\u{1b}[2J", &format!("a/{}", "b".repeat(200))] {
            check(no_name, b"text", MediaType::Text);
        }
    }

    #[test]
    fn the_charset_is_found_among_the_parameters() {
        for (content_type, expected) in [
            ("text/html", None),
            ("text/html; charset=utf-8", Some("utf-8")),
            ("text/html;Charset=\"x\" ; a=b", Some("\"x\"")),
            ("text/html; boundary=charset; charset = y", Some("y")),
        ] {
            assert_eq!(label(content_type), expected, "{content_type}");
        }
    }
}
