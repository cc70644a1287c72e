//! `list_dir`: pages, odd names, and very many entries. Rows 74 and 75 of the list of faults.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use serde_json::Value;

use crate::support::{Agent, Folder};

#[tokio::test]
async fn entries_come_in_pages_that_say_where_to_continue() {
    let folder = Folder::new();
    for number in 0..7 {
        folder.put(&format!("{number}"), "x".repeat(number));
    }
    fs::create_dir(folder.path("empty")).unwrap();
    let agent = Agent::new(&folder.files());
    let list = async |offset, limit| agent.list_entries(".", offset, limit).await.unwrap_or_else(|error| error);
    assert_eq!(list(0, 2).await, "[.: entries 1 to 2 of 8; continue with offset 2]\nfile 0 bytes: 0\nfile 1 bytes: 1");
    assert_eq!(list(6, 9).await, "[.: entries 7 to 8 of 8]\nfile 6 bytes: 6\nfolder: empty");
    assert_eq!(list(7, 0).await, "[.: entries 8 to 8 of 8]\nfolder: empty");
    assert_eq!(list(8, 1).await, "`.` has 8 entries; an offset of 8 is past the end");
    assert_eq!(list(u64::MAX, u64::MAX).await, format!("`.` has 8 entries; an offset of {} is past the end", u64::MAX));
    assert_eq!(agent.list("empty").await.unwrap(), "[empty: empty folder]");
    let short = Agent::new(&folder.files().max_output_bytes(256));
    for number in 0..100 {
        folder.put(&format!("many/{number:03}"), "");
    }
    let answer = short.list("many").await.unwrap();
    assert!(answer.len() < 350 && answer.contains("of 100; continue with offset 14]"), "{answer}");
}

#[tokio::test]
async fn fault_75_names_that_could_mislead_are_escaped_and_can_be_used_as_they_are_shown() {
    let folder = Folder::new();
    let names = [
        "two\nlines",
        "\u{1b}[31mred",
        "\u{202e}txt.exe",
        "back\\slash",
        "\"quoted\"",
        "zero\u{200b}width",
        "file 1 bytes: x",
    ];
    for name in names {
        folder.put(name, "text");
    }
    fs::write(folder.root().join(OsStr::from_bytes(b"latin\xe9")), "x").unwrap();
    let agent = Agent::new(&folder.files());
    let answer = agent.list(".").await.unwrap();
    assert!(!answer.contains(['\u{1b}', '\u{202e}', '\u{200b}']), "{answer:?}");
    assert!(answer.contains("\nfile 4 bytes: \"two\\nlines\"\n"), "{answer}");
    assert!(answer.contains("latin\u{fffd} (its name is not Unicode, so these tools cannot open it)"), "{answer}");
    let mut read = Vec::new();
    for line in answer.lines().skip(1).filter(|line| !line.contains("latin")) {
        let shown = line.strip_prefix("file 4 bytes: ").unwrap();
        // As a model writes it: within the JSON of its arguments.
        let quoted = if shown.starts_with('"') { shown.to_owned() } else { format!("\"{shown}\"") };
        let Ok(Value::String(path)) = serde_json::from_str(&quoted) else { panic!("{quoted}") };
        let text = agent.read(&path).await.unwrap();
        assert!(text.ends_with("]\ntext") && text.lines().count() == 2, "{text:?}");
        read.push(path);
    }
    read.sort();
    let mut names = names.to_vec();
    names.sort_unstable();
    assert_eq!(read, names);
    let error = agent.read("none\u{202e}\n").await.unwrap_err();
    assert_eq!(error, "\"none\\u202e\\n\" does not exist");
}

#[tokio::test]
async fn fault_74_a_million_entries_are_listed_in_pages() {
    // In memory, where the machine has such a file system: a million files are slow to make on a disk.
    let memory = Path::new("/dev/shm");
    let folder = if memory.exists() { Folder::within(memory) } else { Folder::new() };
    for number in 0..1_000_000 {
        File::create(folder.path(&format!("{number:07}"))).unwrap();
    }
    let agent = Agent::new(&folder.files());
    let answer = agent.list_entries(".", 0, 2).await.unwrap();
    assert_eq!(
        answer,
        "[.: entries 1 to 2 of 1000000; continue with offset 2]\nfile 0 bytes: 0000000\nfile 0 bytes: 0000001"
    );
    let answer = agent.list_entries(".", 999_999, 2).await.unwrap();
    assert_eq!(answer, "[.: entries 1000000 to 1000000 of 1000000]\nfile 0 bytes: 0999999");
}

#[tokio::test]
async fn fault_74_folders_ten_thousand_deep_are_used_as_far_as_a_path_can_reach() {
    let folder = Folder::new();
    let mut dir = Dir::open_ambient_dir(folder.root(), ambient_authority()).unwrap();
    for _ in 0..10_000 {
        dir.create_dir("d").unwrap();
        dir = dir.open_dir("d").unwrap();
    }
    let agent = Agent::new(&folder.files());
    let deepest = ["d"; 2_000].join("/");
    assert_eq!(agent.list(&deepest).await.unwrap().lines().last(), Some("folder: d"));
    let file = format!("{deepest}/a.txt");
    agent.write(&file, "one").await.unwrap();
    agent.edit(&file, "one", "two").await.unwrap();
    assert!(agent.read(&file).await.unwrap().ends_with("\ntwo"));
    let error = agent.list(&["d"; 10_000].join("/")).await.unwrap_err();
    assert!(error.ends_with("is a path of 19999 bytes; 4095 are possible"), "{error}");
    // The path of a new file is made as deep as it can be.
    let new = format!("{}/a.txt", ["e"; 2_000].join("/"));
    agent.write(&new, "new").await.unwrap();
    assert!(agent.read(&new).await.unwrap().ends_with("\nnew"));
    assert!(std::process::Command::new("rm").arg("-rf").arg(folder.root()).status().unwrap().success());
}
