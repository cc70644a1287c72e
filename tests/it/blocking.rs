//! Tools that block: on threads of the runtime's own, where they may do what blocks, and call agents.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use agentouto::providers::scripted::Scripted;
use agentouto::tool::{self, Blocking, NoArguments};
use agentouto::{
    Arguments, BoxFuture, CallError, ChatMessage, Content, EventKind, Reply, Request, Runtime, RuntimeBuilder, Tool,
    ToolContext, ToolError, ToolSpec,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::pending_tool::pending_tool;
use crate::silent_actor::silent;
use crate::team::{With, on_threads, team, tokio_runtime};

/// A tool that is polled where it may block.
struct Blocks<T>(T);

impl<T: Tool> Tool for Blocks<T> {
    fn spec(&self) -> ToolSpec {
        self.0.spec()
    }

    fn call(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        self.0.call(arguments, context)
    }

    fn blocking(&self) -> Blocking {
        Blocking::Always
    }
}

/// What the model reads of a function that blocks.
fn said(block: impl Fn() -> String + Send + Sync + 'static) -> String {
    on_threads(2, async move {
        let model = Scripted::computed(|request: &Request| match request.context.messages().last() {
            Some(ChatMessage::Tool { output, .. }) => Reply::text(Arc::clone(&output.content.text)),
            _ => Reply::tool("block", json!({})),
        });
        let block = tool::blocking("block", "", move |_: NoArguments| block());
        team(model, ["a"]).tool(block).build().unwrap().run("a", "go").await.unwrap().output.to_string()
    })
}

#[test]
fn a_function_that_blocks_may_have_a_tokio_runtime_of_its_own() {
    let own = || {
        let tokio = tokio_runtime(1);
        tokio.block_on(async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            "fine".to_owned()
        })
    };
    assert_eq!(said(own), "fine");
}

#[test]
fn a_function_that_blocks_may_wait_for_the_channels_and_locks_of_tokio() {
    let wait = || {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        sender.blocking_send("fine").unwrap();
        let lock = tokio::sync::Mutex::new(receiver.blocking_recv().unwrap());
        (*lock.blocking_lock()).to_owned()
    };
    assert_eq!(said(wait), "fine");
}

/// How many levels of a cycle are left.
#[derive(Deserialize, JsonSchema)]
struct Left {
    left: u64,
}

/// A model that goes down by the tool `deeper`.
fn descending() -> Scripted {
    Scripted::computed(|request: &Request| match (request.context.turns(), request.context.input().parse::<u64>()) {
        (0, Ok(left)) if left > 0 => Reply::tool("deeper", json!({"left": left - 1})),
        (_, Ok(0)) => Reply::text("bottom"),
        _ => match request.context.messages().last() {
            Some(ChatMessage::Tool { output, .. }) => Reply::text(Arc::clone(&output.content.text)),
            other => panic!("expected a tool's output, got {other:?}"),
        },
    })
}

#[test]
fn tools_that_block_call_agents_two_thousand_deep_on_two_threads() {
    struct Deeper;
    impl Tool for Deeper {
        fn spec(&self) -> ToolSpec {
            ToolSpec { name: "deeper".into(), description: "".into(), parameters: json!({"type": "object"}) }
        }
        fn call(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
            Box::pin(async move { Ok(context.caller.call_agent("a", arguments["left"].to_string()).await?) })
        }
    }
    on_threads(2, async {
        let runtime = team(descending(), ["a"]).tool(Blocks(Deeper)).blocking_threads(2).build().unwrap();
        assert_eq!(&*runtime.run("a", "2000").await.unwrap().output, "bottom");
    });
}

#[test]
fn functions_that_block_on_runs_are_nested_twenty_deep_on_one_thread() {
    on_threads(2, async {
        let handle: Arc<OnceLock<Runtime>> = Arc::default();
        let inside = Arc::clone(&handle);
        let deeper = tool::blocking("deeper", "", move |Left { left }: Left| {
            let run = inside.get().unwrap().run("a", left.to_string());
            Handle::current().block_on(run).map(|report| report.output)
        });
        let runtime = team(descending(), ["a"]).tool(deeper).blocking_threads(1).build().unwrap();
        handle.set(runtime.clone()).unwrap();
        assert_eq!(&*runtime.run("a", "20").await.unwrap().output, "bottom");
    });
}

#[tokio::test]
async fn fault_46_a_function_that_waits_for_its_turn_never_begins_after_its_call_was_cancelled() {
    let runs = Arc::new(AtomicUsize::new(0));
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let (count, gate) = (Arc::clone(&runs), Mutex::new(gate));
    let pay = tool::blocking("pay", "Pays.", move |_: NoArguments| {
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            // Ends with the test as well.
            let _ = gate.lock().unwrap().recv();
        }
    });
    let model = Scripted::computed(|request: &Request| match request.context.turns() {
        0 => Reply::tool("pay", json!({})),
        _ => Reply::text("done"),
    });
    let runtime = team(model, ["a"]).tool(pay).blocking_threads(1).build().unwrap();
    let first = tokio::spawn(runtime.user("alice").forward("a", "1"));
    while runs.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    // The tool's start and its wait for a thread are one step of its task, and this test has one thread.
    let mut second = runtime.user("alice").forward("a", "2");
    while !matches!(second.next_event().await.unwrap().kind, EventKind::ToolStart { .. }) {}
    second.cancel();
    assert_eq!(second.await.unwrap_err().error, CallError::Cancelled);
    release.send(()).unwrap();
    first.await.unwrap().unwrap();
    // What waits gets its turn in order: the second would have had its own.
    runtime.run("a", "3").await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2, "for the first and the third call");
}

/// The tokio runtime of the call has no time to drop what waits for a thread.
#[tokio::test]
async fn a_function_that_waits_for_its_turn_never_begins_although_its_tokio_runtime_is_blocked() {
    #[derive(Deserialize, JsonSchema)]
    struct Payment {
        to: String,
    }
    let (begins, begun) = std::sync::mpsc::channel();
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let pay = tool::blocking("pay", "Pays.", move |payment: Payment| {
        // Both end with the test as well.
        let _ = begins.send(payment.to);
        let _ = gate.lock().unwrap().recv();
    });
    let model = Scripted::computed(|request: &Request| match request.context.messages().last() {
        Some(ChatMessage::User(content)) => Reply::tool("pay", json!({"to": &*content.text})),
        _ => Reply::text("done"),
    });
    let runtime = team(model, ["a"]).tool(pay).blocking_threads(1).build().unwrap();
    let mut calls = ["first", "second", "third"].map(|to| runtime.user("alice").forward("a", to));
    for call in &mut calls {
        while !matches!(call.next_event().await.unwrap().kind, EventKind::ToolStart { .. }) {}
    }
    assert_eq!(begun.recv().unwrap(), "first");
    calls[1].cancel();
    release.send(()).unwrap();
    assert_eq!(begun.recv().unwrap(), "third");
}

#[tokio::test]
async fn a_tool_that_may_block_is_dropped_at_an_await_when_its_call_is_cancelled() {
    let (gate, mut keeper) = pending_tool();
    let model = Scripted::new().replies("a", [Reply::tool("gate", json!({}))]);
    let runtime = team(model, ["a"]).tool(Blocks(gate)).build().unwrap();
    let running = tokio::spawn(runtime.user("alice").forward("a", "go"));
    assert_eq!(keeper.next().await, "started");
    running.abort();
    assert_eq!(keeper.next().await, "dropped");
    runtime.idle().await;
}

#[tokio::test]
async fn a_tool_that_may_block_and_waits_for_an_actor_keeps_no_thread() {
    let (actor, mut said) = silent().await;
    let ask = With("ask", |context: ToolContext| async move { Ok(context.caller.call_agent("silent", "x").await?) });
    let model = Scripted::computed(|request: &Request| match (request.context.input(), request.context.turns()) {
        ("ask", 0) => Reply::tool("ask", json!({})),
        ("work", 0) => Reply::tool("work", json!({})),
        _ => Reply::text("done"),
    });
    let work = tool::blocking("work", "", |_: NoArguments| {});
    let runtime =
        team(model, ["a"]).tool(Blocks(ask)).tool(work).actor("silent", "", actor).blocking_threads(1).build().unwrap();
    let asking = tokio::spawn(runtime.user("alice").forward("a", "ask"));
    assert_eq!(said.recv().await, Some("asked"));
    assert_eq!(&*runtime.run("a", "work").await.unwrap().output, "done");
    assert!(!asking.is_finished());
    asking.abort();
    runtime.idle().await;
}

/// A function that waits for runs by `block_on`, and so gives up its place meanwhile.
mod a_function_that_blocks_on_runs {
    use super::*;

    /// A runtime with one thread, whose tool `outer` does this with the runtime.
    fn with_one_thread(
        model: Scripted,
        tools: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
        outer: impl Fn(&Runtime) -> String + Send + Sync + 'static,
    ) -> Runtime {
        let handle: Arc<OnceLock<Runtime>> = Arc::default();
        let inside = Arc::clone(&handle);
        let outer = tool::blocking("outer", "", move |_: NoArguments| outer(inside.get().unwrap()));
        let runtime = tools(team(model, ["a", "slow", "quick"]).tool(outer).blocking_threads(1)).build().unwrap();
        handle.set(runtime.clone()).unwrap();
        runtime
    }

    #[test]
    fn gives_up_its_place_until_the_last_of_them_has_ended() {
        on_threads(2, async {
            let quick_ended = Arc::new(Notify::new());
            let (ended, until) = (Arc::clone(&quick_ended), quick_ended);
            let wait = With("wait", move |_| {
                let until = Arc::clone(&until);
                async move {
                    until.notified().await;
                    Ok("".into())
                }
            });
            let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
                ("a", 0) => Reply::tool("outer", json!({})),
                // It needs a thread, once `quick` has ended.
                ("slow", 0) => Reply::tool("wait", json!({})),
                ("slow", 1) => Reply::tool("block", json!({})),
                _ => Reply::text("done"),
            });
            let block = tool::blocking("block", "", |_: NoArguments| {});
            let runtime = with_one_thread(
                model,
                |builder| builder.tool(wait).tool(block),
                move |runtime| {
                    let quick = async {
                        runtime.run("quick", "x").await.unwrap();
                        ended.notify_one();
                    };
                    // It polls them in this order.
                    let both = futures_util::future::join(runtime.run("slow", "x"), quick);
                    Handle::current().block_on(both).0.unwrap().output.to_string()
                },
            );
            assert_eq!(&*runtime.run("a", "go").await.unwrap().output, "done");
        });
    }

    #[test]
    fn takes_its_place_again_when_it_gives_them_up() {
        on_threads(2, async {
            let (said, mut saying) = tokio::sync::mpsc::unbounded_channel();
            let (release, gate) = std::sync::mpsc::channel::<()>();
            let gate = Mutex::new(gate);
            let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
                ("a", 0) => Reply::tool("outer", json!({})),
                ("quick", 0) => Reply::tool("block", json!({})),
                ("slow", 0) => Reply::tool("gate", json!({})),
                _ => Reply::text("done"),
            });
            let inner = said.clone();
            let block = tool::blocking("block", "", move |_: NoArguments| inner.send("inner begins").unwrap());
            let runtime = with_one_thread(
                model,
                |builder| builder.tool(crate::pending_tool::pending_tool().0).tool(block),
                move |runtime| {
                    let run = tokio::time::timeout(Duration::from_millis(1), runtime.run("slow", "x"));
                    assert!(Handle::current().block_on(async { run.await.is_err() }));
                    said.send("outer works").unwrap();
                    let _ = gate.lock().unwrap().recv();
                    said.send("outer ends").unwrap();
                    "worked".to_owned()
                },
            );
            let outer = tokio::spawn(runtime.user("alice").forward("a", "go"));
            assert_eq!(saying.recv().await, Some("outer works"));
            let mut inner = runtime.user("alice").forward("quick", "go");
            while !matches!(inner.next_event().await.unwrap().kind, EventKind::ToolStart { .. }) {}
            // Time to begin, for what must not.
            tokio::time::sleep(Duration::from_millis(50)).await;
            release.send(()).unwrap();
            inner.await.unwrap();
            outer.await.unwrap().unwrap();
            let rest: Vec<_> = std::iter::from_fn(|| saying.try_recv().ok()).collect();
            assert_eq!(rest, ["outer ends", "inner begins"], "one at a time");
        });
    }
}
