//! How many requests may be under way to one server at once, and when.
//!
//! There is no limit but a given one, until the server says that there were too many: then everybody waits for as long
//! as it asks, half as many go on from there, and with every few successes one more
//! ([AIMD](https://en.wikipedia.org/wiki/Additive_increase/multiplicative_decrease)). Where most requests go well
//! nobody waits, unless the server asks for it, and there are only a few less.

use std::pin::pin;

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout};

/// The limit of one provider.
#[derive(Debug)]
pub(crate) struct Limiter {
    permits: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The most requests that ever may be under way.
    most: usize,
    /// The most for now.
    limit: usize,
    /// How many of those under way must not be replaced by another when they end.
    surplus: usize,
    /// How many ended well since the limit was lowered.
    successes: usize,
    /// How many times in a row it was lowered without a success in between.
    refusals_in_a_row: u32,
    /// Since when nothing went well.
    refused_since: Option<Instant>,
    /// Nobody begins before.
    resumes: Option<Instant>,
    /// When the limit was lowered last, which what began before says nothing about.
    lowered: Option<Instant>,
}

impl Limiter {
    /// Lets at most so many requests be under way at once.
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

    /// Waits, in the order of arrival, until a request may begin. Dropped, it gives its place to the next.
    ///
    /// The wait has no end of its own as long as other requests go well. `Err`: for a long time, which is told, the
    /// server has refused every request as one too many.
    pub(crate) async fn acquire(&self) -> Result<Permit<'_>, Duration> {
        let mut acquiring = pin!(self.permits.acquire());
        let permit = loop {
            match timeout(MAX_PAUSE, acquiring.as_mut()).await {
                // Nobody closes the semaphore.
                Ok(permit) => break permit.ok(),
                Err(_) => match self.state().refused_since.map(|since| since.elapsed()) {
                    Some(refused) if refused >= MAX_PAUSE => return Err(refused),
                    _ => {}
                },
            }
        };
        while let Some(resumes) = self.paused_until() {
            // Not all in the same moment.
            sleep_until(resumes + SPREAD.mul_f64(fastrand::f64())).await;
        }
        Ok(Permit { throttle: self, permit, begun: Instant::now() })
    }

    fn paused_until(&self) -> Option<Instant> {
        self.state().resumes.filter(|resumes| *resumes > Instant::now())
    }

    /// Lets that many eighths of what is under way go on.
    fn lower(&self, state: &mut State, eighths: usize) {
        let places = state.limit + state.surplus;
        let under_way = places - self.permits.available_permits().min(places);
        state.limit = (under_way.saturating_mul(eighths) / 8).clamp(1, state.limit);
        let forgotten = self.permits.forget_permits(places - state.limit);
        state.surplus = places - forgotten - state.limit;
        state.successes = 0;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// The right to have one request under way. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Permit<'t> {
    throttle: &'t Limiter,
    permit: Option<SemaphorePermit<'t>>,
    begun: Instant,
}

impl Permit<'_> {
    /// The server has answered.
    pub(crate) fn succeeded(self) {
        let mut state = self.throttle.state();
        state.successes += 1;
        state.refused_since = None;
        if state.limit < state.most && state.successes.is_multiple_of(SUCCESSES_PER_PERMIT) {
            state.limit += 1;
            match state.surplus {
                0 => self.throttle.permits.add_permits(1),
                _ => state.surplus -= 1,
            }
        }
    }

    /// The server has said that there were too many requests, and perhaps how long nobody should ask.
    pub(crate) fn too_many(self, asked: Option<Duration>) {
        let now = Instant::now();
        let mut state = self.throttle.state();
        state.refused_since.get_or_insert(now);
        // Many that were under way together are refused together; they count as one.
        if state.lowered.is_none_or(|lowered| lowered < self.begun) {
            state.refusals_in_a_row = if state.successes == 0 { state.refusals_in_a_row + 1 } else { 0 };
            let goes_well = asked.is_none() && state.successes >= SUCCESSES_PER_PERMIT;
            self.throttle.lower(&mut state, if goes_well { 7 } else { 4 });
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
        let mut state = self.throttle.state();
        if state.surplus > 0 {
            state.surplus -= 1;
            if let Some(permit) = self.permit.take() {
                permit.forget();
            }
        }
    }
}

/// The pause after so many refusals in a row: twice as long each time, a bit less by chance so that callers spread.
pub(crate) fn backoff(strikes: u32) -> Duration {
    let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(strikes.saturating_sub(1))).min(MAX_BACKOFF);
    pause.mul_f64(1.0 - fastrand::f64() / 4.0)
}

/// The longest that a server may ask to wait.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(120);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(8);
/// Over which time those that waited begin.
const SPREAD: Duration = Duration::from_millis(250);
/// How many requests must end well before one more may be under way.
const SUCCESSES_PER_PERMIT: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    /// How many more could begin now.
    fn free(throttle: &Limiter) -> usize {
        std::iter::from_fn(|| tokio::task::unconstrained(throttle.acquire()).now_or_never()).collect::<Vec<_>>().len()
    }

    async fn enter(throttle: &Limiter, count: usize) -> Vec<Permit<'_>> {
        let mut passes = Vec::new();
        for _ in 0..count {
            passes.push(throttle.acquire().await.unwrap());
        }
        passes
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_as_are_allowed_begin_at_once() {
        let throttle = Limiter::new(3);
        assert_eq!(free(&throttle), 3);
        let one = throttle.acquire().await.unwrap();
        assert_eq!(free(&throttle), 2);
        drop(one);
        assert_eq!(free(&throttle), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn fault_42_after_too_many_everybody_waits_and_half_as_many_go_on() {
        let throttle = Limiter::new(usize::MAX);
        let mut passes = enter(&throttle, 100).await;
        tokio::time::advance(Duration::from_secs(1)).await;
        // Refused together, they count as one.
        passes.pop().unwrap().too_many(Some(Duration::from_secs(5)));
        passes.pop().unwrap().too_many(Some(Duration::from_secs(5)));
        drop(passes);
        let begun = Instant::now();
        assert_eq!(free(&throttle), 0);
        let passes = enter(&throttle, 50).await;
        assert!(begun.elapsed() >= Duration::from_secs(5));
        assert_eq!(free(&throttle), 0);
        for (nth, pass) in passes.into_iter().enumerate() {
            pass.succeeded();
            assert_eq!(free(&throttle), nth + 1 + (nth + 1) / 8, "after {} successes", nth + 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_refusal_among_many_successes_keeps_nobody_waiting() {
        let throttle = Limiter::new(80);
        for pass in enter(&throttle, 8).await {
            pass.succeeded();
        }
        let mut passes = enter(&throttle, 80).await;
        passes.pop().unwrap().too_many(None);
        drop(passes);
        assert_eq!(free(&throttle), 70);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_behind_refusals() {
        let throttle = Limiter::new(1);
        throttle.acquire().await.unwrap().too_many(None);
        let _under_way = throttle.acquire().await.unwrap();
        assert!(throttle.acquire().await.is_err());
        // As long as others succeed it may take its time.
        let throttle = Limiter::new(1);
        let under_way = throttle.acquire().await.unwrap();
        let hour = async {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            under_way.succeeded();
        };
        assert!(tokio::join!(throttle.acquire(), hour).0.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_never_falls_below_one_nor_rises_above_the_given() {
        let throttle = Limiter::new(2);
        for _ in 0..5 {
            throttle.acquire().await.unwrap().too_many(Some(Duration::from_secs(1)));
            tokio::time::advance(Duration::from_secs(2)).await;
            assert_eq!(free(&throttle), 1);
        }
        for _ in 0..100 {
            throttle.acquire().await.unwrap().succeeded();
        }
        assert_eq!(free(&throttle), 2);
    }
}
