//! The end of what belongs to a runtime: its streams, its contents, and the part of an actor in a call.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentouto::providers::scripted::Scripted;
use agentouto::{
    BoxFuture, CallError, Caller, DeltaSink, Forward, Incoming, Provider, ProviderError, Reply, Request, Runtime,
    ToolContext,
};
use futures_util::{FutureExt as _, poll};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::json;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::timeout;

use crate::team::{With, team, tokio_runtime};

/// An actor that hands on what it is asked.
struct Relay;

impl Actor for Relay {
    type Msg = Incoming;
    type State = UnboundedSender<Incoming>;
    type Arguments = Self::State;

    async fn pre_start(&self, _: ActorRef<Incoming>, to: Self::State) -> Result<Self::State, ActorProcessingErr> {
        Ok(to)
    }

    async fn handle(
        &self,
        _: ActorRef<Incoming>,
        incoming: Incoming,
        to: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let _ = to.send(incoming);
        Ok(())
    }
}

async fn relay() -> (ActorRef<Incoming>, UnboundedReceiver<Incoming>) {
    let (to, asked) = mpsc::unbounded_channel();
    (Relay::spawn(None, Relay, to).await.unwrap().0, asked)
}

/// Whether the stream of a runtime ends although this is kept of a call that is over.
async fn ends_though_kept<T>(keep: impl AsyncFnOnce(&Runtime, &mut UnboundedReceiver<Incoming>) -> Vec<T>) -> bool {
    let (actor, mut asked) = relay().await;
    let caller: Arc<Mutex<Option<Caller>>> = Arc::default();
    let taken = Arc::clone(&caller);
    let keeps = With("keep", move |context: ToolContext| {
        *taken.lock().unwrap() = Some(context.caller);
        async { Ok("kept".into()) }
    });
    let model = Scripted::new().replies("a", [Reply::tool("keep", json!({})), Reply::text("done")]);
    let runtime = team(model, ["a"]).tool(keeps).actor("x", "Relays.", actor).build().unwrap();
    let mut events = runtime.events(100);
    let kept = keep(&runtime, &mut asked).await;
    drop(runtime);
    let all = async { while events.next().await.is_some() {} };
    let is_over = timeout(Duration::from_secs(60), all).await.is_ok();
    drop((kept, caller));
    is_over
}

#[tokio::test]
async fn the_streams_of_a_runtime_end_though_something_of_a_call_is_kept() {
    let caller = ends_though_kept(async |runtime, _| vec![runtime.run("a", "go").await.unwrap()]).await;
    let call = ends_though_kept(async |runtime, _| {
        let mut call = runtime.user("alice").forward("a", "go");
        (&mut call).await.unwrap();
        vec![call]
    });
    let incoming = ends_though_kept(async |runtime, asked| {
        let mut call = runtime.user("alice").forward("x", "go");
        assert!(poll!(&mut call).is_pending());
        let incoming = asked.recv().await;
        drop(call);
        runtime.idle().await;
        vec![incoming]
    });
    assert_eq!((caller, call.await, incoming.await), (true, true, true));
}

#[tokio::test]
async fn the_streams_of_a_runtime_tell_of_calls_that_outlive_its_handles() {
    let (actor, mut asked) = relay().await;
    let runtime = Runtime::builder().actor("x", "Relays.", actor).build().unwrap();
    let mut events = runtime.events(100);
    let call = tokio::spawn(runtime.user("alice").forward("x", "go"));
    let incoming = asked.recv().await.unwrap();
    drop(runtime);
    incoming.reply.send(Ok("done"));
    call.await.unwrap().unwrap();
    let mut count = 0;
    while events.next().await.is_some() {
        count += 1;
    }
    assert_eq!(count, 2, "the Forward and the Return");
}

/// A panic in the drop of a provider, which the last part of a call drops with its runtime.
#[tokio::test]
async fn a_runtime_whose_contents_panic_when_they_are_dropped_harms_no_call() {
    struct Grenade;
    impl Provider for Grenade {
        fn reply<'a>(
            &'a self,
            _: &'a Request,
            _: &'a mut DeltaSink<'_>,
        ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
            Box::pin(async { Ok(Reply::text("done")) })
        }
    }
    impl Drop for Grenade {
        fn drop(&mut self) {
            panic!("a panic in a drop");
        }
    }
    let (dead, _) = relay().await;
    dead.stop_and_wait(None, None).await.unwrap();
    let person = |_: Arc<Forward>| async { Ok::<_, CallError>("done") };
    for (to, is_served) in [("a", true), ("dead", false), ("person", true), ("nobody", false)] {
        let runtime = team(Grenade, ["a"]).actor("dead", "", dead.clone()).user("person", "", person).build().unwrap();
        let call = runtime.user("alice").forward(to, "go");
        drop(runtime);
        let result = std::panic::AssertUnwindSafe(call).catch_unwind().await;
        assert_eq!(result.ok().map(|result| result.is_ok()), Some(is_served), "{to}");
    }
}

/// The runtime is shut down while the first of two actors is being asked.
#[tokio::test]
async fn an_actor_gets_no_forward_of_a_call_that_is_cancelled() {
    struct Shuts(Option<Incoming>);
    static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    impl From<Incoming> for Shuts {
        fn from(incoming: Incoming) -> Self {
            ASKED.fetch_add(1, Ordering::SeqCst);
            let runtime = RUNTIME.lock().unwrap().take();
            if let Some(runtime) = runtime {
                assert_eq!(runtime.shutdown().now_or_never(), None);
            }
            Self(Some(incoming))
        }
    }
    struct Serves;
    impl Actor for Serves {
        type Msg = Shuts;
        type State = ();
        type Arguments = ();

        async fn pre_start(&self, _: ActorRef<Shuts>, (): ()) -> Result<(), ActorProcessingErr> {
            Ok(())
        }

        async fn handle(
            &self,
            _: ActorRef<Shuts>,
            Shuts(incoming): Shuts,
            (): &mut (),
        ) -> Result<(), ActorProcessingErr> {
            drop(incoming);
            Ok(())
        }
    }
    let (actor, _) = Serves::spawn(None, Serves, ()).await.unwrap();
    let model = Scripted::new().replies("a", [Reply::call_agent("x", "").and_call_agent("y", "")]);
    let runtime = team(model, ["a"]).actor("x", "", actor.clone()).actor("y", "", actor).build().unwrap();
    *RUNTIME.lock().unwrap() = Some(runtime.clone());
    assert_eq!(runtime.run("a", "go").await.unwrap_err().error, CallError::Cancelled);
    runtime.shutdown().await;
    assert_eq!(ASKED.load(Ordering::SeqCst), 1);
}

#[test]
fn a_port_that_is_dropped_ends_its_call_although_the_tokio_runtime_of_the_caller_is_not_driven() {
    let (here, there) = (tokio_runtime(1), tokio_runtime(1));
    let (actor, mut asked) = there.block_on(relay());
    let runtime = Runtime::builder().actor("x", "Relays.", actor).build().unwrap();
    let mut call = runtime.user("alice").forward("x", "go");
    here.block_on(async { assert!(poll!(&mut call).is_pending()) });
    drop(there.block_on(asked.recv()));
    assert_eq!(runtime.invocations(), 0);
    let error = here.block_on(call).unwrap_err().error;
    assert_eq!(error, CallError::Unanswered { name: "x".into() });
}
