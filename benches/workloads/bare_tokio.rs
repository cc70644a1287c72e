//! On bare tokio: for every call a task is spawned that answers through a channel.

use futures_util::future::{BoxFuture, join_all};
use tokio::sync::oneshot;
use tokio::task::coop::unconstrained;

async fn call(work: impl Future<Output = String> + Send + 'static) -> String {
    let (reply, answer) = oneshot::channel();
    tokio::spawn(async move {
        let _ = reply.send(work.await);
    });
    answer.await.expect("answered")
}

pub(crate) async fn fanout(n: usize) -> usize {
    unconstrained(join_all((0..n).map(|_| call(async { "done".to_owned() })))).await.len()
}

pub(crate) async fn chain(n: usize) -> usize {
    fn deeper(left: usize) -> BoxFuture<'static, String> {
        Box::pin(async move { if left > 1 { call(deeper(left - 1)).await } else { "done".to_owned() } })
    }
    call(deeper(n)).await;
    n
}

pub(crate) async fn turns(n: usize) -> usize {
    for _ in 0..n {
        call(async { "done".to_owned() }).await;
    }
    n
}
