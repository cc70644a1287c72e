//! `write_file`: new files, and what stays of a file that is replaced.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use crate::support::{Agent, Folder};

#[tokio::test]
async fn a_new_file_is_made_with_its_folders() {
    let folder = Folder::new();
    let agent = Agent::new(&folder.files());
    assert_eq!(agent.write("a/b/c.txt", "héllo").await.unwrap(), "Created `a/b/c.txt` (6 bytes).");
    assert_eq!(folder.get("a/b/c.txt"), "héllo");
    assert_eq!(agent.write("empty", "").await.unwrap(), "Created `empty` (0 bytes).");
    // As a plain program makes it.
    fs::write(folder.path("plain"), "").unwrap();
    assert_eq!(folder.path("empty").metadata().unwrap().mode(), folder.path("plain").metadata().unwrap().mode());
    let large = "x".repeat(5_000_000);
    agent.write("large", &large).await.unwrap();
    assert!(folder.get("large") == large);
}

#[tokio::test]
async fn a_file_that_is_replaced_keeps_its_rights() {
    let folder = Folder::new();
    let agent = Agent::new(&folder.files());
    for mode in [0o600, 0o755, 0o664] {
        folder.put("a", "one");
        fs::set_permissions(folder.path("a"), fs::Permissions::from_mode(mode)).unwrap();
        let is_given_away = std::os::unix::fs::chown(folder.path("a"), Some(1_234), Some(5_678)).is_ok();
        let before = folder.path("a").metadata().unwrap();
        agent.write("a", "two").await.unwrap();
        agent.edit("a", "two", "three").await.unwrap();
        let after = folder.path("a").metadata().unwrap();
        assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
        println!("another owner was {}tried", if is_given_away { "" } else { "not " });
        fs::remove_file(folder.path("a")).unwrap();
        agent.read("a").await.unwrap_err();
    }
    // A program with the rights of its owner would give them to the model's content.
    folder.put("set-id", "one");
    fs::set_permissions(folder.path("set-id"), fs::Permissions::from_mode(0o4755)).unwrap();
    agent.write("set-id", "two").await.unwrap();
    assert_eq!(folder.path("set-id").metadata().unwrap().mode() & 0o7777, 0o755);
}

#[tokio::test]
async fn a_reader_of_the_old_file_keeps_it_and_no_other_file_is_left() {
    use std::io::Read as _;
    let folder = Folder::new();
    folder.put("a", "one");
    let mut reader = fs::File::open(folder.path("a")).unwrap();
    let agent = Agent::new(&folder.files());
    agent.write("a", "two").await.unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one");
    assert_eq!(folder.names(), ["a"]);
}
