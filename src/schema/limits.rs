//! The limits for a schema from an untrusted source. Plain loops: nothing here recurses, fetches or waits.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// The maximum depth of nesting.
const MAX_DEPTH: usize = 64;
/// The maximum number of values in a schema.
const MAX_VALUES: usize = 20_000;
/// The maximum number of values once every reference is replaced by its target.
const MAX_EXPANDED: usize = 100_000;
/// The maximum number of references.
const MAX_REFERENCES: usize = 500;

/// Checks a schema. The error says why it is refused: too deep, too large, not of an object, or with references to
/// elsewhere, to nothing, or in a circle.
pub(crate) fn check(schema: &Map<String, Value>) -> Result<(), String> {
    match schema.get("type") {
        None => {}
        Some(Value::String(kind)) if kind == "object" => {}
        Some(other) => return Err(format!("its parameters are of type {other}, not `object`")),
    }
    let root = Part::of(schema)?;
    if root.references.is_empty() {
        return Ok(());
    }
    if root.references.len() > MAX_REFERENCES {
        return Err(format!("its schema has {} references; {MAX_REFERENCES} are allowed", root.references.len()));
    }
    expand(schema, root)
}

/// The values and references of a part of a schema, without the targets of the references.
struct Part<'a> {
    values: usize,
    /// The references, with repetitions.
    references: Vec<&'a str>,
}

impl<'a> Part<'a> {
    fn of(schema: &'a Map<String, Value>) -> Result<Self, String> {
        Self::walk(schema.iter().map(|(key, value)| (key.as_str(), value, 1)).collect())
    }

    fn walk(mut waiting: Vec<(&'a str, &'a Value, usize)>) -> Result<Self, String> {
        let mut part = Self { values: 1, references: Vec::new() };
        while let Some((key, value, depth)) = waiting.pop() {
            part.values += 1;
            if depth > MAX_DEPTH {
                return Err(format!("its schema is nested deeper than {MAX_DEPTH} levels"));
            }
            if part.values > MAX_VALUES {
                return Err(format!("its schema has more than {MAX_VALUES} values"));
            }
            match value {
                Value::String(target) if matches!(key, "$ref" | "$dynamicRef" | "$recursiveRef") => {
                    part.references.push(target);
                }
                Value::Array(items) => waiting.extend(items.iter().map(|item| ("", item, depth + 1))),
                Value::Object(members) => {
                    waiting.extend(members.iter().map(|(key, member)| (key.as_str(), member, depth + 1)));
                }
                _ => {}
            }
        }
        Ok(part)
    }
}

/// Follows every reference, deepest first, and adds up the values of the targets.
fn expand(schema: &Map<String, Value>, root: Part<'_>) -> Result<(), String> {
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut open: BTreeSet<&str> = BTreeSet::from(["#"]);
    // The path from the root to the current part: for each part its name, its content, and the index of the next
    // reference to follow.
    let mut way = vec![("#", root, 0)];
    while let Some((name, part, next)) = way.last_mut() {
        if let Some(reference) = part.references.get(*next).copied() {
            *next += 1;
            if let Some(size) = sizes.get(reference) {
                part.values = part.values.saturating_add(*size);
                if part.values > MAX_EXPANDED {
                    return Err(format!("its schema stands for more than {MAX_EXPANDED} values"));
                }
                continue;
            }
            if !open.insert(reference) {
                return Err(format!("its schema refers to `{reference}` in a circle"));
            }
            *next -= 1;
            let target = resolve(schema, reference)?;
            way.push((reference, Part::walk(vec![("", target, 1)])?, 0));
        } else {
            sizes.insert(name, part.values);
            open.remove(name);
            way.pop();
        }
    }
    Ok(())
}

/// Returns the target of a [JSON Pointer](https://www.rfc-editor.org/rfc/rfc6901) in the same schema.
fn resolve<'a>(schema: &'a Map<String, Value>, reference: &str) -> Result<&'a Value, String> {
    let Some(pointer) = reference.strip_prefix('#') else {
        return Err(format!("its schema refers to `{reference}`, which is elsewhere"));
    };
    let nothing = || format!("its schema refers to `{reference}`, which is not there");
    let (first, rest) = pointer.strip_prefix('/').ok_or_else(nothing)?.split_once('/').map_or_else(
        || (pointer.get(1..).unwrap_or_default(), String::new()),
        |(first, rest)| (first, format!("/{rest}")),
    );
    let first = first.replace("~1", "/").replace("~0", "~");
    schema.get(&first).and_then(|value| value.pointer(&rest)).ok_or_else(nothing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn verdict(schema: &Value) -> String {
        check(schema.as_object().unwrap()).map_or_else(|reason| reason, |()| "ok".to_owned())
    }

    fn properties(count: usize) -> Value {
        let all: Map<String, Value> = (0..count).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect();
        json!({"type": "object", "properties": all})
    }

    fn nested(levels: usize) -> Value {
        let mut schema = json!({"type": "object"});
        for _ in 0..levels {
            schema = json!({"items": schema});
        }
        schema
    }

    #[test]
    fn schemas_that_can_be_worked_with_pass() {
        for schema in [
            json!({}),
            json!({"type": "object", "properties": {"$ref": {"type": "string"}}}),
            json!({"$defs": {"a": {"type": "string"}, "b~/c": {"$ref": "#/$defs/a"}},
                "properties": {"x": {"$ref": "#/$defs/a"}, "y": {"$ref": "#/$defs/b~0~1c"}, "z": {"$ref": "#/$defs/a"}}}),
            properties(5_000),
            nested(MAX_DEPTH - 2),
        ] {
            assert_eq!(verdict(&schema), "ok");
        }
    }

    #[test]
    fn hostile_schemas_are_refused_with_a_reason() {
        let check = |schema: Value, reason: &str| assert_eq!(verdict(&schema), reason);
        check(json!({"type": "string"}), "its parameters are of type \"string\", not `object`");
        check(json!({"$ref": "#"}), "its schema refers to `#` in a circle");
        check(json!({"$defs": {"a": {"$ref": "#/$defs/a"}}}), "its schema refers to `#/$defs/a` in a circle");
        check(
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"items": {"$ref": "#/$defs/a"}}}}),
            "its schema refers to `#/$defs/a` in a circle",
        );
        check(
            json!({"properties": {"x": {"$ref": "http://169.254.169.254/latest"}}}),
            "its schema refers to `http://169.254.169.254/latest`, which is elsewhere",
        );
        check(
            json!({"properties": {"x": {"$ref": "#/$defs/none"}}}),
            "its schema refers to `#/$defs/none`, which is not there",
        );
        check(nested(MAX_DEPTH + 1), "its schema is nested deeper than 64 levels");
        check(properties(100_000), "its schema has more than 20000 values");
    }

    #[test]
    fn references_that_multiply_are_refused_before_anybody_follows_them_all() {
        let mut definitions = Map::from_iter([("d0".to_owned(), json!({"type": "string"}))]);
        for level in 1..60 {
            let lower = json!({"$ref": format!("#/$defs/d{}", level - 1)});
            definitions.insert(format!("d{level}"), json!({"properties": {"a": lower, "b": lower}}));
        }
        let bomb = json!({"$defs": definitions, "properties": {"x": {"$ref": "#/$defs/d59"}}});
        assert_eq!(verdict(&bomb), "its schema stands for more than 100000 values");
    }
}
