//! Tools that wrap other tools. No code outside this folder depends on a particular one.

mod cached;

pub use cached::Cached;
