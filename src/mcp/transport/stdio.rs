//! A transport over a process's standard streams that tolerates invalid output.
//!
//! Lines that are not messages are skipped, nesting that is too deep is cut, and invalid UTF-8 within a message is
//! replaced. If a response is too long or cannot be parsed, its request fails. Messages are sent in the order in which
//! they were queued. A request that is cancelled before it was sent is never sent. When the transport is dropped, the
//! process's input is closed, and its output is still read for a while.
//!
//! The SDK's transport over streams is not used, because it answers every line of JSON that is not a message, which
//! floods a server that logs what it receives; it cannot cancel a message that is not sent yet; and it does not end
//! while the server reads nothing.

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

/// The deepest nesting that is parsed. The parser allows 128 levels, some of which the message itself needs.
const MAX_DEPTH: usize = 100;
const CHUNK: usize = 64 * 1024;
/// The longest time for which the output of an ending process is read. The process has been killed by then.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// The client's side of a process's standard streams.
pub(crate) struct Stdio {
    server: Name,
    output: Output,
    chunk: Box<[u8]>,
    /// The part of the chunk that is not read yet.
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

    /// The next line; `None` once the stream has ended. Cancel-safe: if the future is dropped, nothing is lost.
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
            // The error's own message shows values.
            let (column, kind) = (error.column(), error.classify());
            tracing::debug!(server = %self.server, column, ?kind, "skipped a line that is no message");
        }
        read.ok()
    }
}

/// Parses a message, with deep nesting cut and invalid text replaced if necessary. A response that cannot be parsed is
/// replaced by an error response.
///
/// # Errors
///
/// When it is neither a message nor a response to a request of this client.
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

/// An error response with this reason.
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

/// A process's output. When it is dropped, it is still read for a while, so that a process that writes before it exits
/// does not fail.
struct Output(Option<ChildStdout>);

impl Drop for Output {
    fn drop(&mut self) {
        if let (Some(mut output), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move { timeout(LAST_WORDS, copy(&mut output, &mut sink())).await });
        }
    }
}

/// The messages that wait to be sent, in their order. Cancelled requests are removed.
#[derive(Default)]
struct Outbox {
    waiting: Mutex<SendQueue>,
    filled: Notify,
}

#[derive(Default)]
struct SendQueue {
    messages: VecDeque<OutgoingMessage>,
    is_closed: bool,
}

struct OutgoingMessage {
    /// The id, if the message is a request.
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
            .and_then(|id| waiting.messages.iter().position(|message| message.request.as_ref() == Some(id)));
        if let Some(unsent) = unsent {
            waiting.messages.remove(unsent);
            let _ = sent.send(Ok(()));
            return Ok(is_sent);
        }
        let request = match message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        waiting.messages.push_back(OutgoingMessage { request, line, sent });
        self.filled.notify_one();
        Ok(is_sent)
    }

    fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        waiting.messages.clear();
        self.filled.notify_one();
    }

    /// The next message; `None` once the outbox is closed.
    async fn next(&self) -> Option<OutgoingMessage> {
        loop {
            {
                let mut waiting = self.waiting.lock();
                if waiting.is_closed {
                    return None;
                }
                if let Some(message) = waiting.messages.pop_front() {
                    return Some(message);
                }
            }
            self.filled.notified().await;
        }
    }
}

/// The request that a message cancels.
fn withdrawn(message: &TxJsonRpcMessage<RoleClient>) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Notification(notification) => match &notification.notification {
            ClientNotification::CancelledNotification(cancelled) => cancelled.params.request_id.as_ref(),
            _ => None,
        },
        _ => None,
    }
}

/// Writes the messages of the outbox, and closes the process's input when the outbox is closed.
async fn write(mut input: ChildStdin, outbox: Arc<Outbox>) {
    while let Some(message) = outbox.next().await {
        let written = input.write_all(&message.line).await;
        let is_broken = written.is_err();
        let _ = message.sent.send(written);
        if is_broken {
            outbox.close();
        }
    }
}
