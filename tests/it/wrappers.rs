//! Tools around tools: time limits, places, who may call, and that no wrapper in any order loses what is inside.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::tool::{self, Blocking, NoArguments};
use agentouto::tools::{InnerTool, ToolWrapper};
use agentouto::{
    Arguments, BoxFuture, Budget, CallError, ChatMessage, Content, EventKind, Forward, Reply, Request, Runtime, Tool,
    ToolContext, ToolError, ToolExt as _, ToolSpec,
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use crate::pending_tool::pending_tool;
use crate::team::{With, let_all_tasks_run, on_threads, team};

const SECOND: Duration = Duration::from_secs(1);

/// Every agent calls at once the tools whose names are its input, and says what came of it. `helper` takes a second to
/// say `helped`.
fn model() -> Scripted {
    Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
        ("helper", _) => ScriptedReply::from(Reply::text("helped")).after(SECOND),
        (_, 0) => {
            let names = request.context.input().split(' ');
            names.fold(Reply::default(), |reply, name| reply.and_tool(name, json!({}))).into()
        }
        (_, _) => Reply::text(outputs(request).join(" | ")).into(),
    })
}

fn outputs(request: &Request) -> Vec<&str> {
    let outputs = request.context.messages().filter_map(|message| match message {
        ChatMessage::Tool { output, .. } => Some(&*output.content.text),
        _ => None,
    });
    outputs.collect()
}

async fn run(runtime: &Runtime, agent: &str, tools: &str) -> String {
    runtime.run(agent, tools).await.unwrap().output.to_string()
}

/// The name of the thread that runs a tool.
fn thread() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

/// A function that says that it began, waits for leave, and says that it ended.
fn blocking_gate() -> (impl Tool, UnboundedReceiver<&'static str>, mpsc::Sender<()>) {
    let ((say, said), (leave, gate)) = (unbounded_channel(), mpsc::channel());
    let gate = Mutex::new(gate);
    let gate = tool::blocking("gate", "", move |_: NoArguments| {
        // A test that is over no longer hears.
        let _ = say.send("began");
        let _ = gate.lock().unwrap().recv();
        let _ = say.send("ended");
        "through"
    });
    (gate, said, leave)
}

/// Waits for a thread. The paused clock stands still meanwhile, because the test is never idle.
async fn heard(said: &mut UnboundedReceiver<&'static str>) -> &'static str {
    loop {
        match said.try_recv() {
            Ok(word) => return word,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// A run in a task of its own.
fn spawned(runtime: &Runtime, agent: &'static str, tools: &'static str) -> tokio::task::JoinHandle<String> {
    let runtime = runtime.clone();
    tokio::spawn(async move { run(&runtime, agent, tools).await })
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_takes_too_long_is_dropped_and_the_model_reads_after_which_time() {
    let (gate, mut keeper) = pending_tool();
    let runtime = team(model(), ["a"]).tool(gate.timeout(5 * SECOND)).build().unwrap();
    let begun = Instant::now();
    assert_eq!(run(&runtime, "a", "gate").await, "Error: [gate] timed out after 5s");
    assert_eq!(begun.elapsed(), 5 * SECOND);
    assert_eq!((keeper.next().await, keeper.next().await), ("started", "dropped"));
    let fast = tool::function("fast", "", |_: NoArguments| async { "done" }).timeout(Duration::MAX);
    runtime.add_tool(fast).unwrap();
    assert_eq!(run(&runtime, "a", "fast").await, "done");
}

#[tokio::test(start_paused = true)]
async fn a_function_that_blocks_is_not_waited_for_and_one_that_has_not_begun_never_does() {
    let (gate, mut said, leave) = blocking_gate();
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    let counting = tool::blocking("counting", "", move |_: NoArguments| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let runtime = team(model(), ["a"]).blocking_threads(1).tool(gate.timeout(SECOND)).tool(counting.timeout(SECOND));
    let runtime = runtime.build().unwrap();
    let running = spawned(&runtime, "a", "gate counting");
    assert_eq!(heard(&mut said).await, "began");
    let expected = "Error: [gate] timed out after 1s | Error: [counting] timed out after 1s";
    assert_eq!(running.await.unwrap(), expected);
    leave.send(()).unwrap();
    assert_eq!(heard(&mut said).await, "ended");
    assert_eq!(begun.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_drop_of_a_tool_that_took_too_long_does_not_hide_the_time_limit() {
    struct Grenade;
    impl Drop for Grenade {
        fn drop(&mut self) {
            panic!("a panic in the drop of a tool");
        }
    }
    let grenade = With("grenade", |_| async {
        let _grenade = Grenade;
        std::future::pending::<()>().await;
        Ok("".into())
    });
    let panics = tool::function("panics", "", |_: NoArguments| async { panic!("ouch") as () });
    let runtime = team(model(), ["a"]).tool(grenade.timeout(SECOND)).tool(panics.at_most(1).timeout(SECOND));
    let runtime = runtime.build().unwrap();
    let expected = "Error: [grenade] timed out after 1s | Error: [panics] panicked: ouch";
    assert_eq!(run(&runtime, "a", "grenade panics").await, expected);
    assert_eq!(run(&runtime, "a", "panics").await, "Error: [panics] panicked: ouch", "its place is free again");
}

/// A tool that takes a second, counts how many of it run at once, and gives the most so far.
fn counted(now: &Arc<AtomicUsize>) -> impl Tool + use<> {
    let (now, most) = (Arc::clone(now), Arc::new(AtomicUsize::new(0)));
    With("work", move |_| {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(SECOND).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(most.load(Ordering::SeqCst).to_string().into())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_run_at_once_than_may_and_none_counts_as_one() {
    for (limit, most, seconds) in [(0, 1, 6), (1, 1, 6), (4, 4, 2), (usize::MAX, 6, 1)] {
        let runtime = team(model(), ["a", "b"]).tool(counted(&Arc::default()).at_most(limit)).build().unwrap();
        let begun = Instant::now();
        let (one, other) = tokio::join!(run(&runtime, "a", "work work work"), run(&runtime, "b", "work work work"));
        assert_eq!(begun.elapsed(), seconds * SECOND, "at most {limit}");
        let seen = one.split(" | ").chain(other.split(" | ")).map(|most| most.parse::<usize>().unwrap()).max();
        assert_eq!(seen, Some(most));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_gives_its_place_back_whether_it_runs_or_waits() {
    let (gate, mut keeper) = pending_tool();
    let runtime = team(model(), ["a"]).tool(gate.at_most(1)).build().unwrap();
    for _ in 0..3 {
        let runs = spawned(&runtime, "a", "gate");
        assert_eq!(keeper.next().await, "started");
        assert!(timeout(SECOND, run(&runtime, "a", "gate gate")).await.is_err(), "it waits for the place");
        runs.abort();
        assert_eq!(keeper.next().await, "dropped");
    }
}

#[tokio::test(start_paused = true)]
async fn a_function_that_blocks_keeps_its_place_until_it_has_ended_though_its_call_was_cancelled() {
    let (gate, mut said, leave) = blocking_gate();
    let runtime = team(model(), ["a"]).tool(gate.at_most(1).timeout(SECOND)).build().unwrap();
    let running = spawned(&runtime, "a", "gate");
    assert_eq!(heard(&mut said).await, "began");
    assert_eq!(running.await.unwrap(), "Error: [gate] timed out after 1s");
    assert_eq!(run(&runtime, "a", "gate").await, "Error: [gate] timed out after 1s");
    assert!(said.try_recv().is_err(), "the second one did not begin");
    leave.send(()).unwrap();
    assert_eq!(heard(&mut said).await, "ended");
    // Sooner than the time limit, because the test is never idle.
    let running = spawned(&runtime, "a", "gate");
    assert_eq!(heard(&mut said).await, "began");
    leave.send(()).unwrap();
    assert_eq!(heard(&mut said).await, "ended");
    while !running.is_finished() {
        tokio::task::yield_now().await;
    }
    assert_eq!(running.await.unwrap(), "through");
}

#[tokio::test(start_paused = true)]
async fn a_function_that_blocks_keeps_its_place_though_a_wrapper_inside_has_given_it_up() {
    let wraps: [Wrap; 3] = [
        |gate| Box::new(gate.timeout(SECOND).at_most(1).timeout(2 * SECOND)),
        |gate| Box::new(Loud(InnerTool::new(gate.timeout(SECOND).only_for(["a"]))).at_most(1).timeout(2 * SECOND)),
        |gate| Box::new(gate.timeout(SECOND).cached(SECOND).at_most(1).timeout(2 * SECOND)),
    ];
    for wrap in wraps {
        let (gate, mut said, leave) = blocking_gate();
        let runtime = team(model(), ["a"]).tool(wrap(Box::new(gate))).build().unwrap();
        let running = spawned(&runtime, "a", "gate");
        assert_eq!(heard(&mut said).await, "began");
        assert_eq!(running.await.unwrap(), "Error: [gate] timed out after 1s");
        assert_eq!(run(&runtime, "a", "gate").await, "Error: [gate] timed out after 2s", "it waits for the place");
        assert!(said.try_recv().is_err(), "the second one did not begin");
        leave.send(()).unwrap();
        assert_eq!(heard(&mut said).await, "ended");
        let running = spawned(&runtime, "a", "gate");
        assert_eq!(heard(&mut said).await, "began");
        leave.send(()).unwrap();
        assert_eq!(heard(&mut said).await, "ended");
        // Sooner than the time limit, because the test is never idle.
        while !running.is_finished() {
            tokio::task::yield_now().await;
        }
        assert_eq!(running.await.unwrap().to_lowercase(), "through");
    }
}

#[test]
fn a_call_that_waits_for_a_place_keeps_no_thread() {
    on_threads(1, async {
        let (gate, mut said, leave) = blocking_gate();
        let other = tool::blocking("other", "", |_: NoArguments| thread());
        let runtime = team(model(), ["a", "b"]).blocking_threads(2).tool(gate.at_most(1)).tool(other);
        let runtime = runtime.build().unwrap();
        let both = spawned(&runtime, "a", "gate gate gate");
        assert_eq!(heard(&mut said).await, "began");
        assert_eq!(run(&runtime, "b", "other").await, "agentouto-blocking");
        for _ in 0..3 {
            leave.send(()).unwrap();
        }
        assert_eq!(both.await.unwrap(), "through | through | through");
    });
}

#[tokio::test]
async fn a_call_by_another_agent_is_refused_with_the_names_of_those_who_may() {
    let model = Scripted::computed(|request: &Request| match request.context.turns() {
        0 => {
            assert!(request.tools.iter().any(|tool| &*tool.name == "delete"), "it is offered to all");
            Reply::tool("delete", json!({}))
        }
        _ => Reply::text(outputs(request).join(" | ")),
    });
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let delete = With("delete", move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok("deleted".into()) }
    });
    let runtime =
        team(model, ["admin", "caf\u{e9}", "Admin", "writer"]).tool(delete.only_for(["admin", "cafe\u{301}"]));
    let runtime = runtime.build().unwrap();
    for agent in ["admin", "caf\u{e9}"] {
        assert_eq!(run(&runtime, agent, "").await, "deleted");
    }
    for agent in ["writer", "Admin"] {
        let refused = format!("Error: [delete] `{agent}` may not use this tool; only `admin`, `cafe\u{301}` may");
        assert_eq!(run(&runtime, agent, "").await, refused);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    let nobody = With("work", |_| async { Ok("".into()) }).only_for([""; 0]);
    runtime.add_tool(nobody).unwrap();
    assert!(runtime.remove_tool("delete"));
}

#[tokio::test(start_paused = true)]
async fn a_kept_result_is_not_given_to_an_agent_that_may_not_call_nor_its_refusal_to_one_that_may() {
    let secret = || {
        let secret = With("secret", |_| async {
            sleep(SECOND).await;
            Ok("the secret".into())
        });
        secret.only_for(["admin"])
    };
    let refused = "Error: [secret] `writer` may not use this tool; only `admin` may";
    let nested: [fn(agentouto::tools::OnlyFor) -> Box<dyn Tool>; 3] = [
        |tool| Box::new(tool.cached(60 * SECOND)),
        |tool| Box::new(tool.at_most(3).cached(60 * SECOND).timeout(60 * SECOND)),
        |tool| Box::new(Arc::new(tool).cached(60 * SECOND).cached(60 * SECOND)),
    ];
    for wrap in nested {
        let runtime = team(model(), ["admin", "writer"]).tool(wrap(secret())).build().unwrap();
        let (writer, admin) = tokio::join!(run(&runtime, "writer", "secret"), run(&runtime, "admin", "secret"));
        assert_eq!((&*writer, &*admin), (refused, "the secret"));
        assert_eq!(run(&runtime, "writer", "secret").await, refused);
        assert_eq!(run(&runtime, "admin", "secret").await, "the secret");
    }
}

/// A tool that says on which thread it runs, takes no other arguments than none, and serves `a` alone.
struct Particular(Blocking);

impl Tool for Particular {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: "where".into(), description: "Says it.".into(), parameters: json!({"type": "object", "x": 1}) }
    }

    fn call(&self, _: Arguments, _: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        Box::pin(async { Ok(thread().into()) })
    }

    fn check(&self, arguments: &Arguments) -> Result<(), ToolError> {
        if arguments.is_empty() { Ok(()) } else { Err("too many".into()) }
    }

    fn authorize(&self, context: &ToolContext) -> Result<(), ToolError> {
        if &*context.agent == "a" { Ok(()) } else { Err("not for you".into()) }
    }

    fn blocking(&self) -> Blocking {
        self.0
    }
}

/// A wrapper as a user writes one.
struct Loud(InnerTool);

impl ToolWrapper for Loud {
    fn inner(&self) -> &InnerTool {
        &self.0
    }

    fn run(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        Box::pin(async move {
            assert_ne!(thread(), "agentouto-blocking", "a wrapper runs on the async threads");
            Ok(self.0.call(arguments, context).await?.text.to_uppercase().into())
        })
    }
}

type Wrap = fn(Box<dyn Tool>) -> Box<dyn Tool>;

/// All orders of these.
fn orders(items: &[Wrap]) -> Vec<Vec<Wrap>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let rest = |place: usize| [&items[..place], &items[place + 1..]].concat();
    let with = |place: usize| orders(&rest(place)).into_iter().map(move |order| (place, order));
    let all = (0..items.len()).flat_map(with);
    all.map(|(place, mut order)| {
        order.push(items[place]);
        order
    })
    .collect()
}

#[test]
fn in_every_order_the_wrappers_give_the_same_and_a_function_that_blocks_has_its_thread() {
    let wraps: [Wrap; 6] = [
        |tool| Box::new(tool.timeout(60 * SECOND)),
        |tool| Box::new(tool.at_most(1)),
        |tool| Box::new(tool.cached(60 * SECOND)),
        |tool| Box::new(tool.approved_by("human")),
        |tool| Box::new(tool.only_for(["a"])),
        |tool| Box::new(Arc::new(Loud(InnerTool::new(tool)))),
    ];
    let orders = orders(&wraps);
    assert_eq!(orders.len(), 720);
    let context = Arguments::from_iter([("x".to_owned(), Value::Null)]);
    on_threads(1, async move {
        let human = |_: Arc<Forward>| async { Ok::<_, CallError>("yes") };
        let runtime = team(model(), ["a", "b"]).user("human", "", human).build().unwrap();
        for (blocking, expected) in [(Blocking::Always, true), (Blocking::Never, false)] {
            for order in &orders {
                let bare: Box<dyn Tool> = Box::new(Particular(blocking));
                let spec = bare.spec();
                let tool = order.iter().fold(bare, |tool, wrap| wrap(tool));
                assert_eq!((tool.spec(), tool.blocking()), (spec, Blocking::Never));
                assert_eq!(&*tool.check(&context).unwrap_err().message, "too many");
                runtime.add_tool(tool).unwrap();
                let said = run(&runtime, "a", "where where").await;
                let on_a_thread = said == "AGENTOUTO-BLOCKING | AGENTOUTO-BLOCKING";
                assert!(on_a_thread == expected && !said.contains("Error"), "{said}");
                let refused = run(&runtime, "b", "where").await;
                assert!(refused.starts_with("Error: [where] "), "{refused}");
                assert!(runtime.remove_tool("where"));
            }
        }
    });
}

#[tokio::test]
async fn a_shared_tool_and_a_boxed_one_are_tools_with_all_that_they_are() {
    let shared: Arc<dyn Tool> = Arc::new(Particular(Blocking::Always));
    let boxed: Box<dyn Tool> = Box::new(Arc::clone(&shared));
    let typed = Arc::new(Particular(Blocking::Always));
    let too_many = Arguments::from_iter([("x".to_owned(), Value::Null)]);
    let tools: [Arc<dyn Tool>; 3] = [shared, Arc::new(boxed), Arc::new(typed)];
    for tool in tools {
        assert_eq!((tool.spec(), tool.blocking()), (Particular(Blocking::Always).spec(), Blocking::Always));
        assert!(tool.check(&too_many).is_err());
        for runtime in [team(model(), ["a", "b"]), team(model(), ["a", "b"])] {
            // The same tool in two runtimes.
            let runtime = runtime.tool(Arc::clone(&tool)).build().unwrap();
            assert_eq!(run(&runtime, "a", "where").await, "agentouto-blocking");
            runtime.add_tool(With("free", |_| async { Ok("".into()) })).unwrap();
            assert!(runtime.remove_tool("where"));
            runtime.add_tool(Arc::clone(&tool).cached(SECOND)).unwrap();
            assert_eq!(run(&runtime, "b", "where").await, "Error: [where] not for you");
        }
    }
}

struct Tenant(&'static str);

fn tenant(context: &ToolContext) -> String {
    context.get::<Tenant>().map_or("nobody", |tenant| tenant.0).to_owned()
}

/// A tool that tells whose it is: as it sees itself, and as an agent below it sees.
fn whose(runs: &Arc<AtomicUsize>) -> impl Tool + use<> {
    let runs = Arc::clone(runs);
    With("whose", move |context: ToolContext| {
        runs.fetch_add(1, Ordering::SeqCst);
        async move {
            sleep(SECOND).await;
            let below = context.caller.call_agent("clerk", "").await?;
            Ok(format!("{} and {below}", tenant(&context)).into())
        }
    })
}

/// A person who tells whose the call is.
async fn clerk(forward: Arc<Forward>) -> Result<&'static str, CallError> {
    Ok(forward.run.get::<Tenant>().map_or("nobody", |tenant| tenant.0))
}

async fn of(runtime: &Runtime, tenant: &'static str) -> String {
    runtime.user("web").forward("a", "whose").with(Tenant(tenant)).await.unwrap().output.to_string()
}

#[tokio::test(start_paused = true)]
async fn a_cached_tool_sees_no_lent_value_so_no_tenant_gets_what_is_anothers() {
    let runs = Arc::default();
    let cached = whose(&runs).cached(60 * SECOND);
    let runtime = team(model(), ["a"]).user("clerk", "", clerk).tool(cached).build().unwrap();
    let (acme, globex) = tokio::join!(of(&runtime, "acme"), of(&runtime, "globex"));
    let later = of(&runtime, "initech").await;
    assert_eq!([acme, globex, later], ["nobody and nobody"; 3]);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn each_tenant_has_results_of_its_own_where_the_key_says_so() {
    let runs = Arc::default();
    let cached = whose(&runs).at_most(9).cached(60 * SECOND).keyed_by(tenant);
    let runtime = team(model(), ["a"]).user("clerk", "", clerk).tool(cached).build().unwrap();
    for _ in 0..2 {
        let asked = ["acme", "globex", "acme"].map(|tenant| of(&runtime, tenant));
        assert_eq!(join_all(asked).await, ["acme and acme", "globex and globex", "acme and acme"]);
        assert_eq!(run(&runtime, "a", "whose").await, "nobody and nobody");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn observers_see_which_results_came_from_the_cache() {
    let runtime = team(model(), ["a"]).tool(counted(&Arc::default()).cached(60 * SECOND)).build().unwrap();
    let mut hits = Vec::new();
    for _ in 0..2 {
        let mut call = runtime.user("u").forward("a", "work work");
        let mut seen = Vec::new();
        while let Some(event) = call.next_event().await {
            if let EventKind::ToolCacheHit { id, name } = event.kind {
                seen.push((id, name));
            }
        }
        assert!(seen.iter().all(|(_, name)| &**name == "work"));
        hits.push(seen.len());
        assert!(seen.first().map(|(id, _)| id) != seen.get(1).map(|(id, _)| id), "each has the id of its own call");
    }
    assert_eq!(hits, [1, 2], "one waits for the run of the other; later both get what is kept");
}

#[tokio::test(start_paused = true)]
async fn what_a_tool_makes_of_another_callers_budget_is_nobody_elses_and_not_kept() {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let asks = With("asks", move |context: ToolContext| {
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            sleep(SECOND).await;
            match context.caller.call_agent("helper", "").await {
                Ok(answer) => Ok(answer),
                Err(error) => Ok(format!("no help: {error}").into()),
            }
        }
    });
    let runtime = team(model(), ["a", "helper"]).tool(asks.cached(60 * SECOND)).build().unwrap();
    let poor = async { runtime.user("poor").forward("a", "asks").budget(Budget::new().calls(0)).await };
    let rich = async {
        sleep(SECOND / 2).await;
        run(&runtime, "a", "asks").await
    };
    let (poor, rich) = tokio::join!(poor, rich);
    assert!(poor.unwrap().output.starts_with("no help: "));
    assert_eq!(rich, "helped");
    assert_eq!(run(&runtime, "a", "asks").await, "helped");
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_says_because_of_another_callers_budget_is_nobody_elses_and_not_kept() {
    let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
        ("a", 0) => Reply::tool("asks", json!({})),
        ("helper", 0) => Reply::call_agent("expert", "help"),
        ("expert", _) => Reply::text("expertise"),
        (_, _) => Reply::text(outputs(request).join(" | ")),
    });
    let asks = With("asks", |context: ToolContext| async move {
        sleep(SECOND).await;
        Ok(context.caller.call_agent("helper", "").await?)
    });
    let runtime = team(model, ["a", "helper", "expert"]).tool(asks.cached(60 * SECOND)).build().unwrap();
    for budget in [Budget::new().calls(1), Budget::new().depth(1), Budget::new().requests(2)] {
        let poor = async { runtime.user("poor").forward("a", "asks").budget(budget.clone()).await };
        let rich = async {
            sleep(SECOND / 2).await;
            run(&runtime, "a", "asks").await
        };
        let (poor, rich) = tokio::join!(poor, rich);
        assert!(!poor.is_ok_and(|report| report.output.contains("expertise")), "{budget:?}");
        assert_eq!(rich, "expertise", "{budget:?}");
        tokio::time::advance(60 * SECOND).await;
    }
}

#[tokio::test]
async fn a_function_that_waits_for_a_thread_is_not_lost_with_the_caller_who_began_its_run() {
    let (gate, mut said, leave) = blocking_gate();
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let work = tool::blocking("work", "", move |_: NoArguments| count.fetch_add(1, Ordering::SeqCst).to_string());
    let runtime = team(model(), ["a"]).blocking_threads(1).tool(gate).tool(work.cached(60 * SECOND)).build().unwrap();
    let busy = spawned(&runtime, "a", "gate");
    assert_eq!(heard(&mut said).await, "began");
    let first = spawned(&runtime, "a", "work");
    let_all_tasks_run().await;
    let second = spawned(&runtime, "a", "work");
    let_all_tasks_run().await;
    first.abort();
    let_all_tasks_run().await;
    leave.send(()).unwrap();
    assert_eq!((busy.await.unwrap(), second.await.unwrap()), ("through".into(), "0".into()));
    assert_eq!(run(&runtime, "a", "work").await, "0", "it is kept");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_panics_is_a_failure_of_that_call_alone() {
    let cached = counted(&Arc::default()).cached(SECOND).keyed_by(|context| {
        assert!(context.get::<Tenant>().is_some(), "no tenant");
        tenant(context)
    });
    let runtime = team(model(), ["a"]).tool(cached).build().unwrap();
    assert_eq!(run(&runtime, "a", "work").await, "Error: [work] panicked: no tenant");
    let lent = runtime.user("u").forward("a", "work").with(Tenant("acme")).await.unwrap();
    assert_eq!(&*lent.output, "1");
}

#[test]
fn cancelled_at_any_time_no_nest_of_wrappers_keeps_a_place_or_a_run() {
    on_threads(4, async {
        let open = Arc::new(Semaphore::new(0));
        let (gate, passed) = (Arc::clone(&open), Arc::new(Notify::new()));
        let signal = Arc::clone(&passed);
        let work = With("work", move |_| {
            let (gate, signal) = (Arc::clone(&gate), Arc::clone(&signal));
            async move {
                signal.notify_one();
                let _turn = gate.acquire().await?;
                Ok("done".into())
            }
        });
        let human = |_: Arc<Forward>| async { Ok::<_, CallError>("yes") };
        let tool = work.at_most(1).approved_by("human").cached(SECOND).at_most(2).timeout(60 * SECOND);
        let runtime = team(model(), ["a"]).user("human", "", human).tool(tool).build().unwrap();
        for step in 0..200 {
            let call = spawned(&runtime, "a", "work work work");
            for _ in 0..step % 40 {
                tokio::task::yield_now().await;
            }
            call.abort();
        }
        runtime.idle().await;
        let_all_tasks_run().await;
        open.add_permits(1);
        assert_eq!(run(&runtime, "a", "work work work").await, "done | done | done");
        passed.notified().await;
    });
}
