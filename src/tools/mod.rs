//! Built-in tools, and tools that wrap other tools with [`ToolExt`], which makes them. No code outside this folder
//! depends on a particular one.
//!
//! - `Files` (feature `files`): `read_file`, `write_file`, `edit_file`, `list_dir`.
//! - `Shell` (feature `shell`): `exec`, in a sandbox.
//! - `Web` (feature `web`): `web_fetch` and `web_search`.

mod approved;
mod cached;
mod concurrency_limit;
#[cfg(feature = "files")]
pub mod files;
mod only_for;
#[cfg(feature = "shell")]
pub mod shell;
mod timeout;
#[cfg(feature = "web")]
pub mod web;
mod wrapper;

use std::time::Duration;

pub use approved::Approved;
pub use cached::Cached;
pub use concurrency_limit::ConcurrencyLimit;
#[cfg(feature = "files")]
pub use files::Files;
pub use only_for::OnlyFor;
#[cfg(feature = "shell")]
pub use shell::Shell;
pub use timeout::Timeout;
#[cfg(feature = "web")]
pub use web::Web;
pub use wrapper::{InnerTool, ToolWrapper};

use crate::name::Name;
use crate::tool_interface::Tool;

/// The wrappers of tools, as methods of every tool. Each returns a tool of the same name, description and parameters.
///
/// The order matters, because a wrapper applies to all that it wraps:
///
/// - `tool.timeout(limit).at_most(2)` limits the run of the tool; the wait for one of the two places is not limited.
///   `tool.at_most(2).timeout(limit)` limits both together.
/// - `tool.timeout(limit).approved_by("human")` lets the human take any time. `tool.approved_by("human").timeout(limit)`
///   limits the human and the run together.
/// - `tool.cached(time).approved_by("human")` asks about every call. `tool.approved_by("human").cached(time)` asks once
///   for each result that is kept, and gives it to all agents without a further question.
/// - [`only_for`](Self::only_for) holds wherever it stands: caches and questions check it first.
///
/// ```
/// use std::time::Duration;
/// use agentouto::ToolExt as _;
/// use agentouto::tool::{self, NoArguments};
///
/// let backup = tool::function("backup", "Saves all data.", |_: NoArguments| async { "saved" });
/// let backup = backup.timeout(Duration::from_secs(60)).at_most(1).only_for(["admin"]);
/// # let _: &dyn agentouto::Tool = &backup;
/// ```
pub trait ToolExt: Tool + Sized {
    /// Ends a call that takes longer than this, on tokio's clock. The model reads
    /// [`ToolError::timeout`](crate::ToolError::timeout).
    ///
    /// The future of the tool is dropped, and with it the calls that it awaits. A function that
    /// [blocks](crate::tool::blocking) cannot be interrupted: it runs to its end, unseen, unless it has not begun.
    fn timeout(self, limit: Duration) -> Timeout {
        Timeout::new(self, limit)
    }

    /// Runs at most this many calls at the same time, of all agents together; further calls wait for their turn, in the
    /// order in which they came. 0 counts as 1. A call that is cancelled gives its place back.
    ///
    /// A function that [blocks](crate::tool::blocking) keeps its place until it has ended, even if its call was
    /// cancelled before, or a time limit inside has ended it. A call that waits keeps no thread. A tool that calls
    /// agents which call the same tool may wait for itself.
    fn at_most(self, calls: usize) -> ConcurrencyLimit {
        ConcurrencyLimit::new(self, calls)
    }

    /// Keeps results for this time: the same call gets the same result, and the tool is not run again, see [`Cached`].
    fn cached(self, time_to_live: Duration) -> Cached {
        Cached::around(self).time_to_live(time_to_live)
    }

    /// Asks a peer before each call: a person, an actor or an agent, see [`Approved`].
    fn approved_by(self, peer: impl Into<Name>) -> Approved {
        Approved::new(self, peer.into())
    }

    /// Refuses calls by other agents than these. The tool is still offered to all; the model of another agent reads
    /// which agents may call it.
    fn only_for<N: Into<Name>>(self, agents: impl IntoIterator<Item = N>) -> OnlyFor {
        OnlyFor::new(self, agents.into_iter().map(Into::into).collect())
    }
}

impl<T: Tool> ToolExt for T {}
