//! What is tried again, when, and how often in all. Time is paused: a wait ends as soon as nothing else can happen.
#![cfg(feature = "http")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentouto::ProviderErrorKind::*;
use agentouto::providers::Retry;
use agentouto::{
    Agent, BoxFuture, Context, DeltaSink, Provider, ProviderError, ProviderErrorKind, Reply, Request, StopReason, Usage,
};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use serde_json::json;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

/// Answers each try as a function of its number says, and notes when it came.
#[derive(Clone)]
struct Server<F> {
    answer: F,
    tries: Arc<Mutex<Vec<Instant>>>,
    thinks: Duration,
}

impl<F: Fn(usize) -> Result<Reply, ProviderError>> Server<F> {
    fn new(answer: F) -> Self {
        Self { answer, tries: Arc::default(), thinks: Duration::ZERO }
    }

    fn tries(&self) -> usize {
        self.tries.lock().unwrap().len()
    }

    /// The pauses between the tries.
    fn pauses(&self) -> Vec<Duration> {
        self.tries.lock().unwrap().windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

impl<F: Fn(usize) -> Result<Reply, ProviderError> + Send + Sync + 'static> Provider for Server<F> {
    fn reply<'a>(&'a self, _: &'a Request, _: &'a mut DeltaSink<'_>) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(async {
            let nth = {
                let mut tries = self.tries.lock().unwrap();
                tries.push(Instant::now());
                tries.len() - 1
            };
            sleep(self.thinks).await;
            (self.answer)(nth)
        })
    }
}

fn request() -> Request {
    Request::new(Agent::new("a", ""), Context::with_messages("", []), [])
}

async fn ask(provider: &impl Provider) -> Result<Reply, ProviderError> {
    provider.reply(&request(), &mut DeltaSink::none()).await
}

fn error(kind: ProviderErrorKind) -> ProviderError {
    ProviderError::new(kind, "no")
}

/// Fails so many times with `error`, then succeeds.
fn failing(times: usize, error: ProviderError) -> Server<impl Fn(usize) -> Result<Reply, ProviderError> + Clone> {
    Server::new(move |nth| if nth < times { Err(error.clone()) } else { Ok(Reply::text("done")) })
}

#[tokio::test(start_paused = true)]
async fn fault_5_8_17_and_18_what_may_pass_is_tried_again_after_growing_pauses() {
    for kind in [RateLimited, Overloaded, Unavailable, Connection, Timeout, Truncated] {
        let server = failing(2, error(kind));
        assert_eq!(ask(&Retry::around(server.clone())).await, Ok(Reply::text("done")), "{kind:?}");
        let [first, second] = server.pauses()[..] else { panic!("{kind:?}: {} tries", server.tries()) };
        // Up to a quarter less by chance; and after a 429 everybody waits a little more.
        assert!((SECOND * 3 / 8..=SECOND).contains(&first), "{kind:?}: {first:?}");
        assert!((SECOND * 3 / 4..=SECOND * 3 / 2).contains(&second), "{kind:?}: {second:?}");
    }
    let server = failing(100, error(Overloaded));
    assert_eq!(ask(&Retry::around(server.clone())).await, Err(error(Overloaded)));
    assert_eq!(server.tries(), 3);
    let server = failing(8, error(Overloaded));
    assert_eq!(ask(&Retry::around(server.clone()).retries(8)).await, Ok(Reply::text("done")));
    assert!(server.pauses().iter().all(|pause| *pause <= 8 * SECOND), "{:?}", server.pauses());
}

#[tokio::test(start_paused = true)]
async fn fault_14_and_15_what_cannot_pass_is_not_tried_again() {
    for kind in [
        Authentication,
        QuotaExceeded,
        InvalidRequest,
        ContextTooLong,
        ContentFilter,
        InvalidResponse,
        ProviderErrorKind::Other,
    ] {
        let server = failing(1, error(kind));
        assert_eq!(ask(&Retry::around(server.clone())).await, Err(error(kind)));
        assert_eq!(server.tries(), 1, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_knows_best_whether_another_try_may_help() {
    for (kind, should_retry, tries) in [(Overloaded, false, 1), (InvalidRequest, true, 2)] {
        let server = failing(1, ProviderError { should_retry: Some(should_retry), ..error(kind) });
        let _ = ask(&Retry::around(server.clone())).await;
        assert_eq!(server.tries(), tries, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn fault_13_an_empty_reply_is_asked_for_once_more_unless_it_was_cut() {
    let server = failing(2, error(EmptyResponse));
    assert_eq!(ask(&Retry::around(server.clone())).await, Err(error(EmptyResponse)));
    assert_eq!(server.tries(), 2);
    let cut = Reply { stop_reason: StopReason::Length, reasoning: Some("hm".into()), ..Reply::default() };
    let server = failing(1, ProviderError { partial: Some(Box::new(cut)), ..error(EmptyResponse) });
    assert!(ask(&Retry::around(server.clone())).await.is_err());
    assert_eq!(server.tries(), 1);
}

#[tokio::test(start_paused = true)]
async fn fault_9_once_any_of_the_reply_has_arrived_it_is_not_asked_for_again() {
    for partial in [
        Reply::text("half"),
        Reply { reasoning: Some("hm".into()), ..Reply::default() },
        Reply { refusal: Some("no".into()), ..Reply::default() },
        Reply::tool("search", json!({})),
    ] {
        let cut = ProviderError { partial: Some(Box::new(partial)), ..error(Overloaded) };
        let server = failing(1, cut.clone());
        assert_eq!(ask(&Retry::around(server.clone())).await, Err(cut));
        assert_eq!(server.tries(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn fault_16_the_server_says_when_within_two_minutes() {
    let told = |seconds| ProviderError { retry_after: Some(Duration::from_secs(seconds)), ..error(Unavailable) };
    let server = failing(1, told(120));
    assert_eq!(ask(&Retry::around(server.clone())).await, Ok(Reply::text("done")));
    assert_eq!(server.pauses(), [120 * SECOND]);
    let server = failing(1, told(121));
    let late = ask(&Retry::around(server.clone())).await.unwrap_err();
    assert_eq!(&*late.message, "no; the server asks to wait for 121s");
    assert_eq!((late.retry_after, server.tries()), (Some(121 * SECOND), 1));
}

#[tokio::test(start_paused = true)]
async fn what_failed_tries_have_cost_is_not_forgotten() {
    let usage = |tokens| Usage { input_tokens: tokens, ..Usage::default() };
    let cost = move |tokens| Some(Box::new(Reply { usage: Some(usage(tokens)), ..Reply::default() }));
    let paid = move |tokens| ProviderError { partial: cost(tokens), ..error(Truncated) };
    let server = Server::new(move |nth| if nth < 2 { Err(paid(10)) } else { Ok(Reply::text("done").usage(1, 0)) });
    assert_eq!(ask(&Retry::around(server)).await.unwrap().usage, Some(usage(21)));
    let server = Server::new(move |_| Err(paid(10)));
    assert_eq!(ask(&Retry::around(server)).await.unwrap_err().partial.unwrap().usage, Some(usage(30)));
    let server = Server::new(move |nth| Err(if nth < 1 { paid(10) } else { error(InvalidRequest) }));
    assert_eq!(ask(&Retry::around(server)).await.unwrap_err().partial.unwrap().usage, Some(usage(10)));
}

#[tokio::test(start_paused = true)]
async fn fault_42_ten_thousand_failing_calls_make_no_storm() {
    for kind in [Overloaded, RateLimited] {
        let mut server = failing(usize::MAX, error(kind));
        // All of them are under way before the first one fails.
        server.thinks = SECOND;
        let provider = Retry::around(server.clone());
        let request = request();
        let mut growths: Vec<_> = (0..10_000).map(|_| DeltaSink::none()).collect();
        let calls = growths.iter_mut().map(|deltas| provider.reply(&request, deltas));
        let answers = unconstrained(join_all(calls)).await;
        assert!(answers.into_iter().all(|answer| answer.is_err_and(|error| error.kind == kind)), "{kind:?}");
        assert!((10_000..=12_000).contains(&server.tries()), "{kind:?}: {} tries", server.tries());
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_provider_always_has_some_retries() {
    let server = failing(usize::MAX, error(Unavailable));
    let provider = Retry::around(server.clone());
    for _ in 0..20 {
        let before = server.tries();
        assert_eq!(ask(&provider).await, Err(error(Unavailable)));
        assert_eq!(server.tries() - before, 3);
        sleep(60 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_cool_down_everybody() {
    let wait = ProviderError { retry_after: Some(30 * SECOND), ..error(RateLimited) };
    let server = failing(1, wait);
    let provider = Retry::around(server.clone());
    let begun = Instant::now();
    let late = async {
        sleep(SECOND).await;
        ask(&provider).await
    };
    let (first, second) = tokio::join!(ask(&provider), late);
    assert_eq!((first, second), (Ok(Reply::text("done")), Ok(Reply::text("done"))));
    assert_eq!(server.tries(), 3);
    assert!(server.tries.lock().unwrap()[1..].iter().all(|at| *at - begun >= 30 * SECOND), "{:?}", server.pauses());
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_are_under_way_than_are_allowed_and_a_dropped_one_makes_room() {
    let mut server = failing(0, error(Overloaded));
    server.thinks = SECOND;
    let provider = Retry::around(server.clone()).max_in_flight(3);
    let begun = Instant::now();
    let dropped = ask(&provider);
    tokio::pin!(dropped);
    assert!(dropped.as_mut().now_or_never().is_none());
    assert_eq!(server.tries(), 1);
    let calls = join_all((0..6).map(|_| ask(&provider)));
    tokio::pin!(calls);
    assert!(calls.as_mut().now_or_never().is_none());
    assert_eq!(server.tries(), 3);
    dropped.set(ask(&provider));
    assert!(calls.as_mut().now_or_never().is_none());
    assert_eq!(server.tries(), 4);
    assert_eq!(calls.await.into_iter().filter(Result::is_ok).count(), 6);
    assert_eq!(begun.elapsed(), 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_next_try_ends_when_it_is_dropped() {
    let server = failing(1, error(Overloaded));
    let provider = Retry::around(server.clone());
    assert!(ask(&provider).now_or_never().is_none());
    sleep(60 * SECOND).await;
    assert_eq!(server.tries(), 1);
}
