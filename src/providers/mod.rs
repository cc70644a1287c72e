//! The providers. No code outside this folder knows a particular one.
//!
//! The four wire formats are siblings: [`openai`], [`openai_responses`], [`anthropic`], [`google`]. Each has a
//! `request`, which writes the body, and a `reply`, which reads the response. A request to a model passes these layers:
//!
//! | layer | what it does |
//! |---|---|
//! | `http::api` | the provider that users configure |
//! | `fallback`, `with_model` | asks another provider, or for another model |
//! | `retry`, `limiter` | retries failed requests; limits concurrent requests |
//! | `http` | sends one request and reads the response |
//! | `models`, `offer` | the settings that a model accepts; tools in a form that vendors accept |
//!
//! `prompt_tools` wraps any of these, for models without function calling. [`scripted`] needs no network. `wrapper` has
//! the trait of providers around providers.

#[cfg(feature = "http")]
pub mod anthropic;
mod attempts;
mod fallback;
#[cfg(feature = "http")]
pub mod google;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
mod limiter;
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
pub mod scripted;
mod with_model;
mod wrapper;

pub use fallback::Fallback;
#[cfg(feature = "http")]
pub use http::api::{Api, Streaming};
#[cfg(feature = "http")]
pub use http::forbidden::forbid_requests;
#[cfg(feature = "http")]
pub use retry::Retry;
pub use with_model::WithModel;
pub use wrapper::{ProviderExt, ProviderWrapper};
