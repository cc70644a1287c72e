//! What reached the models and the tools of a scenario, and when there was too much of it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentouto::{BoxFuture, DeltaSink, Provider, ProviderError, Reply, Request};
use tokio_util::sync::CancellationToken;

use super::expect::Expect;

/// Filled while a scenario runs, read when it is over.
pub(super) struct Record {
    wanted: Wanted,
    budget: usize,
    over_budget: CancellationToken,
    seen: Mutex<Seen>,
    pub(super) models: Arc<Gauge>,
    pub(super) tools: Arc<Gauge>,
}

#[derive(Default)]
struct Seen {
    model_calls: HashMap<String, usize>,
    tool_runs: HashMap<String, usize>,
    /// By agent, and which of its model calls it is, from 1.
    requests: HashMap<(String, usize), Request>,
    /// Those that are kept, in the order in which they came.
    order: Vec<(String, usize)>,
    /// What was wrong with how models and tools were used.
    complaints: Vec<String>,
}

/// Which requests to models are kept.
pub(super) enum Wanted {
    All,
    /// Those of an agent's nth model call, from 1, and all of some agents.
    Some {
        calls: HashSet<(String, usize)>,
        agents: HashSet<String>,
    },
}

impl Wanted {
    /// Those that `expect` asks about.
    pub(super) fn of(expect: &Expect) -> Self {
        let contexts = expect.contexts.iter().map(|context| (context.agent.clone(), context.nth));
        let results = expect.tool_results.iter().map(|results| (results.agent.clone(), results.nth));
        let agents = expect.contexts_not_contain.iter().map(|absent| absent.agent.clone());
        Self::Some { calls: contexts.chain(results).collect(), agents: agents.collect() }
    }

    fn includes(&self, place: &(String, usize)) -> bool {
        match self {
            Self::All => true,
            Self::Some { calls, agents } => calls.contains(place) || agents.contains(&place.0),
        }
    }
}

impl Record {
    /// A record that keeps the wanted requests, and allows `budget` model calls in all.
    pub(super) fn new(wanted: Wanted, budget: usize) -> Self {
        Self {
            wanted,
            budget,
            over_budget: CancellationToken::new(),
            seen: Mutex::default(),
            models: Arc::default(),
            tools: Arc::default(),
        }
    }

    fn ask_model(&self, request: &Request) -> AtWork {
        let agent = request.agent.name.to_string();
        let mut seen = self.seen();
        let nth = seen.model_calls.entry(agent.clone()).or_default();
        *nth += 1;
        let place = (agent, *nth);
        if self.wanted.includes(&place) {
            seen.order.push(place.clone());
            seen.requests.insert(place, request.clone());
        }
        if seen.model_calls.values().sum::<usize>() > self.budget {
            self.over_budget.cancel();
        }
        self.models.enter()
    }

    pub(super) fn run_tool(&self, name: &str) -> AtWork {
        *self.seen().tool_runs.entry(name.to_owned()).or_default() += 1;
        self.tools.enter()
    }

    pub(super) fn model_calls(&self, agent: &str) -> usize {
        self.seen().model_calls.get(agent).copied().unwrap_or_default()
    }

    pub(super) fn tool_runs(&self, name: &str) -> usize {
        self.seen().tool_runs.get(name).copied().unwrap_or_default()
    }

    /// One of the wanted requests, if there was such a call.
    pub(super) fn request(&self, agent: &str, nth: usize) -> Option<Request> {
        self.seen().requests.get(&(agent.to_owned(), nth)).cloned()
    }

    /// All of the wanted requests, in the order in which they came.
    pub(super) fn requests(&self) -> Vec<Request> {
        let seen = self.seen();
        seen.order.iter().filter_map(|place| seen.requests.get(place).cloned()).collect()
    }

    /// Notes that models or tools were not used as they must be.
    pub(super) fn complain(&self, complaint: impl Into<String>) {
        self.seen().complaints.push(complaint.into());
    }

    pub(super) fn complaints(&self) -> Vec<String> {
        self.seen().complaints.clone()
    }

    pub(super) fn budget(&self) -> usize {
        self.budget
    }

    /// Waits until models have been called more often than the budget allows.
    pub(super) async fn over_budget(&self) {
        self.over_budget.cancelled().await;
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many are at work, and how many were at most.
#[derive(Default)]
pub(super) struct Gauge {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Gauge {
    pub(super) fn now(&self) -> usize {
        self.now.load(Ordering::SeqCst)
    }

    pub(super) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    fn enter(self: &Arc<Self>) -> AtWork {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        AtWork(Arc::clone(self))
    }
}

/// One that is at work until this is dropped.
pub(super) struct AtWork(Arc<Gauge>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A model whose calls are recorded.
pub(super) struct Recorded<P> {
    pub(super) model: P,
    pub(super) record: Arc<Record>,
}

impl<P: Provider> Provider for Recorded<P> {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        let at_work = self.record.ask_model(request);
        let replying = self.model.reply(request, deltas);
        Box::pin(async move {
            let _at_work = at_work;
            replying.await
        })
    }
}
