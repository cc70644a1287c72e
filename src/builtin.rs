//! The two built-in tools, and the parser of the arguments that a model wrote for any tool.
//!
//! Arguments are text until [`arguments`] has parsed them. Nothing is guessed or repaired that could change what a tool
//! is asked to do.

use std::fmt;
use std::sync::Arc;

use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

use crate::answer_type::AnswerType;
use crate::name::{CALL_AGENT, FINISH, Name};
use crate::tool_call::{Arguments, CallAgent, Finish, ToolSpec, schema_of};

/// The maximum length of arguments that are parsed, in bytes.
pub(crate) const MAX_ARGUMENTS_BYTES: usize = 16 << 20;

/// The specifications of `call_agent` and `finish`, which every model is offered.
pub(crate) fn specs() -> [ToolSpec; 2] {
    [
        ToolSpec {
            name: CALL_AGENT.into(),
            description: "Call another agent. The agent will process your message and return a result when done."
                .into(),
            parameters: schema_of::<CallAgent>(),
        },
        text_finish(),
    ]
}

/// The specification of a `finish` that takes a text.
pub(crate) fn text_finish() -> ToolSpec {
    finish_spec(schema_of::<Finish>())
}

/// The specification of `finish`, with the parameters that the answer consists of.
fn finish_spec(parameters: Value) -> ToolSpec {
    let description =
        "Finish the current task and return a result to the caller. The caller may be a user or another agent.".into();
    ToolSpec { name: FINISH.into(), description, parameters }
}

/// Returns the specifications with a `finish` that takes an answer of this type, if there is one.
pub(crate) fn with_answer_type(specs: &Arc<[ToolSpec]>, answer_type: Option<&AnswerType>) -> Arc<[ToolSpec]> {
    let Some(answer_type) = answer_type else { return Arc::clone(specs) };
    let others = specs.iter().filter(|spec| *spec.name != *FINISH).cloned();
    others.chain([finish_spec(answer_type.0.parameters())]).collect()
}

/// Reads the arguments of `call_agent`: the agent's name and the message.
pub(crate) fn call_agent(written: &str) -> Result<(Name, Arc<str>), String> {
    if let Some(CallAgent { agent_name, message }) = parse_exact(written) {
        return Ok((agent_name.into(), message.into()));
    }
    let mut arguments = arguments(written)?;
    Ok((text(&mut arguments, "agent_name")?.into(), text(&mut arguments, "message")?.into()))
}

/// Reads the arguments of `finish`: the answer, which must be of the type, if there is one.
pub(crate) fn finish(written: &str, answer_type: Option<&AnswerType>) -> Result<Arc<str>, String> {
    if let Some(answer_type) = answer_type {
        return answer_type.0.of_arguments(arguments(written)?);
    }
    match parse_exact(written) {
        Some(Finish { message }) => Ok(message.into()),
        None => text(&mut arguments(written)?, "message").map(Into::into),
    }
}

/// Parses arguments that have exactly the expected form, as nearly all have, without a copy. `None`: the arguments need
/// [`arguments`], which accepts more.
fn parse_exact<'a, T: Deserialize<'a>>(written: &'a str) -> Option<T> {
    // Derived code would also accept an array in place of an object.
    let may_be = written.len() <= MAX_ARGUMENTS_BYTES && written.starts_with('{');
    may_be.then(|| serde_json::from_str(written).ok()).flatten()
}

/// Returns a required argument as text. A model that writes a number or an object means its text.
fn text(arguments: &mut Arguments, name: &str) -> Result<String, String> {
    match arguments.remove(name) {
        None | Some(Value::Null) => Err(format!("missing required argument `{name}`")),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Ok(other.to_string()),
    }
}

/// Parses the arguments that a model wrote for a tool.
///
/// They must be a JSON object. Two habits of models and servers are accepted, because their meaning is clear: empty
/// text stands for no arguments, and the object may be wrapped in a JSON string. If a key occurs twice, the last value
/// is used.
///
/// # Errors
///
/// A text for the model, for anything else: cut or trailing text, more than 16 MiB, more than 128 levels, a number out
/// of range, half a surrogate pair.
pub(crate) fn arguments(written: &str) -> Result<Arguments, String> {
    if written.len() > MAX_ARGUMENTS_BYTES {
        return Err(format!("the arguments have {} bytes; at most {MAX_ARGUMENTS_BYTES} are read", written.len()));
    }
    if written.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    match parse_json(written)? {
        Value::Object(object) => Ok(object),
        Value::String(inner) => match parse_json(&inner) {
            Ok(Value::Object(object)) => Ok(object),
            _ => Err("the arguments must be a JSON object, not a string".to_owned()),
        },
        Value::Array(_) => Err("the arguments must be a JSON object, not an array".to_owned()),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            Err(format!("the arguments must be a JSON object, not `{written}`"))
        }
    }
}

fn parse_json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text)
        .map(|Json(value)| value)
        .map_err(|error| format!("the arguments are not valid JSON: {error}"))
}

/// A JSON value whose repeated keys are logged; [`Value`] ignores them silently.
struct Json(Value);

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor).map(Json)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Json(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((key, Json(value))) = entries.next_entry::<String, Json>()? {
            if let Some(earlier) = object.insert(key, value) {
                drop(earlier);
                tracing::warn!("a model repeated a key in a tool's arguments; the last value holds");
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Mutex;

    #[test]
    fn the_parameters_are_offered_in_these_bytes() {
        let [call_agent, finish] = specs().map(|spec| spec.parameters.to_string());
        let expected = r#"{"type":"object","properties":{"agent_name":{"type":"string","description":"Name of the agent to call"},"message":{"type":"string","description":"Message to send to the agent"}},"required":["agent_name","message"]}"#;
        assert_eq!(call_agent, expected);
        let expected = r#"{"type":"object","properties":{"message":{"type":"string","description":"Result message to return"}},"required":["message"]}"#;
        assert_eq!(finish, expected);
    }

    fn check(written: &str, expected: Result<Value, &str>) {
        match (arguments(written), expected) {
            (Ok(actual), Ok(expected)) => assert_eq!(Value::Object(actual), expected, "{written}"),
            (Err(actual), Err(expected)) => assert!(actual.contains(expected), "{written}: {actual}"),
            (actual, expected) => panic!("{written}: {actual:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn fault_31_arguments_are_an_object_or_an_error() {
        check(r#"{"a": 1}"#, Ok(json!({"a": 1})));
        let all =
            json!({"null": null, "yes": true, "less": -1, "part": 0.5, "text": "\n", "both": [{"a": [false]}, "b"]});
        check(&all.to_string(), Ok(all));
        check("", Ok(json!({})));
        check(" \n", Ok(json!({})));
        check(r#""{\"a\": 1}""#, Ok(json!({"a": 1})));
        check("null", Err("not `null`"));
        check("7", Err("not `7`"));
        check(r#""q""#, Err("not a string"));
        check(r#"["q"]"#, Err("not an array"));
        check(r#"{"a": 1} and so on"#, Err("trailing characters"));
        check(r#"{"a": 1}}"#, Err("trailing characters"));
        check(r#"{"a": "cut he"#, Err("EOF while parsing"));
        check("{a: 1}", Err("key must be a string"));
    }

    #[test]
    fn fault_33_depth_ends_in_an_error_and_not_in_the_stack() {
        let deep = |levels: usize| format!(r#"{{"a":{}1{}}}"#, "[".repeat(levels), "]".repeat(levels));
        assert!(arguments(&deep(100)).is_ok());
        check(&deep(129), Err("recursion limit"));
        check(&"[".repeat(1_000_000), Err("recursion limit"));
    }

    #[test]
    fn fault_34_sixteen_mebibytes_are_read_and_not_one_byte_more() {
        let padded = |length: usize| format!("{{}}{}", " ".repeat(length - 2));
        check(&padded(MAX_ARGUMENTS_BYTES), Ok(json!({})));
        check(&padded(MAX_ARGUMENTS_BYTES + 1), Err("at most 16777216 are read"));
        check(&format!(r#"{{"a":"{}"}}"#, "x".repeat(100 << 20)), Err("at most 16777216 are read"));
    }

    #[test]
    fn fault_35_odd_json_has_a_defined_meaning() {
        check(r#"{"a":1,"a":2}"#, Ok(json!({"a": 2})));
        check(r#"{"a":1e999}"#, Err("number out of range"));
        check(r#"{"a":-0}"#, Ok(json!({"a": -0.0})));
        check(r#"{"a":"\ud800"}"#, Err("hex escape"));
        check(r#"{"a":"x\u0000y"}"#, Ok(json!({"a": "x\0y"})));
        check("{\"a\":\"x\0y\"}", Err("control character"));
    }

    #[test]
    fn fault_35_a_repeated_key_is_warned_of_and_its_value_is_not_shown() {
        #[derive(Clone, Default)]
        struct Said(Arc<Mutex<Vec<u8>>>);
        impl std::io::Write for Said {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().write(bytes)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let said = Said::default();
        let writer = said.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            check(r#"{"a":1,"b":[{"c":0,"c":"secret"}]}"#, Ok(json!({"a": 1, "b": [{"c": "secret"}]})));
            check(r#"{"a":1,"b":2}"#, Ok(json!({"a": 1, "b": 2})));
        });
        let said = String::from_utf8(said.0.lock().unwrap().clone()).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("WARN") && said.contains("repeated a key") && !said.contains("secret"), "{said}");
    }

    #[test]
    fn finish_and_call_agent_take_what_is_not_text_as_its_text() {
        assert_eq!(finish(r#"{"message": 42}"#, None), Ok("42".into()));
        assert_eq!(finish(r#"{"message": {"a": 1}}"#, None), Ok(r#"{"a":1}"#.into()));
        assert_eq!(finish(r#"{"message": "a\nb", "more": 1}"#, None), Ok("a\nb".into()));
        assert_eq!(finish(r#"{"message": "a", "message": "b"}"#, None), Ok("b".into()));
        assert_eq!(finish(r#"["a"]"#, None), Err("the arguments must be a JSON object, not an array".to_owned()));
        assert_eq!(finish("{}", None), Err("missing required argument `message`".to_owned()));
        assert_eq!(call_agent(r#"{"agent_name": "b", "message": "x"}"#), Ok(("b".into(), "x".into())));
        assert_eq!(call_agent(r#"{"agent_name": "b"}"#), Err("missing required argument `message`".to_owned()));
    }
}
