//! What the crate promises, tested through its public API.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking, and say on stdout what they did"
)]

mod scenarios;
