//! Budgets: limits that a caller sets for everything below a call. Time is paused.
#![cfg(feature = "http")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentouto::providers::Retry;
use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::{
    Agent, BoxFuture, Budget, CallError, CallId, ChatMessage, DeltaSink, Event, EventKind, Forward, Price, Provider,
    ProviderError, ProviderErrorKind, Reply, Request, Resource, RunError, Runtime, ToolContext, Usage,
};
use futures_util::FutureExt as _;
use serde_json::json;
use tokio::time::sleep;

use crate::team::{With, let_all_tasks_run, path, team};

fn exceeded(what: Resource, limit: u64) -> CallError {
    CallError::BudgetExceeded { what, limit }
}

/// A model of agents that call themselves without end, each reply of 700 + 300 tokens.
fn endless() -> impl Provider {
    Scripted::computed(|request: &Request| {
        let reply = Reply::call_agent("a", &"more".repeat(request.context.turns() + 1)).usage(700, 300);
        ScriptedReply::from(reply).after(Duration::from_millis(10))
    })
}

fn last_output(request: &Request) -> Option<String> {
    match request.context.messages().next_back()? {
        ChatMessage::Tool { output, .. } => Some(output.content.text.to_string()),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_would_never_end_stops_at_each_limit_with_what_was_found() {
    let limits = [
        (Budget::new().tokens(100_000), exceeded(Resource::Tokens, 100_000)),
        (Budget::new().requests(50), exceeded(Resource::Requests, 50)),
        (Budget::new().time(Duration::from_secs(2)), exceeded(Resource::Time, 2_000)),
        (
            Budget::new().price("m", Price { input: 1.0, output: 10.0, ..Price::default() }).cost(0.1),
            exceeded(Resource::Cost, 100_000),
        ),
    ];
    for (budget, error) in limits {
        let agent = Agent::new("a", "Calls itself.").model("m");
        let runtime = Runtime::builder().provider("fake", endless()).agent(agent).build().unwrap();
        let failed = runtime.user("u").forward("a", "go").budget(budget.clone()).await.unwrap_err();
        assert_eq!(failed.error, error);
        let used = failed.used().unwrap();
        assert!(error != exceeded(Resource::Tokens, 100_000) || used.tokens <= 100_000, "{used:?}");
        assert!(used.requests <= 200, "{used:?}");
        assert!(failed.log.tree().calls().len() > 10, "the log has what was done");
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_that_are_read_from_a_cache_or_written_to_it_have_their_own_prices() {
    let usage = Usage { input_tokens: 1_000, cached_tokens: 600, cache_write_tokens: 300, ..Usage::default() };
    let model = Scripted::computed(move |_: &Request| Reply { usage: Some(usage), ..Reply::text("done") });
    let runtime = team(model, ["a"]).build().unwrap();
    let cost = async |price: Price| {
        let call = runtime.user("u").forward("a", "go").budget(Budget::new().price("", price).cost(1.0));
        call.await.unwrap().used().unwrap().cost
    };
    let price = Price { input: 10.0, output: 50.0, cached: Some(1.0), cache_write: Some(12.5) };
    assert_eq!(cost(price).await, (100.0 * 10.0 + 600.0 + 300.0 * 12.5) / 1e6);
    assert_eq!(cost(Price { cached: None, cache_write: None, ..price }).await, 0.01);
}

#[tokio::test(start_paused = true)]
async fn the_caller_of_a_refused_call_reads_why_and_goes_on() {
    let model = || {
        Scripted::computed(|request: &Request| match (last_output(request), request.context.input().parse::<u32>()) {
            (Some(said), _) => Reply::text(said),
            (None, Ok(depth)) => Reply::call_agent("a", &(depth + 1).to_string()),
            (None, Err(_)) => Reply::call_agent("a", "1"),
        })
    };
    let run = |budget: Budget| {
        let runtime = team(model(), ["a"]).build().unwrap();
        async move { runtime.user("u").forward("a", "go").budget(budget).await.unwrap() }
    };
    let report = run(Budget::new().depth(8)).await;
    assert_eq!(&*report.output, "Error: the budget allows 8 levels of calls");
    assert_eq!((report.used().unwrap().depth, report.used().unwrap().calls), (8, 8));
    let report = run(Budget::new().calls(3)).await;
    assert_eq!(&*report.output, "Error: the budget of 3 calls is used up");
    assert_eq!(report.log.tree().calls().len(), 4);
    let report = run(Budget::new().calls(0)).await;
    assert_eq!(report.log.tree().calls().len(), 1, "the limited call itself is not counted");
}

#[tokio::test(start_paused = true)]
async fn a_budget_holds_although_nobody_polls_the_call_or_reads_its_events() {
    let runtime = team(endless(), ["a"]).build().unwrap();
    let _unread = runtime.events(1);
    let mut call = runtime.user("u").forward("a", "go").budget(Budget::new().tokens(100_000));
    assert!(call.next_event().await.is_some(), "now it is sent, and never polled again");
    runtime.idle().await;
    let failed = call.await.unwrap_err();
    assert_eq!(failed.error, exceeded(Resource::Tokens, 100_000));
    assert!(failed.used().unwrap().tokens <= 100_000);
    assert!(failed.log.usage().input_tokens + failed.log.usage().output_tokens <= 100_000);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_call_that_is_not_polled_and_one_that_only_waits() {
    let model = Scripted::new().replies("a", [Reply::tool("wait", json!({}))]);
    let wait = With("wait", |_: ToolContext| std::future::pending());
    let runtime = team(model, ["a"]).tool(wait).build().unwrap();
    let mut call = runtime.user("u").forward("a", "go").budget(Budget::new().time(Duration::from_secs(5)));
    call.next_event().await;
    sleep(Duration::from_secs(6)).await;
    assert_eq!(runtime.invocations(), 0);
    let failed = call.await.unwrap_err();
    assert_eq!(failed.error, exceeded(Resource::Time, 5_000));
    assert_eq!(failed.to_string(), "the budget of 5s is used up");
    assert_eq!(path(&failed.log)[1], "u < a: error: the budget of 5s is used up");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_in_time_leaves_no_timer() {
    let runtime = team(Scripted::computed(|_: &Request| Reply::text("done")), ["a"]).build().unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    runtime.user("u").forward("a", "go").budget(Budget::new().time(Duration::MAX)).await.unwrap();
    runtime.user("u").caller().forward("a", "go").budget(Budget::new().time(Duration::MAX)).await.unwrap();
    let_all_tasks_run().await;
    assert_eq!(tasks(), before);
}

#[tokio::test(start_paused = true)]
async fn a_budget_below_is_a_part_of_the_budget_above() {
    let model = Scripted::computed(|request: &Request| match request.context.input() {
        "go" if request.context.turns() == 0 => Reply::tool("ask", json!({})).usage(10, 10),
        "go" => Reply::text("done").usage(10, 10),
        _ => Reply::call_agent("a", "more").usage(10, 10),
    });
    let errors = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&errors);
    let ask = With("ask", move |context: ToolContext| {
        let seen = Arc::clone(&seen);
        async move {
            let inner = context.caller.forward("a", "more").budget(Budget::new().requests(5)).await;
            let outer = context.caller.forward("a", "more").budget(Budget::new().requests(500)).await;
            seen.lock().unwrap().extend([inner.unwrap_err(), outer.unwrap_err()]);
            Ok("".into())
        }
    });
    let runtime = team(model, ["a"]).tool(ask).build().unwrap();
    let budget = Budget::new().requests(20);
    let failed = runtime.user("u").forward("a", "go").budget(budget).await.unwrap_err();
    assert_eq!(*errors.lock().unwrap(), [exceeded(Resource::Requests, 5), exceeded(Resource::Requests, 20)]);
    assert_eq!((failed.error.clone(), failed.used().unwrap().requests), (exceeded(Resource::Requests, 20), 20));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_above_is_the_reason_below_and_one_below_ends_only_its_part() {
    let model = Scripted::computed(|request: &Request| match (request.context.input(), last_output(request)) {
        ("go", None) => Reply::tool("ask", json!({})),
        ("go", Some(said)) => Reply::text(said),
        _ => Reply::tool("wait", json!({})),
    });
    let wait = With("wait", |_: ToolContext| std::future::pending());
    let ask = With("ask", |context: ToolContext| async move {
        let time = context.get::<Duration>().copied().unwrap();
        let failed = context.caller.forward("a", "wait").budget(Budget::new().time(time)).await.unwrap_err();
        Ok(failed.to_string().into())
    });
    let runtime = team(model, ["a"]).tool(wait).tool(ask).build().unwrap();
    let run = |inner: u64| {
        let call = runtime.user("u").forward("a", "go").with(Duration::from_secs(inner));
        call.budget(Budget::new().time(Duration::from_secs(10)))
    };
    assert_eq!(&*run(3).await.unwrap().output, "the budget of 3s is used up");
    assert_eq!(run(30).await.unwrap_err().error, exceeded(Resource::Time, 10_000));
}

#[tokio::test(start_paused = true)]
async fn retries_count_as_requests_and_as_tokens() {
    let busy = || ScriptedReply::error(ProviderError::new(ProviderErrorKind::Overloaded, "busy"));
    let model =
        || Retry::around(Scripted::new().replies("a", [busy(), busy(), Reply::text("done").usage(9, 1).into()]));
    let run = |budget: Budget| {
        let runtime = team(model(), ["a"]).build().unwrap();
        async move {
            let mut call = runtime.user("u").forward("a", "go").budget(budget);
            let mut retries = Vec::new();
            while let Some(Event { kind, .. }) = call.next_event().await {
                if let EventKind::ModelRetry { error, pause } = kind {
                    assert!(pause >= Duration::from_millis(300));
                    retries.push(error.message.to_string());
                }
            }
            (call.await, retries)
        }
    };
    let (report, retries) = run(Budget::new()).await;
    let used = report.unwrap().used().unwrap();
    assert_eq!((used.requests, retries), (3, vec!["busy".to_owned(); 2]));
    assert!(used.tokens > 2 * 1_024 + 10, "what is not reported counts as estimated: {used:?}");
    let (failed, retries) = run(Budget::new().requests(2)).await;
    assert_eq!((failed.unwrap_err().error, retries.len()), (exceeded(Resource::Requests, 2), 2));
}

#[tokio::test(start_paused = true)]
async fn observers_are_told_at_four_fifths_and_at_the_end_once() {
    let runtime = team(endless(), ["a"]).build().unwrap();
    let budget = Budget::new().requests(10).time(Duration::from_secs(100));
    let mut call = runtime.user("u").forward("a", "go").budget(budget);
    let id = call.call_id();
    let mut told = Vec::new();
    while let Some(event) = call.next_event().await {
        if let EventKind::Budget { what, used, limit } = event.kind {
            assert_eq!((event.call_id, limit), (id, 10), "{what:?}");
            told.push(used);
        }
    }
    assert_eq!(told, [8, 10]);
}

#[tokio::test(start_paused = true)]
async fn a_model_without_a_price_is_not_asked_when_the_cost_is_limited() {
    let runtime = team(Scripted::computed(|_: &Request| -> Reply { panic!("it was asked") }), ["a"]).build().unwrap();
    let failed = runtime.user("u").forward("a", "go").budget(Budget::new().cost(1.0)).await.unwrap_err();
    assert_eq!(failed.to_string(), "the budget has no price for the model ``");
}

#[tokio::test(start_paused = true)]
async fn odd_limits_are_limits() {
    for budget in [
        Budget::new().tokens(0),
        Budget::new().requests(0),
        Budget::new().time(Duration::ZERO),
        Budget::new().cost(f64::NAN).price("", Price::default()).tokens(1),
        Budget::new().cost(-1.0).price("", Price { input: 1.0, ..Price::default() }),
    ] {
        let runtime = team(endless(), ["a"]).build().unwrap();
        let failed = runtime.user("u").forward("a", "go").budget(budget.clone()).await.unwrap_err();
        assert!(matches!(failed.error, CallError::BudgetExceeded { .. }), "{budget:?}: {failed}");
    }
    let all = Budget::new().tokens(u64::MAX).requests(u64::MAX).calls(u64::MAX).depth(u64::MAX).time(Duration::MAX);
    let all = all.cost(f64::INFINITY).price("", Price { input: f64::MAX, output: f64::INFINITY, ..Price::default() });
    let runtime =
        team(Scripted::computed(|_: &Request| Reply::text("fine").usage(u64::MAX, 5)), ["a"]).build().unwrap();
    runtime.user("u").forward("a", "go").budget(all).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_every_link_of_a_long_chain_needs_no_stack() {
    let model = Scripted::computed(|request: &Request| match request.context.input() {
        "0" => Reply::text("end"),
        left => match last_output(request) {
            Some(said) => Reply::text(said),
            None => Reply::tool("below", json!({"left": left})),
        },
    });
    struct Below;
    impl agentouto::Tool for Below {
        fn spec(&self) -> agentouto::ToolSpec {
            let parameters = json!({"type": "object"});
            agentouto::ToolSpec { name: "below".into(), description: "".into(), parameters }
        }
        fn call(
            &self,
            arguments: agentouto::Arguments,
            context: ToolContext,
        ) -> BoxFuture<'_, Result<agentouto::Content, agentouto::ToolError>> {
            async move {
                let left: u32 = arguments["left"].as_str().unwrap().parse()?;
                let call = context.caller.forward("a", (left - 1).to_string());
                Ok(call.budget(Budget::new().calls(1 << 40)).await?.output.into())
            }
            .boxed()
        }
    }
    let runtime = team(model, ["a"]).tool(Below).build().unwrap();
    let report = runtime.user("u").forward("a", "2000").budget(Budget::new().calls(2_000)).await.unwrap();
    assert_eq!((&*report.output, report.used().unwrap().calls), ("end", 2_000));
}

/// Agents in random trees, and the tokens that their replies really used.
struct Trees {
    seed: u64,
    spent: AtomicU64,
    largest: AtomicU64,
}

impl Trees {
    fn reply(&self, request: &Request) -> ScriptedReply {
        let mut random = fastrand::Rng::with_seed(self.seed ^ key(request.call_id) ^ request.context.turns() as u64);
        let delay = Duration::from_millis(random.u64(..50));
        self.answer(random, request).after(delay)
    }

    fn answer(&self, mut random: fastrand::Rng, request: &Request) -> ScriptedReply {
        let depth = request.context.input().len();
        let (input, output) = (random.u64(200..2_000), random.u64(1..3_000));
        if random.u8(..10) == 0 {
            return ScriptedReply::error(ProviderError::new(ProviderErrorKind::Overloaded, "busy"));
        }
        let siblings = if depth > 4 || request.context.turns() > 1 { 0 } else { random.usize(..5) };
        let deeper = "x".repeat(depth + 1);
        let reply = match siblings {
            0 => Reply::text("done"),
            siblings => (0..siblings).fold(Reply::default(), |reply, _| reply.and_call_agent("a", &deeper)),
        };
        if random.u8(..5) == 0 {
            return reply.into();
        }
        self.spent.fetch_add(input + output, Ordering::Relaxed);
        self.largest.fetch_max(input + output, Ordering::Relaxed);
        reply.usage(input, output).into()
    }
}

fn key(id: CallId) -> u64 {
    id.to_string().bytes().fold(0, |key, byte| key.wrapping_mul(31).wrapping_add(byte.into()))
}

/// A limit without a reservation: each request is checked against what the replies so far used.
struct CheckedBefore {
    model: Scripted,
    limit: u64,
    spent: AtomicU64,
}

impl Provider for CheckedBefore {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        async move {
            if self.spent.load(Ordering::Relaxed) >= self.limit {
                return Err(ProviderError::new(ProviderErrorKind::Other, "the limit is reached"));
            }
            let reply = self.model.reply(request, deltas).await?;
            let usage = reply.usage.unwrap_or_default();
            self.spent.fetch_add(usage.input_tokens + usage.output_tokens, Ordering::Relaxed);
            Ok(reply)
        }
        .boxed()
    }
}

/// Runs a random tree, with a budget or with a check before each request of what was spent so far.
fn tree(seed: u64, limit: u64, is_reserved: bool) -> (u64, u64, Result<(), RunError>) {
    let trees = Arc::new(Trees { seed, spent: AtomicU64::new(0), largest: AtomicU64::new(0) });
    let model = {
        let trees = Arc::clone(&trees);
        let model = Scripted::computed(move |request: &Request| trees.reply(request));
        let limit = if is_reserved { u64::MAX } else { limit };
        Retry::around(CheckedBefore { model, limit, spent: AtomicU64::new(0) })
    };
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let result = tokio.block_on(async {
        let runtime = team(model, ["a"]).call_ids(CallId::seeded(seed)).build().unwrap();
        let budget = if is_reserved { Budget::new().tokens(limit) } else { Budget::new() };
        runtime.user("u").forward("a", "").budget(budget).await.map(drop)
    });
    (trees.spent.load(Ordering::Relaxed), trees.largest.load(Ordering::Relaxed), result)
}

#[test]
fn ten_thousand_random_trees_exceed_no_budget_by_more_than_one_reply() {
    let (mut refused, mut complete, mut over_without) = (0, 0, 0);
    for seed in 0..10_000 {
        let limit = 2_000 + seed * 7 % 60_000;
        let (spent, largest, result) = tree(seed, limit, true);
        assert!(spent <= limit + largest, "seed {seed}: {spent} of {limit}, largest reply {largest}");
        match result {
            Ok(()) => complete += 1,
            Err(_) => refused += 1,
        }
        if seed < 500 {
            let (spent, largest, _) = tree(seed, limit, false);
            over_without += u64::from(spent > limit + largest);
        }
    }
    assert!(refused > 1_000 && complete > 1_000, "{refused} refused, {complete} complete");
    assert!(over_without > 10, "without the reservation the same check fails: {over_without} of 500");
}

#[tokio::test(start_paused = true)]
async fn requests_run_at_once_while_the_budget_is_far_and_one_by_one_at_its_end() {
    let at_once = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    struct Counting(Arc<(AtomicUsize, AtomicUsize)>);
    impl Provider for Counting {
        fn reply<'a>(
            &'a self,
            request: &'a Request,
            _: &'a mut DeltaSink<'_>,
        ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
            async move {
                if request.context.input() == "go" {
                    let fan = (0..100).fold(Reply::default(), |reply, _| reply.and_call_agent("a", "one"));
                    return Ok(if request.context.turns() == 0 { fan } else { Reply::text("done") }.usage(100, 100));
                }
                let (now, most) = &*self.0;
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(Duration::from_secs(1)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(Reply::text("leaf").usage(100, 100))
            }
            .boxed()
        }
    }
    let most_at_once = async |budget: Budget| {
        at_once.1.store(0, Ordering::SeqCst);
        let runtime = team(Counting(Arc::clone(&at_once)), ["a"]).build().unwrap();
        let _ = runtime.user("u").forward("a", "go").budget(budget).await;
        at_once.1.load(Ordering::SeqCst)
    };
    assert_eq!(most_at_once(Budget::new().tokens(1_000_000)).await, 100);
    let few = most_at_once(Budget::new().tokens(25_000)).await;
    assert!((1..20).contains(&few), "{few} at once");
    assert_eq!(most_at_once(Budget::new().requests(1_000)).await, 100);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_its_turn_is_cancelled_with_its_call() {
    let model = Scripted::computed(|request: &Request| match request.context.input() {
        "go" => (0..50).fold(Reply::default(), |reply, _| reply.and_call_agent("a", "leaf")).usage(100, 100).into(),
        _ => ScriptedReply::from(Reply::text("leaf").usage(100, 100)).after(Duration::from_secs(3600)),
    });
    let runtime = team(model, ["a"]).build().unwrap();
    let mut call = runtime.user("u").forward("a", "go").budget(Budget::new().tokens(9_000));
    while call.next_event().now_or_never().is_some() {}
    let_all_tasks_run().await;
    call.cancel();
    let failed = call.await.unwrap_err();
    assert_eq!(failed.error, CallError::Cancelled);
    let calls: HashMap<_, _> =
        failed.log.tree().calls().iter().map(|call| (call.call_id, call.answer.is_some())).collect();
    assert!(calls.len() == 51 && calls.values().all(|ended| *ended));
}

#[tokio::test(start_paused = true)]
async fn a_person_or_an_actor_costs_calls_and_no_tokens() {
    let model =
        Scripted::new().replies("a", [Reply::call_agent("p", "?"), Reply::call_agent("p", "?"), Reply::text("ok")]);
    let person = |_: Arc<Forward>| async { Ok::<_, CallError>("yes") };
    let runtime = team(model, ["a"]).user("p", "", person).build().unwrap();
    let report = runtime.user("u").forward("a", "go").budget(Budget::new().calls(1)).await.unwrap();
    assert_eq!(path(&report.log).len(), 4, "the second question was not sent");
    assert_eq!(report.used().unwrap().calls, 1);
}

#[tokio::test(start_paused = true)]
async fn a_usage_beyond_all_limits_does_not_break_the_estimate_of_the_next_request() {
    let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
        ("a", 0) => Reply::call_agent("b", "x").usage(u64::MAX, u64::MAX),
        _ => Reply::text("done").usage(u64::MAX, u64::MAX),
    });
    let runtime = team(model, ["a", "b"]).build().unwrap();
    let report = runtime.user("u").forward("a", "go").budget(Budget::new().requests(5)).await.unwrap();
    let used = report.used().unwrap();
    assert_eq!((&*report.output, used.requests, used.tokens), ("done", 3, u64::MAX));
}
