//! JSON Schemas of tools, which anybody may have written. Nothing is fetched, and nothing here waits.

#[cfg(feature = "prompt_tools")]
mod fit;
pub(crate) mod guard;

#[cfg(feature = "prompt_tools")]
pub(crate) use fit::{Schema, example};
