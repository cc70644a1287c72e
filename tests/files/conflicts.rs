//! Files that several agents, runs, runtimes and processes change. Row 72 of the list of faults.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agentouto::tools::Files;

use crate::support::{Agent, Folder, child, child_value};

const CHANGED: &str = "conflict: `a` has changed since it was read last. Nothing was written. Read it again";

#[tokio::test]
async fn fault_72_a_write_replaces_only_what_was_read_last() {
    let folder = Folder::new();
    folder.put("a", "one");
    let (one, other) = (Agent::new(&folder.files()), Agent::new(&folder.files()));
    one.read("a").await.unwrap();
    fs::write(folder.path("a"), "two").unwrap();
    assert_eq!(one.write("a", "mine").await.unwrap_err(), CHANGED);
    assert_eq!(folder.get("a"), "two");
    one.read("a").await.unwrap();
    assert_eq!(one.write("a", "three").await.unwrap(), "Replaced `a` (5 bytes; it had 3 bytes).");
    // The agent knows what it wrote.
    assert_eq!(one.write("a", "four").await.unwrap(), "Replaced `a` (4 bytes; it had 5 bytes).");
    let unread = "Replaced `a`, which was not read in this run before (4 bytes; it had 4 bytes).";
    assert_eq!(other.write("a", "five").await.unwrap(), unread);
    assert_eq!(one.write("a", "mine").await.unwrap_err(), CHANGED);
    // A file that is gone is made again.
    fs::remove_file(folder.path("a")).unwrap();
    assert_eq!(one.write("a", "six").await.unwrap(), "Created `a` (3 bytes).");
}

#[tokio::test]
async fn fault_72_a_range_is_enough_to_have_read_and_a_change_elsewhere_is_seen() {
    let folder = Folder::new();
    folder.put("a", "one\ntwo\nthree\n");
    let agent = Agent::new(&folder.files());
    agent.read_lines("a", 0, 1).await.unwrap();
    fs::write(folder.path("a"), "one\ntwo\n3\n").unwrap();
    assert_eq!(agent.write("a", "one\n").await.unwrap_err(), CHANGED);
}

/// A file of more than 64 MiB is compared by its size and the time of its change.
#[tokio::test]
async fn fault_72_a_change_of_a_large_file_is_seen() {
    use std::io::Write as _;
    let folder = Folder::new();
    let mut file = fs::File::create(folder.path("a")).unwrap();
    file.write_all("line\n".repeat(2_000).as_bytes()).unwrap();
    file.set_len(10_000_000_000).unwrap();
    let agent = Agent::new(&folder.files());
    agent.read_lines("a", 0, 1).await.unwrap();
    file.write_all(b"x").unwrap();
    assert_eq!(agent.write("a", "x").await.unwrap_err(), CHANGED);
    agent.read_lines("a", 0, 1).await.unwrap();
    assert_eq!(agent.write("a", "x").await.unwrap(), "Replaced `a` (1 byte; it had 10000000000 bytes).");
}

#[tokio::test]
async fn fault_72_agents_of_one_run_lose_no_update_of_each_other() {
    let folder = Folder::new();
    folder.put("a", "one");
    let one = Agent::new(&folder.files());
    let (two, three) = (one.colleague(), one.colleague());
    one.read("a").await.unwrap();
    two.read("a").await.unwrap();
    one.write("a", "from one").await.unwrap();
    assert_eq!(two.write("a", "from two").await.unwrap_err(), CHANGED);
    // What a colleague read, and what it knows by a later read, is not what this agent knows.
    three.read("a").await.unwrap();
    assert_eq!(two.write("a", "from two").await.unwrap_err(), CHANGED);
    assert_eq!(folder.get("a"), "from one");
    // An agent that read nothing itself has what its run read last.
    let four = one.colleague();
    assert_eq!(four.write("a", "from four").await.unwrap(), "Replaced `a` (9 bytes; it had 8 bytes).");
    assert_eq!(one.colleague().write("a", "from five").await.unwrap_err(), CHANGED);
}

#[tokio::test]
async fn fault_72_an_edit_keeps_what_others_changed_and_does_not_pass_for_a_read() {
    let folder = Folder::new();
    folder.put("a", "one\ntwo\n");
    let (one, two) = (Agent::new(&folder.files()), Agent::new(&folder.files()));
    one.read("a").await.unwrap();
    two.read("a").await.unwrap();
    two.edit("a", "two", "2").await.unwrap();
    one.edit("a", "one", "1").await.unwrap();
    assert_eq!(folder.get("a"), "1\n2\n");
    // Its model does not know the line that the other changed.
    assert_eq!(one.write("a", "1\ntwo\nthree\n").await.unwrap_err(), CHANGED);
    assert!(two.edit("a", "one", "x").await.unwrap_err().contains("does not occur"));
    // An agent that knew the whole file knows it after its edit.
    one.read("a").await.unwrap();
    one.edit("a", "1", "one").await.unwrap();
    one.write("a", "done\n").await.unwrap();
    let unread = Agent::new(&folder.files());
    unread.edit("a", "done", "edited").await.unwrap();
    assert!(unread.write("a", "x").await.unwrap().contains("not read in this run before"));
}

#[tokio::test]
async fn fault_72_two_names_of_one_file_are_one_file() {
    let folder = Folder::new();
    folder.put("dir/a", "one");
    std::os::unix::fs::symlink("dir", folder.path("alias")).unwrap();
    std::os::unix::fs::symlink("dir/a", folder.path("b")).unwrap();
    let agent = Agent::new(&folder.files());
    agent.read("./dir//a").await.unwrap();
    fs::write(folder.path("dir/a"), "two").unwrap();
    for path in ["dir/a", "alias/a", "b"] {
        assert!(agent.write(path, "x").await.unwrap_err().starts_with("conflict: "), "{path}");
    }
}

/// Sixteen agents count in one file, each by reading it and writing the next number. Half of them have another handle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_72_no_update_is_lost_among_agents_runs_and_handles() {
    let folder = Folder::new();
    folder.put("count", "0");
    let (one, other) = (folder.files(), folder.files());
    let mut tasks = Vec::new();
    let conflicts = Arc::new(AtomicU64::new(0));
    for number in 0..16 {
        let agent = Agent::new(if number % 2 == 0 { &one } else { &other });
        let conflicts = Arc::clone(&conflicts);
        tasks.push(tokio::spawn(async move {
            let mut added = 0;
            while added < 10 {
                let text = agent.read("count").await.unwrap();
                let count: u64 = text.split_once('\n').unwrap().1.parse().unwrap();
                match agent.write("count", &(count + 1).to_string()).await {
                    Ok(_) => added += 1,
                    Err(error) => {
                        assert!(error.starts_with("conflict: "), "{error}");
                        conflicts.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    println!("160 updates, {} conflicts", conflicts.load(Ordering::Relaxed));
    assert_eq!(folder.get("count"), "160");
    assert_eq!(folder.names(), ["count"]);
}

/// Adds fifty to the number in a file.
#[tokio::test]
async fn child_that_counts() {
    let Some(root) = child_value() else { return };
    let agent = Agent::new(&Files::beneath(root).unwrap());
    let mut added = 0;
    while added < 50 {
        let text = agent.read("count").await.unwrap();
        let count: u64 = text.split_once('\n').unwrap().1.parse().unwrap();
        match agent.write("count", &(count + 1).to_string()).await {
            Ok(_) => added += 1,
            Err(error) => assert!(error.starts_with("conflict: "), "{error}"),
        }
    }
}

#[test]
fn fault_72_no_update_is_lost_among_processes_that_use_these_tools() {
    let folder = Folder::new();
    folder.put("count", "0");
    let start = || {
        let mut command = child("conflicts::child_that_counts", folder.root().to_str().unwrap());
        command.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    for mut process in [start(), start(), start()] {
        assert!(process.wait().unwrap().success());
    }
    assert_eq!(folder.get("count"), "150");
    assert_eq!(folder.names(), ["count"]);
}

/// Agents edit the lines of one file at once, each a line of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_72_edits_of_one_file_at_once_all_stay() {
    let folder = Folder::new();
    folder.put("a", (0..50).map(|number| format!("<{number}>\n")).collect::<String>());
    let files = folder.files();
    let tasks: Vec<_> = (0..50)
        .map(|number| {
            let agent = Agent::new(&files);
            tokio::spawn(async move { agent.edit("a", &format!("<{number}>"), &format!("[{number}]")).await.unwrap() })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(folder.get("a"), (0..50).map(|number| format!("[{number}]\n")).collect::<String>());
}

/// Another program replaces the file by rename with a number, and goes on when the tool has read it. So a number that
/// the tool replaces without having read it is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg(target_os = "linux")]
async fn fault_72_an_update_of_another_program_is_not_lost() {
    const UPDATES: u64 = 300;
    let folder = Folder::new();
    folder.put("a", "0");
    let root = folder.root();
    let (put, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (is_put, is_seen) = (Arc::clone(&put), Arc::clone(&seen));
    let other = std::thread::spawn(move || {
        for number in 1..=UPDATES {
            fs::write(root.join("new"), number.to_string()).unwrap();
            fs::rename(root.join("new"), root.join("a")).unwrap();
            is_put.store(number, Ordering::SeqCst);
            while is_seen.load(Ordering::SeqCst) < number {
                std::thread::yield_now();
            }
        }
    });
    let agent = Agent::new(&Files::beneath(folder.root()).unwrap());
    let (mut written, mut before, mut during) = (0, 0, 0);
    while seen.load(Ordering::SeqCst) < UPDATES {
        let was_put = put.load(Ordering::SeqCst);
        let text = agent.read("a").await.unwrap();
        if let Ok(number) = text.split_once('\n').unwrap().1.parse() {
            seen.store(number, Ordering::SeqCst);
        }
        assert!(seen.load(Ordering::SeqCst) >= was_put, "the update {was_put} is lost");
        match agent.write("a", "tool").await {
            Ok(_) => written += 1,
            Err(error) if error == CHANGED => before += 1,
            Err(error) => {
                assert_eq!(error, "conflict: `a` was changed by another process. Nothing was written. Read it again");
                during += 1;
            }
        }
    }
    other.join().unwrap();
    println!(
        "{UPDATES} updates of the program, {written} of the tool; conflicts: {before} before and {during} during a write"
    );
    assert!(before + during > 0);
}

#[tokio::test]
async fn what_a_run_has_read_stays_known_while_other_runs_come_and_go() {
    let folder = Folder::new();
    folder.put("a", "one");
    let files = folder.files();
    let reader = Agent::new(&files);
    reader.read("a").await.unwrap();
    // Runs that are over are forgotten, those that are not stay known.
    for _ in 0..1_000 {
        Agent::new(&files).read("a").await.unwrap();
    }
    fs::write(folder.path("a"), "two").unwrap();
    assert_eq!(reader.write("a", "x").await.unwrap_err(), CHANGED);
}
