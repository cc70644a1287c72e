//! The official Python SDK's client as the host, over both transports and in both lives that the protocol has had: with
//! a handshake, and since 2026-07-28 without.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// Where `cargo test` has built the examples.
fn served() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let built = tests.parent().unwrap().parent().unwrap().join("examples/mcp_served");
    assert!(built.exists(), "{} is not there: run cargo build --example mcp_served", built.display());
    built
}

/// Runs the host's script; it fails where its host sees what it should not.
async fn check(transport: &str, mode: &str) {
    if std::env::var("AGENTOUTO_COUNTERPARTS").is_ok_and(|value| value == "1") {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut python = Command::new(here.join("target/counterparts/venv/bin/python3"));
        python.arg(here.join("tests/mcp_server/host.py")).args([transport, mode]).arg(served());
        python.stdin(Stdio::null()).kill_on_drop(true);
        let output = timeout(Duration::from_secs(120), python.output()).await.expect("it ends").unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{transport} {mode}:\n{}{said}", String::from_utf8_lossy(&output.stdout));
    } else {
        eprintln!("skipped: AGENTOUTO_COUNTERPARTS is not 1");
    }
}

#[tokio::test]
async fn it_lists_calls_cancels_and_hears_over_stdio_after_a_handshake() {
    check("stdio", "legacy").await;
}

#[tokio::test]
async fn it_lists_calls_cancels_and_hears_over_stdio_without_a_handshake() {
    check("stdio", "2026-07-28").await;
}

#[tokio::test]
async fn it_lists_calls_cancels_and_hears_over_http_after_a_handshake() {
    check("http", "legacy").await;
}

#[tokio::test]
async fn it_lists_calls_cancels_and_hears_over_http_without_a_handshake() {
    check("http", "2026-07-28").await;
}

#[tokio::test]
async fn nothing_but_the_protocol_is_on_standard_output() {
    check("raw", "legacy").await;
}
