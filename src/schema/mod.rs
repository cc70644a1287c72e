//! JSON Schemas of tools, which may come from untrusted sources. Nothing is fetched, and nothing here waits.

pub(crate) mod limits;
#[cfg(feature = "prompt_tools")]
mod validate;

#[cfg(feature = "prompt_tools")]
pub(crate) use validate::{Schema, example};
