//! What ends a call: the host withdraws it, goes, or loses the server.

use std::time::Duration;

use agentouto::{Runtime, mcp};
use rmcp::RoleClient;
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest};
use rmcp::service::{PeerRequestOptions, RequestHandle};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::host::{Session, ask, host};
use crate::team::{PendingToolEvents, team};

/// The SDK's own patience with what was asked over a line that has ended is 5 s; an end of the line must come through at once.
const AT_ONCE: Duration = Duration::from_secs(3);

/// A call that waits at the gate.
async fn waiting(session: &Session, keeper: &mut PendingToolEvents) -> RequestHandle<RoleClient> {
    let Value::Object(arguments) = json!({ "message": "Wait." }) else { unreachable!() };
    let call = CallToolRequestParams::new("waiter").with_arguments(arguments);
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(call));
    let handle = session.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap();
    assert_eq!(keeper.next().await, "started");
    handle
}

/// The call is over, with everything below it.
async fn ended(runtime: &Runtime, keeper: &mut PendingToolEvents) {
    assert_eq!(timeout(AT_ONCE, keeper.next()).await.expect("it ends at once"), "dropped");
    timeout(AT_ONCE, runtime.idle()).await.expect("nobody is left");
}

async fn http(runtime: &Runtime) -> (String, JoinHandle<()>) {
    let bound = mcp::serve(runtime).http("127.0.0.1:0").bind().await.unwrap();
    (bound.url(), tokio::spawn(bound.serve()))
}

#[tokio::test]
async fn a_notification_withdraws_one_call_and_leaves_the_session() {
    let (runtime, mut keeper) = team();
    let (url, serving) = http(&runtime).await;
    let (near, _serving) = host().0.over_pipe(mcp::serve(&runtime)).await;
    let far = host().0.over_http(url).await;
    for session in [near, far] {
        let call = waiting(&session, &mut keeper).await;
        call.cancel(Some("the user pressed stop".to_owned())).await.unwrap();
        ended(&runtime, &mut keeper).await;
        assert_eq!(ask(&session, "writer").await, "A draft.");
    }
    serving.abort();
}

#[tokio::test]
async fn the_end_of_the_line_withdraws_its_calls() {
    let (runtime, mut keeper) = team();
    let (session, serving) = host().0.over_pipe(mcp::serve(&runtime)).await;
    let _call = waiting(&session, &mut keeper).await;
    drop(session);
    ended(&runtime, &mut keeper).await;
    timeout(AT_ONCE, serving).await.expect("the server ends too").unwrap();
}

#[tokio::test]
async fn the_end_of_a_session_withdraws_its_calls_and_no_others() {
    let (runtime, mut keeper) = team();
    let (url, serving) = http(&runtime).await;
    let (mut session, other) = (host().0.over_http(url.clone()).await, host().0.over_http(url).await);
    let _call = waiting(&session, &mut keeper).await;
    // It says DELETE.
    let _ = session.close().await;
    ended(&runtime, &mut keeper).await;
    assert_eq!(ask(&other, "writer").await, "A draft.");
    serving.abort();
}

#[tokio::test]
async fn dropping_the_server_withdraws_all_calls() {
    let (runtime, mut keeper) = team();
    let (session, serving) = host().0.over_pipe(mcp::serve(&runtime)).await;
    let _call = waiting(&session, &mut keeper).await;
    serving.abort();
    ended(&runtime, &mut keeper).await;

    let (url, serving) = http(&runtime).await;
    let session = host().0.over_http(url).await;
    let _call = waiting(&session, &mut keeper).await;
    serving.abort();
    ended(&runtime, &mut keeper).await;
}

#[tokio::test]
async fn a_session_is_closed_when_it_is_abandoned_and_not_while_a_call_is_answered() {
    let (runtime, mut keeper) = team();
    let patience = Duration::from_millis(100);
    let bound = mcp::serve(&runtime).http("127.0.0.1:0").session_idle_timeout(patience).bind().await.unwrap();
    let url = bound.url();
    let serving = tokio::spawn(bound.serve());

    let session = host().0.over_http(url.clone()).await;
    assert_eq!(ask(&session, "sleeper").await, "Good morning.", "ten times the patience");

    // A host whose connections break, which says nothing more.
    let raw = reqwest::Client::new();
    let id = crate::access::begin(&raw, &url).await;
    let asked = crate::access::request(&raw, &url, &crate::access::called("waiter")).header("mcp-session-id", &id);
    let answer = asked.send().await.unwrap();
    assert_eq!(keeper.next().await, "started");
    drop(answer);
    drop(raw);
    ended(&runtime, &mut keeper).await;
    serving.abort();
}
