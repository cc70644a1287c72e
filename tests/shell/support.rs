//! Folders, shells and processes for the tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use agentouto::tools::Shell;
use agentouto::tools::shell::Sandbox;
use agentouto::{Tool as _, ToolContext, ToolError};
use serde_json::{Value, json};

/// An upper bound for what must happen soon.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A folder that is removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("agentouto-shell-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("root")).unwrap();
        Self(path)
    }

    /// The root of a shell.
    pub(crate) fn root(&self) -> PathBuf {
        self.0.join("root")
    }

    /// A path beside the root.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How a command runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Tier {
    Bubblewrap,
    Landlock,
    Without,
}

impl Tier {
    pub(crate) const SANDBOXES: [Self; 2] = [Self::Bubblewrap, Self::Landlock];
    pub(crate) const ALL: [Self; 3] = [Self::Bubblewrap, Self::Landlock, Self::Without];

    pub(crate) fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|tier| format!("{tier:?}") == name).unwrap()
    }

    /// A shell of this tier beneath a folder.
    pub(crate) fn shell(self, root: &Path) -> Shell {
        let shell = Shell::beneath(root).unwrap();
        match self {
            Self::Bubblewrap => shell.sandbox(Sandbox::Bubblewrap),
            Self::Landlock => shell.sandbox(Sandbox::Landlock),
            Self::Without => shell.without_sandbox(),
        }
    }
}

/// A shell of each of these tiers that works here, each with a folder of its own. Says which do not work.
pub(crate) async fn shells(row: &str, tiers: &[Tier]) -> Vec<(Tier, Folder, Shell)> {
    let mut shells = Vec::new();
    for &tier in tiers {
        let folder = Folder::new();
        let shell = tier.shell(&folder.root());
        match shell.detect().await {
            Ok(_) => shells.push((tier, folder, shell)),
            Err(error) => println!("row {row} does not run with {tier:?} on this machine: {error}"),
        }
    }
    shells
}

/// Calls the tool.
pub(crate) async fn exec(shell: &Shell, arguments: Value) -> Result<String, ToolError> {
    let Value::Object(arguments) = arguments else { panic!("not an object") };
    let content = shell.exec().call(arguments, ToolContext::for_test()).await?;
    Ok(content.text.to_string())
}

/// Runs a command in the root.
pub(crate) async fn run(shell: &Shell, command: &str) -> Result<String, ToolError> {
    exec(shell, json!({ "command": command })).await
}

/// Runs a command that must not fail as a tool.
pub(crate) async fn output(shell: &Shell, command: &str) -> String {
    run(shell, command).await.unwrap_or_else(|error| panic!("{command}: {}", error.message))
}

/// A process outside of every sandbox, which ends with this value.
pub(crate) struct Victim(pub(crate) std::process::Child);

impl Drop for Victim {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A number of seconds for `sleep` that no other process has, by which its process is found.
pub(crate) fn unique_sleep() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("sleep 9{}.{}7", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The processes whose arguments contain a text, without zombies.
pub(crate) fn processes_with(text: &str) -> Vec<i32> {
    let ids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    ids.filter(|id| {
        let arguments = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).replace('\0', " ").contains(text) && !is_zombie(*id)
    })
    .collect()
}

fn is_zombie(id: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, fields)| fields.trim_start().starts_with(['Z', 'X']))
}

/// The zombies among the children of this process.
pub(crate) fn own_zombies() -> Vec<String> {
    let own = std::process::id().to_string();
    let ids =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<i32>().ok());
    ids.filter_map(|id| fs::read_to_string(format!("/proc/{id}/stat")).ok())
        .filter(|stat| {
            let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
            fields[0] == "Z" && fields[1] == own
        })
        .collect()
}

/// Waits until no process has this text in its arguments. Fails after two seconds.
pub(crate) fn assert_gone_within_two_seconds(text: &str, what: &str) {
    let begun = Instant::now();
    loop {
        let left = processes_with(text);
        if left.is_empty() {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(2), "{what}: processes {left:?} are left after 2 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < SOON, "{what} did not happen in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
