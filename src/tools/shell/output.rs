//! The output of a command: the head and the tail of both streams in memory, all of it in a file once it is long.
//!
//! Memory is bounded by the limit of the answer, and the file by a limit of its own.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::tool_call::Progress;
use crate::tools::shell::text::Cleaner;

/// The shortest time between two reports of progress, and the most bytes of text in one.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);
const MAX_REPORT_BYTES: usize = 2 * 1024;

/// One of the two streams of a command.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Stream {
    Output,
    Errors,
}

/// What makes the file for long output: the file, and its path relative to the root.
pub(super) type MakeFile = Box<dyn FnMut() -> io::Result<(File, String)> + Send>;

/// The output of one command while it grows.
pub(super) struct Output {
    limit: usize,
    output: Capture,
    errors: Capture,
    full: FullOutput,
    report: Report,
}

impl Output {
    /// No output yet. `limit` is the most bytes of an answer, `max_kept` the most bytes of the file.
    pub(super) fn new(limit: usize, max_kept: u64, make_file: MakeFile, reports: mpsc::Sender<Progress>) -> Self {
        Self {
            limit,
            output: Capture::new(limit),
            errors: Capture::new(limit),
            full: FullOutput {
                early: String::new(),
                file: Kept::NotYet(make_file),
                max: max_kept,
                written: 0,
                lost: 0,
            },
            report: Report { to: reports, bytes: 0, recent: String::new(), last: None },
        }
    }

    /// Takes the next bytes of a stream.
    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8]) {
        let mut text = String::with_capacity(bytes.len());
        self.capture(stream).cleaner.push(bytes, &mut text);
        self.report.bytes += bytes.len();
        self.add(stream, &text);
    }

    /// Takes the end of both streams.
    pub(super) fn finish(&mut self) {
        for stream in [Stream::Output, Stream::Errors] {
            let mut text = String::new();
            self.capture(stream).cleaner.finish(&mut text);
            self.add(stream, &text);
        }
        self.report.send();
    }

    /// Reports what was not reported yet, unless the last report was just now.
    #[cfg(target_os = "linux")]
    pub(super) fn report(&mut self) {
        self.report.send_if_due();
    }

    fn capture(&mut self, stream: Stream) -> &mut Capture {
        match stream {
            Stream::Output => &mut self.output,
            Stream::Errors => &mut self.errors,
        }
    }

    fn add(&mut self, stream: Stream, text: &str) {
        self.capture(stream).push(text);
        self.full.push(text, self.limit);
        self.report.push(text);
    }

    /// Returns the answer: the output, then the errors, then the exit code unless it is 0.
    pub(super) fn answer(&self, exit_code: Option<i32>) -> String {
        let (mut for_output, mut for_errors) = (self.limit / 2, self.limit / 2);
        // What one stream does not need is the other's.
        for_output += for_errors.saturating_sub(self.errors.total);
        for_errors += (self.limit / 2).saturating_sub(self.output.total);
        let mut parts = Vec::new();
        if self.output.total > 0 {
            parts.push(self.output.shortened(for_output));
        }
        if !self.errors.head.trim().is_empty() {
            parts.push(format!("STDERR:\n{}", self.errors.shortened(for_errors)));
        }
        if parts.is_empty() {
            parts.push("(no output)".to_owned());
        }
        parts.extend(self.full.note());
        parts.extend(exit_code.filter(|code| *code != 0).map(|code| format!("\nExit code: {code}")));
        parts.join("\n")
    }
}

/// The head and the tail of one stream.
struct Capture {
    cleaner: Cleaner,
    limit: usize,
    head: String,
    tail: String,
    total: usize,
}

impl Capture {
    fn new(limit: usize) -> Self {
        Self { cleaner: Cleaner::default(), limit, head: String::new(), tail: String::new(), total: 0 }
    }

    fn push(&mut self, text: &str) {
        self.total += text.len();
        let room = if self.tail.is_empty() { self.limit - self.head.len() } else { 0 };
        let (head, rest) = text.split_at(text.floor_char_boundary(room));
        self.head.push_str(head);
        self.tail.push_str(rest);
        // Now and then, so that a byte is moved once on average.
        if self.tail.len() > 2 * self.limit {
            self.tail.drain(..self.tail.ceil_char_boundary(self.tail.len() - self.limit));
        }
    }

    /// Returns at most about `limit` bytes: all, or the head and the tail with what is between them as a number.
    fn shortened(&self, limit: usize) -> String {
        if self.total <= limit.min(self.limit) {
            return format!("{}{}", self.head, self.tail);
        }
        let half = limit.min(self.limit) / 2;
        let head = &self.head[..self.head.floor_char_boundary(half)];
        let end = if self.tail.len() >= half { self.tail.clone() } else { format!("{}{}", self.head, self.tail) };
        let tail = &end[end.ceil_char_boundary(end.len().saturating_sub(half))..];
        let missing = self.total - head.len() - tail.len();
        format!("{head}\n[… {missing} bytes left out …]\n{tail}")
    }
}

/// All output in the order of its arrival: in memory while it is short, then in a file.
struct FullOutput {
    early: String,
    file: Kept,
    max: u64,
    written: u64,
    /// The number of bytes that the file has not.
    lost: u64,
}

enum Kept {
    NotYet(MakeFile),
    In { file: File, path: String },
    Failed(io::Error),
}

impl FullOutput {
    fn push(&mut self, text: &str, limit: usize) {
        if let Kept::NotYet(make) = &mut self.file {
            self.early.push_str(text);
            if self.early.len() <= limit {
                return;
            }
            self.file = match make() {
                Ok((file, path)) => Kept::In { file, path },
                Err(error) => Kept::Failed(error),
            };
            let early = std::mem::take(&mut self.early);
            return self.write(&early);
        }
        self.write(text);
    }

    fn write(&mut self, text: &str) {
        let room = usize::try_from(self.max - self.written).unwrap_or(usize::MAX);
        let keep = &text[..text.floor_char_boundary(if self.lost > 0 { 0 } else { room })];
        let kept = match &mut self.file {
            Kept::In { file, .. } => file.write_all(keep.as_bytes()),
            _ => return self.lost += text.len() as u64,
        };
        match kept {
            Ok(()) => {
                self.written += keep.len() as u64;
                self.lost += (text.len() - keep.len()) as u64;
            }
            Err(error) => {
                self.lost += text.len() as u64;
                self.file = Kept::Failed(error);
            }
        }
    }

    /// Returns the line that says where all output is, if it is anywhere but in the answer.
    fn note(&self) -> Option<String> {
        match &self.file {
            Kept::NotYet(_) => None,
            Kept::In { path, .. } if self.lost == 0 => Some(format!("[all output is in the file {path}]")),
            Kept::In { path, .. } => Some(format!(
                "[the first {} bytes of all output are in the file {path}; {} bytes were dropped]",
                self.written, self.lost
            )),
            Kept::Failed(error) => Some(format!("[the output left out was dropped: {error}]")),
        }
    }
}

/// The reports of progress, few and short.
struct Report {
    to: mpsc::Sender<Progress>,
    /// The number of all bytes.
    bytes: usize,
    recent: String,
    last: Option<Instant>,
}

impl Report {
    fn push(&mut self, text: &str) {
        self.recent.push_str(text);
        if self.recent.len() > 2 * MAX_REPORT_BYTES {
            let begin = self.recent.ceil_char_boundary(self.recent.len() - MAX_REPORT_BYTES);
            self.recent.replace_range(..begin, "…");
        }
        self.send_if_due();
    }

    fn send_if_due(&mut self) {
        if self.last.is_none_or(|last| last.elapsed() >= REPORT_INTERVAL) {
            self.send();
        }
    }

    /// Sends a report, unless there is nothing new. A reader that is behind misses it.
    fn send(&mut self) {
        if self.recent.is_empty() {
            return;
        }
        let begin = self.recent.ceil_char_boundary(self.recent.len().saturating_sub(MAX_REPORT_BYTES));
        let message = Arc::from(&self.recent[begin..]);
        let progress = Progress { done: self.bytes as f64, total: None, message: Some(message) };
        self.last = Some(Instant::now());
        if self.to.try_send(progress).is_ok() {
            self.recent.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(limit: usize, make_file: MakeFile) -> Output {
        Output::new(limit, 1000, make_file, mpsc::channel(4).0)
    }

    fn no_file() -> MakeFile {
        Box::new(|| Err(io::Error::from(io::ErrorKind::StorageFull)))
    }

    #[test]
    fn an_answer_has_the_output_then_the_errors_then_the_exit_code() {
        let mut both = output(100, no_file());
        both.push(Stream::Errors, b"bad\n");
        both.push(Stream::Output, b"good\n");
        both.finish();
        assert_eq!(both.answer(Some(3)), "good\n\nSTDERR:\nbad\n\n\nExit code: 3");
        assert_eq!(output(100, no_file()).answer(Some(0)), "(no output)");
        assert_eq!(output(100, no_file()).answer(Some(1)), "(no output)\n\nExit code: 1");
    }

    #[test]
    fn long_output_keeps_its_head_and_its_tail() {
        let mut long = output(20, no_file());
        long.push(Stream::Output, b"begin-");
        (0..1000).for_each(|_| long.push(Stream::Output, "ä".as_bytes()));
        long.push(Stream::Output, b"-end");
        long.finish();
        let expected =
            "begin-ää\n[… 1990 bytes left out …]\näää-end\n[the output left out was dropped: no storage space]";
        assert_eq!(long.answer(Some(0)), expected);
        assert!(long.output.tail.len() <= 40 && long.output.head.len() <= 20);
    }

    #[test]
    fn a_stream_may_use_what_the_other_does_not_need() {
        let mut one = output(20, no_file());
        one.push(Stream::Errors, b"12345");
        one.push(Stream::Output, b"123456789012345");
        one.finish();
        assert_eq!(one.answer(None), "123456789012345\nSTDERR:\n12345");
    }

    #[test]
    fn a_slow_reader_of_progress_holds_nothing_up_and_gets_the_last_output() {
        let (sender, mut reports) = mpsc::channel(1);
        let mut output = Output::new(100, 0, no_file(), sender);
        output.push(Stream::Output, b"first");
        (0..10_000).for_each(|_| output.push(Stream::Output, b"0123456789"));
        output.finish();
        let first = reports.try_recv().unwrap();
        assert_eq!((first.done, first.message.as_deref()), (5.0, Some("first")));
        output.push(Stream::Output, b"last");
        output.finish();
        let last = reports.try_recv().unwrap();
        assert_eq!(last.done, 100_009.0);
        let message = last.message.unwrap();
        assert!(message.len() <= MAX_REPORT_BYTES && message.ends_with("789last"), "{message}");
    }
}
