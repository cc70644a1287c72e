//! Tools around tools. Nothing outside this folder knows one of them.

mod cached;

pub use cached::Cached;
