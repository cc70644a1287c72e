//! The providers. Nothing outside this folder knows one of them.

pub mod scripted;
