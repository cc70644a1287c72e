//! The validation of arguments against a schema.

use serde_json::Value;

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

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;
    use serde_json::{Map, json};

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
