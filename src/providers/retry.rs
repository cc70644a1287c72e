//! Asking again when that may help: [`Retry`], a provider around a provider.
//!
//! It follows what the vendors' own clients do, and what they leave out: all calls share one budget of retries and one
//! [limiter](super::limiter), so that many callers at once cannot make an overload worse.

use std::fmt;

use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};

use super::limiter::{Limiter, MAX_PAUSE, backoff};
use crate::provider::{DeltaSink, Provider, Request};
use crate::provider::{ProviderError, ProviderErrorKind};
use crate::reply::{Reply, StopReason, Usage};

/// A provider that asks another one again where that may help.
///
/// Every provider that speaks HTTP has this built in; it is here for providers of your own.
///
/// **What is tried again**, at most twice unless [`retries`](Retry::retries) says otherwise: failures of the connection,
/// timeouts, 408, 409, 429 and 5xx, whether as a status or within a stream, a stream that was cut, and (once) an empty
/// reply; unless the server says `x-should-retry: false`. Never once any of the reply has arrived, for that would
/// show it twice: the error then carries it as `partial`.
///
/// **When**: after 0.5 s, then twice as long each time, at most 8 s, and up to a quarter less by chance; or when the
/// server asks to (`retry-after-ms`, `retry-after`), if that is within 120 s. If it is later the call fails at once, and
/// [`retry_after`](ProviderError::retry_after) tells when.
///
/// **How many in all**: within some two minutes there is one retry to every five calls, or ten if that is more. So ten
/// thousand calls that fail at once make two thousand further requests, and the others fail with their first error.
///
/// **Too many requests** (429) cool down all of the provider: nobody begins a request before the server's time, and then
/// half as many as before may be under way at once; with every eight successes one more. Where the server names no time,
/// everybody waits as after any failure; not so if at least eight requests went well since the last 429: then one eighth
/// less may be under way. Those that wait for their turn do so as long as others go well, and fail after two minutes
/// in which nothing did.
///
/// What failed tries have cost is part of the usage in the end. Dropping the reply's future ends every wait.
pub struct Retry<P> {
    inner: P,
    retries: u32,
    budget: Mutex<Budget>,
    throttle: Limiter,
}

impl<P: Provider> Retry<P> {
    /// Asks `inner` again up to twice.
    pub fn around(inner: P) -> Self {
        Self {
            inner,
            retries: RETRIES,
            budget: Mutex::new(Budget { calls: 0.0, retries: 0.0, at: Instant::now() }),
            throttle: Limiter::new(usize::MAX),
        }
    }

    /// How many times a call may ask again. Default: 2.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// How many requests may be under way at once; the others wait for their turn, in order. Default: no limit. 0 counts
    /// as 1.
    #[must_use]
    pub fn max_in_flight(mut self, requests: usize) -> Self {
        self.throttle = Limiter::new(requests);
        self
    }

    pub(crate) fn inner(&self) -> &P {
        &self.inner
    }

    pub(crate) fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    async fn ask(&self, request: &Request, deltas: &mut DeltaSink<'_>) -> Result<Reply, ProviderError> {
        self.budget().begin();
        let mut spent = None;
        let mut tries = 0;
        loop {
            let result = self.try_once(request, deltas).await;
            let error = match result {
                Ok(reply) => return Ok(Reply { usage: sum(spent, reply.usage), ..reply }),
                Err(error) => error,
            };
            let Some(pause) = self.pause(&error, tries) else { return Err(final_error(error, spent)) };
            tracing::info!(
                agent = &*request.agent.name, call_id = %request.call_id, kind = ?error.kind, status = error.status, ?pause,
                "a model is asked again: {error}"
            );
            spent = sum(spent, error.partial.and_then(|partial| partial.usage));
            tries += 1;
            sleep(pause).await;
        }
    }

    async fn try_once(&self, request: &Request, deltas: &mut DeltaSink<'_>) -> Result<Reply, ProviderError> {
        let pass = self.throttle.acquire().await.map_err(|refused| {
            let message = format!("not asked: the server has refused all requests as too many for {refused:.0?}");
            ProviderError { should_retry: Some(false), ..ProviderError::new(ProviderErrorKind::RateLimited, message) }
        })?;
        let result = self.inner.reply(request, deltas).await;
        match &result {
            Ok(_) => pass.succeeded(),
            Err(error) if error.kind == ProviderErrorKind::RateLimited => {
                let asked = error.retry_after.filter(|asked| *asked <= MAX_PAUSE);
                pass.too_many(asked);
            }
            Err(_) => {}
        }
        result
    }

    /// How long to wait before the next try, if there is one.
    fn pause(&self, error: &ProviderError, tries: u32) -> Option<Duration> {
        let may_help = tries < self.retries && error.should_retry.unwrap_or_else(|| is_retryable(error, tries));
        let pause = error.retry_after.unwrap_or_else(|| backoff(tries + 1));
        let retries = may_help && !has_arrived(error) && pause <= MAX_PAUSE && self.budget().spend();
        retries.then_some(pause)
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock()
    }
}

/// Whether the same request may go well later.
fn is_retryable(error: &ProviderError, tries: u32) -> bool {
    use ProviderErrorKind::*;
    match error.kind {
        RateLimited | Overloaded | Unavailable | Connection | Timeout | Truncated => true,
        EmptyResponse => {
            let is_cut = error.partial.as_ref().is_some_and(|partial| partial.stop_reason == StopReason::Length);
            tries == 0 && !is_cut
        }
        _ => false,
    }
}

/// Whether any of the reply has arrived, and was shown.
fn has_arrived(error: &ProviderError) -> bool {
    error.partial.as_ref().is_some_and(|partial| {
        let is_said = partial.text.is_some() || partial.refusal.is_some() || !partial.tool_calls.is_empty();
        // An empty reply may be thought of again.
        is_said || partial.reasoning.is_some() && error.kind != ProviderErrorKind::EmptyResponse
    })
}

/// The error that a call ends with, given what earlier tries have cost.
fn final_error(mut error: ProviderError, spent: Option<Usage>) -> ProviderError {
    if let Some(spent) = spent {
        let partial = error.partial.get_or_insert_default();
        partial.usage = sum(Some(spent), partial.usage);
    }
    if let Some(asked) = error.retry_after.filter(|asked| *asked > MAX_PAUSE) {
        error.message = format!("{}; the server asks to wait for {asked:?}", error.message).into();
    }
    error
}

fn sum(spent: Option<Usage>, usage: Option<Usage>) -> Option<Usage> {
    match (spent, usage) {
        (Some(spent), Some(usage)) => Some(spent + usage),
        (spent, usage) => spent.or(usage),
    }
}

/// How many retries all calls together may make. What was long ago counts less and less.
struct Budget {
    calls: f64,
    retries: f64,
    at: Instant,
}

impl Budget {
    /// A call begins.
    fn begin(&mut self) {
        self.decay();
        self.calls += 1.0;
    }

    /// Pays for a retry, if there is enough.
    fn spend(&mut self) -> bool {
        self.decay();
        let is_enough = self.retries + 1.0 <= (self.calls * SHARE).max(RESERVE);
        if is_enough {
            self.retries += 1.0;
        }
        is_enough
    }

    fn decay(&mut self) {
        let passed = self.at.elapsed();
        let left = (-passed.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        self.calls *= left;
        self.retries *= left;
        self.at += passed;
    }
}

impl<P: Provider> Provider for Retry<P> {
    fn function_calling(&self, model: &str) -> Option<bool> {
        self.inner.function_calling(model)
    }

    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(self.ask(request, deltas))
    }
}

impl<P: fmt::Debug> fmt::Debug for Retry<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry").field("inner", &self.inner).field("retries", &self.retries).finish_non_exhaustive()
    }
}

const RETRIES: u32 = 2;
/// How many retries there are to each call.
const SHARE: f64 = 0.2;
/// How many retries there are however few calls are made.
const RESERVE: f64 = 10.0;
/// How long the budget remembers.
const MEMORY: Duration = MAX_PAUSE;
