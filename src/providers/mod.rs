//! The providers. Nothing outside this folder knows one of them.
//!
//! Four wire formats are siblings of one shape, a `Wire`: [`openai`], [`openai_responses`], [`anthropic`],
//! [`google`]. A request to a model passes these layers, each one file:
//!
//! | layer | what it does |
//! |---|---|
//! | `api` | what users meet: keys, addresses, timeouts |
//! | `retry`, `throttle` | asks again where that may help; how many requests at once |
//! | `endpoint` | asks once, and takes in the answer, whole or piece by piece |
//! | `body`, a wire's `request` | writes the request, each message once |
//! | `models`, `offer` | settings that a model accepts; tools in a form that vendors accept |
//! | `http`, `sse`, `failure`, `retry_after` | bytes, events, and what servers say went wrong |
//! | a wire's `reply`, `draft` | reads the answer |
//!
//! `prompt_tools` lets models use tools that cannot call functions, by any of these. [`scripted`] needs no network.

#[cfg(feature = "http")]
pub mod anthropic;
#[cfg(feature = "http")]
mod api;
#[cfg(feature = "http")]
mod body;
#[cfg(feature = "http")]
mod draft;
#[cfg(feature = "http")]
mod endpoint;
#[cfg(feature = "http")]
mod failure;
#[cfg(feature = "http")]
pub mod google;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
mod models;
#[cfg(feature = "http")]
mod offer;
#[cfg(feature = "http")]
pub mod openai;
#[cfg(feature = "http")]
pub mod openai_responses;
#[cfg(feature = "prompt_tools")]
pub mod prompt_tools;
#[cfg(feature = "http")]
mod retry;
#[cfg(feature = "http")]
mod retry_after;
pub mod scripted;
#[cfg(feature = "http")]
mod sse;
#[cfg(feature = "http")]
mod throttle;
#[cfg(feature = "http")]
mod wire;

#[cfg(feature = "http")]
pub use api::{Api, Streaming};
#[cfg(feature = "http")]
pub use retry::Retry;
