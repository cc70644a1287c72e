//! Everything that is tested through the public API, in one binary.

mod answers;
mod anthropic;
mod blocking;
mod cached;
mod cancellation;
mod cassettes;
mod chaos;
mod encoding;
mod faults;
mod gate;
mod google;
mod multiplexing;
mod observers;
mod openai;
mod openai_responses;
mod outcomes;
mod peers;
mod prompt_tools;
mod retry;
mod scenarios;
mod server;
mod silent;
mod team;
mod tidy;
mod tools;
mod trace;
