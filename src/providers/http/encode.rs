//! The body of a request. The part that an earlier turn of the same invocation has encoded is used again.
//!
//! Every format has a list of messages that only grows. It is written last, so that the next body is this body with
//! more messages after it.

use std::borrow::Cow;

use base64::Engine as _;
use bytes::{BufMut as _, Bytes, BytesMut};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::client::ResponseMode;
use super::wire_format::{CacheMark, WireFormat};
use crate::content::{Attachment, AttachmentSource};
use crate::provider::{ProviderError, ProviderErrorKind, Request};

/// Writes the body of a request in the format `W`.
pub(crate) fn encode<W: WireFormat>(
    request: &Request,
    expect: ResponseMode,
    profile: W::Profile,
) -> Result<Bytes, ProviderError> {
    write::<W>(request, expect, profile).map_err(|error| {
        ProviderError::new(ProviderErrorKind::InvalidRequest, format!("the request cannot be written: {error}"))
    })
}

fn write<W: WireFormat>(request: &Request, expect: ResponseMode, profile: W::Profile) -> serde_json::Result<Bytes> {
    let context = &request.context;
    let kept = context.memo.take::<Encoded<W>>().filter(|kept| kept.expect == expect && kept.profile == profile);
    let (mut out, encoded, mut marked) = match kept {
        Some(kept) => {
            // The bytes are not shared any more, unless an earlier request is still in flight.
            let mut out = kept.body.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&*shared));
            out.truncate(out.len() - END.len());
            (out, kept.messages, kept.marked)
        }
        None => (head::<W>(request, expect, profile)?, 0, Marked::default()),
    };
    let mut list = MessageList { has_items: !out.ends_with(b"["), out: &mut out };
    W::messages(request, encoded, profile, &mut list)?;
    let messages = context.messages().count();
    if let Some(mark) = W::cache_mark(request, profile).filter(|_| messages > encoded) {
        marked.mark_end(mark, &mut out);
    }
    out.put_slice(END);
    let body = out.freeze();
    context.memo.put(Encoded::<W> { expect, profile, body: body.clone(), messages, marked });
    Ok(body)
}

/// Writes the part of the body before the messages.
fn head<W: WireFormat>(request: &Request, expect: ResponseMode, profile: W::Profile) -> serde_json::Result<BytesMut> {
    let extra = &request.agent.extra;
    let mut fields = RequestFields { out: BytesMut::with_capacity(1024), extra, ours: vec![W::MESSAGES] };
    W::fields(request, expect, profile, &mut fields)?;
    let RequestFields { mut out, ours, .. } = fields;
    for (key, value) in extra.iter().filter(|(key, value)| !value.is_null() && !ours.contains(&key.as_str())) {
        put_field(&mut out, key, value)?;
    }
    put_key(&mut out, W::MESSAGES)?;
    out.put_u8(b'[');
    Ok(out)
}

/// The end of the list of messages, and of the body.
const END: &[u8] = b"]}";

/// The encoded body, kept in the context until the next turn.
struct Encoded<W: WireFormat> {
    expect: ResponseMode,
    profile: W::Profile,
    body: Bytes,
    /// The number of the context's messages that are in it.
    messages: usize,
    marked: Marked,
}

/// The places of the cache marks among the messages: the end of the request before, and that of the latest one.
///
/// The server reads from its cache what an earlier request has written there. It looks for that only at marks, and at a
/// few blocks before them, so the mark of the request before stays.
#[derive(Clone, Copy, Debug, Default)]
struct Marked {
    before: Option<usize>,
    latest: Option<usize>,
}

impl Marked {
    /// Marks the last message. The mark before the last one is taken out, which moves only the bytes of two turns.
    fn mark_end(&mut self, CacheMark { text, end }: CacheMark, out: &mut BytesMut) {
        if !out.ends_with(end.as_bytes()) {
            return;
        }
        if let Some(oldest) = self.before {
            out.copy_within(oldest + text.len().., oldest);
            out.truncate(out.len() - text.len());
            self.latest = self.latest.map(|latest| latest - text.len());
        }
        out.truncate(out.len() - end.len());
        *self = Self { before: self.latest, latest: Some(out.len()) };
        out.put_slice(text.as_bytes());
        out.put_slice(end.as_bytes());
    }
}

/// The fields before the messages. Each is merged with the agent's `extra` of the same name.
pub struct RequestFields<'a> {
    out: BytesMut,
    extra: &'a Map<String, Value>,
    ours: Vec<&'static str>,
}

impl RequestFields<'_> {
    /// Writes a field, unless there is no value.
    pub(crate) fn set(&mut self, key: &'static str, value: Option<impl Serialize>) -> serde_json::Result<()> {
        let Some(value) = value else { return Ok(()) };
        self.ours.push(key);
        match self.extra.get(key) {
            None => put_field(&mut self.out, key, &value),
            Some(extra) => match merge(serde_json::to_value(value)?, extra) {
                Some(merged) => put_field(&mut self.out, key, &merged),
                None => Ok(()),
            },
        }
    }
}

/// Merges a provider's value with the agent's `extra`: objects are merged, lists joined, `null` leaves the field out,
/// and any other value replaces the provider's.
fn merge(ours: Value, extra: &Value) -> Option<Value> {
    match (ours, extra) {
        (_, Value::Null) => None,
        (Value::Object(mut ours), Value::Object(extra)) => {
            for (key, value) in extra {
                match merge(ours.get_mut(key).map(Value::take).unwrap_or_default(), value) {
                    Some(merged) => ours.insert(key.clone(), merged),
                    None => ours.shift_remove(key),
                };
            }
            Some(Value::Object(ours))
        }
        (Value::Array(ours), Value::Array(extra)) => Some(ours.iter().chain(extra).cloned().collect()),
        (_, extra) => Some(extra.clone()),
    }
}

/// The list of messages that is being written.
pub struct MessageList<'a> {
    out: &'a mut BytesMut,
    has_items: bool,
}

impl MessageList<'_> {
    /// Adds one message.
    pub(crate) fn push(&mut self, item: &impl Serialize) -> serde_json::Result<()> {
        if std::mem::replace(&mut self.has_items, true) {
            self.out.put_u8(b',');
        }
        serde_json::to_writer(self.out.writer(), item)
    }
}

/// The text of a reply, with a line for each attachment, in formats whose replies cannot carry attachments.
pub(crate) fn with_attached<'a>(text: Option<&'a str>, attachments: &[Attachment]) -> Option<Cow<'a, str>> {
    let line = |Attachment { source, name, .. }: &Attachment| {
        let what = match source {
            AttachmentSource::Inline { media_type, .. } => media_type,
            AttachmentSource::Url { url } => url,
        };
        let name = name.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
        format!("[attached: {what}{name}]")
    };
    match attachments {
        [] => text.map(Cow::Borrowed),
        _ => {
            let text = text.filter(|text| !text.is_empty()).map(str::to_owned);
            let lines = text.into_iter().chain(attachments.iter().map(line));
            Some(lines.collect::<Vec<_>>().join("\n").into())
        }
    }
}

/// The note to a model about an attachment that it cannot get.
pub(crate) fn not_shown(attachment: &Attachment, why: &str) -> String {
    let what = match &attachment.source {
        AttachmentSource::Inline { media_type, base64 } => format!("{media_type}, {} bytes", base64.len() / 4 * 3),
        AttachmentSource::Url { url } => url.to_string(),
    };
    let name = attachment.name.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
    format!("[attached, but not shown:{name} ({what}): {why}]")
}

/// The reason why a format cannot carry the bytes of an image; `None` if it can.
pub(crate) fn picture_problem(media_type: &str, base64: &str) -> Option<&'static str> {
    match &*essence(media_type) {
        "image/png" | "image/jpeg" | "image/gif" | "image/webp" => too_large(base64),
        _ => Some("the model takes pictures as PNG, JPEG, GIF or WebP only"),
    }
}

/// The reason why an attachment of this size is not sent; `None` if it is sent.
pub(crate) fn too_large(base64: &str) -> Option<&'static str> {
    (base64.len() > MAX_ATTACHMENT_BYTES).then_some("it is too large")
}

/// The most bytes of an attachment in base64. Vendors accept 20 to 50 MB in a whole request.
const MAX_ATTACHMENT_BYTES: usize = 20 << 20;

/// The text of a text document. Bytes that are not UTF-8 are read as Latin-1, which has a character for every byte.
pub(crate) fn text_of(media_type: &str, base64: &str) -> Option<String> {
    let kind = &*essence(media_type);
    let is_text = kind.starts_with("text/")
        || ["json", "xml", "yaml", "javascript", "sql", "toml", "csv"].iter().any(|format| kind.ends_with(format));
    if !is_text || too_large(base64).is_some() {
        return None;
    }
    let bytes = base64::engine::general_purpose::STANDARD.decode(base64).ok()?;
    Some(
        String::from_utf8(bytes)
            .unwrap_or_else(|error| error.as_bytes().iter().map(|byte| char::from(*byte)).collect()),
    )
}

fn is_picture(media_type: &str) -> bool {
    media_type.starts_with("image/") || media_type.starts_with("IMAGE/")
}

/// A media type without its parameters, in lower case, by its registered name.
pub(crate) fn essence(media_type: &str) -> Cow<'_, str> {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    match essence {
        "image/jpg" => "image/jpeg".into(),
        _ if essence.chars().any(char::is_uppercase) => essence.to_ascii_lowercase().into(),
        _ => essence.into(),
    }
}

/// The text, or a placeholder if it is blank: some servers refuse a blank message.
pub(crate) fn or_blank(text: &str) -> &str {
    if text.trim().is_empty() { "(no text)" } else { text }
}

/// An address, or a [data URL](https://www.rfc-editor.org/rfc/rfc2397) with the bytes themselves.
pub(crate) struct DataUrl<'a>(pub(crate) &'a AttachmentSource);

impl Serialize for DataUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            AttachmentSource::Url { url } => serializer.serialize_str(url),
            AttachmentSource::Inline { media_type, base64 } => {
                let media_type = if is_picture(media_type) { essence(media_type) } else { media_type.as_ref().into() };
                serializer.collect_str(&format_args!("data:{media_type};base64,{base64}"))
            }
        }
    }
}

fn put_field(out: &mut BytesMut, key: &str, value: &impl Serialize) -> serde_json::Result<()> {
    put_key(out, key)?;
    serde_json::to_writer(out.writer(), value)
}

fn put_key(out: &mut BytesMut, key: &str) -> serde_json::Result<()> {
    out.put_u8(if out.is_empty() { b'{' } else { b',' });
    serde_json::to_writer(out.writer(), key)?;
    out.put_u8(b':');
    Ok(())
}

/// The arguments of a tool call if they are a JSON object, or else an empty object.
///
/// Some servers parse the arguments, and refuse every later request of a conversation in which they are something else.
pub(crate) fn object_or_empty(arguments: &str) -> &str {
    if object(arguments).is_some() { arguments } else { EMPTY }
}

/// The same as [`object_or_empty`], as raw JSON.
pub(crate) fn json_object_or_empty(arguments: &str) -> serde_json::Result<&RawValue> {
    object(arguments).map_or_else(|| serde_json::from_str(EMPTY), Ok)
}

fn object(arguments: &str) -> Option<&RawValue> {
    serde_json::from_str(arguments).ok().filter(|json: &&RawValue| json.get().starts_with('{'))
}

const EMPTY: &str = "{}";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_an_agent_adds_is_merged() {
        let ours = json!({"a": {"b": 1, "c": 2}, "list": [1], "plain": 1, "gone": 1});
        let extra = json!({"a": {"b": 3, "d": 4}, "list": [2], "plain": {"x": 1}, "gone": null, "new": true});
        let merged = json!({"a": {"b": 3, "c": 2, "d": 4}, "list": [1, 2], "plain": {"x": 1}, "new": true});
        assert_eq!(merge(ours, &extra), Some(merged));
    }
}
