//! A running command where there is no sandbox: macOS, Windows.
//!
//! Its processes are those of its process group, or of its job on Windows. They are killed when the future is dropped.

use std::process::Stdio;
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::tool_call::Progress;
use crate::tools::shell::exec::{CommandRun, End, Finished, RunError};
use crate::tools::shell::output::Stream;

/// The time that output has after the shell exited.
const LAST_OUTPUT: Duration = Duration::from_millis(100);
/// The reports of progress that wait for a slow reader.
const MAX_REPORTS: usize = 4;
/// The variables of this process that a command gets, because most programs need them.
const INHERITED: [&str; 12] = [
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "TMP",
    "TEMP",
    "COMSPEC",
    "PATHEXT",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "USERPROFILE",
    "PROGRAMFILES",
];

/// Runs a command to its end. If the future is dropped, its processes are killed.
pub(super) async fn run(run: CommandRun, report: impl Fn(Progress)) -> Result<Finished, RunError> {
    let failed = |error: std::io::Error| RunError::Failed(error.to_string());
    let deadline = Instant::now() + run.shell.settings.timeout;
    let (reports, mut arriving) = mpsc::channel(MAX_REPORTS);
    let mut output = run.output(reports);
    let mut processes = Processes(start(&run).map_err(failed)?);
    let mut streams = Streams { output: processes.0.stdout().take(), errors: processes.0.stderr().take() };
    let watched = async {
        loop {
            tokio::select! {
                status = processes.0.inner_mut().wait() => return status,
                (stream, bytes) = streams.next() => output.push(stream, &bytes),
            }
            while let Ok(progress) = arriving.try_recv() {
                report(progress);
            }
        }
    };
    let (end, exit_code) = match timeout_at(deadline, watched).await {
        Ok(status) => (End::Exited, status.map_err(failed)?.code()),
        Err(_) => (End::TimedOut, None),
    };
    processes.kill();
    let until = Instant::now() + LAST_OUTPUT;
    while streams.is_open()
        && let Ok((stream, bytes)) = timeout_at(until, streams.next()).await
    {
        output.push(stream, &bytes);
    }
    output.finish();
    while let Ok(progress) = arriving.try_recv() {
        report(progress);
    }
    Ok(Finished { end, exit_code, output })
}

fn start(run: &CommandRun) -> std::io::Result<Box<dyn ChildWrapper>> {
    let mut command = shell(&run.command);
    command.env_clear().envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs(run.shell.settings.environment.iter().map(|(name, value)| (name, value)));
    command.current_dir(&run.working_dir.path).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut command = CommandWrap::from(command);
    #[cfg(unix)]
    command.wrap(process_wrap::tokio::ProcessGroup::leader());
    #[cfg(windows)]
    command.wrap(process_wrap::tokio::JobObject);
    command.spawn()
}

#[cfg(unix)]
fn shell(text: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "--", text]);
    command
}

#[cfg(windows)]
fn shell(text: &str) -> Command {
    let mut command = Command::new("cmd");
    // As the shell itself reads it: `cmd` has rules of its own for quotes.
    command.raw_arg("/D /S /C \"").raw_arg(text).raw_arg("\"");
    command
}

/// The processes of a command. Dropping it kills them.
struct Processes(Box<dyn ChildWrapper>);

impl Processes {
    fn kill(&mut self) {
        if let Err(error) = self.0.start_kill() {
            tracing::trace!(%error, "no process of a command is left to kill");
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The two streams of a command.
struct Streams<O, E> {
    output: Option<O>,
    errors: Option<E>,
}

impl<O: AsyncRead + Unpin, E: AsyncRead + Unpin> Streams<O, E> {
    fn is_open(&self) -> bool {
        self.output.is_some() || self.errors.is_some()
    }

    /// Returns the next bytes of a stream. It is pending when both have ended.
    async fn next(&mut self) -> (Stream, Vec<u8>) {
        loop {
            let (mut first, mut second) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
            let (stream, read, mut bytes) = tokio::select! {
                read = read(&mut self.output, &mut first) => (Stream::Output, read, first),
                read = read(&mut self.errors, &mut second) => (Stream::Errors, read, second),
            };
            bytes.truncate(read);
            match (stream, read) {
                (Stream::Output, 0) => self.output = None,
                (Stream::Errors, 0) => self.errors = None,
                _ => return (stream, bytes),
            }
        }
    }
}

/// Reads once. Returns 0 at the end, and is pending after it.
async fn read(source: &mut Option<impl AsyncRead + Unpin>, buffer: &mut [u8]) -> usize {
    match source {
        Some(source) => source.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::shell::Shell;

    fn command(shell: &Shell, command: &str) -> CommandRun {
        let working_dir = shell.root.working_dir(None).unwrap();
        CommandRun { shell: shell.clone(), sandbox: None, command: command.to_owned(), working_dir }
    }

    fn shell() -> Shell {
        Shell::beneath(env!("CARGO_MANIFEST_DIR")).unwrap().without_sandbox()
    }

    #[tokio::test]
    async fn a_command_runs_where_there_is_no_sandbox() {
        let text = "echo out; echo err >&2; sleep 1000 & exit 3";
        let finished = run(command(&shell(), text), |_| ()).await.unwrap();
        assert_eq!((finished.end, finished.exit_code), (End::Exited, Some(3)));
        assert_eq!(finished.output.answer(finished.exit_code), "out\n\nSTDERR:\nerr\n\n\nExit code: 3");
    }

    #[tokio::test]
    async fn a_command_that_takes_too_long_is_ended_where_there_is_no_sandbox() {
        let shell = shell().timeout(Duration::from_millis(200));
        let finished = run(command(&shell, "echo begun; sleep 1000"), |_| ()).await.unwrap();
        assert_eq!((finished.end, finished.output.answer(None).as_str()), (End::TimedOut, "begun\n"));
    }
}
