//! The arguments of the web tools, read one by one, so that an error names the argument. Pure.

use serde_json::Value;

use super::target::cut;
use crate::tool_call::{Arguments, ToolError};

/// Returns a required text.
pub(super) fn text<'a>(arguments: &'a Arguments, name: &str) -> Result<&'a str, ToolError> {
    match arguments.get(name) {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(text),
        None | Some(Value::Null) => Err(format!("missing required argument `{name}`").into()),
        Some(Value::String(_)) => Err(format!("`{name}` is empty").into()),
        // It is not shown: it may have a password in it.
        Some(_) => Err(format!("`{name}` is not a text").into()),
    }
}

/// Returns a number within limits, if it is given. `7.0` is the integer 7.
pub(super) fn integer(arguments: &Arguments, name: &str, min: u64, max: u64) -> Result<Option<u64>, ToolError> {
    let Some(value) = arguments.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
    let whole = |number: f64| (number.fract() == 0.0 && (0.0..1e15).contains(&number)).then_some(number as u64);
    let number = value.as_u64().or_else(|| value.as_f64().and_then(whole));
    match number.filter(|number| (min..=max).contains(number)) {
        Some(number) => Ok(Some(number)),
        None => {
            let range = if max == u64::MAX { format!("of at least {min}") } else { format!("from {min} to {max}") };
            Err(format!("`{name}`: expected an integer {range}, got {}", cut(&value.to_string(), 50)).into())
        }
    }
}

/// Returns one of several words, if one is given.
pub(super) fn choice<'a>(arguments: &'a Arguments, name: &str, words: &[&str]) -> Result<Option<&'a str>, ToolError> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(word)) if words.contains(&&**word) => Ok(Some(word)),
        Some(other) => {
            let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
            Err(format!("`{name}`: expected {}, got {}", words.join(" or "), cut(&other.to_string(), 50)).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_number_out_of_its_range_is_named_with_the_range() {
        let parse = |value: Value| integer(json!({"n": value}).as_object().unwrap(), "n", 100, u64::MAX);
        for (value, expected) in
            [(json!(100), 100), (json!(100.0), 100), (json!(u64::MAX), u64::MAX), (json!(1e9), 1_000_000_000)]
        {
            assert_eq!(parse(value), Ok(Some(expected)));
        }
        assert_eq!(parse(Value::Null), Ok(None));
        for value in [json!(0), json!(99), json!(-1), json!(100.5), json!("200"), json!([]), json!(1e300), json!(true)]
        {
            let expected = format!("`n`: expected an integer of at least 100, got {value}");
            assert_eq!(parse(value).unwrap_err().message.as_ref(), expected);
        }
        let long = parse(json!("x".repeat(1_000))).unwrap_err().message;
        assert!(long.len() < 120, "{long}");
    }

    #[test]
    fn a_text_is_there_and_a_choice_is_one_of_its_words() {
        let arguments = json!({"a": "x", "b": " ", "c": 1, "d": null});
        let arguments = arguments.as_object().unwrap();
        let error = |name| text(arguments, name).unwrap_err().message.to_string();
        assert_eq!(text(arguments, "a"), Ok("x"));
        assert_eq!(error("b"), "`b` is empty");
        assert_eq!(error("c"), "`c` is not a text");
        assert_eq!([error("d"), error("e")].map(|error| error.contains("missing required argument")), [true; 2]);
        assert_eq!(choice(arguments, "a", &["x", "y"]), Ok(Some("x")));
        assert_eq!(choice(arguments, "d", &["x", "y"]), Ok(None));
        let error = choice(arguments, "c", &["x", "y"]).unwrap_err().message;
        assert_eq!(&*error, "`c`: expected `x` or `y`, got 1");
    }
}
