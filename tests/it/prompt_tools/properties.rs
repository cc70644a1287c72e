//! What holds for every text: what is written is read, nothing panics, and how it arrives makes no difference.

use agentouto::providers::prompt_tools::{Dialect, Parser, parse};
use agentouto::{ToolCall, ToolSpec};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const NAMES: [&str; 6] = ["cpu", "write_file", "search.web", "a<b>&\"c'", "날씨", "finish"];

fn tools() -> Vec<ToolSpec> {
    let spec =
        |name: &str| ToolSpec { name: name.into(), description: "".into(), parameters: json!({"type": "object"}) };
    NAMES.map(spec).to_vec()
}

/// Pieces of text that mean something to the parser, or nearly.
const WORDS: [&str; 127] = [
    "<tool_call>",
    "</tool_call>",
    "<tool_call",
    "<name>",
    "</name>",
    "<arguments>",
    "</arguments>",
    "cpu",
    "write_file",
    "{\"a\": 1}",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    "{\"name\": \"cpu\", \"arguments\": {\"x\": 1}}",
    "<function=",
    "<function=cpu>",
    "</function>",
    "<parameter=a>",
    "</parameter>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "```",
    "```json\n",
    "\n```\n",
    "~~~",
    "`",
    "\n",
    " ",
    "<think>",
    "</think>",
    "<tool_result name='a'>",
    "</tool_result>",
    "<tool_calls>",
    "<![CDATA[",
    "]]>",
    "&lt;",
    "안녕",
    "🦀",
    "<",
    "plain text",
    "\"",
    "'",
    "(",
    ")",
    "=1",
    ";",
    ",",
    "[cpu(a=1)]",
    "finish(message='x')",
    "functions.cpu:0",
    "functools",
    "function",
    "Action: ",
    "\nAction Input: ",
    "Observation:",
    "```tool_code\n",
    "<|tool_call|>",
    "<|tool_call>call:",
    "<tool_call|>",
    "<|tool_call_begin|>",
    "<|tool_call_end|>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜DSML｜invoke name=\"cpu\">",
    "<invoke name=\"cpu\">",
    "<parameter name=\"a\">",
    "</invoke>",
    "<function_calls>",
    "</function_calls>",
    "<escape>",
    "<|channel|>analysis",
    "<|channel|>commentary to=functions.cpu",
    "<|message|>",
    "<|end|>",
    "[THINK]",
    "[/THINK]",
    "◁think▷",
    "◁/think▷",
    "&lt;tool_call&gt;",
    "&lt;/tool_call&gt;",
    "\\<tool_call\\>",
    "</s>",
    "<!--",
    "<example>",
    "</example>",
    "<tool_result",
    "<pre>",
    "For example:\n",
    "Let me search:\n",
    "[Thinking]",
    "[/Thinking]",
    "(https",
    "<analysis>",
    "</analysis>",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "\"\"\"",
    "// ",
    "【思考】",
    "【/思考】",
    "function<｜tool▁sep｜>",
    "cpu.call(",
    "Let`s",
    "-->",
    "<parameter name=\"b\">",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</parameter=a>",
    "</name>\n",
    "arguments: ",
    "&lt;TOOL_CALL&gt;",
    "    ",
    "<unused94>",
    "<|tool_response>",
    "<tool_response|>",
    "    <tool_call>",
    "<details type=\"reasoning\">",
    "</details>",
    "The page says: ",
    "<tool_call><name>cpu</name></tool_call>",
    "{\"name\": \"cpu\", \"arguments\": {}}",
    "|",
];

fn value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        any::<String>(),
        proptest::collection::vec(proptest::sample::select(WORDS.to_vec()), 0..6).prop_map(|words| words.concat())
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect()))
        ]
    })
}

fn calls() -> impl Strategy<Value = Vec<(String, Value)>> {
    let arguments = proptest::collection::btree_map("[a-z]{1,8}", value(), 0..4);
    let call = (proptest::sample::select(NAMES.to_vec()), arguments).prop_map(|(name, fields)| {
        let mut fields: Map<String, Value> = fields.into_iter().collect();
        if name == "finish" {
            fields.insert("message".to_owned(), "done".into());
        }
        (name.to_owned(), Value::Object(fields))
    });
    proptest::collection::vec(call, 1..4)
}

fn read(calls: &[ToolCall]) -> Vec<(String, Value)> {
    let read = |call: &ToolCall| {
        assert_eq!(call.malformed, None, "{call:?}");
        (call.name.to_string(), serde_json::from_str(&call.arguments).unwrap())
    };
    calls.iter().map(read).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_in_any_dialect_is_read_again(calls in calls()) {
        let written: Vec<ToolCall> =
            calls.iter().map(|(name, arguments)| ToolCall::new("", name.as_str(), arguments.to_string())).collect();
        for dialect in [Dialect::Xml, Dialect::Hermes, Dialect::Llama, Dialect::Mistral, Dialect::Fenced] {
            let text = dialect.render(&written);
            let parsed = parse(&text, &tools());
            prop_assert_eq!(read(&parsed.calls), calls.clone(), "{:?}: {}", dialect, text);
            prop_assert_eq!(parsed.text, "");
        }
    }

    #[test]
    fn how_a_text_arrives_makes_no_difference(
        words in proptest::collection::vec(proptest::sample::select(WORDS.to_vec()), 0..24),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..8),
    ) {
        let text = words.concat();
        let tools = tools();
        let whole = parse(&text, &tools);
        let mut places: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
        places.extend([0, text.len()]);
        places.sort_unstable();
        for pieces in [
            places.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect::<Vec<_>>(),
            text.split_inclusive(|_| true).collect(),
        ] {
            let (mut parser, mut shown) = (Parser::new(&tools), String::new());
            pieces.iter().for_each(|piece| parser.push(piece, &mut shown));
            let calls = parser.end(&mut shown);
            prop_assert_eq!(&calls, &whole.calls, "{:?}", pieces);
            // Reasoning without a tag at its beginning was shown before its end was seen.
            let before = shown.strip_suffix(&*whole.text);
            prop_assert!(before.is_some_and(|thought| whole.reasoning.starts_with(thought)), "{pieces:?}: {shown:?} {whole:?}");
        }
    }

    #[test]
    fn a_text_without_calls_is_shown_as_it_is(text in any::<String>()) {
        let parsed = parse(&text, &[]);
        if parsed.calls.is_empty() {
            prop_assert_eq!(parsed.text, text);
        }
    }
}
