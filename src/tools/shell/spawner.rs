//! Starts a command on a thread that has given up what the command must not inherit.
//!
//! Landlock rules, seccomp filters and capabilities belong to a thread, and its children inherit them. The thread also
//! has a table of file descriptors of its own, in which only the streams of the command are left: a library may have
//! opened others without `O_CLOEXEC`. The thread lives as long as the command, because the kernel takes its end for the
//! end of the parent (`PR_SET_PDEATHSIG`). Nothing else runs on it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;

use nix::sched::{CloneFlags, unshare};

use crate::tools::shell::ruleset::Restriction;

/// The size of the thread's stack.
const STACK: usize = 256 * 1024;
/// Leads the process group of a command, so that the group exists until it is reaped. When its input ends, because the
/// service was killed, it ends the group. (`bwrap --die-with-parent` does so only once it has set up its namespaces.)
const HOLDER: &str = "trap '' HUP INT TERM; read -r line; kill -KILL 0";

/// What to start, and how.
pub(super) struct Plan {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) working_dir: OwnedFd,
    pub(super) input: OwnedFd,
    pub(super) output: OwnedFd,
    pub(super) errors: OwnedFd,
    /// The input of the process that leads the group.
    pub(super) holder_input: OwnedFd,
    pub(super) restriction: Option<Restriction>,
}

/// A command that was started.
pub(super) struct Started {
    pub(super) holder: Child,
    pub(super) leader: Result<Child, StartError>,
    /// Ends the thread when it is dropped.
    pub(super) thread: mpsc::Sender<()>,
}

/// A failure to start.
pub(super) enum StartError {
    /// The thread could not be restricted, so nothing was started.
    Restriction(String),
    Spawn(io::Error),
}

/// Starts the plan. Blocks until the program runs.
pub(super) fn start(plan: Plan) -> io::Result<Started> {
    let (tell, told) = mpsc::channel();
    let (thread, end) = mpsc::channel::<()>();
    // Shared, and dropped here last: what the thread drops is closed only in the thread's own table.
    let plan = Arc::new(plan);
    let shared = Arc::clone(&plan);
    thread::Builder::new().name("agentouto-spawn".to_owned()).stack_size(STACK).spawn(move || {
        let started = start_here(&shared);
        drop(shared);
        let _ = tell.send(started);
        let _ = end.recv();
    })?;
    let started = told.recv().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")));
    drop(plan);
    let (holder, leader) = started?;
    Ok(Started { holder, leader, thread })
}

fn start_here(plan: &Plan) -> io::Result<(Child, Result<Child, StartError>)> {
    unshare(CloneFlags::CLONE_FILES)?;
    let copy = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd.as_fd(), 3);
    let (input, output, errors) = (copy(&plan.input)?, copy(&plan.output)?, copy(&plan.errors)?);
    let working_dir = copy(&plan.working_dir)?;
    let holder_input = copy(&plan.holder_input)?;
    close_all_but(&[&input, &output, &errors, &working_dir, &holder_input].map(AsRawFd::as_raw_fd))?;
    let holder = start_holder(holder_input)?;
    let group = holder.id().cast_signed();
    if let Some(restriction) = &plan.restriction
        && let Err(error) = restriction.apply(group)
    {
        return Ok((holder, Err(StartError::Restriction(error))));
    }
    let mut command = Command::new(&plan.program);
    command.args(&plan.arguments).env_clear().envs(plan.environment.iter().map(|(name, value)| (name, value)));
    // Not by its path, which a command that runs at the same time can change.
    command.current_dir(format!("/proc/self/fd/{}", working_dir.as_raw_fd())).process_group(group);
    command.stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::from(errors));
    Ok((holder, command.spawn().map_err(StartError::Spawn)))
}

fn start_holder(input: OwnedFd) -> io::Result<Child> {
    let mut holder = Command::new("/bin/sh");
    holder.args(["-c", HOLDER]).env_clear().current_dir("/").process_group(0);
    holder.stdin(Stdio::from(input)).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

/// Closes all file descriptors of this thread but the standard streams and these.
fn close_all_but(kept: &[RawFd]) -> io::Result<()> {
    let open: Vec<RawFd> = fs::read_dir("/proc/thread-self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open.into_iter().filter(|fd| *fd > 2 && !kept.contains(fd)) {
        // One of them was that of the list itself.
        let _ = nix::unistd::close(fd);
    }
    Ok(())
}
