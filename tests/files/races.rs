//! Links that are swapped while the tools work. A control does the same through paths, to show that the race is real.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::support::{Agent, Folder, names};

/// The time of the race.
const TIME: Duration = Duration::from_secs(10);

/// Swaps two pairs of names until it is dropped: a folder and a link to a folder outside, a file and a link to a file
/// outside.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<usize>>,
}

impl Swapper {
    fn start(root: &Path) -> Self {
        let (root, stop) = (root.to_owned(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let swap = move |one: &str, other: &str| {
            renameat_with(CWD, root.join(one), CWD, root.join(other), RenameFlags::EXCHANGE).unwrap();
        };
        let thread = thread::spawn(move || {
            let mut swaps = 0;
            while !stopped.load(Ordering::Relaxed) {
                swap("dir", "dir-link");
                swap("file", "file-link");
                swaps += 2;
            }
            swaps
        });
        Self { stop, thread: Some(thread) }
    }

    fn stop(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map_or(0, |thread| thread.join().unwrap())
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn prepared() -> Folder {
    // In memory, where the machine has such a file system: more calls in the same time.
    let memory = Path::new("/dev/shm");
    let folder = if memory.exists() { Folder::within(memory) } else { Folder::new() };
    fs::create_dir(folder.outside("outside")).unwrap();
    for name in ["file", "only-outside"] {
        fs::write(folder.outside("outside").join(name), "OUTSIDE").unwrap();
    }
    folder.put("dir/file", "inside");
    folder.put("file", "inside");
    symlink("../outside", folder.path("dir-link")).unwrap();
    symlink("../outside/file", folder.path("file-link")).unwrap();
    folder
}

/// Rows 62 and 65. All tools work for ten seconds, while a folder and a file become links to the outside and back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_62_65_links_that_are_swapped_during_a_call_never_lead_out() {
    let folder = prepared();
    let swapper = Swapper::start(&folder.root());
    let (begun, mut calls, mut done) = (Instant::now(), 0, [0; 4]);
    while begun.elapsed() < TIME {
        // A new run each time, so that no write is refused because the file has changed.
        let agent = Agent::new(&folder.files());
        for path in ["dir/file", "file"] {
            let answers = [
                agent.read(path).await,
                agent.write(path, "inside, written").await,
                agent.edit(path, "inside", "inside, and edited").await,
                agent.list("dir").await,
                agent.write("dir/new", "inside").await,
                agent.write(&format!("dir/sub-{calls}/new"), "inside").await,
            ];
            for (tool, answer) in answers.iter().enumerate() {
                let text = answer.as_ref().unwrap_or_else(|error| error);
                assert!(!text.contains("OUTSIDE") && !text.contains("only-outside"), "{text}");
                if let Some(done) = done.get_mut(tool) {
                    *done += usize::from(answer.is_ok());
                }
            }
            calls += answers.len();
        }
        assert!(agent.edit("dir/file", "OUTSIDE", "inside").await.is_err());
    }
    let swaps = swapper.stop();
    assert_eq!(names(&folder.outside("outside")), ["file", "only-outside"]);
    assert_eq!(fs::read_to_string(folder.outside("outside/file")).unwrap(), "OUTSIDE");
    println!("{calls} calls during {swaps} swaps; done (read, write, edit, list): {done:?}; escapes: 0");
    assert!(done.iter().all(|done| *done > 0), "{done:?}");
    let (escapes, time) = escapes_through_paths();
    println!("the control: {escapes} escapes in {time:?}");
    assert!(escapes > 0, "the control never left the root, so the race shows nothing");
}

/// The control: looks where a path leads, as careful programs do, and opens it then.
fn escapes_through_paths() -> (usize, Duration) {
    let folder = prepared();
    let swapper = Swapper::start(&folder.root());
    let (root, mut escapes, begun) = (folder.root(), 0, Instant::now());
    while begun.elapsed() < TIME {
        for path in ["dir/file", "file"].map(|path| root.join(path)) {
            let is_inside = path.canonicalize().is_ok_and(|real| real.starts_with(&root));
            escapes += usize::from(is_inside && fs::read_to_string(path).is_ok_and(|text| text == "OUTSIDE"));
        }
    }
    swapper.stop();
    (escapes, begun.elapsed())
}
