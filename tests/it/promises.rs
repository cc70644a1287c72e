//! What the documents promise of the core, where it is hard to keep. One test a promise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use agentouto::providers::scripted::{Scripted, ScriptedReply};
use agentouto::tool::{self, Blocking, NoArguments};
use agentouto::{
    Agent, Arguments, BoxFuture, CallError, CallId, Content, DeltaSink, Event, EventKind, Events, Incoming, Log,
    Message, Provider, ProviderError, Reply, ReplyPort, Request, Runtime, RuntimeBuilder, Tool, ToolContext, ToolError,
    ToolSpec, Usage,
};
use futures_util::FutureExt as _;
use futures_util::future::join;
use futures_util::poll;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::team::tokio_runtime;

// What the tests have in common.

fn several() -> tokio::runtime::Runtime {
    tokio_runtime(2)
}

fn single() -> tokio::runtime::Runtime {
    tokio_runtime(1)
}

/// Runs on a thread and a tokio runtime of its own, and fails when that takes too long.
fn within<T: Send + 'static>(
    seconds: u64,
    tokio: fn() -> tokio::runtime::Runtime,
    what: impl Future<Output = T> + Send + 'static,
) -> T {
    let (sender, receiver) = mpsc::channel();
    let running = thread::spawn(move || {
        let tokio = tokio();
        let _ = sender.send(tokio.block_on(what));
        tokio.shutdown_background();
    });
    match receiver.recv_timeout(Duration::from_secs(seconds)) {
        Ok(output) => output,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a hang: not over after {seconds} s"),
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(running.join().unwrap_err()),
    }
}

fn team<const N: usize>(model: impl Provider, agents: [&str; N]) -> RuntimeBuilder {
    Runtime::builder().provider("fake", model).agents(agents.map(|name| Agent::new(name, "Works.")))
}

fn path(log: &Log) -> Vec<String> {
    log.messages().map(|message| message.to_string()).collect()
}

/// A tool that needs nothing but its context.
struct With<F>(&'static str, Blocking, F);

impl<F, A> Tool for With<F>
where
    F: Fn(ToolContext) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Content, ToolError>> + Send + 'static,
{
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: self.0.into(), description: "".into(), parameters: json!({"type": "object"}) }
    }

    fn call(&self, _: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        Box::pin((self.2)(context))
    }

    fn blocking(&self) -> Blocking {
        self.1
    }
}

/// An actor whose whole behaviour is a function.
struct Served;

type Serve = Box<dyn FnMut(Incoming, &ActorRef<Asked>) + Send>;

struct Asked(Incoming);

impl From<Incoming> for Asked {
    fn from(incoming: Incoming) -> Self {
        Self(incoming)
    }
}

impl Actor for Served {
    type Msg = Asked;
    type State = Serve;
    type Arguments = Serve;

    async fn pre_start(&self, _: ActorRef<Asked>, serve: Serve) -> Result<Serve, ActorProcessingErr> {
        Ok(serve)
    }

    async fn handle(&self, me: ActorRef<Asked>, asked: Asked, serve: &mut Serve) -> Result<(), ActorProcessingErr> {
        serve(asked.0, &me);
        Ok(())
    }
}

async fn actor(serve: impl FnMut(Incoming, &ActorRef<Asked>) + Send + 'static) -> ActorRef<Asked> {
    Served::spawn(None, Served, Box::new(serve)).await.unwrap().0
}

/// How many do a thing at the same time, and how many did at most.
#[derive(Clone, Default)]
struct AtOnce(Arc<(AtomicUsize, AtomicUsize)>);

impl AtOnce {
    fn measured(&self) {
        let (now, most) = &*self.0;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(150));
        now.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

// Threads of tools that block.

/// `RuntimeBuilder::blocking_threads`: so many functions run at the same time; one that waits for a call of an agent is
/// not counted meanwhile.
#[test]
fn no_more_functions_block_than_the_limit_after_one_has_waited_for_a_call() {
    let measured = AtOnce::default();
    let most = measured.clone();
    within(20, several, async move {
        let ask = With("ask", Blocking::Always, |context: ToolContext| async move {
            Ok(Handle::current().block_on(context.caller.call_agent("b", "x"))?)
        });
        let measure = tool::blocking("measure", "", move |_: NoArguments| measured.measured());
        let nothing = tool::blocking("nothing", "", |_: NoArguments| {});
        let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
            ("a", 0) => Reply::tool("ask", json!({})),
            ("a", 1) => Reply::tool("measure", json!({})).and_tool("measure", json!({})).and_tool("measure", json!({})),
            ("b", 0) => Reply::tool("nothing", json!({})),
            _ => Reply::text("done"),
        });
        let runtime = team(model, ["a", "b"]).tool(ask).tool(measure).tool(nothing).blocking_threads(1);
        runtime.build().unwrap().run("a", "go").await.unwrap();
    });
    assert_eq!(most.most(), 1);
}

/// The same when the function keeps the call beyond its end.
#[test]
fn no_more_functions_block_than_the_limit_after_one_has_kept_a_call() {
    let measured = AtOnce::default();
    let most = measured.clone();
    within(20, several, async move {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keeping = Arc::clone(&kept);
        let keep = With("keep", Blocking::Always, move |context: ToolContext| {
            let kept = Arc::clone(&keeping);
            async move {
                let mut calling = context.caller.call_agent("b", "x");
                assert!(poll!(&mut calling).is_pending());
                kept.lock().unwrap().push(calling);
                Ok("kept".into())
            }
        });
        let measure = tool::blocking("measure", "", move |_: NoArguments| measured.measured());
        let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
            ("a", 0) => Reply::tool("keep", json!({})).into(),
            ("a", 1) => (0..3).fold(Reply::default(), |reply, _| reply.and_tool("measure", json!({}))).into(),
            ("b", _) => ScriptedReply::from(Reply::text("late")).after(Duration::from_secs(3_600)),
            _ => Reply::text("done").into(),
        });
        let runtime = team(model, ["a", "b"]).tool(keep).tool(measure).blocking_threads(1);
        runtime.build().unwrap().run("a", "go").await.unwrap();
        drop(kept);
    });
    assert_eq!(most.most(), 1);
}

/// The same when the function began the call in another poll, before an await.
#[test]
fn a_function_that_goes_on_to_wait_for_a_call_gives_its_place_to_another() {
    let output = within(20, several, async {
        let (waits, goes_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (begun, go) = (Arc::clone(&waits), Arc::clone(&goes_on));
        let ask = With("ask", Blocking::Always, move |context: ToolContext| {
            let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
            async move {
                let mut below = context.caller.call_agent("below", "x");
                assert!(poll!(&mut below).is_pending());
                begun.notified().await;
                go.notify_one();
                Handle::current().block_on(below)?;
                Ok("done".into())
            }
        });
        let wait = With("wait", Blocking::Never, move |_| {
            let (waits, goes_on) = (Arc::clone(&waits), Arc::clone(&goes_on));
            async move {
                waits.notify_one();
                goes_on.notified().await;
                Ok("waited".into())
            }
        });
        let block = tool::blocking("block", "", |_: NoArguments| Ok::<_, String>("blocked"));
        let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
            ("a", 0) => Reply::tool("ask", json!({})),
            ("below", 0) => Reply::tool("wait", json!({})),
            ("below", 1) => Reply::tool("block", json!({})),
            _ => Reply::text("over"),
        });
        let runtime = team(model, ["a", "below"]).tool(ask).tool(wait).tool(block).blocking_threads(1);
        runtime.build().unwrap().run("a", "go").await.unwrap().output
    });
    assert_eq!(&*output, "over");
}

/// The head of `threads`: a thread that waits for a call of an agent, by `block_on`, gives its place to another.
#[test]
fn a_function_that_waits_for_two_calls_at_once_keeps_nobody_from_going_on() {
    let output = within(10, several, async {
        let quick_is_over = Arc::new(Notify::new());
        let says_so = Arc::clone(&quick_is_over);
        let ask = With("ask", Blocking::Always, |context: ToolContext| async move {
            let slow = context.caller.call_agent("slow", "x");
            let quick = context.caller.call_agent("quick", "x");
            let (slow, _) = Handle::current().block_on(join(slow, quick));
            Ok(slow?)
        });
        let wait = With("wait", Blocking::Never, move |_| {
            let quick_is_over = Arc::clone(&quick_is_over);
            async move {
                quick_is_over.notified().await;
                // The function has been woken, and sleeps again.
                tokio::time::sleep(Duration::from_millis(200)).await;
                Ok("".into())
            }
        });
        let nothing = tool::blocking("nothing", "", |_: NoArguments| {});
        let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
            ("a", 0) => Reply::tool("ask", json!({})),
            ("slow", 0) => Reply::tool("wait", json!({})),
            ("slow", 1) => Reply::tool("nothing", json!({})),
            _ => Reply::text("done"),
        });
        let runtime = team(model, ["a", "slow", "quick"]).tool(ask).tool(wait).tool(nothing).blocking_threads(1);
        let runtime = runtime.build().unwrap();
        let mut events = runtime.events(1000);
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                if matches!(&event.kind, EventKind::Return { answer } if &*answer.sender == "quick") {
                    says_so.notify_one();
                }
            }
        });
        runtime.run("a", "go").await.unwrap().output
    });
    assert_eq!(&*output, "done");
}

/// `Tool`: a tool's future is dropped at its next await when the call that it serves is cancelled. `Call`: a call is over
/// when the tools below it have ended; only what blocks cannot be.
#[test]
fn a_tool_that_may_block_and_awaits_is_dropped_when_its_call_is_cancelled() {
    struct Dropped(mpsc::Sender<bool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            let _ = self.0.send(Handle::try_current().is_ok());
        }
    }
    let (sender, dropped) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    let sender = Mutex::new(sender);
    let how = within(20, several, async move {
        let begun = Arc::new(Notify::new());
        let begins = Arc::clone(&begun);
        let awaits = With("awaits", Blocking::Always, move |_| {
            let held = Dropped(sender.lock().unwrap().clone());
            let begins = Arc::clone(&begins);
            async move {
                let _held = held;
                begins.notify_one();
                pending().await
            }
        });
        let hogs = tool::blocking("hogs", "", move |_: NoArguments| {
            let _ = ended.lock().unwrap().recv();
        });
        let model = Scripted::new()
            .replies("a", [Reply::tool("awaits", json!({}))])
            .replies("b", [Reply::tool("hogs", json!({}))]);
        let runtime = team(model, ["a", "b"]).tool(awaits).tool(hogs).blocking_threads(1).build().unwrap();
        let mut call = runtime.user("alice").forward("a", "go");
        tokio::select! {
            _ = &mut call => panic!("it is not over"),
            () = begun.notified() => {}
        }
        // The only thread is taken by a function of another call.
        let mut events = runtime.events(100);
        let other = tokio::spawn(runtime.user("bob").forward("b", "go"));
        while !matches!(events.next().await.unwrap().kind, EventKind::ToolStart { .. }) {}
        tokio::time::sleep(Duration::from_millis(100)).await;
        call.cancel();
        assert_eq!(call.await.unwrap_err().error, CallError::Cancelled);
        let how = dropped.try_recv();
        drop(end);
        let _ = other.await;
        how.or_else(|_| {
            dropped
                .recv_timeout(Duration::from_secs(5))
                .map(|context| panic!("dropped only when a thread was free; within tokio: {context}"))
        })
    });
    assert_eq!(how, Ok::<_, mpsc::RecvTimeoutError>(true));
}

/// The head of `threads`: the future is polled within the tokio runtime of the caller; so must its drop be, or what it
/// owns cannot be freed by it.
#[test]
fn a_tool_that_may_block_and_awaits_is_dropped_within_tokio() {
    struct Dropped(mpsc::Sender<bool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            let _ = self.0.send(Handle::try_current().is_ok());
        }
    }
    let (sender, dropped) = mpsc::channel();
    let sender = Mutex::new(sender);
    within(20, several, async move {
        let begun = Arc::new(Notify::new());
        let begins = Arc::clone(&begun);
        let awaits = With("awaits", Blocking::Always, move |_| {
            let held = Dropped(sender.lock().unwrap().clone());
            let begins = Arc::clone(&begins);
            async move {
                let _held = held;
                begins.notify_one();
                pending().await
            }
        });
        let model = Scripted::new().replies("a", [Reply::tool("awaits", json!({}))]);
        let runtime = team(model, ["a"]).tool(awaits).build().unwrap();
        let running = tokio::spawn(runtime.user("alice").forward("a", "go"));
        begun.notified().await;
        running.abort();
        runtime.idle().await;
    });
    assert_eq!(dropped.recv_timeout(Duration::from_secs(5)), Ok(true));
}

// Actors.

/// Panics when a Forward is made its message.
struct Unfit;

struct Never;

impl From<Incoming> for Never {
    fn from(_: Incoming) -> Self {
        panic!("cannot be made a message")
    }
}

impl Actor for Unfit {
    type Msg = Never;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Never>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

/// README: whatever happens (a panic), a Forward has exactly one outcome. The head of the crate: a panic is the
/// `CallError` of the call it happened in.
#[tokio::test]
async fn a_panic_while_a_forward_is_made_a_message_is_the_error_of_that_call() {
    let (unfit, _) = Unfit::spawn(None, Unfit, ()).await.unwrap();
    let model = Scripted::new().replies("a", [Reply::call_agent("clerk", "x"), Reply::text("never mind")]);
    let runtime = team(model, ["a"]).actor("clerk", "", unfit.clone()).build().unwrap();
    let by_agent = runtime.run("a", "go").await;
    assert_eq!(by_agent.map(|report| report.output).map_err(|error| error.error), Ok("never mind".into()));
}

/// The same where a user calls.
#[tokio::test]
async fn a_panic_while_a_forward_is_made_a_message_does_not_reach_the_user() {
    let (unfit, _) = Unfit::spawn(None, Unfit, ()).await.unwrap();
    let runtime = Runtime::builder().actor("clerk", "", unfit.clone()).build().unwrap();
    let by_user = tokio::spawn(async move { runtime.run("clerk", "go").await.unwrap_err().error }).await;
    let panicked = CallError::Panicked { name: "clerk".into(), message: "cannot be made a message".into() };
    assert_eq!(by_user.ok(), Some(panicked));
}

/// `Call`: those below that cannot end, because their tokio runtime is not driven, are waited for one second more.
#[test]
fn an_actor_that_has_answered_is_not_waited_for_because_of_a_call_that_cannot_end() {
    let result = within(10, several, async {
        let idle = Arc::new(single());
        let kept = Arc::clone(&idle);
        let clerk = actor(move |incoming, _| {
            let _idle = kept.enter();
            let asked = incoming.caller.call_agent("b", "x");
            assert!(asked.now_or_never().is_none());
            incoming.reply.send(Ok("done"));
        })
        .await;
        let model = Scripted::new().replies("b", [Reply::text("never")]);
        let runtime = team(model, ["b"]).actor("clerk", "", clerk).build().unwrap();
        let result = runtime.run("clerk", "go").await;
        std::mem::forget(idle);
        result.map(|report| report.output).map_err(|error| error.error)
    });
    assert_eq!(result, Ok("done".into()));
}

/// The same for a tool of an agent, and many other calls of the runtime that have nothing to do with it.
#[test]
fn a_call_is_not_waited_for_because_of_other_calls_that_have_nothing_to_do_with_it() {
    let result = within(15, several, async {
        let idle = Arc::new(single());
        let kept = Arc::clone(&idle);
        let leaves = With("leaves", Blocking::Never, move |context: ToolContext| {
            let kept = Arc::clone(&kept);
            async move {
                let _idle = kept.enter();
                let asked = context.caller.call_agent("b", "x");
                assert!(asked.now_or_never().is_none());
                Ok("left".into())
            }
        });
        let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
            ("a", 0) => Reply::tool("leaves", json!({})),
            _ => Reply::text("done"),
        });
        let runtime = team(model, ["a", "b", "c"]).tool(leaves).build().unwrap();
        let others = runtime.user("others").caller();
        tokio::spawn(async move {
            loop {
                let _ = others.call_agent("c", "x").await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        let result = runtime.user("alice").caller().call_agent("a", "go").await;
        std::mem::forget(idle);
        result
    });
    assert_eq!(result, Ok("done".into()));
}

/// `Runtime::shutdown`: calls that do not end are waited for as long as other calls end, and one second more. Those that
/// fail with `ShutDown` have never been alive.
#[test]
fn a_shutdown_ends_though_further_calls_are_tried() {
    within(15, several, async {
        let idle = single();
        let model = Scripted::new().replies("a", [Reply::text("never")]);
        let runtime = team(model, ["a"]).build().unwrap();
        let mut stuck = runtime.user("alice").forward("a", "go");
        {
            let _idle = idle.enter();
            assert!((&mut stuck).now_or_never().is_none());
        }
        let tried = runtime.clone();
        tokio::spawn(async move {
            loop {
                let _ = tried.run("a", "go").await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        runtime.shutdown().await;
        std::mem::forget(idle);
    });
}

/// `outcome`: a call is over when no call that it made is alive any more; then, and nowhere else, its Return is made.
#[test]
fn a_return_comes_after_those_of_the_calls_below_although_an_actor_answers_late() {
    let lines = within(10, single, async {
        let port: Arc<Mutex<Option<ReplyPort>>> = Arc::default();
        let (keeps, mut tasks) = (Arc::clone(&port), Vec::new());
        let clerk = actor(move |incoming, _| {
            *keeps.lock().unwrap() = Some(incoming.reply);
            tasks.push(tokio::spawn(incoming.caller.call_agent("b", "x")));
        })
        .await;
        let late = ScriptedReply::from(Reply::text("late")).after(Duration::from_secs(60));
        let runtime = team(Scripted::new().replies("b", [late]), ["b"]).actor("clerk", "", clerk).build().unwrap();
        let mut call = runtime.user("alice").forward("clerk", "go");
        while !matches!(call.next_event().await.unwrap().kind, EventKind::ModelRequest { .. }) {}
        call.cancel();
        port.lock().unwrap().take().unwrap().send(Ok("too late"));
        path(&call.await.unwrap_err().log)
    });
    let cancelled = ["clerk < b: error: the call was cancelled", "alice < clerk: error: the call was cancelled"];
    assert_eq!(lines[2..], cancelled);
}

/// `CallError::Cancelled`: the caller cancelled the call. `CallError::Unanswered`: the callee ended without an answer.
#[test]
fn a_call_that_nobody_cancelled_does_not_say_that_it_was() {
    let error = within(10, several, async {
        let is_asked = Arc::new(Notify::new());
        let model = Costly { drop_takes: Duration::from_millis(300), is_asked: Arc::clone(&is_asked), depth: 0 };
        let clerk = actor(move |incoming, me| {
            let Incoming { caller, reply, .. } = incoming;
            tokio::spawn(async move {
                let mut asked = caller.call_agent("b", "x");
                tokio::select! {
                    biased;
                    () = reply.cancelled() => {}
                    _ = &mut asked => {}
                }
                reply.send(Err::<Content, _>(CallError::failed("on its way out")));
            });
            let (me, is_asked) = (me.clone(), Arc::clone(&is_asked));
            tokio::spawn(async move {
                is_asked.notified().await;
                me.stop(None);
            });
        })
        .await;
        let runtime = team(model, ["b"]).actor("clerk", "", clerk).build().unwrap();
        runtime.run("clerk", "go").await.unwrap_err().error
    });
    assert_ne!(error, CallError::Cancelled);
}

// Ids.

/// `RuntimeBuilder::call_ids`: a call whose id is that of one under way fails.
#[tokio::test]
async fn an_id_is_in_use_as_long_as_its_call_is_alive() {
    let model = Scripted::new().replies_to_any("a", [Reply::text("done")]);
    let id = CallId::seeded(1)();
    let runtime = team(model, ["a"]).call_ids(move || id).build().unwrap();
    let caller = runtime.user("alice").caller();
    assert!(caller.call_agent("a", "first").now_or_never().is_none());
    assert_eq!(runtime.invocations(), 1, "the first one has been cancelled, and is alive");
    assert_eq!(caller.call_agent("a", "second").await, Err(CallError::IdInUse { call_id: id }));
}

/// `RuntimeBuilder::call_ids`: a call that the source makes itself has a random id.
#[test]
fn a_source_of_ids_that_panicked_on_another_thread_may_call_as_before() {
    within(10, single, async {
        let place: Arc<OnceLock<Runtime>> = Arc::default();
        let (inside, mut drawn) = (Arc::clone(&place), 0);
        let (says, said) = mpsc::channel();
        let source = move || {
            drawn += 1;
            if drawn == 1 {
                says.send(()).unwrap();
                thread::sleep(Duration::from_millis(300));
                panic!("the first one");
            }
            drop(inside.get().unwrap().user("source").forward("a", "go"));
            CallId::random()
        };
        let model = Scripted::new().replies("a", [Reply::text("done")]);
        let runtime = team(model, ["a"]).call_ids(source).build().unwrap();
        place.set(runtime.clone()).unwrap();
        let other = runtime.clone();
        let first = thread::spawn(move || drop(other.user("first").forward("a", "go")));
        said.recv().unwrap();
        // The source is running: this one waits for it, and then has its turn.
        drop(runtime.user("second").forward("a", "go"));
        assert!(first.join().is_err());
    });
}

// Futures that are polled in other ways.

/// `Caller::call_agent`: nothing is sent before the future is first polled; from then on the callee works by itself,
/// whether or not the future is polled again.
#[tokio::test]
async fn every_call_that_was_polled_once_is_sent() {
    let late = |_: &Request| ScriptedReply::from(Reply::text("late")).after(Duration::from_secs(60));
    let runtime = team(Scripted::computed(late), ["a"]).build().unwrap();
    let caller = runtime.user("alice").caller();
    let mut calls: Vec<_> = (0..300).map(|_| caller.call_agent("a", "go")).collect();
    poll_fn(|context| {
        assert!(calls.iter_mut().all(|call| call.poll_unpin(context).is_pending()));
        Poll::Ready(())
    })
    .await;
    assert_eq!(runtime.invocations(), 300);
}

/// `Call`: the call may still be awaited, for its log. Sent within tokio, it works by itself.
#[test]
fn a_call_that_was_sent_within_tokio_can_be_cancelled_and_awaited_elsewhere() {
    let tokio = several();
    let late = |_: &Request| ScriptedReply::from(Reply::text("late")).after(Duration::from_secs(60));
    let runtime = team(Scripted::computed(late), ["a"]).build().unwrap();
    let mut call = runtime.user("alice").forward("a", "go");
    tokio.block_on(async {
        assert!((&mut call).now_or_never().is_none());
    });
    call.cancel();
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let result = loop {
        match call.poll_unpin(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => break result,
            Poll::Pending => thread::park(),
        }
    };
    assert_eq!(result.unwrap_err().error, CallError::Cancelled);
}

/// README: whatever happens (a panic), a Forward has exactly one outcome.
#[test]
fn a_reader_of_events_whose_waker_panics_takes_nobodys_outcome() {
    struct Panics(AtomicBool);
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            if self.0.swap(false, Ordering::SeqCst) {
                panic!("a waker");
            }
        }
    }
    let output = within(10, single, async {
        let model = Scripted::new().replies("a", [Reply::call_agent("bob", "x"), Reply::text("done")]);
        let bob = |_| async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok("yes")
        };
        let runtime = team(model, ["a"]).user("bob", "", bob).build().unwrap();
        let mut events = runtime.events(100);
        let mut call = runtime.user("alice").forward("a", "go");
        let to_bob = |event: Event| matches!(event.kind, EventKind::Forward { forward } if &*forward.receiver == "bob");
        while {
            tokio::select! {
                _ = &mut call => panic!("it is not over"),
                event = events.next() => !to_bob(event.unwrap()),
            }
        } {}
        // The next event is the Return of bob.
        let waker = Waker::from(Arc::new(Panics(AtomicBool::new(true))));
        let mut next = pin!(events.next());
        assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        call.await.map(|report| report.output).map_err(|error| error.error)
    });
    assert_eq!(output, Ok("done".into()));
}

// Ends.

/// A model that does not answer, and says what it has cost so far.
struct Costly {
    drop_takes: Duration,
    is_asked: Arc<Notify>,
    depth: usize,
}

struct Dropping(Duration);

impl Drop for Dropping {
    fn drop(&mut self) {
        thread::sleep(self.0);
    }
}

impl Provider for Costly {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            let left: usize = request.context.input().parse().unwrap_or(self.depth);
            if left > 0 {
                return Ok(Reply::call_agent("a", &(left - 1).to_string()));
            }
            let _dropping = Dropping(self.drop_takes);
            deltas.usage_so_far(Usage { input_tokens: 70, output_tokens: 7, ..Usage::default() });
            self.is_asked.notify_one();
            pending().await
        })
    }
}

/// `Call`: a call is over when all calls below it have their outcomes and their tools have ended; what is not waited for
/// blocks its thread, or its tokio runtime is not driven. `EventKind::ModelAborted` says what is known of the cost.
#[test]
fn the_cost_of_a_model_is_known_however_deep_it_was_when_the_call_was_cancelled() {
    let usage = within(120, single, async {
        let is_asked = Arc::new(Notify::new());
        let depth = std::env::var("STRIKE_DEPTH").ok().and_then(|depth| depth.parse().ok()).unwrap_or(100_000);
        let model = Costly { drop_takes: Duration::ZERO, is_asked: Arc::clone(&is_asked), depth };
        let runtime = team(model, ["a"]).build().unwrap();
        let mut call = runtime.user("alice").forward("a", "go");
        tokio::select! {
            _ = &mut call => panic!("it is not over"),
            () = is_asked.notified() => {}
        }
        let begun = std::time::Instant::now();
        call.cancel();
        let error = call.await.unwrap_err();
        eprintln!("cancelled in {:?}", begun.elapsed());
        error.log.usage()
    });
    assert_eq!(usage, Usage { input_tokens: 70, output_tokens: 7, ..Usage::default() });
}

/// `Call`: cancelling ends everything below. `scope`: once it is cancelled, nothing new begins.
#[test]
fn a_call_that_is_over_makes_no_forward() {
    struct Blocks(Mutex<mpsc::Receiver<()>>, Arc<Notify>);
    impl Provider for Blocks {
        fn reply<'a>(
            &'a self,
            _: &'a Request,
            _: &'a mut DeltaSink<'_>,
        ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
            self.1.notify_one();
            let _ = self.0.lock().unwrap().recv();
            Box::pin(async { Ok(Reply::call_agent("a", "again")) })
        }
    }
    let kinds = within(20, several, async {
        let (end, ended) = mpsc::channel();
        let is_asked = Arc::new(Notify::new());
        let runtime = team(Blocks(Mutex::new(ended), Arc::clone(&is_asked)), ["a"]).build().unwrap();
        let mut events = runtime.events(100);
        let mut call = runtime.user("alice").forward("a", "go");
        tokio::select! {
            _ = &mut call => panic!("it is not over"),
            () = is_asked.notified() => {}
        }
        call.cancel();
        assert_eq!(call.await.unwrap_err().error, CallError::Cancelled);
        drop(end);
        tokio::time::sleep(Duration::from_millis(300)).await;
        std::iter::from_fn(|| events.try_next()).map(|event| event.kind).collect::<Vec<_>>()
    });
    let last = kinds.last().unwrap();
    assert!(matches!(last, EventKind::Return { answer } if &*answer.receiver == "alice"), "{kinds:#?}");
}

/// `scope`: once it is cancelled, nothing new begins. A tool that pays must not pay for a call that is over.
#[test]
fn a_call_that_is_over_runs_no_tool() {
    struct Blocks(Mutex<mpsc::Receiver<()>>, Arc<Notify>);
    impl Provider for Blocks {
        fn reply<'a>(
            &'a self,
            _: &'a Request,
            _: &'a mut DeltaSink<'_>,
        ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
            self.1.notify_one();
            let _ = self.0.lock().unwrap().recv();
            let pays = (0..100).fold(Reply::default(), |reply, _| reply.and_tool("pay", json!({})));
            Box::pin(async { Ok(pays) })
        }
    }
    let paid = Arc::new(AtomicUsize::new(0));
    let pays = Arc::clone(&paid);
    within(20, several, async move {
        let (end, ended) = mpsc::channel();
        let is_asked = Arc::new(Notify::new());
        let pay = tool::function("pay", "", move |_: NoArguments| {
            pays.fetch_add(1, Ordering::SeqCst);
            async {}
        });
        let model = Blocks(Mutex::new(ended), Arc::clone(&is_asked));
        let runtime = team(model, ["a"]).tool(pay).build().unwrap();
        let mut call = runtime.user("alice").forward("a", "go");
        tokio::select! {
            _ = &mut call => panic!("it is not over"),
            () = is_asked.notified() => {}
        }
        call.cancel();
        assert_eq!(call.await.unwrap_err().error, CallError::Cancelled);
        assert_eq!(runtime.invocations(), 0);
        drop(end);
        tokio::time::sleep(Duration::from_millis(300)).await;
    });
    assert_eq!(paid.load(Ordering::SeqCst), 0);
}

/// `Runtime::shutdown`: waits until all calls have their outcomes, and ends the streams.
#[test]
fn a_shutdown_waits_on_a_tokio_runtime_without_time() {
    fn timeless() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }
    let left = within(20, timeless, async {
        let is_asked = Arc::new(Notify::new());
        let drop_takes = Duration::from_millis(200);
        let model = Costly { drop_takes, is_asked: Arc::clone(&is_asked), depth: 0 };
        let runtime = team(model, ["a"]).build().unwrap();
        let other = several();
        let _running = other.spawn(runtime.user("alice").forward("a", "go"));
        is_asked.notified().await;
        runtime.shutdown().await;
        let left = runtime.invocations();
        other.shutdown_background();
        left
    });
    assert_eq!(left, 0);
}

/// `Runtime::shutdown`: further calls fail with `ShutDown`.
#[tokio::test]
async fn after_a_shutdown_a_call_of_nobody_fails_with_that() {
    let runtime = team(Scripted::new(), ["a"]).build().unwrap();
    runtime.shutdown().await;
    assert_eq!(runtime.run("nobody", "go").await.unwrap_err().error, CallError::ShutDown);
}

/// The head of the crate: a panic in a tool is an error that the model reads. What a tool gave is not lost to it.
#[tokio::test]
async fn a_tool_that_has_left_and_panics_in_its_drop_says_so_to_the_model() {
    struct Grenade(Arc<OnceLock<Runtime>>);
    impl Drop for Grenade {
        fn drop(&mut self) {
            panic!("in its drop");
        }
    }
    impl Tool for Grenade {
        fn spec(&self) -> ToolSpec {
            ToolSpec { name: "grenade".into(), description: "".into(), parameters: json!({"type": "object"}) }
        }
        fn call(&self, _: Arguments, _: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
            assert!(self.0.get().unwrap().remove_tool("grenade"));
            Box::pin(async { Ok("given".into()) })
        }
    }
    let place: Arc<OnceLock<Runtime>> = Arc::default();
    let model = Scripted::new().replies("a", [Reply::tool("grenade", json!({})), Reply::text("done")]);
    let runtime = team(model, ["a"]).tool(Grenade(Arc::clone(&place))).build().unwrap();
    let _ = place.set(runtime.clone());
    let output = runtime.run("a", "go").await.map(|report| report.output).map_err(|error| error.error);
    assert_eq!(output, Ok("done".into()));
}

/// `Runtime::shutdown` cancels every call. Who waits for one may use the runtime when it is woken.
#[test]
fn a_waker_may_use_the_runtime_while_it_is_shut_down() {
    struct Uses(Runtime);
    impl Wake for Uses {
        fn wake(self: Arc<Self>) {
            drop(self.0.user("w").forward("a", "x"));
        }
    }
    within(10, several, async {
        let late = |_: &Request| ScriptedReply::from(Reply::text("late")).after(Duration::from_secs(60));
        let runtime = team(Scripted::computed(late), ["a"]).build().unwrap();
        let waker = Waker::from(Arc::new(Uses(runtime.clone())));
        let mut call = runtime.user("alice").forward("a", "go");
        assert!(call.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
        runtime.shutdown().await;
        assert_eq!(call.await.unwrap_err().error, CallError::Cancelled);
    });
}

// Names.

/// `RuntimeBuilder::build`: not when a name has invisible characters, or ends with white space, or is reserved.
#[test]
fn no_name_is_invisible_in_whole_or_in_part() {
    let accepted = |name: &&str| {
        let provider = Runtime::builder().provider("fake", Scripted::new());
        provider.agent(Agent::new(*name, "")).build().is_ok()
    };
    let names = [
        "\u{fe0f}",
        "\u{fe0f}\u{fe0e}",
        "a \u{fe0f}",
        "\u{fe0f} a",
        "user\u{180f}",
        "user\u{2065}",
        "user\u{e0080}",
        "user\u{fff0}",
        "\u{301}\u{200d}\u{301}",
    ];
    let accepted: Vec<_> = names.iter().filter(|name| accepted(name)).collect();
    assert!(accepted.is_empty(), "{accepted:?}");
}

// What further was tried.

/// A chain of tools that call agents, cancelled and dropped with its tokio runtime.
#[test]
fn a_chain_through_tools_of_any_depth_ends() {
    for drops in [false, true] {
        let thread = thread::Builder::new().stack_size(2 << 20).spawn(move || {
            let tokio = single();
            let deep = With("deep", Blocking::Never, |context: ToolContext| async move {
                Ok(context.caller.call_agent("a", "x").await?)
            });
            let count = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&count);
            let model = Scripted::computed(move |_: &Request| match counted.fetch_add(1, Ordering::SeqCst) {
                20_000 => ScriptedReply::from(Reply::text("late")).after(Duration::from_secs(600)),
                _ => Reply::tool("deep", json!({})).into(),
            });
            let runtime = team(model, ["a"]).tool(deep).build().unwrap();
            let mut call = runtime.user("alice").forward("a", "go");
            tokio.block_on(async {
                while count.load(Ordering::SeqCst) <= 20_000 {
                    let _ = (&mut call).now_or_never();
                    tokio::task::yield_now().await;
                }
                if !drops {
                    call.cancel();
                    assert!(call.await.is_err());
                    assert_eq!(runtime.invocations(), 0);
                }
            });
            drop(tokio);
            assert_eq!(runtime.invocations(), 0);
        });
        thread.unwrap().join().unwrap();
    }
}

/// Readers whose wakers use the runtime.
#[test]
fn a_waker_may_use_the_runtime() {
    struct Uses(Runtime, Arc<Mutex<Vec<agentouto::Call>>>, Mutex<Option<Events>>);
    impl Wake for Uses {
        fn wake(self: Arc<Self>) {
            let n = CallId::random().to_string();
            self.0.join(Agent::new(n.clone(), "")).unwrap();
            self.0.leave(&n);
            let events = self.0.events(5);
            *self.2.lock().unwrap() = Some(events);
            let tool = tool::function("t", "", |_: NoArguments| async {});
            self.0.add_tool(tool).unwrap();
            self.0.remove_tool("t");
            self.1.lock().unwrap().iter().for_each(agentouto::Call::cancel);
            let _ = self.0.user("w").forward("b", "x").now_or_never();
        }
    }
    within(20, several, async {
        let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
            ("a", 0) => (0..100).fold(Reply::default(), |reply, n| reply.and_call_agent("b", &n.to_string())),
            _ => Reply::text("done"),
        });
        let runtime = team(model, ["a", "b"]).build().unwrap();
        let calls = Arc::new(Mutex::new(vec![runtime.user("x").forward("a", "go")]));
        let uses = Arc::new(Uses(runtime.clone(), calls, Mutex::default()));
        let mut events = runtime.events(10_000);
        let running = tokio::spawn(runtime.user("alice").forward("a", "go"));
        let waker = Waker::from(uses);
        for _ in 0..1_000 {
            let mut next = pin!(events.next());
            let _ = next.as_mut().poll(&mut Context::from_waker(&waker));
            tokio::task::yield_now().await;
        }
        let _ = running.await.unwrap();
        runtime.shutdown().await;
        assert_eq!(runtime.invocations(), 0);
    });
}

/// Every message of a log has its answer, whoever answers when.
#[test]
fn logs_are_balanced_when_actors_answer_while_they_call() {
    within(60, several, async {
        let clerk = actor(|incoming, _| {
            let Incoming { caller, reply, .. } = incoming;
            thread::spawn({
                let (caller, tokio) = (caller.clone(), Handle::current());
                move || {
                    let _tokio = tokio.enter();
                    for _ in 0..50 {
                        let _ = caller.call_agent("b", "x").now_or_never();
                    }
                }
            });
            tokio::spawn(async move {
                tokio::task::yield_now().await;
                reply.send(Ok("done"));
            });
        })
        .await;
        let model = Scripted::computed(|_: &Request| Reply::text("done"));
        let runtime = team(model, ["b"]).actor("clerk", "", clerk).build().unwrap();
        let mut late = 0;
        for _ in 0..1_000 {
            let log = runtime.run("clerk", "go").await.unwrap().log;
            let mut open = 0;
            let mut is_over = false;
            for message in log.messages() {
                match message {
                    Message::Forward(_) => {
                        open += 1;
                        late += usize::from(is_over);
                    }
                    Message::Return(answer) => {
                        open -= 1;
                        is_over |= answer.parent.is_none();
                    }
                }
            }
            assert_eq!(open, 0);
        }
        assert_eq!(late, 0, "Forwards after the Return of the call that made them");
    });
}

/// Nothing but calls takes tasks: those that are over leave none behind.
#[test]
fn calls_that_are_over_leave_no_tasks() {
    let left = within(60, several, async {
        let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
            ("a", 0) => Reply::call_agent("b", "x"),
            _ => Reply::text("done"),
        });
        let runtime = team(model, ["a", "b"]).build().unwrap();
        for _ in 0..5_000 {
            runtime.run("a", "go").await.unwrap();
        }
        runtime.idle().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        Handle::current().metrics().num_alive_tasks()
    });
    assert_eq!(left, 0);
}

/// What passes the doors can be serialised.
#[test]
fn what_is_observed_survives_serialisation() {
    let events = within(10, several, async {
        let report = With("tool", Blocking::Never, |context: ToolContext| async move {
            context.progress(agentouto::Progress { done: 0.5, total: Some(1.5), message: Some("half".into()) });
            Err(ToolError::timeout(Duration::from_millis(1)))
        });
        let mut error = ProviderError::new(agentouto::ProviderErrorKind::Overloaded, "busy");
        error.retry_after = Some(Duration::from_millis(1_500));
        error.partial = Some(Box::new(Reply::text("part").usage(1, u64::MAX)));
        let model = Scripted::new()
            .replies(
                "a",
                [
                    ScriptedReply::from(
                        Reply::tool("tool", json!({"x": 1e300}))
                            .and_call_agent("b", "x")
                            .and_call_agent("nobody", "")
                            .and_tool("no", json!({})),
                    ),
                    ScriptedReply::from(Reply::call_agent("bob", "x")),
                    ScriptedReply::from(Reply::text("done")).in_pieces(["do", "ne"]).after(Duration::from_millis(5)),
                ],
            )
            .replies("b", [error]);
        let bob = |_| async { Err::<String, _>(CallError::failed("no")) };
        let runtime = team(model, ["a", "b"]).tool(report).user("bob", "", bob).build().unwrap();
        let mut events = runtime.events(1_000);
        runtime.run("a", "go").await.unwrap();
        let _ = runtime.run("nobody", "go").await;
        std::iter::from_fn(|| events.try_next()).collect::<Vec<_>>()
    });
    assert!(events.len() > 15);
    for event in &events {
        let text = serde_json::to_string(event).unwrap();
        assert_eq!(&serde_json::from_str::<Event>(&text).unwrap(), event, "{text}");
    }
}

/// A function that waits for a call by `block_on` is woken when the tokio runtime is gone.
#[test]
fn a_function_that_waits_for_a_call_is_woken_when_tokio_is_gone() {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let (says, said) = mpsc::channel();
    let says = Mutex::new(says);
    let ask = With("ask", Blocking::Always, move |context: ToolContext| {
        let says = says.lock().unwrap().clone();
        async move {
            let mut call = context.caller.call_agent("b", "x");
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            let result = loop {
                match call.poll_unpin(&mut Context::from_waker(&waker)) {
                    Poll::Ready(result) => break result,
                    Poll::Pending => thread::park(),
                }
            };
            let _ = says.send(result.clone());
            Ok(result?)
        }
    });
    let is_asked = Arc::new(Notify::new());
    let asked = Arc::clone(&is_asked);
    let model = Scripted::computed(move |request: &Request| match &*request.agent.name {
        "a" => ScriptedReply::from(Reply::tool("ask", json!({}))),
        _ => {
            asked.notify_one();
            ScriptedReply::from(Reply::text("late")).after(Duration::from_secs(60))
        }
    });
    let runtime = team(model, ["a", "b"]).tool(ask).build().unwrap();
    let tokio = several();
    let running = tokio.spawn(runtime.user("alice").forward("a", "go"));
    tokio.block_on(is_asked.notified());
    drop(tokio);
    assert!(said.recv_timeout(Duration::from_secs(5)).unwrap().is_err());
    assert_eq!(runtime.invocations(), 0);
    drop(running);
}

/// Peers and tools that come and go take nothing from the calls that are under way.
#[test]
fn peers_and_tools_come_and_go_under_many_calls() {
    within(60, several, async {
        let model = Scripted::computed(|request: &Request| match (&*request.agent.name, request.context.turns()) {
            ("a", 0) => Reply::call_agent("작가", "x").and_tool("t", json!({})),
            _ => Reply::text("done"),
        });
        let runtime = team(model, ["a", "작가"]).build().unwrap();
        let changes = runtime.clone();
        let changing = tokio::spawn(async move {
            loop {
                changes.leave("\u{110c}\u{1161}\u{11a8}\u{1100}\u{1161}");
                let _ = changes.join(Agent::new("작가", "Writes."));
                let _ = changes.add_tool(tool::function("t", "", |_: NoArguments| async {}));
                changes.remove_tool("t");
                tokio::task::yield_now().await;
            }
        });
        for _ in 0..2_000 {
            assert_eq!(&*runtime.run("a", "go").await.unwrap().output, "done");
        }
        changing.abort();
        runtime.shutdown().await;
        assert_eq!(runtime.invocations(), 0);
    });
}
