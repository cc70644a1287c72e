//! The shared part of all HTTP providers: encodes a request, sends it, and decodes the reply.
//!
//! | file | what it does |
//! |---|---|
//! | `api` | the provider that users configure: keys, addresses, timeouts |
//! | `endpoint` | sends one request and reads the response, as JSON or event by event |
//! | `encode` | writes the request's body; each message is encoded once |
//! | `wire_format` | the trait that each format implements, and lenient types for fields |
//! | `client` | connections, timeouts, status codes, headers that stay secret |
//! | `sse` | server-sent events |
//! | `reply_builder` | the reply, as its pieces arrive |
//! | `vendors` | the names of the vendors behind addresses, for spans and metrics |
//! | `forbidden` | the switch for tests that forbids all requests |
//! | `error_body`, `retry_after` | the server's words about an error |

pub(crate) mod api;
pub(crate) mod client;
pub(crate) mod encode;
mod endpoint;
pub(crate) mod error_body;
pub(crate) mod forbidden;
pub(crate) mod reply_builder;
mod retry_after;
pub(crate) mod sse;
mod vendors;
pub(crate) mod wire_format;
