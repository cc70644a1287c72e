//! All servers that a program is connected to, and the runtimes that have their tools.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::{config_file, names};
use crate::error::BuildError;
use crate::mcp::client::catalogue::Catalogue;
use crate::mcp::client::config::ServerConfig;
use crate::mcp::client::connection::Connection;
use crate::mcp::client::definition::{Definition, Fingerprint, RefusedTool};
use crate::mcp::client::error::Error;
use crate::mcp::client::overflow::Overflow;
use crate::mcp::client::registration::Registration;
use crate::mcp::client::supervisor::Supervisor;
use crate::name::Name;
use crate::runtime::Runtime;

/// A list of servers to connect to, in the order in which their tools are offered.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Servers {
    servers: Vec<(String, ServerConfig)>,
    long_texts: Option<PathBuf>,
    pins: Pins,
}

/// The approved definitions of tools, by server and tool.
///
/// Store it to detect in the next run that a definition has changed.
pub type Pins = BTreeMap<Name, BTreeMap<Arc<str>, Fingerprint>>;

impl Servers {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// The servers of a JSON text in the common form: `{"mcpServers": {name: {"command", "args", "env", "cwd"} |
    /// {"url", "headers"}}}`, in its order.
    ///
    /// The files of Claude Desktop and Code, Cursor, VS Code (`servers`), Windsurf (`serverUrl`), Gemini CLI
    /// (`httpUrl`, `includeTools`, `excludeTools`), Cline, Roo Code (`disabledTools`) and Copilot CLI (`tools`) have
    /// this form, with comments where these programs allow them. Of their other keys, `type`, `disabled`, `enabled` and
    /// `timeout` are supported, and those about asking a person before a call (`autoApprove`, `alwaysAllow`, `trust`)
    /// are ignored. A server is skipped if it is disabled, or if the `mcp` object of Gemini CLI in the same file does
    /// not allow it or excludes it.
    ///
    /// Cline and Roo Code give a `timeout` in seconds, the others in milliseconds. So a number below 1000 is in
    /// seconds, one above 3600 in milliseconds, and a number between them is refused. If a server's `timeout` is longer
    /// than its [`total_timeout`](ServerConfig::total_timeout) would be, it is used for that too.
    ///
    /// In values, `${NAME}`, `${NAME:-default}` and `${env:NAME}` are replaced by environment variables of this
    /// process. `$NAME` is refused, because some programs replace it and others do not; to write it as plain text, use
    /// `${:-$NAME}`. The text can start programs on this machine, so it must come from a trusted source.
    ///
    /// # Errors
    ///
    /// When the text does not have this form, contains an unknown key, or uses a variable that is not set and has no
    /// default. The error says what to write instead, and shows no value.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let servers = config_file::read(text, |name| std::env::var(name).ok())?;
        Ok(Self { servers, ..Self::default() })
    }

    /// The servers of a file, see [`from_json`](Self::from_json). Only this file is read; no other file is searched
    /// for.
    ///
    /// # Errors
    ///
    /// As [`from_json`](Self::from_json), and when the file cannot be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::ConfigUnreadable { reason: format!("{}: {error}", path.display()).into() })?;
        Self::from_json(&text)
    }

    /// Adds a server.
    pub fn server(mut self, name: impl Into<String>, server: ServerConfig) -> Self {
        self.servers.push((name.into(), server));
        self
    }

    /// Sets the folder for result texts that are too long. The files in it are not deleted.
    ///
    /// Default: a temporary folder that only this user can read, and that is deleted with the [`Connections`].
    pub fn long_texts(mut self, folder: impl Into<PathBuf>) -> Self {
        self.long_texts = Some(folder.into());
        self
    }

    /// Sets the approvals of an earlier run, see [`Connections::pins`].
    ///
    /// A tool of a server with pins is offered only if its definition is the approved one. A changed tool and a new
    /// tool wait for [`Connection::approve`]. Tools of other servers are approved when they are first seen.
    pub fn pins(mut self, pins: Pins) -> Self {
        self.pins = pins;
        self
    }

    /// Connects to all servers concurrently, and waits until each is connected or has failed.
    ///
    /// Must be called within a tokio runtime. A server that fails does not affect the others:
    /// [`Connections::unavailable`] contains the reason, and the connection is retried like that of a server that has
    /// ended. When it succeeds, the server's tools are added.
    ///
    /// # Errors
    ///
    /// When a server's name is invalid or used twice; then no server is started. When no server can be connected; then
    /// the started processes are sent SIGTERM, and two seconds later SIGKILL if they still run. `connect` does not wait
    /// for that.
    pub async fn connect(mut self) -> Result<Connections, Error> {
        let overflow = Arc::new(Overflow::in_folder(self.long_texts));
        let (revised, revisions) = watch::channel(());
        let mut seen = HashSet::new();
        let mut opening = Vec::new();
        for (name, server) in self.servers {
            let entry =
                |reason: String| Error::Config { server: name.as_str().into(), key: "".into(), reason: reason.into() };
            if !seen.insert(names::clean(&name).map_err(entry)?) {
                return Err(entry("another server has that name".to_owned()));
            }
            let name: Name = name.into();
            let catalogue = Catalogue::new(self.pins.remove(&name));
            opening.push(Supervisor::open(name, server, catalogue, Arc::clone(&overflow), revised.clone()));
        }
        let opened = join_all(opening).await;
        let mut absent: Vec<Error> = opened.iter().filter_map(|(supervisor, _)| absence(supervisor)).collect();
        if !opened.is_empty() && absent.len() == opened.len() {
            return Err(if absent.len() == 1 { absent.remove(0) } else { Error::NoServer { errors: absent } });
        }
        let supervisors: Arc<[Arc<Supervisor>]> = opened.iter().map(|(supervisor, _)| Arc::clone(supervisor)).collect();
        let keeping = opened.into_iter().map(|(supervisor, live)| supervisor.supervise(live)).collect();
        let registrations = Arc::<Mutex<Vec<Registration>>>::default();
        let settling = AbortOnDropHandle::new(tokio::spawn(sync_all(revisions, Arc::clone(&registrations))));
        Ok(Connections { supervisors, registrations, keeping, _settling: settling })
    }
}

/// The connections to all servers.
///
/// When it is dropped, the tools are removed from the runtimes, and the processes are ended in the background in the
/// same way as by [`close`](Self::close). When the tokio runtime shuts down, the remaining processes are killed.
///
/// A server that ends, or was unavailable, is restarted: after half a second, then after twice as long each time, up to
/// 30 s. Its open requests fail at once. A request made in the meantime waits for the next attempt to restart it, and
/// fails if the attempt fails.
#[derive(Debug)]
pub struct Connections {
    supervisors: Arc<[Arc<Supervisor>]>,
    registrations: Arc<Mutex<Vec<Registration>>>,
    keeping: JoinSet<()>,
    _settling: AbortOnDropHandle<()>,
}

impl Connections {
    /// Adds the tools to a runtime, and updates them when the servers change them, until [`Connections::remove_from`].
    ///
    /// If the runtime has the tools already, nothing changes; tools that were removed from it are added again. A tool
    /// of another origin with the same name is not replaced.
    ///
    /// The runtime is held by a weak reference: it ends with its last handle, as without servers.
    ///
    /// # Errors
    ///
    /// When the runtime does not accept the tools.
    pub fn add_to(&self, runtime: &Runtime) -> Result<(), BuildError> {
        let mut registrations = self.registrations.lock();
        registrations.retain(Registration::is_alive);
        match registrations.iter_mut().find(|registration| registration.is(runtime)) {
            Some(registration) => registration.sync(runtime),
            None => {
                registrations.push(Registration::join(runtime, &self.supervisors)?);
                Ok(())
            }
        }
    }

    /// Removes the tools from a runtime; `false` if it does not have them. Invocations in progress keep them.
    pub fn remove_from(&self, runtime: &Runtime) -> bool {
        let mut registrations = self.registrations.lock();
        let left = registrations
            .iter()
            .position(|registration| registration.is(runtime))
            .map(|place| registrations.remove(place));
        drop(registrations);
        left.is_some()
    }

    /// The connection to one server.
    ///
    /// # Errors
    ///
    /// When there is no server of that name.
    pub fn server(&self, name: &str) -> Result<Connection, Error> {
        let supervisor = self.supervisors.iter().find(|supervisor| *supervisor.name == *name);
        supervisor.map(Connection::new).ok_or_else(|| Error::Unknown {
            name: name.into(),
            known: self.supervisors.iter().map(|supervisor| Arc::clone(&supervisor.name)).collect(),
        })
    }

    /// The errors of the servers that are unavailable now: those that could not be started or reached, and those that
    /// have ended. They are retried.
    #[must_use]
    pub fn unavailable(&self) -> Vec<Error> {
        self.supervisors.iter().filter_map(absence).collect()
    }

    /// All tools that could be offered, with everything that a person needs to approve them. Servers in their order,
    /// tools by name.
    #[must_use]
    pub fn tools(&self) -> Vec<ToolInfo> {
        let of = |supervisor: &Arc<Supervisor>| -> Vec<ToolInfo> {
            let catalogue = supervisor.catalogue();
            catalogue.tools().map(|tool| ToolInfo::new(&supervisor.name, tool, catalogue.is_approved(tool))).collect()
        };
        let mut tools: Vec<ToolInfo> = self.supervisors.iter().flat_map(of).collect();
        let names: HashSet<Arc<str>> = tools.iter().map(|tool| Arc::clone(&tool.tool)).collect();
        for tool in &mut tools {
            let words = tool.description.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
            let others = words.filter_map(|word| names.get(word)).filter(|name| **name != tool.tool);
            let mut mentions: Vec<Arc<str>> = others.cloned().collect();
            mentions.sort();
            mentions.dedup();
            tool.mentions = mentions;
        }
        tools
    }

    /// The tools that are not offered, with the reasons.
    #[must_use]
    pub fn refused(&self) -> Vec<RefusedTool> {
        let of = |supervisor: &Arc<Supervisor>| -> Vec<RefusedTool> {
            supervisor.catalogue().refused().map(|refused| refused.of(&supervisor.name)).collect()
        };
        let registrations = self.registrations.lock();
        let by_name = registrations
            .iter()
            .filter(|registration| registration.is_alive())
            .flat_map(Registration::refused)
            .cloned();
        self.supervisors.iter().flat_map(of).chain(by_name).collect()
    }

    /// The current approvals, to be stored and given to [`Servers::pins`] in the next run.
    ///
    /// A server that was never connected is missing, unless it was in the pins of this run.
    #[must_use]
    pub fn pins(&self) -> Pins {
        let of =
            |supervisor: &Arc<Supervisor>| Some((Arc::clone(&supervisor.name), supervisor.catalogue().pins()?.clone()));
        self.supervisors.iter().filter_map(of).collect()
    }

    /// Ends the servers and waits until they have ended.
    ///
    /// As the protocol's [shutdown] says, a process has its input closed; two seconds later it and its process group
    /// are sent SIGTERM, and two seconds after that SIGKILL. Processes that a server started in a session of their own,
    /// as browsers often are, must be ended by the server. On Windows there is no SIGTERM.
    ///
    /// [shutdown]: https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#shutdown
    pub async fn close(mut self) {
        self.supervisors.iter().for_each(|supervisor| supervisor.close());
        while self.keeping.join_next().await.is_some() {}
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.supervisors.iter().for_each(|supervisor| supervisor.close());
        self.keeping.abort_all();
        // Dropped after the lock is released, as in `sync_all`.
        let registrations = std::mem::take(&mut *self.registrations.lock());
        drop(registrations);
    }
}

/// The error of an unavailable server; `None` if the server is available.
fn absence(supervisor: &Arc<Supervisor>) -> Option<Error> {
    supervisor.absence().map(|reason| Error::Connect { server: Arc::clone(&supervisor.name), reason })
}

/// Updates the tools of every runtime whenever they change, and removes registrations whose runtime has ended.
async fn sync_all(mut revisions: watch::Receiver<()>, registrations: Arc<Mutex<Vec<Registration>>>) {
    while revisions.changed().await.is_ok() {
        // Dropped after the lock is released: the last handle of a runtime drops user code with it.
        let mut runtimes = Vec::new();
        registrations.lock().retain_mut(|registration| {
            let Some(runtime) = registration.runtime() else { return false };
            if let Err(error) = registration.sync(&runtime) {
                tracing::warn!(%error, "a runtime does not take the tools of MCP servers");
            }
            runtimes.push(runtime);
            true
        });
    }
}

/// A tool of a server, with everything that a person needs to approve it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolInfo {
    /// The name of the server.
    pub server: Name,
    /// The server's name for the tool.
    pub tool: Arc<str>,
    /// The complete description, exactly as models read it. It is text from an untrusted source.
    pub description: Arc<str>,
    /// The schema of its parameters.
    pub parameters: Value,
    /// The fingerprint of the name, description and schema.
    pub fingerprint: Fingerprint,
    /// `true` if this definition is approved. Otherwise it has changed or is new, and is not offered.
    pub is_approved: bool,
    /// The other tools that the description names. A description that tells models to use other tools is suspicious.
    pub mentions: Vec<Arc<str>>,
}

impl ToolInfo {
    fn new(server: &Name, definition: &Definition, is_approved: bool) -> Self {
        Self {
            server: Arc::clone(server),
            tool: Arc::clone(&definition.tool),
            description: Arc::clone(&definition.description),
            parameters: definition.parameters.clone(),
            fingerprint: definition.fingerprint.clone(),
            is_approved,
            mentions: Vec::new(),
        }
    }
}
