//! LLM agents that call each other as equals, each call a short-lived actor.
//!
#![doc = include_str!("../README.md")]
//!
//! # How it is built
//!
//! An invocation reaches the world through three doors that it is handed: its [`Provider`], its [`Tool`]s, and the
//! router's `deliver`. What passes them can be serialised, and between them the loop is deterministic.
//!
//! A file imports only from a lower floor, or from the left on its own; a test holds this.
//!
//! | floor | what | files |
//! |---|---|---|
//! | 3 | the outside | `schema` (of tools that strangers wrote), `secrets` (that no text shows), `redirects` (which are followed), [`providers`], [`tools`], `mcp` |
//! | 2 | actors | `panics` (where those of foreign code end), `call_id_source`, `threads` (of tools that block), `observers`, `scope` (what calls share: cancellation, observers, the count of those that are alive), `span`, `snapshot` (who and what there is), `outcome` (the one Return of a Forward), `delivery` (the way of a Forward, and of its result back), `poll_timer`, `tool_run`, `model_call`, `fan_out` (the actions of a turn), `actor_peer`, `invocation` (the agent loop), `router`, `user`, `runtime` |
//! | 1 | decisions, plain functions | `toolbox`, `prompt`, `builtin` (`call_agent`, `finish`, arguments), `turn` (a reply in, a step out: read it first), `trace` |
//! | 0 | values, and the traits of the boundaries | `name`, `spelling`, `call_id`, `content`, `tool_call`, `reply`, `context`, `agent`, `provider`, `error`, `message`, `caller`, `tool`, `event` |
//!
//! # Lifetimes
//!
//! Invocations are unlinked actors. The tree of lifetimes is that of futures: a caller's pending call kills the callee
//! when it is dropped, and all calls below a held one share a cancellation that reaches them at once. A call is over when
//! no part of it is alive: neither its invocation, nor a tool of it, nor a call that it made. Its Return is recorded then,
//! whether or not its caller is polled. A part that a cancellation or an actor's answer leaves behind and that cannot end,
//! because it blocks its thread, holds the Return up for a second or two and no longer.
//!
//! A panic in a tool is an error that the model reads. One in the drop of what a cancellation ends is logged. Any other is
//! the [`CallError`] of the call it happened in.
//!
//! # Features
//!
//! - `http` (default): the providers that speak HTTP, and with them `reqwest`.
//! - `prompt_tools` (default): tools for models that cannot call functions, and with them `jsonschema`.
//! - `mcp-client`: the tools of MCP servers, and with them the client of the official SDK `rmcp`.
//! - `mcp-server`: the agents as an MCP server, and with it the server of that SDK, and `axum`.

#![cfg_attr(
    not(test),
    warn(clippy::expect_used, clippy::panic, clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)
)]

// Without this a panic could not become a Return.
#[cfg(panic = "abort")]
compile_error!(
    "agentouto turns panics into error Returns, which `panic = \"abort\"` makes impossible; use `panic = \"unwind\"`"
);

mod actor_peer;
mod agent;
mod builtin;
mod call_id;
mod call_id_source;
mod caller;
mod content;
mod context;
mod delivery;
mod error;
mod event;
mod fan_out;
mod invocation;
#[cfg(any(feature = "mcp-client", feature = "mcp-server"))]
pub mod mcp;
mod message;
mod model_call;
mod name;
mod observers;
mod outcome;
mod panics;
mod poll_timer;
mod prompt;
mod provider;
pub mod providers;
#[cfg(any(feature = "http", feature = "mcp-client"))]
mod redirects;
mod reply;
mod router;
mod runtime;
#[cfg(any(feature = "mcp-client", feature = "prompt_tools"))]
mod schema;
mod scope;
#[cfg(any(feature = "http", feature = "mcp-client"))]
mod secrets;
mod snapshot;
mod span;
mod spelling;
mod threads;
pub mod tool;
mod tool_call;
mod tool_run;
mod toolbox;
pub mod tools;
mod trace;
mod turn;
mod user;

pub use actor_peer::{Incoming, ReplyPort};
pub use agent::{Agent, Effort, Reasoning};
pub use call_id::CallId;
pub use caller::{Answerer, Caller};
pub use content::{Attachment, AttachmentKind, AttachmentSource, Content};
pub use context::{ChatMessage, Context};
pub use error::{BuildError, CallError};
pub use event::{Event, EventKind};
/// A boxed future, as the traits of this crate return it.
pub use futures_util::future::BoxFuture;
pub use message::{Forward, Return};
pub use name::Name;
pub use observers::Events;
pub use provider::{Delta, DeltaSink, Observer, Provider, ProviderError, ProviderErrorKind, Request};
pub use reply::{Reply, StopReason, Usage};
pub use runtime::{Runtime, RuntimeBuilder};
pub use tool::{Tool, ToolContext};
pub use tool_call::{Arguments, Progress, ToolCall, ToolCallId, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
pub use trace::{CallNode, CallTree, Log, Message};
pub use user::{Call, Report, RunError, User};
