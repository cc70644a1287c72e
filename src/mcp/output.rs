//! What a tool of a server gave, as content for a model, with nothing in it that cannot be seen. Plain functions.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{ContentBlock, ResourceContents};
use serde_json::Value;

use super::visible::visible;
use crate::message::{Attachment, AttachmentKind, Content};

/// A result of `tools/call`, in whatever shape it came.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) content: Content,
    pub(super) is_error: bool,
}

impl Output {
    pub(super) fn new(blocks: &[ContentBlock], structured: Option<&Value>, is_error: Option<bool>) -> Self {
        let mut pieces = Pieces::default();
        blocks.iter().for_each(|block| pieces.add(block));
        if let Some(structured) = structured {
            pieces.add_structured(structured);
        }
        Self { content: pieces.into_content(), is_error: is_error == Some(true) }
    }

    /// Reads a result that is not quite as it should be: what is no known content is given as its JSON.
    pub(super) fn lenient(result: &Value) -> Option<Self> {
        let mut pieces = Pieces::default();
        for block in result["content"].as_array()? {
            match serde_json::from_value::<ContentBlock>(block.clone()) {
                Ok(block) => pieces.add(&block),
                Err(_) => pieces.texts.push(block.to_string()),
            }
        }
        if let Some(structured) = result.get("structuredContent") {
            pieces.add_structured(structured);
        }
        Some(Self { content: pieces.into_content(), is_error: result["isError"] == true })
    }
}

/// The contents of a resource.
pub(super) fn resource(contents: &[ResourceContents]) -> Content {
    let mut pieces = Pieces::default();
    for content in contents {
        match content {
            ResourceContents::TextResourceContents { text, .. } => pieces.texts.push(text.clone()),
            other => pieces.add_resource(other),
        }
    }
    pieces.into_content()
}

/// One block.
pub(super) fn block(block: &ContentBlock) -> Content {
    let mut pieces = Pieces::default();
    pieces.add(block);
    pieces.into_content()
}

#[derive(Default)]
struct Pieces {
    texts: Vec<String>,
    attachments: Vec<Attachment>,
}

impl Pieces {
    fn add(&mut self, block: &ContentBlock) {
        match block {
            ContentBlock::Text(text) => self.texts.push(text.text.clone()),
            ContentBlock::Image(image) => self.attach(&image.mime_type, &image.data, None),
            ContentBlock::Audio(audio) => self.attach(&audio.mime_type, &audio.data, None),
            ContentBlock::Resource(embedded) => self.add_resource(&embedded.resource),
            ContentBlock::ResourceLink(link) => {
                let mut line = format!("Resource {}: {}", link.uri, link.title.as_ref().unwrap_or(&link.name));
                if let Some(description) = &link.description {
                    line = format!("{line} ({description})");
                }
                self.texts.push(line);
            }
            other => self.texts.push(serde_json::to_string(other).unwrap_or_default()),
        }
    }

    fn add_resource(&mut self, resource: &ResourceContents) {
        match resource {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                self.texts.push(format!("Resource {uri}:\n{text}"));
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let name = uri.rsplit('/').find(|part| !part.is_empty());
                self.attach(mime_type.as_deref().unwrap_or("application/octet-stream"), blob, name);
            }
            other => self.texts.push(serde_json::to_string(other).unwrap_or_default()),
        }
    }

    fn attach(&mut self, media_type: &str, base64: &str, name: Option<&str>) {
        let kind = match media_type.split('/').next() {
            Some("image") => AttachmentKind::Image,
            Some("audio") => AttachmentKind::Audio,
            _ => AttachmentKind::Document,
        };
        let attachment = match kind {
            AttachmentKind::Document => Attachment::encoded(kind, media_type, &visible_document(base64)),
            _ => Attachment::encoded(kind, media_type, base64),
        };
        self.attachments.push(match name {
            Some(name) => attachment.named(&visible(name)),
            None => attachment,
        });
    }

    /// Servers repeat structured content as text for clients that do not read it, whole or what its one member holds;
    /// then the text is enough.
    fn add_structured(&mut self, structured: &Value) {
        let inner =
            structured.as_object().filter(|members| members.len() == 1).and_then(|members| members.values().next());
        let is_repeated = [Some(structured), inner].into_iter().flatten().any(|value| self.carries(value));
        if !structured.is_null() && !is_repeated {
            self.texts.push(structured.to_string());
        }
    }

    /// Whether a value stands in the texts: as one of them, as all of them together, or item by item.
    fn carries(&self, value: &Value) -> bool {
        let is_said = |text: &String, value: &Value| match value {
            Value::String(words) => text == words,
            value => serde_json::from_str::<Value>(text).is_ok_and(|said| said == *value),
        };
        let is_itemised = || match value {
            Value::Array(items) if items.len() == self.texts.len() => {
                self.texts.iter().zip(items).all(|(text, item)| is_said(text, item))
            }
            _ => false,
        };
        self.texts.iter().any(|text| is_said(text, value)) || is_said(&self.texts.join("\n"), value) || is_itemised()
    }

    fn into_content(self) -> Content {
        Content { text: visible(&self.texts.join("\n")).into(), attachments: self.attachments }
    }
}

/// The same document; if it is text, which a model may be given as such, then without what cannot be seen.
fn visible_document(base64: &str) -> Cow<'_, str> {
    let text = STANDARD.decode(base64).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    match text.as_deref().map(visible) {
        Some(Cow::Owned(shown)) => STANDARD.encode(shown.as_bytes()).into(),
        _ => base64.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lenient(result: &Value) -> Output {
        Output::lenient(result).unwrap()
    }

    #[test]
    fn every_kind_of_content_arrives() {
        let result = json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "iVBORw==", "mimeType": "image/png"},
            {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt", "description": "A file."},
            {"type": "resource", "resource": {"uri": "demo://1", "mimeType": "text/plain", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "demo://x/2.pdf", "mimeType": "application/pdf", "blob": "JVBERg=="}},
            {"type": "hologram"},
        ]});
        let text = "one\nResource file:///a.txt: a.txt (A file.)\nResource demo://1:\ninside\n\
            {\"type\":\"hologram\"}";
        let expected = Content::from(text)
            .attach(Attachment::encoded(AttachmentKind::Image, "image/png", "iVBORw=="))
            .attach(Attachment::encoded(AttachmentKind::Audio, "audio/wav", "UklGRg=="))
            .attach(Attachment::encoded(AttachmentKind::Document, "application/pdf", "JVBERg==").named("2.pdf"));
        let output = lenient(&result);
        assert_eq!((output.content, output.is_error), (expected, false));
    }

    #[test]
    fn nothing_arrives_that_cannot_be_seen() {
        let hidden = "in\u{e0063}\u{200b}side";
        let (text, binary) = (STANDARD.encode(hidden), STANDARD.encode(b"\x00\xff"));
        let result = json!({"content": [
            {"type": "text", "text": hidden},
            {"type": "resource_link", "uri": "x://a", "name": hidden},
            {"type": "resource", "resource": {"uri": "x://b", "text": hidden}},
            {"type": "resource", "resource": {"uri": "x://c\u{200b}", "mimeType": "text/plain", "blob": text}},
            {"type": "resource", "resource": {"uri": "x://d", "mimeType": "application/pdf", "blob": binary}},
        ], "structuredContent": {hidden: 1}});
        let text = "inside\nResource x://a: inside\nResource x://b:\ninside\n{\"inside\":1}";
        let document =
            |media_type: &str, base64: &str| Attachment::encoded(AttachmentKind::Document, media_type, base64);
        let expected = Content::from(text)
            .attach(document("text/plain", &STANDARD.encode("inside")).named("c"))
            .attach(document("application/pdf", &binary).named("d"));
        assert_eq!(lenient(&result).content, expected);
    }

    #[test]
    fn structured_content_is_given_once() {
        let text = |result: Value| lenient(&result).content.text.to_string();
        let repeated = json!({"content": [{"type": "text", "text": "{\n \"a\": 1}"}], "structuredContent": {"a": 1}});
        assert_eq!(text(repeated), "{\n \"a\": 1}");
        let other = json!({"content": [{"type": "text", "text": "done"}], "structuredContent": {"a": 1}});
        assert_eq!(text(other), "done\n{\"a\":1}");
        assert_eq!(text(json!({"content": [], "structuredContent": {"a": 1}})), "{\"a\":1}");
        let member =
            json!({"content": [{"type": "text", "text": "inside"}], "structuredContent": {"content": "inside"}});
        assert_eq!(text(member), "inside");
        let items = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "2"}]);
        assert_eq!(text(json!({"content": items, "structuredContent": {"result": ["a", 2]}})), "a\n2");
        assert_eq!(
            text(json!({"content": items, "structuredContent": {"result": ["a"]}})),
            "a\n2\n{\"result\":[\"a\"]}"
        );
    }
}
