//! The [Model Context Protocol](https://modelcontextprotocol.io): the tools of its servers as tools of a runtime, and a
//! runtime's agents as such a server. Nothing outside this folder knows of it, and nothing but this folder of the SDK.
//!
//! The feature `mcp-client` has the first, `mcp-server` the second.
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
//! **Names.** A tool is offered by the name that its server gives it, in which `.`, `/`, `:` and spaces become `_`. A name
//! with any other character outside `[a-zA-Z0-9_-]`, an empty one and one of more than 64 characters is refused, so that no
//! tool can look like another. Where names collide, between servers or with a tool, agent, actor or user of the runtime,
//! every one of the colliding servers' tools is offered as `{server}__{tool}`; what collides even then is refused. The
//! order is that of the servers as given, and within a server that of the names. [`Connections::refused`] tells what is
//! refused, and why. Whoever joins the runtime later finds the names taken.
//!
//! **Trust.** Models read what a server says of its tools, so it is pinned. A tool whose name, description or schema is not
//! what it was when it was first seen is disabled until [`Connection::approve`], in calls that are under way too.
//! [`Connections::tools`] shows what models read, and only what it has shown can be approved. [`Connections::pins`] keeps the
//! pins for the next run, in which new tools wait for approval too. [`ServerConfig::only`] and [`ServerConfig::without`] select the tools
//! of a server. Schemas that refer to elsewhere or in a circle, or are too deep or too large, are refused. A server may ask us
//! for nothing: sampling, elicitation and roots are denied.
//!
//! Characters that a person does not see are taken out of descriptions, schemas, results and errors. A schema that has them in
//! what is sent back to the server, such as the name of a parameter, is refused. The names of prompts and the addresses of
//! resources, which programs send back, stay as they are.
//!
//! **Secrets.** No model, event, error, `Debug` output or log shows the credentials that a server is given: bearer tokens,
//! passwords and keys in its URL, and headers, variables, options and query parameters that are named like a key, a token or a
//! password. Errors and logs show no other value either that a server is given, except paths, names of packages and options.
//! A mark stands in their place. They are found as they are, in JSON, percent-encoded and in base64, and not in what a server
//! makes of them otherwise. Values of fewer than 6 bytes are not hidden. The names of tools and parameters, and the values that
//! a schema allows, stay as they are: a simple password may be part of one.
//!
//! **Configuration.** Whoever says which command is started may do anything here. So servers come from code, or from a file
//! that the program names ([`Servers::from_file`]); no file is ever looked for, least of all in a folder that agents work in.
//!
//! **Calls.** Every call ends: by its answer, by a deadline ([`ServerConfig::idle_timeout`]), with its server, or when its caller
//! withdraws it; in the last cases the server is told. Progress notifications become
//! [`ToolProgress`](crate::EventKind::ToolProgress) events, and give a call more time. Texts, images, audio, links,
//! embedded resources and structured content come back as [`Content`](crate::Content); text beyond a bound is kept in a
//! file, and an attachment that is not base64 becomes a note. Errors, of the tool and of the protocol, are told to the model.

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
