//! The answer to a question: what approves, what refuses, and the schema of it for models.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer_type::{AnswerType, CheckAnswer};
use crate::panics::catch;
use crate::tool_call::Arguments;
use crate::tools::wrapper::InnerTool;

/// The answer of a peer.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Yes,
    /// Yes, with other arguments.
    YesWith(Arguments),
    /// No, for this reason; empty if none is given.
    No(Arc<str>),
}

/// Reads an answer: a word, or JSON.
pub(super) fn parse(text: &str) -> Result<Answer, String> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("yes") {
        return Ok(Answer::Yes);
    }
    if let Some((no, rest)) = text.split_at_checked(2)
        && no.eq_ignore_ascii_case("no")
        && let Some(reason) = if rest.is_empty() { Some(rest) } else { rest.trim_start().strip_prefix(':') }
    {
        return Ok(Answer::No(reason.trim().into()));
    }
    if !text.starts_with('{') {
        return Err(format!("expected `yes`, `no: reason` or JSON, found `{text:.500}`"));
    }
    match serde_json::from_str(text) {
        Ok(Written { decision: Word::Yes, arguments: Some(arguments), .. }) => Ok(Answer::YesWith(arguments)),
        Ok(Written { decision: Word::Yes, .. }) => Ok(Answer::Yes),
        Ok(Written { reason, .. }) => Ok(Answer::No(reason.unwrap_or_default().trim().into())),
        Err(error) => Err(format!("expected a decision, found `{text:.500}` ({error})")),
    }
}

/// An answer as JSON. A field that is spelled differently must not be lost: it could be the arguments.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    decision: Word,
    reason: Option<String>,
    arguments: Option<Arguments>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Yes,
    No,
}

/// The type of the answer. Other arguments are a part of it, so the tool checks them, and a model is told what is wrong
/// with them.
pub(super) struct ExpectedAnswer {
    schema: Value,
    tool: InnerTool,
}

impl ExpectedAnswer {
    pub(super) fn of(tool: &InnerTool) -> AnswerType {
        let arguments = "Other arguments, all of them. Leave them out to let the tool run with those that you were asked \
            about.";
        let schema = json!({
            "type": "object",
            "properties": {
                "decision": {"type": "string", "enum": ["yes", "no"]},
                "reason": {"type": "string", "description": "The reason of a no."},
                "arguments": {"type": "object", "description": arguments},
            },
            "required": ["decision"],
        });
        AnswerType(Arc::new(Box::new(Self { schema, tool: tool.clone() })))
    }
}

impl CheckAnswer for ExpectedAnswer {
    fn schema(&self) -> &Value {
        &self.schema
    }

    fn parameters(&self) -> Value {
        self.schema.clone()
    }

    fn of_arguments(&self, arguments: Arguments) -> Result<Arc<str>, String> {
        self.of_text(&Value::Object(arguments).to_string())
    }

    fn of_text(&self, text: &str) -> Result<Arc<str>, String> {
        if let Answer::YesWith(arguments) = parse(text)? {
            // The check is foreign code.
            let checked = catch(|| self.tool.check(&arguments));
            let checked = checked.map_err(|panic| format!("the check of the arguments panicked: {panic}"))?;
            checked.map_err(|error| format!("the tool cannot run with these arguments: {}", error.message))?;
        }
        Ok(text.into())
    }

    fn value(&self, answer: &str) -> Result<Value, String> {
        Ok(answer.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no(reason: &str) -> Answer {
        Answer::No(reason.into())
    }

    fn check(text: &str, expected: Answer) {
        assert_eq!(parse(text).as_ref(), Ok(&expected), "{text}");
    }

    #[test]
    fn a_word_or_json_is_an_answer() {
        for yes in ["yes", "YES", " Yes\r\n", r#"{"decision":"yes"}"#, r#"{"decision": "yes", "reason": "cheap"}"#] {
            check(yes, Answer::Yes);
        }
        check(r#"{"decision":"yes","arguments":null}"#, Answer::Yes);
        check(
            r#"{"arguments":{"a":1},"decision":"yes"}"#,
            Answer::YesWith(json!({"a": 1}).as_object().unwrap().clone()),
        );
        for refused in ["no", "No", " NO ", "no:", r#"{"decision":"no"}"#] {
            check(refused, no(""));
        }
        check("No: too much: far too much ", no("too much: far too much"));
        check("no : why", no("why"));
        check(r#"{"decision":"no","reason":"too much","arguments":{"a":1}}"#, no("too much"));
    }

    #[test]
    fn nothing_else_is_an_answer_least_of_all_a_yes() {
        for other in [
            "",
            "y",
            "yes.",
            "yes please",
            "yes, but only 100",
            "yes\nno",
            "yesno",
            "ok",
            "true",
            "not yet",
            "nope",
            "no way",
            "ñ",
            "\"yes\"",
            "[\"yes\"]",
            "`yes`",
            r#"{"decision":"Yes"}"#,
            r#"{"decision":true}"#,
            r#"{"decision":"yes","argument":{"a":1}}"#,
            r#"{"decision":"yes","arguments":[1]}"#,
            r#"{"decision":"no","decision":"yes"}"#,
            r#"{"decision":"yes"} {"decision":"no"}"#,
            r#"{"reason":"yes"}"#,
            "{}",
        ] {
            let problem = parse(other).unwrap_err();
            assert!(problem.contains(other), "{problem}");
        }
    }
}
