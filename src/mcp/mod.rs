//! The [Model Context Protocol](https://modelcontextprotocol.io): the tools of its servers as tools of a runtime, and a
//! runtime's agents as such a server. Nothing outside this folder knows of it, and nothing but this folder of the SDK.

mod server;

pub use server::{AgentServer, BoundServer, HttpServer, ServeError, serve};
