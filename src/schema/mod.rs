//! JSON Schemas of tools, which anybody may have written. Nothing is fetched, and nothing here waits.

pub(crate) mod limits;
#[cfg(feature = "prompt_tools")]
mod validate;

#[cfg(feature = "prompt_tools")]
pub(crate) use validate::{Schema, example};
