//! Everything that is tested through the public API, in one binary.

mod cancellation;
mod faults;
mod observers;
#[cfg(feature = "http")]
mod openai;
#[cfg(feature = "http")]
mod openai_responses;
mod peers;
mod scenarios;
mod team;
mod tidy;
