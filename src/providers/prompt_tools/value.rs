//! A value that is written as text, as the type that a schema gives it. Plain functions.

use serde_json::Value;

/// The value that a text stands for: text where the schema takes nothing but text, and else JSON if it can be read as such,
/// or `True`, `False` and `None` as in Python.
pub(super) fn typed(text: &str, schema: &Value, root: &Value) -> Value {
    let kinds = Kinds::of(schema, root, DEEPEST);
    let word = text.trim();
    let is_null = matches!(word, "null" | "None");
    if kinds.is_only_text() {
        return if kinds.null && is_null { Value::Null } else { text.into() };
    }
    match word {
        "True" | "TRUE" if kinds.boolean || !kinds.text => true.into(),
        "False" | "FALSE" if kinds.boolean || !kinds.text => false.into(),
        "None" if kinds.null || !kinds.text => Value::Null,
        _ => serde_json::from_str(word).unwrap_or_else(|_| text.into()),
    }
}

/// How many references and alternatives are followed, one in the other.
const DEEPEST: usize = 8;

/// The types that a schema takes.
#[derive(Default)]
struct Kinds {
    text: bool,
    null: bool,
    boolean: bool,
    other: bool,
}

impl Kinds {
    fn of(schema: &Value, root: &Value, depth: usize) -> Self {
        let mut kinds = Self::default();
        let Some(depth) = depth.checked_sub(1) else { return kinds };
        let of = |value: &Value| match value {
            Value::String(_) => "string",
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            _ => "other",
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
        if let Some(target) = schema["$ref"].as_str().and_then(|path| root.pointer(path.strip_prefix('#')?)) {
            kinds.join(Self::of(target, root, depth));
        }
        for choice in ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten() {
            kinds.join(Self::of(choice, root, depth));
        }
        kinds
    }

    fn add(&mut self, kind: &str) {
        match kind {
            "string" => self.text = true,
            "null" => self.null = true,
            "boolean" => self.boolean = true,
            _ => self.other = true,
        }
    }

    fn join(&mut self, other: Self) {
        self.text |= other.text;
        self.null |= other.null;
        self.boolean |= other.boolean;
        self.other |= other.other;
    }

    fn is_only_text(&self) -> bool {
        self.text && !self.boolean && !self.other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
            (json!({"type": "array"}), "[1, \"a\"]", json!([1, "a"])),
            (json!({}), "plain", json!("plain")),
            (Value::Null, "5", json!(5)),
        ] {
            assert_eq!(typed(text, &schema, &root), expected, "{schema} {text}");
        }
    }
}
