//! That the runner runs other cases than the shipped ones, and that what should fail does.

#[cfg(feature = "prompt_tools")]
mod prompt_based;

use std::path::PathBuf;

use serde_json::{Value, json};

use super::natively;
use super::runner::{Suite, Verdicts};

fn run(scenarios: Value) -> Verdicts {
    Suite::parse("ours", &json!({ "scenarios": scenarios }).to_string()).unwrap().run(natively)
}

fn other_scenarios() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/other_scenarios")
}

/// Two agents and a tool: A uses the tool, calls B, and answers what B said. Passes.
fn team() -> Value {
    json!({
        "name": "team",
        "title": "A calls B",
        "agents": [{"name": "A", "instructions": "Lead."}, {"name": "B", "instructions": "Help."}],
        "entry": "A",
        "tools": [{
            "name": "search",
            "description": "Search.",
            "parameters": {"type": "object", "properties": {}},
            "behaviour": {"type": "return", "value": "found", "delay_ms": 20},
        }],
        "script": {
            "A": [
                {"content": "hm", "tool_calls": [
                    {"id": "t", "name": "search", "arguments": {}},
                    {"id": "c", "name": "call_agent", "arguments": {"agent_name": "B", "message": "help"}},
                ]},
                {"repeat": 1, "response": {"content": "{{last_tool_result}}"}},
            ],
            "B": {"by_input": {"*": [{"content": "helped"}]}},
        },
        "input": "go",
        "expect": {
            "output": "helped",
            "contexts": [{"agent": "A", "nth": 2, "messages": [{"role": "user"}, {"role": "assistant"}, {}, {}]}],
            "tool_results": [{"agent": "A", "nth": 2, "results": [{"name": "search"}, {}]}],
            "contexts_not_contain": [{"agent": "B", "text": "go"}],
        },
    })
}

fn assert_fails(scenario: Value, reason: &str) {
    let verdicts = run(json!([scenario]));
    let reasons = &verdicts.scenarios[0].reasons;
    assert!(reasons.iter().any(|given| given.contains(reason)), "expected {reason:?} among {reasons:#?}");
    assert!(verdicts.to_string().starts_with("FAILED team (A calls B)\n"), "{verdicts}");
    assert!(verdicts.to_string().ends_with("\nscenarios ours: 0 passed, 1 failed"), "{verdicts}");
}

#[test]
fn cases_that_are_not_the_shipped_ones_run() {
    let verdicts = Suite::read(&other_scenarios(), "agentouto").unwrap().run(natively);
    assert_eq!(verdicts.to_string(), "scenarios agentouto: 20 passed, 0 failed");
    assert_eq!(run(json!([team()])).to_string(), "scenarios ours: 1 passed, 0 failed");
}

#[test]
fn a_key_that_nobody_knows_fails_wherever_it_stands() {
    for place in [
        "",
        "/agents/0",
        "/tools/0",
        "/tools/0/behaviour",
        "/script/A/0",
        "/script/A/0/tool_calls/0",
        "/script/A/1",
        "/script/A/1/response",
        "/script/B",
        "/script/B/by_input/*/0",
        "/expect",
        "/expect/contexts/0",
        "/expect/contexts/0/messages/0",
        "/expect/tool_results/0",
        "/expect/tool_results/0/results/0",
        "/expect/contexts_not_contain/0",
    ] {
        let mut scenario = team();
        scenario.pointer_mut(place).unwrap()["brand_new"] = json!(1);
        assert_fails(scenario, "unknown field `brand_new`");
    }
}

#[test]
fn a_tool_that_behaves_in_an_unknown_way_fails() {
    let mut scenario = team();
    scenario["tools"][0]["behaviour"]["type"] = json!("dance");
    assert_fails(scenario, "unknown variant `dance`");
}

#[test]
fn a_false_statement_fails_whatever_it_is_about() {
    let context = |key: &str, value: Value| json!([{"agent": "A", "nth": 2, key: value}]);
    let message = |wrong: Value| context("messages", json!([{}, wrong, {}, {}]));
    let call = |wrong: Value| message(json!({"tool_calls": [{"id": "t"}, wrong]}));
    let result = |wrong: Value| context("results", json!([{}, wrong]));
    for (key, value) in [
        ("output", json!("Helped")),
        ("output_each", json!("helped {{i}}")),
        ("error_contains", json!([])),
        ("build_error_contains", json!([])),
        ("llm_calls", json!({"A": 1})),
        ("llm_calls", json!({"C": 1})),
        ("tool_exec", json!({"search": 2})),
        ("max_concurrent_llm_at_least", json!(2)),
        ("messages", json!([["forward", "user", "A", "go"]])),
        ("forwards", json!(1)),
        ("returns", json!(3)),
        ("call_ids_unique", json!(3)),
        ("call_ids_unique", json!(false)),
        ("parent_of_children", json!("B's call id")),
        ("contexts", json!([{"agent": "A", "nth": 3}])),
        ("contexts", context("system", json!("You are \"A\"."))),
        ("contexts", context("system_contains", json!(["You are \"B\"."]))),
        ("contexts", context("system_not_contains", json!(["You are \"A\"."]))),
        ("contexts", context("tools", json!(["search", "finish", "call_agent"]))),
        ("contexts", context("messages", json!([{}, {}, {}]))),
        ("contexts", message(json!({"role": "user"}))),
        ("contexts", message(json!({"content": null}))),
        ("contexts", message(json!({"tool_call_id": "t"}))),
        ("contexts", message(json!({"tool_calls": [{}]}))),
        ("contexts", call(json!({"id": "d"}))),
        ("contexts", call(json!({"name": "search"}))),
        ("contexts", call(json!({"arguments": {"agent_name": "B"}}))),
        ("contexts", call(json!({"arguments_raw": "{}"}))),
        ("tool_results", context("results", json!([{}]))),
        ("tool_results", context("results_in_order", json!(["helped", "found"]))),
        ("tool_results", context("count", json!(1))),
        ("tool_results", context("first", json!("helped"))),
        ("tool_results", context("last", json!("found"))),
        ("tool_results", result(json!({"tool_call_id": "t"}))),
        ("tool_results", result(json!({"name": "search"}))),
        ("tool_results", result(json!({"content": "help"}))),
        ("tool_results", result(json!({"content_contains": ["help", "me"]}))),
        ("contexts_not_contain", json!([{"agent": "A", "text": "found"}])),
        ("contexts_not_contain", json!([{"agent": "A", "text": "agent_name"}])),
        ("max_ms", json!(19)),
        ("min_ms", json!(21)),
        ("live_actors_after", json!(1)),
    ] {
        let mut scenario = team();
        scenario["expect"][key] = value.clone();
        let verdicts = run(json!([scenario]));
        assert_eq!(verdicts.scenarios[0].reasons.len(), 1, "{key}: {value}: {verdicts}");
    }
}

#[test]
fn a_failure_names_what_was_expected_and_what_came() {
    let mut scenario = team();
    scenario["expect"]["output"] = json!("well");
    assert_fails(scenario, r#"output: expected "well", got "helped""#);

    let mut scenario = team();
    scenario["expect"]["llm_calls"] = json!({"A": 5});
    assert_fails(scenario, "llm_calls of A: expected 5, got 2");

    let mut scenario = team();
    scenario["expect"]["messages"] = json!([["forward", "user", "A", "go"], ["forward", "A", "B", "now"]]);
    assert_fails(scenario, r#"message 1: expected ["forward", "A", "B", "now"], got ["forward", "A", "B", "help"]"#);
}

#[test]
fn a_script_that_ends_is_a_failure_even_where_no_output_is_stated() {
    let mut scenario = team();
    scenario["script"]["A"].as_array_mut().unwrap().pop();
    scenario["expect"] = json!({"llm_calls": {"B": 1}});
    assert_fails(scenario, "[fake] the script of agent `A` has ended after 1 responses");
}

#[test]
fn a_run_that_does_not_end_is_cancelled() {
    let mut scenario = team();
    let call = json!({"id": "c", "name": "call_agent", "arguments": {"agent_name": "A", "message": "again"}});
    scenario["script"]["A"] = json!({"by_input": {"*": [{"tool_calls": [call]}]}});
    scenario["max_llm_calls"] = json!(50);
    assert_fails(scenario, "cancelled after more than 50 model calls");
}

#[test]
fn a_run_that_ends_before_it_is_cancelled_fails_unless_its_output_is_stated() {
    let mut scenario = team();
    scenario["expect"] = json!({"cancel_after_ms": 500});
    assert_fails(scenario, "the run had ended before it was cancelled");

    let mut scenario = team();
    scenario["expect"] = json!({"cancel_after_ms": 500, "output": "helped"});
    assert!(run(json!([scenario])).all_passed());
}

#[test]
fn a_panic_fails_its_own_scenario_only() {
    let mut scenario = team();
    scenario["input"] = json!({"repeat_text": "ab", "times": usize::MAX});
    let verdicts = run(json!([team(), scenario, team()]));
    assert!(verdicts.scenarios[1].reasons[0].starts_with("panicked: "), "{verdicts}");
    assert!(verdicts.to_string().ends_with("\nscenarios ours: 2 passed, 1 failed"), "{verdicts}");
}

#[test]
fn no_scenarios_are_not_a_success() {
    assert!(!run(json!([])).all_passed());
    let missing = Suite::read(&PathBuf::from("/nowhere"), "agentouto").err().unwrap();
    assert!(missing.starts_with("scenarios /nowhere/agentouto.json: "), "{missing}");
    assert!(Suite::parse("ours", "{\"scenarios\": [").is_err());
    assert!(Suite::parse("ours", "{}").is_err());
}
