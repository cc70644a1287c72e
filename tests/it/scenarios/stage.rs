//! Performs a scenario: builds its runtime, runs it as the user, and sees what is left.
//!
//! Time stands still while anybody works and jumps when all wait, so delays are exact and cost nothing.

use std::sync::Arc;
use std::time::Duration;

use agentouto::providers::scripted::Scripted;
use agentouto::{BuildError, Log, Report, Request, RunError, Runtime};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::record::{Record, Recorded, Wanted};
use super::scenario::{Scenario, ScriptedAgent};
use super::script::{Form, failure};
#[cfg(feature = "prompt_tools")]
use super::text_only::OnText;

/// The most model calls of one run where the scenario does not say.
pub(super) const BUDGET: usize = 100_000;
/// How long invocations may take to end once they are cancelled, where the scenario does not say.
const ENDING: Duration = Duration::from_secs(1);
/// Longer than any delay: what has not happened by then never will.
pub(super) const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What kind of model speaks for every agent.
#[derive(Clone, Copy)]
pub(super) enum Model {
    /// One that calls functions.
    Native,
    /// One that knows text alone, behind prompt-based tool calling.
    #[cfg(feature = "prompt_tools")]
    Text,
}

pub(super) enum Performance {
    Refused(BuildError),
    Done(Observed),
}

/// What was seen of a scenario.
pub(super) struct Observed {
    pub(super) record: Arc<Record>,
    pub(super) runs: Vec<Run>,
    /// From the first call to the last answer.
    pub(super) elapsed: Duration,
    pub(super) left: Left,
}

/// One run, as its user saw it.
pub(super) struct Run {
    pub(super) outcome: Outcome,
    pub(super) log: Log,
}

pub(super) enum Outcome {
    Output(Arc<str>),
    Failed(String),
    /// The user cancelled it; this is what was said then.
    Cancelled(String),
    OverBudget,
    Hung,
}

/// Who was still there when all should have ended.
pub(super) struct Left {
    /// Invocations as the runtime counts them, or tasks as tokio does if these are more.
    pub(super) actors: usize,
    pub(super) models: usize,
    pub(super) tools: usize,
}

pub(super) fn perform(scenario: &Scenario, model: Model) -> Performance {
    on_paused_time(async {
        let budget = scenario.max_llm_calls.unwrap_or(BUDGET).saturating_mul(scenario.expect.runs.get());
        let record = Arc::new(Record::new(Wanted::of(&scenario.expect), budget));
        match build(scenario, model, &record) {
            Ok(runtime) => Performance::Done(observe(&runtime, scenario, record).await),
            Err(refusal) => Performance::Refused(refusal),
        }
    })
}

pub(super) fn on_paused_time<F: Future>(performing: F) -> F::Output {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    tokio.expect("a tokio runtime").block_on(performing)
}

fn build(scenario: &Scenario, model: Model, record: &Arc<Record>) -> Result<Runtime, BuildError> {
    let scripts = Arc::clone(&scenario.script);
    let say = move |request: &Request, form| match scripts.get(&*request.agent.name) {
        Some(script) => script.reply(request, form),
        None => failure(format!("agent `{}` has no script", request.agent.name)),
    };
    let record_of_models = Arc::clone(record);
    let builder = match model {
        Model::Native => {
            let model = Scripted::computed(move |request| say(request, Form::Calls));
            Runtime::builder().provider("fake", Recorded { model, record: record_of_models })
        }
        #[cfg(feature = "prompt_tools")]
        Model::Text => {
            let model = OnText::new(move |request| say(request, Form::Text), Arc::clone(record));
            Runtime::builder().provider("fake", Recorded { model, record: record_of_models })
        }
    };
    let builder = builder.agents(scenario.agents.iter().map(ScriptedAgent::agent));
    scenario.tools.iter().fold(builder, |builder, tool| builder.tool(tool.recorded_in(record))).build()
}

async fn observe(runtime: &Runtime, scenario: &Scenario, record: Arc<Record>) -> Observed {
    let expect = &scenario.expect;
    let tasks_before = tasks();
    let start = Instant::now();
    let runs = join_all((0..expect.runs.get()).map(|nth| run(runtime, scenario, nth, &record))).await;
    let elapsed = start.elapsed();
    let cancelled = expect.cancel_after_ms.map(Duration::from_millis);
    let ending = expect.all_actors_stopped_within_ms.map(Duration::from_millis);
    if let Some(ending) = ending.or(cancelled.and(Some(ENDING))) {
        // Whether it came in time shows in what is left.
        let _ = timeout_at(start + cancelled.unwrap_or(elapsed) + ending, runtime.idle()).await;
    }
    let actors = runtime.invocations().max(tasks().saturating_sub(tasks_before));
    let left = Left { actors, models: record.models.now(), tools: record.tools.now() };
    if cancelled.is_some() {
        // Whatever has not really stopped goes on now, and is counted.
        sleep(FOREVER).await;
    }
    Observed { record, runs, elapsed, left }
}

/// How many tasks tokio knows of; every actor is at least one.
fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

async fn run(runtime: &Runtime, scenario: &Scenario, nth: usize, record: &Record) -> Run {
    let performing = async {
        match scenario.expect.cancel_after_ms.map(Duration::from_millis) {
            Some(patience) => cancelled(runtime, scenario, nth, patience).await,
            None => ended(runtime.run(scenario.entry.as_str(), numbered(&scenario.input, nth)).await),
        }
    };
    tokio::select! {
        biased;
        () = record.over_budget() => Run { outcome: Outcome::OverBudget, log: Log::default() },
        run = timeout(FOREVER, performing) => run.unwrap_or(Run { outcome: Outcome::Hung, log: Log::default() }),
    }
}

/// A run of a user who waits no longer than this.
async fn cancelled(runtime: &Runtime, scenario: &Scenario, nth: usize, patience: Duration) -> Run {
    let mut call = runtime.user("user").forward(scenario.entry.as_str(), numbered(&scenario.input, nth));
    if let Ok(result) = timeout(patience, &mut call).await {
        return ended(result);
    }
    call.cancel();
    match ended(call.await) {
        Run { outcome: Outcome::Failed(error), log } => Run { outcome: Outcome::Cancelled(error), log },
        run => run,
    }
}

fn ended(result: Result<Report, RunError>) -> Run {
    match result {
        Ok(Report { output, log, .. }) => Run { outcome: Outcome::Output(output), log },
        Err(RunError { error, log, .. }) => Run { outcome: Outcome::Failed(error.to_string()), log },
    }
}

/// A text of the scenario as it is in the `nth` of its runs.
pub(super) fn numbered(text: &str, nth: usize) -> String {
    text.replace("{{i}}", &nth.to_string())
}
