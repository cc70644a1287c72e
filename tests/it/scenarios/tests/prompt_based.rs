//! The same of scenarios in which models know text alone.

use std::sync::Arc;

use agentouto::providers::scripted::Scripted;
use agentouto::{Agent, ChatMessage, Context, DeltaSink, Provider, Reply, Request, ToolCall, ToolOutput, ToolSpec};
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::other_scenarios;
use crate::scenarios::prompt_based::judge;
use crate::scenarios::record::{Record, Wanted};
use crate::scenarios::runner::Suite;
use crate::scenarios::text_only::TextOnly;
use crate::scenarios::{on_text, prompt_based};

const CALL: &str = "<tool_call>\n<name>search</name>\n<arguments>{}</arguments>\n</tool_call>";

fn search() -> Value {
    json!({
        "name": "search",
        "description": "Search.",
        "parameters": {"type": "object", "properties": {}},
        "behaviour": {"type": "sequence", "values": [{"error": "lost", "kind": "other"}, "found"], "delay_ms": 20},
    })
}

/// A scenario of each kind. All pass.
fn scenarios() -> [Value; 4] {
    let text = CALL.replace("search", "mem");
    [
        json!({"name": "p", "kind": "parse", "text": text, "expect": {"calls": [["mem", {}]], "content": ""}}),
        json!({"name": "s", "kind": "prompt", "tools": [search()], "expect": {"note": "nothing"}}),
        json!({
            "name": "r",
            "kind": "run",
            "agents": [{"name": "A", "instructions": "Lead."}],
            "tools": [search()],
            "script": {"A": [CALL, {"chunks": ["so", "on"]}]},
            "input": "go",
            "options": {"cacheable": ["search"]},
            "expect": {"output": "soon", "result_contains": "lost"},
        }),
        json!({
            "name": "f",
            "kind": "factory",
            "cases": [[{"function_calling": true, "tools": 1}, "native"], [{"function_calling": null, "tools": 1}, "prompt"]],
            "expect": {"no_error": true},
        }),
    ]
}

fn reasons(scenario: Value) -> Vec<String> {
    let text = json!({"scenarios": [scenario]}).to_string();
    Suite::parse("ours", &text).unwrap().run(judge).scenarios.remove(0).reasons
}

#[test]
fn cases_that_are_not_the_shipped_ones_run() {
    let verdicts = Suite::read(&other_scenarios(), "prompt_based").unwrap().run(prompt_based::judge);
    assert_eq!(verdicts.to_string(), "scenarios prompt_based: 38 passed, 0 failed");
    for scenario in scenarios() {
        assert_eq!(reasons(scenario.clone()), [""; 0], "{scenario}");
    }
}

#[test]
fn a_key_that_nobody_knows_fails_wherever_it_stands() {
    let [parse, prompt, run, factory] = scenarios();
    for (scenario, places) in [
        (parse, &["", "/expect"][..]),
        (prompt, &["", "/expect", "/tools/0"]),
        (
            run,
            &[
                "",
                "/expect",
                "/agents/0",
                "/tools/0",
                "/tools/0/behaviour",
                "/tools/0/behaviour/values/0",
                "/script/A/1",
                "/options",
            ],
        ),
        (factory, &["", "/expect", "/cases/0/0"]),
    ] {
        for place in places {
            let mut scenario = scenario.clone();
            scenario.pointer_mut(place).unwrap()["brand_new"] = json!(1);
            let reasons = reasons(scenario);
            assert!(reasons.len() == 1 && reasons[0].contains("unknown field `brand_new`"), "{place}: {reasons:?}");
        }
    }
}

#[test]
fn what_cannot_be_meant_fails() {
    let [parse, _, run, factory] = scenarios();
    for (scenario, place, value, reason) in [
        (&parse, "/kind", json!("dance"), "unknown variant `dance`"),
        (&parse, "/expect/no_error", json!(false), "`no_error` is true where it is stated"),
        (&run, "/script/A/0", json!({"chunk": "so"}), "unknown field `chunk`"),
        (&run, "/script/A/0", json!(7), "invalid type"),
        (&run, "/options/cacheable/0", json!("dance"), "`cacheable` names `dance`, which is no tool"),
        (&run, "/agents", json!([]), "there is no agent"),
        (&run, "/tools/0/behaviour", Value::Null, "tool `search` runs, and has no `behaviour`"),
        (&run, "/tools/0/parameters", json!({"type": "array"}), "the builder refuses: tool `search`"),
        (&factory, "/cases", json!([]), "there are no cases"),
        (&factory, "/cases/0/1", json!("dance"), "unknown variant `dance`"),
    ] {
        let mut scenario = scenario.clone();
        let (parent, key) = place.rsplit_once('/').unwrap();
        match scenario.pointer_mut(parent).unwrap() {
            Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
            fields => fields[key] = value,
        }
        let reasons = reasons(scenario);
        assert!(reasons.iter().any(|given| given.contains(reason)), "expected {reason:?} among {reasons:#?}");
    }
}

#[test]
fn a_false_statement_fails_whatever_it_is_about() {
    let [parse, prompt, run, factory] = scenarios();
    for (scenario, key, value) in [
        (&parse, "calls", json!([])),
        (&parse, "calls", json!([["mem", {"a": 1}]])),
        (&parse, "calls", json!([["mem", {}], ["mem", {}]])),
        (&parse, "content", json!(" ")),
        (&parse, "error_contains", json!([])),
        (&prompt, "system", json!("You are an orchestrator.")),
        (&run, "output", json!("Soon")),
        (&run, "output_not_contains", json!(["oo"])),
        (&run, "error_contains", json!("soon")),
        (&run, "result_contains", json!(["lost", "found"])),
        (&run, "result_text", json!("lost")),
        (&run, "result_role_not", json!("user")),
        (&run, "tool_exec", json!({"search": 2})),
        (&run, "llm_calls", json!({"A": 1})),
        (&run, "llm_calls_at_most", json!({"A": 1})),
        (&run, "max_ms", json!(19)),
        (&run, "streamed", json!(["so", "on"])),
        (&run, "streamed", json!(["", "", "soon"])),
        (&run, "events_in_order", json!(["tool_start:search", "tool_end:search", "finish"])),
        (&run, "events_in_order", json!(["tool_start:search", "tool_end:search", "token", "token", "finish"])),
        (&run, "events_in_order", json!(["token", "tool_start:search", "tool_end:search", "token", "finish"])),
    ] {
        let mut scenario = scenario.clone();
        scenario["expect"][key] = value.clone();
        assert_eq!(reasons(scenario.clone()).len(), 1, "{key}: {value}: {:?}", reasons(scenario));
    }
    let mut other = factory;
    other["cases"][0][1] = json!("prompt");
    assert_eq!(reasons(other).len(), 1);
}

#[test]
fn a_true_statement_holds_whatever_it_is_about() {
    let [_, _, run, _] = scenarios();
    for (key, value) in [
        ("output_not_contains", json!("<tool_call>")),
        ("no_error", json!(true)),
        ("result_role_not", json!(["assistant", "tool"])),
        ("tool_exec", json!({"search": 1, "dance": 0})),
        ("llm_calls", json!({"A": 2, "B": 0})),
        ("llm_calls_at_most", json!({"A": 3})),
        ("max_ms", json!(25)),
        ("streamed", json!(["soon"])),
        ("streamed", json!(["", "soon "])),
        ("events_in_order", json!(["tool_start:search", "tool_end:search", "token", "finish"])),
    ] {
        let mut scenario = run.clone();
        scenario["expect"][key] = value.clone();
        assert_eq!(reasons(scenario), [""; 0], "{key}: {value}");
    }
}

#[test]
fn a_run_that_fails_is_a_failure_unless_it_is_stated() {
    let [_, _, mut run, _] = scenarios();
    run["script"]["A"] = json!([{"error": "HTTP 500"}]);
    run["expect"] = json!({});
    assert_eq!(reasons(run.clone()), ["run() fails: [fake] HTTP 500"]);
    run["expect"] = json!({"error_contains": "500"});
    assert_eq!(reasons(run.clone()), [""; 0]);
    run["expect"] = json!({"error_contains": "500", "no_error": true});
    assert_eq!(reasons(run.clone()), ["no_error: run() fails: [fake] HTTP 500"]);
    run["expect"] = json!({"error_contains": "500", "result_contains": "x"});
    assert_eq!(reasons(run), ["no tool result has reached a model"]);
}

#[test]
fn a_run_that_does_not_end_is_cancelled() {
    let [_, _, mut run, _] = scenarios();
    run["script"]["A"] = vec![json!(CALL); 100].into();
    run["max_llm_calls"] = json!(50);
    assert_eq!(reasons(run), ["cancelled after more than 50 model calls"]);
}

#[test]
fn a_text_only_model_that_is_shown_anything_else_complains() {
    let complaints = |history: Vec<ChatMessage>, tools: Vec<ToolSpec>| {
        let context = Context::new("", history.into(), "go".into());
        let request = Request::new(Agent::new("A", ""), context, tools);
        let record = Arc::new(Record::new(Wanted::All, 1));
        let model = TextOnly { model: Scripted::computed(|_| Reply::text("x")), record: Arc::clone(&record) };
        model.reply(&request, &mut DeltaSink::none()).now_or_never().unwrap().unwrap();
        record.complaints().len()
    };
    let (id, name) = ("1".into(), "search".into());
    let called = ChatMessage::Assistant {
        text: None,
        reasoning: None,
        attachments: Vec::new(),
        tool_calls: vec![ToolCall::new("1", "search", "{}")],
        opaque: None,
    };
    let result = ChatMessage::Tool { id, name, output: ToolOutput::default() };
    let tool = ToolSpec { name: "search".into(), description: "".into(), parameters: json!({"type": "object"}) };
    assert_eq!(complaints(vec![ChatMessage::user("a"), ChatMessage::assistant(CALL)], vec![]), 0);
    assert_eq!(complaints(vec![called], vec![]), 1);
    assert_eq!(complaints(vec![result], vec![]), 1);
    assert_eq!(complaints(vec![], vec![tool]), 1);
}

#[test]
fn scenarios_of_function_calls_hold_on_text_up_to_the_ids() {
    let verdicts = Suite::read(&other_scenarios(), "agentouto").unwrap().run(on_text);
    assert_eq!(verdicts.to_string(), "scenarios agentouto: 20 passed, 0 failed");
    let ids = |calls: [&str; 2], results: [&str; 2]| {
        let mut team = super::team();
        let calls = calls.map(|id| json!({"id": id}));
        let [one, other] = results.map(|id| json!({"tool_call_id": id}));
        let messages = json!([{"role": "user"}, {"tool_calls": calls}, one, other]);
        team["expect"]["contexts"] = json!([{"agent": "A", "nth": 2, "messages": messages}]);
        on_text(team).unwrap().len()
    };
    assert_eq!(ids(["t", "c"], ["t", "c"]), 0);
    assert_eq!(ids(["x", "y"], ["x", "y"]), 0, "no name is better than another");
    assert_eq!(ids(["t", "c"], ["c", "t"]), 2);
    assert_eq!(ids(["t", "t"], ["t", "t"]), 2);
    assert_eq!(ids(["t", "c"], ["a", "c"]), 1);
}
