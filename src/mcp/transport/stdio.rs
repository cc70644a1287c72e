//! A transport over a process's standard streams, which survives whatever stands on them.
//!
//! Lines that are no messages are skipped, nesting is cut, and what is no text within a message is replaced. What an answer
//! answers that is too long, or cannot be read, fails.
//! Messages leave in the order in which they were handed over; a request that is withdrawn before it left, never does.
//! When this is dropped, the process's input is closed, and its output still read for a while.
//!
//! The SDK's transport over streams answers every line of JSON that is no message, so that a server that logs what it
//! receives is flooded; it cannot withdraw what is not sent, and does not end while the server reads nothing.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::model::{ClientNotification, ErrorCode, ErrorData, JsonRpcMessage, NumberOrString, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy, sink};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::mcp::transport::line_decoder::{Line, LineDecoder, answered, cut_nesting, repaired};
use crate::name::Name;

/// The deepest nesting that is parsed. The parser allows 128 levels, of which the message itself takes some.
const MAX_DEPTH: usize = 100;
const CHUNK: usize = 64 * 1024;
/// How long the output of a process is read that is to end. It has been killed by then.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// What a client speaks to a process through.
pub(crate) struct Stdio {
    server: Name,
    output: Output,
    chunk: Box<[u8]>,
    /// Which part of the chunk is not read yet.
    unread: std::ops::Range<usize>,
    lines: LineDecoder,
    outbox: Arc<Outbox>,
    _writing: AbortOnDropHandle<()>,
}

impl Stdio {
    pub(crate) fn new(server: Name, input: ChildStdin, output: ChildStdout, max_message_bytes: usize) -> Self {
        let outbox = Arc::<Outbox>::default();
        let writing = AbortOnDropHandle::new(tokio::spawn(write(input, Arc::clone(&outbox))));
        let (chunk, lines) = (vec![0; CHUNK].into_boxed_slice(), LineDecoder::new(max_message_bytes));
        Self { server, output: Output(Some(output)), chunk, unread: 0..0, lines, outbox, _writing: writing }
    }

    /// The next line; nothing once the stream has ended. What was read of it stays if this is dropped.
    async fn line(&mut self) -> Option<Line> {
        loop {
            if self.unread.is_empty() {
                let count = self.output.0.as_mut()?.read(&mut self.chunk).await.ok().filter(|count| *count > 0)?;
                self.unread = 0..count;
            }
            let (rest, line) = self.lines.take(&self.chunk[self.unread.clone()]);
            self.unread.start = self.unread.end - rest.len();
            if line.is_some() {
                return line;
            }
        }
    }

    fn parse(&self, line: &[u8]) -> Option<RxJsonRpcMessage<RoleClient>> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return None;
        }
        let read = message(line);
        if let Err(error) = &read {
            // Its own words show values.
            let (column, kind) = (error.column(), error.classify());
            tracing::debug!(server = %self.server, column, ?kind, "skipped a line that is no message");
        }
        read.ok()
    }
}

/// Reads a message, cut and mended where it must be. For an answer that cannot be read it gives one that says so.
///
/// # Errors
///
/// When it is neither a message nor an answer to one of ours.
pub(crate) fn message(json: &[u8]) -> Result<RxJsonRpcMessage<RoleClient>, serde_json::Error> {
    let cut = cut_nesting(json, MAX_DEPTH);
    let json = cut.as_deref().unwrap_or(json);
    let read = serde_json::from_slice(json).or_else(|error| match repaired(json) {
        Some(mended) => serde_json::from_slice(&mended),
        None => Err(error),
    });
    read.or_else(|error| {
        let id = answered(json).ok_or(error)?;
        Ok(failure(id, "the answer could not be read, because it is no message as the protocol has it".to_owned()))
    })
}

/// An answer that says why there is none.
fn failure(id: i64, reason: String) -> RxJsonRpcMessage<RoleClient> {
    let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, reason, None);
    JsonRpcMessage::error(error, Some(NumberOrString::Number(id)))
}

impl Transport<RoleClient> for Stdio {
    type Error = io::Error;

    fn send(&mut self, message: TxJsonRpcMessage<RoleClient>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let sent = self.outbox.put(&message);
        async move { sent?.await.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into())) }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            match self.line().await? {
                Line::Whole(line) => {
                    if let Some(message) = self.parse(&line) {
                        return Some(message);
                    }
                }
                Line::TooLong { length, answered } => {
                    tracing::warn!(server = %self.server, length, "dropped a message that is too long");
                    if let Some(id) = answered {
                        let reason = format!("the answer was dropped, because it has {length} bytes in one message");
                        return Some(failure(id, reason));
                    }
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.outbox.close();
        Ok(())
    }
}

/// A process's output. Dropped, it is read on, so that a process that says something before it ends does not fail at that.
struct Output(Option<ChildStdout>);

impl Drop for Output {
    fn drop(&mut self) {
        if let (Some(mut output), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move { timeout(LAST_WORDS, copy(&mut output, &mut sink())).await });
        }
    }
}

/// Messages that wait to be written, in their order. Only those of requests that somebody waits for are kept.
#[derive(Default)]
struct Outbox {
    waiting: Mutex<SendQueue>,
    filled: Notify,
}

#[derive(Default)]
struct SendQueue {
    letters: VecDeque<OutgoingMessage>,
    is_closed: bool,
}

struct OutgoingMessage {
    /// If it is a request.
    request: Option<RequestId>,
    line: Vec<u8>,
    sent: oneshot::Sender<io::Result<()>>,
}

impl Outbox {
    fn put(&self, message: &TxJsonRpcMessage<RoleClient>) -> io::Result<oneshot::Receiver<io::Result<()>>> {
        let (sent, is_sent) = oneshot::channel();
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let unsent = withdrawn(message)
            .and_then(|id| waiting.letters.iter().position(|letter| letter.request.as_ref() == Some(id)));
        if let Some(unsent) = unsent {
            waiting.letters.remove(unsent);
            let _ = sent.send(Ok(()));
            return Ok(is_sent);
        }
        let request = match message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        waiting.letters.push_back(OutgoingMessage { request, line, sent });
        self.filled.notify_one();
        Ok(is_sent)
    }

    fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        waiting.letters.clear();
        self.filled.notify_one();
    }

    /// The next letter; nothing once the outbox is closed.
    async fn next(&self) -> Option<OutgoingMessage> {
        loop {
            {
                let mut waiting = self.waiting.lock();
                if waiting.is_closed {
                    return None;
                }
                if let Some(letter) = waiting.letters.pop_front() {
                    return Some(letter);
                }
            }
            self.filled.notified().await;
        }
    }
}

/// The request that a message withdraws.
fn withdrawn(message: &TxJsonRpcMessage<RoleClient>) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Notification(notification) => match &notification.notification {
            ClientNotification::CancelledNotification(cancelled) => cancelled.params.request_id.as_ref(),
            _ => None,
        },
        _ => None,
    }
}

/// Writes what is in the outbox, and closes the process's input when the outbox is closed.
async fn write(mut input: ChildStdin, outbox: Arc<Outbox>) {
    while let Some(letter) = outbox.next().await {
        let written = input.write_all(&letter.line).await;
        let is_broken = written.is_err();
        let _ = letter.sent.send(written);
        if is_broken {
            outbox.close();
        }
    }
}
