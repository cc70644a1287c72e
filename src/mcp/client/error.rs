//! The errors of MCP servers that the program gets.

use std::error::Error as StdError;
use std::io::ErrorKind;
use std::sync::Arc;

use rmcp::transport::streamable_http_client::{AuthRequiredError, InsufficientScopeError};

use crate::error::backticked;
use crate::name::Name;

/// An error in the use of a server, for the program. Errors that a model can repair are a
/// [`ToolError`](crate::ToolError) instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A configuration file or text could not be read.
    #[error("the MCP servers could not be read: {reason}")]
    ConfigUnreadable {
        /// The reason.
        reason: Arc<str>,
    },
    /// The configuration of a server is invalid.
    #[error("MCP server `{server}`{}: {reason}", if .key.is_empty() { String::new() } else { format!(", key `{key}`") })]
    Config {
        /// The name of the server.
        server: Name,
        /// The key that is invalid; empty if the error is not about one key.
        key: Arc<str>,
        /// The reason.
        reason: Arc<str>,
    },
    /// None of several servers could be started or reached.
    #[error("no MCP server is there; {}", .errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    NoServer {
        /// The errors of the servers.
        errors: Vec<Self>,
    },
    /// A server could not be started or reached.
    #[error("MCP server `{server}`: {reason}")]
    Connect {
        /// The name of the server.
        server: Name,
        /// The reason.
        reason: Arc<str>,
    },
    /// A request to a server failed.
    #[error("MCP server `{server}`: {reason}")]
    Request {
        /// The name of the server.
        server: Name,
        /// The reason.
        reason: Arc<str>,
    },
    /// The definition of a tool that was to be approved has changed since it was shown.
    #[error("MCP server `{server}`: the definition of tool `{tool}` has changed since it was shown")]
    Changed {
        /// The name of the server.
        server: Name,
        /// The server's name for the tool.
        tool: Arc<str>,
    },
    /// There is no such server, or the server has no such tool.
    #[error("there is no MCP server or tool `{name}`; there are {}", backticked(.known))]
    Unknown {
        /// The unknown name.
        name: Name,
        /// The known names.
        known: Vec<Name>,
    },
}

/// The kind of the I/O error that is this error or one of its sources.
pub(crate) fn io_kind(error: &(dyn StdError + 'static)) -> Option<ErrorKind> {
    find::<std::io::Error>(error).map(std::io::Error::kind)
}

/// Returns whether the server requires another key, or a key with more permissions.
pub(crate) fn is_about_the_key(error: &(dyn StdError + 'static)) -> bool {
    find::<AuthRequiredError>(error).is_some() || find::<InsufficientScopeError>(error).is_some()
}

/// The error of this type that is this error or one of its sources.
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
