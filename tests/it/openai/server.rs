//! An HTTP server on loopback that says what it is told, down to the single byte, and keeps what it hears.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// One answer. Each goes to one connection.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    pieces: Vec<Vec<u8>>,
    pause: Duration,
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
        Self { status, headers, pieces: vec![body.into()], pause: Duration::ZERO, end: End::Complete }
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
    pub(crate) fn in_bytes(mut self) -> Self {
        self.pieces = self.pieces.concat().iter().map(|byte| vec![*byte]).collect();
        self
    }

    /// The body so many times, with a pause after each.
    pub(crate) fn repeated(mut self, times: usize, pause: Duration) -> Self {
        self.pieces = std::iter::repeat_n(self.pieces.concat(), times).collect();
        self.pause = pause;
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
                let _ = hear.send(read(&mut socket).await);
                // A client that has read enough may leave.
                let _ = write(&mut socket, answer).await;
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

async fn read(socket: &mut TcpStream) -> Heard {
    let mut bytes = Vec::new();
    loop {
        assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0, "the request was cut");
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
        let body = &bytes[end + 4..];
        if body.len() == length {
            return Heard { head, body: serde_json::from_slice(body).unwrap_or_default() };
        }
    }
}

async fn write(socket: &mut TcpStream, answer: Answer) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} X\r\ntransfer-encoding: chunked\r\nconnection: close\r\n", answer.status);
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    socket.write_all(format!("{head}\r\n").as_bytes()).await?;
    let mut out = Vec::new();
    for piece in answer.pieces.iter().filter(|piece| !piece.is_empty()) {
        out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
        if !answer.pause.is_zero() {
            socket.write_all(&std::mem::take(&mut out)).await?;
            tokio::time::sleep(answer.pause).await;
        }
    }
    if answer.end == End::Complete {
        out.extend_from_slice(b"0\r\n\r\n");
    }
    socket.write_all(&out).await?;
    match answer.end {
        End::Complete | End::Cut => socket.shutdown().await,
        End::Reset => socket.set_zero_linger(),
        End::Silence => socket.read(&mut [0]).await.map(drop),
    }
}
