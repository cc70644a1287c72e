//! The actions of one turn, run concurrently, with their outputs in order.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use futures_util::stream::FuturesOrdered;
use futures_util::{FutureExt as _, StreamExt as _, poll};
use tokio::runtime::Handle;
use tokio::task::coop;
use tokio_util::task::AbortOnDropHandle;

use crate::delivery::Delivery;
use crate::telemetry::TransferTrace;
use crate::tool_call::ToolOutput;
use crate::tool_run::{ToolRun, aborted, call_output};

/// One action of a turn.
pub(crate) enum ActionFuture {
    Call(Delivery),
    TracedCall(Box<(Delivery, TransferTrace)>),
    NotStarted(Option<Box<ToolRun>>),
    Tool(AbortOnDropHandle<ToolOutput>),
    Refused(ToolOutput),
}

impl Future for ActionFuture {
    type Output = ToolOutput;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<ToolOutput> {
        if let Self::NotStarted(run) = &mut *self
            && let Some(run) = run.take()
        {
            *self = Self::Tool(run.start());
        }
        match &mut *self {
            Self::Call(delivery) => delivery.poll_unpin(context).map(call_output),
            Self::TracedCall(call) => {
                let (delivery, trace) = &mut **call;
                delivery.poll_unpin(context).map(|result| {
                    trace.end(&result);
                    call_output(result)
                })
            }
            Self::Tool(running) => running.poll_unpin(context).map(|ended| ended.unwrap_or_else(|_| aborted())),
            Self::NotStarted(_) => Poll::Pending,
            Self::Refused(output) => Poll::Ready(std::mem::take(output)),
        }
    }
}

/// The number of actions that are started before those already started are polled again.
const START_BATCH: usize = 64;

/// Carries out all actions concurrently, and returns their outputs in order.
///
/// Of very many actions, the first may end before the last is started. Their memory is then used again, and no thread
/// is blocked for long.
pub(crate) async fn join_in_order(mut actions: Vec<ActionFuture>) -> Vec<ToolOutput> {
    if let [only] = &mut actions[..] {
        let is_call = matches!(only, ActionFuture::Call(_) | ActionFuture::TracedCall(_));
        let output = poll_fn(|context| {
            let polled = pin!(coop::unconstrained(&mut *only)).poll(context);
            if is_call && polled.is_pending() {
                exhaust_budget();
            }
            polled
        });
        return vec![output.await];
    }
    let mut outputs = Vec::with_capacity(actions.len());
    let mut running = FuturesOrdered::new();
    let mut waiting = actions.drain(..);
    loop {
        running.extend(waiting.by_ref().take(START_BATCH));
        if waiting.len() == 0 {
            break;
        }
        // Unconstrained, because a budget that runs out half-way would make tokio poll all the others in vain.
        while let Poll::Ready(Some(output)) = poll!(coop::unconstrained(running.next())) {
            outputs.push(output);
        }
        tokio::task::yield_now().await;
    }
    outputs.extend(coop::unconstrained(running.collect::<Vec<_>>()).await);
    outputs
}

/// Uses up the cooperative budget of this task, which waits for one call and nothing else. The callee then waits for
/// its turn in the queue of this tokio worker.
///
/// Otherwise tokio runs it next, and at every fourth link of a chain of calls wakes an idle worker, which finds nothing
/// to do: a quarter of the time of a deep chain.
fn exhaust_budget() {
    if Handle::current().metrics().num_workers() > 1 {
        // No more often than tokio's budget allows, because there may be no limit.
        for _ in (0..128).take_while(|_| coop::has_budget_remaining()) {
            let _ = coop::consume_budget().now_or_never();
        }
    }
}
