//! The transports of the client: bytes on one side, messages of the SDK on the other.
//!
//! | file | what it does |
//! |---|---|
//! | `child`, `stdio`, `line_decoder` | a server that is a process: its life cycle, its streams, its lines |
//! | `streamable_http` | a server at an address |
//! | `redacted` | removes the secrets from messages, around either of these |
//! | `tap` | observes messages: progress, changes, requests of the server |

pub(crate) mod child;
pub(crate) mod line_decoder;
pub(crate) mod redacted;
pub(crate) mod stdio;
pub(crate) mod streamable_http;
pub(crate) mod tap;
