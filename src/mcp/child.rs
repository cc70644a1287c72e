//! A server as a process of ours, with all that it starts. Dropping it kills the whole group.

use std::collections::VecDeque;
use std::io;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{ChildStdin, ChildStdout};
use tokio_util::task::AbortOnDropHandle;

use super::lines::{Line, Lines};
use super::redaction::Redaction;
use super::remote::Command;
use crate::message::Name;
use crate::secrets::Secrets;

/// Of our environment, what programs need to run at all.
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
/// How many of the last lines on its standard error are kept, and how much of each.
const LAST_LINES: usize = 5;
const LONGEST_LINE: usize = 400;
/// How long a process whose output has ended may take to exit, before it is killed.
const PATIENCE: Duration = Duration::from_millis(300);

/// A running process, the leader of its group.
pub(super) struct Child {
    process: Box<dyn ChildWrapper>,
    said: Arc<Mutex<VecDeque<String>>>,
    listening: AbortOnDropHandle<()>,
}

impl Child {
    /// Starts the command; gives its standard streams.
    pub(super) fn start(server: &Name, command: &Command) -> io::Result<(Self, ChildStdin, ChildStdout)> {
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
        let secrets = Redaction::of_command(command).given;
        let listening = listen(Arc::clone(server), secrets, errors, Arc::clone(&said));
        let listening = AbortOnDropHandle::new(tokio::spawn(listening));
        Ok((Self { process, said, listening }, input, output))
    }

    /// Waits until the process exits; what it has started may live on.
    pub(super) async fn exited(&mut self) {
        if let Err(error) = self.process.inner_mut().wait().await {
            tracing::warn!(%error, "could not wait for an MCP server's process");
        }
    }

    /// Kills whatever still lives, and says how the process ended and what it said last.
    pub(super) async fn end(mut self) -> String {
        let exit = tokio::time::timeout(PATIENCE, self.process.inner_mut().wait()).await;
        let how = match exit {
            Ok(Ok(status)) => format!("it ended ({status})"),
            Ok(Err(error)) => format!("it ended ({error})"),
            Err(_) => "it closed its output, and was killed".to_owned(),
        };
        self.kill();
        // With the group dead the stream ends, and all that was said has been heard.
        let _ = tokio::time::timeout(PATIENCE, &mut self.listening).await;
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_empty() {
            return how;
        }
        format!("{how}; the last that it said: {}", said.iter().map(String::as_str).collect::<Vec<_>>().join(" | "))
    }

    fn kill(&mut self) {
        // It fails where the group is gone already.
        if let Err(error) = self.process.start_kill() {
            tracing::trace!(%error, "no process of an MCP server is left to kill");
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Passes what a server says on its standard error to the log, and keeps the last of it, both without secrets.
async fn listen(
    server: Name,
    secrets: Secrets,
    mut errors: impl AsyncRead + Unpin,
    said: Arc<Mutex<VecDeque<String>>>,
) {
    let (mut lines, mut buffer) = (Lines::new(64 * 1024), vec![0; 8 * 1024]);
    while let Ok(count @ 1..) = errors.read(&mut buffer).await {
        let mut bytes = &buffer[..count];
        while !bytes.is_empty() {
            let (rest, line) = lines.take(bytes);
            bytes = rest;
            if let Some(Line::Whole(line)) = line {
                let text = String::from_utf8_lossy(&line);
                let text = secrets.redact(&text);
                tracing::debug!(%server, "{text}");
                let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                said.push_back(text.chars().filter(|c| !c.is_control()).take(LONGEST_LINE).collect());
                if said.len() > LAST_LINES {
                    said.pop_front();
                }
            }
        }
    }
}
