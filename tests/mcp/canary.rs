//! Secrets of servers: whatever the servers do with them, no model, error, event, `Debug` output or log shows one.
//!
//! With `AGENTOUTO_TRACE` all is traced at the level TRACE; CI looks through the trace and the output for the canaries.

use agentouto::mcp::{Connections, ServerConfig, Servers};
use agentouto::{Event, Runtime};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::child::Counterpart;
use crate::support::{LIMIT, hostile, order, runtime};
use crate::trace;

/// What stands in every secret here, and nowhere else.
const CANARY: &str = "canary-0123456789";

fn canary(name: &str) -> String {
    format!("{name}-{CANARY}")
}

#[track_caller]
fn check(what: &str, text: &str) {
    assert!(!text.contains(CANARY), "{what}: {text}");
}

/// A command that gets secrets in every way in which commands do.
fn command() -> ServerConfig {
    let token = format!("--token={}", canary("argument"));
    let url = format!("https://me:{}@example.com/{}/x?k={} y", canary("pass"), canary("path"), canary("query"));
    let header = format!("Authorization: Bearer {}", canary("header"));
    let arguments = ["named", "x", &token, "--api-key", &canary("option"), "--url", &url, "--header", &header];
    hostile(&arguments).env("GIVEN_TOKEN", canary("token")).env("GIVEN_ZONE", "zone-of-ours")
}

/// An address that gets secrets in every way in which addresses do.
fn address(address: &str) -> ServerConfig {
    let address = address.replace("://", &format!("://me:{}@", canary("pass")));
    let url = format!("{address}/{}/mcp?token={}&k={} y", canary("path"), canary("query"), canary("spaced"));
    ServerConfig::http(url)
        .header("Authorization", format!("Bearer {}", canary("header")))
        .header("X-Api-Key", canary("key"))
        .header("X-Zone", "zone-of-ours")
}

/// Calls a tool, and gives all that anybody is told of it.
async fn told(runtime: &Runtime, tool: &str, arguments: Value) -> (String, Vec<Event>) {
    let mut pending = runtime.user("user").forward("clerk", order(tool, arguments));
    let mut events = Vec::new();
    while let Some(event) = timeout(LIMIT, pending.next_event()).await.unwrap() {
        events.push(event);
    }
    (timeout(LIMIT, pending).await.unwrap().unwrap().output.to_string(), events)
}

async fn check_call(runtime: &Runtime, tool: &str, arguments: Value, is_result: bool) {
    let what = format!("{tool} {arguments}");
    let (answer, events) = told(runtime, tool, arguments).await;
    check(&what, &answer);
    check(&what, &format!("{events:?}"));
    assert!(answer.contains("[redacted]"), "{what}: {answer}");
    // It may be a key, so errors do not show it; and it may be what a model looks for, so results do.
    assert_eq!(answer.contains("zone-of-ours"), is_result, "{what}: {answer}");
}

fn check_connections(connections: &Connections) {
    check("tools", &format!("{:?}", connections.tools()));
    check("refused", &format!("{:?}", connections.refused()));
    check("connections", &format!("{connections:?}"));
}

#[tokio::test]
async fn no_secret_of_a_command_is_shown() {
    trace::start();
    check("server", &format!("{:?}", command()));
    let servers = Servers::new().server("srv", command());
    check("servers", &format!("{servers:?}"));
    let (runtime, connections) = (runtime(), servers.connect().await.unwrap());
    connections.add_to(&runtime).unwrap();
    for by in ["result", "error", "protocol_error", "progress", "crash"] {
        check_call(&runtime, "do", json!({"what": "reveal", "by": by}), matches!(by, "result" | "progress")).await;
    }
    check_connections(&connections);
    let failed = Servers::new().server("srv", command().env("EXIT", "7")).connect().await.unwrap_err();
    assert!(failed.to_string().contains("[redacted]"), "{failed}");
    check("failed", &format!("{failed} {failed:?}"));
}

#[tokio::test]
async fn no_secret_of_an_address_is_shown() {
    trace::start();
    let mut command = Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/indiscreet.py"));
    let counterpart = Counterpart::start(command).await;
    let server = || address(&counterpart.address);
    check("server", &format!("{:?} {:?}", server(), ServerConfig::http(format!("ht!tp://{CANARY}"))));
    let (runtime, connections) = (runtime(), Servers::new().server("srv", server()).connect().await.unwrap());
    connections.add_to(&runtime).unwrap();
    for tool in ["result", "error", "protocol_error", "status", "denied", "scope", "garbled", "progress", "resumed"] {
        check_call(&runtime, tool, json!({}), matches!(tool, "result" | "progress" | "resumed")).await;
    }
    check_connections(&connections);
    // Its session is ended, which the SDK logs.
    Servers::new().server("srv", server()).connect().await.unwrap().close().await;
    let connection = connections.server("srv").unwrap();
    for failed in [connection.resources().await.unwrap_err(), connection.read_resource("x://y").await.unwrap_err()] {
        check("request", &format!("{failed} {failed:?}"));
    }

    told(&runtime, "gone", json!({})).await;
    let (answer, _) = told(&runtime, "result", json!({})).await;
    check("gone", &answer);
    assert!(answer.contains("\"is_error\":true"), "{answer}");
    for unreached in [server(), ServerConfig::http(format!("ht!tp://{CANARY}"))] {
        let failed = Servers::new().server("srv", unreached).connect().await.unwrap_err();
        check("unreached", &format!("{failed} {failed:?}"));
    }
}
