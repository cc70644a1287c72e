//! Tools of a server whose calls a peer approves.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentouto::mcp::{Connections, ServerConfig, Servers};
use agentouto::{CallError, Decision, Forward, Runtime};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::support::{LIMIT, call, have, hostile, offered, order, runtime, until_offered, with};

/// A runtime with the tools of a server, and a person who gives these answers, in order. What was asked is noted.
async fn approving(server: ServerConfig, answers: &[&'static str]) -> (Runtime, Connections, Arc<Mutex<Vec<Value>>>) {
    let (runtime, connections) = with(server).await;
    let (answers, asked) = (Mutex::new(VecDeque::from(answers.to_vec())), Arc::<Mutex<Vec<Value>>>::default());
    let notes = Arc::clone(&asked);
    let human = move |question: Arc<Forward>| {
        let last = question.content.text.lines().last().unwrap();
        notes.lock().unwrap().push(serde_json::from_str(last).unwrap());
        let answer = answers.lock().unwrap().pop_front();
        async move { answer.ok_or_else(|| CallError::failed("nobody is there")) }
    };
    runtime.join_user("human", "", human).unwrap();
    (runtime, connections, asked)
}

fn echo(text: &str) -> Value {
    json!({"what": "echo", "text": text})
}

/// What the server was told to do, without the question for it.
async fn calls(runtime: &Runtime) -> usize {
    let received: Vec<String> = serde_json::from_str(&have(runtime, json!({"what": "received"})).await).unwrap();
    received.iter().filter(|line| line.starts_with("tools/call")).count()
}

#[tokio::test]
async fn a_servers_tool_runs_only_with_what_was_approved() {
    let changed = r#"{"decision":"yes","arguments":{"what":"echo","text":"changed"}}"#;
    let (runtime, _servers, asked) =
        approving(hostile(&[]).approved_by("human"), &["yes", "no: not this", changed, "yes"]).await;
    assert_eq!(offered(&runtime).await, ["do"]);
    assert_eq!(have(&runtime, echo("one")).await, "one");
    assert_eq!(have(&runtime, echo("two")).await, "Error: [do] `human` refused: not this");
    let expected = "`human` changed the arguments; the tool ran with {\"text\":\"changed\",\"what\":\"echo\"}\nchanged";
    assert_eq!(have(&runtime, echo("three")).await, expected);
    // Arguments that the schema forbids reach neither the person nor the server.
    let invalid = call(&runtime, "do", json!({"what": 7})).await;
    assert!(invalid.is_error, "{invalid:?}");
    assert_eq!(calls(&runtime).await, 3, "one, what was changed, and this question");
    let questions = asked.lock().unwrap().clone();
    assert_eq!(questions.len(), 4);
    assert_eq!(questions[1], json!({"tool": "do", "agent": "clerk", "arguments": echo("two")}));
    let report = runtime.run("clerk", order("do", echo("late"))).await.unwrap();
    let approval = report.log.approvals().next().unwrap();
    assert_eq!(approval.decision, Decision::Unanswered("nobody is there".into()));
}

#[tokio::test]
async fn a_tool_that_comes_later_needs_approval_and_the_named_ones_do_not() {
    let server = hostile(&[]).approved_by("human").without_approval(["do", "misspelt"]);
    let (runtime, _servers, asked) = approving(server, &[]).await;
    have(&runtime, json!({"what": "change", "tool": "one", "description": "One."})).await;
    until_offered(&runtime, &["do", "one"]).await;
    assert!(asked.lock().unwrap().is_empty());
    let refused = call(&runtime, "one", json!({})).await;
    assert_eq!((&*refused.content.text, refused.is_error), ("Error: [one] not approved: nobody is there", true));
    assert_eq!(*asked.lock().unwrap(), [json!({"tool": "one", "agent": "clerk", "arguments": {}})]);
}

#[tokio::test]
async fn a_definition_that_changes_while_the_peer_thinks_does_not_run() {
    let server = hostile(&[]).approved_by("human").without_approval(["do"]);
    let (runtime, servers) = (runtime(), Servers::new().server("srv", server).connect().await.unwrap());
    servers.add_to(&runtime).unwrap();
    let (asked, leave) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (ask, gate) = (Arc::clone(&asked), Arc::clone(&leave));
    let human = move |_: Arc<Forward>| {
        let (ask, gate) = (Arc::clone(&ask), Arc::clone(&gate));
        async move {
            ask.add_permits(1);
            gate.acquire().await.unwrap().forget();
            Ok::<_, CallError>("yes")
        }
    };
    runtime.join_user("human", "", human).unwrap();
    let change = async |description: &str| {
        have(&runtime, json!({"what": "change", "tool": "one", "description": description})).await;
    };
    change("One.").await;
    until_offered(&runtime, &["do", "one"]).await;
    let approved = call(&runtime, "one", json!({}));
    let changing = async {
        asked.acquire().await.unwrap().forget();
        change("Another one.").await;
        until_offered(&runtime, &["do"]).await;
        leave.add_permits(1);
    };
    let (output, ()) = timeout(2 * LIMIT, async { tokio::join!(approved, changing) }).await.unwrap();
    let expected = "Error: [one] MCP server `srv`: its definition has changed since it was offered";
    assert_eq!(&*output.content.text, expected);
}

#[tokio::test]
async fn an_answer_that_does_not_come_in_time_is_a_refusal() {
    let server = hostile(&[]).approved_by("human").approval_within(Duration::from_millis(50));
    let (runtime, _servers) = with(server).await;
    let silent = |_: Arc<Forward>| std::future::pending::<Result<String, CallError>>();
    runtime.join_user("human", "", silent).unwrap();
    assert_eq!(have(&runtime, echo("x")).await, "Error: [do] not approved: no answer of `human` within 50ms");
}
