//! The tool `exec`: shell commands beneath one folder, in a sandbox.
//!
//! No list of allowed commands is kept, because a shell has too many ways around one. The sandbox is the boundary; a
//! person's approval can come before it. A command is never run twice, and nothing is run outside of a sandbox unless
//! the program says so in code.

#[cfg(target_os = "linux")]
mod bubblewrap;
mod exec;
mod output;
#[cfg(any(not(target_os = "linux"), test))]
mod portable;
#[cfg(target_os = "linux")]
mod processes;
mod root;
#[cfg(target_os = "linux")]
mod ruleset;
#[cfg(target_os = "linux")]
mod running;
mod sandbox;
#[cfg(target_os = "linux")]
mod seccomp;
#[cfg(target_os = "linux")]
mod spawner;
mod text;
#[cfg(target_os = "linux")]
mod visible;

#[cfg(not(target_os = "linux"))]
use portable as engine;
#[cfg(target_os = "linux")]
use running as engine;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use exec::Exec;
pub use sandbox::{NoSandbox, Sandbox};
use tokio::sync::OnceCell;

use crate::tool_interface::Tool;
use root::Root;
use sandbox::Choice;

/// The tool `exec`, which runs shell commands beneath one folder, the root. A cheap handle.
///
/// ```
/// use std::time::Duration;
/// use agentouto::ToolExt as _;
/// use agentouto::tools::Shell;
///
/// # fn main() -> std::io::Result<()> {
/// # let project = std::env::temp_dir();
/// let shell = Shell::beneath(project)?.timeout(Duration::from_secs(120)).max_processes(256);
/// let exec = shell.exec().approved_by("human");
/// # let _: &dyn agentouto::Tool = &exec;
/// # Ok(())
/// # }
/// ```
///
/// # A command
///
/// The tool runs `/bin/sh -c` (Windows: `cmd /C`) with `command`, in the root or in `working_dir`, a folder beneath it.
/// Standard input is empty, and there is no terminal. The environment is minimal: `PATH`, `HOME`, `TMPDIR`, `LANG`,
/// `TERM`, and what [`environment`](Self::environment) adds. The answer is the output, then `STDERR:` with the errors,
/// then `Exit code:` if it is not 0. An exit code is no failure of the tool. Escape sequences of terminals are removed;
/// invalid UTF-8 is written as `\xNN`.
///
/// When the shell exits, processes that it left behind are ended after 100 ms at the latest. When the call is cancelled
/// (dropped), or takes longer than its [`timeout`](Self::timeout), all processes get SIGTERM, and SIGKILL 0.25 s later
/// (after a timeout: 0.5 s). Nothing waits for that after a cancellation. A process that hangs in the kernel (state
/// `D`) ends when the kernel lets it go. A timeout is a [`ToolError`](crate::ToolError) with the output until then.
///
/// While a command runs, its output is reported as [`Progress`](crate::Progress): the latest 2 KiB, five times a second
/// at most. Output that is longer than [`max_output_bytes`](Self::max_output_bytes) is shortened to its head and its
/// tail. All of it lies in a file in the folder `.exec` beneath the root, up to
/// [`max_kept_bytes`](Self::max_kept_bytes); the answer names the file. The last 16 files are kept, until the last
/// handle of the shell is dropped. After a crash they stay.
///
/// Each running command uses two threads besides its processes. [`ToolExt::at_most`](crate::ToolExt::at_most) limits
/// how many run at once.
///
/// # The sandbox
///
/// On Linux a command runs in a sandbox: that of [bubblewrap](https://github.com/containers/bubblewrap) 0.8 or later if
/// it works, otherwise one of [Landlock](https://docs.kernel.org/userspace-api/landlock.html) (Linux 6.12 or later)
/// with seccomp filters. Both are tried once; without either, each call fails, and the error says how to fix it.
/// [`detect`](Self::detect) tells which one it is. Elsewhere there is no sandbox: a program must opt in [to run
/// without](Self::without_sandbox).
///
/// A command can read the programs and libraries of the system (`/usr`, `/bin`, `/lib`, …) and a few files of `/etc`,
/// and it can write beneath the root and in a temporary folder that ends with the call. It sees no home folder, no
/// `/run`, `/var` or `/opt`, and none of the service's files, unless they lie beneath the root or the program
/// [adds](Self::read_only) them.
///
/// | a command tries to … | bubblewrap | Landlock | no sandbox |
/// |---|---|---|---|
/// | read or write files that it was not given | stopped | stopped | possible |
/// | see names, sizes, owners of such files | stopped | possible | possible |
/// | change modes and times of such files of the same user | stopped | **possible**, but no setuid bit | possible |
/// | use the network (TCP, UDP, raw, DNS) | stopped | stopped | possible |
/// | use sockets of other programs (Docker, D-Bus, abstract) | stopped | stopped | possible |
/// | use services on loopback, with [`allow_network`](Self::allow_network) | possible | possible | possible |
/// | signal or trace other processes, read their environment | stopped | stopped | possible |
/// | see that other processes exist | stopped | stopped | possible |
/// | use capabilities of a service that runs as root, or setuid programs | stopped | stopped | possible |
/// | make user namespaces, use `io_uring`, `bpf`, `userfaultfd` or the kernel's keyrings | stopped | stopped | possible |
/// | type into the service's terminal | stopped | stopped | possible |
/// | outlive the call (double fork, `setsid`, `nohup`) | stopped | stopped | stopped, unless it also changes its environment |
/// | outlive a service that is killed by SIGKILL | stopped | stopped | stopped, unless it calls `setsid` |
/// | start very many processes | stopped | stopped | stopped, unless they call `setsid` |
/// | fill the disk of the root, use all processors | possible | possible | possible |
///
/// The limits of processes and memory are watched five times a second, so that a command can exceed them for a moment.
/// As another user than root, bubblewrap's processes also have a hard limit. Memory that belongs to no process (files
/// in the temporary folder of bubblewrap, each of the two at most a quarter of the limit; `memfd`; buffers of pipes)
/// is not counted. For a hard limit of memory, run the service in a cgroup with one.
///
/// With Landlock a command has no process groups and sessions of its own: `timeout` needs `--foreground`, and of
/// `/proc` there are general facts only, so `ps` does not work.
#[derive(Clone)]
pub struct Shell {
    root: Arc<Root>,
    settings: Arc<Settings>,
    /// The sandbox that works with these settings, once it was tried.
    detected: Arc<OnceCell<Result<Option<Sandbox>, NoSandbox>>>,
}

impl Shell {
    /// A shell whose commands run in this folder and below.
    ///
    /// # Errors
    ///
    /// When there is no such folder, or it is `/`.
    pub fn beneath(dir: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { root: Arc::new(Root::open(dir.as_ref())?), settings: Arc::default(), detected: Arc::default() })
    }

    /// Ends commands that take longer than this. Default: 60 s.
    #[must_use]
    pub fn timeout(self, limit: Duration) -> Self {
        self.with(|settings| settings.timeout = limit)
    }

    /// Lets commands use the network, also services on loopback and in private networks. Default: none at all.
    ///
    /// Sockets of the local machine (Docker, D-Bus) stay closed to sandboxed commands.
    #[must_use]
    pub fn allow_network(self) -> Self {
        self.with(|settings| settings.allows_network = true)
    }

    /// Adds a variable to the environment of commands, or replaces one of the defaults. Commands can read it, and thus
    /// the model can. `Debug` shows only the name.
    #[must_use]
    pub fn environment(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|settings| settings.environment.push((name.into(), value.into())))
    }

    /// Lets sandboxed commands read this file or folder, and run programs in it, at the same path. A path that does not
    /// exist when a command starts is left out.
    #[must_use]
    pub fn read_only(self, path: impl Into<PathBuf>) -> Self {
        self.with(|settings| settings.read_only.push(path.into()))
    }

    /// Lets sandboxed commands read and write this file or folder, at the same path. A path that does not exist when a
    /// command starts is left out.
    #[must_use]
    pub fn writable(self, path: impl Into<PathBuf>) -> Self {
        self.with(|settings| settings.writable.push(path.into()))
    }

    /// Limits the text of an answer, without the lines about it, in bytes. Default: 64 KiB. At least 1 KiB.
    #[must_use]
    pub fn max_output_bytes(self, limit: usize) -> Self {
        self.with(|settings| settings.max_output_bytes = limit.max(1024))
    }

    /// Limits the file with all output of a command whose answer is shortened, in bytes. Default: 16 MiB.
    #[must_use]
    pub fn max_kept_bytes(self, limit: u64) -> Self {
        self.with(|settings| settings.max_kept_bytes = limit)
    }

    /// Ends a command that has more processes and threads than this. Default: 512. At least 16. Not on macOS and
    /// Windows.
    #[must_use]
    pub fn max_processes(self, limit: usize) -> Self {
        self.with(|settings| settings.max_processes = limit.max(16))
    }

    /// Ends a command whose processes together use more memory than this, and lets no process have more data, in
    /// bytes. Default: 4 GiB. At least 16 MiB. Not on macOS and Windows.
    #[must_use]
    pub fn max_memory_bytes(self, limit: u64) -> Self {
        self.with(|settings| settings.max_memory_bytes = limit.max(16 << 20))
    }

    /// Uses this sandbox, and no other. Default: the best that works.
    #[must_use]
    pub fn sandbox(self, sandbox: Sandbox) -> Self {
        self.with(|settings| settings.choice = Choice::Only(sandbox))
    }

    /// Runs commands without a sandbox: with all rights of the program, on its files, in its network. The tool's
    /// description says so.
    ///
    /// The environment is minimal, and processes and limits are those of a sandboxed command, as far as the table
    /// [above](Self#the-sandbox) says.
    #[must_use]
    pub fn without_sandbox(self) -> Self {
        self.with(|settings| settings.choice = Choice::Without)
    }

    /// Returns the sandbox in which commands run; `None` after [`without_sandbox`](Self::without_sandbox). The first
    /// call of this or of the tool tries what works, in some 10 ms; the result is kept. A service can call it when it
    /// starts.
    ///
    /// # Errors
    ///
    /// When no sandbox works, with what to do.
    pub async fn detect(&self) -> Result<Option<Sandbox>, NoSandbox> {
        self.detected.get_or_try_init(|| sandbox::detect(self)).await?.clone()
    }

    /// The tool `exec(command, working_dir?)`.
    #[must_use]
    pub fn exec(&self) -> Exec {
        Exec::new(self.clone())
    }

    /// All tools of a shell: `exec`.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        vec![Arc::new(self.exec())]
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self.detected = Arc::default();
        self
    }
}

impl fmt::Debug for Shell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shell").field("root", &self.root.path()).field("settings", &self.settings).finish()
    }
}

/// The settings of a [`Shell`].
#[derive(Clone)]
struct Settings {
    choice: Choice,
    timeout: Duration,
    allows_network: bool,
    environment: Vec<(String, String)>,
    read_only: Vec<PathBuf>,
    writable: Vec<PathBuf>,
    max_output_bytes: usize,
    max_kept_bytes: u64,
    max_processes: usize,
    max_memory_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            choice: Choice::Best,
            timeout: Duration::from_secs(60),
            allows_network: false,
            environment: Vec::new(),
            read_only: Vec::new(),
            writable: Vec::new(),
            max_output_bytes: 64 << 10,
            max_kept_bytes: 16 << 20,
            max_processes: 512,
            max_memory_bytes: 4 << 30,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.environment.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Settings")
            .field("choice", &self.choice)
            .field("timeout", &self.timeout)
            .field("allows_network", &self.allows_network)
            .field("environment", &names)
            .field("read_only", &self.read_only)
            .field("writable", &self.writable)
            .field("max_output_bytes", &self.max_output_bytes)
            .field("max_kept_bytes", &self.max_kept_bytes)
            .field("max_processes", &self.max_processes)
            .field("max_memory_bytes", &self.max_memory_bytes)
            .finish()
    }
}
