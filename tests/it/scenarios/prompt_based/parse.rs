//! What becomes of a model's answer, given whole and in pieces of one character.

use agentouto::providers::prompt_tools::{self, Parsed, Parser};
use agentouto::{ToolCall, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::NoError;
use crate::scenarios::expect::Texts;
use crate::scenarios::mismatches::Mismatches;
use crate::scenarios::text_only::without_reasoning;
use crate::scenarios::tool::ScriptedTool;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parse {
    text: String,
    /// Where others are known than usual.
    tools: Option<Vec<ScriptedTool>>,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    calls: Option<Vec<(String, Value)>>,
    /// The text that is shown, with the reasoning in it, which is shown apart.
    content: Option<String>,
    /// Parts of the corrections. Where this is not stated there must be none.
    error_contains: Option<Texts>,
    #[serde(rename = "no_error")]
    _no_error: Option<NoError>,
}

impl Parse {
    pub(super) fn judge(self, found: &mut Mismatches) {
        let tools: Vec<ToolSpec> = match &self.tools {
            Some(tools) => tools.iter().map(ScriptedTool::spec).collect(),
            None => usual_tools(),
        };
        let Parsed { text, reasoning, calls } = prompt_tools::parse(&self.text, &tools);
        let whole = Understood::of(text, &calls);
        self.expect.compare(found, &whole, &reasoning);
        let (mut parser, mut shown) = (Parser::new(&tools), String::new());
        self.text.chars().for_each(|piece| parser.push(piece.encode_utf8(&mut [0; 4]), &mut shown));
        let calls = parser.end(&mut shown);
        let in_pieces = Understood::of(shown, &calls);
        found.equal("in pieces of one character, as compared with the whole", &whole, &in_pieces);
    }
}

/// What a model's answer was understood to be.
#[derive(Debug, PartialEq)]
struct Understood {
    content: String,
    calls: Vec<(String, Value)>,
    corrections: Vec<String>,
}

impl Understood {
    fn of(content: String, calls: &[ToolCall]) -> Self {
        let (bad, good): (Vec<_>, Vec<_>) = calls.iter().partition(|call| call.malformed.is_some());
        // Nothing at all stands for no arguments.
        let arguments = |text: &str| match text.trim() {
            "" => json!({}),
            text => serde_json::from_str(text).unwrap_or_else(|_| json!({ "not JSON": text })),
        };
        Self {
            content,
            calls: good.iter().map(|call| (call.name.to_string(), arguments(&call.arguments))).collect(),
            corrections: bad.into_iter().map(correction).collect(),
        }
    }
}

/// As the agent loop tells it to the model.
fn correction(call: &ToolCall) -> String {
    format!("Error: [{}] {}", call.name, call.malformed.as_deref().unwrap_or_default())
}

impl Expect {
    fn compare(&self, found: &mut Mismatches, actual: &Understood, reasoning: &str) {
        found.equal_if_stated("calls", self.calls.as_ref(), Some(&actual.calls));
        let content = self.content.as_deref().map(without_reasoning);
        found.equal_if_stated("content", content.as_ref(), Some(&actual.content));
        if let Some(content) = &self.content {
            found.equal("reasoning", &content.contains(reasoning), &true);
        }
        match &self.error_contains {
            Some(_) if actual.corrections.is_empty() => found.add("there should be a correction".to_owned()),
            Some(texts) => found.contains("corrections", texts, &actual.corrections.join("\n")),
            None => found.equal("corrections", &Vec::new(), &actual.corrections),
        }
    }
}

/// The tools that are known unless a scenario says otherwise.
fn usual_tools() -> Vec<ToolSpec> {
    let tool = |name: &str, properties: Value, required: Value| {
        let parameters = json!({"type": "object", "properties": properties, "required": required});
        ToolSpec { name: name.into(), description: "".into(), parameters }
    };
    vec![
        tool("cpu", json!({"core": {"type": "integer"}}), json!(["core"])),
        tool("mem", json!({}), json!([])),
        tool("write", json!({"c": {"type": "string"}}), json!([])),
    ]
}
