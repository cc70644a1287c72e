//! The vendors' descriptions of a request.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jsonschema::Validator;
use serde_json::Value;

use crate::wire::Wire;

/// What a vendor says a body must be.
pub(crate) enum Schema {
    /// By JSON Schemas: for bodies that ask for a whole reply, and for a streamed one.
    Json(Box<[Validator; 2]>),
    /// By protocol buffers, which Python reads.
    Google(PathBuf),
}

impl Schema {
    /// The description of a wire format, where it is at hand; says so if not.
    pub(crate) fn of(wire: Wire) -> Option<Self> {
        let names = match wire {
            Wire::Chat => ["openai-chat"; 2],
            Wire::Responses => ["openai-responses"; 2],
            Wire::Messages => ["anthropic-messages-nonstreaming", "anthropic-messages-streaming"],
            Wire::Gemini => return google(),
        };
        let Some(folder) = std::env::var_os("AGENTOUTO_SCHEMAS") else {
            eprintln!("skipped: AGENTOUTO_SCHEMAS does not name a folder");
            return None;
        };
        let read = |name: &str| {
            let path = Path::new(&folder).join(format!("{name}.schema.json"));
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let mut schema = serde_json::from_str(&text).unwrap();
            without_anchors(&mut schema);
            jsonschema::validator_for(&schema).unwrap()
        };
        Some(Self::Json(Box::new(names.map(read))))
    }

    /// What is wrong with each of these bodies.
    pub(crate) fn faults(&self, bodies: &[Value]) -> Vec<Option<String>> {
        match self {
            Self::Json(validators) => {
                let validator = |body: &Value| &validators[usize::from(body["stream"] == true)];
                bodies.iter().map(|body| fault(validator(body), body)).collect()
            }
            Self::Google(python) => google_faults(python, bodies),
        }
    }
}

/// A word of draft 2019-09 has stayed behind in a schema of draft 2020-12, which is not valid with it.
fn without_anchors(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|key, _| key != "$recursiveAnchor" && key != "$recursiveRef");
            fields.values_mut().for_each(without_anchors);
        }
        Value::Array(items) => items.iter_mut().for_each(without_anchors),
        _ => {}
    }
}

fn fault(validator: &Validator, body: &Value) -> Option<String> {
    let faults = validator.iter_errors(body).map(|error| format!("at `{}`: {}", error.instance_path(), short(&error)));
    let faults: Vec<_> = faults.collect();
    (!faults.is_empty()).then(|| faults.join("; "))
}

/// The end of an error says what is wrong; its beginning repeats the body.
fn short(error: &jsonschema::ValidationError<'_>) -> String {
    let text = error.to_string();
    text[text.ceil_char_boundary(text.len().saturating_sub(300))..].to_owned()
}

fn google() -> Option<Schema> {
    if std::env::var("AGENTOUTO_COUNTERPARTS").is_ok_and(|value| value == "1") {
        return Some(Schema::Google(root().join("target/counterparts/venv/bin/python")));
    }
    eprintln!("skipped: AGENTOUTO_COUNTERPARTS is not 1");
    None
}

/// Python reads all bodies in one process.
fn google_faults(python: &Path, bodies: &[Value]) -> Vec<Option<String>> {
    let mut command = Command::new(python);
    command.arg(root().join("tests/counterparts/google_schema.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.spawn().expect("run .ci/counterparts");
    let mut input = process.stdin.take().unwrap();
    let lines: String = bodies.iter().map(|body| format!("{body}\n")).collect();
    let writing = std::thread::spawn(move || input.write_all(lines.as_bytes()).unwrap());
    let output = process.wait_with_output().unwrap();
    writing.join().unwrap();
    let faults: Vec<_> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(faults.len(), bodies.len(), "every body is answered");
    faults
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
