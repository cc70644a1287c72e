//! Everything that is tested through the public API, in one binary.

mod actors;
mod answers;
mod anthropic;
mod approval;
mod blocking;
mod budget;
mod cached;
mod cancellation;
mod cassettes;
mod chaos;
mod encoding;
mod fallback;
mod faults;
mod forbidden;
mod google;
mod lifetimes;
mod multiplexing;
mod observers;
mod openai;
mod openai_responses;
mod outcomes;
mod peers;
#[path = "../common/pending_tool.rs"]
mod pending_tool;
mod promises;
mod prompt_outputs;
mod prompt_tools;
mod retry;
mod run_context;
mod scenarios;
mod server;
mod silent_actor;
mod subtrees;
mod team;
mod testing;
mod tidy;
mod tools;
#[path = "../common/trace.rs"]
mod trace;
mod typed;
mod vendors;
mod wrappers;
