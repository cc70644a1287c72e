//! The providers. Nothing outside this folder knows one of them.

#[cfg(feature = "http")]
mod failure;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
pub mod openai;
#[cfg(feature = "http")]
mod retry_after;
pub mod scripted;
#[cfg(feature = "http")]
mod sse;
