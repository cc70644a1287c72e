//! The sandboxes, and which of them works on this machine.
//!
//! A sandbox is tried with a command that does nothing, exactly as a command is run. Nothing else is asked, because
//! kernels, containers and security modules refuse namespaces in many ways.

use std::fmt;
use std::sync::Arc;

#[cfg(not(target_os = "linux"))]
use crate::tools::shell::Shell;

/// A sandbox on Linux, see [`Shell`](super::Shell#the-sandbox).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sandbox {
    /// Namespaces of [bubblewrap](https://github.com/containers/bubblewrap), and a seccomp filter.
    Bubblewrap,
    /// Rules of [Landlock](https://docs.kernel.org/userspace-api/landlock.html), and seccomp filters.
    Landlock,
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bubblewrap => "bubblewrap",
            Self::Landlock => "Landlock",
        })
    }
}

/// The error of a machine on which no sandbox works. Its text says why, and how to fix it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoSandbox(Arc<str>);

impl NoSandbox {
    fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }
}

/// The sandbox that a program chose.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there is none to choose"))]
#[derive(Clone, Copy, Debug)]
pub(super) enum Choice {
    Best,
    Only(Sandbox),
    Without,
}

/// Returns the sandbox that works. The outer error is one of this moment, which must not be kept.
#[cfg(not(target_os = "linux"))]
pub(super) async fn detect(shell: &Shell) -> Result<Result<Option<Sandbox>, NoSandbox>, NoSandbox> {
    Ok(match shell.settings.choice {
        Choice::Without => Ok(None),
        Choice::Best | Choice::Only(_) => Err(NoSandbox::new(
            "there is no sandbox on this system; a program that accepts this says so with `Shell::without_sandbox`",
        )),
    })
}

#[cfg(target_os = "linux")]
pub(super) use linux::detect;

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::time::Duration;

    use super::{Choice, NoSandbox, Sandbox};
    use crate::tools::shell::Shell;
    use crate::tools::shell::exec::{CommandRun, End, RunError};
    use crate::tools::shell::running;

    /// The longest trial.
    const MAX_TRIAL: Duration = Duration::from_secs(20);

    /// Returns the sandbox that works. The outer error is one of this moment, which must not be kept.
    pub(crate) async fn detect(shell: &Shell) -> Result<Result<Option<Sandbox>, NoSandbox>, NoSandbox> {
        let sandboxes: &[Sandbox] = match &shell.settings.choice {
            Choice::Without => return Ok(Ok(None)),
            Choice::Only(sandbox) => std::slice::from_ref(sandbox),
            Choice::Best => &[Sandbox::Bubblewrap, Sandbox::Landlock],
        };
        let mut reasons = Vec::new();
        for &sandbox in sandboxes {
            match try_out(shell, sandbox).await? {
                Ok(()) => return Ok(Ok(Some(sandbox))),
                Err(reason) => {
                    let fix = fix(sandbox, &reason, |path| fs::read_to_string(path).unwrap_or_default());
                    reasons.push(format!("{sandbox} does not work ({reason}). To fix it: {fix}."));
                }
            }
        }
        let text = format!("commands need a sandbox, and none works here. {}", reasons.join(" Or: "));
        Ok(Err(NoSandbox::new(text)))
    }

    /// Runs a command that does nothing. Returns the reason if the sandbox does not work.
    async fn try_out(shell: &Shell, sandbox: Sandbox) -> Result<Result<(), String>, NoSandbox> {
        let now = |error: &str| NoSandbox::new(format!("could not try the sandbox: {error}"));
        let working_dir = shell.root.working_dir(None).map_err(|error| now(&error))?;
        let shell = shell.clone().timeout(MAX_TRIAL);
        let trial = CommandRun { shell, sandbox: Some(sandbox), command: ":".to_owned(), working_dir };
        let finished = match running::run(trial, |_| ()).await {
            Ok(finished) => finished,
            Err(RunError::Unavailable(reason)) => return Ok(Err(reason)),
            Err(RunError::Failed(error)) => return Err(now(&error)),
        };
        match (finished.end, finished.exit_code) {
            (End::Exited, Some(0)) => Ok(Ok(())),
            (End::Exited, code) => {
                let answer = finished.output.answer(code);
                let reason = answer.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "STDERR:");
                let reason = reason.collect::<Vec<_>>().join("; ");
                if is_momentary(&reason) { Err(now(&reason)) } else { Ok(Err(reason)) }
            }
            (end, _) => Err(now(&format!("{end:?}"))),
        }
    }

    /// Returns whether a trial may succeed later.
    fn is_momentary(reason: &str) -> bool {
        ["Resource temporarily unavailable", "Cannot allocate memory", "Too many open files"]
            .iter()
            .any(|text| reason.contains(text))
    }

    /// Returns what to do. `read` gives the text of a file of `/proc/sys`, or an empty one.
    fn fix(sandbox: Sandbox, reason: &str, read: impl Fn(&str) -> String) -> String {
        if sandbox == Sandbox::Landlock {
            return "use Linux 6.12 or later, with `landlock` in the boot parameter `lsm=`".to_owned();
        }
        let is = |path: &str, value: &str| read(path).trim() == value;
        let fix = if reason.contains("there is no program") || reason.contains("nknown option") {
            "install bubblewrap 0.8 or later (Debian and Ubuntu: `apt-get install bubblewrap`)"
        } else if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
            "let AppArmor allow it: `apt-get install apparmor-profiles`, `ln -s \
             /usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/`, `systemctl reload apparmor`"
        } else if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
            "allow user namespaces: `sysctl -w kernel.unprivileged_userns_clone=1`"
        } else if is("/proc/sys/user/max_user_namespaces", "0") {
            "allow user namespaces: `sysctl -w user.max_user_namespaces=10000`"
        } else if reason.contains("/bin/sh") {
            "install a shell as `/bin/sh`"
        } else {
            "allow user namespaces; in Docker: `--security-opt seccomp=unconfined --security-opt apparmor=unconfined \
             --security-opt systempaths=unconfined`"
        };
        fix.to_owned()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn fault_86_the_fix_fits_what_is_wrong() {
            fn check(reason: &str, setting: &str, value: &str, expected: &str) {
                let read = |path: &str| if path == setting { format!("{value}\n") } else { String::new() };
                let fix = fix(Sandbox::Bubblewrap, reason, read);
                assert!(fix.contains(expected), "{reason}: {fix}");
            }
            let denied = "bwrap: setting up uid map: Permission denied; Exit code: 1";
            check(denied, "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "bwrap-userns-restrict");
            check(denied, "/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1");
            let full = "bwrap: Creating new namespace failed: No space left on device";
            check(full, "/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces");
            check("bwrap: Unknown option --size; Exit code: 1", "", "", "0.8 or later");
            check("there is no program `bwrap`", "", "", "apt-get install bubblewrap");
            check(denied, "", "", "Docker");
        }
    }
}
