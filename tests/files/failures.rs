//! Disks that are full or read only, limits, and processes that are killed. Row 73 of the list of faults.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use agentouto::tools::Files;

use crate::support::{Agent, Folder, child, child_value};

/// Runs a test of this program in a process that has its own mounts. `false` if the machine does not allow that.
fn with_mounts(test: &str, script: &str, folder: &Folder) -> bool {
    let program = child(test, "");
    let arguments: Vec<_> = program.get_args().map(|argument| argument.to_str().unwrap()).collect();
    let run = format!("set -e; {script}; exec \"$PROGRAM\" {}", arguments.join(" "));
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "--user", "sh", "-c", &run]);
    if rustix::process::geteuid().is_root() {
        command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &run]);
    }
    command
        .env("PROGRAM", program.get_program())
        .env("ROOT", folder.root())
        .env("AGENTOUTO_FILES_CHILD", folder.root());
    let Ok(output) = command.output() else { return false };
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if said.contains("unshare") || said.contains("mount:") {
        return false;
    }
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    true
}

fn report(name: &str, is_run: bool) {
    if !is_run {
        println!("not run: {name} needs its own mounts, which this machine does not allow");
    }
}

#[tokio::test]
async fn child_on_a_full_disk() {
    let Some(root) = child_value() else { return };
    let agent = Agent::new(&Files::beneath(&root).unwrap());
    agent.write("a", "old").await.unwrap();
    let large = "x".repeat(1_000_000);
    for (path, answer) in [
        ("a", agent.write("a", &large).await),
        ("new/b", agent.write("new/b", &large).await),
        ("a", agent.edit("a", "old", &large).await),
    ] {
        assert_eq!(answer.unwrap_err(), format!("`{path}` was not written: No space left on device (os error 28)"));
    }
    assert_eq!(fs::read_to_string(format!("{root}/a")).unwrap(), "old");
    assert_eq!(crate::support::names(root.as_ref()), ["a", "new"]);
    assert_eq!(crate::support::names(format!("{root}/new").as_ref()), [""; 0]);
    agent.write("a", "small").await.unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn fault_73_a_full_disk_leaves_the_old_file() {
    let folder = Folder::new();
    let mount = "mount -t tmpfs -o size=256k tmpfs \"$ROOT\"";
    report("a full disk", with_mounts("failures::child_on_a_full_disk", mount, &folder));
}

#[tokio::test]
async fn child_on_a_read_only_disk() {
    let Some(root) = child_value() else { return };
    let agent = Agent::new(&Files::beneath(&root).unwrap());
    agent.read("a").await.unwrap();
    let read_only = "Read-only file system (os error 30)";
    assert_eq!(agent.write("a", "new").await.unwrap_err(), format!("`a`: {read_only}"));
    assert_eq!(agent.edit("a", "old", "new").await.unwrap_err(), format!("`a`: {read_only}"));
    assert!(agent.write("b", "new").await.unwrap_err().ends_with(read_only));
    assert!(agent.write("c/d", "new").await.unwrap_err().ends_with(read_only));
    assert_eq!(crate::support::names(root.as_ref()), ["a"]);
}

#[test]
#[cfg(target_os = "linux")]
fn fault_73_a_disk_that_is_read_only_is_named() {
    let folder = Folder::new();
    let mount = "mount -t tmpfs tmpfs \"$ROOT\"; printf old > \"$ROOT/a\"; mount -o remount,ro \"$ROOT\"";
    report("a read-only disk", with_mounts("failures::child_on_a_read_only_disk", mount, &folder));
}

#[tokio::test]
async fn child_across_devices() {
    let Some(root) = child_value() else { return };
    let agent = Agent::new(&Files::beneath(&root).unwrap());
    agent.write("disk/a", "one").await.unwrap();
    agent.edit("disk/a", "one", "two").await.unwrap();
    agent.write("disk/a", "three").await.unwrap();
    assert_eq!(fs::read_to_string(format!("{root}/disk/a")).unwrap(), "three");
    assert_eq!(crate::support::names(format!("{root}/disk").as_ref()), ["a"]);
    // A bind of `/proc` below the root is no way to the files that the kernel makes up.
    let error = agent.read("proc/self/environ").await.unwrap_err();
    assert!(error.contains("the kernel makes it up"), "{error}");
}

#[test]
#[cfg(target_os = "linux")]
fn fault_73_a_disk_within_the_root_is_written_as_any_folder() {
    let folder = Folder::new();
    for name in ["disk", "proc"] {
        fs::create_dir(folder.path(name)).unwrap();
    }
    let mount = "mount -t tmpfs tmpfs \"$ROOT/disk\"; mount --rbind /proc \"$ROOT/proc\"";
    report("a disk within the root", with_mounts("failures::child_across_devices", mount, &folder));
}

#[tokio::test]
async fn child_with_a_limit_of_the_size_of_files() {
    let Some(root) = child_value() else { return };
    let agent = Agent::new(&Files::beneath(&root).unwrap());
    agent.write("a", "old").await.unwrap();
    let error = agent.write("a", &"x".repeat(3_000_000)).await.unwrap_err();
    assert_eq!(error, "`a` was not written: File too large (os error 27)");
    assert_eq!(fs::read_to_string(format!("{root}/a")).unwrap(), "old");
    assert_eq!(crate::support::names(root.as_ref()), ["a"]);
}

#[test]
fn fault_73_a_limit_of_the_size_of_files_leaves_the_old_file() {
    let folder = Folder::new();
    let program = child("failures::child_with_a_limit_of_the_size_of_files", "");
    let arguments: Vec<_> = program.get_args().map(|argument| argument.to_str().unwrap()).collect();
    let mut command = Command::new("sh");
    // Units of 512 bytes. Without the signal, the write fails instead.
    command.args(["-c", &format!("trap '' XFSZ; ulimit -f 4096; exec \"$PROGRAM\" {}", arguments.join(" "))]);
    command.env("PROGRAM", program.get_program()).env("AGENTOUTO_FILES_CHILD", folder.root());
    let output = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test]
async fn child_that_counts_its_descriptors() {
    let Some(root) = child_value() else { return };
    let agent = Agent::new(&Files::beneath(root).unwrap());
    let mut counts = Vec::new();
    for _ in 0..100 {
        agent.write("dir/a", "one").await.unwrap();
        agent.edit("dir/a", "one", "two").await.unwrap();
        agent.read("dir/a").await.unwrap();
        agent.list("dir").await.unwrap();
        for path in ["none", "dir", "dir/a/b", "../x"] {
            agent.read(path).await.unwrap_err();
        }
        agent.edit("dir/a", "one", "two").await.unwrap_err();
        counts.push(fs::read_dir("/proc/self/fd").unwrap().count());
    }
    assert_eq!(counts[10], counts[99], "{counts:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn no_descriptor_is_left_open() {
    let folder = Folder::new();
    let output =
        child("failures::child_that_counts_its_descriptors", folder.root().to_str().unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[tokio::test]
async fn child_without_rights() {
    let Some(root) = child_value() else { return };
    if rustix::process::geteuid().is_root() {
        return println!("not run: there is no other user to run as");
    }
    let agent = Agent::new(&Files::beneath(&root).unwrap());
    let denied = "Permission denied (os error 13)";
    assert_eq!(agent.read("none").await.unwrap_err(), format!("`none`: {denied}"));
    assert_eq!(agent.list("closed").await.unwrap_err(), format!("`closed`: {denied}"));
    assert!(agent.read("read").await.unwrap().ends_with("\nold"));
    assert_eq!(agent.write("read", "new").await.unwrap_err(), format!("`read`: {denied}"));
    assert_eq!(agent.edit("read", "old", "new").await.unwrap_err(), format!("`read`: {denied}"));
    assert_eq!(agent.write("fixed/a", "new").await.unwrap_err(), format!("`fixed/a` was not written: {denied}"));
    assert_eq!(agent.write("fixed/b", "new").await.unwrap_err(), format!("`fixed/b` was not written: {denied}"));
}

#[test]
fn fault_73_missing_rights_are_named() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    use std::os::unix::process::CommandExt as _;
    let folder = Folder::within(&std::env::temp_dir());
    fs::create_dir(folder.path("closed")).unwrap();
    for (path, mode) in [("none", 0), ("read", 0o444), ("fixed/a", 0o666)] {
        folder.put(path, "old");
        fs::set_permissions(folder.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    // The program may lie where another user cannot reach it.
    let mut command = child("failures::child_without_rights", folder.root().to_str().unwrap());
    if rustix::process::geteuid().is_root() {
        for path in ["none", "read", "fixed/a", "closed", "fixed", "."] {
            chown(folder.path(path), Some(65_534), Some(65_534)).unwrap();
        }
        command.uid(65_534).gid(65_534);
    }
    fs::set_permissions(folder.path("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(folder.path("fixed"), fs::Permissions::from_mode(0o555)).unwrap();
    match command.output() {
        Ok(output) => {
            let said =
                format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            println!("{said}");
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
        }
        Err(error) => println!("not run: another user cannot start this program: {error}"),
    }
    fs::set_permissions(folder.path("closed"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(folder.path("fixed"), fs::Permissions::from_mode(0o755)).unwrap();
}

const SIZE: usize = 4_000_000;

/// Writes a file again and again, with one letter each time, until it is killed.
#[tokio::test]
async fn child_that_writes_for_ever() {
    let Some(root) = child_value() else { return };
    let agent = Agent::new(&Files::beneath(root).unwrap());
    println!("ready");
    for letter in ["a", "b", "c", "d"].into_iter().cycle() {
        agent.write("file", &letter.repeat(SIZE)).await.unwrap();
        agent.write("small", &letter.repeat(10)).await.unwrap();
    }
}

#[test]
#[cfg(target_os = "linux")]
fn fault_73_a_process_that_is_killed_leaves_the_old_or_the_new_file() {
    let folder = Folder::new();
    let mut left = 0;
    for number in 0..30 {
        let mut command = child("failures::child_that_writes_for_ever", folder.root().to_str().unwrap());
        let mut process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Different phases of the writes; the first file must be there.
        while number == 0 && !folder.path("small").exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(50 + number * 7));
        process.kill().unwrap();
        assert_eq!(process.wait().unwrap().signal(), Some(9));
        for (name, size) in [("file", SIZE), ("small", 10)] {
            let text = folder.get(name);
            let is_whole = text.len() == size && text.bytes().all(|letter| letter == text.as_bytes()[0]);
            assert!(is_whole, "{name}: {} bytes", text.len());
        }
        left += folder.names().len() - 2;
    }
    println!("30 kills; temporary files that were left: {left}");
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(async {
        let agent = Agent::new(&folder.files());
        let listed = agent.list(".").await.unwrap();
        assert!(listed.starts_with("[.: entries 1 to 2 of 2]"), "{listed}");
        // The next write removes what was left.
        fs::write(folder.path(".agentouto-swap.tmp"), "left").unwrap();
        agent.write("small", "x").await.unwrap();
    });
    assert_eq!(folder.names(), ["file", "small"]);
}
