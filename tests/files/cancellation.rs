//! Calls that are cancelled, that take too long, and that report how far they are.

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::time::Duration;

use agentouto::providers::scripted::Scripted;
use agentouto::testing::TestCall;
use agentouto::{Agent as Model, EventKind, Reply, Request, Runtime, Tool as _};
use futures_util::StreamExt as _;
use serde_json::json;

use crate::support::{Agent, Folder};

/// A file of text that takes seconds to read to its end, as long as no page is full: one line of 40 GB.
fn endless(folder: &Folder) {
    let mut file = File::create(folder.path("endless")).unwrap();
    file.write_all("line\n".repeat(2_000).as_bytes()).unwrap();
    file.seek(SeekFrom::Start(40_000_000_000)).unwrap();
    file.write_all(b"x").unwrap();
}

#[tokio::test]
async fn a_call_that_takes_too_long_ends_in_time() {
    let folder = Folder::new();
    endless(&folder);
    let files = folder.files().timeout(Duration::from_millis(100));
    let agent = Agent::new(&files);
    assert_eq!(agent.read_lines("endless", 1_000_000, 1).await.unwrap_err(), "timed out after 100ms");
}

#[tokio::test]
async fn a_write_that_waits_for_another_process_ends_in_time_and_leaves_nothing() {
    let folder = Folder::new();
    folder.put("a", "old");
    let agent = Agent::new(&folder.files().timeout(Duration::from_millis(300)));
    // As a process that stands still while it replaces a file of the folder.
    let lock = File::open(folder.root()).unwrap();
    lock.lock().unwrap();
    for answer in [agent.write("a", "new").await, agent.edit("a", "old", "new").await, agent.write("b", "new").await] {
        assert_eq!(answer.unwrap_err(), "timed out after 300ms; read the file to see whether it was written");
    }
    assert_eq!((folder.get("a"), folder.names()), ("old".to_owned(), vec!["a".to_owned()]));
    assert!(agent.read("a").await.is_ok());
    lock.unlock().unwrap();
    agent.write("a", "new").await.unwrap();
}

#[tokio::test]
async fn a_long_read_reports_its_progress_and_frees_its_thread_when_its_run_is_cancelled() {
    let folder = Folder::new();
    endless(&folder);
    folder.put("small", "x");
    let model = Scripted::computed(|request: &Request| match request.context.turns() {
        0 => {
            let path = request.context.input();
            Reply::default()
                .and_tool("read_file", json!({"path": path, "offset": if path == "small" { 0 } else { 1_000_000 }}))
        }
        _ => Reply::text("done"),
    });
    let runtime = Runtime::builder()
        .provider("script", model)
        .agent(Model::new("a", "Read."))
        .blocking_threads(1)
        .tools(folder.files().timeout(Duration::from_secs(3_600)).tools())
        .build()
        .unwrap();
    let mut call = runtime.user("user").forward("a", "endless");
    let progress = loop {
        let event = call.next_event().await.unwrap();
        if let EventKind::ToolProgress { progress, .. } = event.kind {
            break progress;
        }
    };
    assert!(progress.done > 0.0 && progress.total == Some(40_000_000_001.0), "{progress:?}");
    assert!(progress.message.unwrap().ends_with(" bytes read"));
    drop(call);
    // The only thread is free again, long before the file is read.
    let next = tokio::time::timeout(Duration::from_secs(5), runtime.run("a", "small"));
    assert_eq!(&*next.await.expect("the thread is free").unwrap().output, "done");
}

/// Drops a write after each number of polls: the file is the old or the new one, and nothing else is left.
#[tokio::test]
async fn a_write_that_is_dropped_at_any_await_leaves_the_old_or_the_new_file() {
    let folder = Folder::new();
    let (old, new) = ("o".repeat(300_000), "n".repeat(300_000));
    let mut outcomes = [0; 2];
    for number in 0..60 {
        folder.put("a", &old);
        let agent = Agent::new(&folder.files());
        let write =
            async { if number % 2 == 0 { agent.write("a", &new).await } else { agent.edit("a", &old, &new).await } };
        // Real time, because the work is on other threads: each round ends at another place.
        let _ = tokio::time::timeout(Duration::from_micros(number * 500), write).await;
        // A write under the lock of the file comes after the dropped one has ended.
        let text = loop {
            let text = folder.get("a");
            agent.write("a", "done").await.unwrap_or_default();
            if folder.get("a") == "done" {
                break text;
            }
            agent.read("a").await.unwrap();
        };
        assert!(text == old || text == new || text == "done", "{} bytes", text.len());
        outcomes[usize::from(text == new)] += 1;
        assert_eq!(folder.names(), ["a"]);
    }
    println!("60 dropped writes: {} old, {} new", outcomes[0], outcomes[1]);
}

#[tokio::test]
async fn calls_that_wait_for_a_file_do_not_keep_threads() {
    let folder = Folder::new();
    let files = folder.files();
    let test = TestCall::new("test", "");
    let calls: Vec<_> = (0..200)
        .map(|number| {
            let json = json!({"path": "a", "content": number.to_string()});
            let serde_json::Value::Object(arguments) = json else { unreachable!() };
            let (tool, context) = (files.write_file(), test.context());
            async move { tool.call(arguments, context).await }
        })
        .collect();
    let answers = futures_util::stream::iter(calls).buffer_unordered(200).collect::<Vec<_>>().await;
    // One agent's calls at once: each knows what the one before wrote.
    assert!(answers.iter().all(Result::is_ok), "{:?}", answers.iter().find(|answer| answer.is_err()));
    assert_eq!(fs::read_dir(folder.root()).unwrap().count(), 1);
}
