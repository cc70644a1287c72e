//! Providers that ask another one when the first fails, and providers around providers. Time is paused.
#![cfg(all(feature = "http", feature = "prompt_tools"))]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentouto::ProviderErrorKind::*;
use agentouto::providers::Retry;
use agentouto::providers::anthropic::Anthropic;
use agentouto::providers::openai::{OpenAi, Profile};
use agentouto::providers::scripted::Scripted;
use agentouto::{
    Agent, BoxFuture, Budget, Context, Delta, DeltaSink, EventKind, Provider, ProviderError, ProviderErrorKind,
    ProviderExt, ProviderWrapper, Reply, Request, Runtime, Usage,
};
use futures_util::FutureExt as _;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::server::{Answer, Server};
use crate::team::team;

const SECOND: Duration = Duration::from_secs(1);

/// A provider that answers each attempt with the next result, the last one again and again, and counts attempts.
#[derive(Clone)]
struct Model {
    results: Arc<Vec<Result<Reply, ProviderError>>>,
    attempts: Arc<Mutex<Vec<Instant>>>,
}

impl Model {
    fn new(results: impl IntoIterator<Item = Result<Reply, ProviderError>>) -> Self {
        Self { results: Arc::new(results.into_iter().collect()), attempts: Arc::default() }
    }

    fn says(text: &str) -> Self {
        Self::new([Ok(Reply::text(text))])
    }

    fn fails(error: ProviderError) -> Self {
        Self::new([Err(error)])
    }

    fn attempts(&self) -> usize {
        self.attempts.lock().unwrap().len()
    }
}

impl Provider for Model {
    fn reply<'a>(&'a self, _: &'a Request, _: &'a mut DeltaSink<'_>) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        let mut attempts = self.attempts.lock().unwrap();
        let nth = attempts.len().min(self.results.len() - 1);
        attempts.push(Instant::now());
        std::future::ready(self.results[nth].clone()).boxed()
    }
}

fn error(kind: ProviderErrorKind) -> ProviderError {
    ProviderError::new(kind, format!("{kind:?}"))
}

/// The error of an attempt that cost so many input tokens.
fn paid(kind: ProviderErrorKind, tokens: u64) -> ProviderError {
    let partial = Reply { usage: Some(usage(tokens)), ..Reply::default() };
    ProviderError { partial: Some(Box::new(partial)), ..error(kind) }
}

fn usage(input_tokens: u64) -> Usage {
    Usage { input_tokens, ..Usage::default() }
}

fn request() -> Request {
    Request::new(Agent::new("a", "").model("m"), Context::with_messages("", []), [])
}

async fn ask(provider: &impl Provider) -> Result<Reply, ProviderError> {
    provider.reply(&request(), &mut DeltaSink::none()).await
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_cannot_reply_now_is_replaced_at_once_by_the_next_one() {
    for kind in [Authentication, RateLimited, QuotaExceeded, Overloaded, Unavailable, Connection, Timeout, Truncated] {
        let (first, second) = (Model::fails(error(kind)), Model::says("second"));
        let begun = Instant::now();
        // The retries of the first provider would take time.
        let provider = first.clone().retry().or(second.clone());
        assert_eq!(ask(&provider).await, Ok(Reply::text("second")), "{kind:?}");
        assert_eq!((first.attempts(), second.attempts(), begun.elapsed()), (1, 1, Duration::ZERO), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fails_everywhere_is_not_sent_to_the_next_one() {
    for kind in [InvalidRequest, ContextTooLong, ContentFilter, InvalidResponse, EmptyResponse, Other] {
        let second = Model::says("second");
        let provider = Model::fails(error(kind)).or(second.clone());
        assert_eq!(ask(&provider).await, Err(error(kind)));
        assert_eq!(second.attempts(), 0, "{kind:?}");
    }
    // What was shown would be shown twice.
    let cut = ProviderError { partial: Some(Box::new(Reply::text("half"))), ..error(Overloaded) };
    let second = Model::says("second");
    assert_eq!(ask(&Model::fails(cut.clone()).or(second.clone())).await, Err(cut));
    assert_eq!(second.attempts(), 0);
}

#[tokio::test(start_paused = true)]
async fn only_the_last_provider_of_a_chain_makes_retries() {
    let models = [(); 3].map(|()| Model::fails(error(Overloaded)));
    let [a, b, c] = models.clone();
    let chain = a.retry().or(b.retry()).or(c.retry());
    let failed = ask(&chain).await.unwrap_err();
    assert_eq!(&*failed.message, "Overloaded; before, Overloaded; before, Overloaded");
    assert_eq!(models.map(|model| model.attempts()), [1, 1, 3]);
    // The whole chain is tried again, and the last one does not forget that it is the last.
    let models = [(); 2].map(|()| Model::new([Err(error(Overloaded)), Ok(Reply::text("fine"))]));
    let [a, b] = models.clone();
    assert_eq!(ask(&a.or(b).retry()).await, Ok(Reply::text("fine")));
    assert_eq!(models.map(|model| model.attempts()), [2, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_fallback_may_wait_for_the_retries_of_the_first_provider() {
    let (first, second) = (Model::fails(error(Overloaded)), Model::says("second"));
    let provider = first.clone().retry().or(second.clone()).after_retries();
    assert_eq!(ask(&provider).await, Ok(Reply::text("second")));
    assert_eq!((first.attempts(), second.attempts()), (3, 1));
    // Within a chain each link keeps its own order.
    let (a, b) = (Model::fails(error(Overloaded)), Model::fails(error(Overloaded)));
    let chain = a.clone().retry().or(b.clone().retry()).after_retries().or(Model::says("third"));
    assert_eq!(ask(&chain).await, Ok(Reply::text("third")));
    assert_eq!((a.attempts(), b.attempts()), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn an_error_that_makes_another_provider_be_asked_uses_up_no_retry() {
    let model = Model::fails(error(Overloaded));
    let first = Arc::new(model.clone().retry());
    for _ in 0..50 {
        ask(&Arc::clone(&first).or(Model::says("second"))).await.unwrap();
    }
    ask(&first).await.unwrap_err();
    assert_eq!(model.attempts(), 50 + 3, "it still has its two retries");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asked_to_wait_is_left_alone_and_nobody_waits_for_it() {
    let wait = ProviderError { retry_after: Some(30 * SECOND), ..error(RateLimited) };
    let first = Model::new([Err(wait), Ok(Reply::text("first"))]);
    let provider = first.clone().retry().or(Model::says("second"));
    let begun = Instant::now();
    for _ in 0..3 {
        assert_eq!(ask(&provider).await.unwrap().text.as_deref(), Some("second"));
    }
    assert_eq!((first.attempts(), begun.elapsed()), (1, Duration::ZERO));
    sleep(31 * SECOND).await;
    assert_eq!(ask(&provider).await, Ok(Reply::text("first")));
}

#[tokio::test(start_paused = true)]
async fn if_both_fail_the_error_names_both_and_what_both_have_cost() {
    let provider = Model::fails(paid(Timeout, 10)).or(Model::fails(paid(InvalidRequest, 5)));
    let failed = ask(&provider).await.unwrap_err();
    assert_eq!((failed.kind, &*failed.message), (InvalidRequest, "InvalidRequest; before, Timeout"));
    assert_eq!(failed.partial.unwrap().usage, Some(usage(15)));
    let provider = Model::fails(paid(Timeout, 10)).or(Model::new([Ok(Reply::text("done").usage(1, 0))]));
    assert_eq!(ask(&provider).await.unwrap().usage, Some(usage(11)));
}

#[tokio::test(start_paused = true)]
async fn each_attempt_counts_once_in_a_budget_and_observers_see_the_fallback() {
    let run = async |provider: Box<dyn Provider>, budget: Budget| {
        let runtime = team(provider, ["a"]).build().unwrap();
        let mut call = runtime.user("u").forward("a", "go").budget(budget);
        let mut fallbacks = Vec::new();
        while let Some(event) = call.next_event().await {
            if let EventKind::ModelFallback { error } = event.kind {
                fallbacks.push(error.kind);
            }
        }
        (call.await, fallbacks)
    };
    let first = Model::fails(paid(Overloaded, 10));
    let second = || Model::new([Ok(Reply::text("done").usage(1, 0))]);
    let (report, fallbacks) = run(Box::new(first.clone().or(second())), Budget::new()).await;
    let used = report.unwrap().used().unwrap();
    assert_eq!((used.requests, used.tokens, fallbacks), (2, 11, vec![Overloaded]));
    // The usage of retries within the first provider is not counted again by the fallback, nor by an outer retry.
    let (report, _) = run(Box::new(first.clone().retry().or(second()).after_retries()), Budget::new()).await;
    let used = report.unwrap().used().unwrap();
    assert_eq!((used.requests, used.tokens), (4, 31));
    let nested =
        Model::new([Err(paid(Overloaded, 10)), Err(paid(Overloaded, 10)), Ok(Reply::text("done").usage(1, 0))]);
    let nested = Retry::around(Retry::around(nested).retries(1)).retries(1);
    let (report, _) = run(Box::new(nested), Budget::new()).await;
    let used = report.unwrap().used().unwrap();
    assert_eq!((used.requests, used.tokens), (3, 21));
    // A fallback that the budget does not allow is not asked.
    let last = second();
    let (failed, _) = run(Box::new(first.or(last.clone())), Budget::new().requests(1)).await;
    assert_eq!(
        (failed.unwrap_err().to_string(), last.attempts()),
        ("the budget of 1 requests to models is used up".into(), 0)
    );
}

#[tokio::test(start_paused = true)]
async fn retries_inside_prompt_tools_count_although_its_deltas_are_rewritten() {
    for is_observed in [false, true] {
        let model = Model::new([Err(paid(Overloaded, 10)), Ok(Reply::text("done").usage(1, 0))]);
        let runtime = team(model.retry().prompt_tools(), ["a"]).build().unwrap();
        let events = is_observed.then(|| runtime.events(100));
        let report = runtime.user("u").forward("a", "go").budget(Budget::new().requests(2)).await.unwrap();
        let used = report.used().unwrap();
        assert_eq!((used.requests, used.tokens), (2, 11), "{is_observed}");
        drop(events);
    }
}

#[tokio::test(start_paused = true)]
async fn what_all_attempts_of_a_cancelled_call_have_cost_is_known() {
    /// Fails once, and then never ends. Each attempt says what it has cost so far.
    struct Paying(AtomicUsize, Option<u64>);
    impl Provider for Paying {
        fn reply<'a>(
            &'a self,
            _: &'a Request,
            deltas: &'a mut DeltaSink<'_>,
        ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
            if self.0.fetch_add(1, Ordering::SeqCst) == 0 {
                deltas.usage_so_far(usage(100));
                return std::future::ready(Err(paid(Overloaded, 100))).boxed();
            }
            self.1.into_iter().for_each(|tokens| deltas.usage_so_far(usage(tokens)));
            deltas.delta(Delta::Reasoning("hm".into()));
            std::future::pending().boxed()
        }
    }
    for (second, total) in [(Some(7), 107), (None, 100)] {
        for is_limited in [false, true] {
            let paying = || Arc::new(Paying(AtomicUsize::new(0), second));
            let shared = paying();
            let providers: [Box<dyn Provider>; 5] = [
                Box::new(Arc::clone(&shared).or(shared)),
                Box::new(paying().retry()),
                Box::new(paying().retry().or(Model::says("never")).after_retries()),
                Box::new(paying().retry().prompt_tools()),
                Box::new(Model::fails(paid(Overloaded, 0)).or(paying().retry()).prompt_tools().retry()),
            ];
            for (nth, provider) in providers.into_iter().enumerate() {
                let runtime = team(provider, ["a"]).build().unwrap();
                let mut call = runtime.user("u").forward("a", "go");
                if is_limited {
                    call = call.budget(Budget::new());
                }
                while let Some(event) = call.next_event().await {
                    if let EventKind::ModelDelta { .. } = event.kind {
                        call.cancel();
                    }
                }
                let failed = call.await.unwrap_err();
                assert_eq!(failed.log.usage(), usage(total), "provider {nth}");
                let is_counted = second.is_none() || failed.used().is_none_or(|used| used.tokens == total);
                assert!(is_counted, "provider {nth}: {:?}", failed.used());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_asks_no_further_provider() {
    struct Never;
    impl Provider for Never {
        fn reply<'a>(
            &'a self,
            _: &'a Request,
            deltas: &'a mut DeltaSink<'_>,
        ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
            deltas.delta(Delta::Reasoning("hm".into()));
            std::future::pending().boxed()
        }
    }
    let second = Model::says("second");
    let runtime = team(Never.or(second.clone()), ["a"]).build().unwrap();
    let mut call = runtime.user("u").forward("a", "go");
    while let Some(event) = call.next_event().await {
        if let EventKind::ModelDelta { .. } = event.kind {
            call.cancel();
        }
    }
    assert_eq!((second.attempts(), runtime.invocations()), (0, 0));
}

#[test]
fn function_calling_is_what_all_providers_inside_can() {
    struct Plain<P>(P);
    impl<P: Provider> ProviderWrapper for Plain<P> {
        fn inner(&self) -> &dyn Provider {
            &self.0
        }
        fn ask<'a>(
            &'a self,
            request: &'a Request,
            deltas: &'a mut DeltaSink<'_>,
        ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
            self.0.reply(request, deltas)
        }
    }
    fn check(provider: impl Provider, expected: Option<bool>) {
        assert_eq!(provider.function_calling("m"), expected);
    }
    let can = |can| Scripted::new().function_calling(can);
    for known in [true, false] {
        check(Plain(can(known)), Some(known));
        check(can(known).retry(), Some(known));
        check(can(known).model("other"), Some(known));
        check(Arc::new(can(known)), Some(known));
        check(Arc::new(can(known)) as Arc<dyn Provider>, Some(known));
        check(Box::new(can(known)) as Box<dyn Provider>, Some(known));
    }
    check(can(true).or(can(true)), Some(true));
    check(can(true).or(Scripted::new()), None);
    check(Scripted::new().or(can(false)), Some(false));
    check(can(false).prompt_tools().or(can(true)), Some(true));
}

#[test]
fn what_is_known_of_the_server_is_what_all_providers_inside_agree_on() {
    let of = |url: &str| OpenAi::keyless(url);
    let one = || of("https://api.openai.com/v1");
    let known = one().info();
    assert_eq!(one().or(one().model("other")).info(), known);
    let info = one().or(of("https://eu.api.openai.com/v1")).or(one()).info();
    assert_eq!((info.name, info.address, info.port), (known.name.clone(), None, known.port));
    let info = one().or(Anthropic::new("key")).info();
    assert_eq!((info.name, info.address, info.port), (None, None, known.port));
    assert_eq!(one().or(Scripted::new()).info(), Scripted::new().info());
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_has_shown_a_piece_is_not_asked_again_nor_replaced_though_its_error_has_no_part() {
    struct Shows(Delta, ProviderErrorKind);
    impl Provider for Shows {
        fn reply<'a>(
            &'a self,
            _: &'a Request,
            deltas: &'a mut DeltaSink<'_>,
        ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
            deltas.delta(self.0.clone());
            std::future::ready(Err(error(self.1))).boxed()
        }
    }
    let text = || Delta::Text("half".into());
    let call = Delta::ToolCall { index: 0, name: "look".into(), arguments: "".into() };
    for (delta, kind) in [(text(), Connection), (Delta::Reasoning("hm".into()), Truncated), (call, Overloaded)] {
        let second = Model::says("whole");
        let providers: [Box<dyn Provider>; 3] = [
            Box::new(Shows(delta.clone(), kind).retry()),
            Box::new(Shows(delta.clone(), kind).or(second.clone())),
            Box::new(Shows(delta.clone(), kind).retry().or(second.clone()).retry().or(second.clone())),
        ];
        for provider in providers {
            let mut shown = Vec::new();
            let mut observer = |delta| shown.push(delta);
            let failed = provider.reply(&request(), &mut DeltaSink::to(&mut observer)).await.unwrap_err();
            assert_eq!((failed.kind, second.attempts()), (kind, 0));
            assert_eq!(shown, std::slice::from_ref(&delta), "no piece is shown twice");
        }
        // Nothing is shown to nobody.
        assert_eq!(ask(&Shows(delta, kind).or(second)).await.unwrap().text.as_deref(), Some("whole"));
    }
}

#[tokio::test]
async fn a_shared_provider_serves_under_several_names() {
    let shared: Arc<dyn Provider> = Arc::new(Scripted::computed(|_: &Request| Reply::text("done")));
    let agents = ["x", "y"].map(|name| Agent::new(name, "").provider(name));
    let runtime =
        Runtime::builder().provider("x", Arc::clone(&shared)).provider("y", shared).agents(agents).build().unwrap();
    for agent in ["x", "y"] {
        assert_eq!(&*runtime.run(agent, "go").await.unwrap().output, "done");
    }
}

#[tokio::test]
async fn a_fallback_to_another_vendor_gets_a_model_that_it_knows_on_every_turn() {
    let busy = || Answer::json(529, &json!({"error": {"type": "overloaded_error", "message": "busy"}}));
    let call = |id: &str| {
        let function = json!({"name": "look", "arguments": "{}"});
        let calls = [json!({"id": id, "type": "function", "function": function})];
        Answer::json(200, &json!({"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}))
    };
    let done = Answer::json(200, &json!({"choices": [{"message": {"content": "done"}, "finish_reason": "stop"}]}));
    let mut first = Server::start([busy(), busy(), busy()]).await;
    let mut second = Server::start([call("1"), call("2"), done]).await;
    let provider = Anthropic::keyless(&first.base_url).or(OpenAi::keyless(&second.base_url).model("gpt-5.6"));
    let runtime = Runtime::builder()
        .provider("both", provider)
        .agent(Agent::new("a", "Look.").model("claude-opus-5"))
        .tool(agentouto::tool::function("look", "Looks.", |_: agentouto::tool::NoArguments| async { "seen" }))
        .build()
        .unwrap();
    assert_eq!(&*runtime.run("a", "Go on.").await.unwrap().output, "done");
    for turn in 0..3 {
        assert_eq!(first.heard().await.body["model"], "claude-opus-5");
        let body = second.heard().await.body;
        assert_eq!(body["model"], "gpt-5.6");
        // The system prompt, the message, and two more of each turn.
        assert_eq!(body["messages"].as_array().unwrap().len(), 2 + 2 * turn);
    }
}

#[tokio::test]
async fn what_was_encoded_for_one_server_is_not_sent_to_another_of_the_same_format() {
    let call = |id: &str| {
        let function = json!({"name": "look", "arguments": "{}"});
        let calls = [json!({"id": id, "type": "function", "function": function})];
        Answer::json(200, &json!({"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}))
    };
    let busy = || Answer::json(503, &json!({"error": {"message": "busy"}}));
    let done = Answer::json(200, &json!({"choices": [{"message": {"content": "done"}, "finish_reason": "stop"}]}));
    let mut servers = [
        Server::start([call("1"), busy(), busy(), busy()]).await,
        Server::start([call("2"), busy(), busy()]).await,
        Server::start([call("3"), busy()]).await,
        Server::start([done]).await,
    ];
    let openai = |nth: usize| OpenAi::keyless(&servers[nth].base_url);
    let chain = openai(0).or(openai(1).profile(Profile::Mistral)).or(openai(2).model("x")).or(openai(3).model("y"));
    let runtime = Runtime::builder()
        .provider("chain", chain)
        .agent(Agent::new("a", "Look.").model("m").max_output_tokens(9))
        .tool(agentouto::tool::function("look", "Looks.", |_: agentouto::tool::NoArguments| async { "seen" }))
        .build()
        .unwrap();
    assert_eq!(&*runtime.run("a", "Go on.").await.unwrap().output, "done");
    for (nth, (server, (model, limit))) in servers
        .iter_mut()
        .zip([
            ("m", "max_completion_tokens"),
            ("m", "max_tokens"),
            ("x", "max_completion_tokens"),
            ("y", "max_completion_tokens"),
        ])
        .enumerate()
    {
        for turn in nth..4 {
            let body = server.heard().await.body;
            assert_eq!((&body["model"], &body[limit]), (&json!(model), &json!(9)), "server {nth}, turn {turn}");
            assert_eq!(body["messages"].as_array().unwrap().len(), 2 + 2 * turn, "server {nth}, turn {turn}");
        }
    }
}
