//! What models write when they are told of tools in text: which calls are read, and which are not.
//!
//! Every case of `prompt_outputs.json`, `prompt_more_outputs.json` and `prompt_variations.json` is read whole, and in pieces
//! of several sizes. The environment variable `AGENTOUTO_PROMPT_OUTPUTS` names another file of their form to be read
//! instead of the first:
//! `tools` are offered, `text` is the whole answer, and `expected` the calls that must be run, in order, each as its name
//! and arguments; `[]` if the answer is text alone, and `"told"` if no call is run and the model is told what is wrong.
#![cfg(feature = "prompt_tools")]

use std::path::{Path, PathBuf};

use agentouto::providers::prompt_tools::{Parser, parse};
use agentouto::{ToolCall, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Outputs {
    #[serde(rename = "about")]
    _about: String,
    tools: Vec<ToolSpec>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    id: String,
    family: String,
    text: String,
    expected: Value,
}

/// Cases whose model is told, by the file, and whose call is run instead, with the reason.
const READ: [(&str, &str); 5] = [
    ("taught-3-yaml", "`name:` and `arguments:` say what the two elements say"),
    ("taught-4-pycall", "the tool and every argument are named"),
    ("taught-7-upper", "tags mean the same in upper case"),
    ("taught-8-escaped", "a whole call with entities for its brackets has one meaning"),
    ("taught-9-mdescape", "a whole call with backslashes before its brackets has one meaning"),
];

#[test]
fn prompt_outputs() {
    let own = || data("prompt_outputs.json");
    let file = std::env::var_os("AGENTOUTO_PROMPT_OUTPUTS").map_or_else(own, PathBuf::from);
    all_pass("prompt outputs", &file);
}

#[test]
fn variations() {
    all_pass("variations", &data("prompt_variations.json"));
}

#[test]
fn more_outputs() {
    all_pass("more outputs", &data("prompt_more_outputs.json"));
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn all_pass(what: &str, file: &Path) {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let outputs: Outputs = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut failed = Vec::new();
    for case in &outputs.cases {
        if let Err(reason) = case.judge(&outputs.tools) {
            println!("{} ({}): {reason}\n  {:?}", case.id, case.family, case.text);
            failed.push(&*case.id);
        }
    }
    println!("{what}: {} passed, {} failed", outputs.cases.len() - failed.len(), failed.len());
    assert!(failed.is_empty() && !outputs.cases.is_empty(), "failed: {failed:?}");
}

impl Case {
    fn judge(&self, tools: &[ToolSpec]) -> Result<(), String> {
        let whole = parse(&self.text, tools);
        let read = read(&whole.calls);
        let is_told = !whole.calls.is_empty() && whole.calls.iter().all(|call| call.malformed.is_some());
        let is_right = match &self.expected {
            Value::String(word) if word == "told" => match READ.iter().any(|(id, _)| *id == self.id) {
                true => !is_told && !whole.calls.is_empty(),
                false => is_told,
            },
            calls => *calls == read,
        };
        if !is_right {
            return Err(format!("expected {}, got {read}", self.expected));
        }
        for size in [1, 2, 3, 5, 7, 16, 64] {
            let (mut parser, mut shown) = (Parser::new(tools), String::new());
            let chars: Vec<char> = self.text.chars().collect();
            chars.chunks(size).for_each(|piece| parser.push(&piece.iter().collect::<String>(), &mut shown));
            let calls = parser.end(&mut shown);
            // Reasoning without a tag at its beginning was shown before its end was seen.
            let shown_before = shown.strip_suffix(&*whole.text);
            if calls != whole.calls || !shown_before.is_some_and(|thought| whole.reasoning.starts_with(thought)) {
                return Err(format!(
                    "pieces of {size} give {} and {shown:?}; the whole gives {read} and {:?}",
                    self::read(&calls),
                    whole.text
                ));
            }
        }
        Ok(())
    }
}

/// Calls as name and arguments; one that cannot be carried out as what the model is told.
fn read(calls: &[ToolCall]) -> Value {
    let read = |call: &ToolCall| match &call.malformed {
        Some(reason) => json!({"told": &**reason}),
        None => json!([&*call.name, serde_json::from_str::<Value>(&call.arguments).unwrap()]),
    };
    calls.iter().map(read).collect()
}
