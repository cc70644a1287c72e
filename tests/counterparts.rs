//! Servers that nobody here wrote, against the providers: aimock, which injects faults, and llama.cpp's server with random
//! weights, whose junk is real.
//!
//! They run when `AGENTOUTO_COUNTERPARTS` is 1; `.ci/counterparts` installs them.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

#[path = "counterparts/aimock.rs"]
mod aimock;
#[path = "counterparts/ask.rs"]
mod ask;
#[path = "counterparts/child.rs"]
mod child;
#[path = "counterparts/llama.rs"]
mod llama;
#[path = "counterparts/talker.rs"]
mod talker;
#[path = "counterparts/wire.rs"]
mod wire;

/// Whether the counterparts are to run; says so if not.
fn are_wanted() -> bool {
    let wanted = std::env::var("AGENTOUTO_COUNTERPARTS").is_ok_and(|value| value == "1");
    if !wanted {
        eprintln!("skipped: AGENTOUTO_COUNTERPARTS is not 1");
    }
    wanted
}
