//! The shared part of all providers that speak HTTP: from a request to the bytes on the wire, and back to a reply.
//!
//! | file | what it does |
//! |---|---|
//! | `api` | the provider that users configure: keys, addresses, timeouts |
//! | `endpoint` | sends one request and reads the response, whole or event by event |
//! | `encode` | writes the request's body; each message is encoded once |
//! | `wire_format` | the trait that each format implements, and fields that may be odd |
//! | `client` | bytes, deadlines, status codes, headers that stay secret |
//! | `sse` | server-sent events |
//! | `reply_builder` | the reply, as its pieces arrive |
//! | `error_body`, `retry_after` | what a server says about a failure |

pub(crate) mod api;
pub(crate) mod client;
pub(crate) mod encode;
mod endpoint;
pub(crate) mod error_body;
pub(crate) mod reply_builder;
mod retry_after;
pub(crate) mod sse;
pub(crate) mod wire_format;
