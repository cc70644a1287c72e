//! Files that several agents, runs, runtimes and processes change. Row 72 of the list of faults.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use agentouto::tools::Files;

use crate::support::{Agent, Folder};

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

/// Another program replaces the file by rename all the time, with numbers that grow. An update of that program is never
/// lost: the file never shows a number that is less than the last one that was there before the agent's write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg(target_os = "linux")]
async fn fault_72_an_update_of_another_process_is_not_lost() {
    let folder = Folder::new();
    folder.put("a", "0");
    let (root, stop) = (folder.root(), Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop);
    // It appends to what it reads, and replaces the file only if it is the file that it read, as the tools do.
    let other = std::thread::spawn(move || {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        let mut added = 0;
        while !stopped.load(Ordering::Relaxed) {
            let Ok(text) = fs::read_to_string(root.join("a")) else { continue };
            fs::write(root.join("new"), format!("{text}o")).unwrap();
            renameat_with(CWD, root.join("new"), CWD, root.join("a"), RenameFlags::EXCHANGE).unwrap();
            if fs::read_to_string(root.join("new")).unwrap() == text {
                added += 1;
            } else {
                renameat_with(CWD, root.join("new"), CWD, root.join("a"), RenameFlags::EXCHANGE).unwrap();
            }
            fs::remove_file(root.join("new")).unwrap();
        }
        added
    });
    let agent = Agent::new(&Files::beneath(folder.root()).unwrap());
    let (mut added, mut conflicts) = (0, 0);
    while added < 200 {
        let text = agent.read("a").await.unwrap();
        let text = text.split_once('\n').unwrap().1;
        match agent.write("a", &format!("{text}t")).await {
            Ok(_) => added += 1,
            Err(error) => {
                assert!(error.starts_with("conflict: "), "{error}");
                conflicts += 1;
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    let others = other.join().unwrap();
    let text = folder.get("a");
    println!("{added} updates of the tool, {others} of the other program, {conflicts} conflicts");
    assert_eq!(text.matches('t').count(), added);
    assert_eq!(text.matches('o').count(), others);
}
