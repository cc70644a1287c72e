//! The crate through its public API.

mod openai;
