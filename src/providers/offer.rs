//! Tools as they are offered to a model: names and parameters in a form that all vendors take. What is in it already is
//! borrowed. Nothing here asks a server.
//!
//! Vendors differ in what they refuse, and refuse the whole request for one tool. What they all take is a name of ASCII
//! letters, digits, `_` and `-` that does not begin with a digit, at most 64 bytes long; and an object with `properties`,
//! without a combination of schemas at the top, and arrays with `items`. Google does not follow a `$ref`:
//! [OpenAI](https://developers.openai.com/api/docs/guides/function-calling),
//! [Anthropic](https://platform.claude.com/docs/en/agents-and-tools/tool-use/implement-tool-use),
//! [Google](https://ai.google.dev/api/caching#FunctionDeclaration).

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::tool::ToolSpec;

/// The name under which a tool is offered: its own, or one that stands for it.
pub(crate) fn name(own: &str) -> Cow<'_, str> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let begins = own.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if begins && own.len() <= LONGEST_NAME && own.chars().all(is_fine) {
        return Cow::Borrowed(own);
    }
    let mut hasher = DefaultHasher::new();
    own.hash(&mut hasher);
    let mark = format!("_{:08x}", hasher.finish() as u32);
    let stem = own.chars().map(|c| if is_fine(c) { c } else { '_' }).take(LONGEST_NAME - mark.len() - 1);
    let lead = if begins { "" } else { "_" };
    Cow::Owned(lead.chars().chain(stem).chain(mark.chars()).collect())
}

const LONGEST_NAME: usize = 64;

/// A tool as it is offered.
#[derive(Serialize)]
pub(crate) struct Offered<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) description: &'a str,
    pub(crate) parameters: Cow<'a, Value>,
}

/// The references in a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum References {
    Kept,
    Resolved,
}

impl<'a> Offered<'a> {
    pub(crate) fn new(tool: &'a ToolSpec, references: References) -> Self {
        let parameters = parameters(&tool.parameters, references);
        Self { name: name(&tool.name), description: &tool.description, parameters }
    }
}

/// The tools whose names are offered as others.
#[derive(Debug, Default)]
pub(crate) struct Renamed(Vec<(String, String)>);

impl Renamed {
    pub(crate) fn among(tools: &[ToolSpec]) -> Self {
        let renamed = tools.iter().filter_map(|tool| match name(&tool.name) {
            Cow::Borrowed(_) => None,
            Cow::Owned(offered) => Some((offered, tool.name.to_string())),
        });
        Self(renamed.collect())
    }

    /// The tool's own name.
    pub(crate) fn own<'n>(&'n self, offered: &'n str) -> &'n str {
        self.0.iter().find(|(name, _)| name == offered).map_or(offered, |(_, own)| own)
    }
}

/// The parameters of a tool in the form that all vendors take.
fn parameters(schema: &Value, references: References) -> Cow<'_, Value> {
    match is_plain(schema, true, references) {
        true => Cow::Borrowed(schema),
        false => {
            let mut plain = Plain { root: schema, references, open: Vec::new(), left: MOST_SCHEMAS }.schema(schema);
            make_object(&mut plain);
            Cow::Owned(plain)
        }
    }
}

/// How many schemas the parameters of a tool may have once their references are resolved. What is beyond it may be anything.
const MOST_SCHEMAS: usize = 5_000;

/// How many references may stand within each other.
const DEEPEST: usize = 32;

const COMBINATIONS: [&str; 3] = ["anyOf", "oneOf", "allOf"];
/// The keywords whose value is a schema, a list of schemas, or schemas by name.
const SCHEMA: [&str; 9] =
    ["items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "additionalItems"];
const LISTS: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
const MAPS: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];
/// The keywords that hold definitions.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
/// What vendors refuse at the top of parameters.
const NOT_AT_THE_TOP: [&str; 8] = ["anyOf", "oneOf", "allOf", "enum", "not", "if", "then", "else"];

fn is_plain(schema: &Value, is_top: bool, references: References) -> bool {
    let is_plain_within = |schema: &Value| is_plain(schema, false, references);
    let Value::Object(fields) = schema else { return !is_top && schema.is_boolean() };
    let is_object = || fields.get("type").and_then(Value::as_str) == Some("object");
    if is_top && !(is_object() && fields.get("properties").is_some_and(Value::is_object)) {
        return false;
    }
    if is_array(fields) && !fields.get("items").is_some_and(Value::is_object) {
        return false;
    }
    fields.iter().all(|(key, value)| match &**key {
        "$ref" => !is_top && references == References::Kept,
        key if DEFINITIONS.contains(&key) && references == References::Resolved => false,
        key if is_top && NOT_AT_THE_TOP.contains(&key) => false,
        key if SCHEMA.contains(&key) => is_plain_within(value),
        key if LISTS.contains(&key) => value.as_array().is_none_or(|list| list.iter().all(is_plain_within)),
        key if MAPS.contains(&key) || DEFINITIONS.contains(&key) => {
            value.as_object().is_none_or(|map| map.values().all(|value| value.is_object() && is_plain_within(value)))
        }
        _ => true,
    })
}

fn is_array(fields: &Map<String, Value>) -> bool {
    match fields.get("type") {
        Some(Value::String(kind)) => kind == "array",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "array"),
        _ => false,
    }
}

/// Schemas on their way into that form.
struct Plain<'s> {
    root: &'s Value,
    references: References,
    /// The references that are being resolved: one to itself may be anything.
    open: Vec<&'s str>,
    /// How many schemas more there may be.
    left: usize,
}

impl<'s> Plain<'s> {
    fn schema(&mut self, schema: &'s Value) -> Value {
        // A schema that is `true` or `false` says nothing that a model needs.
        let Value::Object(fields) = schema else { return json!({}) };
        let Some(left) = self.left.checked_sub(1) else { return json!({}) };
        self.left = left;
        let is_top = std::ptr::eq(schema, self.root);
        let target = fields.get("$ref").and_then(Value::as_str);
        let target = target.filter(|_| is_top || self.references == References::Resolved);
        let resolved = target.and_then(|target| self.resolve(target));
        let mut plain = Map::new();
        for (key, value) in fields {
            let value = match &**key {
                "$ref" if resolved.is_some() => continue,
                key if DEFINITIONS.contains(&key) && self.references == References::Resolved => continue,
                // `true` and `false` have a meaning here.
                "additionalProperties" | "additionalItems" if value.is_boolean() => value.clone(),
                key if SCHEMA.contains(&key) && value.is_object() => self.schema(value),
                key if SCHEMA.contains(&key) && value.is_boolean() => json!({}),
                key if LISTS.contains(&key) => self.list(value),
                key if MAPS.contains(&key) || DEFINITIONS.contains(&key) => self.map(value),
                _ => value.clone(),
            };
            plain.insert(key.clone(), value);
        }
        // What stands beside a reference describes this use of it.
        for (key, value) in object(resolved) {
            plain.entry(key).or_insert(value);
        }
        if is_array(&plain) && !plain.get("items").is_some_and(Value::is_object) {
            plain.insert("items".to_owned(), json!({}));
        }
        Value::Object(plain)
    }

    fn list(&mut self, schemas: &'s Value) -> Value {
        schemas.as_array().into_iter().flatten().map(|schema| self.schema(schema)).collect()
    }

    fn map(&mut self, schemas: &'s Value) -> Value {
        let schemas = schemas.as_object().into_iter().flatten();
        Value::Object(schemas.map(|(name, schema)| (name.clone(), self.schema(schema))).collect())
    }

    /// What a reference refers to; `None` if that is elsewhere.
    fn resolve(&mut self, target: &'s str) -> Option<Value> {
        let schema = target.strip_prefix('#').and_then(|path| self.root.pointer(path))?;
        if self.open.contains(&target) || self.open.len() >= DEEPEST {
            return Some(json!({}));
        }
        self.open.push(target);
        let plain = self.schema(schema);
        self.open.pop();
        Some(plain)
    }
}

/// Makes the top of the parameters an object with properties: those of all schemas that are combined there.
fn make_object(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    let mut properties = object(fields.remove("properties"));
    let mut required = texts(fields.remove("required"));
    for key in COMBINATIONS {
        let Some(Value::Array(mut parts)) = fields.remove(key) else { continue };
        parts.iter_mut().for_each(make_object);
        let parts: Vec<_> = parts.iter().filter_map(Value::as_object).collect();
        let needed: Vec<_> = parts.iter().map(|part| texts(part.get("required").cloned())).collect();
        for part in parts {
            for (name, property) in part.get("properties").and_then(Value::as_object).into_iter().flatten() {
                join(&mut properties, name, property);
            }
        }
        let mut all = needed.concat();
        if key != "allOf" {
            // Only what each of them needs is needed in any case.
            all.retain(|name| needed.iter().all(|needed| needed.contains(name)));
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

/// Adds a property. One that is there already may be either.
fn join(properties: &mut Map<String, Value>, name: &str, property: &Value) {
    match properties.get_mut(name) {
        None => drop(properties.insert(name.to_owned(), property.clone())),
        Some(known) if known == property => {}
        Some(known) => match known.get_mut("anyOf").and_then(Value::as_array_mut) {
            Some(either) if either.contains(property) => {}
            Some(either) => either.push(property.clone()),
            None => *known = json!({ "anyOf": [known.take(), property] }),
        },
    }
}

fn object(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

fn texts(value: Option<Value>) -> Vec<String> {
    value.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default()
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
        let own = ["날씨 조회", "files.read", "3d", "", &*long, "a b", "a_b", "search-web_2", "_x"];
        let tool = |name: &&str| ToolSpec { name: (*name).into(), description: "".into(), parameters: json!({}) };
        let renamed = Renamed::among(&own.iter().map(tool).collect::<Vec<_>>());
        let offered: Vec<_> = own.iter().map(|own| name(own).into_owned()).collect();
        for (own, offered) in own.iter().zip(&offered) {
            assert!(offered.len() <= 64 && !offered.starts_with(|c: char| c.is_ascii_digit()), "{offered}");
            assert!(offered.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)), "{offered}");
            assert_eq!(renamed.own(offered), *own);
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
