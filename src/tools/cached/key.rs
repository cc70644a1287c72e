//! The key of arguments in the cache: equal text for arguments that are equal as JSON.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Number, Value};

use crate::tool_call::Arguments;

/// Returns the same text for the same group and arguments that are equal as JSON, and different texts for all others.
/// The keys of one cache have a group, or none of them has.
pub(super) fn of(group: Option<&str>, arguments: &Arguments) -> Arc<str> {
    let mut key = String::new();
    if let Some(group) = group {
        text(group, &mut key);
    }
    object(arguments, &mut key);
    key.into()
}

fn write(value: &Value, key: &mut String) {
    match value {
        Value::Null => key.push_str("null"),
        Value::Bool(true) => key.push_str("true"),
        Value::Bool(false) => key.push_str("false"),
        Value::Number(value) => number(value, key),
        Value::String(value) => text(value, key),
        Value::Array(items) => {
            key.push('[');
            for item in items {
                write(item, key);
                key.push(',');
            }
            key.push(']');
        }
        Value::Object(fields) => object(fields, key),
    }
}

fn object(fields: &Arguments, key: &mut String) {
    // The order in which a map returns its keys depends on a feature that any other crate may turn on.
    let mut fields: Vec<_> = fields.iter().collect();
    fields.sort_unstable_by_key(|(name, _)| *name);
    key.push('{');
    for (name, value) in fields {
        text(name, key);
        write(value, key);
        key.push(',');
    }
    key.push('}');
}

/// Writes a text after its length, so that nothing in it needs an escape.
fn text(text: &str, key: &mut String) {
    // Writing to a string does not fail.
    let _ = write!(key, "{}:{text}", text.len());
}

/// Writes a number by its value: a whole number as an integer, any other as its nearest `f64`, as it was parsed.
fn number(number: &Number, key: &mut String) {
    let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    let _ = match (whole, number.as_f64()) {
        (Some(whole), _) => write!(key, "{whole}"),
        (None, Some(float)) if float.fract() == 0.0 && float.abs() < 1e30 => write!(key, "{}", float as i128),
        (None, Some(float)) => write!(key, "{float}"),
        (None, None) => write!(key, "{number}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(arguments: &str) -> Arc<str> {
        of(None, &serde_json::from_str(arguments).unwrap())
    }

    fn check(classes: &[&[&str]]) {
        for (place, class) in classes.iter().enumerate() {
            for arguments in *class {
                assert_eq!(key(class[0]), key(arguments), "{} and {arguments}", class[0]);
                for other in classes[..place].iter().copied().flatten() {
                    assert_ne!(key(other), key(arguments), "{other} and {arguments}");
                }
            }
        }
    }

    #[test]
    fn arguments_that_are_equal_as_json_have_one_key_and_no_others() {
        check(&[
            &["{}", " { } "],
            &[r#"{"a": 1, "b": 2}"#, r#"{"b":2,"a":1}"#, r#"{"a":1.0,"b":2e0}"#, r#"{"a":0,"a":1,"b":2}"#],
            &[r#"{"a": {"x": [1, {"p": 1, "q": 2}], "y": 0}}"#, r#"{"a":{"y":-0.0,"x":[1,{"q":2,"p":1}]}}"#],
            &[r#"{"a": 1}"#],
            &[r#"{"a": "1"}"#, r#"{"\u0061": "\u0031"}"#],
            &[r#"{"a": [1]}"#],
            &[r#"{"a": [1, 2]}"#],
            &[r#"{"a": [2, 1]}"#],
            &[r#"{"a": [[1], 2]}"#],
            &[r#"{"a": [12]}"#],
            &[r#"{"a": null}"#],
            &[r#"{"a": "null"}"#],
            &[r#"{"a": true}"#],
            &[r#"{"a": false}"#],
            &[r#"{"a": ""}"#],
            &[r#"{"a": {}}"#],
            &[r#"{"a": []}"#],
            &[r#"{"a": "b", "c": "d"}"#],
            &[r#"{"a": "b,1:c1:d"}"#],
        ]);
    }

    #[test]
    fn a_group_has_keys_of_its_own_whatever_it_is_called() {
        let key = |group: &str, arguments: &str| of(Some(group), &serde_json::from_str(arguments).unwrap());
        assert_eq!(key("a", r#"{"x":1,"y":2}"#), key("a", r#"{"y":2,"x":1}"#));
        let keys = [("", "{}"), ("a", "{}"), ("{}", "{}"), ("", r#"{"":{}}"#), ("a{", r#"{"a":1}"#)];
        let different: std::collections::HashSet<_> = keys.map(|(group, arguments)| key(group, arguments)).into();
        assert_eq!(different.len(), keys.len());
    }

    #[test]
    fn numbers_are_compared_by_value_to_the_last_digit() {
        check(&[
            &[r#"{"n": 9007199254740993}"#],
            &[r#"{"n": 9007199254740992}"#, r#"{"n": 9007199254740992.0}"#],
            &[r#"{"n": 18446744073709551615}"#],
            &[r#"{"n": 18446744073709551616}"#, r#"{"n": 1.8446744073709551616e19}"#],
            &[r#"{"n": 1000000000000000000}"#, r#"{"n": 1e18}"#],
            &[r#"{"n": 1e40}"#, r#"{"n": 10e39}"#],
            &[r#"{"n": 0.5}"#, r#"{"n": 5e-1}"#],
            &[r#"{"n": -0.5}"#],
            &[r#"{"n": -1}"#, r#"{"n": -1.0}"#],
        ]);
    }
}
