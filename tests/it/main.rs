//! Everything that is tested through the public API, in one binary.

mod cancellation;
#[cfg(feature = "http")]
mod cassettes;
mod faults;
mod observers;
#[cfg(feature = "http")]
mod openai;
mod peers;
mod scenarios;
#[cfg(feature = "http")]
mod server;
mod team;
mod tidy;
