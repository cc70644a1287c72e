//! A running command on Linux: its streams, its limits, and the end of all its processes.
//!
//! One thread per command waits for all of it, so that neither a slow async runtime nor its end can hold back the end
//! of the processes. It waits for its own children only, by their ids or their process group, never for any child, and
//! it sets no handler of a signal. No process is signalled by an id that may have been used again: the leader of the
//! group is not reaped before the last signal to the group.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getuid, kill_process_group, pidfd_open, test_kill_process_group, waitpgid,
};
use tokio::sync::{mpsc, oneshot};

use crate::tool_call::Progress;
use crate::tools::shell::bubblewrap;
use crate::tools::shell::exec::{CommandRun, End, Finished, RunError};
use crate::tools::shell::output::{Output, Stream};
use crate::tools::shell::processes::{self, Process, Processes, SharedProcesses};
use crate::tools::shell::root::PrivateFolder;
use crate::tools::shell::ruleset::Restriction;
use crate::tools::shell::sandbox::Sandbox;
use crate::tools::shell::seccomp::{self, LocalSockets};
use crate::tools::shell::spawner::{self, Plan, StartError, Started};

/// The time that processes have between SIGTERM and SIGKILL, after a timeout and after a cancellation.
const GRACE: Duration = Duration::from_millis(500);
const GRACE_WHEN_CANCELLED: Duration = Duration::from_millis(250);
/// The time that output has after the shell exited: a process that it left behind may hold the streams open.
const LAST_OUTPUT: Duration = Duration::from_millis(100);
/// The longest wait for killed processes. One that hangs in the kernel is not waited for any longer.
const MAX_DYING: Duration = Duration::from_millis(500);
/// The longest wait for killed processes after the call is over.
const MAX_BURIAL: Duration = Duration::from_secs(10);
/// The pauses between looks at killed processes.
const MIN_PAUSE: Duration = Duration::from_micros(50);
const MAX_PAUSE: Duration = Duration::from_millis(20);
/// The interval of looks at the number of all processes of the machine.
const LOOK: Duration = Duration::from_millis(50);
/// The time until the first check of the limits.
const FIRST_CHECK: Duration = Duration::from_millis(100);
/// The reports of progress that wait for a slow reader.
const MAX_REPORTS: usize = 4;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs a command to its end. If the future is dropped, the command is ended in the background.
pub(super) async fn run(run: CommandRun, report: impl Fn(Progress)) -> Result<Finished, RunError> {
    let failed = |error: io::Error| RunError::Failed(error.to_string());
    // The read end becomes readable when the write end, which this future holds, is closed.
    let (cancelled, running) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    let (reports, mut arriving) = mpsc::channel(MAX_REPORTS);
    let (done, mut finished) = oneshot::channel();
    let work = move || {
        let result = Running::start(&run, cancelled, reports).map(Running::finish);
        let (finished, leftovers) = result.map_or_else(|error| (Err(error), None), |(ok, rest)| (Ok(ok), Some(rest)));
        let _ = done.send(finished);
        drop(leftovers);
    };
    thread::Builder::new().name("agentouto-exec".to_owned()).spawn(work).map_err(failed)?;
    let result = loop {
        tokio::select! {
            biased;
            Some(progress) = arriving.recv() => report(progress),
            result = &mut finished => break result,
        }
    };
    while let Ok(progress) = arriving.try_recv() {
        report(progress);
    }
    drop(running);
    result.unwrap_or_else(|_| Err(RunError::Failed("its thread panicked".to_owned())))
}

/// A command with its processes and streams.
struct Running<'r> {
    run: &'r CommandRun,
    tree: Tree,
    /// Becomes readable when the shell exits. `None` after that.
    exit: Option<OwnedFd>,
    /// Becomes readable when the call is cancelled. `None` after that.
    cancelled: Option<OwnedFd>,
    streams: [(Stream, Option<OwnedFd>); 2],
    output: Output,
    buffer: Vec<u8>,
    /// Removed after the processes have ended.
    private: Option<PrivateFolder>,
}

/// An event that the thread waited for.
#[derive(PartialEq)]
enum Woken {
    Exited,
    Cancelled,
    Other,
}

impl<'r> Running<'r> {
    /// Runs the command to its end. Its processes are dead then, but some may not be reaped: that is left to the drop
    /// of the second value.
    fn finish(mut self) -> (Finished, (Tree, Option<PrivateFolder>)) {
        let end = self.watch();
        self.end(end);
        self.tree.kill();
        if end != End::Exited {
            self.tree.bury(MAX_DYING);
        }
        self.drain();
        self.output.finish();
        (Finished { end, exit_code: self.tree.exit_code, output: self.output }, (self.tree, self.private))
    }

    fn start(run: &'r CommandRun, cancelled: OwnedFd, reports: mpsc::Sender<Progress>) -> Result<Self, RunError> {
        let failed = |error: io::Error| RunError::Failed(error.to_string());
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()));
        let ((output, to_output), (errors, to_errors)) = (pipe()?, pipe()?);
        for end in [&output, &errors] {
            rustix::io::ioctl_fionbio(end, true).map_err(|error| failed(error.into()))?;
        }
        let private = match run.sandbox {
            Some(Sandbox::Landlock) => Some(run.shell.root.private_folder().map_err(failed)?),
            Some(Sandbox::Bubblewrap) | None => None,
        };
        let (holder_input, held) = pipe()?;
        let marker = run.sandbox.is_none().then(|| format!("AGENTOUTO_EXEC={}", uuid::Uuid::new_v4()));
        let plan = plan(run, (to_output, to_errors), holder_input, private.as_ref(), marker.as_deref())?;
        let program = plan.program.clone();
        let started = spawner::start(plan).map_err(failed)?;
        let shared = Arc::clone(&run.shell.root.processes);
        let tree = Tree::new(started, run.sandbox, held, marker, shared).map_err(|error| match error {
            StartError::Restriction(reason) => RunError::Unavailable(reason),
            StartError::Spawn(error) if error.kind() == io::ErrorKind::NotFound => {
                RunError::Unavailable(format!("there is no program `{}`", program.display()))
            }
            StartError::Spawn(error) => RunError::Failed(format!("{}: {error}", program.display())),
        })?;
        let leader = Pid::from_child(&tree.leader);
        let exit = pidfd_open(leader, PidfdFlags::empty()).map_err(|error| failed(error.into()))?;
        Ok(Self {
            run,
            tree,
            exit: Some(exit),
            cancelled: Some(cancelled),
            streams: [(Stream::Output, Some(output)), (Stream::Errors, Some(errors))],
            output: run.output(reports),
            buffer: vec![0; 64 * 1024],
            private,
        })
    }

    /// Reads the output until the command has to end, or has ended.
    fn watch(&mut self) -> End {
        let begun = Instant::now();
        let deadline = begun + self.run.shell.settings.timeout;
        let (mut next_look, mut next_check) = (begun + LOOK, begun + FIRST_CHECK);
        let mut usual = processes::total();
        loop {
            match self.wait(deadline.min(next_look)) {
                Woken::Exited => return End::Exited,
                Woken::Cancelled => return End::Cancelled,
                Woken::Other => {}
            }
            let now = Instant::now();
            if now >= deadline {
                return End::TimedOut;
            }
            if now < next_look {
                continue;
            }
            next_look = now + LOOK;
            self.output.report();
            if processes::total() > usual + self.run.shell.settings.max_processes {
                match self.check_stopped() {
                    Ok(()) => usual = processes::total(),
                    Err(end) => return end,
                }
            }
            if now >= next_check {
                match self.check_limits() {
                    Ok(until_next) => next_check = now + until_next,
                    Err(end) => return end,
                }
            }
        }
    }

    /// Checks the number of processes while they are stopped: thousands that run would leave no time for it.
    fn check_stopped(&self) -> Result<(), End> {
        let _ = kill_process_group(self.tree.group, Signal::STOP);
        let count = Processes::read().map_or(0, |all| all.usage(self.tree.group.as_raw_nonzero().get()).0);
        if count > self.run.shell.settings.max_processes {
            return Err(End::TooManyProcesses);
        }
        let _ = kill_process_group(self.tree.group, Signal::CONT);
        Ok(())
    }

    /// Returns the time until the next check, or the limit that is exceeded.
    fn check_limits(&self) -> Result<Duration, End> {
        let settings = &self.run.shell.settings;
        let Ok((processes, until_next)) = self.run.shell.root.processes.recent() else {
            // For lack of file descriptors, for example. Better luck next time.
            return Ok(FIRST_CHECK);
        };
        let (count, memory) = processes.usage(self.tree.group.as_raw_nonzero().get());
        if count > settings.max_processes {
            return Err(End::TooManyProcesses);
        }
        if memory() > settings.max_memory_bytes {
            return Err(End::TooMuchMemory);
        }
        Ok(until_next)
    }

    /// Lets processes end in their own way, if there is time for that, and reads their last output.
    fn end(&mut self, end: End) {
        let until = match end {
            End::Exited => Instant::now() + LAST_OUTPUT,
            End::TimedOut => {
                self.tree.terminate();
                Instant::now() + GRACE
            }
            End::Cancelled => {
                let until = Instant::now() + GRACE_WHEN_CANCELLED;
                self.tree.terminate();
                until
            }
            End::TooManyProcesses | End::TooMuchMemory => return,
        };
        let may_go_on = |running: &Self| match end {
            End::Exited => running.streams.iter().any(|(_, stream)| stream.is_some()),
            _ => running.exit.is_some(),
        };
        while Instant::now() < until && may_go_on(self) {
            self.wait(until);
        }
    }

    /// Reads what is left in the pipes, but no more than a pipe holds: a process that hangs may still write.
    fn drain(&mut self) {
        const MAX_PIPE: usize = 1024 * 1024;
        for _ in 0..MAX_PIPE / self.buffer.len() {
            self.read();
        }
    }

    /// Waits until this time for output, for a cancellation and for the exit of the shell. Reads the output.
    fn wait(&mut self, until: Instant) -> Woken {
        let streams = self.streams.iter().filter_map(|(_, stream)| stream.as_ref());
        let mut waited: Vec<PollFd<'_>> =
            streams.chain(&self.exit).chain(&self.cancelled).map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let timeout = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
        let _ = poll(&mut waited, timeout.as_ref());
        let mut ready = waited.iter().rev().map(|fd| !fd.revents().is_empty());
        let is_cancelled = self.cancelled.is_some() && ready.next() == Some(true);
        let has_exited = self.exit.is_some() && ready.next() == Some(true);
        drop(waited);
        self.read();
        if has_exited {
            self.exit = None;
            Woken::Exited
        } else if is_cancelled {
            self.cancelled = None;
            Woken::Cancelled
        } else {
            Woken::Other
        }
    }

    /// Reads from each stream once, without waiting.
    fn read(&mut self) {
        for (stream, source) in &mut self.streams {
            let Some(open) = source else { continue };
            match rustix::io::read(open.as_fd(), &mut self.buffer) {
                Ok(count @ 1..) => self.output.push(*stream, &self.buffer[..count]),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Ok(0) | Err(_) => *source = None,
            }
        }
    }
}

/// The processes of a command. Dropping it ends them.
struct Tree {
    /// The process group that all belong to, except those in a process namespace of their own, which end with it.
    group: Pid,
    sandbox: Option<Sandbox>,
    leader: Child,
    /// Leads the group.
    holder: Child,
    /// The exit code of the leader.
    exit_code: Option<i32>,
    /// A variable in the environment of processes that may have left the group.
    marker: Option<String>,
    /// All processes of the machine, which running commands share.
    shared: Arc<SharedProcesses>,
    is_killed: bool,
    is_buried: bool,
    /// The holder ends the group when this is closed.
    _held: OwnedFd,
    /// The thread that started all, which must live as long as they do.
    _thread: Sender<()>,
}

impl Tree {
    fn new(
        Started { mut holder, leader, thread }: Started,
        sandbox: Option<Sandbox>,
        held: OwnedFd,
        marker: Option<String>,
        shared: Arc<SharedProcesses>,
    ) -> Result<Self, StartError> {
        let leader = match leader {
            Ok(leader) => leader,
            Err(error) => {
                let _ = holder.kill().and_then(|()| holder.wait());
                return Err(error);
            }
        };
        let group = Pid::from_child(&holder);
        Ok(Self {
            group,
            sandbox,
            leader,
            holder,
            exit_code: None,
            marker,
            shared,
            is_killed: false,
            is_buried: false,
            _held: held,
            _thread: thread,
        })
    }

    /// Sends SIGTERM to the command.
    fn terminate(&self) {
        if self.sandbox != Some(Sandbox::Bubblewrap) {
            // The holder ignores it.
            let _ = kill_process_group(self.group, Signal::TERM);
        } else {
            // To all but bubblewrap's two own processes: the end of either would kill the others at once.
            let leader = self.leader.id().cast_signed();
            let inner = processes::descendants(leader).into_iter().filter(|process| process.parent != leader);
            inner.for_each(|process| process.signal(Signal::TERM));
        }
    }

    /// Kills all processes, and waits for the leader.
    ///
    /// The kernel sends a signal to a group as one step: a process that is forking meanwhile gets it as well. A process
    /// namespace ends with its first process, which is in the group.
    fn kill(&mut self) {
        if std::mem::replace(&mut self.is_killed, true) {
            return;
        }
        let _ = kill_process_group(self.group, Signal::KILL);
        self.kill_escaped();
        let until = Instant::now() + MAX_DYING;
        let mut pause = MIN_PAUSE;
        while !self.has_exited() && Instant::now() < until {
            thread::sleep(pause);
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Waits until all killed processes are gone, but no longer than this, and reaps those that are children of this
    /// process: orphans too, if it is the one that inherits them, as the first process of a container.
    fn bury(&mut self, patience: Duration) {
        let killed = Instant::now();
        let mut pause = MIN_PAUSE;
        while !self.is_buried && killed.elapsed() < patience {
            let have_exited = self.has_exited() && self.has_holder_exited();
            while have_exited && matches!(waitpgid(self.group, WaitOptions::NOHANG), Ok(Some(_))) {}
            let is_gone = || test_kill_process_group(self.group) == Err(Errno::SRCH);
            self.is_buried = have_exited && (is_gone() || pause == MAX_PAUSE && self.others_are_zombies(killed));
            if !self.is_buried {
                thread::sleep(pause);
                pause = (pause * 2).min(MAX_PAUSE);
            }
        }
    }

    /// Returns whether all that is left of the group waits for a parent that is slow to reap it.
    fn others_are_zombies(&self, killed: Instant) -> bool {
        let own = std::process::id().cast_signed();
        self.shared.recent().is_ok_and(|(all, _)| {
            let left = all.of_group(self.group.as_raw_nonzero().get());
            all.begun >= killed && left.iter().all(|process| process.is_zombie && process.parent != own)
        })
    }

    /// Returns whether the leader of the group has exited, and reaps it.
    fn has_holder_exited(&mut self) -> bool {
        !matches!(self.holder.try_wait(), Ok(None))
    }

    /// Kills processes outside of the group that have its marker, until there are none.
    fn kill_escaped(&self) {
        let Some(marker) = &self.marker else { return };
        let leader = Process::read(self.group.as_raw_nonzero().get());
        let until = Instant::now() + MAX_DYING;
        while Instant::now() < until {
            let Ok(all) = self.shared.since(Instant::now()) else { return };
            let can_be =
                |process: &&Process| !process.is_zombie && !leader.is_some_and(|leader| process.is_older_than(&leader));
            let escaped: Vec<_> =
                all.iter().filter(can_be).filter(|process| process.has_in_environment(marker)).collect();
            if escaped.is_empty() {
                return;
            }
            escaped.iter().for_each(|process| process.signal(Signal::KILL));
        }
    }

    /// Returns whether the leader has exited, and reaps it.
    fn has_exited(&mut self) -> bool {
        if self.exit_code.is_none()
            && let Ok(Some(status)) = self.leader.try_wait()
        {
            self.exit_code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        }
        self.exit_code.is_some()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.kill();
        self.bury(MAX_BURIAL);
    }
}

/// Returns what to start for a command.
fn plan(
    run: &CommandRun,
    (output, errors): (OwnedFd, OwnedFd),
    holder_input: OwnedFd,
    private: Option<&PrivateFolder>,
    marker: Option<&str>,
) -> Result<Plan, RunError> {
    let failed = |error: io::Error| RunError::Failed(error.to_string());
    let (settings, root) = (&run.shell.settings, run.shell.root.path());
    let mut plan = Plan {
        program: "/bin/sh".into(),
        arguments: Vec::new(),
        environment: environment(run, private, marker),
        working_dir: run.working_dir.folder.try_clone().map_err(failed)?,
        input: File::open("/dev/null").map_err(failed)?.into(),
        output,
        errors,
        holder_input,
        restriction: None,
    };
    match run.sandbox {
        Some(Sandbox::Bubblewrap) => {
            let missing = || RunError::Unavailable("there is no program `bwrap` in `PATH`".to_owned());
            plan.program = bubblewrap::program().ok_or_else(missing)?;
            plan.arguments = bubblewrap::arguments(run);
            plan.arguments.push("/bin/sh".into());
            plan.input = filter(settings.allows_network)?;
        }
        Some(Sandbox::Landlock) => {
            let own = [root.to_owned(), private.map(|folder| folder.path.clone()).unwrap_or_else(|| root.to_owned())];
            plan.restriction = Some(Restriction {
                writable: own.into_iter().chain(settings.writable.iter().cloned()).collect(),
                read_only: settings.read_only.clone(),
                allows_network: settings.allows_network,
            });
        }
        None => {}
    }
    plan.arguments.extend(["-c".into(), script(run).into()]);
    Ok(plan)
}

/// Returns a pipe that gives the seccomp filter for bubblewrap.
fn filter(allows_network: bool) -> Result<OwnedFd, RunError> {
    // With the network of the machine come its abstract sockets.
    let local_sockets = if allows_network { LocalSockets::Refused } else { LocalSockets::Allowed };
    let filter = seccomp::for_all(local_sockets).map_err(|error| RunError::Unavailable(error.to_string()))?;
    let failed = |error: Errno| RunError::Failed(error.to_string());
    let (input, to_input) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
    // It is shorter than what a pipe holds.
    rustix::io::write(to_input, &seccomp::bytes(&filter)).map_err(failed)?;
    Ok(input)
}

/// Returns the command, after a line that sets the limits.
fn script(run: &CommandRun) -> String {
    let settings = &run.shell.settings;
    let mut script = "exec </dev/null; ulimit -c 0; ".to_owned();
    if run.sandbox != Some(Sandbox::Bubblewrap) {
        // Where the service was killed before this process was in its group.
        script.push_str(&format!("[ \"$PPID\" = {} ] || exit 1; ", std::process::id()));
    }
    script.push_str(&format!("ulimit -d {} 2>/dev/null; ", settings.max_memory_bytes / 1024));
    // The kernel counts the processes of a user in a user namespace, and exempts root. One name is bash's, one dash's.
    if run.sandbox == Some(Sandbox::Bubblewrap) && !getuid().is_root() {
        let limit = settings.max_processes;
        script.push_str(&format!("ulimit -u {limit} 2>/dev/null || ulimit -p {limit} 2>/dev/null; "));
    }
    script.push('\n');
    script.push_str(&run.command);
    script
}

fn environment(run: &CommandRun, private: Option<&PrivateFolder>, marker: Option<&str>) -> Vec<(OsString, OsString)> {
    let temporary = private.map_or_else(|| "/tmp".into(), |folder| folder.path.clone().into_os_string());
    let mut variables: Vec<(OsString, OsString)> =
        [("PATH", PATH), ("LANG", "C.UTF-8"), ("TERM", "dumb")].map(|(name, value)| (name.into(), value.into())).into();
    variables.extend([("HOME".into(), temporary.clone()), ("TMPDIR".into(), temporary)]);
    let own = run.shell.settings.environment.iter();
    variables.extend(own.map(|(name, value)| (name.into(), value.into())));
    variables.extend(marker.and_then(|marker| marker.split_once('=')).map(|(name, value)| (name.into(), value.into())));
    variables
}
