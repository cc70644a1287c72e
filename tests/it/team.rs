//! What the tests have in common: agents on a script.

use std::collections::HashMap;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use agentouto::{
    Agent, Arguments, BoxFuture, CallId, Content, Event, EventKind, Log, Message, Provider, Runtime, RuntimeBuilder,
    Tool, ToolContext, ToolError, ToolSpec,
};
use serde_json::json;

/// Agents of these names, whose model is `fake`.
pub(crate) fn team<const N: usize>(model: impl Provider, agents: [&str; N]) -> RuntimeBuilder {
    let agents = agents.map(|name| Agent::new(name, format!("{name} instructions.")));
    Runtime::builder().provider("fake", model).agents(agents)
}

/// The messages of a run, one line each.
pub(crate) fn path(log: &Log) -> Vec<String> {
    log.messages().map(|message| message.to_string()).collect()
}

/// The calls of a log that have not one Forward and, behind it, one Return.
pub(crate) fn odd_in_log(log: &Log) -> Vec<CallId> {
    odd(log.messages().map(|message| match message {
        Message::Forward(forward) => (forward.call_id, "forward"),
        Message::Return(answer) => (answer.call_id, "return"),
    }))
}

/// The calls of a stream that have not one Forward and, behind it, one Return.
pub(crate) fn odd_in_events(events: &[Event]) -> Vec<CallId> {
    odd(events.iter().filter_map(|event| match event.kind {
        EventKind::Forward { .. } => Some((event.call_id, "forward")),
        EventKind::Return { .. } => Some((event.call_id, "return")),
        _ => None,
    }))
}

fn odd(steps: impl Iterator<Item = (CallId, &'static str)>) -> Vec<CallId> {
    let mut calls: HashMap<CallId, Vec<&str>> = HashMap::new();
    for (call, step) in steps {
        calls.entry(call).or_default().push(step);
    }
    calls.into_iter().filter(|(_, steps)| *steps != ["forward", "return"]).map(|(call, _)| call).collect()
}

pub(crate) fn tokio_runtime(threads: usize) -> tokio::runtime::Runtime {
    let tokio = match threads {
        1 => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        _ => tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build(),
    };
    tokio.unwrap()
}

/// Gives every other task of this thread its turn, and those that it wakes.
pub(crate) async fn let_all_tasks_run() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// Runs a future on a tokio runtime of its own. What is not over within a minute hangs, perhaps with its thread, on
/// which no timer would fire any more.
pub(crate) fn on_threads<T: Send + 'static>(threads: usize, future: impl Future<Output = T> + Send + 'static) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    let running = std::thread::spawn(move || {
        let tokio = tokio_runtime(threads);
        let output = tokio.block_on(future);
        tokio.shutdown_background();
        sender.send(output).unwrap();
    });
    match receiver.recv_timeout(Duration::from_secs(60)) {
        Ok(output) => output,
        Err(RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(RecvTimeoutError::Disconnected) => std::panic::resume_unwind(running.join().unwrap_err()),
    }
}

/// A tool of this name that needs nothing but its context.
pub(crate) struct With<F>(pub(crate) &'static str, pub(crate) F);

impl<F, A> Tool for With<F>
where
    F: Fn(ToolContext) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Content, ToolError>> + Send + 'static,
{
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: self.0.into(), description: "".into(), parameters: json!({"type": "object"}) }
    }

    fn call(&self, _: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        Box::pin((self.1)(context))
    }
}
