//! The client: configures, connects and supervises servers, and adds their tools to a runtime.
//!
//! | file | what it does |
//! |---|---|
//! | `config`, `config_file` | the configuration of a server; the configuration files of known hosts |
//! | `connections`, `connection` | the handles that a program holds: all servers, and one of them |
//! | `supervisor` | keeps one server connected: starts it, and restarts it after it has ended |
//! | `session` | one connection, from its start to its end |
//! | `request`, `pages` | one request, and all pages of a list, both bounded |
//! | `definition`, `catalogue`, `names` | the tools of a server: read, pinned, named |
//! | `registration`, `mcp_tool` | the tools of all servers in one runtime; one of them |
//! | `output`, `overflow` | a result as content for a model; long texts in files |
//! | `redaction`, `visible` | texts without secrets, and without hidden characters |

pub(crate) mod catalogue;
pub(crate) mod config;
mod config_file;
pub(crate) mod connection;
pub(crate) mod connections;
pub(crate) mod definition;
pub(crate) mod error;
mod mcp_tool;
mod names;
pub(crate) mod output;
mod overflow;
mod pages;
pub(crate) mod redaction;
mod registration;
mod request;
mod session;
mod supervisor;
pub(crate) mod visible;
