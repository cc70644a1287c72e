//! LLM agents that call each other as equals. Every call is a short-lived [ractor] actor with a context of its own.
//!
//! One [`Forward`] goes from a caller to a callee, one [`Return`] comes back, and there is no third message. Any agent
//! may call any other, itself and its caller included, to any depth and any number at once. A user is an actor like
//! any other that happens to have no model. The runtime limits nothing; a caller may withdraw its call, and everything
//! below it ends.
//!
//! ```
//! use agentouto::providers::scripted::Scripted;
//! use agentouto::{Agent, Reply, Runtime, tool};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Search {
//!     /// What to look for.
//!     query: String,
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // A model on a script. `providers::openai::OpenAi::from_env()?` takes its place for a real one.
//!     let model = Scripted::new()
//!         .replies("researcher", [Reply::tool("search_web", serde_json::json!({"query": "peers"}))])
//!         .replies("researcher", [Reply::call_agent("writer", "3 results"), Reply::finish("A report.")])
//!         .replies("writer", [Reply::finish("A draft.")]);
//!
//!     let runtime = Runtime::builder()
//!         .provider("script", model)
//!         .agent(Agent::new("researcher", "Search and verify."))
//!         .agent(Agent::new("writer", "Turn findings into a report."))
//!         .tool(tool::function("search_web", "Search the web.", async |search: Search| format!("3 results for {}", search.query)))
//!         .build()?;
//!
//!     let report = runtime.run("researcher", "Write a report on peers.").await?;
//!     assert_eq!(&*report.output, "A report.");
//!     println!("{}", report.log.tree());
//!     Ok(())
//! }
//! ```
//!
//! # The flow
//!
//! ```text
//!  user ──Forward──▶ router ──starts──▶ invocation ──Request──▶ provider
//!   ▲                                    │   ▲  ▲                  │
//!   │                                    │   │  └──────Reply───────┘
//!   │                                    │   └──────ToolOutput───────── tool
//!   │                                    ├────ToolCall──────────────▶ tool
//!   │                                    ├────Forward──▶ router ──starts──▶ invocation …
//!   │                                    │◀───Return───────────────────────────┘
//!   └──────────────Return────────────────┘            every arrow can be observed as an Event
//! ```
//!
//! An invocation reaches the world through three doors that it is handed: its [`Provider`], its [`Tool`]s, and the
//! router's `deliver`. What passes them can be serialised, and between them the loop is deterministic.
//!
//! # The map
//!
//! A file imports only from a lower floor, or from the left on its own; a test holds this.
//!
//! | floor | what | files |
//! |---|---|---|
//! | 3 | the outside | [`providers`] |
//! | 2 | actors | `scope` (what calls share: withdrawal, observers), `span`, `invocation` (the agent loop), `router`, `user`, `runtime` |
//! | 1 | decisions, plain functions | `prompt`, `builtin` (`call_agent`, `finish`, arguments), `turn` (a reply in, a step out: read it first), `trace` |
//! | 0 | values, and the traits of the boundaries | `message`, `agent`, `tool`, `context`, `provider`, `event`, `error` |
//!
//! # Lifetimes
//!
//! Invocations are unlinked actors. The tree of lifetimes is that of futures: a caller's pending call owns a guard that
//! kills the callee when it is dropped, and all calls below a held one share a withdrawal that reaches them at once. A
//! panic in a tool is an error that the model reads; any other is the [`CallError`] of the call it happened in.
//!
//! # Features
//!
//! - `http` (default): the providers that speak HTTP, and with them `reqwest`.

#![cfg_attr(
    not(test),
    warn(clippy::expect_used, clippy::panic, clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)
)]

// Without this a panic could not become a Return.
#[cfg(panic = "abort")]
compile_error!(
    "agentouto turns panics into error Returns, which `panic = \"abort\"` makes impossible; use `panic = \"unwind\"`"
);

mod agent;
mod builtin;
mod context;
mod error;
mod event;
mod invocation;
mod message;
mod prompt;
mod provider;
pub mod providers;
mod router;
mod runtime;
mod scope;
mod span;
pub mod tool;
mod trace;
mod turn;
mod user;

pub use agent::{Agent, Effort, Reasoning};
pub use context::{ChatMessage, Context};
pub use error::{BuildError, CallError, ProviderError, ProviderErrorKind};
pub use event::{Event, EventKind};
/// A boxed future, as the traits of this crate return it.
pub use futures_util::future::BoxFuture;
pub use message::{
    Answerer, Attachment, AttachmentKind, AttachmentSource, CallId, Caller, Content, Forward, Name, Return,
};
pub use provider::{Delta, Growth, Provider, Reply, Request, StopReason, Usage};
pub use router::{Incoming, ReplyPort};
pub use runtime::{Runtime, RuntimeBuilder};
pub use scope::Events;
pub use tool::{Arguments, Tool, ToolCall, ToolCallId, ToolContext, ToolError, ToolOutput, ToolSpec};
pub use trace::{CallNode, CallTree, Log, Message};
pub use user::{Call, Report, RunError, User};
