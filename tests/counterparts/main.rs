//! Servers that nobody here wrote, against the providers: aimock, which injects faults, and llama.cpp's server with random
//! weights, whose junk is real.
//!
//! They run when `AGENTOUTO_COUNTERPARTS` is 1; `.ci/counterparts` installs them.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod aimock;
mod ask;
#[path = "../common/child.rs"]
mod child;
mod llama;
mod talker;
#[path = "../common/wire.rs"]
mod wire;

/// Whether the counterparts are to run; says so if not.
fn are_wanted() -> bool {
    let wanted = std::env::var("AGENTOUTO_COUNTERPARTS").is_ok_and(|value| value == "1");
    if !wanted {
        eprintln!("skipped: AGENTOUTO_COUNTERPARTS is not 1");
    }
    wanted
}
