//! Any text: the parser must not panic, and how the text arrives must make no difference.
//!
//! Run it with `cargo fuzz run prompt_tools -s none -- -dict=fuzz/prompt_tools.dict -max_len=4096 -max_total_time=600`;
//! with a stable compiler set `RUSTC_BOOTSTRAP=1`.
#![no_main]

use std::sync::LazyLock;

use agentouto::ToolSpec;
use agentouto::providers::prompt_tools::{Parser, parse};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

static TOOLS: LazyLock<Vec<ToolSpec>> = LazyLock::new(|| {
    let spec = |name: &str, parameters| ToolSpec { name: name.into(), description: "".into(), parameters };
    let core = json!({"type": "object", "properties": {"core": {"type": "integer"}}, "required": ["core"]});
    vec![spec("cpu", core), spec("write", json!({"type": "object"})), spec("finish", json!({"type": "object"}))]
});

fuzz_target!(|input: (u8, String)| {
    let (size, text) = input;
    let whole = parse(&text, &TOOLS);
    let (mut parser, mut shown) = (Parser::new(&TOOLS), String::new());
    let mut rest = &*text;
    while !rest.is_empty() {
        let cut = rest.floor_char_boundary(usize::from(size % 16) + 4).max(1);
        let (piece, later) = rest.split_at(cut);
        parser.push(piece, &mut shown);
        rest = later;
    }
    let calls = parser.end(&mut shown);
    assert_eq!(calls, whole.calls, "{text:?}");
    // Reasoning without a tag at its beginning was shown before its end was seen.
    let before = shown.strip_suffix(&*whole.text);
    assert!(before.is_some_and(|thought| whole.reasoning.starts_with(thought)), "{text:?}: {shown:?} {whole:?}");
    for call in calls.iter().filter(|call| call.malformed.is_none()) {
        assert!(TOOLS.iter().any(|tool| tool.name == call.name), "{text:?}");
        assert!(serde_json::from_str::<serde_json::Map<_, _>>(&call.arguments).is_ok() || &*call.name == "finish", "{text:?}");
    }
});
