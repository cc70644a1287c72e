//! On bare ractor: for every call an actor is spawned, called and stopped.
//!
//! The joins are unconstrained, because otherwise tokio's budget makes a wide one take quadratic time.

use std::time::Duration;

use futures_util::future::join_all;
use ractor::rpc::CallResult;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::task::coop::unconstrained;

struct Worker;

enum Ask {
    Work(RpcReplyPort<String>),
    Hold(Duration, RpcReplyPort<String>),
    Deeper(usize, RpcReplyPort<String>),
    Wide(usize, Option<Duration>, RpcReplyPort<usize>),
}

impl Actor for Worker {
    type Msg = Ask;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Ask>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(&self, _: ActorRef<Ask>, ask: Ask, (): &mut ()) -> Result<(), ActorProcessingErr> {
        match ask {
            Ask::Work(reply) => reply.send("done".to_owned())?,
            Ask::Hold(time, reply) => {
                tokio::time::sleep(time).await;
                reply.send("done".to_owned())?;
            }
            Ask::Deeper(left, reply) => {
                let answer = match left {
                    0 | 1 => "done".to_owned(),
                    left => call(move |port| Ask::Deeper(left - 1, port)).await,
                };
                reply.send(answer)?;
            }
            Ask::Wide(n, held, reply) => {
                let ask = move |port| match held {
                    None => Ask::Work(port),
                    Some(time) => Ask::Hold(time, port),
                };
                reply.send(unconstrained(join_all((0..n).map(|_| call(ask)))).await.len())?;
            }
        }
        Ok(())
    }
}

/// Spawns an actor, asks it once and stops it.
async fn call<T: Send + 'static>(ask: impl FnOnce(RpcReplyPort<T>) -> Ask) -> T {
    let (actor, _) = Box::pin(Worker::spawn(None, Worker, ())).await.expect("spawned");
    let Ok(CallResult::Success(answer)) = actor.call(ask, None).await else { panic!("no answer") };
    actor.stop(None);
    answer
}

pub(crate) async fn fanout(n: usize) -> usize {
    call(move |reply| Ask::Wide(n, None, reply)).await
}

pub(crate) async fn chain(n: usize) -> usize {
    call(move |reply| Ask::Deeper(n, reply)).await;
    n
}

pub(crate) async fn turns(n: usize) -> usize {
    let (actor, _) = Worker::spawn(None, Worker, ()).await.expect("spawned");
    for _ in 0..n {
        actor.call(Ask::Work, None).await.expect("answered");
    }
    actor.stop(None);
    n
}

pub(crate) async fn hold(n: usize) -> usize {
    call(move |reply| Ask::Wide(n, Some(super::held(n)), reply)).await
}
