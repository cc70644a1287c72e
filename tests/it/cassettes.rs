//! Provider traffic, replayed: every answer becomes what somebody else made of it, however its bytes are cut, and every
//! request carries what it should.
//!
//! The fixtures in `tests/data/fixtures` are small, and written by hand from the vendors' documentation. Recordings of
//! real traffic are no part of this project: the environment variable `AGENTOUTO_CASSETTES` names their folder. Either
//! folder has folders by provider, and in those one JSON file for each case. Nothing here knows a case by its name.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod case;
mod compare;
mod conversation;
mod differences;
mod kept;
mod meaning;
mod mistakes;
mod replay;
mod suite;
mod wires;

use std::fmt::Arguments;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use agentouto::Provider;
use agentouto::providers::anthropic::Anthropic;
use agentouto::providers::google::Google;
use agentouto::providers::openai::OpenAi;
use agentouto::providers::openai_responses::OpenAiResponses;

use self::case::Wire;
use self::suite::Suite;
use crate::server::KEY;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traffic_is_understood_and_goes_on_as_it_did() -> ExitCode {
    let mut is_well = Suite::fixtures().pass().await;
    match std::env::var_os(VARIABLE) {
        Some(folder) => is_well &= Suite::recordings(folder).pass().await,
        None => say(format_args!("cassettes: skipped: {VARIABLE} does not name a folder of recordings")),
    }
    // Not a panic: its message would come after the summary.
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A provider that speaks the wire at `base_url` and asks once.
fn provider(wire: Wire, base_url: &str) -> Arc<dyn Provider> {
    match wire {
        Wire::Chat => Arc::new(OpenAi::new(KEY).base_url(base_url).retries(0)),
        Wire::Messages => Arc::new(Anthropic::new(KEY).base_url(base_url).retries(0)),
        Wire::Gemini => Arc::new(Google::new(KEY).base_url(base_url).retries(0)),
        Wire::Responses => Arc::new(OpenAiResponses::new(KEY).base_url(base_url).retries(0)),
    }
}

/// Says a line, also when the test passes: what it prints in the usual way is kept back then.
fn say(line: Arguments<'_>) {
    // Nobody may be reading.
    let _ = writeln!(std::io::stdout(), "{line}");
}

const VARIABLE: &str = "AGENTOUTO_CASSETTES";
