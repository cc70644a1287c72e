//! How many requests may be under way to one server at once, and when.
//!
//! There is no limit but a given one, until the server says that there were too many: then everybody waits for as long
//! as it asks, half as many go on from there, and with every few successes one more
//! ([AIMD](https://en.wikipedia.org/wiki/Additive_increase/multiplicative_decrease)).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

/// The limit of one provider.
#[derive(Debug)]
pub(crate) struct Throttle {
    places: Semaphore,
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
    /// How many ended well since the limit was raised.
    successes: usize,
    /// Nobody begins before.
    resumes: Option<Instant>,
    /// When the limit was lowered last, which what began before says nothing about.
    lowered: Option<Instant>,
}

impl Throttle {
    /// Lets at most so many requests be under way at once.
    pub(crate) fn new(most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        let state = State { most, limit: most, surplus: 0, successes: 0, resumes: None, lowered: None };
        Self { places: Semaphore::new(most), state: Mutex::new(state) }
    }

    /// Waits, in the order of arrival, until a request may begin. Dropped, it gives its place to the next.
    pub(crate) async fn enter(&self) -> Pass<'_> {
        // Nobody closes the semaphore.
        let permit = self.places.acquire().await.ok();
        while let Some(resumes) = self.resumes() {
            // Not all in the same moment.
            sleep_until(resumes + SPREAD.mul_f64(fastrand::f64())).await;
        }
        Pass { throttle: self, permit, begun: Instant::now() }
    }

    fn resumes(&self) -> Option<Instant> {
        self.state().resumes.filter(|resumes| *resumes > Instant::now())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to have one request under way. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Pass<'t> {
    throttle: &'t Throttle,
    permit: Option<SemaphorePermit<'t>>,
    begun: Instant,
}

impl Pass<'_> {
    /// The server has answered.
    pub(crate) fn succeeded(self) {
        let mut state = self.throttle.state();
        if state.limit < state.most {
            state.successes += 1;
            if state.successes >= SUCCESSES_PER_PLACE {
                state.successes = 0;
                state.limit += 1;
                match state.surplus {
                    0 => self.throttle.places.add_permits(1),
                    _ => state.surplus -= 1,
                }
            }
        }
        drop(state);
    }

    /// The server has said that these were too many, and that nobody should ask for so long.
    pub(crate) fn too_many(self, pause: Duration) {
        let now = Instant::now();
        let mut state = self.throttle.state();
        state.resumes = state.resumes.max(Some(now + pause));
        // Many that were under way together are refused together; they count as one.
        if state.lowered.is_none_or(|lowered| lowered < self.begun) {
            let places = state.limit + state.surplus;
            let under_way = places - self.throttle.places.available_permits().min(places);
            let limit = (under_way / 2).max(1).min(state.limit);
            let forgotten = self.throttle.places.forget_permits(places - limit);
            state.surplus = places - forgotten - limit;
            state.limit = limit;
            state.successes = 0;
            state.lowered = Some(now);
        }
    }
}

impl Drop for Pass<'_> {
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

/// Over which time those that waited begin.
const SPREAD: Duration = Duration::from_millis(250);
/// How many requests must end well before one more may be under way.
const SUCCESSES_PER_PLACE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    /// How many more could begin now.
    fn free(throttle: &Throttle) -> usize {
        std::iter::from_fn(|| tokio::task::unconstrained(throttle.enter()).now_or_never()).collect::<Vec<_>>().len()
    }

    async fn enter(throttle: &Throttle, count: usize) -> Vec<Pass<'_>> {
        let mut passes = Vec::new();
        for _ in 0..count {
            passes.push(throttle.enter().await);
        }
        passes
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_as_are_allowed_begin_at_once() {
        let throttle = Throttle::new(3);
        assert_eq!(free(&throttle), 3);
        let one = throttle.enter().await;
        assert_eq!(free(&throttle), 2);
        drop(one);
        assert_eq!(free(&throttle), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn fault_42_after_too_many_everybody_waits_and_half_as_many_go_on() {
        let throttle = Throttle::new(usize::MAX);
        let mut passes = enter(&throttle, 100).await;
        tokio::time::advance(Duration::from_secs(1)).await;
        // Refused together, they count as one.
        passes.pop().unwrap().too_many(Duration::from_secs(5));
        passes.pop().unwrap().too_many(Duration::from_secs(5));
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
    async fn the_limit_never_falls_below_one_nor_rises_above_the_given() {
        let throttle = Throttle::new(2);
        for _ in 0..5 {
            throttle.enter().await.too_many(Duration::from_secs(1));
            tokio::time::advance(Duration::from_secs(2)).await;
            assert_eq!(free(&throttle), 1);
        }
        for _ in 0..100 {
            throttle.enter().await.succeeded();
        }
        assert_eq!(free(&throttle), 2);
    }
}
