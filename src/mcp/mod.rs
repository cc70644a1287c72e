//! The [Model Context Protocol](https://modelcontextprotocol.io): tools of MCP servers for a runtime's agents, and an
//! MCP server for a runtime's agents.
//!
//! The feature `mcp-client` contains the first, `mcp-server` the second. Nothing outside this folder depends on it, and
//! nothing outside it uses the MCP SDK.
//!
//! # Tools of servers
//!
//! ```no_run
//! use agentouto::{Runtime, mcp};
//!
//! # #[cfg(feature = "mcp-client")]
//! # async fn example(runtime: Runtime) -> Result<(), Box<dyn std::error::Error>> {
//! let connections = mcp::Servers::new()
//!     .server("files", mcp::ServerConfig::stdio("npx", ["-y", "@modelcontextprotocol/server-filesystem", "/data"]))
//!     .server("search", mcp::ServerConfig::http("https://example.com/mcp").bearer_token("…"))
//!     .connect()
//!     .await?;
//! for error in connections.unavailable() {
//!     eprintln!("{error}"); // the others work, and this one joins when it is there
//! }
//! connections.add_to(&runtime)?; // their tools, now and after every change
//!
//! let files = connections.server("files")?;
//! for resource in files.resources().await? {
//!     println!("{}: {}", resource.uri, files.read_resource(&*resource.uri).await?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **Names.** A tool is offered under the name that its server gives it, in which `.`, `/`, `:` and spaces become `_`.
//! A name with any other character outside `[a-zA-Z0-9_-]`, an empty name and a name of more than 64 characters are
//! refused, so that no tool can look like another. If names collide, between servers or with a tool, agent, actor or
//! user of the runtime, all of the colliding servers' tools are offered as `{server}__{tool}`; a name that collides
//! even then is refused. Servers come in the order given, and the tools of a server in the order of their names.
//! [`Connections::refused`] returns the refused tools with the reasons. A peer or tool that joins the runtime later
//! cannot take a name in use.
//!
//! **Trust.** Models read the texts that a server writes about its tools, so these texts are pinned. A tool whose name,
//! description or schema has changed since it was first seen is disabled until [`Connection::approve`], also in calls
//! that are in progress. [`Connections::tools`] shows the texts that models read, and only what it has shown can be
//! approved. [`Connections::pins`] keeps the pins for the next run, in which new tools wait for approval too.
//! [`ServerConfig::only`] and [`ServerConfig::without`] select the tools of a server. Schemas with external or circular
//! references, or that are too deep or too large, are refused. A server's requests for sampling, elicitation and roots
//! are denied.
//!
//! [`ServerConfig::approved_by`] names a peer that must approve each call of a server's tools.
//!
//! Invisible characters are removed from descriptions, schemas, results and errors. A schema that has them in a value
//! that is sent back to the server, such as the name of a parameter, is refused. The names of prompts and the URIs of
//! resources, which programs send back, stay unchanged.
//!
//! **Secrets.** The credentials in a server's configuration are never shown in a model's context, an event, an error,
//! `Debug` output or a log: bearer tokens, passwords and keys in its URL, and headers, variables, options and query
//! parameters whose name is like that of a key, a token or a password. Errors and logs also hide all other values of
//! the configuration, except paths, names of packages and options. A mark replaces each of them. A value is recognised
//! unchanged, in JSON, percent-encoded and in base64, but not if the server transforms it in another way. Values of
//! fewer than 6 bytes are not hidden. The names of tools and parameters, and the values that a schema allows, stay
//! unchanged: a simple password may be part of one.
//!
//! **Configuration.** A configuration names commands to start, and these may do anything on this machine. So servers
//! come only from code, or from a file that the program names ([`Servers::from_file`]). No file is ever searched for,
//! least of all in a folder in which agents work.
//!
//! **Calls.** Every call ends: with its result, at a timeout ([`ServerConfig::idle_timeout`]), with its server, or when
//! its caller cancels it. On a timeout or cancellation, the server is sent a cancellation. Progress notifications
//! become [`ToolProgress`](crate::EventKind::ToolProgress) events, and reset the idle timeout. Texts, images, audio,
//! links, embedded resources and structured content are returned as [`Content`](crate::Content). Text beyond a limit is
//! saved in a file, and an attachment that is not base64 becomes a note. Errors of the tool and of the protocol go to
//! the model.

#[cfg(feature = "mcp-client")]
mod client;
#[cfg(feature = "mcp-server")]
mod server;
#[cfg(feature = "mcp-client")]
mod transport;

#[cfg(feature = "mcp-client")]
pub use client::catalogue::OnChange;
#[cfg(feature = "mcp-client")]
pub use client::config::ServerConfig;
#[cfg(feature = "mcp-client")]
pub use client::connection::{Connection, Prompt, PromptArgument, PromptMessage, Resource};
#[cfg(feature = "mcp-client")]
pub use client::connections::{Connections, Pins, Servers, ToolInfo};
#[cfg(feature = "mcp-client")]
pub use client::definition::{Fingerprint, RefusedTool};
#[cfg(feature = "mcp-client")]
pub use client::error::Error;
#[cfg(feature = "mcp-server")]
pub use server::{AgentServer, BoundServer, HttpServer, ServeError, serve};
