//! The agents as an MCP server: what hosts see, what ends a call, and who is not let in.
//!
//! With `AGENTOUTO_COUNTERPARTS` at 1 the official Python SDK's client is one of the hosts; `.ci/counterparts` installs it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

#[path = "mcp_server/doors.rs"]
mod doors;
#[path = "mcp_server/ends.rs"]
mod ends;
#[path = "mcp_server/host.rs"]
mod host;
#[path = "mcp_server/python.rs"]
mod python;
#[path = "mcp_server/team.rs"]
mod team;
#[path = "mcp_server/tools.rs"]
mod tools;
