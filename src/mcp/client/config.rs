//! The configuration of a server: its command or address, its timeouts and its limits.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use url::Url;

use crate::mcp::client::catalogue::{OnChange, Selection};
use crate::mcp::client::redaction::Redaction;
use crate::mcp::client::visible::quoted;
use crate::name::Name;
use crate::tool_interface::Tool;
use crate::tools::ToolExt as _;

/// An MCP server that a client connects to: a command that uses its standard input and output, or an address.
///
/// A command gets a small environment: the variables of [`env`](Self::env), and from the program's own environment
/// those that most programs need (`PATH`, `HOME`, the user, the language, the temporary folder). Keys in the program's
/// environment are not passed on.
#[derive(Clone)]
#[must_use]
pub struct ServerConfig {
    pub(crate) endpoint: Endpoint,
    pub(crate) settings: Settings,
}

/// The transport endpoint of a server.
#[derive(Clone)]
pub(crate) enum Endpoint {
    Command(Command),
    Address(Address),
}

/// A command to start. Its environment and arguments may contain secrets.
#[derive(Clone)]
pub(crate) struct Command {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) folder: Option<PathBuf>,
}

/// An HTTP address. Its headers may contain secrets.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) url: String,
    pub(crate) bearer: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
}

/// The timeouts and limits of one server.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) idle_timeout: Duration,
    pub(crate) total_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) max_text_bytes: usize,
    pub(crate) max_message_bytes: usize,
    pub(crate) on_change: OnChange,
    pub(crate) tools: Selection,
    pub(crate) approval: ApprovalPolicy,
}

/// The peer that approves calls of a server's tools, if any.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApprovalPolicy {
    by: Option<Name>,
    within: Option<Duration>,
    /// The tools that need no approval, by the server's names.
    without: BTreeSet<String>,
}

impl ApprovalPolicy {
    /// Returns a tool of the server as it is offered: with the question, if its calls need approval. `name` is the
    /// server's name for it.
    pub(crate) fn around(&self, name: &str, tool: impl Tool) -> Arc<dyn Tool> {
        let Some(by) = self.by.clone().filter(|_| !self.without.contains(name)) else { return Arc::new(tool) };
        let approved = tool.approved_by(by);
        Arc::new(match self.within {
            Some(limit) => approved.within(limit),
            None => approved,
        })
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            idle_timeout: Duration::from_secs(60),
            total_timeout: Duration::from_secs(600),
            connect_timeout: Duration::from_secs(30),
            max_text_bytes: 100_000,
            max_message_bytes: 16 * 1024 * 1024,
            on_change: OnChange::default(),
            tools: Selection::default(),
            approval: ApprovalPolicy::default(),
        }
    }
}

impl ServerConfig {
    /// A command that is started, and that communicates over its standard input and output.
    pub fn stdio<A: Into<OsString>>(program: impl Into<OsString>, arguments: impl IntoIterator<Item = A>) -> Self {
        Self::at(Endpoint::Command(Command {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            folder: None,
        }))
    }

    /// An address that supports streamable HTTP, such as `https://example.com/mcp`. Redirects to another origin are not
    /// followed.
    pub fn http(url: impl Into<String>) -> Self {
        Self::at(Endpoint::Address(Address { url: url.into(), bearer: None, headers: Vec::new() }))
    }

    fn at(endpoint: Endpoint) -> Self {
        Self { endpoint, settings: Settings::default() }
    }

    /// Sets a variable in the command's environment. Has no effect for an address, like [`folder`](Self::folder).
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        if let Endpoint::Command(command) = &mut self.endpoint {
            command.env.push((name.into(), value.into()));
        }
        self
    }

    /// Sets the command's working folder. Default: the working folder of this process.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        if let Endpoint::Command(command) = &mut self.endpoint {
            command.folder = Some(folder.into());
        }
        self
    }

    /// Sends this token with every request to the address, as `Authorization: Bearer {token}`.
    ///
    /// Has no effect for a command, like [`header`](Self::header).
    pub fn bearer_token(mut self, token: impl Into<String>) -> Self {
        if let Endpoint::Address(address) = &mut self.endpoint {
            address.bearer = Some(token.into());
        }
        self
    }

    /// Sends a header with every request to the address.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Endpoint::Address(address) = &mut self.endpoint {
            address.headers.push((name.into(), value.into()));
        }
        self
    }

    /// The longest time of a call without a result or a progress notification. Then the request is cancelled and the
    /// call fails. Default: 60 s.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.settings.idle_timeout = limit;
        self
    }

    /// The longest time of a call even if it makes progress, and of a list with all its pages. Default: 10 minutes.
    pub fn total_timeout(mut self, limit: Duration) -> Self {
        self.settings.total_timeout = limit;
        self
    }

    /// The longest time for a server to start and to list its tools. Default: 30 s.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.settings.connect_timeout = limit;
        self
    }

    /// The longest text of a result that a model gets, in bytes. Default: 100 kB.
    ///
    /// A longer text is cut, and saved completely in a file whose path the text names.
    pub fn max_text_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_text_bytes = bytes;
        self
    }

    /// The longest message of the server, in bytes. Default: 16 MiB.
    ///
    /// A longer message is dropped, and the call that it answers fails. The limit also applies to all pages of a list
    /// together. For an HTTP server it applies to the messages of event streams; a single JSON body may always have up
    /// to 16 MiB.
    pub fn max_message_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_message_bytes = bytes;
        self
    }

    /// Offers only these tools, by the server's names. Further calls add more tools. Default: all.
    ///
    /// A name that the server does not have is listed in [`Connections::refused`](crate::mcp::Connections::refused).
    pub fn only<T: Into<String>>(mut self, tools: impl IntoIterator<Item = T>) -> Self {
        self.settings.tools.only.get_or_insert_default().extend(tools.into_iter().map(Into::into));
        self
    }

    /// Does not offer these tools, by the server's names. Default: none is left out.
    pub fn without<T: Into<String>>(mut self, tools: impl IntoIterator<Item = T>) -> Self {
        self.settings.tools.without.extend(tools.into_iter().map(Into::into));
        self
    }

    /// Asks a peer before each call of a tool of this server: a person, an actor or an agent, see
    /// [`Approved`](crate::tools::Approved). Default: no tool needs approval.
    ///
    /// The arguments must fit the tool's schema before the peer is asked. The tools are checked again when they run: a
    /// tool whose definition has changed while the peer was thinking does not run. The timeouts of the server do not
    /// include the time of the peer.
    pub fn approved_by(mut self, peer: impl Into<Name>) -> Self {
        self.settings.approval.by = Some(peer.into());
        self
    }

    /// Sets the time for the answer of the peer that [approves](Self::approved_by). Then the call is refused. Default:
    /// no limit.
    pub fn approval_within(mut self, limit: Duration) -> Self {
        self.settings.approval.within = Some(limit);
        self
    }

    /// Runs these tools without [approval](Self::approved_by), by the server's names. Further calls add more tools.
    /// Default: none. A name that the server does not have has no effect, so a tool whose name is misspelled here, and
    /// one that the server adds later, needs approval.
    pub fn without_approval<T: Into<String>>(mut self, tools: impl IntoIterator<Item = T>) -> Self {
        self.settings.approval.without.extend(tools.into_iter().map(Into::into));
        self
    }

    /// Sets the treatment of tools whose definitions change. Default: they are disabled.
    pub fn on_change(mut self, on_change: OnChange) -> Self {
        self.settings.on_change = on_change;
        self
    }
}

impl ServerConfig {
    /// The redaction for the secrets of this configuration.
    pub(crate) fn redaction(&self) -> Redaction {
        match &self.endpoint {
            Endpoint::Command(command) => Redaction::of_command(command),
            Endpoint::Address(address) => Redaction::of_address(address),
        }
    }

    /// A text about an error, without any value of this configuration.
    pub(crate) fn without_secrets(&self, text: &str) -> String {
        self.redaction().of_failure(text).into_owned()
    }

    /// A text like [`without_secrets`](Self::without_secrets), shortened and without hidden characters.
    pub(crate) fn reason(&self, text: &str) -> String {
        quoted(&self.without_secrets(text))
    }
}

/// Shows no arguments, and only the names of variables and headers.
impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Server");
        match &self.endpoint {
            Endpoint::Command(command) => {
                let env: Vec<_> = command.env.iter().map(|(name, _)| name).collect();
                shown.field("command", &command.program).field("arguments", &command.arguments.len()).field("env", &env)
            }
            Endpoint::Address(address) => {
                let headers: Vec<_> = address.headers.iter().map(|(name, _)| name).collect();
                shown.field("url", &address.shown()).field("headers", &headers)
            }
        };
        shown.field("settings", &self.settings).finish()
    }
}

impl Address {
    /// The address without user, password and query, and without parts of the path that may be keys.
    pub(crate) fn shown(&self) -> String {
        match Url::parse(&self.url) {
            Ok(url) if url.has_host() => {
                let path = Redaction::of_address(self).of_failure(url.path()).into_owned();
                format!("{}{path}", url.origin().ascii_serialization())
            }
            _ => "(not a URL)".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_shown() {
        let command = ServerConfig::stdio("npx", ["--key=canary"]).env("KEY", "canary");
        let address = ServerConfig::http("https://me:canary@example.com/a@b/canary/mcp?token=canary");
        let address = address.bearer_token("canary").header("X", "canary");
        for shown in
            [format!("{command:?}"), format!("{address:?}"), format!("{:?}", ServerConfig::http("ht!tp://canary"))]
        {
            assert!(!shown.contains("canary"), "{shown}");
        }
        assert!(format!("{address:?}").contains("https://example.com/a@b/[redacted]/mcp"), "{address:?}");
    }
}
