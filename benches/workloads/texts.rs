//! Texts of models, friendly and hostile, and a parser that reads them.

use std::time::{Duration, Instant};

use agentouto::ToolSpec;
use agentouto::providers::prompt_tools::Parser;
use serde_json::json;

/// How a text begins, and what is repeated then. Each is hostile in a way of its own.
pub(crate) const HOSTILE: [(&str, &str, &str); 10] = [
    ("open angles", "", "<"),
    ("open tags", "", "<tool_call><name>"),
    ("open strings", "<tool_call><arguments>{\"", "<tool_call>"),
    ("deep JSON", "<tool_call><arguments>", "[{\"a\":"),
    ("calls that never close", "", "<tool_call><arguments>{</tool_call>"),
    ("heads of tags", "", "<tool_call "),
    ("backticks", "", "` `` ``` "),
    ("fences", "", "```xml\n<tool_call>\n"),
    ("markers", "", "[TOOL_CALLS][TOOL"),
    ("bad JSON", "", "{\"name\": \"cpu\", "),
];

/// Ordinary prose with some code in it.
pub(crate) const PROSE: &str = "The quick brown fox asks for 3 < 4 apples, and `ls -l` says why. 그리고 여우는 잠을 잔다.\n\n\
    ```rust\nfn main() { println!(\"{}\", 1 < 2); }\n```\n\nSo it goes [1], or so they say {perhaps}.\n";

/// One call.
pub(crate) const CALL: &str = "<tool_call>\n<name>write</name>\n<arguments>{\"path\": \"a/b.txt\", \"text\": \"some \\\"text\\\" <b>\"}</arguments>\n</tool_call>\n";

pub(crate) fn tools() -> Vec<ToolSpec> {
    let text = json!({"type": "string"});
    let parameters =
        json!({"type": "object", "properties": {"path": text, "text": text}, "required": ["path", "text"]});
    vec![ToolSpec { name: "write".into(), description: "Writes a file.".into(), parameters }]
}

/// A text of about so many bytes.
pub(crate) fn text(head: &str, repeated: &str, bytes: usize) -> String {
    head.to_owned() + &repeated.repeat(bytes / repeated.len())
}

/// Reads a text in pieces, keeps nothing that is shown, and says how many calls there were.
pub(crate) fn read(text: &str, piece: usize) -> usize {
    let (mut parser, mut shown) = (Parser::new(&tools()), String::new());
    let mut rest = text;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.floor_char_boundary(piece));
        parser.push(now, &mut shown);
        shown.clear();
        rest = later;
    }
    parser.end(&mut shown).len()
}

/// Reads so many megabytes of each hostile kind together, and says of each how long it took.
pub(crate) fn read_all(megabytes: usize) -> Vec<(&'static str, Duration)> {
    let bytes = megabytes * 1_000_000 / HOSTILE.len();
    let timed = |(kind, head, repeated)| {
        let text = text(head, repeated, bytes);
        let begun = Instant::now();
        read(&text, 1 << 20);
        (kind, begun.elapsed())
    };
    HOSTILE.into_iter().map(timed).collect()
}
