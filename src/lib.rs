//! LLM agents that call each other as equals.
#[cfg(panic = "abort")]
compile_error!(
    "agentouto turns panics into error Returns, which `panic = \"abort\"` makes impossible: build with `panic = \"unwind\"`"
);

// Floor 0: values, and the traits of the boundaries.
mod agent;
mod context;
mod error;
mod event;
mod message;
mod provider;
pub mod tool;

// Floor 1: decisions.
mod builtin;
mod prompt;
mod trace;
mod turn;

// Floor 2: actors.
mod invocation;
mod router;
mod runtime;
mod scope;
mod span;
mod user;

// Floor 3: the outside.
pub mod providers;

pub use agent::{Agent, Effort, Reasoning};
pub use context::{ChatMessage, Context};
pub use error::{BuildError, CallError, ProviderError, ProviderErrorKind};
pub use event::{Event, EventKind};
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

/// A boxed future, as the traits of this crate return it.
pub use futures_util::future::BoxFuture;
