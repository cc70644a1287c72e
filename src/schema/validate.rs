//! The validation of arguments against a schema, and an example that fits a schema.

use serde_json::{Map, Value, json};

use super::limits;

/// A schema that arguments are checked against.
pub(crate) struct Schema(jsonschema::Validator);

/// The maximum number of errors in one report.
const MAX_REPORTED: usize = 5;

impl Schema {
    /// Returns `None` for a schema that cannot be used or that [`limits::check`] refuses, as it does one that refers to
    /// itself. Every value counts as fitting such a schema.
    pub(crate) fn new(schema: &Value) -> Option<Self> {
        limits::check(schema.as_object()?).ok()?;
        // Of the two engines for patterns, this one takes linear time.
        let options = jsonschema::options().with_pattern_options(jsonschema::PatternOptions::regex());
        options.build(schema).ok().map(Self)
    }

    /// Returns what is wrong with a value, in words; `None` if it fits.
    pub(crate) fn problem(&self, value: &Value) -> Option<String> {
        let told: Vec<String> = self.0.iter_errors(value).take(MAX_REPORTED).map(|error| describe(&error)).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

fn describe(error: &jsonschema::ValidationError<'_>) -> String {
    let place = error.instance_path().to_string();
    // The value is masked, because it may be a whole file.
    let error = error.masked_with("the value");
    if place.is_empty() { error.to_string() } else { format!("{error} at `{place}`") }
}

/// The maximum depth of an example.
const MAX_DEPTH: usize = 6;

/// Returns a value that fits the schema, or nearly so. An object has its required properties, or all of them if none is
/// required.
pub(crate) fn example(schema: &Value) -> Value {
    example_within(schema, schema, MAX_DEPTH)
}

fn example_within(schema: &Value, root: &Value, depth: usize) -> Value {
    let inner = |schema: &Value| match depth {
        0 => Value::Null,
        _ => example_within(schema, root, depth - 1),
    };
    let chosen = schema.get("examples").and_then(|all| all.get(0)).or(schema.get("const")).or(schema.get("default"));
    if let Some(value) = chosen.or(schema.get("enum").and_then(|all| all.get(0))) {
        return value.clone();
    }
    if let Some(target) = schema["$ref"].as_str().and_then(|path| root.pointer(path.strip_prefix('#')?)) {
        return inner(target);
    }
    let mut choices = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|key| schema[key].as_array());
    if let Some(choice) = choices.find_map(|all| all.iter().find(|choice| choice["type"] != "null")) {
        return inner(choice);
    }
    match kind(schema) {
        "string" => json!("text"),
        "integer" => schema.get("minimum").cloned().unwrap_or_else(|| json!(1)),
        "number" => schema.get("minimum").cloned().unwrap_or_else(|| json!(1.5)),
        "boolean" => json!(true),
        "array" => schema.get("items").map_or_else(|| json!([]), |items| json!([inner(items)])),
        "object" => Value::Object(properties(schema, inner)),
        _ => Value::Null,
    }
}

fn properties(schema: &Value, inner: impl Fn(&Value) -> Value) -> Map<String, Value> {
    let Some(all) = schema["properties"].as_object() else { return Map::new() };
    let required: Vec<&str> =
        schema["required"].as_array().map_or_else(Vec::new, |names| names.iter().filter_map(Value::as_str).collect());
    let is_shown = |name: &str| required.is_empty() || required.contains(&name);
    all.iter().filter(|(name, _)| is_shown(name)).map(|(name, schema)| (name.clone(), inner(schema))).collect()
}

/// Returns the first type that a schema names, or the type that its keywords imply.
fn kind(schema: &Value) -> &str {
    match &schema["type"] {
        Value::String(kind) => kind,
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or("null"),
        _ if schema["properties"].is_object() => "object",
        _ if schema["items"].is_object() => "array",
        _ => "string",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_fits_its_schema() {
        for (schema, expected) in [
            (
                json!({"type": "object", "properties": {"core": {"type": "integer"}}, "required": ["core"]}),
                json!({"core": 1}),
            ),
            (
                json!({"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": ["null", "number"]}}}),
                json!({"a": "x", "b": 1.5}),
            ),
            (
                json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "array", "items": {"type": "boolean"}}}}),
                json!({"a": [true]}),
            ),
            (json!({"anyOf": [{"type": "null"}, {"type": "string"}]}), json!("text")),
            (json!({"type": "object"}), json!({})),
        ] {
            assert_eq!(example(&schema), expected, "{schema}");
            assert_eq!(Schema::new(&schema).unwrap().problem(&expected), None, "{schema}");
        }
    }

    #[test]
    fn a_schema_that_refers_to_itself_gives_an_example_all_the_same() {
        let schema = json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]});
        assert!(example(&schema).to_string().len() < 200);
    }

    #[test]
    fn fault_107_hostile_schemas_neither_hang_nor_end_the_process() {
        let mut deep = json!({"type": "object"});
        for _ in 0..2_000 {
            // `json!` would write the inner one by a recursion of its own.
            deep = Value::Object(Map::from_iter([("items".to_owned(), deep)]));
        }
        let circle = json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"});
        let all_of = json!({"type": "object", "allOf": [{"$ref": "#"}]});
        let itself = json!({"$ref": "#"});
        let tree = json!({"type": "object", "properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}});
        for schema in [&deep, &circle, &all_of, &itself, &tree] {
            let _ = example(schema).to_string();
            if let Some(schema) = Schema::new(schema) {
                let _ = schema.problem(&json!({"a": {"a": 1}, "next": {"next": {"n": "x"}}}));
            }
        }
        assert!(Schema::new(&tree).is_none());
    }

    #[test]
    fn what_does_not_fit_is_told_without_the_value() {
        let schema = json!({"type": "object", "properties": {"core": {"type": "integer"}}, "required": ["core"]});
        let schema = Schema::new(&schema).unwrap();
        assert_eq!(schema.problem(&json!({"kern": 1})), Some("\"core\" is a required property".to_owned()));
        let misfit = schema.problem(&json!({"core": "secret"})).unwrap();
        assert_eq!(misfit, "the value is not of type \"integer\" at `/core`");
    }

    #[test]
    fn a_schema_that_cannot_be_used_stops_nobody() {
        assert!(Schema::new(&json!({"$ref": "https://example.com/schema"})).is_none(), "nothing is fetched");
        assert!(Schema::new(&json!({"type": 7})).is_none());
    }
}
