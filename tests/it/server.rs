//! An HTTP server on loopback that says what it is told, down to the single byte, and keeps what it hears.
#![cfg(feature = "http")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The one key of all tests. It must show up nowhere.
pub(crate) const KEY: &str = "sk-canary-0123456789";

/// One answer. Each goes to one connection.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    pieces: Vec<Vec<u8>>,
    /// Between the pieces; none: they leave together, one chunk each.
    pause: Option<Duration>,
    /// Before it begins.
    delay: Duration,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Complete,
    Cut,
    Reset,
    Silence,
}

impl Answer {
    pub(crate) fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Self { status, headers, pieces: vec![body.into()], pause: None, delay: Duration::ZERO, end: End::Complete }
    }

    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json", body.to_string())
    }

    pub(crate) fn events(body: impl Into<Vec<u8>>) -> Self {
        Self::new(200, "text/event-stream", body)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// In chunks of one byte.
    pub(crate) fn in_bytes(self) -> Self {
        self.in_chunks(1)
    }

    /// In chunks of so many bytes.
    pub(crate) fn in_chunks(mut self, bytes: usize) -> Self {
        self.pieces = self.pieces.concat().chunks(bytes).map(<[u8]>::to_vec).collect();
        self
    }

    /// In two pieces, the first of so many bytes, each sent by itself.
    pub(crate) fn split_at(mut self, bytes: usize) -> Self {
        let body = self.pieces.concat();
        let (first, second) = body.split_at(bytes);
        self.pieces = vec![first.to_vec(), second.to_vec()];
        self.pause = Some(Duration::ZERO);
        self
    }

    /// With a pause after each piece but the last of a complete answer.
    pub(crate) fn with_pauses(mut self, pause: Duration) -> Self {
        self.pause = Some(pause);
        self
    }

    /// Not before so much time has passed.
    pub(crate) fn delayed(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// How long the body is.
    pub(crate) fn len(&self) -> usize {
        self.pieces.iter().map(Vec::len).sum()
    }

    /// The body so many times, with a pause after each.
    pub(crate) fn repeated(mut self, times: usize, pause: Duration) -> Self {
        self.pieces = std::iter::repeat_n(self.pieces.concat(), times).collect();
        self.pause = Some(pause);
        self
    }

    /// Closes the connection before the answer is complete.
    pub(crate) fn then_cut(mut self) -> Self {
        self.end = End::Cut;
        self
    }

    /// Resets the connection before the answer is complete.
    pub(crate) fn then_reset(mut self) -> Self {
        self.end = End::Reset;
        self
    }

    /// Says nothing more, and keeps the connection.
    pub(crate) fn then_silence(mut self) -> Self {
        self.end = End::Silence;
        self
    }
}

/// What the server heard.
#[derive(Debug)]
pub(crate) struct Heard {
    /// Request line and headers, as they came.
    pub(crate) head: String,
    pub(crate) body: Value,
}

/// A running server; it ends with this value.
pub(crate) struct Server {
    /// Where it is, with `/v1`.
    pub(crate) base_url: String,
    heard: mpsc::UnboundedReceiver<Heard>,
    left: mpsc::UnboundedReceiver<()>,
    _running: JoinSet<()>,
}

impl Server {
    /// Serves these answers, one to each connection.
    pub(crate) async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        crate::trace::start();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (hear, heard) = mpsc::unbounded_channel();
        let (leave, left) = mpsc::unbounded_channel();
        let answers: Vec<_> = answers.into_iter().collect();
        let mut running = JoinSet::new();
        running.spawn(async move {
            for answer in answers {
                let (mut socket, _) = listener.accept().await.unwrap();
                socket.set_nodelay(true).unwrap();
                let _ = hear.send(read(&mut socket).await.expect("a request"));
                // A client that has read enough may leave.
                let _ = write(&mut socket, answer, "close").await;
                let _ = leave.send(());
            }
        });
        Self { base_url, heard, left, _running: running }
    }

    /// The next request.
    pub(crate) async fn heard(&mut self) -> Heard {
        self.heard.recv().await.unwrap()
    }

    /// Whether any request came that was not asked for yet.
    pub(crate) fn heard_nothing(&mut self) -> bool {
        self.heard.try_recv().is_err()
    }

    /// Waits until the client of a silent answer has closed the connection.
    pub(crate) async fn left_alone(&mut self) {
        self.left.recv().await.unwrap();
    }
}

/// A server that gives the answer of the moment to whoever asks, over connections that stay open.
pub(crate) struct Player {
    /// Where it is, with `/v1`.
    pub(crate) base_url: String,
    answer: Arc<Mutex<Option<Answer>>>,
    heard: mpsc::UnboundedReceiver<Heard>,
    _running: JoinSet<()>,
}

impl Player {
    pub(crate) async fn start() -> Self {
        crate::trace::start();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (hear, heard) = mpsc::unbounded_channel();
        let answer = Arc::default();
        let mut running = JoinSet::new();
        running.spawn({
            let answer = Arc::clone(&answer);
            async move {
                let mut connections = JoinSet::new();
                while let Ok((socket, _)) = listener.accept().await {
                    socket.set_nodelay(true).unwrap();
                    connections.spawn(play(socket, Arc::clone(&answer), hear.clone()));
                }
            }
        });
        Self { base_url, answer, heard, _running: running }
    }

    /// Answers like this from now on.
    pub(crate) fn play(&self, answer: Answer) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }

    /// What was heard since this was last asked.
    pub(crate) fn heard(&mut self) -> Vec<Heard> {
        std::iter::from_fn(|| self.heard.try_recv().ok()).collect()
    }
}

async fn play(mut socket: TcpStream, answer: Arc<Mutex<Option<Answer>>>, hear: mpsc::UnboundedSender<Heard>) {
    while let Some(heard) = read(&mut socket).await {
        let _ = hear.send(heard);
        let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let answer = answer.unwrap_or_else(|| Answer::new(500, "text/plain", "nothing to play"));
        if write(&mut socket, answer, "keep-alive").await.is_err() {
            return;
        }
    }
}

/// The next request, unless the client has left.
pub(crate) async fn read(socket: &mut TcpStream) -> Option<Heard> {
    let mut bytes = Vec::new();
    loop {
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            assert!(bytes.is_empty(), "the request was cut");
            return None;
        }
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
        let body = &bytes[end + 4..];
        if body.len() == length {
            return Some(Heard { head, body: serde_json::from_slice(body).unwrap_or_default() });
        }
    }
}

async fn write(socket: &mut TcpStream, answer: Answer, connection: &str) -> std::io::Result<()> {
    let Answer { status, pause, delay, end, .. } = answer;
    tokio::time::sleep(delay).await;
    let mut head = format!("HTTP/1.1 {status} X\r\ntransfer-encoding: chunked\r\nconnection: {connection}\r\n");
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    socket.write_all(format!("{head}\r\n").as_bytes()).await?;
    let mut out = Vec::new();
    let pieces: Vec<_> = answer.pieces.iter().filter(|piece| !piece.is_empty()).collect();
    for (nth, piece) in (1..).zip(&pieces) {
        out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
        // What is complete is not held up.
        let is_end = nth == pieces.len() && end == End::Complete;
        if let Some(pause) = pause.filter(|pause| !is_end || pause.is_zero()) {
            socket.write_all(&std::mem::take(&mut out)).await?;
            match pause.is_zero() {
                true => tokio::task::yield_now().await,
                false => tokio::time::sleep(pause).await,
            }
        }
    }
    if end == End::Complete {
        out.extend_from_slice(b"0\r\n\r\n");
    }
    socket.write_all(&out).await?;
    match end {
        End::Complete if connection == "keep-alive" => Ok(()),
        End::Complete | End::Cut => socket.shutdown().await,
        End::Reset => socket.set_zero_linger(),
        End::Silence => socket.read(&mut [0]).await.map(drop),
    }
}
