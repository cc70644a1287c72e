//! Compares what was expected of a scenario with what was seen of it.

mod context;
mod log;

use std::time::Duration;

use super::expect::Expect;
use super::ids::Ids;
use super::mismatches::{Mismatches, shown};
use super::stage::{Left, Observed, Outcome, Performance, numbered};

/// Everything in which the performance is not as expected.
pub(super) fn mismatches(expect: &Expect, performance: &Performance, ids: Ids) -> Vec<String> {
    let mut found = Mismatches::default();
    match (performance, &expect.build_error_contains) {
        (Performance::Refused(refusal), Some(texts)) => found.contains("build error", texts, &refusal.to_string()),
        (Performance::Refused(refusal), None) => found.add(format!("the builder refuses: {refusal}")),
        (Performance::Done(_), Some(_)) => found.add("the builder does not refuse".to_owned()),
        (Performance::Done(observed), None) => compare(&mut found, expect, observed, ids),
    }
    found.list()
}

fn compare(found: &mut Mismatches, expect: &Expect, observed: &Observed, ids: Ids) {
    for (nth, run) in observed.runs.iter().enumerate() {
        let mut of_run = Mismatches::default();
        outcome(&mut of_run, expect, nth, &run.outcome, observed.record.budget());
        log::compare(&mut of_run, expect, &run.log);
        let prefix = if observed.runs.len() == 1 { String::new() } else { format!("run {nth}: ") };
        of_run.list().into_iter().for_each(|mismatch| found.add(prefix.clone() + &mismatch));
    }
    observed.record.complaints().into_iter().for_each(|complaint| found.add(complaint));
    context::compare(found, expect, &observed.record, ids);
    counts(found, expect, observed);
    time(found, expect, observed.elapsed);
    left(found, expect, &observed.left);
}

fn outcome(found: &mut Mismatches, expect: &Expect, nth: usize, outcome: &Outcome, budget: usize) {
    let each = expect.output_each.as_ref().map(|each| numbered(each, nth));
    let outputs: Vec<&String> = expect.output.iter().chain(&each).collect();
    match outcome {
        Outcome::Output(text) => {
            for output in &outputs {
                found.equal("output", output.as_str(), text);
            }
            if expect.error_contains.is_some() {
                found.add(format!("run() should fail; its output is {}", shown(text)));
            }
            if expect.cancel_after_ms.is_some() && outputs.is_empty() {
                found.add(format!("the run had ended before it was cancelled, with {}", shown(text)));
            }
        }
        Outcome::Failed(error) | Outcome::Cancelled(error) => match &expect.error_contains {
            Some(texts) => found.contains("error", texts, error),
            None if matches!(outcome, Outcome::Cancelled(_)) && outputs.is_empty() => {}
            // Even where no output is stated: counts may hold for a run that fails at once.
            None => found.add(format!("run() fails: {error}; expected output {}", shown(&outputs))),
        },
        Outcome::OverBudget => found.add(format!("cancelled after more than {budget} model calls")),
        Outcome::Hung => found.add("the run hangs: nobody works, nobody waits for time".to_owned()),
    }
}

fn counts(found: &mut Mismatches, expect: &Expect, observed: &Observed) {
    for (agent, count) in &expect.llm_calls {
        found.equal(&format!("llm_calls of {agent}"), count, &observed.record.model_calls(agent));
    }
    for (tool, count) in &expect.tool_exec {
        found.equal(&format!("tool_exec of {tool}"), count, &observed.record.tool_runs(tool));
    }
    if let Some(least) = expect.max_concurrent_llm_at_least {
        let most = observed.record.models.most();
        found.holds(most >= least, || format!("model calls at once: expected at least {least}, got {most}"));
    }
}

fn time(found: &mut Mismatches, expect: &Expect, elapsed: Duration) {
    if let Some(most) = expect.max_ms {
        let holds = elapsed <= Duration::from_millis(most);
        found.holds(holds, || format!("max_ms: expected at most {most}, got {elapsed:?}"));
    }
    if let Some(least) = expect.min_ms {
        let holds = elapsed >= Duration::from_millis(least);
        found.holds(holds, || format!("min_ms: expected at least {least}, got {elapsed:?}"));
    }
}

fn left(found: &mut Mismatches, expect: &Expect, left: &Left) {
    if let Some(expected) = &expect.live_actors_after {
        found.equal("live_actors_after", expected, &left.actors);
    }
    if expect.cancel_after_ms.is_some() || expect.all_actors_stopped_within_ms.is_some() {
        found.equal("actors alive after the run", &0, &left.actors);
        found.equal("model calls under way after the run", &0, &left.models);
        found.equal("tools at work after the run", &0, &left.tools);
    }
}
