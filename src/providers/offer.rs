//! Tools as they are offered to a model: names and parameters in a form that all vendors accept.
//!
//! Names and schemas that are already in this form are borrowed. Nothing here sends a request.
//!
//! Vendors differ in what they refuse, and refuse the whole request because of one tool. All of them accept a name of
//! ASCII letters, digits, `_` and `-` that does not begin with a digit, at most 64 bytes long; and an object with
//! `properties`, without combined schemas at the top level, and arrays with `items`. Google does not follow a `$ref`:
//! [OpenAI](https://developers.openai.com/api/docs/guides/function-calling),
//! [Anthropic](https://platform.claude.com/docs/en/agents-and-tools/tool-use/implement-tool-use),
//! [Google](https://ai.google.dev/api/caching#FunctionDeclaration).

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::tool_call::ToolSpec;

/// The name under which a tool is offered: its own, or a replacement.
pub(crate) fn name(own: &str) -> Cow<'_, str> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let begins = own.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    // A name that looks like a replacement gets a replacement too, so that no two names are the same.
    let stands_for_another = own.rsplit_once('_').is_some_and(|(_, mark)| mark.len() == 8 && is_hex(mark));
    if begins && own.len() <= MAX_NAME && own.chars().all(is_fine) && !stands_for_another {
        return Cow::Borrowed(own);
    }
    let mut hasher = DefaultHasher::new();
    own.hash(&mut hasher);
    let mark = format!("_{:08x}", hasher.finish() as u32);
    let stem = own.chars().map(|c| if is_fine(c) { c } else { '_' }).take(MAX_NAME - mark.len() - 1);
    let lead = if begins { "" } else { "_" };
    Cow::Owned(lead.chars().chain(stem).chain(mark.chars()).collect())
}

const MAX_NAME: usize = 64;

/// The id of a tool call as it is sent: its own if the vendor accepts that, or else a replacement, which is the same
/// for the call and its result. The ids of another vendor may have other characters, such as `functions.search:0`, or
/// be longer.
pub(crate) fn call_id(own: &str, is_accepted: bool) -> Cow<'_, str> {
    if is_accepted {
        return Cow::Borrowed(own);
    }
    let mut hasher = DefaultHasher::new();
    own.hash(&mut hasher);
    let mark = format!("_{:08x}", hasher.finish() as u32);
    let stem = own.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    Cow::Owned(stem.take(MAX_CALL_ID - mark.len()).chain(mark.chars()).collect())
}

/// The longest id of a tool call that every vendor but Mistral accepts.
pub(crate) const MAX_CALL_ID: usize = 64;

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A tool as it is offered to a model.
#[derive(Serialize)]
pub(crate) struct OfferedTool<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) description: &'a str,
    pub(crate) parameters: Cow<'a, Value>,
}

/// The treatment of references in a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum References {
    Kept,
    Resolved,
}

impl<'a> OfferedTool<'a> {
    pub(crate) fn new(tool: &'a ToolSpec, references: References) -> Self {
        let parameters = parameters(&tool.parameters, references);
        Self { name: name(&tool.name), description: &tool.description, parameters }
    }
}

/// The tools that are offered under a replaced name, with both names.
#[derive(Debug, Default)]
pub(crate) struct ToolNames(Vec<(String, String)>);

impl ToolNames {
    pub(crate) fn of(tools: &[ToolSpec]) -> Self {
        let renamed = tools.iter().filter_map(|tool| match name(&tool.name) {
            Cow::Borrowed(_) => None,
            Cow::Owned(offered) => Some((offered, tool.name.to_string())),
        });
        Self(renamed.collect())
    }

    /// The tool's own name.
    pub(crate) fn original<'n>(&'n self, offered: &'n str) -> &'n str {
        self.0.iter().find(|(name, _)| name == offered).map_or(offered, |(_, own)| own)
    }
}

/// The parameters of a tool in the form that all vendors accept.
fn parameters(schema: &Value, references: References) -> Cow<'_, Value> {
    match is_plain(schema, references, 0) {
        true => Cow::Borrowed(schema),
        false => {
            let mut plain =
                Normalizer { root: schema, references, open: Vec::new(), left: MAX_VALUES }.schema(schema, true, 0);
            make_object(&mut plain);
            Cow::Owned(plain)
        }
    }
}

/// The most values in the parameters of a tool once references are resolved. Beyond it, any value is allowed.
const MAX_VALUES: usize = 50_000;
/// The deepest nesting of schemas. Below it, any value is allowed.
const MAX_DEPTH: usize = 32;

const COMBINATIONS: [&str; 3] = ["anyOf", "oneOf", "allOf"];
/// The keywords whose value is a schema.
const SCHEMA: [&str; 9] =
    ["items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "additionalItems"];
/// The keywords whose value is a list of schemas.
const LISTS: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
/// The keywords whose value is a map of schemas by name.
const MAPS: [&str; 5] = ["properties", "patternProperties", "dependentSchemas", "$defs", "definitions"];
/// The keywords that hold definitions. A reference to anything else, except `#`, is resolved.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
/// The keywords with schemas that are left out when references are resolved.
const RARE: [&str; 3] = ["dependencies", "unevaluatedItems", "unevaluatedProperties"];
/// The keywords that vendors refuse at the top level of parameters.
const NOT_AT_THE_TOP: [&str; 9] = ["anyOf", "oneOf", "allOf", "enum", "not", "if", "then", "else", "const"];

fn is_plain(schema: &Value, references: References, depth: usize) -> bool {
    let is_top = depth == 0;
    let is_within = |schema: &Value| is_plain(schema, references, depth + 1);
    let Value::Object(fields) = schema else { return false };
    let is_object = || fields.get("type").and_then(Value::as_str) == Some("object");
    if depth > MAX_DEPTH || is_top && !(is_object() && fields.contains_key("properties")) {
        return false;
    }
    if is_array(fields) && !fields.contains_key("items") {
        return false;
    }
    fields.iter().all(|(key, value)| match &**key {
        "$ref" => !is_top && references == References::Kept && value.as_str().is_some_and(is_kept),
        "required" => value.as_array().is_some_and(|names| names.iter().all(Value::is_string)),
        "additionalProperties" | "additionalItems" if value.is_boolean() => true,
        key if is_top && NOT_AT_THE_TOP.contains(&key) => false,
        key if references == References::Resolved && (DEFINITIONS.contains(&key) || RARE.contains(&key)) => false,
        key if SCHEMA.contains(&key) => is_within(value),
        key if LISTS.contains(&key) => value.as_array().is_some_and(|list| list.iter().all(is_within)),
        key if MAPS.contains(&key) => value.as_object().is_some_and(|map| map.values().all(is_within)),
        _ => true,
    })
}

/// Returns whether a reference that is kept still leads to its target.
fn is_kept(target: &str) -> bool {
    target == "#" || DEFINITIONS.iter().any(|key| target.strip_prefix("#/").is_some_and(|path| path.starts_with(key)))
}

fn is_array(fields: &Map<String, Value>) -> bool {
    match fields.get("type") {
        Some(Value::String(kind)) => kind == "array",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "array"),
        _ => false,
    }
}

/// The conversion of one tool's schemas into that form.
struct Normalizer<'s> {
    root: &'s Value,
    references: References,
    /// The references that are being resolved. A reference to one of them is replaced by a schema that allows any
    /// value.
    open: Vec<&'s str>,
    /// The number of values that may still be added.
    left: usize,
}

impl<'s> Normalizer<'s> {
    /// Converts a schema. One that is `combined` at the top level of the parameters becomes a part of them.
    fn schema(&mut self, schema: &'s Value, combined: bool, depth: usize) -> Value {
        // A schema that is `true` or `false` contains nothing that a model needs.
        let Value::Object(fields) = schema else { return json!({}) };
        if depth > MAX_DEPTH {
            return json!({});
        }
        let target = fields.get("$ref").and_then(Value::as_str);
        let is_resolved = |target: &&str| combined || self.references == References::Resolved || !is_kept(target);
        let resolved = target.filter(is_resolved).and_then(|target| self.resolve(target, combined, depth));
        let mut plain = Map::new();
        for (key, value) in fields {
            let Some(left) = self.left.checked_sub(1) else { break };
            self.left = left;
            let value = match &**key {
                "$ref" if resolved.is_some() => continue,
                "required" => json!(texts(Some(value.clone()))),
                // `true` and `false` matter to a model here, and nowhere else.
                "additionalProperties" | "additionalItems" if value.is_boolean() => value.clone(),
                // Each item of a list may match any of the schemas.
                "items" if value.is_array() => json!({ "anyOf": self.list(value, false, depth) }),
                key if self.references == References::Resolved
                    && (DEFINITIONS.contains(&key) || RARE.contains(&key)) =>
                {
                    continue;
                }
                key if SCHEMA.contains(&key) && value.is_object() => self.schema(value, false, depth + 1),
                key if SCHEMA.contains(&key) => continue,
                key if LISTS.contains(&key) => self.list(value, combined && COMBINATIONS.contains(&key), depth),
                key if MAPS.contains(&key) => self.map(value, depth),
                _ => match self.copy(value) {
                    Some(value) => value,
                    None => continue,
                },
            };
            plain.insert(key.clone(), value);
        }
        if let Some(Value::Object(resolved)) = resolved {
            merge(&mut plain, resolved);
        }
        if is_array(&plain) && !plain.contains_key("items") {
            plain.insert("items".to_owned(), json!({}));
        }
        Value::Object(plain)
    }

    fn list(&mut self, schemas: &'s Value, combined: bool, depth: usize) -> Value {
        // Schemas that are combined at the top level do not count as deeper.
        let depth = if combined && depth == 0 { 1 } else { depth + 1 };
        schemas.as_array().into_iter().flatten().map(|schema| self.schema(schema, combined, depth)).collect()
    }

    fn map(&mut self, schemas: &'s Value, depth: usize) -> Value {
        let schemas = schemas.as_object().into_iter().flatten().filter(|(_, schema)| **schema != json!(false));
        Value::Object(schemas.map(|(name, schema)| (name.clone(), self.schema(schema, false, depth + 1))).collect())
    }

    /// Copies any other value, unless there are too many.
    fn copy(&mut self, value: &Value) -> Option<Value> {
        self.left = self.left.checked_sub(count(value))?;
        Some(value.clone())
    }

    /// The target of a reference; `None` if it is in another document.
    fn resolve(&mut self, target: &'s str, combined: bool, depth: usize) -> Option<Value> {
        let path = target.strip_prefix('#')?;
        let schema = self.root.pointer(&decoded(path)).filter(|_| !self.open.contains(&target));
        let Some(schema) = schema else { return Some(json!({})) };
        self.open.push(target);
        let plain = self.schema(schema, combined, depth + 1);
        self.open.pop();
        Some(plain)
    }
}

/// Counts the values within a value.
fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(count).sum::<usize>(),
        _ => 1,
    }
}

/// A [fragment](https://www.rfc-editor.org/rfc/rfc6901#section-6) without its percent-encoding.
fn decoded(path: &str) -> Cow<'_, str> {
    let Some((before, rest)) = path.split_once('%') else { return Cow::Borrowed(path) };
    let mut bytes = before.as_bytes().to_vec();
    for part in rest.split('%') {
        match part.get(..2).and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => bytes.extend([byte].iter().chain(&part.as_bytes()[2..])),
            None => return Cow::Borrowed(path),
        }
    }
    String::from_utf8(bytes).map_or(Cow::Borrowed(path), Cow::Owned)
}

/// Adds the target of a reference. Keywords beside the reference describe this use of it, and stay.
fn merge(plain: &mut Map<String, Value>, resolved: Map<String, Value>) {
    for (key, value) in resolved {
        match (plain.get_mut(&key), value) {
            (Some(Value::Object(ours)), Value::Object(theirs)) if key == "properties" => {
                for (name, property) in theirs {
                    ours.entry(name).or_insert(property);
                }
            }
            (Some(Value::Array(ours)), Value::Array(theirs)) if key == "required" => {
                let more: Vec<_> = theirs.into_iter().filter(|name| !ours.contains(name)).collect();
                ours.extend(more);
            }
            (Some(_), _) => {}
            (None, value) => drop(plain.insert(key, value)),
        }
    }
}

/// Makes the top level of the parameters an object, with the properties of all schemas that are combined there.
fn make_object(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    let mut properties = object(fields.shift_remove("properties"));
    let mut required = texts(fields.shift_remove("required"));
    let conditional: Vec<_> = ["then", "else"].iter().filter_map(|key| fields.shift_remove(*key)).collect();
    let combined = COMBINATIONS.map(|key| (key, fields.shift_remove(key)));
    let combined = combined.into_iter().filter_map(|(key, parts)| Some((key == "allOf", parts?)));
    for (are_all_true, parts) in combined.chain([(false, Value::Array(conditional))]) {
        let Value::Array(mut parts) = parts else { continue };
        parts.iter_mut().for_each(make_object);
        let parts: Vec<_> = parts.iter().filter_map(Value::as_object).collect();
        let needed: Vec<_> = parts.iter().map(|part| texts(part.get("required").cloned())).collect();
        for part in parts {
            for (name, property) in part.get("properties").and_then(Value::as_object).into_iter().flatten() {
                join(&mut properties, name, property);
            }
        }
        let mut all = needed.concat();
        if !are_all_true {
            // A property is required only if every alternative requires it.
            all.retain(|name| needed.len() > 1 && needed.iter().all(|needed| needed.contains(name)));
        }
        for name in all {
            if !required.contains(&name) {
                required.push(name);
            }
        }
    }
    fields.retain(|key, _| !NOT_AT_THE_TOP.contains(&key.as_str()));
    fields.insert("type".to_owned(), json!("object"));
    fields.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        fields.insert("required".to_owned(), json!(required));
    }
}

/// Adds a property. If the name exists already, the value may match either schema.
fn join(properties: &mut Map<String, Value>, name: &str, property: &Value) {
    let Some(known) = properties.get_mut(name) else {
        properties.insert(name.to_owned(), property.clone());
        return;
    };
    let either =
        known.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.get("anyOf")?.as_array());
    let mut either = either.cloned().unwrap_or_else(|| vec![known.clone()]);
    if !either.contains(property) {
        either.push(property.clone());
        *known = json!({ "anyOf": either });
    }
}

fn object(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// The texts in a list.
fn texts(value: Option<Value>) -> Vec<String> {
    let Some(Value::Array(items)) = value else { return Vec::new() };
    items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: &Value, expected: &Value) {
        check_with(References::Kept, schema, expected);
        check_with(References::Resolved, schema, expected);
    }

    fn check_with(references: References, schema: &Value, expected: &Value) {
        let plain = parameters(schema, references);
        assert_eq!(&*plain, expected);
        assert!(matches!(parameters(&plain, references), Cow::Borrowed(_)), "it is in that form now: {plain}");
    }

    #[test]
    fn names_that_a_vendor_refuses_are_offered_as_others_and_come_back() {
        let long = "x".repeat(65);
        let alias = name("a b").into_owned();
        let own = ["날씨 조회", "files.read", "3d", &*alias, &*long, "a b", "a_b", "search-web_2", "_x"];
        let tool = |name: &&str| ToolSpec { name: (*name).into(), description: "".into(), parameters: json!({}) };
        let renamed = ToolNames::of(&own.iter().map(tool).collect::<Vec<_>>());
        let offered: Vec<_> = own.iter().map(|own| name(own).into_owned()).collect();
        for (own, offered) in own.iter().zip(&offered) {
            assert!(offered.len() <= 64 && !offered.starts_with(|c: char| c.is_ascii_digit()), "{offered}");
            assert!(offered.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)), "{offered}");
            assert_eq!(renamed.original(offered), *own);
        }
        assert_eq!(offered[6..], ["a_b", "search-web_2", "_x"]);
        let unique: std::collections::HashSet<_> = offered.iter().collect();
        assert_eq!(unique.len(), own.len());
    }

    #[test]
    fn what_is_in_the_form_already_is_borrowed() {
        let schema = json!({"type": "object", "properties": {
            "q": {"type": "string", "enum": ["a"]}, "either": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
            "list": {"type": ["array", "null"], "items": {"type": "string"}}, "$ref": {"type": "string"},
        }, "required": ["q"], "additionalProperties": false});
        check(&schema, &schema);
        assert!(matches!(parameters(&schema, References::Resolved), Cow::Borrowed(_)));
        let node = json!({"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": {}}});
        assert!(matches!(parameters(&node, References::Kept), Cow::Borrowed(_)));
    }

    #[test]
    fn properties_items_and_the_type_are_added() {
        check(&json!({"type": "object"}), &json!({"type": "object", "properties": {}}));
        check(&json!({}), &json!({"type": "object", "properties": {}}));
        check(
            &json!({"type": "object", "properties": {"list": {"type": "array"}, "any": true}}),
            &json!({"type": "object", "properties": {"list": {"type": "array", "items": {}}, "any": {}}}),
        );
    }

    #[test]
    fn combinations_at_the_top_are_one_object() {
        check(
            &json!({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"], "oneOf": [
                {"properties": {"kind": {"const": "file"}, "path": {"type": "string"}}, "required": ["kind", "path"]},
                {"properties": {"kind": {"const": "url"}, "url": {"type": "string"}}, "required": ["kind", "url"]},
            ]}),
            &json!({"type": "object", "properties": {
                "id": {"type": "integer"}, "kind": {"anyOf": [{"const": "file"}, {"const": "url"}]},
                "path": {"type": "string"}, "url": {"type": "string"},
            }, "required": ["id", "kind"]}),
        );
        check(
            &json!({"allOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]}),
            &json!({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]}),
        );
    }

    #[test]
    fn references_are_resolved_and_one_to_itself_may_be_anything() {
        check_with(
            References::Resolved,
            &json!({"type": "object", "properties": {
                "node": {"$ref": "#/$defs/Node", "description": "The root."},
            }, "$defs": {"Node": {"type": "object", "description": "A node.", "properties": {
                "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            }}}}),
            &json!({"type": "object", "properties": {
                "node": {"description": "The root.", "type": "object", "properties": {
                    "children": {"type": "array", "items": {}},
                }},
            }}),
        );
    }

    #[test]
    fn a_reference_at_the_top_is_resolved_for_all_and_one_to_elsewhere_stays() {
        let defs = json!({"A": {"type": "object", "properties": {"list": {"type": "array"}}}});
        let fixed = json!({"A": {"type": "object", "properties": {"list": {"type": "array", "items": {}}}}});
        check_with(
            References::Kept,
            &json!({"$ref": "#/$defs/A", "$defs": defs}),
            &json!({"$defs": fixed, "type": "object", "properties": {"list": {"type": "array", "items": {}}}}),
        );
        let elsewhere = parameters(&json!({"$ref": "https://example.com/a.json"}), References::Kept).into_owned();
        assert_eq!(elsewhere, json!({"$ref": "https://example.com/a.json", "type": "object", "properties": {}}));
    }

    #[test]
    fn references_that_are_combined_at_the_top_bring_their_properties() {
        let defs = json!({
            "A": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            "B": {"$ref": "#/$defs/C"}, "C": {"type": "object", "properties": {"c": {"$ref": "#/$defs/D"}}}, "D": {},
        });
        for references in [References::Kept, References::Resolved] {
            let schema = json!({"oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}], "$defs": defs});
            let plain = parameters(&schema, references).into_owned();
            assert_eq!(plain["properties"].as_object().unwrap().keys().collect::<Vec<_>>(), ["a", "c"]);
            assert_eq!(&*parameters(&plain, references), &plain);
            let schema = json!({"allOf": [{"$ref": "#/$defs/A", "properties": {"kind": {}}, "required": ["kind"]}], "$defs": defs});
            let plain = parameters(&schema, references).into_owned();
            assert_eq!(plain["properties"], json!({"kind": {}, "a": {"type": "string"}}));
            assert_eq!(plain["required"], json!(["kind", "a"]));
        }
    }

    #[test]
    fn what_no_schema_should_have_is_mended() {
        check(
            &json!({"type": "object", "properties": {
                "nested": {"type": "object", "properties": [], "required": true}, "never": false,
                "pair": {"type": "array", "items": [{"type": "number"}, {"type": "string"}]},
                "any": {"not": false, "propertyNames": false},
            }, "required": ["nested", 1], "then": {"properties": {"extra": {}}}}),
            &json!({"type": "object", "properties": {
                "nested": {"type": "object", "properties": {}, "required": []},
                "pair": {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "string"}]}},
                "any": {}, "extra": {},
            }, "required": ["nested"]}),
        );
        let within = json!({"type": "object", "properties": {"a": {"$ref": "#/oneOf/0/properties/b"}},
            "oneOf": [{"properties": {"b": {"type": "string"}}}]});
        assert_eq!(parameters(&within, References::Kept)["properties"]["a"], json!({"type": "string"}));
        let encoded = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/My%20Node"}, "b": {"$ref": "#gone"}},
            "$defs": {"My Node": {"type": "string"}}});
        let plain = parameters(&encoded, References::Resolved).into_owned();
        assert_eq!(plain["properties"], json!({"a": {"type": "string"}, "b": {}}));
    }

    #[test]
    fn fault_107_a_chain_of_deep_references_ends_before_the_stack() {
        let deep = |next: usize| {
            (0..110).fold(json!({"$ref": format!("#/$defs/d{next}")}), |schema, _| json!({"items": schema}))
        };
        let defs: Map<String, Value> = (0..32).map(|nth| (format!("d{nth}"), deep(nth + 1))).collect();
        let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs});
        let plain = parameters(&schema, References::Resolved).to_string();
        assert!(serde_json::from_str::<Value>(&plain).is_ok(), "a server can read it: {} bytes", plain.len());
    }

    #[test]
    fn fault_107_references_to_what_is_large_end() {
        let words: Vec<String> = (0..10_000).map(|nth| format!("word-{nth}")).collect();
        let properties: Map<String, Value> =
            (0..200).map(|nth| (nth.to_string(), json!({"$ref": "#/$defs/Word"}))).collect();
        let schema = json!({"type": "object", "properties": properties, "$defs": {"Word": {"enum": words}}});
        let plain = parameters(&schema, References::Resolved).to_string();
        assert!(plain.len() < 1_000_000 && plain.contains("word-9999"), "{} bytes", plain.len());
    }

    #[test]
    fn fault_107_references_that_multiply_end() {
        let doubled = |level: usize| {
            json!({"type": "object", "properties": {
                "a": {"$ref": format!("#/$defs/d{}", level + 1)}, "b": {"$ref": format!("#/$defs/d{}", level + 1)},
            }})
        };
        let defs: Map<String, Value> = (0..40).map(|level| (format!("d{level}"), doubled(level))).collect();
        let schema = json!({"$ref": "#/$defs/d0", "$defs": defs});
        let plain = parameters(&schema, References::Resolved).to_string();
        assert!(plain.len() < 1_000_000, "{} bytes", plain.len());
    }
}
