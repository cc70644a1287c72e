//! The limit of concurrent requests to one server, and pauses that the server asks for.
//!
//! Until the server says that there were too many requests, the only limit is a configured one. After that, all
//! requests wait for as long as the server asks, half as many may be in flight, and the limit grows by one with every
//! few successes ([AIMD](https://en.wikipedia.org/wiki/Additive_increase/multiplicative_decrease)). If most requests
//! succeed and the server asks for no pause, there is no wait, and the limit is lowered only a little.

use std::pin::pin;

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout};

/// The limiter of one provider's requests.
#[derive(Debug)]
pub(crate) struct Limiter {
    permits: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The configured limit.
    most: usize,
    /// The current limit.
    limit: usize,
    /// The number of requests in flight whose permits are not returned when they end.
    surplus: usize,
    /// The number of successes since the limit was last lowered.
    successes: usize,
    /// The number of times in a row that the limit was lowered without a success in between.
    refusals_in_a_row: u32,
    /// The time of the first refusal since the last success.
    refused_since: Option<Instant>,
    /// The end of the current pause: no request begins before it.
    resumes: Option<Instant>,
    /// The time when the limit was last lowered. Refusals of requests that began earlier do not lower it again.
    lowered: Option<Instant>,
}

impl Limiter {
    /// Allows at most `most` requests in flight.
    pub(crate) fn new(most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        let state = State {
            most,
            limit: most,
            surplus: 0,
            successes: 0,
            refusals_in_a_row: 0,
            refused_since: None,
            resumes: None,
            lowered: None,
        };
        Self { permits: Semaphore::new(most), state: Mutex::new(state) }
    }

    /// Waits, in the order of arrival, until a request may begin. Dropping the future gives its turn to the next one.
    ///
    /// There is no timeout as long as other requests succeed.
    ///
    /// # Errors
    ///
    /// When the server has refused every request as one too many for a long time.
    pub(crate) async fn acquire(&self) -> Result<Permit<'_>, Refusal> {
        let permit = self.permit().await?;
        while let Some(resumes) = self.paused_until() {
            // Spread, so that the waiting requests do not all begin in the same moment.
            sleep_until(resumes + SPREAD.mul_f64(fastrand::f64())).await;
        }
        Ok(Permit { limiter: self, permit, begun: Instant::now() })
    }

    /// The same, without a wait for the end of a pause.
    ///
    /// # Errors
    ///
    /// Also during a pause.
    pub(crate) async fn acquire_unless_paused(&self) -> Result<Permit<'_>, Refusal> {
        self.refuse_if_paused()?;
        let permit = self.permit().await?;
        // A pause may have begun meanwhile. The permit is given back by its drop.
        let permit = Permit { limiter: self, permit, begun: Instant::now() };
        self.refuse_if_paused().map(|()| permit)
    }

    fn refuse_if_paused(&self) -> Result<(), Refusal> {
        let left = self.paused_until().map(|resumes| resumes.duration_since(Instant::now()));
        left.map_or(Ok(()), |left| Err(Refusal::Paused(left)))
    }

    async fn permit(&self) -> Result<Option<SemaphorePermit<'_>>, Refusal> {
        let mut acquiring = pin!(self.permits.acquire());
        loop {
            match timeout(MAX_PAUSE, acquiring.as_mut()).await {
                // The semaphore is never closed.
                Ok(permit) => return Ok(permit.ok()),
                Err(_) => match self.state().refused_since.map(|since| since.elapsed()) {
                    Some(refused) if refused >= MAX_PAUSE => return Err(Refusal::Refused(refused)),
                    _ => {}
                },
            }
        }
    }

    fn paused_until(&self) -> Option<Instant> {
        self.state().resumes.filter(|resumes| *resumes > Instant::now())
    }

    /// Lowers the limit to this many eighths of the requests in flight.
    fn lower(&self, state: &mut State, eighths: usize) {
        let permits = state.limit + state.surplus;
        let under_way = permits - self.permits.available_permits().min(permits);
        state.limit = (under_way.saturating_mul(eighths) / 8).clamp(1, state.limit);
        let forgotten = self.permits.forget_permits(permits - state.limit);
        state.surplus = permits - forgotten - state.limit;
        state.successes = 0;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// The reason why a request may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The server has refused every request as one too many for this time.
    Refused(Duration),
    /// No request begins before this time has passed.
    Paused(Duration),
}

/// The permission to have one request in flight. Dropping it ends that permission.
#[derive(Debug)]
pub(crate) struct Permit<'t> {
    limiter: &'t Limiter,
    permit: Option<SemaphorePermit<'t>>,
    begun: Instant,
}

impl Permit<'_> {
    /// Records that the server has answered.
    pub(crate) fn succeeded(self) {
        let mut state = self.limiter.state();
        state.successes += 1;
        state.refused_since = None;
        if state.limit < state.most && state.successes.is_multiple_of(SUCCESSES_PER_PERMIT) {
            state.limit += 1;
            match state.surplus {
                0 => self.limiter.permits.add_permits(1),
                _ => state.surplus -= 1,
            }
        }
    }

    /// Records that the server has refused the request as one too many, and the pause that it asked for, if any.
    pub(crate) fn too_many(self, asked: Option<Duration>) {
        let now = Instant::now();
        let mut state = self.limiter.state();
        state.refused_since.get_or_insert(now);
        // Many requests that were in flight together are refused together; they count as one refusal.
        if state.lowered.is_none_or(|lowered| lowered < self.begun) {
            state.refusals_in_a_row = if state.successes == 0 { state.refusals_in_a_row + 1 } else { 0 };
            let goes_well = asked.is_none() && state.successes >= SUCCESSES_PER_PERMIT;
            self.limiter.lower(&mut state, if goes_well { 7 } else { 4 });
            if asked.is_none() && !goes_well {
                state.resumes = state.resumes.max(Some(now + backoff(state.refusals_in_a_row)));
            }
            state.lowered = Some(now);
        }
        if let Some(asked) = asked {
            state.resumes = state.resumes.max(Some(now + asked));
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.limiter.state();
        if state.surplus > 0 {
            state.surplus -= 1;
            if let Some(permit) = self.permit.take() {
                permit.forget();
            }
        }
    }
}

/// The pause after this many refusals in a row: twice as long each time, with a random reduction that spreads callers.
pub(crate) fn backoff(refusals_in_a_row: u32) -> Duration {
    let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(refusals_in_a_row.saturating_sub(1))).min(MAX_BACKOFF);
    pause.mul_f64(1.0 - fastrand::f64() / 4.0)
}

/// The longest pause that a server may ask for.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(120);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(8);
/// The time over which requests that waited begin.
const SPREAD: Duration = Duration::from_millis(250);
/// The number of successes that raise the limit by one.
const SUCCESSES_PER_PERMIT: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    /// The number of further requests that could begin now.
    fn free(limiter: &Limiter) -> usize {
        std::iter::from_fn(|| tokio::task::unconstrained(limiter.acquire()).now_or_never()).collect::<Vec<_>>().len()
    }

    async fn acquire_many(limiter: &Limiter, count: usize) -> Vec<Permit<'_>> {
        let mut permits = Vec::new();
        for _ in 0..count {
            permits.push(limiter.acquire().await.unwrap());
        }
        permits
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_as_are_allowed_begin_at_once() {
        let limiter = Limiter::new(3);
        assert_eq!(free(&limiter), 3);
        let one = limiter.acquire().await.unwrap();
        assert_eq!(free(&limiter), 2);
        drop(one);
        assert_eq!(free(&limiter), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn fault_42_after_too_many_everybody_waits_and_half_as_many_go_on() {
        let limiter = Limiter::new(usize::MAX);
        let mut permits = acquire_many(&limiter, 100).await;
        tokio::time::advance(Duration::from_secs(1)).await;
        // Requests refused together count as one refusal.
        permits.pop().unwrap().too_many(Some(Duration::from_secs(5)));
        permits.pop().unwrap().too_many(Some(Duration::from_secs(5)));
        drop(permits);
        let begun = Instant::now();
        assert_eq!(free(&limiter), 0);
        let permits = acquire_many(&limiter, 50).await;
        assert!(begun.elapsed() >= Duration::from_secs(5));
        assert_eq!(free(&limiter), 0);
        for (nth, permit) in permits.into_iter().enumerate() {
            permit.succeeded();
            assert_eq!(free(&limiter), nth + 1 + (nth + 1) / 8, "after {} successes", nth + 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_refusal_among_many_successes_keeps_nobody_waiting() {
        let limiter = Limiter::new(80);
        for permit in acquire_many(&limiter, 8).await {
            permit.succeeded();
        }
        let mut permits = acquire_many(&limiter, 80).await;
        permits.pop().unwrap().too_many(None);
        drop(permits);
        assert_eq!(free(&limiter), 70);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_behind_refusals() {
        let limiter = Limiter::new(1);
        limiter.acquire().await.unwrap().too_many(None);
        let _under_way = limiter.acquire().await.unwrap();
        assert!(limiter.acquire().await.is_err());
        // There is no timeout as long as others succeed.
        let limiter = Limiter::new(1);
        let under_way = limiter.acquire().await.unwrap();
        let hour = async {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            under_way.succeeded();
        };
        assert!(tokio::join!(limiter.acquire(), hour).0.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_never_falls_below_one_nor_rises_above_the_given() {
        let limiter = Limiter::new(2);
        for _ in 0..5 {
            limiter.acquire().await.unwrap().too_many(Some(Duration::from_secs(1)));
            tokio::time::advance(Duration::from_secs(2)).await;
            assert_eq!(free(&limiter), 1);
        }
        for _ in 0..100 {
            limiter.acquire().await.unwrap().succeeded();
        }
        assert_eq!(free(&limiter), 2);
    }
}
