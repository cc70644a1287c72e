//! The sandbox of Landlock: rules for files, the network and signals, no capabilities, and two seccomp filters.
//!
//! All of it is required: on a kernel that lacks a part nothing is run.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use rustix::thread::{CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities};

use crate::tools::shell::seccomp::{self, LocalSockets};
use crate::tools::shell::visible;

/// The version with rules for signals and abstract sockets, of Linux 6.12.
const VERSION: ABI = ABI::V6;

/// The restriction of a thread and of all that it starts.
pub(super) struct Restriction {
    pub(super) writable: Vec<PathBuf>,
    pub(super) read_only: Vec<PathBuf>,
    pub(super) allows_network: bool,
}

impl Restriction {
    /// Restricts the current thread for ever. What it starts cannot leave this process group.
    pub(super) fn apply(&self, group: i32) -> Result<(), String> {
        self.restrict_files().map_err(|error| error.to_string())?;
        drop_capabilities().map_err(|error| format!("could not drop capabilities: {error}"))?;
        // The last step, because it refuses calls that the others need.
        filter(seccomp::for_shared_namespaces(self.allows_network, group))?;
        filter(seccomp::for_all(LocalSockets::Refused))
    }

    fn restrict_files(&self) -> Result<(), landlock::RulesetError> {
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(VERSION))?
            .scope(Scope::from_all(VERSION))?;
        if !self.allows_network {
            rules = rules.handle_access(AccessNet::from_all(VERSION))?;
        }
        let mut rules = rules.create()?;
        let read = AccessFs::from_read(VERSION);
        for path in visible::SYSTEM.into_iter().chain(visible::CONFIGURATION).chain(visible::FACTS) {
            rules = allow(rules, Path::new(path), read)?;
        }
        for path in visible::DEVICES {
            rules = allow(rules, Path::new(path), read | AccessFs::WriteFile | AccessFs::IoctlDev)?;
        }
        for path in &self.read_only {
            rules = allow(rules, path, read)?;
        }
        for path in &self.writable {
            rules = allow(rules, path, AccessFs::from_all(VERSION) & !AccessFs::IoctlDev)?;
        }
        let status = rules.restrict_self()?;
        debug_assert_eq!(status.ruleset, RulesetStatus::FullyEnforced);
        Ok(())
    }
}

/// Allows this access to a file or folder, if it exists.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, landlock::RulesetError> {
    let Ok(opened) = PathFd::new(path) else { return Ok(rules) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(VERSION) };
    rules.add_rule(PathBeneath::new(opened, access))
}

/// Drops what a service that runs as root has. `no_new_privs`, which Landlock sets, keeps it from coming back.
fn drop_capabilities() -> rustix::io::Result<()> {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    clear_ambient_capability_set()
}

fn filter(program: Result<seccompiler::BpfProgram, seccompiler::BackendError>) -> Result<(), String> {
    let program = program.map_err(|error| format!("no seccomp filter for this machine: {error}"))?;
    seccompiler::apply_filter(&program).map_err(|error| format!("could not set a seccomp filter: {error}"))
}
