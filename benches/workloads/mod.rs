//! The same four workloads three times: on agentouto, on bare ractor, on bare tokio.
//!
//! - `fanout`: one caller makes N calls at once and waits for all answers.
//! - `chain`: N calls, each made by the one before.
//! - `turns`: one callee is asked N times, one after the other.
//! - `hold`: as `fanout`, with every callee parked for one second.

#![allow(dead_code, reason = "each user measures some of it")]

pub(crate) mod agents;
pub(crate) mod bare_ractor;
pub(crate) mod bare_tokio;

use std::time::Duration;

/// How long `hold` parks a callee.
pub(crate) const HELD: Duration = Duration::from_secs(1);
