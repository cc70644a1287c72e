//! Conversion of a value written as text to the type that a schema gives. Plain functions.

use serde_json::Value;

/// Returns the value of a text. It is a string if the schema takes only strings. Otherwise it is JSON if it can be read
/// as JSON, or `True`, `False` and `None` as in Python.
pub(super) fn typed(text: &str, schema: &Value, root: &Value) -> Value {
    let kinds = Kinds::of(schema, root, MAX_DEPTH);
    let word = text.trim();
    let value = match word {
        "True" | "TRUE" => true.into(),
        "False" | "FALSE" => false.into(),
        "None" => Value::Null,
        _ if kinds.text && !kinds.has_others() => return text.into(),
        _ => serde_json::from_str(word).unwrap_or_else(|_| text.into()),
    };
    if kinds.text && !kinds.take(&value, word) { text.into() } else { value }
}

/// Returns a tool's schema of one argument; `None` if the schema does not name it.
pub(super) fn property<'a>(root: &'a Value, key: &str) -> Option<&'a Value> {
    property_of(root, root, key, MAX_DEPTH)
}

fn property_of<'a>(schema: &'a Value, root: &'a Value, key: &str, depth: usize) -> Option<&'a Value> {
    let depth = depth.checked_sub(1)?;
    let own = schema["properties"].get(key);
    own.or_else(|| property_of(target(schema, root)?, root, key, depth))
        .or_else(|| choices(schema).find_map(|choice| property_of(choice, root, key, depth)))
}

/// Returns the schema that a schema refers to.
fn target<'a>(schema: &Value, root: &'a Value) -> Option<&'a Value> {
    root.pointer(schema["$ref"].as_str()?.strip_prefix('#')?)
}

/// Returns the alternatives of a schema, and the schemas that it combines.
fn choices(schema: &Value) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten()
}

/// The maximum depth of references and alternatives that are followed.
const MAX_DEPTH: usize = 8;

/// The types that a schema takes.
#[derive(Default)]
struct Kinds {
    text: bool,
    null: bool,
    boolean: bool,
    integer: bool,
    number: bool,
    array: bool,
    object: bool,
}

impl Kinds {
    fn of(schema: &Value, root: &Value, depth: usize) -> Self {
        let mut kinds = Self::default();
        let Some(depth) = depth.checked_sub(1) else { return kinds };
        let of = |value: &Value| match value {
            Value::String(_) => "string",
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        match &schema["type"] {
            Value::String(kind) => kinds.add(kind),
            Value::Array(all) => all.iter().filter_map(Value::as_str).for_each(|kind| kinds.add(kind)),
            _ => schema["enum"]
                .as_array()
                .into_iter()
                .flatten()
                .chain(schema.get("const"))
                .for_each(|value| kinds.add(of(value))),
        }
        for other in target(schema, root).into_iter().chain(choices(schema)) {
            kinds.join(&Self::of(other, root, depth));
        }
        kinds
    }

    fn add(&mut self, kind: &str) {
        match kind {
            "string" => self.text = true,
            "null" => self.null = true,
            "boolean" => self.boolean = true,
            "integer" => self.integer = true,
            "number" => self.number = true,
            "array" => self.array = true,
            "object" => self.object = true,
            _ => {}
        }
    }

    fn join(&mut self, other: &Self) {
        self.text |= other.text;
        self.null |= other.null;
        self.boolean |= other.boolean;
        self.integer |= other.integer;
        self.number |= other.number;
        self.array |= other.array;
        self.object |= other.object;
    }

    /// Returns whether a type other than string is accepted.
    fn has_others(&self) -> bool {
        self.null || self.boolean || self.integer || self.number || self.array || self.object
    }

    /// Returns whether a value is accepted that was read out of a text which may also be a string. A number is accepted
    /// only if its standard form equals the text.
    fn take(&self, value: &Value, text: &str) -> bool {
        match value {
            Value::Null => self.null,
            Value::Bool(_) => self.boolean,
            Value::Number(number) => {
                let is_taken = self.number || self.integer && (number.is_i64() || number.is_u64());
                is_taken && number.to_string() == text
            }
            Value::String(_) => false,
            Value::Array(_) => self.array,
            Value::Object(_) => self.object,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_property_is_found_where_the_schema_has_it() {
        let id = json!({"type": "string"});
        let of = |id: &Value| json!({"type": "object", "properties": {"id": id}});
        for root in [
            of(&id),
            json!({"$ref": "#/$defs/A", "$defs": {"A": of(&id)}}),
            json!({"allOf": [{"type": "object"}, of(&id)]}),
            json!({"anyOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": of(&id)}}),
        ] {
            assert_eq!(property(&root, "id"), Some(&id), "{root}");
            assert_eq!(property(&root, "no"), None);
        }
        let circle = json!({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}});
        assert_eq!(property(&circle, "id"), None);
    }

    #[test]
    fn a_value_is_what_the_schema_says() {
        let nullable = json!({"type": ["string", "null"]});
        let any_of = json!({"anyOf": [{"$ref": "#/$defs/T"}, {"type": "null"}]});
        let root = json!({"$defs": {"T": {"type": "string"}}});
        for (schema, text, expected) in [
            (json!({"type": "string"}), "123", json!("123")),
            (json!({"type": "string"}), "null", json!("null")),
            (nullable.clone(), "123", json!("123")),
            (nullable, "null", Value::Null),
            (any_of.clone(), "true", json!("true")),
            (any_of, "None", Value::Null),
            (json!({"enum": ["1", "2"]}), "1", json!("1")),
            (json!({"type": "integer"}), "5", json!(5)),
            (json!({"type": "boolean"}), "True", json!(true)),
            (json!({"type": ["string", "integer"]}), "5", json!(5)),
            (json!({"type": ["string", "integer"]}), "1.10", json!("1.10")),
            (json!({"type": ["string", "number"]}), "12345678901234567890123", json!("12345678901234567890123")),
            (json!({"type": ["string", "number"]}), "-2.5", json!(-2.5)),
            (json!({"type": ["string", "array"]}), "12345", json!("12345")),
            (json!({"type": ["string", "array"]}), "null", json!("null")),
            (json!({"type": ["string", "array"]}), "[1]", json!([1])),
            (json!({"type": ["string", "object"]}), "true", json!("true")),
            (json!({"type": "string"}), "True", json!("True")),
            (json!({"type": "array"}), "[1, \"a\"]", json!([1, "a"])),
            (json!({}), "plain", json!("plain")),
            (Value::Null, "5", json!(5)),
        ] {
            assert_eq!(typed(text, &schema, &root), expected, "{schema} {text}");
        }
    }
}
