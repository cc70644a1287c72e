//! Tests of what is read of a model's text, whole and in pieces of every size.

use serde_json::{Value, json};

use super::*;
use crate::tool_call::ToolSpec;

fn tools() -> Vec<ToolSpec> {
    let spec = |name: &str, parameters: Value| ToolSpec { name: name.into(), description: "".into(), parameters };
    let object =
        |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required});
    vec![
        spec("cpu", object(json!({"core": {"type": "integer"}}), json!(["core"]))),
        spec("mem", object(json!({}), json!([]))),
        spec("write", object(json!({"c": {"type": "string"}, "n": {"type": "integer"}}), json!(["c"]))),
    ]
}

/// The maximum length of calls in these tests: small, so that the limit is soon reached.
const MAX_LENGTH: usize = 1 << 20;

/// Reads a text: returns the calls as `name {arguments}` or `name! correction`, then the text that is shown.
fn read(pieces: impl IntoIterator<Item = impl AsRef<str>>) -> (Vec<String>, String) {
    let (mut parser, mut shown) = (Parser::new(&tools()), String::new());
    parser.longest = MAX_LENGTH;
    pieces.into_iter().for_each(|piece| parser.push(piece.as_ref(), &mut shown));
    let calls = parser.end(&mut shown).into_iter().map(|call| match call.malformed {
        None => format!("{} {}", call.name, serde_json::from_str::<Value>(&call.arguments).unwrap()),
        Some(reason) => format!("{}! {reason}", call.name),
    });
    (calls.collect(), shown)
}

/// Cuts a text into pieces of this many characters.
fn pieces(text: &str, size: usize) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(size).map(String::from_iter).collect()
}

#[track_caller]
fn check(text: &str, calls: &[&str], shown: &str) {
    let whole = read([text]);
    let matches = |actual: &String, expected: &&str| {
        actual == expected || expected.ends_with('…') && actual.starts_with(expected.trim_end_matches('…'))
    };
    let is_same =
        whole.0.len() == calls.len() && whole.0.iter().zip(calls).all(|(actual, expected)| matches(actual, expected));
    assert!(is_same, "{text}\n  expected {calls:?}\n  got {:?}", whole.0);
    assert_eq!(whole.1, shown, "{text}");
    assert_eq!(read(text.chars().map(String::from)), whole, "one by one: {text}");
    for (place, _) in text.char_indices() {
        let (one, two) = text.split_at(place);
        assert_eq!(read([one, two]), whole, "cut at {place}: {text}");
    }
}

#[test]
fn a_call_is_read_with_its_text_around() {
    check(
        "<tool_call>\n<name>cpu</name>\n<arguments>{\"core\": 1}</arguments>\n</tool_call>",
        &["cpu {\"core\":1}"],
        "",
    );
    check(
        "먼저 <tool_call>\n<name>cpu</name>\n<arguments>{\"core\": 1}</arguments>\n</tool_call> 다음 <tool_call><name>mem</name><arguments>{}</arguments></tool_call> 끝",
        &["cpu {\"core\":1}", "mem {}"],
        "먼저  다음  끝",
    );
    check("no call \n", &[], "no call \n");
    check(" \n ", &[], " \n ");
    check("Let me see.\n\n<tool_call><name>mem</name></tool_call>\n", &["mem {}"], "Let me see.");
}

#[test]
fn near_misses_are_read() {
    let core = &["cpu {\"core\":1}"][..];
    for text in [
        "<tool_call><name>cpu</name><arguments>{\"core\": 1}</arguments>",
        "<tool_call><name>cpu</name><arguments>{\"core\": 1}</tool_call>",
        "<tool_call><name>cpu</name><arguments>{\"core\": 1}",
        "<tool_call><name>cpu\n<arguments>{\"core\": 1}</arguments></tool_call>",
        "<tool_call><arguments>{\"core\":1}</arguments><name>cpu</name></tool_call>",
        "<tool_call><name> cpu </name><arguments>\n```json\n{\"core\": 1}\n```\n</arguments></tool_call>",
        "<tool_call><name>cpu</name><arguments><![CDATA[{\"core\": 1}]]></arguments></tool_call>",
        "<tool_call><name>cpu</name><arguments>{&quot;core&quot;: 1}</arguments></tool_call>",
        "<tool_call><name>cpu</name><arguments>\"{\\\"core\\\": 1}\"</arguments></tool_call>",
        "<tool_call id=\"7\"><name>cpu</name><arguments type='json'>{\"core\": 1}</arguments></tool_call>",
        "<tool_call name=\"cpu\">{\"core\": 1}</tool_call>",
        "<tool_call name=\"cpu\"><arguments>{\"core\": 1}</arguments></tool_call>",
        "<tool_call name='cpu' arguments='{\"core\": 1}'/>",
        "<tool_call><tool_name>cpu</tool_name><parameters>{\"core\": 1}</parameters></tool_call>",
        "<tool_call>cpu {\"core\": 1}</tool_call>",
        "<tool_call>cpu\n<arg_key>core</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
        "<tool_call>```json\n{\"name\": \"cpu\", \"arguments\": {\"core\": 1}}\n```</tool_call>",
        "<tool_calls>\n<tool_call><name>cpu</name><arguments>{\"core\": 1}</arguments></tool_call>\n</tool_calls>",
    ] {
        check(text, core, "");
    }
    check("<tool_call><name>mem</name></tool_call></tool_call>", &["mem {}"], "");
    check("<tool_call><name>mem</name><tool_call><name>mem</name></tool_call>", &["mem {}", "mem {}"], "");
    check("<tool_call><name>cpu</name><arguments>{\"core\":1}</arguments> and so on", core, " and so on");
}

#[test]
fn every_dialect_is_read() {
    let core = &["cpu {\"core\":1}"][..];
    let both = &["cpu {\"core\":1}", "mem {}"][..];
    check("<tool_call>\n{\"name\": \"cpu\", \"arguments\": {\"core\": 1}}\n</tool_call>", core, "");
    check("<tool_call>{\"name\": \"cpu\", \"parameters\": \"{\\\"core\\\": 1}\"}</tool_call>", core, "");
    check(
        "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"cpu\", \"arguments\": {\"core\": 1}}}</tool_call>",
        core,
        "",
    );
    check("<tool_call>[{\"name\": \"cpu\", \"arguments\": {\"core\": 1}}, {\"name\": \"mem\"}]</tool_call>", both, "");
    check("<function=cpu>{\"core\": 1}</function><function=mem>{}</function>", both, "");
    check("<function=cpu>{\"core\": 1}", core, "");
    check("<tool_call>\n<function=cpu>\n<parameter=core>\n1\n</parameter>\n</function>\n</tool_call>", core, "");
    check(
        "<function=write><parameter=c>if (a < b) { \"x\" }</parameter><parameter=n>2</parameter></function>",
        &["write {\"c\":\"if (a < b) { \\\"x\\\" }\",\"n\":2}"],
        "",
    );
    check(
        "[TOOL_CALLS] [{\"name\": \"cpu\", \"arguments\": {\"core\": 1}}, {\"name\": \"mem\", \"arguments\": {}}]",
        both,
        "",
    );
    check("[TOOL_CALLS]cpu{\"core\": 1}[TOOL_CALLS]mem{}", both, "");
    check("[TOOL_CALLS]cpu[ARGS]{\"core\": 1}", core, "");
    check("[TOOL_CALLS]cpu[CALL_ID]a1B2[ARGS]{\"core\": 1}", core, "");
    check("[TOOL_CALLS][{\"name\": \"write\", \"arguments\": {\"c\": \"[ARGS]\"}}]", &["write {\"c\":\"[ARGS]\"}"], "");
    check("```json\n{\"name\": \"cpu\", \"arguments\": {\"core\": 1}}\n```", core, "");
    check("I look.\n```\n{\"tool\": \"cpu\", \"args\": {\"core\": 1}}\n```\n", core, "I look.");
    check("{\"name\": \"cpu\", \"parameters\": {\"core\": 1}}", core, "");
    check("<|python_tag|>{\"name\": \"cpu\", \"parameters\": {\"core\": 1}}", core, "");
    check("<|python_tag|>cpu.call(core=1)", core, "");
    check("function<｜tool▁sep｜>cpu\n```json\n{\"core\": 1}\n```", core, "");
    check("Action: cpu(core=1)", core, "");
    check("<FUNCTION=cpu>\n<PARAMETER=core>\n1\n</PARAMETER>\n</FUNCTION>", core, "");
    check("<tool_call><name>cpu</name><arguments>{\"core\": 1}</arguments></tool\\_call>", core, "");
    check("{\"name\": \"cpu\", \"parameters\": {\"core\": 1}}\n{\"name\": \"mem\", \"parameters\": {}}", both, "");
}

#[test]
fn strings_keep_what_looks_like_tags_and_entities() {
    check(
        "<tool_call><name>write</name><arguments>{\"c\": \"a </arguments></tool_call> b\"}</arguments></tool_call>",
        &["write {\"c\":\"a </arguments></tool_call> b\"}"],
        "",
    );
    check(
        "<tool_call><name>write</name><arguments>{\"c\":\"a &lt; b && c\"}</arguments></tool_call>",
        &["write {\"c\":\"a &lt; b && c\"}"],
        "",
    );
}

#[test]
fn what_cannot_be_carried_out_says_why() {
    check(
        "<tool_call><name>cpu</name><arguments>{core: 1}</arguments></tool_call>",
        &["cpu! the arguments are not valid JSON: key must be a string…"],
        "",
    );
    check(
        "<tool_call><name>cpu</name><arguments>[1]</arguments></tool_call>",
        &[
            "cpu! the arguments must be a JSON object, not an array. Write it in this form:\n<tool_call>\n<name>cpu</name>\n<arguments>{\"core\":1}</arguments>\n</tool_call>",
        ],
        "",
    );
    check("<tool_call><name>cpu</name></tool_call>", &["cpu! \"core\" is a required property…"], "");
    check(
        "<tool_call><name>cpu</name><arguments>{\"core\": \"one\"}</arguments></tool_call>",
        &["cpu! the value is not of type \"integer\" at `/core`…"],
        "",
    );
    check(
        "<tool_call><name>zz</name><arguments>{}</arguments></tool_call>",
        &["zz! Tool not found; available tools: cpu, mem, write"],
        "",
    );
    check("<tool_call><arguments>{}</arguments></tool_call>", &["! the call names no tool…"], "");
    check("<tool_call><name>mem</name><core>1</core></tool_call>", &["mem! the call has no <arguments>…"], "");
    check("<tool_call>{\"name\": \"mem\", \"core\": 1}</tool_call>", &["mem! the call has no \"arguments\"…"], "");
    check(
        "<tool_call>{\"name\": \"mem\", \"action\": \"go\"}</tool_call>",
        &["mem! the call has no \"arguments\"…"],
        "",
    );
    check(
        "<tool_call>{\"name\": \"cpu\", \"arguments\": {\"core\": }}</tool_call>",
        &["cpu! the call is not valid JSON…"],
        "",
    );
    check(
        "<tool_call><name>cpu</name><arguments>{\"core\": 1} and so on</arguments></tool_call>",
        &["cpu! the arguments are not valid JSON: trailing characters…"],
        "",
    );
    check("<tool_call><name>cpu</name><arguments>{\"core\": 1", &["cpu! the arguments are not valid JSON: EOF…"], "");
    check(
        "<tool_call><name>write</name><arguments>{\"c\": \"never closed}</arguments></tool_call> more",
        &["write! the arguments are not valid JSON…"],
        "",
    );
    check("<tool_call>[]</tool_call>", &["! the call names no tool…"], "");
}

#[test]
fn what_is_only_mentioned_shown_or_thought_is_text() {
    for text in [
        "도구 호출은 `<tool_call>` 태그로 합니다.",
        "Write <tool_call> and then </tool_call>.",
        "Use <tool_call> 태그를 사용하세요.",
        "Like this: `<tool_call><name>mem</name></tool_call>`.",
        "Write:\n```xml\n<tool_call><name>mem</name></tool_call>\n```\nThat is all.",
        "```python\n# <tool_call><name>mem</name></tool_call>\n```",
        "~~~\nx\n<tool_call><name>mem</name></tool_call>\n~~~\n",
        "```json\n{\"name\": \"other\", \"arguments\": {}}\n```",
        "```json\n{\"name\": \"cpu\", \"age\": 7}\n```",
        "```json\n{\"rows\": [1, 2]}\n```",
        "{\"name\": \"Ann\", \"parameters\": 1}",
        "{\"name\": \"cpu\", \"parameters\": {\"core\": 1}} is what one writes",
        "<tool_result name='mem'>60%<tool_call><name>mem</name></tool_call></tool_result>",
        "a < b, <b>bold</b>, <tool, [TOOL] and [TOOL_CALLS, ``` in the line",
        "The function <function=cpu> is called",
        "The word [TOOL_CALLS] marks calls.",
    ] {
        check(text, &[], text);
    }
}

#[test]
fn reasoning_is_apart_from_the_answer_in_whatever_brackets() {
    let call = "<tool_call>\n<name>cpu</name>\n<arguments>{\"core\": 1}</arguments>\n</tool_call>";
    for (open, close) in [
        ("<think>", "</think>"),
        ("<THINK>", "</THINK>"),
        ("<thinking mode='deep'>", "</thinking>"),
        ("<reasoning>", "</reasoning>"),
        ("[THINK]", "[/THINK]"),
        ("<seed:think>", "</seed:think>"),
        ("◁think▷", "◁/think▷"),
        ("<|START_THINKING|>", "<|END_THINKING|>"),
        ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
        ("<|channel>thought\n", "<channel|>"),
        ("<thought>", "</thought>"),
        ("<thoughts>", "</thoughts>"),
        ("<scratchpad>", "</scratchpad>"),
        ("<analysis>", "</analysis>"),
        ("<inner_thought>", "</inner_thought>"),
        ("<internal_monologue>", "</internal_monologue>"),
        ("<thought_process>", "</thought_process>"),
        ("<chain_of_thought>", "</chain_of_thought>"),
        ("<unused94>", "<unused95>"),
    ] {
        let thought = format!("a < b, {call} or [x]?");
        check(&format!("{open}{thought}{close}\n\nThe answer"), &[], "The answer");
        check(&format!("{open}{thought}{close}{call}"), &["cpu {\"core\":1}"], "");
        check(&format!("Well. {open}{thought}{close} So."), &[], "Well.  So.");
        let parsed = parse(&format!("{open}{thought}{close}The answer"), &tools());
        assert_eq!((parsed.reasoning.trim(), &*parsed.text), (&*thought, "The answer"), "{open}");
        let parsed = parse(&format!("{open}{thought}"), &tools());
        assert_eq!((parsed.reasoning.trim(), &*parsed.text, parsed.calls.len()), (&*thought, "", 0), "{open} is open");
    }
    let parsed = parse(&format!("So {call} is an idea.</think>\nThe answer"), &tools());
    assert_eq!((&*parsed.reasoning, &*parsed.text, parsed.calls.len()), ("So  is an idea.", "The answer", 0));
    check("A `<think>` in code.", &[], "A `<think>` in code.");
    let stranger = "<other:think>so</other:think> it is <other:tool_call>";
    check(stranger, &[], stranger);
}

#[test]
fn an_attribute_with_a_colon_is_read_whole_and_in_pieces() {
    check(
        "<invoke name=\"cpu\">\n<parameter name=\"a:b\">1</parameter>\n</invoke>",
        &["cpu! \"core\" is a required property…"],
        "",
    );
}

#[test]
fn the_mark_of_a_call_that_cannot_be_read_is_told() {
    for text in [
        "<tool_call> 태그를 사용하세요.",
        "[TOOL_CALLS] I look at the cores",
        "<tool_call>the first core</tool_call>",
        "I look.\n<tool_code>\n<name>cpu</name>\n</tool_code>",
        "```tool_code\nx = cores()\n```",
        "Action: cpu[1]",
        "Action: cpu\nAction Input: one",
        "<name>cpu</name>\n<arguments>{\"core\": 1}</arguments>\n</tool_call>",
        "I look.\n</function>\n</tool_call>",
        "I look. <tool_call",
        "I look. <function=cp",
        "&lt;TOOL_CALL&gt;{\"name\": \"cpu\"}&lt;/TOOL_CALL&gt;",
    ] {
        check(
            text,
            &["! the text has the mark of a call, but no call that can be read; available tools: cpu, mem, write…"],
            text,
        );
    }
}

#[test]
fn bounds_are_the_same_however_a_text_arrives() {
    let (space, word) = (" ".repeat(2_000), "x".repeat(2_000));
    let value = |size: usize| {
        format!("<tool_call><name>write</name><arguments>{{\"c\": \"{}\"}}</arguments></tool_call>", "x".repeat(size))
    };
    let mut texts = vec![
        format!("<tool_call>{space}{{\"name\": \"mem\", \"arguments\": {{}}}}</tool_call> after"),
        format!("<tool_call {word}><name>mem</name></tool_call> after"),
        format!("<tool_calls>{space}<tool_call><name>mem</name></tool_call> after"),
        format!("<function=mem>{space}{{}}</function> after"),
        format!("[TOOL_CALLS]{word}{{}} after"),
        format!("[TOOL_CALLS]{space}[{{\"name\": \"mem\", \"arguments\": {{}}}}] after"),
        format!("{{{space}\"name\": \"mem\", \"arguments\": {{}}}}"),
        format!("```{word}\n<tool_call><name>mem</name></tool_call>\n```"),
        format!("```xml\n{space}<tool_call><name>mem</name></tool_call>\n```"),
        format!("a{}<tool_call><name>mem</name></tool_call>", " ".repeat(100_000)),
        format!("{}<tool_call><name>mem</name></tool_call>", "`".repeat(200_001)),
        format!("```xml\n<tool_call><name>mem</name></tool_call>\n{}```", "\n".repeat(MAX_LENGTH)),
        format!("{{\"name\": \"mem\", \"arguments\": {{\"c\": \"{}\"}}}}", "x".repeat(MAX_LENGTH)),
    ];
    let longest = MAX_LENGTH - (value(0).len() - "</tool_call>".len());
    texts.extend([longest - 1, longest, longest + 1, 2 * longest, 3 * longest].map(|size| value(size) + &value(5)));
    for text in texts {
        let whole = read([&text]);
        for size in [1, 7, 1_000, 1 << 20] {
            assert!(read(pieces(&text, size)) == whole, "pieces of {size}: {:.60}", text);
        }
    }
}

#[test]
fn what_follows_a_result_that_was_made_up_is_dropped() {
    let call = "<tool_call>\n<name>cpu</name>\n<arguments>{\"core\": 1}</arguments>\n</tool_call>";
    let core = &["cpu {\"core\":1}"][..];
    check(&format!("{call}<tool_result name='cpu'>99%</tool_result> CPU는 99%입니다"), core, "");
    check(&format!("```xml\n{call}\n```\n<tool_response>99%</tool_response>{call}"), core, "");
    check(&format!("```xml\n{call}\n```"), core, "");
}

/// Text that looks like a tag and is none, and space of all kinds, have the same meaning whether they arrived
/// completely or in pieces.
#[test]
fn odd_tags_and_odd_space_are_read_alike_whole_and_in_pieces() {
    for text in [
        "<|tool_call_start|>[cpsearch(query=\"rust\")]<|-tool_calry=\"rust\")]<|tool_ca\": \"finish\"}}ll_end|>I look.",
        "<tool_call>{\"name\": \"mem\", \"arguments\": {}}<|odd=1 more</tool_call> after",
        ".<tool_code\n>i",
        "Use <tool_call>x",
        "cpu(c=2)\u{b};",
        "\u{a0}cpu(c=2)",
        "\u{b}[cpu(",
        "Action:u\nAction input:{",
        "A list:\n\u{a0}cpu(c=2)",
        "Use [TOOL_CALLS]x",
        &format!("<function_call>{}(", "_".repeat(81)),
        &format!("\\<tool_{}call\\>{{", "\\".repeat(64)),
    ] {
        let whole = read([text]);
        for size in 1..40 {
            assert_eq!(read(pieces(text, size)), whole, "pieces of {size}: {text}");
        }
    }
}

/// The inside of a call that is written with entities or backslashes is read once; escaped tags in it are not read.
#[test]
fn escaped_tags_in_escaped_tags_are_read_to_one_depth() {
    let backslashes: String = (1..400).map(|deep| format!("{0}<tool_call{0}> ", "\\".repeat(deep))).collect();
    let entity = |deep: usize| format!("&{}lt;tool_call&{0}gt; ", "amp;".repeat(deep));
    let entities: String = (0..400).map(entity).collect();
    let reads = move || [backslashes, entities].iter().all(|text| read([text]).0.iter().all(|call| call.contains('!')));
    let small = std::thread::Builder::new().stack_size(512 << 10).spawn(reads).unwrap();
    assert!(small.join().unwrap());
}

#[test]
fn parameters_without_an_end_take_linear_time() {
    let text = format!("<function=write>\n<parameter=c>{}</parameter></function>", "<parameter=".repeat(400_000));
    let begin = std::time::Instant::now();
    assert_eq!(parse(&text, &tools()).calls.len(), 1);
    assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
}

#[test]
fn calls_that_may_be_none_are_held_back_up_to_the_limit() {
    let call = format!("{{\"name\": \"write\", \"arguments\": {{\"c\": \"{}\"}}}}\n", "x".repeat(MAX_LENGTH / 4));
    let (calls, shown) = read(pieces(&call.repeat(9), 1 << 16));
    assert!(calls.len() == 3 && calls.iter().all(|call| call.starts_with("write! not carried out")), "{}", calls.len());
    assert_eq!(shown.len(), 6 * call.len());
    assert_eq!(read([call.repeat(9)]), (calls, shown));

    let mem = "{\"name\": \"mem\", \"arguments\": {}}";
    let mut parser = Parser::new(&tools());
    parser.push(&format!("{mem}{}", "\n ".repeat(1 << 20)), &mut String::new());
    assert!(parser.held_back() < 1 << 18, "{}", parser.held_back());
    check(&format!("{mem}{}", "\n ".repeat(500)), &["mem {}"], "");
}

#[test]
fn of_malformed_calls_the_first_are_told_however_they_are_written() {
    let many = |one: &str| one.repeat(5_000);
    for text in [
        format!("<tool_call>[{{}}{}]</tool_call>", many(",{}")),
        many("<tool_call>{}</tool_call>"),
        many("{\"name\": \"cpu\", \"arguments\": {}}\n"),
        format!("```tool_call\n{}\n```", many("{\"name\": \"cpu\", \"arguments\": {}}\n")),
        format!("{}and so on", many("{\"name\": \"mem\", \"arguments\": {}}\n")),
    ] {
        let whole = read([&text]);
        assert_eq!(whole.0.len(), 32, "{text:.60}");
        assert!(read(pieces(&text, 1_000)) == whole, "{text:.60}");
    }
}

#[test]
fn what_is_said_of_a_call_is_said_of_those_that_follow_it_at_once() {
    let mem = "<tool_call><name>mem</name></tool_call>";
    for text in [
        format!("For example:\n\n{mem}\n\n- {mem}\nor so"),
        format!("The page says: \"First, {mem} and then {mem}\"."),
        format!("An example of two calls:\n\n<tool_calls>\n{mem}\n{mem}\n</tool_calls>\nThat is all."),
        format!("For example:\n```xml\n{mem}\n```\n\n```xml\n{mem}\n```"),
        "For example, <|channel|>commentary to=functions.mem <|message|>{} is one.".to_owned(),
    ] {
        check(&text, &[], &text);
    }
    check(
        &format!("For example:\n\n{mem}\n\nNow I look. {mem}"),
        &["mem {}"],
        &format!("For example:\n\n{mem}\n\nNow I look."),
    );
}

#[test]
fn a_record_of_a_call_is_none() {
    for record in [
        "{\"action\": \"mem\", \"input\": {}, \"result\": \"60%\", \"status\": \"done\"}",
        "{\"type\": \"tool_result\", \"name\": \"mem\", \"input\": {}}",
    ] {
        check(record, &[], record);
    }
    check(
        "{\"type\": \"function\", \"thought\": \"so\", \"id\": 1, \"name\": \"mem\", \"arguments\": {}}",
        &["mem {}"],
        "",
    );
}

const TOLD: &str =
    "mem! not carried out, because the text before it says that it is an example or somebody else's words…";

#[test]
fn a_call_that_the_words_before_it_deny_is_told_if_no_text_follows() {
    let mem = "<tool_call><name>mem</name></tool_call>";
    check(&format!("For example:\n\n{mem}\n"), &[TOLD], "For example:");
    check(&format!("For example:\n\n{mem}\n{mem}\n"), &[TOLD, TOLD], "For example:");
    for text in [
        format!("For example:\n\n{mem}\n\nThat is all."),
        "For example: <tool_call name=\"mem\"/> it is.".to_owned(),
        "For example:\n\n<tool_call><name>cpu</name></tool_call>".to_owned(),
        format!("The page says: \"{mem}"),
        format!("You write:\n```xml\n{mem}\n```"),
    ] {
        check(&text, &[], &text);
    }
}

#[test]
fn what_stands_in_an_element_a_comment_or_a_table_is_text() {
    let mem = "<tool_call><name>mem</name></tool_call>";
    for text in [
        format!("<example>\n{mem}\n</example>"),
        format!("<pre><code>a</code>\n{mem}\n</pre>"),
        format!("<blockquote>\n<blockquote>a</blockquote>\n{mem}"),
        format!("<tool_result name='a'>x <tool_result name='b'>y</tool_result>\n{mem}\n</tool_result>\nSo."),
        format!("[TOOL_RESULTS]\n{mem}\n[/TOOL_RESULTS]\nSo."),
        format!("// {mem}"),
        format!("x\n  /* {mem} */"),
        format!("| a | {mem} |"),
        format!("\"\"\"\n{mem}\n\"\"\""),
        "<details>\n{\"name\": \"mem\", \"arguments\": {}}\n```json\n{\"name\": \"mem\", \"arguments\": {}}\n```"
            .to_owned(),
    ] {
        check(&text, &[], &text);
    }
    check(&format!("<pre>a</pre>\n\n{mem}"), &["mem {}"], "<pre>a</pre>");
    check(&format!("Write <code> here.\n{mem}"), &["mem {}"], "Write <code> here.");
    check(&format!("A [TOOL_RESULTS] it is.\n{mem}"), &["mem {}"], "A [TOOL_RESULTS] it is.");
    let mention = format!("The <tool_result> says nothing, so I look.\n{mem}");
    check(&mention, &["! the text has the mark of a call, but no call that can be read…"], &mention);
}

#[test]
fn what_stands_beside_the_elements_of_a_call_is_its_arguments_or_told() {
    let core = &["cpu {\"core\":1}"][..];
    for text in [
        "<tool_call>\n<name>cpu</name>\n{\"core\": 1}\n</tool_call>",
        "<tool_call>\n<name>cpu</name>\n```json\n{\"core\": 1}\n```\n</tool_call>",
        "<tool_call>\n<name>cpu</name>\narguments: {\"core\": 1}\n</tool_call>",
        "<tool_call><name>cpu</name><arguments></arguments>{\"core\": 1}</tool_call>",
        "<tool_call><name>cpu</name><arguments {\"core\": 1}</arguments></tool_call>",
        "<tool_call><name>cpu</name><arguments>{\"core\": 1}</arguments><id>7</id></tool_call>",
    ] {
        check(text, core, "");
    }
    for text in [
        "<tool_call name=\"mem\">\ncore=1\n</tool_call>",
        "<tool_call><name>mem</name>\ncore: 1\n</tool_call>",
        "<tool_call><name>mem</name><arguments>{}</arguments><core>1</core></tool_call>",
        "<tool_call>{\"name\": \"mem\", \"arguments\": {}, \"core\": 1}</tool_call>",
    ] {
        check(text, &["mem! the call has …"], "");
    }
    let two = "<name>cpu</name><arguments>{\"core\": 1}</arguments>";
    check(&format!("<tool_call>{two}{two}</tool_call>"), &[core[0], core[0]], "");
}

#[test]
fn a_value_without_an_end_ends_where_a_line_begins_with_the_next() {
    let both = &["write {\"c\":\"a\",\"n\":2}"][..];
    for text in [
        "<invoke name=\"write\">\n<parameter name=\"c\">a\n<parameter name=\"n\">2</parameter>\n</invoke>",
        "<invoke name=\"write\">\n<parameter name=\"c\">a</parameter>\n<parameter name=\"n\">2\n</invoke>",
        "<tool_call>write\n<arg_key>c</arg_key>\n<arg_value>a\n<arg_key>n</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
        "<function=write><parameter=c>a<parameter=n>2</parameter></function>",
        "<function=write>\n<parameter=c>\na\n</parameter=c>\n<parameter=n>\n2\n</parameter>\n</function>",
    ] {
        check(text, both, "");
    }
    check(
        "<invoke name=\"write\">\n<parameter name=\"c\">a </invoke> b</parameter>\n</invoke> so",
        &["write {\"c\":\"a </invoke> b\"}"],
        " so",
    );
    check(
        "<function=write>\n<parameter=c>\nUse <parameter=n> so.\n</parameter>\n<parameter=n>\n2\n</parameter>\n</function>",
        &["write {\"c\":\"Use <parameter=n> so.\",\"n\":2}"],
        "",
    );
    check(
        "<function=write>\n<parameter=c>\na\n</parameter>\n<parameter=c>\nb\n</parameter>\n</function>",
        &["write! the arguments are not valid JSON…"],
        "",
    );
}

#[test]
fn reasoning_that_is_mentioned_is_text() {
    for text in [
        "See [Thinking](https://docs.rs) for details. The answer is 42.",
        "[Thinking](https://docs.rs) is documented.",
        "The parts are [Reasoning], and more.",
        "Use the <analysis> element for it.\nThe answer is 42.",
        "It writes its reasoning in \"<think>\" tags.\nThe answer is 42.",
        "It ends its reasoning with \"</think>\" and then says 42.",
        "It ends with </think> and then says 42.",
        "An HTML comment begins with <!-- and has no end.",
    ] {
        check(text, &[], text);
    }
    let mem = "<tool_call><name>mem</name></tool_call>";
    for text in [
        "Use the <analysis> element.\n\n",
        "It begins with <!-- and so I look.\n\n",
        "{\"id\": 5, \"note\": \"open}\n",
        "mem(it's open\n\n",
        "Let`s go: ",
        "I use `mem to look. ",
    ] {
        check(&format!("{text}{mem} and that`s it"), &["mem {}"], &format!("{text} and that`s it"));
    }
    check(
        "I use `write. <tool_call><name>write</name><arguments>{\"c\": \"a `b` c\"}</arguments></tool_call>",
        &["write {\"c\":\"a `b` c\"}"],
        "I use `write.",
    );
    check(&format!("<!-- {mem}"), &[], &format!("<!-- {mem}"));
    let many = "<analysis> ".repeat(20_000);
    let begin = std::time::Instant::now();
    assert_eq!(read([format!("Use {many}")]).1, format!("Use {}", many));
    assert!(begin.elapsed().as_secs() < 10, "{:?}", begin.elapsed());
}

#[test]
fn reasoning_in_an_element_a_fence_or_brackets_of_its_own_runs_nothing() {
    let mem = "<tool_call><name>mem</name></tool_call>";
    check(&format!("<details type=\"reasoning\">\n{mem}\n</details>\nNo."), &[], "No.");
    check(&format!("【思考】{mem}【/思考】No."), &[], "No.");
    let fence = format!("```thinking\n{mem}\n```");
    check(&fence, &[], &fence);
}

#[test]
fn a_value_of_any_name_has_the_type_that_the_schema_gives_all() {
    let parameters = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let maps = ToolSpec { name: "maps".into(), description: "".into(), parameters };
    let calls = parse("<function=maps>\n<parameter=x>\n123\n</parameter>\n</function>", &[maps]).calls;
    assert_eq!((&*calls[0].arguments, &calls[0].malformed), ("{\"x\":\"123\"}", &None));
}

#[test]
fn an_example_with_its_result_is_text() {
    let text =
        "For example:\n<tool_call><name>mem</name></tool_call>\n<tool_result name='mem'>60%</tool_result>\nSo it is.";
    check(text, &[], text);
}
