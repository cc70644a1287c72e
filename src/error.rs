//! The errors that a program handles. A failure that a *model* can repair is a tool output, which the model reads
//! instead.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::call_id::CallId;
use crate::name::{self, Name};
use crate::provider::ProviderError;

/// The error of a call that has no answer. A calling model reads its text after `Error: `.
///
/// An error never wraps the error of a call below it, so its size does not grow with the depth of the calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CallError {
    /// No agent, actor or user has that name.
    #[error("Unknown agent: {agent}; {}{}", hint(.agent, *.is_tool), list("agents", .nearest, *.count))]
    UnknownAgent {
        /// The name that was called.
        agent: Arc<str>,
        /// The names that exist: all of them, or the nearest by spelling when there are many.
        nearest: Vec<Name>,
        /// The number of names that exist.
        count: usize,
        /// `true` if a tool has that name.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_tool: bool,
    },
    /// The request to the callee's model failed.
    #[error("[{provider}] {error}")]
    Provider {
        /// The name under which the provider is registered.
        provider: Name,
        /// The provider's error.
        error: ProviderError,
    },
    /// Code that ran for the callee panicked.
    #[error("`{name}` panicked: {message}")]
    Panicked {
        /// The name of the callee.
        name: Name,
        /// The panic's text.
        message: Arc<str>,
    },
    /// The caller cancelled the call.
    #[error("the call was cancelled")]
    Cancelled,
    /// The callee ended without an answer: it was killed, or it dropped the reply port.
    #[error("`{name}` ended without an answer")]
    Unanswered {
        /// The name of the callee.
        name: Name,
    },
    /// The callee could not be started or reached.
    #[error("`{name}` could not be reached: {reason}")]
    Unreachable {
        /// The name of the callee.
        name: Name,
        /// The reason.
        reason: Arc<str>,
    },
    /// The runtime has shut down.
    #[error("the runtime has shut down")]
    ShutDown,
    /// A user's name is taken by an agent or an actor, or is not a valid name.
    #[error("user `{name}`: {}", name::problem_of_user(.name).unwrap_or("an agent or actor has that name"))]
    NameTaken {
        /// The name.
        name: Name,
    },
    /// Another running call has the same id: the source of
    /// [`RuntimeBuilder::call_ids`](crate::RuntimeBuilder::call_ids) repeats itself.
    #[error("the call id {call_id} is in use; a source of call ids must not repeat itself")]
    IdInUse {
        /// The repeated id.
        call_id: CallId,
    },
    /// The call, or a request to a model for it, would have exceeded a limit that a caller above set, see
    /// [`Call::budget`](crate::Call::budget).
    #[error("{}", what.exceeded(*limit))]
    BudgetExceeded {
        /// The limited resource.
        what: Resource,
        /// The limit, in the unit of the resource.
        limit: u64,
    },
    /// The answer is not of the type that the caller expects, see [`Call::typed`](crate::Call::typed). A model was told
    /// so three times before.
    #[error("the answer of `{name}` does not fit: {problem}")]
    Misfit {
        /// The name of the callee.
        name: Name,
        /// The place in the answer, what was found there, and what was expected.
        problem: Arc<str>,
    },
    /// An error that an actor or a user returned.
    #[error("{0}")]
    Failed(Arc<str>),
}

/// A resource that a caller can limit for everything below a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Resource {
    /// Tokens: input and output of all requests to models.
    Tokens,
    /// Requests to models, each retry included.
    Requests,
    /// Calls of agents, actors and users.
    Calls,
    /// Levels of calls below the limited call.
    Depth,
    /// Time since the call was sent, in milliseconds.
    Time,
    /// The price of all requests to models, in millionths of the currency of the prices.
    Cost,
}

impl Resource {
    /// The text of the error that a limit is exceeded.
    fn exceeded(self, limit: u64) -> String {
        match self {
            Self::Tokens => format!("the budget of {limit} tokens is used up"),
            Self::Requests => format!("the budget of {limit} requests to models is used up"),
            Self::Calls => format!("the budget of {limit} calls is used up"),
            Self::Depth => format!("the budget allows {limit} levels of calls"),
            Self::Time => format!("the budget of {:?} is used up", Duration::from_millis(limit)),
            Self::Cost => format!("the budget of {} for models is used up", limit as f64 / 1e6),
        }
    }
}

impl CallError {
    /// An error with this text.
    pub fn failed(text: impl Into<Arc<str>>) -> Self {
        Self::Failed(text.into())
    }
}

fn hint(agent: &str, is_tool: bool) -> String {
    if is_tool { format!("`{agent}` is a tool: call it directly; ") } else { String::new() }
}

/// Returns `available agents: a, b`, or `the nearest of 900 agents: a, b`, or `there are no agents`.
pub(crate) fn list(what: &str, nearest: &[Name], count: usize) -> String {
    match nearest.len() {
        0 => format!("there are no {what}"),
        shown if shown == count => format!("available {what}: {}", nearest.join(", ")),
        _ => format!("the nearest of {count} {what}: {}", nearest.join(", ")),
    }
}

/// The error of a runtime that cannot be built, or of a peer or tool that cannot be added to one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A name that cannot be used.
    #[error("{what} `{name}`: {reason}")]
    Name {
        /// The kind of the named thing: `agent`, `actor`, `user`, `tool` or `provider`; `agent, actor or user` where a
        /// peer's name is taken.
        what: &'static str,
        /// The name.
        name: Name,
        /// The reason why the name cannot be used.
        reason: &'static str,
    },
    /// An agent whose provider is not registered.
    #[error("agent `{agent}`: unknown provider `{provider}`; known are {}", backticked(.known))]
    UnknownProvider {
        /// The agent.
        agent: Name,
        /// The provider that the agent names.
        provider: Name,
        /// The registered providers, sorted.
        known: Vec<Name>,
    },
    /// An agent that names no provider, while there is not exactly one to choose.
    #[error("agent `{agent}`: names no provider; known are {}", backticked(.known))]
    NoProvider {
        /// The agent.
        agent: Name,
        /// The registered providers, sorted.
        known: Vec<Name>,
    },
    /// A tool whose parameters are not a JSON Schema of an object.
    #[error("tool `{tool}`: its parameters must be a JSON Schema with `\"type\": \"object\"`, such as a struct gives")]
    Parameters {
        /// The tool.
        tool: Name,
    },
}

/// Returns the names in backticks, or `none`.
pub(crate) fn backticked(names: &[Name]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    }
}
