//! A server as a child process, with all processes that it starts.
//!
//! It ends as the [protocol] says: its input is closed, then it gets SIGTERM, then SIGKILL. The signals are sent to its
//! process group. Processes that it starts in a group of their own get none: the server has the time to end them
//! itself.
//!
//! The SDK's child process is not used, because it signals no group, kills at once when it is dropped, and does not
//! report that or the exit status.
//!
//! [protocol]: https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#shutdown

use std::collections::VecDeque;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
#[cfg(unix)]
use nix::unistd::Pid;
#[cfg(unix)]
use parking_lot::Mutex;
use process_wrap::tokio::{ChildWrapper, CommandWrap};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::mcp::client::config::Command;
use crate::mcp::client::redaction::Redaction;
use crate::mcp::transport::line_decoder::{Line, LineDecoder};
use crate::name::Name;

/// The environment variables of this process that a server gets, because most programs need them.
const INHERITED: [&str; 25] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "TMP",
    "TEMP",
    "APPDATA",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "USERNAME",
    "USERPROFILE",
    "COMSPEC",
    "PROGRAMFILES",
];
/// The number of last lines of its standard error that are kept, and the most characters of each.
const LAST_LINES: usize = 5;
const MAX_LINE: usize = 400;
/// The longest wait for a process to exit after its output has ended, and then for its last output.
const PATIENCE: Duration = Duration::from_millis(300);
/// The longest wait for a process to end after its input is closed, and again after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// The interval of the checks if a process group has ended.
#[cfg(unix)]
const LOOK: Duration = Duration::from_millis(20);

/// A running process. Dropping it ends the process in the background.
pub(crate) struct Child {
    group: Option<Group>,
    said: Arc<Mutex<VecDeque<String>>>,
}

impl Child {
    /// Starts the command, and returns its standard streams.
    pub(crate) fn start(server: &Name, command: &Command) -> Result<(Self, ChildStdin, ChildStdout), String> {
        Self::spawn(server, command).map_err(|error| {
            let program = command.program.display();
            match command.folder.as_ref().filter(|folder| !folder.is_dir()) {
                // The system reports the same error as for a missing program.
                Some(folder) => format!("could not start {program}: there is no folder {}", folder.display()),
                None => format!("could not start {program}: {error}"),
            }
        })
    }

    fn spawn(server: &Name, command: &Command) -> io::Result<(Self, ChildStdin, ChildStdout)> {
        let mut process = tokio::process::Command::new(&command.program);
        process.args(&command.arguments).env_clear();
        process.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        process.envs(command.env.iter().map(|(name, value)| (name, value)));
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        if let Some(folder) = &command.folder {
            process.current_dir(folder);
        }
        let mut process = CommandWrap::from(process);
        #[cfg(unix)]
        process.wrap(process_wrap::tokio::ProcessGroup::leader());
        #[cfg(windows)]
        process.wrap(process_wrap::tokio::JobObject);
        let mut process = process.spawn()?;
        let streams = (process.stdin().take(), process.stdout().take(), process.stderr().take());
        let (Some(input), Some(output), Some(errors)) = streams else {
            return Err(io::Error::other("the process has no standard streams"));
        };
        let said = Arc::default();
        let redaction = Redaction::of_command(command);
        let listening = tokio::spawn(listen(Arc::clone(server), redaction, errors, Arc::clone(&said)));
        Ok((Self { group: Some(Group::new(process, listening)), said }, input, output))
    }

    /// Waits until the process exits; processes that it has started may still run.
    pub(crate) async fn exited(&mut self) {
        if let Some(group) = &mut self.group {
            group.exited().await;
        }
    }

    /// Ends the process, whose input is closed, with its group, and waits until they have ended.
    pub(crate) async fn close(mut self) {
        if let Some(group) = &mut self.group {
            group.end().await;
        }
        self.group = None;
    }

    /// Returns the exit status and the last output. Processes that still run are sent SIGTERM, and ended in the
    /// background.
    pub(crate) async fn end(mut self) -> String {
        let Some(group) = &mut self.group else { return "it ended".to_owned() };
        let how = match timeout(PATIENCE, group.process.inner_mut().wait()).await {
            Ok(Ok(status)) => format!("it ended ({status})"),
            Ok(Err(error)) => format!("it ended ({error})"),
            Err(_) => "it was still running".to_owned(),
        };
        group.terminate();
        // When the group has ended, the stream ends, and all output has been read.
        let _ = timeout(PATIENCE, &mut group.listening).await;
        let said = self.said.lock();
        if said.is_empty() {
            return how;
        }
        format!("{how}; the last that it said: {}", said.iter().map(String::as_str).collect::<Vec<_>>().join(" | "))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Without a runtime, or when it shuts down, the group is dropped at once.
        if let (Some(mut group), Ok(runtime)) = (self.group.take(), Handle::try_current()) {
            runtime.spawn(async move { group.end().await });
        }
    }
}

/// A process with its group. Dropping it kills the processes that are left.
struct Group {
    process: Box<dyn ChildWrapper>,
    #[cfg(unix)]
    id: Option<Pid>,
    is_told: bool,
    /// Kept until the end: a process whose standard error is not read may fail when it exits.
    listening: AbortOnDropHandle<()>,
}

impl Group {
    fn new(process: Box<dyn ChildWrapper>, listening: JoinHandle<()>) -> Self {
        Self {
            #[cfg(unix)]
            id: process.id().and_then(|id| id.try_into().ok()).map(Pid::from_raw),
            process,
            is_told: false,
            listening: AbortOnDropHandle::new(listening),
        }
    }

    /// Waits until the process exits.
    async fn exited(&mut self) {
        if let Err(error) = self.process.inner_mut().wait().await {
            tracing::warn!(%error, "could not wait for an MCP server's process");
        }
    }

    /// Waits for the process to exit after the end of its input, unless SIGTERM was sent before; then sends SIGTERM,
    /// and at last SIGKILL.
    async fn end(&mut self) {
        if !self.is_told {
            let _ = timeout(GRACE, self.exited()).await;
            self.terminate();
        }
        if timeout(GRACE, self.gone()).await.is_err() {
            self.kill();
            let _ = timeout(GRACE, self.gone()).await;
        }
    }

    /// Sends SIGTERM, on systems that have it. It fails if the group has ended already.
    fn terminate(&mut self) {
        self.is_told = true;
        #[cfg(unix)]
        if let Some(Err(error)) = self.id.map(|id| killpg(id, Signal::SIGTERM)) {
            tracing::trace!(%error, "no process of an MCP server is left to be sent SIGTERM");
        }
    }

    /// Sends SIGKILL. It fails if the group has ended already.
    fn kill(&mut self) {
        if let Err(error) = self.process.start_kill() {
            tracing::trace!(%error, "no process of an MCP server is left to kill");
        }
    }

    /// Waits until no process of the group is left.
    async fn gone(&mut self) {
        self.exited().await;
        #[cfg(unix)]
        while self.id.is_some_and(|id| killpg(id, None).is_ok()) {
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Logs a server's standard error, and keeps its last lines, both without secrets.
async fn listen(
    server: Name,
    redaction: Redaction,
    mut errors: impl AsyncRead + Unpin,
    said: Arc<Mutex<VecDeque<String>>>,
) {
    let (mut lines, mut buffer) = (LineDecoder::new(64 * 1024), vec![0; 8 * 1024]);
    let hear = |line: Line| {
        let Line::Whole(line) = line else { return };
        let text = String::from_utf8_lossy(&line);
        let text = redaction.of_failure(&text);
        tracing::debug!(%server, "{text}");
        let mut said = said.lock();
        said.push_back(text.chars().filter(|c| !c.is_control()).take(MAX_LINE).collect());
        if said.len() > LAST_LINES {
            said.pop_front();
        }
    };
    while let Ok(count @ 1..) = errors.read(&mut buffer).await {
        let mut bytes = &buffer[..count];
        while !bytes.is_empty() {
            let (rest, line) = lines.take(bytes);
            bytes = rest;
            line.into_iter().for_each(hear);
        }
    }
    lines.rest().into_iter().for_each(hear);
}
