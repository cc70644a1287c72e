//! A whole run, in which every agent's model knows text alone.

mod check;
mod events;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use agentouto::providers::prompt_tools::PromptTools;
use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::tools::Cached;
use agentouto::{CallId, Event, Reply, Runtime};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use self::check::Expect;
use crate::scenarios::mismatches::Mismatches;
use crate::scenarios::record::{Record, Recorded, Wanted};
use crate::scenarios::scenario::ScriptedAgent;
use crate::scenarios::script::failure;
use crate::scenarios::stage::{BUDGET, FOREVER, Outcome, on_paused_time};
use crate::scenarios::text_only::TextOnly;
use crate::scenarios::tool::ScriptedTool;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    agents: Vec<ScriptedAgent>,
    /// Whom the user calls; the first agent, if it is not stated.
    entry: Option<String>,
    #[serde(default)]
    tools: Vec<ScriptedTool>,
    /// By agent, in the order of its model calls over the whole run.
    script: BTreeMap<String, Vec<Answer>>,
    input: String,
    #[serde(default)]
    options: Options,
    /// A run that asks models more often than this is cancelled, and the scenario fails.
    max_llm_calls: Option<usize>,
    expect: Expect,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The tools whose results may be kept.
    #[serde(default)]
    cacheable: HashSet<String>,
}

/// What a model says when it is asked once.
#[derive(Deserialize)]
#[serde(try_from = "Value")]
enum Answer {
    Text(String),
    Chunks(Vec<String>),
    Error(String),
}

impl TryFrom<Value> for Answer {
    type Error = serde_json::Error;

    fn try_from(answer: Value) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Chunks {
            chunks: Vec<String>,
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Failure {
            error: String,
        }
        match answer {
            Value::String(text) => Ok(Self::Text(text)),
            answer if answer.get("chunks").is_some() => {
                serde_json::from_value(answer).map(|Chunks { chunks }| Self::Chunks(chunks))
            }
            answer => serde_json::from_value(answer).map(|Failure { error }| Self::Error(error)),
        }
    }
}

/// Whether an observer sees a text grow that the scenario does not give in chunks. The format does not say.
#[derive(Clone, Copy)]
enum PlainText {
    /// As one chunk.
    Shown,
    Unseen,
}

impl Answer {
    fn reply(&self, plain: PlainText) -> ScriptedReply {
        match (self, plain) {
            (Self::Error(error), _) => failure(error.as_str()),
            (Self::Text(text), PlainText::Unseen) => Reply::text(text.as_str()).into(),
            (Self::Text(text), PlainText::Shown) => {
                ScriptedReply::from(Reply::text(text.as_str())).in_pieces([&**text])
            }
            (Self::Chunks(chunks), _) => {
                let steps = u32::try_from(chunks.len() + 1).unwrap_or(u32::MAX);
                let reply = ScriptedReply::from(Reply::text(chunks.concat()));
                reply.in_pieces(chunks.iter().map(String::as_str)).after(BETWEEN_CHUNKS * steps)
            }
        }
    }
}

const BETWEEN_CHUNKS: Duration = Duration::from_millis(1);

impl Run {
    pub(super) fn judge(self, found: &mut Mismatches) -> Result<(), String> {
        let tools: HashSet<&str> = self.tools.iter().map(ScriptedTool::name).collect();
        if let Some(unknown) = self.options.cacheable.iter().find(|name| !tools.contains(name.as_str())) {
            return Err(format!("`cacheable` names `{unknown}`, which is no tool"));
        }
        let mismatches = |plain| on_paused_time(self.perform(plain)).map(|seen| check::mismatches(&self.expect, &seen));
        let shown = mismatches(PlainText::Shown)?;
        // It is enough if all holds in one of both ways.
        let holds = shown.is_empty() || mismatches(PlainText::Unseen)?.is_empty();
        shown.into_iter().filter(|_| !holds).for_each(|mismatch| found.add(mismatch));
        Ok(())
    }

    async fn perform(&self, plain: PlainText) -> Result<Seen, String> {
        let entry = self.entry.as_ref().or(self.agents.first().map(|agent| &agent.name)).ok_or("there is no agent")?;
        let record = Arc::new(Record::new(Wanted::All, self.max_llm_calls.unwrap_or(BUDGET)));
        let mut call = self.runtime(plain, &record)?.user("user").forward(entry.as_str(), self.input.as_str());
        let (id, begun, mut events) = (call.call_id(), Instant::now(), Vec::new());
        let running = async {
            while let Some(event) = call.next_event().await {
                events.push(event);
            }
            match (&mut call).await {
                Ok(report) => Outcome::Output(report.output),
                Err(error) => Outcome::Failed(error.to_string()),
            }
        };
        let outcome = tokio::select! {
            biased;
            () = record.over_budget() => Outcome::OverBudget,
            outcome = timeout(FOREVER, running) => outcome.unwrap_or(Outcome::Hung),
        };
        Ok(Seen { call: id, outcome, events, elapsed: begun.elapsed(), record })
    }

    fn runtime(&self, plain: PlainText, record: &Arc<Record>) -> Result<Runtime, String> {
        let script = self.script.iter().fold(Scripted::new(), |script, (agent, answers)| {
            script.replies(agent.as_str(), answers.iter().map(|answer| answer.reply(plain)))
        });
        let model =
            Recorded { model: TextOnly { model: script, record: Arc::clone(record) }, record: Arc::clone(record) };
        let builder = Runtime::builder()
            .provider("fake", PromptTools::around(model))
            .agents(self.agents.iter().map(ScriptedAgent::agent));
        let with_tools = self.tools.iter().fold(builder, |builder, tool| {
            let recorded = tool.recorded_in(record);
            match self.options.cacheable.contains(tool.name()) {
                true => builder.tool(Cached::around(recorded)),
                false => builder.tool(recorded),
            }
        });
        with_tools.build().map_err(|refusal| format!("the builder refuses: {refusal}"))
    }
}

/// What was seen of a run.
struct Seen {
    /// The user's call.
    call: CallId,
    outcome: Outcome,
    events: Vec<Event>,
    elapsed: Duration,
    /// What reached the text-only models, and which tools ran.
    record: Arc<Record>,
}
