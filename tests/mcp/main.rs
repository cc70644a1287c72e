//! MCP: servers that nobody here wrote, and one that does what no server should.
//!
//! The hostile one needs Python alone, and always runs. The others run when `AGENTOUTO_COUNTERPARTS` is 1;
//! `.ci/counterparts` installs them.
#![cfg(feature = "mcp-client")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod approval;
mod canary;
#[path = "../common/child.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod child;
mod client;
mod client_faults;
mod support;
#[path = "../common/trace.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod trace;

/// Whether the counterparts are to run; says so if not.
fn are_wanted() -> bool {
    let wanted = std::env::var("AGENTOUTO_COUNTERPARTS").is_ok_and(|value| value == "1");
    if !wanted {
        eprintln!("skipped: AGENTOUTO_COUNTERPARTS is not 1");
    }
    wanted
}
