//! LLM agents that call each other as equals, each call a short-lived actor.
//!
#![doc = include_str!("../README.md")]
//!
//! # Lifetimes
//!
//! Each call runs as an actor of its own, without a supervisor. A pending call owns its callee: dropping the call kills
//! the callee. All calls below a held call share one cancellation, which reaches them at once.
//!
//! A call is over when all its parts have ended: its actor, its tools, and the calls that it made. Its Return is
//! recorded then, whether or not the caller polls. A part that blocks its thread cannot end; after a cancellation the
//! Return waits for it one to two seconds and no longer.
//!
//! A panic in a tool is an error that the model reads. A panic in a drop during a cancellation is logged. Every other
//! panic becomes the [`CallError`] of the call in which it happened.
//!
//! # Features
//!
//! - `http` (default): the providers that speak HTTP, and with them `reqwest`.
//! - `prompt_tools` (default): tools for models that cannot call functions, and with them `jsonschema`.
//! - `files`: the tools for files, [`tools`], and with them `cap-std`.
//! - `otel`: one OpenTelemetry trace per run, also under a service's own spans, and metrics; with it `opentelemetry` and
//!   `tracing-opentelemetry`. The layer of the latter must be installed. Metrics go to the global meter provider. The
//!   span and the `tracestate` of the caller reach what is below a call; its baggage does not.
//! - `mcp-client`: the tools of MCP servers, and with them the client of the official SDK `rmcp`.
//! - `mcp-server`: the agents as an MCP server, and with it the server of that SDK, and `axum`.
//! - `shell`: the tool `exec`, [`tools::Shell`], and with it `landlock` and `seccompiler`. Its sandboxes need Linux.
//! - `web`: the tools `web_fetch` and `web_search`, and with them `reqwest` and readers of HTML and of charsets.

#![cfg_attr(
    not(test),
    warn(clippy::expect_used, clippy::panic, clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)
)]

// With `panic = "abort"` a panic could not become a Return.
#[cfg(panic = "abort")]
compile_error!(
    "agentouto turns panics into error Returns, which `panic = \"abort\"` makes impossible; use `panic = \"unwind\"`"
);

mod actor_peer;
mod agent;
mod agent_prompt;
mod answer_delta;
mod answer_type;
mod budget;
mod builder;
mod builtin;
mod call_builder;
mod call_id;
mod call_id_source;
mod caller;
mod content;
mod context;
mod delivery;
mod error;
#[cfg(any(feature = "http", feature = "mcp-client", feature = "web"))]
mod error_chain;
mod event;
mod fan_out;
mod invocation;
mod log;
mod log_details;
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
mod run_context;
mod runtime;
mod schema;
mod scope;
#[cfg(any(feature = "http", feature = "mcp-client", feature = "web"))]
mod secrets;
mod snapshot;
mod spans;
mod spelling;
mod telemetry;
pub mod testing;
mod threads;
pub mod tool;
mod tool_call;
mod tool_interface;
mod tool_run;
mod toolbox;
pub mod tools;
mod trace;
#[cfg(feature = "otel")]
mod trace_place;
mod turn;
mod typed;
mod user;

pub use actor_peer::{Incoming, ReplyPort};
pub use agent::{Agent, Effort, Reasoning};
pub use agent_prompt::AgentPrompt;
pub use answer_type::AnswerType;
pub use budget::{Budget, Price, Used};
pub use builder::RuntimeBuilder;
pub use call_builder::{Answer, CallBuilder};
pub use call_id::CallId;
pub use caller::{Answerer, Caller};
pub use content::{Attachment, AttachmentKind, AttachmentSource, Content};
pub use context::{ChatMessage, Context};
pub use error::{BuildError, CallError, Resource};
pub use event::{Approval, Decision, Event, EventKind};
/// A boxed future, as the traits of this crate return it.
pub use futures_util::future::BoxFuture;
pub use log::Log;
pub use log_details::{CutReply, LoggedToolCall};
pub use message::{Forward, Return};
pub use name::Name;
pub use observers::Events;
pub use provider::{Delta, DeltaSink, Observer, Provider, ProviderError, ProviderErrorKind, ProviderInfo, Request};
pub use providers::{ProviderExt, ProviderWrapper};
pub use reply::{Reply, StopReason, Usage};
pub use run_context::RunContext;
pub use runtime::Runtime;
pub use tool_call::{Arguments, Progress, ToolCall, ToolCallId, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
pub use tool_interface::{Tool, ToolContext};
pub use tools::ToolExt;
pub use trace::{CallNode, CallTree, Message};
pub use user::{Call, Report, RunError, User};
