//! Calls that are cancelled, that take too long, and that report how far they are.

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::time::{Duration, Instant};

use agentouto::providers::scripted::Scripted;
use agentouto::testing::TestCall;
use agentouto::{Agent as Model, EventKind, Reply, Request, Runtime, Tool as _};
use futures_util::FutureExt as _;
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
async fn a_call_that_takes_too_long_ends_and_frees_its_thread() {
    let folder = Folder::new();
    endless(&folder);
    let files = folder.files().timeout(Duration::from_millis(100));
    let agent = Agent::new(&files);
    assert_eq!(agent.read_lines("endless", 1_000_000, 1).await.unwrap_err(), "timed out after 100ms");
    let dropped = agent.write("a", "x").now_or_never();
    assert!(dropped.is_none());
}

#[tokio::test]
async fn a_long_read_reports_its_progress_and_a_cancelled_run_ends_it_at_once() {
    let folder = Folder::new();
    endless(&folder);
    let model = Scripted::computed(|_: &Request| {
        Reply::default().and_tool("read_file", json!({"path": "endless", "offset": 1_000_000}))
    });
    let runtime = Runtime::builder()
        .provider("script", model)
        .agent(Model::new("a", "Read."))
        .blocking_threads(1)
        .tools(folder.files().tools())
        .build()
        .unwrap();
    let mut call = runtime.user("user").forward("a", "go");
    let progress = loop {
        let event = tokio::select! { event = call.next_event() => event.unwrap() };
        if let EventKind::ToolProgress { progress, .. } = event.kind {
            break progress;
        }
    };
    assert!(progress.done > 0.0 && progress.total == Some(40_000_000_001.0), "{progress:?}");
    assert!(progress.message.unwrap().ends_with(" bytes read"));
    let begun = Instant::now();
    drop(call);
    // The only thread is free again.
    let model_free = Agent::new(&folder.files());
    folder.put("a", "x");
    model_free.read("a").await.unwrap();
    runtime.shutdown().await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
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
