//! The accounts of budgets: a [`Ledger`] counts what a call and everything below it uses.

use std::any::Any;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::estimates::{Estimate, Estimates};
use super::{Budget, Price, Used};
use crate::error::{CallError, Resource};
use crate::message::Forward;
use crate::provider::Request;
use crate::reply::Usage;
use crate::run_context::{Admission, Meter, Notice, Notifier, RunContext};

/// Sets the budget of a call that is not sent. A second budget of the same call replaces the first.
pub(super) fn limit(forward: &mut Forward, budget: Budget) {
    let present = Ledger::of(&forward.run);
    let above = match present {
        Some(ledger) if ledger.depth == forward.depth => ledger.above.clone(),
        above => above,
    };
    let ledger = Ledger {
        budget,
        depth: forward.depth,
        above,
        state: Mutex::default(),
        settled: tokio::sync::Notify::new(),
        notify: OnceLock::new(),
        is_out_of_time: Arc::default(),
        refusals: AtomicU64::new(0),
    };
    forward.run_mut().admission = Some(Arc::new(ledger));
}

/// The amounts used of the budget of a run.
pub(super) fn used(run: &RunContext) -> Option<Used> {
    let ledger = Ledger::of(run)?;
    let State { amount, requests, calls, depth, began, last, .. } = &*ledger.state.lock();
    let time = began.zip(*last).map_or(Duration::ZERO, |(began, last)| last.duration_since(began));
    let cost = amount.cost as f64 / 1e6;
    Some(Used { tokens: amount.tokens, requests: *requests, calls: *calls, depth: *depth, time, cost })
}

/// The account of one budget. It is a part of the accounts above.
struct Ledger {
    budget: Budget,
    /// The depth of the limited call.
    depth: usize,
    above: Option<Arc<Ledger>>,
    state: Mutex<State>,
    /// Notified when a request has ended, for one of those that wait.
    settled: tokio::sync::Notify,
    notify: OnceLock<Notifier>,
    is_out_of_time: Arc<AtomicBool>,
    /// The number of calls and requests that it refused.
    refusals: AtomicU64,
}

#[derive(Default)]
struct State {
    /// The amount that was used.
    amount: Amount,
    /// The most that the requests under way may use.
    reserved: Amount,
    under_way: usize,
    requests: u64,
    calls: u64,
    depth: u64,
    began: Option<Instant>,
    last: Option<Instant>,
    estimates: Estimates,
    /// The limits that observers were notified of: `false` at four fifths, `true` at the end.
    notified: HashMap<Resource, bool>,
}

/// Tokens, and their cost in millionths.
#[derive(Clone, Copy, Default)]
struct Amount {
    tokens: u64,
    cost: u64,
}

impl Amount {
    fn of(usage: Usage, price: Option<Price>) -> Self {
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        // A price for a million tokens is a price in millionths for one.
        let cost = price.map_or(0.0, |Price { input, output, cached, cache_write }| {
            let from_cache = usage.cached_tokens.min(usage.input_tokens);
            let to_cache = usage.cache_write_tokens.min(usage.input_tokens - from_cache);
            (usage.input_tokens - from_cache - to_cache) as f64 * input
                + from_cache as f64 * cached.unwrap_or(input)
                + to_cache as f64 * cache_write.unwrap_or(input)
                + usage.output_tokens as f64 * output
        });
        Self { tokens, cost: cost.ceil() as u64 }
    }

    fn plus(self, other: Self) -> Self {
        Self { tokens: self.tokens.saturating_add(other.tokens), cost: self.cost.saturating_add(other.cost) }
    }

    fn minus(self, other: Self) -> Self {
        Self { tokens: self.tokens.saturating_sub(other.tokens), cost: self.cost.saturating_sub(other.cost) }
    }
}

impl Ledger {
    /// The account of the nearest budget above a call.
    fn of(run: &RunContext) -> Option<Arc<Self>> {
        let admission: Arc<dyn Any + Send + Sync> = run.admission.clone()? as _;
        admission.downcast().ok()
    }

    /// This account, and those of which it is a part.
    fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |ledger| ledger.above.as_deref())
    }

    fn limit(&self, what: Resource) -> u64 {
        self.budget.limits.get(&what).copied().unwrap_or(u64::MAX)
    }

    fn exceeded(&self, what: Resource) -> CallError {
        CallError::BudgetExceeded { what, limit: self.limit(what) }
    }

    /// Begins the time of the budget, at the end of which `scope` is cancelled.
    fn begin(&self, scope: &CancellationToken, notify: Notifier) {
        self.state.lock().began = Some(Instant::now());
        let _ = self.notify.set(Arc::clone(&notify));
        let Some(limit) = self.budget.limits.get(&Resource::Time).copied() else { return };
        let (scope, is_out_of_time) = (scope.clone(), Arc::clone(&self.is_out_of_time));
        tokio::spawn(async move {
            let time = Duration::from_millis(limit);
            let notice = |used| notify(Notice { what: Resource::Time, used, limit });
            let running = async {
                tokio::time::sleep(time / 5 * 4).await;
                notice(limit / 5 * 4);
                tokio::time::sleep(time / 5).await;
            };
            tokio::select! {
                biased;
                () = scope.cancelled() => {}
                () = running => {
                    is_out_of_time.store(true, Ordering::Release);
                    notice(limit);
                    scope.cancel();
                }
            }
        });
    }

    /// Counts a call below.
    fn count_call(&self, depth: u64) -> Result<(), CallError> {
        let mut state = self.state.lock();
        for (what, next) in [(Resource::Depth, depth), (Resource::Calls, state.calls + 1)] {
            if next > self.limit(what) {
                drop(state);
                return Err(self.refused(what));
            }
        }
        state.calls += 1;
        state.depth = state.depth.max(depth);
        self.changed(state);
        Ok(())
    }

    /// Takes back a call that an account above refused.
    fn uncount_call(&self) {
        self.state.lock().calls -= 1;
    }

    /// Waits until it is clear whether a request fits, and reserves it.
    async fn reserve(self: &Arc<Self>, request: &Request) -> Result<Reserved, CallError> {
        let answer = loop {
            let mut settled = pin!(self.settled.notified());
            settled.as_mut().enable();
            match self.try_reserve(request) {
                Some(answer) => break answer,
                None => settled.await,
            }
        };
        // The next one that waits may fit too, or must be refused too.
        self.settled.notify_one();
        answer
    }

    /// Reserves a request, or refuses it. `None`: it depends on what the requests under way will have used.
    fn try_reserve(self: &Arc<Self>, request: &Request) -> Option<Result<Reserved, CallError>> {
        let price = self.budget.prices.get(&request.agent.model).copied();
        if price.is_none() && self.budget.limits.contains_key(&Resource::Cost) {
            let model = &request.agent.model;
            self.refusals.fetch_add(1, Ordering::Relaxed);
            return Some(Err(CallError::failed(format!("the budget has no price for the model `{model}`"))));
        }
        let mut state = self.state.lock();
        let estimate = state.estimates.of(request);
        let (likely, most) = (Amount::of(estimate.likely, price), Amount::of(estimate.most, price));
        let after = state.amount.plus(likely);
        let next =
            [(Resource::Requests, state.requests + 1), (Resource::Tokens, after.tokens), (Resource::Cost, after.cost)];
        if let Some((what, _)) = next.into_iter().find(|(what, next)| *next > self.limit(*what)) {
            drop(state);
            return Some(Err(self.refused(what)));
        }
        let at_most = state.amount.plus(state.reserved).plus(most);
        let is_sure = at_most.tokens <= self.limit(Resource::Tokens) && at_most.cost <= self.limit(Resource::Cost);
        if state.under_way > 0 && !is_sure {
            return None;
        }
        state.requests += 1;
        state.under_way += 1;
        state.reserved = state.reserved.plus(most);
        self.changed(state);
        Some(Ok(Reserved { ledger: Arc::clone(self), estimate, price, most, is_settled: false }))
    }

    /// Notifies observers of a limit that refuses something, and returns the error.
    fn refused(&self, what: Resource) -> CallError {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        if what != Resource::Depth {
            self.notify(what, self.limit(what), true);
        }
        self.exceeded(what)
    }

    /// Notes the time of a change, and notifies observers of limits that are used to four fifths or wholly.
    fn changed(&self, mut state: parking_lot::MutexGuard<'_, State>) {
        state.last = Some(Instant::now());
        let State { amount, requests, calls, .. } = &*state;
        let used = [
            (Resource::Tokens, amount.tokens),
            (Resource::Cost, amount.cost),
            (Resource::Requests, *requests),
            (Resource::Calls, *calls),
        ];
        drop(state);
        for (what, used) in used {
            if let Some(limit) = self.budget.limits.get(&what)
                && used >= limit.saturating_sub(limit / 5)
            {
                self.notify(what, used, used >= *limit);
            }
        }
    }

    fn notify(&self, what: Resource, used: u64, is_end: bool) {
        let mut state = self.state.lock();
        let before = state.notified.get(&what).copied();
        let is_new = before.is_none_or(|was_end| is_end && !was_end);
        if is_new {
            state.notified.insert(what, is_end);
        }
        drop(state);
        if let (true, Some(notify)) = (is_new, self.notify.get()) {
            notify(Notice { what, used, limit: self.limit(what) });
        }
    }
}

impl Admission for Ledger {
    fn admit_call(
        &self,
        depth: usize,
        scope: &CancellationToken,
        notify: &dyn Fn() -> Notifier,
    ) -> Result<(), CallError> {
        if depth == self.depth {
            self.begin(scope, notify());
        }
        let below = |ledger: &&Self| ledger.depth < depth;
        for (nth, ledger) in self.chain().filter(below).enumerate() {
            if let Err(refused) = ledger.count_call((depth - ledger.depth) as u64) {
                self.chain().filter(below).take(nth).for_each(Self::uncount_call);
                return Err(refused);
            }
        }
        Ok(())
    }

    fn meter(self: Arc<Self>) -> Box<dyn Meter> {
        Box::new(LedgerMeter { ledger: self, state: Mutex::default() })
    }

    fn cancelled(&self) -> Option<CallError> {
        let out_of_time = self.chain().find(|ledger| ledger.is_out_of_time.load(Ordering::Acquire));
        out_of_time.map(|ledger| ledger.exceeded(Resource::Time))
    }

    fn refusals(&self) -> u64 {
        self.chain().map(|ledger| ledger.refusals.load(Ordering::Relaxed)).sum()
    }
}

impl Drop for Ledger {
    /// Drops the accounts above in a loop, because there may be one for each link of a long chain of calls.
    fn drop(&mut self) {
        let mut next = self.above.take();
        while let Some(mut ledger) = next.and_then(Arc::into_inner) {
            next = ledger.above.take();
        }
    }
}

/// A request that one account has reserved.
struct Reserved {
    ledger: Arc<Ledger>,
    estimate: Estimate,
    price: Option<Price>,
    most: Amount,
    is_settled: bool,
}

/// The meter of one request, in all accounts of which it is a part.
struct LedgerMeter {
    ledger: Arc<Ledger>,
    state: Mutex<MeterState>,
}

#[derive(Default)]
struct MeterState {
    reserved: Vec<Reserved>,
    refused: Option<CallError>,
}

impl Meter for LedgerMeter {
    fn reserve<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async move {
            let mut reserved = Vec::new();
            let mut next = Some(&self.ledger);
            while let Some(ledger) = next {
                match ledger.reserve(request).await {
                    Ok(amount) => reserved.push(amount),
                    Err(refused) => {
                        self.state.lock().refused = Some(refused.clone());
                        return Err(refused);
                    }
                }
                next = ledger.above.as_ref();
            }
            self.state.lock().reserved = reserved;
            Ok(())
        })
    }

    fn refused(&self) -> Option<CallError> {
        self.state.lock().refused.clone()
    }

    fn settle(&self, used: Option<Usage>) {
        let reserved = std::mem::take(&mut self.state.lock().reserved);
        reserved.into_iter().for_each(|mut reserved| reserved.settle(used));
    }
}

impl Reserved {
    fn settle(&mut self, used: Option<Usage>) {
        let mut state = self.ledger.state.lock();
        state.amount = state.amount.plus(Amount::of(used.unwrap_or(self.estimate.likely), self.price));
        if let Some(used) = used {
            state.estimates.learn(&self.estimate, used);
        }
        self.is_settled = true;
        self.ledger.changed(state);
    }
}

impl Drop for Reserved {
    /// Releases what was reserved. A request that was not sent is not counted.
    fn drop(&mut self) {
        let mut state = self.ledger.state.lock();
        state.reserved = state.reserved.minus(self.most);
        state.under_way -= 1;
        state.requests -= u64::from(!self.is_settled);
        drop(state);
        self.ledger.settled.notify_one();
    }
}
