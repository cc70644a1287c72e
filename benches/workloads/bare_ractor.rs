//! On bare ractor: for every call an actor is spawned, called and stopped.
//!
//! The joins are unconstrained, because otherwise tokio's budget makes a wide one take quadratic time.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use ractor::rpc::CallResult;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::coop::unconstrained;

struct Worker;

enum Ask {
    Work(RpcReplyPort<String>),
    Hold(Duration, RpcReplyPort<String>),
    Deeper(usize, RpcReplyPort<String>),
    Park(usize, UnboundedSender<ActorCell>, RpcReplyPort<String>),
    Wide(usize, Option<Duration>, RpcReplyPort<usize>),
}

impl Actor for Worker {
    type Msg = Ask;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Ask>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(&self, me: ActorRef<Ask>, ask: Ask, (): &mut ()) -> Result<(), ActorProcessingErr> {
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
            Ask::Park(left, parked, reply) => {
                parked.send(me.get_cell())?;
                match left {
                    0 | 1 => std::future::pending().await,
                    left => reply.send(call(|port| Ask::Park(left - 1, parked.clone(), port)).await)?,
                }
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

/// Kills a chain of N actors whose last one is parked, and waits until all have ended. Gives the moment of the first kill.
pub(crate) async fn cancel(n: usize) -> Instant {
    let (parking, mut parked) = unbounded_channel();
    let outermost = tokio::spawn(call(move |port| Ask::Park(n, parking, port)));
    let mut actors = Vec::with_capacity(n);
    while actors.len() < n {
        actors.push(parked.recv().await.expect("every actor is alive"));
    }
    outermost.abort();
    let begun = Instant::now();
    actors.drain(..).for_each(|actor| actor.kill());
    // Each actor has a sender until it ends.
    while parked.recv().await.is_some() {}
    begun
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
