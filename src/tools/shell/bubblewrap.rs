//! The sandbox of bubblewrap: its arguments.
//!
//! Nothing of the machine is visible but what is named here. No value of the environment is an argument, because every
//! user of the machine can read those.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::tools::shell::exec::CommandRun;
use crate::tools::shell::visible;

/// Returns the program `bwrap`.
pub(super) fn program() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    env::split_paths(&path).map(|folder| folder.join("bwrap")).find(|file| file.is_absolute() && file.is_file())
}

/// Returns the arguments for a command, up to the shell. The seccomp filter is on standard input.
pub(super) fn arguments(run: &CommandRun) -> Vec<OsString> {
    let settings = &run.shell.settings;
    let mut list = Arguments::default();
    // Not `--new-session`: the process group tells that all have ended. There is no terminal in it.
    // A service that runs as root has a user namespace and no capabilities only if they are named.
    list.add(&["--unshare-all", "--unshare-user", "--cap-drop", "ALL", "--die-with-parent"]);
    if settings.allows_network {
        list.add(&["--share-net"]);
    }
    for path in visible::SYSTEM {
        match fs::read_link(path) {
            Ok(target) => list.pair("--symlink", &target, Path::new(path)),
            Err(_) => list.bind("--ro-bind", Path::new(path)),
        }
    }
    visible::CONFIGURATION.iter().for_each(|path| list.bind("--ro-bind", Path::new(path)));
    // Each at most a quarter of the memory. Without `--size` it would be half of the machine's.
    let size = (settings.max_memory_bytes / 4).to_string();
    // As root, a command could else write to `/proc/sys`: the machine's settings look at the user alone.
    list.add(&["--proc", "/proc", "--remount-ro", "/proc"]);
    list.add(&["--dev", "/dev", "--ro-bind", "/dev/null", "/dev/tty"]);
    list.add(&["--size", &size, "--tmpfs", "/dev/shm", "--size", &size, "--tmpfs", "/tmp", "--remount-ro", "/dev"]);
    settings.read_only.iter().for_each(|path| list.bind("--ro-bind", path));
    settings.writable.iter().for_each(|path| list.bind("--bind", path));
    list.bind("--bind", run.shell.root.path());
    list.add(&["--remount-ro", "/", "--seccomp", "0", "--chdir"]);
    list.0.push(run.working_dir.path.clone().into_os_string());
    list.0
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn add(&mut self, arguments: &[&str]) {
        self.0.extend(arguments.iter().map(OsString::from));
    }

    fn pair(&mut self, option: &str, from: &Path, to: &Path) {
        self.0.extend([option.into(), from.as_os_str().to_owned(), to.as_os_str().to_owned()]);
    }

    /// Shows a path at the same place, if it exists.
    fn bind(&mut self, option: &str, path: &Path) {
        if path.exists() {
            self.pair(option, path, path);
        }
    }
}
