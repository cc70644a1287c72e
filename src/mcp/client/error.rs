//! Why something with a server failed, for the program.

use std::error::Error as StdError;
use std::io::ErrorKind;
use std::sync::Arc;

use rmcp::transport::streamable_http_client::{AuthRequiredError, InsufficientScopeError};

use crate::error::backticked;
use crate::name::Name;

/// Why a server could not be used. What a model can repair is a [`ToolError`](crate::ToolError) instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or text of servers could not be read.
    #[error("the MCP servers could not be read: {reason}")]
    ConfigUnreadable {
        /// Why.
        reason: Arc<str>,
    },
    /// A server is written down in a way that cannot be.
    #[error("MCP server `{server}`{}: {reason}", if .key.is_empty() { String::new() } else { format!(", key `{key}`") })]
    Config {
        /// The server.
        server: Name,
        /// The key, if it is about one.
        key: Arc<str>,
        /// What is wrong.
        reason: Arc<str>,
    },
    /// None of several servers could be started or reached.
    #[error("no MCP server is there; {}", .errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    NoServer {
        /// Why, of each.
        errors: Vec<Self>,
    },
    /// A server could not be started or reached.
    #[error("MCP server `{server}`: {reason}")]
    Connect {
        /// The server.
        server: Name,
        /// Why.
        reason: Arc<str>,
    },
    /// A server did not do what it was asked.
    #[error("MCP server `{server}`: {reason}")]
    Request {
        /// The server.
        server: Name,
        /// Why.
        reason: Arc<str>,
    },
    /// A tool that was to be approved is not what was shown any more.
    #[error("MCP server `{server}`: the definition of tool `{tool}` has changed since it was shown")]
    Changed {
        /// The server.
        server: Name,
        /// What the server calls the tool.
        tool: Arc<str>,
    },
    /// There is no such server, or it has no such tool.
    #[error("there is no MCP server or tool `{name}`; there are {}", backticked(.known))]
    Unknown {
        /// The name.
        name: Name,
        /// Those that there are.
        known: Vec<Name>,
    },
}

/// What the operating system said, if that is what an error comes from.
pub(crate) fn io_kind(error: &(dyn StdError + 'static)) -> Option<ErrorKind> {
    find::<std::io::Error>(error).map(std::io::Error::kind)
}

/// Whether an error comes from a server that wants another key, or a key that may do more.
pub(crate) fn is_about_the_key(error: &(dyn StdError + 'static)) -> bool {
    find::<AuthRequiredError>(error).is_some() || find::<InsufficientScopeError>(error).is_some()
}

/// The error of this type that an error is or comes from.
fn find<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}
