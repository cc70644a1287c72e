//! Paths, links and what is no regular file: rows 61 to 69 of the list of faults.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::{Duration, Instant};

use agentouto::tools::Files;

use crate::support::{Agent, Folder, names};

#[tokio::test]
async fn fault_61_paths_that_mean_something_else_are_refused_by_all_tools() {
    let folder = Folder::new();
    folder.put("a.txt", "secret");
    folder.put("dir/b.txt", "secret");
    fs::write(folder.outside("x"), "secret").unwrap();
    let agent = Agent::new(&folder.files());
    let inside = folder.path("dir/b.txt");
    let long = "n".repeat(4_096);
    for (path, expected) in [
        ("../../etc/passwd", "`../../etc/passwd` leads out of the root"),
        ("../x", "`../x` leads out of the root"),
        ("dir/../../x", "`dir/../../x` leads out of the root"),
        ("dir/../a.txt", "`dir/../a.txt` contains `..`; write `a.txt`"),
        ("/etc/passwd", "is an absolute path; paths are relative to the root, such as `etc/passwd`"),
        (inside.to_str().unwrap(), "is an absolute path; paths are relative to the root, such as `dir/b.txt`"),
        ("~", "`~` begins with `~`, which is not expanded"),
        ("~root/x", "`~root/x` begins with `~`, which is not expanded"),
        ("a\0.txt", "\"a\\u0000.txt\" contains NUL"),
        (&long, "contains a name of 4096 bytes; 255 are possible"),
        ("", "the path is empty"),
    ] {
        for answer in agent.all(path).await {
            let error = answer.unwrap_err();
            assert!(error.contains(expected), "{path:?}: {error}");
        }
    }
    assert_eq!(names(&folder.outside("")), ["root", "x"]);
    assert_eq!(fs::read_to_string(folder.outside("x")).unwrap(), "secret");
    assert_eq!(folder.names(), ["a.txt", "dir"]);
}

#[tokio::test]
async fn fault_61_names_that_are_traps_elsewhere_are_not_created_and_existing_ones_are_used() {
    let folder = Folder::new();
    let agent = Agent::new(&folder.files());
    for name in
        ["CON", "nul.txt", "COM1", "dots.", "blank ", "a:b", "C:\\x", "\\\\server\\share", "a\nb", "dir./x", "x/AUX/y"]
    {
        let error = agent.write(name, "x").await.unwrap_err();
        assert!(error.contains("choose another name"), "{name:?}: {error}");
    }
    assert_eq!(folder.names(), [""; 0]);
    for name in ["CON", "dots.", "a:b", "a\nb", "dir. /C:\\x"] {
        folder.put(name, "text");
        assert!(agent.read(name).await.unwrap().ends_with("]\ntext"), "{name:?}");
        agent.edit(name, "text", "more").await.unwrap();
        agent.write(name, "most").await.unwrap();
        assert_eq!(folder.get(name), "most");
    }
    agent.write("dir. /new", "x").await.unwrap();
}

#[tokio::test]
async fn fault_62_links_that_lead_out_are_refused_by_all_tools() {
    let folder = Folder::new();
    fs::write(folder.outside("secret"), "secret").unwrap();
    fs::create_dir(folder.outside("evil")).unwrap();
    fs::write(folder.outside("evil/secret"), "secret").unwrap();
    fs::create_dir(folder.path("dir")).unwrap();
    for (link, target) in [
        ("file", "../secret".into()),
        ("absolute", folder.outside("secret")),
        ("folder", "../evil".into()),
        ("dir/up", "../..".into()),
        ("chain", "file".into()),
        ("root", "/".into()),
        // An absolute path that leads back: the kernel does not look where it ends.
        ("back", folder.root()),
    ] {
        symlink(target, folder.path(link)).unwrap();
    }
    let agent = Agent::new(&folder.files());
    for path in
        ["file", "absolute", "folder/secret", "folder/new", "dir/up/secret", "chain", "root/etc/passwd", "back/x"]
    {
        for answer in agent.all(path).await {
            let error = answer.unwrap_err();
            assert_eq!(error, format!("`{path}` leads out of the root, through a symbolic link"));
        }
    }
    assert!(agent.list("folder").await.unwrap_err().contains("leads out of the root"));
    assert_eq!(names(&folder.outside("evil")), ["secret"]);
    assert_eq!(fs::read_to_string(folder.outside("secret")).unwrap(), "secret");
    assert_eq!(fs::read_to_string(folder.outside("evil/secret")).unwrap(), "secret");
}

#[tokio::test]
async fn links_that_stay_inside_are_followed_and_stay_links() {
    let folder = Folder::new();
    folder.put("data/real.txt", "one");
    symlink("real.txt", folder.path("data/link")).unwrap();
    symlink("data", folder.path("alias")).unwrap();
    symlink("nothing", folder.path("dangling")).unwrap();
    let agent = Agent::new(&folder.files());
    assert_eq!(agent.read("alias/link").await.unwrap(), "[alias/link: lines 1 to 1 of 1; no newline at the end]\none");
    agent.write("alias/link", "two").await.unwrap();
    agent.edit("data/link", "two", "three").await.unwrap();
    assert_eq!(folder.get("data/real.txt"), "three");
    assert!(folder.path("data/link").symlink_metadata().unwrap().is_symlink());
    assert_eq!(agent.list("alias").await.unwrap(), "[alias: entries 1 to 2 of 2]\nlink: link\nfile 5 bytes: real.txt");
    agent.write("alias/new", "x").await.unwrap();
    assert_eq!(folder.get("data/new"), "x");
    for answer in [agent.read("dangling").await, agent.write("dangling", "x").await] {
        assert_eq!(answer.unwrap_err(), "`dangling` is a symbolic link to nothing");
    }
}

#[tokio::test]
async fn fault_63_circles_and_long_chains_of_links_are_errors() {
    let folder = Folder::new();
    symlink("b", folder.path("a")).unwrap();
    symlink("a", folder.path("b")).unwrap();
    folder.put("0", "secret");
    for number in 1..=10_000 {
        symlink((number - 1).to_string(), folder.path(&number.to_string())).unwrap();
    }
    let agent = Agent::new(&folder.files());
    for path in ["a", "a/x", "10000"] {
        for answer in agent.all(path).await {
            let error = answer.unwrap_err();
            assert!(error.starts_with(&format!("`{path}`")) && error.contains("symbolic links"), "{error}");
        }
    }
}

#[tokio::test]
async fn fault_64_a_hard_link_to_a_file_outside_is_never_written_through() {
    let folder = Folder::new();
    fs::write(folder.outside("secret"), "secret\n").unwrap();
    for name in ["written", "edited"] {
        fs::hard_link(folder.outside("secret"), folder.path(name)).unwrap();
    }
    let agent = Agent::new(&folder.files());
    agent.write("written", "evil").await.unwrap();
    agent.edit("edited", "secret", "evil").await.unwrap();
    assert_eq!((&*folder.get("written"), &*folder.get("edited")), ("evil", "evil\n"));
    assert_eq!(fs::read_to_string(folder.outside("secret")).unwrap(), "secret\n");
    assert_eq!(folder.outside("secret").metadata().unwrap().nlink(), 1);
}

#[tokio::test]
async fn fault_66_a_folder_beside_the_root_with_the_same_beginning_is_outside() {
    let folder = Folder::new();
    fs::create_dir(folder.outside("root-evil")).unwrap();
    fs::write(folder.outside("root-evil/secret"), "secret").unwrap();
    symlink("../root-evil", folder.path("link")).unwrap();
    let agent = Agent::new(&folder.files());
    let absolute = folder.outside("root-evil/secret");
    for path in [absolute.to_str().unwrap(), "../root-evil/secret", "link/secret"] {
        for answer in agent.all(path).await {
            assert!(answer.is_err(), "{path}: {answer:?}");
        }
    }
    // The suggestion names the path below the root, and not what is left of the longer name.
    let error = agent.read(absolute.to_str().unwrap()).await.unwrap_err();
    assert!(error.ends_with(&format!("such as `{}`", &absolute.to_str().unwrap()[1..])), "{error}");
    assert_eq!(fs::read_to_string(absolute).unwrap(), "secret");
}

/// These tools have no list of single files that are allowed. The root is the only permission, and a file below it that
/// becomes a link to the outside is refused.
#[tokio::test]
async fn fault_67_a_file_that_becomes_a_link_is_refused() {
    let folder = Folder::new();
    fs::write(folder.outside("secret"), "secret").unwrap();
    folder.put("a.txt", "text");
    let agent = Agent::new(&folder.files());
    agent.read("a.txt").await.unwrap();
    fs::remove_file(folder.path("a.txt")).unwrap();
    symlink(folder.outside("secret"), folder.path("a.txt")).unwrap();
    for answer in agent.all("a.txt").await {
        assert!(answer.unwrap_err().contains("leads out of the root"));
    }
    assert_eq!(fs::read_to_string(folder.outside("secret")).unwrap(), "secret");
}

/// What a program stores of its conversations is not below the root, so no path reaches it; and the tools put nothing
/// of their own there.
#[tokio::test]
async fn fault_68_sessions_beside_the_root_cannot_be_reached() {
    let folder = Folder::new();
    fs::create_dir(folder.outside("sessions")).unwrap();
    fs::write(folder.outside("sessions/cli_direct.jsonl"), "secret").unwrap();
    let agent = Agent::new(&folder.files());
    let absolute = folder.outside("sessions/cli_direct.jsonl");
    for path in ["../sessions/cli_direct.jsonl", absolute.to_str().unwrap()] {
        for answer in agent.all(path).await {
            assert!(answer.is_err(), "{answer:?}");
        }
    }
    agent.write("a.txt", "x").await.unwrap();
    agent.edit("a.txt", "x", "y").await.unwrap();
    assert_eq!(folder.names(), ["a.txt"]);
    assert_eq!(names(&folder.outside("sessions")), ["cli_direct.jsonl"]);
}

#[tokio::test]
async fn fault_69_only_regular_files_are_opened_and_nothing_waits() {
    let folder = Folder::new();
    assert!(Command::new("mkfifo").arg(folder.path("pipe")).status().unwrap().success());
    let _socket = UnixListener::bind(folder.path("socket")).unwrap();
    symlink("pipe", folder.path("link")).unwrap();
    let begun = Instant::now();
    let agent = Agent::new(&folder.files());
    for (path, kind) in [("pipe", "is a named pipe"), ("socket", "is a socket"), ("link", "is a named pipe")] {
        let [read, write, edit, list] = agent.all(path).await;
        for answer in [read, write, edit] {
            assert_eq!(answer.unwrap_err(), format!("`{path}` {kind}"));
        }
        assert_eq!(list.unwrap_err(), format!("`{path}` is not a directory"));
    }
    assert_eq!(
        agent.list(".").await.unwrap(),
        "[.: entries 1 to 3 of 3]\nlink: link\na named pipe: pipe\na socket: socket"
    );
    let devices = Agent::new(&Files::beneath("/dev").unwrap());
    assert_eq!(devices.read("zero").await.unwrap_err(), "`zero` is a device");
    assert_eq!(devices.write("full", "x").await.unwrap_err(), "`full` is a device");
    // None of them was waited for: a pipe without a reader or a writer blocks for ever.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn fault_69_files_that_the_kernel_makes_up_are_refused() {
    let made_up = "is no stored file: the kernel makes it up";
    let all = Agent::new(&Files::beneath("/").unwrap());
    for path in ["proc/self/environ", "proc/self/mem", "proc/self/maps", "proc/1/environ", "sys/kernel/notes"] {
        let error = all.read(path).await.unwrap_err();
        // Links of `/proc` and rights of other processes end in other refusals.
        assert!(error.contains(made_up) || error.contains("denied"), "{path}: {error}");
    }
    // `self` is a link that the kernel resolves by process: it leads to the same files.
    for path in ["proc/self/fd/0", "proc/self/root/etc/passwd", "proc/self/cwd/Cargo.toml", "proc/self/exe"] {
        let error = all.read(path).await.unwrap_err();
        assert!(error.starts_with(&format!("`{path}`")), "{error}");
    }
    let processes = Agent::new(&Files::beneath("/proc").unwrap());
    for path in ["self/environ", "version"] {
        assert_eq!(processes.read(path).await.unwrap_err(), format!("`{path}` {made_up}"));
        assert!(processes.write(path, "x").await.is_err());
    }
}

#[tokio::test]
async fn the_root_is_the_directory_and_not_its_path() {
    let folder = Folder::new();
    folder.put("a.txt", "one");
    let agent = Agent::new(&folder.files());
    fs::rename(folder.root(), folder.outside("moved")).unwrap();
    fs::create_dir(folder.root()).unwrap();
    folder.put("a.txt", "another");
    assert!(agent.read("a.txt").await.unwrap().ends_with("one"));
    agent.write("a.txt", "two").await.unwrap();
    assert_eq!(fs::read_to_string(folder.outside("moved/a.txt")).unwrap(), "two");
    assert_eq!(folder.get("a.txt"), "another");
    fs::remove_dir_all(folder.outside("moved")).unwrap();
    for answer in agent.all("a.txt").await {
        assert!(answer.unwrap_err().contains("`a.txt`"));
    }
    assert_eq!(agent.list(".").await.unwrap(), "[.: empty folder]");
    let error = Files::beneath(folder.outside("none")).unwrap_err().to_string();
    assert!(error.contains("none: No such file"), "{error}");
}

#[tokio::test]
async fn a_file_in_place_of_a_folder_is_named() {
    let folder = Folder::new();
    folder.put("a.txt", "x");
    fs::create_dir(folder.path("dir")).unwrap();
    let agent = Agent::new(&folder.files());
    assert_eq!(agent.list("a.txt").await.unwrap_err(), "`a.txt` is not a directory");
    for answer in [agent.read("dir").await, agent.write("dir", "x").await, agent.edit("dir", "x", "y").await] {
        assert_eq!(answer.unwrap_err(), "`dir` is a directory");
    }
    for answer in [agent.read(".").await, agent.write(".", "x").await] {
        assert_eq!(answer.unwrap_err(), "`.` is a directory");
    }
    let error = agent.write("a.txt/b/c", "x").await.unwrap_err();
    assert_eq!(error, "`a.txt/b/c`: Not a directory (os error 20)");
    assert_eq!(agent.read("none").await.unwrap_err(), "`none` does not exist");
    assert_eq!(agent.list("none").await.unwrap_err(), "`none` does not exist");
}
