//! The agents as an MCP server: what hosts see, what ends a call, and who is not let in.
//!
//! With `AGENTOUTO_COUNTERPARTS` at 1 the official Python SDK's client is one of the hosts; `.ci/counterparts` installs it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod access;
mod cancellation;
mod host;
mod python;
mod team;
mod tools;
