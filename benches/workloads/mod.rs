//! The same four workloads three times, on agentouto, on bare ractor, on bare tokio; and calls over HTTP beside bare
//! `reqwest`.
//!
//! - `fanout`: one caller makes N calls at once and waits for all answers.
//! - `chain`: N calls, each made by the one before.
//! - `turns`: one callee is asked N times, one after the other.
//! - `hold`: as `fanout`, with all callees parked at once for a second.

#![allow(dead_code, reason = "each user measures some of it")]

pub(crate) mod agents;
pub(crate) mod bare_ractor;
pub(crate) mod bare_tokio;
#[cfg(feature = "http")]
pub(crate) mod http;
#[cfg(feature = "http")]
pub(crate) mod loopback;
#[cfg(feature = "prompt_tools")]
pub(crate) mod texts;

use std::time::Duration;

/// How long `hold` parks each of N callees: a second longer than it takes to start them all, so that they are parked
/// at once.
pub(crate) fn held(n: usize) -> Duration {
    Duration::from_secs(1) + Duration::from_micros(20) * u32::try_from(n).expect("fewer than four billion")
}
