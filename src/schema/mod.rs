//! JSON Schemas of tools, which may come from untrusted sources. Nothing is fetched, and nothing here waits.

mod example;
#[cfg(any(feature = "mcp-client", feature = "prompt_tools"))]
pub(crate) mod limits;
mod pattern;
#[cfg(feature = "prompt_tools")]
mod validate;

pub(crate) use example::example;
#[cfg(feature = "prompt_tools")]
pub(crate) use validate::Schema;
