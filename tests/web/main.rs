//! The web tools against real servers on loopback: HTTP, TLS, DNS, a proxy.
//!
//! A test cannot reach a public address. So most allow loopback; those about names allow `127.0.0.2` alone, which stands
//! for a public address, while `127.0.0.1` is private. There, a server that must not be reached counts its connections.
#![cfg(feature = "web")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod bodies;
mod canary;
mod cancellation;
mod dns;
mod names;
mod pages;
mod proxies;
mod redirects;
mod search;
mod server;
mod support;
mod targets;
mod tls;
#[path = "../common/trace.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod trace;
