//! The tool `exec` itself: its arguments, and the result as the model reads it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::content::Content;
use crate::tool_call::{Arguments, Progress, ToolError, ToolErrorKind, ToolSpec, schema_of};
use crate::tool_interface::{Tool, ToolContext};
use crate::tools::shell::output::Output;
use crate::tools::shell::root::WorkingDir;
use crate::tools::shell::sandbox::{Choice, Sandbox};
use crate::tools::shell::{Shell, engine};

/// The most bytes of a command. Linux takes no argument of 128 KiB, and the line before the command needs some.
const MAX_COMMAND: usize = 127 * 1024;

/// The tool `exec(command, working_dir?)`, see [`Shell`].
#[derive(Clone, Debug)]
pub struct Exec {
    shell: Shell,
}

#[derive(Deserialize, JsonSchema)]
struct ExecArguments {
    /// The shell command to execute
    command: String,
    /// Optional working directory for the command, relative to the root
    working_dir: Option<String>,
}

impl Exec {
    pub(super) fn new(shell: Shell) -> Self {
        Self { shell }
    }

    fn description(&self) -> String {
        let settings = &self.shell.settings;
        let bounds = match (&settings.choice, settings.allows_network) {
            (Choice::Without, _) => "It runs without a sandbox, with all rights of this program",
            (_, true) => {
                "It runs in a sandbox: it can use the network, and write only beneath the working directory and in $TMPDIR"
            }
            (_, false) => {
                "It runs in a sandbox: it has no network, and can write only beneath the working directory and in $TMPDIR"
            }
        };
        format!(
            "Execute a shell command and return its output. {bounds}. Time limit: {:?}. No terminal, no input; processes \
             left in the background are ended when the command exits.",
            settings.timeout
        )
    }
}

impl Tool for Exec {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "exec".into(),
            description: self.description().into(),
            parameters: schema_of::<ExecArguments>(),
        }
    }

    fn call(&self, arguments: Arguments, context: ToolContext) -> BoxFuture<'_, Result<Content, ToolError>> {
        Box::pin(async move {
            let ExecArguments { command, working_dir } = read(arguments)?;
            let sandbox = self.shell.detect().await?;
            let working_dir = self.shell.root.working_dir(working_dir.as_deref())?;
            let run = CommandRun { shell: self.shell.clone(), sandbox, command, working_dir };
            let finished = engine::run(run, |progress| context.progress(progress)).await?;
            finished.result(&self.shell)
        })
    }

    fn check(&self, arguments: &Arguments) -> Result<(), ToolError> {
        read(arguments.clone()).map(drop)
    }
}

fn read(arguments: Arguments) -> Result<ExecArguments, ToolError> {
    let arguments: ExecArguments = serde_json::from_value(Value::Object(arguments))?;
    let length = arguments.command.len();
    if arguments.command.contains('\0') {
        return Err("command contains a NUL character".into());
    }
    if length > MAX_COMMAND {
        return Err(format!("command has {length} bytes, at most {MAX_COMMAND} are possible; write a script").into());
    }
    Ok(arguments)
}

/// A command that has not begun.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there is no sandbox, and no watch of limits"))]
pub(super) struct CommandRun {
    pub(super) shell: Shell,
    pub(super) sandbox: Option<Sandbox>,
    pub(super) command: String,
    pub(super) working_dir: WorkingDir,
}

impl CommandRun {
    /// The output of this command, empty.
    pub(super) fn output(&self, reports: tokio::sync::mpsc::Sender<Progress>) -> Output {
        let (settings, root) = (&self.shell.settings, Arc::clone(&self.shell.root));
        Output::new(settings.max_output_bytes, settings.max_kept_bytes, Box::new(move || root.make_file()), reports)
    }
}

/// A failure to run a command.
#[derive(Debug, thiserror::Error)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there is no sandbox, and no watch of limits"))]
pub(super) enum RunError {
    /// The sandbox does not work on this machine.
    #[error("{0}")]
    Unavailable(String),
    /// It failed for now.
    #[error("could not run the command: {0}")]
    Failed(String),
}

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there is no sandbox, and no watch of limits"))]
pub(super) enum End {
    /// Its shell exited.
    Exited,
    /// It was cancelled.
    Cancelled,
    TimedOut,
    TooManyProcesses,
    TooMuchMemory,
}

/// A command that has ended.
pub(super) struct Finished {
    pub(super) end: End,
    /// 128 and the number of the signal, after a signal.
    pub(super) exit_code: Option<i32>,
    pub(super) output: Output,
}

impl Finished {
    fn result(self, shell: &Shell) -> Result<Content, ToolError> {
        let settings = &shell.settings;
        let why = match self.end {
            End::Exited => return Ok(self.output.answer(self.exit_code).into()),
            End::Cancelled => "cancelled".to_owned(),
            End::TimedOut => return Err(self.timed_out(settings.timeout)),
            End::TooManyProcesses => format!("more than {} processes and threads", settings.max_processes),
            End::TooMuchMemory => format!("more than {} bytes of memory", settings.max_memory_bytes),
        };
        Err(format!("the command was ended: {why}. Its output until then:\n{}", self.output.answer(None)).into())
    }

    fn timed_out(self, limit: Duration) -> ToolError {
        let answer = self.output.answer(None);
        let message = format!("timed out after {limit:?}, and was ended. Its output until then:\n{answer}");
        ToolError { kind: ToolErrorKind::Timeout, message: message.into() }
    }
}
