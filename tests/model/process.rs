//! What the process holds: threads, open files, memory.

use std::time::Duration;

use crate::world::settles;

/// How long threads without work may wait for more before they end.
pub(crate) const LONGEST_IDLE: Duration = Duration::from_secs(30);
/// How much more memory is no leak, in MB.
const MOST_GROWTH: i64 = 64;

pub(crate) struct Process {
    threads: usize,
    files: usize,
    resident_mb: i64,
}

impl Process {
    pub(crate) fn now() -> Self {
        let count = |folder: &str| std::fs::read_dir(folder).map_or(0, Iterator::count);
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages: i64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
        let resident_mb = pages * 4096 / 1_000_000;
        Self { threads: count("/proc/self/task"), files: count("/proc/self/fd"), resident_mb }
    }

    /// Fails if threads or open files have come to stay.
    pub(crate) fn is_left_as_it_was(&self) {
        let is_settled = settles(LONGEST_IDLE, || {
            let now = Self::now();
            now.threads <= self.threads && now.files <= self.files
        });
        let now = Self::now();
        let (threads, files) = ((self.threads, now.threads), (self.files, now.files));
        assert!(is_settled, "threads before and after: {threads:?}; open files before and after: {files:?}");
    }

    /// Fails if the memory has grown much.
    pub(crate) fn has_not_grown(&self) {
        let grown = Self::now().resident_mb - self.resident_mb;
        println!("{} MB; {grown} MB more than after half of the programs", self.resident_mb + grown);
        assert!(grown < MOST_GROWTH, "{grown} MB more than after half of the programs");
    }
}

/// Keeps panics that programs ask for from being printed: their own, and that of tokio in a timer of a blocking tool whose
/// tokio runtime ends. (To print one takes 170 MB for the symbols, for good.)
pub(crate) fn silence_drawn_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let is_asked_for = |text: &str| text.starts_with("drawn") || text.contains("it is being shutdown");
        if text.is_some_and(|text| !is_asked_for(text)) {
            print(panic);
        }
    }));
}
