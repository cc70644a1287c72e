//! A counterpart: a server in a process of its own, which says on its output where it listens.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Where `.ci/counterparts` has installed something.
pub(crate) fn installed(path: &str) -> PathBuf {
    let place = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/target/counterparts")).join(path);
    assert!(place.exists(), "{} is not there: run .ci/counterparts", place.display());
    place
}

/// A file that belongs to these tests.
pub(crate) fn data(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/counterparts")).join(name)
}

/// A running counterpart; it ends with this value.
pub(crate) struct Counterpart {
    /// `http://host:port`.
    pub(crate) address: String,
    _process: Child,
}

impl Counterpart {
    /// Starts it, and waits until it says where it listens.
    pub(crate) async fn start(mut command: Command) -> Self {
        // An open input tells those who read it that we are still there.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let listening = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if let Some(place) = line.find("http://") {
                    return line[place..].trim_end().to_owned();
                }
            }
            panic!("{command:?} ended before it listened");
        };
        let address = timeout(Duration::from_secs(60), listening).await.expect("it listens");
        // Nobody may wait for us to read what it says further.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { address, _process: process }
    }

    /// What it answers to a GET.
    pub(crate) async fn get(&self, path: &str) -> Value {
        let response = reqwest::get(format!("{}{path}", self.address)).await.unwrap();
        serde_json::from_str(&response.text().await.unwrap()).unwrap()
    }
}
