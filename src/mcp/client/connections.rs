//! Servers that we are connected to, and the runtimes that have their tools.

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

/// Servers to be connected to, in the order in which their tools are offered.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Servers {
    servers: Vec<(String, ServerConfig)>,
    long_texts: Option<PathBuf>,
    pins: Pins,
}

/// The definitions of tools that were approved: by server, by tool. It can be stored, so that a definition that has
/// changed is noticed in the next run as well.
pub type Pins = BTreeMap<Name, BTreeMap<Arc<str>, Fingerprint>>;

impl Servers {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The servers of a text in the usual form: `{"mcpServers": {name: {"command", "args", "env", "cwd"} | {"url",
    /// "headers"}}}`, in its order.
    ///
    /// The files of Claude Desktop and Code, Cursor, VS Code (`servers`), Windsurf (`serverUrl`), Gemini CLI (`httpUrl`,
    /// `includeTools`, `excludeTools`), Cline, Roo Code (`disabledTools`) and Copilot CLI (`tools`) are of that form, with
    /// comments where they allow them. Of what else they write, `type`, `disabled`, `enabled` and `timeout` are understood, and
    /// what a person is asked before a call (`autoApprove`, `alwaysAllow`, `trust`) is ignored. A server that is disabled, or
    /// that the `mcp` of Gemini CLI beside them does not allow or excludes, is left out unread.
    ///
    /// Cline and Roo Code count a `timeout` in seconds, the others in milliseconds. So a number below 1000 is seconds, one above
    /// 3600 is milliseconds, and what is between is refused. A server whose `timeout` is longer than what
    /// [`total_timeout`](ServerConfig::total_timeout) would be has that time for a whole call.
    ///
    /// In values `${NAME}`, `${NAME:-default}` and `${env:NAME}` stand for variables of our environment. `$NAME` is refused, as
    /// some programs replace it and others do not; where it is a text it is written as `${:-$NAME}`. Whoever writes this
    /// text may start programs here: it must come from somebody trusted.
    ///
    /// # Errors
    ///
    /// When it is not of that form, has a key that is not understood, or names a variable that is not set and has no default.
    /// The error says what to write instead, and shows no value.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let servers = config_file::read(text, |name| std::env::var(name).ok())?;
        Ok(Self { servers, ..Self::default() })
    }

    /// The servers of a file, see [`from_json`](Self::from_json). Only this file is read: none is ever looked for.
    ///
    /// # Errors
    ///
    /// As [`from_json`](Self::from_json), and when it cannot be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::ConfigUnreadable { reason: format!("{}: {error}", path.display()).into() })?;
        Self::from_json(&text)
    }

    /// One more server.
    pub fn server(mut self, name: impl Into<String>, server: ServerConfig) -> Self {
        self.servers.push((name.into(), server));
        self
    }

    /// The folder for results that are too long. They stay there. Default: a temporary one that only we can read, and
    /// that goes with the [`Connections`].
    pub fn long_texts(mut self, folder: impl Into<PathBuf>) -> Self {
        self.long_texts = Some(folder.into());
        self
    }

    /// What was approved in an earlier run, see [`Connections::pins`]. Of a server that is in it a tool is offered only as it
    /// was approved: one that has changed, and one that is new, waits for [`Connection::approve`]. The tools of other servers
    /// are approved as they are when they are first seen.
    pub fn pins(mut self, pins: Pins) -> Self {
        self.pins = pins;
        self
    }

    /// Starts or reaches all of them at once, and waits until each is there or has failed. Must be called within a tokio
    /// runtime.
    ///
    /// A server that is not there does not keep the others from being used: [`Connections::unavailable`] says why it is not,
    /// and it is tried again like one that has ended. When it is there, its tools join.
    ///
    /// # Errors
    ///
    /// When a server's name is taken or no name; then none is started. When none of the servers is there; then what was started
    /// is sent SIGTERM, and what still runs two seconds later SIGKILL, which is not waited for.
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
        let mut absent: Vec<Error> = opened.iter().filter_map(|(link, _)| absence(link)).collect();
        if !opened.is_empty() && absent.len() == opened.len() {
            return Err(if absent.len() == 1 { absent.remove(0) } else { Error::NoServer { errors: absent } });
        }
        let links: Arc<[Arc<Supervisor>]> = opened.iter().map(|(link, _)| Arc::clone(link)).collect();
        let keeping = opened.into_iter().map(|(link, live)| link.supervise(live)).collect();
        let registrations = Arc::<Mutex<Vec<Registration>>>::default();
        let settling = AbortOnDropHandle::new(tokio::spawn(sync_all(revisions, Arc::clone(&registrations))));
        Ok(Connections { links, registrations, keeping, _settling: settling })
    }
}

/// Servers that we are connected to. Dropped, their tools leave the runtimes, and their processes are ended in the
/// background as [`close`](Self::close) ends them; when the tokio runtime shuts down, those that are left are killed.
///
/// A server that ends, or was not there, is started again: after half a second, then after twice as long each time, up to
/// 30 s. What was asked of it fails at once; what is asked meanwhile waits for the next attempt to start it, and fails if that does.
#[derive(Debug)]
pub struct Connections {
    links: Arc<[Arc<Supervisor>]>,
    registrations: Arc<Mutex<Vec<Registration>>>,
    keeping: JoinSet<()>,
    _settling: AbortOnDropHandle<()>,
}

impl Connections {
    /// Adds the tools to a runtime, and keeps them there as the servers have them, until [`Connections::remove_from`]. A runtime
    /// that has them already stays as it is; one from which some were taken away has them again. A tool of others that has
    /// the name of one is left alone.
    ///
    /// The runtime is not kept in memory: it ends with its last handle, as without servers.
    ///
    /// # Errors
    ///
    /// When the runtime does not take them.
    pub fn add_to(&self, runtime: &Runtime) -> Result<(), BuildError> {
        let mut registrations = self.registrations.lock();
        registrations.retain(Registration::is_alive);
        match registrations.iter_mut().find(|registration| registration.is(runtime)) {
            Some(registration) => registration.sync(runtime),
            None => {
                registrations.push(Registration::join(runtime, &self.links)?);
                Ok(())
            }
        }
    }

    /// Takes the tools away from a runtime; `false` if it does not have them. Invocations that are under way keep them.
    pub fn remove_from(&self, runtime: &Runtime) -> bool {
        let mut registrations = self.registrations.lock();
        let left = registrations
            .iter()
            .position(|registration| registration.is(runtime))
            .map(|place| registrations.remove(place));
        drop(registrations);
        left.is_some()
    }

    /// One of the servers.
    ///
    /// # Errors
    ///
    /// When there is none of that name.
    pub fn server(&self, name: &str) -> Result<Connection, Error> {
        let link = self.links.iter().find(|link| *link.name == *name);
        link.map(Connection::new).ok_or_else(|| Error::Unknown {
            name: name.into(),
            known: self.links.iter().map(|link| Arc::clone(&link.name)).collect(),
        })
    }

    /// The servers that are not there now, and why: those that could not be started or reached, and those that have ended.
    /// They are tried again.
    #[must_use]
    pub fn unavailable(&self) -> Vec<Error> {
        self.links.iter().filter_map(absence).collect()
    }

    /// All tools that could be offered, with all that a person should see who approves them: servers in their order,
    /// tools by name.
    #[must_use]
    pub fn tools(&self) -> Vec<ToolInfo> {
        let of = |link: &Arc<Supervisor>| -> Vec<ToolInfo> {
            let catalogue = link.catalogue();
            catalogue.tools().map(|tool| ToolInfo::new(&link.name, tool, catalogue.is_approved(tool))).collect()
        };
        let mut tools: Vec<ToolInfo> = self.links.iter().flat_map(of).collect();
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

    /// The tools that nobody is offered, and why.
    #[must_use]
    pub fn refused(&self) -> Vec<RefusedTool> {
        let of = |link: &Arc<Supervisor>| -> Vec<RefusedTool> {
            link.catalogue().refused().map(|refused| refused.of(&link.name)).collect()
        };
        let registrations = self.registrations.lock();
        let by_name = registrations
            .iter()
            .filter(|registration| registration.is_alive())
            .flat_map(Registration::refused)
            .cloned();
        self.links.iter().flat_map(of).chain(by_name).collect()
    }

    /// What is approved now, to be stored and given to [`Servers::pins`] in the next run. A server that was not there is not
    /// in it, unless it was in what this run was given.
    #[must_use]
    pub fn pins(&self) -> Pins {
        let of = |link: &Arc<Supervisor>| Some((Arc::clone(&link.name), link.catalogue().pins()?.clone()));
        self.links.iter().filter_map(of).collect()
    }

    /// Ends the servers and waits until they have ended. A process has its input closed; two seconds later it and its
    /// process group are sent SIGTERM, and two seconds after that SIGKILL, which is the [shutdown] of the protocol. What
    /// a server started in a session of its own, as browsers often are, it must end itself. On Windows there is no
    /// SIGTERM.
    ///
    /// [shutdown]: https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#shutdown
    pub async fn close(mut self) {
        self.links.iter().for_each(|link| link.close());
        while self.keeping.join_next().await.is_some() {}
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.links.iter().for_each(|link| link.close());
        self.keeping.abort_all();
        // Dropped after the lock, as in `settle`.
        let registrations = std::mem::take(&mut *self.registrations.lock());
        drop(registrations);
    }
}

/// Why a server is not there, if it is not.
fn absence(link: &Arc<Supervisor>) -> Option<Error> {
    link.absence().map(|reason| Error::Connect { server: Arc::clone(&link.name), reason })
}

/// Lets every runtime have the tools as they are, whenever they change, and forgets those that nobody has any more.
async fn sync_all(mut revisions: watch::Receiver<()>, registrations: Arc<Mutex<Vec<Registration>>>) {
    while revisions.changed().await.is_ok() {
        // Dropped after the lock: with the last handle of a runtime goes foreign code.
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

/// A tool of a server, as somebody who approves it should see it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolInfo {
    /// The server.
    pub server: Name,
    /// What the server calls it.
    pub tool: Arc<str>,
    /// Its whole description, exactly as models read it. It is the word of a stranger.
    pub description: Arc<str>,
    /// Its parameters.
    pub parameters: Value,
    /// Stands for all of this.
    pub fingerprint: Fingerprint,
    /// Whether it is approved as it is. If not, it has changed or is new, and is not offered.
    pub is_approved: bool,
    /// Other tools that the description names. A description that tells models to use other tools is suspicious.
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
