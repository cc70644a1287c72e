//! The transports of the client: bytes on one side, messages of the SDK on the other.
//!
//! | file | what it does |
//! |---|---|
//! | `child`, `stdio`, `line_decoder` | a server that is a process: its life, its streams, its lines |
//! | `streamable_http` | a server at an address |
//! | `redacted` | takes the secrets out of messages, around either of these |
//! | `tap` | sees messages pass: progress, changes, requests of the server |

pub(crate) mod child;
pub(crate) mod line_decoder;
pub(crate) mod redacted;
pub(crate) mod stdio;
pub(crate) mod streamable_http;
pub(crate) mod tap;
