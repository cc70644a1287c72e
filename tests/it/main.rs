//! Everything that is tested through the public API, in one binary.

#[cfg(feature = "http")]
mod anthropic;
mod cancellation;
#[cfg(feature = "http")]
mod cassettes;
mod chaos;
mod encoding;
mod faults;
#[cfg(feature = "http")]
mod google;
#[cfg(feature = "http")]
mod multiplexing;
mod observers;
#[cfg(feature = "http")]
mod openai;
#[cfg(feature = "http")]
mod openai_responses;
mod peers;
mod retry;
mod scenarios;
#[cfg(feature = "http")]
mod server;
mod team;
mod tidy;
#[cfg(feature = "http")]
mod trace;
