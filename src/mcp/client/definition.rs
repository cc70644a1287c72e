//! The definition of one tool, as its server lists it: parsed once, checked, with a fingerprint.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::mcp::client::names;
use crate::mcp::client::visible::{hidden, short, visible};
use crate::schema::limits;

/// The longest description, in bytes.
const MAX_DESCRIPTION: usize = 64 * 1024;
/// The longest schema as JSON, in bytes.
const MAX_SCHEMA: usize = 256 * 1024;
/// The longest reason of a refusal, in characters. It may contain the server's own words.
const MAX_REASON: usize = 1_000;

/// The keywords of a schema that hold schemas by name.
pub(crate) const NAMED_SCHEMAS: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// A tool as its server defines it.
#[derive(Debug)]
pub(crate) struct Definition {
    /// The server's name for the tool.
    pub(crate) tool: Arc<str>,
    /// The name in the characters that model vendors accept.
    pub(crate) clean: String,
    /// The description, without invisible characters.
    pub(crate) description: Arc<str>,
    /// The schema of the parameters, without invisible characters.
    pub(crate) parameters: Value,
    pub(crate) fingerprint: Fingerprint,
}

impl Definition {
    /// Reads an entry of `tools/list`.
    ///
    /// # Errors
    ///
    /// When the tool must be refused; the error contains the reason.
    pub(crate) fn read(entry: &Value) -> Result<Self, RefusedTool> {
        let tool: Arc<str> = entry["name"].as_str().unwrap_or_default().into();
        let refused = |reason: String| RefusedTool::new(&tool, reason);
        let clean = names::clean(&tool).map_err(refused)?;
        let description = [&entry["description"], &entry["title"]].into_iter().find_map(Value::as_str);
        let description = description.unwrap_or_default();
        if description.len() > MAX_DESCRIPTION {
            let size = description.len();
            return Err(refused(format!("its description has {size} bytes; {MAX_DESCRIPTION} are allowed")));
        }
        let Value::Object(schema) = &entry["inputSchema"] else {
            return Err(refused("it has no schema".to_owned()));
        };
        limits::check(schema).map_err(refused)?;
        let size = entry["inputSchema"].to_string().len();
        if size > MAX_SCHEMA {
            return Err(refused(format!("its schema has {size} bytes; {MAX_SCHEMA} are allowed")));
        }
        let fingerprint = Fingerprint::of(&tool, description, schema);
        let mut parameters = Value::Object(schema.clone());
        show(&mut parameters).map_err(refused)?;
        if parameters.get("type").is_none() {
            parameters["type"] = "object".into();
        }
        Ok(Self { clean, description: visible(description).into(), parameters, fingerprint, tool })
    }
}

/// Removes invisible characters from the descriptive texts of a schema. In values that are sent back to the server they
/// cannot be removed, so there they are refused. The nesting of the schema has been checked before.
fn show(schema: &mut Value) -> Result<(), String> {
    match schema {
        Value::Object(members) => members.iter_mut().try_for_each(|(key, value)| {
            check_visible(key)?;
            match (key.as_str(), value) {
                ("title" | "description" | "$comment", Value::String(text)) => {
                    if let Cow::Owned(shown) = visible(text) {
                        *text = shown;
                    }
                    Ok(())
                }
                (key, Value::Object(named)) if NAMED_SCHEMAS.contains(&key) => {
                    named.iter_mut().try_for_each(|(name, schema)| check_visible(name).and_then(|()| show(schema)))
                }
                ("enum" | "const" | "default" | "examples", data) => check_data(data),
                (_, value) => show(value),
            }
        }),
        Value::Array(items) => items.iter_mut().try_for_each(show),
        Value::String(text) => check_visible(text),
        _ => Ok(()),
    }
}

fn check_data(data: &Value) -> Result<(), String> {
    match data {
        Value::Object(members) => {
            members.iter().try_for_each(|(key, value)| check_visible(key).and_then(|()| check_data(value)))
        }
        Value::Array(items) => items.iter().try_for_each(check_data),
        Value::String(text) => check_visible(text),
        _ => Ok(()),
    }
}

fn check_visible(text: &str) -> Result<(), String> {
    match hidden(text) {
        Some(c) => Err(format!("its schema has the character U+{:04X}, which is not seen", u32::from(c))),
        None => Ok(()),
    }
}

/// A fingerprint of a tool's definition: the SHA-256 of its name, description and schema. The order of a schema's
/// members does not matter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(Arc<str>);

impl Fingerprint {
    fn of(tool: &str, description: &str, schema: &Map<String, Value>) -> Self {
        let mut definition = serde_json::json!([tool, description, schema]);
        definition.sort_all_objects();
        let hash = Sha256::digest(definition.to_string().as_bytes());
        Self(hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A tool that a server has and that is not offered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedTool {
    /// The name of the server.
    pub server: Arc<str>,
    /// The server's name for the tool: at most 64 characters of it, with invisible ones escaped.
    pub tool: Arc<str>,
    /// The reason why it is not offered.
    pub reason: Arc<str>,
}

impl RefusedTool {
    pub(crate) fn new(tool: &str, reason: impl AsRef<str>) -> Self {
        let tool: String = tool.chars().take(64).flat_map(char::escape_default).collect();
        Self { server: "".into(), tool: tool.into(), reason: short(&visible(reason.as_ref()), MAX_REASON).into() }
    }

    pub(crate) fn of(mut self, server: &Arc<str>) -> Self {
        self.server = Arc::clone(server);
        self
    }
}

impl fmt::Display for RefusedTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MCP server `{}`: tool `{}` is not offered: {}", self.server, self.tool, self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_definition_is_read_with_what_the_runtime_needs() {
        let entry = json!({"name": "a.b", "title": "Title", "inputSchema": {"properties": {}}});
        let definition = Definition::read(&entry).unwrap();
        assert_eq!((&*definition.tool, &*definition.clean, &*definition.description), ("a.b", "a_b", "Title"));
        assert_eq!(definition.parameters, json!({"type": "object", "properties": {}}));
    }

    #[test]
    fn a_description_has_nothing_that_cannot_be_seen() {
        let hidden = "Adds.\u{200b} \u{e0041}\u{e0042}\u{202e}Line\u{7}\n2 \u{1F600}한";
        let entry = json!({"name": "add", "description": hidden, "inputSchema": {}});
        assert_eq!(&*Definition::read(&entry).unwrap().description, "Adds. Line\n2 \u{1F600}한");
    }

    #[test]
    fn a_schema_has_nothing_that_cannot_be_seen_and_what_is_sent_back_is_as_it_was() {
        let read = |schema: Value| Definition::read(&json!({"name": "t", "inputSchema": schema}));
        let hidden = "A thing.\u{e0063}\u{e0061}\u{200b}\u{3164}";
        let said = json!({"type": "object", "title": hidden, "$defs": {"d": {"$comment": hidden}}, "properties": {
            "x": {"description": hidden, "enum": ["⚠\u{fe0f}", "한"]},
            "description": {"type": "array", "items": {"anyOf": [{"title": hidden}]}}}});
        let shown = json!({"type": "object", "title": "A thing.", "$defs": {"d": {"$comment": "A thing."}}, "properties": {
            "x": {"description": "A thing.", "enum": ["⚠\u{fe0f}", "한"]},
            "description": {"type": "array", "items": {"anyOf": [{"title": "A thing."}]}}}});
        assert_eq!(read(said).unwrap().parameters, shown);
        for sent in [
            json!({"properties": {"x\u{200b}": {}}}),
            json!({"properties": {"x": {"enum": ["a", "b\u{e0063}"]}}}),
            json!({"properties": {"x": {"const": {"description": "b\u{e0063}"}}}}),
            json!({"properties": {"x": {"default": "\u{3164}"}}}),
            json!({"properties": {"x": {"default": ["\u{1b}[2K"]}}}),
            json!({"properties": {"x": {"enum": ["a\rb"]}}}),
            json!({"properties": {"default": {"pattern": "\u{1b}"}}}),
            json!({"required": ["x\u{2800}"]}),
            json!({"properties": {"x": {"pattern": "a\u{34f}"}}}),
        ] {
            let refused = read(sent.clone()).unwrap_err();
            assert!(refused.reason.starts_with("its schema has the character U+"), "{sent}: {refused}");
        }
    }

    #[test]
    fn a_schema_that_no_model_can_be_given_is_refused_and_the_reason_is_short() {
        let read = |schema: Value| Definition::read(&json!({"name": "t", "inputSchema": schema})).unwrap_err();
        let long = json!({"properties": {"x": {"description": "x".repeat(300_000)}}});
        assert_eq!(&*read(long).reason, "its schema has 300039 bytes; 262144 are allowed");
        let nowhere = json!({"properties": {"x": {"$ref": format!("#/\u{1b}{}", "x".repeat(100_000))}}});
        let reason = read(nowhere).reason;
        assert!(reason.len() < 1_100 && hidden(&reason).is_none() && reason.ends_with('…'), "{reason}");
    }

    #[test]
    fn every_part_of_a_definition_changes_its_fingerprint_and_the_order_of_members_does_not() {
        let read = |text: &str| Definition::read(&serde_json::from_str(text).unwrap()).unwrap().fingerprint;
        let one = read(r#"{"name": "a", "description": "d", "inputSchema": {"type": "object", "required": ["x"]}}"#);
        let same = read(r#"{"inputSchema": {"required": ["x"], "type": "object"}, "description": "d", "name": "a"}"#);
        assert_eq!(one, same);
        assert_eq!(one.to_string().len(), 64);
        for other in [
            r#"{"name": "b", "description": "d", "inputSchema": {"type": "object", "required": ["x"]}}"#,
            r#"{"name": "a", "description": "d\u200b", "inputSchema": {"type": "object", "required": ["x"]}}"#,
            r#"{"name": "a", "description": "d", "inputSchema": {"type": "object", "required": ["y"]}}"#,
        ] {
            assert_ne!(read(other), one, "{other}");
        }
    }
}
