//! An agent's answer as the result of a tool. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};

use crate::content::{Attachment, AttachmentKind, AttachmentSource, Content};
use crate::error::CallError;

/// The text, then the attachments in their order; or the error, which the host's model reads.
pub(super) fn result(answer: Result<Content, CallError>) -> CallToolResult {
    match answer {
        Ok(content) => CallToolResult::success(blocks(&content)),
        Err(error) => failure(error.to_string()),
    }
}

/// An error that the host's model reads.
pub(super) fn failure(text: String) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

fn blocks(content: &Content) -> Vec<ContentBlock> {
    let has_text = !content.text.is_empty() || content.attachments.is_empty();
    let text = has_text.then(|| ContentBlock::text(content.text.as_ref()));
    text.into_iter().chain(content.attachments.iter().enumerate().map(|(place, item)| block(place, item))).collect()
}

fn block(place: usize, attachment: &Attachment) -> ContentBlock {
    let name = || attachment.name.as_deref().map_or_else(|| (place + 1).to_string(), str::to_owned);
    match (&attachment.source, attachment.kind) {
        (AttachmentSource::Url { url }, _) => ContentBlock::resource_link(Resource::new(url.as_ref(), name())),
        (AttachmentSource::Inline { media_type, base64 }, AttachmentKind::Image) => {
            ContentBlock::image(base64.as_ref(), media_type.as_ref())
        }
        (AttachmentSource::Inline { media_type, base64 }, AttachmentKind::Audio) => {
            ContentBlock::audio(base64.as_ref(), media_type.as_ref())
        }
        (AttachmentSource::Inline { media_type, base64 }, AttachmentKind::Document) => {
            ContentBlock::resource(document(&name(), media_type, base64))
        }
    }
}

/// A text document as text, any other one as bytes. Its URI is made from its name: it cannot be read again.
fn document(name: &str, media_type: &str, base64: &str) -> ResourceContents {
    let uri = format!("attachment:{}", escaped(name));
    let is_text = media_type.starts_with("text/") || media_type.starts_with("application/json");
    let bytes = is_text.then(|| STANDARD.decode(base64).ok()).flatten();
    let contents = match bytes.and_then(|bytes| String::from_utf8(bytes).ok()) {
        Some(text) => ResourceContents::text(text, uri),
        None => ResourceContents::blob(base64, uri),
    };
    contents.with_mime_type(media_type)
}

/// The name, escaped for a URI ([RFC 3986, section 2.1](https://www.rfc-editor.org/rfc/rfc3986#section-2.1)).
fn escaped(name: &str) -> String {
    name.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(content: Content, expected: Value) {
        assert_eq!(serde_json::to_value(result(Ok(content))).unwrap()["content"], expected);
    }

    #[test]
    fn each_attachment_becomes_what_the_protocol_has_for_its_kind() {
        use AttachmentKind::{Audio, Document, Image};
        check(Content::from("hello"), json!([{ "type": "text", "text": "hello" }]));
        check(Content::from(""), json!([{ "type": "text", "text": "" }]));
        let content = Content::from("")
            .attach(Attachment::inline(Image, "image/png", b"\x89PNG"))
            .attach(Attachment::inline(Audio, "audio/wav", b"RIFF"))
            .attach(Attachment::inline(Document, "text/markdown", "# 제목".as_bytes()).named("a b.md"))
            .attach(Attachment::inline(Document, "text/plain", b"\xff"))
            .attach(Attachment::url(Image, "https://example.org/cat.png"));
        check(
            content,
            json!([
                { "type": "image", "data": "iVBORw==", "mimeType": "image/png" },
                { "type": "audio", "data": "UklGRg==", "mimeType": "audio/wav" },
                { "type": "resource", "resource": {
                    "uri": "attachment:a%20b.md", "mimeType": "text/markdown", "text": "# 제목" } },
                { "type": "resource", "resource": { "uri": "attachment:4", "mimeType": "text/plain", "blob": "/w==" } },
                { "type": "resource_link", "uri": "https://example.org/cat.png", "name": "5" },
            ]),
        );
    }

    #[test]
    fn a_failed_call_is_an_error_that_the_model_reads() {
        let result = serde_json::to_value(result(Err(CallError::failed("out of paper")))).unwrap();
        assert_eq!(result["isError"], true);
        assert_eq!(result["content"], json!([{ "type": "text", "text": "out of paper" }]));
    }
}
