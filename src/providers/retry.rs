//! Retries of failed requests: [`Retry`], a provider around a provider.
//!
//! It does what the vendors' own clients do, and one thing more: all calls share one budget of retries and one
//! [limiter](super::limiter), so that many concurrent callers cannot make an overload worse.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep};

use super::attempts::{falls_back, has_arrived, next_attempt, settled, sum, with_spent};
use super::limiter::{Limiter, MAX_PAUSE, Refusal, backoff};
use super::wrapper::ProviderWrapper;
use crate::provider::{DeltaSink, Provider, ProviderError, ProviderErrorKind, Request};
use crate::reply::{Reply, StopReason, Usage};

/// A provider that retries the requests of another provider if a retry may help.
///
/// Every HTTP provider of this crate has it built in. Use it for providers of your own.
///
/// **What is retried**, at most twice unless [`retries`](Retry::retries) says otherwise: connection failures, timeouts,
/// 408, 409, 429 and 5xx (as a status or within a stream), a stream that broke off, and (once) an empty reply. Nothing
/// is retried if the server says `x-should-retry: false`, or if a part of the reply has arrived, because that part
/// would be shown twice: the error then carries it as `partial`. Before a [`Fallback`](super::Fallback) nothing is
/// retried that makes it ask the other provider at once.
///
/// **When**: after 0.5 s, then twice as long each time, up to 8 s, with a random reduction of up to a quarter; or at
/// the time that the server asks for (`retry-after-ms`, `retry-after`), if that is within 120 s. If it is later, the
/// call fails at once, and [`retry_after`](ProviderError::retry_after) contains that time.
///
/// **The budget**: within about two minutes, one retry for every five calls, or ten retries if that is more. So ten
/// thousand calls that fail together make two thousand further requests, and the other calls fail with their first
/// error.
///
/// **Too many requests** (429) slow down the whole provider. No request begins before the time that the server asks
/// for. After that, half as many concurrent requests as before are allowed, and one more after every eight successes.
/// If the server gives no time, all requests wait as after any other failure; but if at least eight requests succeeded
/// since the last 429, there is no wait, and the limit is lowered by only one eighth. Requests that wait for a permit
/// do so as long as other requests succeed. They fail after two minutes without any success.
///
/// The usage of failed attempts is added to the usage of the result. Dropping the reply's future ends every wait.
pub struct Retry<P> {
    inner: P,
    retries: u32,
    budget: Mutex<Budget>,
    limiter: Limiter,
}

impl<P: Provider> Retry<P> {
    /// Wraps `inner` and retries a failed request up to twice.
    pub fn around(inner: P) -> Self {
        Self {
            inner,
            retries: RETRIES,
            budget: Mutex::new(Budget { calls: 0.0, retries: 0.0, at: Instant::now() }),
            limiter: Limiter::new(usize::MAX),
        }
    }

    /// The number of retries per call. Default: 2.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// The maximum number of concurrent requests; the others wait, in order. Default: no limit. 0 counts as 1.
    #[must_use]
    pub fn max_in_flight(mut self, requests: usize) -> Self {
        self.limiter = Limiter::new(requests);
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
            let before = settled(deltas);
            let result = self.try_once(request, deltas).await;
            let error = match result {
                Ok(reply) => return Ok(Reply { usage: sum(spent, reply.usage), ..reply }),
                Err(error) => error,
            };
            let has_fallback = deltas.has_fallback && falls_back(&error);
            // After an empty reply the model may reason again.
            let has_shown = deltas.has_shown && error.kind != ProviderErrorKind::EmptyResponse;
            let Some(pause) = (!has_fallback && !has_shown).then(|| self.pause(&error, tries)).flatten() else {
                return Err(final_error(error, spent));
            };
            tracing::info!(
                agent = &*request.agent.name, call_id = %request.call_id, kind = ?error.kind, status = error.status, ?pause,
                "a model is asked again"
            );
            spent = sum(spent, error.usage());
            next_attempt(deltas, &error, Some(pause), before).await.map_err(|refused| final_error(refused, spent))?;
            tries += 1;
            sleep(pause).await;
        }
    }

    async fn try_once(&self, request: &Request, deltas: &mut DeltaSink<'_>) -> Result<Reply, ProviderError> {
        let acquired = match deltas.has_fallback {
            true => self.limiter.acquire_unless_paused().await,
            false => self.limiter.acquire().await,
        };
        let permit = acquired.map_err(not_asked)?;
        deltas.has_shown = false;
        let result = self.inner.reply(request, deltas).await;
        match &result {
            Ok(_) => permit.succeeded(),
            Err(error) if error.kind == ProviderErrorKind::RateLimited => {
                let asked = error.retry_after.filter(|asked| *asked <= MAX_PAUSE);
                permit.too_many(asked);
            }
            Err(_) => {}
        }
        result
    }

    /// The time to wait before the next attempt; `None` if there is no next attempt.
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

/// The error of a request that was not sent.
fn not_asked(refusal: Refusal) -> ProviderError {
    let why = match refusal {
        Refusal::Refused(time) => format!("the server has refused all requests as too many for {time:.0?}"),
        Refusal::Paused(time) => format!("after too many requests, the next one may begin in {time:.0?}"),
    };
    let error = ProviderError::new(ProviderErrorKind::RateLimited, format!("not asked: {why}"));
    // It has cost nothing.
    let partial = Reply { usage: Some(Usage::default()), ..Reply::default() };
    ProviderError { should_retry: Some(false), partial: Some(Box::new(partial)), ..error }
}

/// Returns whether the same request may succeed later.
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

/// The error that a call ends with, including the usage of earlier attempts.
fn final_error(error: ProviderError, spent: Option<Usage>) -> ProviderError {
    let mut error = with_spent(error, spent);
    if let Some(asked) = error.retry_after.filter(|asked| *asked > MAX_PAUSE) {
        error.message = format!("{}; the server asks to wait for {asked:?}", error.message).into();
    }
    error
}

/// The number of retries that all calls together may make. Older calls count less and less.
struct Budget {
    calls: f64,
    retries: f64,
    at: Instant,
}

impl Budget {
    /// Counts the start of a call.
    fn begin(&mut self) {
        self.decay();
        self.calls += 1.0;
    }

    /// Takes one retry from the budget; `false` if there is none left.
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

impl<P: Provider> ProviderWrapper for Retry<P> {
    fn inner(&self) -> &dyn Provider {
        &self.inner
    }

    fn ask<'a>(
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
/// Retries per call.
const SHARE: f64 = 0.2;
/// The number of retries that are allowed even if few calls are made.
const RESERVE: f64 = 10.0;
/// The time over which the budget counts calls.
const MEMORY: Duration = MAX_PAUSE;
