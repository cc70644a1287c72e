//! A server on loopback that keeps what it is sent, and gives always the same answer.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// It ends with this value.
pub(crate) struct Capture {
    /// `http://host:port`.
    pub(crate) address: String,
    bodies: mpsc::UnboundedReceiver<Value>,
    _serving: JoinSet<()>,
}

impl Capture {
    pub(crate) async fn start(answer: Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (sender, bodies) = mpsc::unbounded_channel();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let _ = sender.send(read(&mut socket).await);
                let answer = answer.to_string();
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length:";
                // A client that has gone does not matter.
                let _ = socket.write_all(format!("{head} {}\r\n\r\n{answer}", answer.len()).as_bytes()).await;
            }
        });
        Self { address, bodies, _serving: serving }
    }

    /// The next body that is sent.
    pub(crate) async fn body(&mut self) -> Value {
        self.bodies.recv().await.unwrap()
    }

    /// The next body, if it has been sent already.
    pub(crate) fn body_now(&mut self) -> Option<Value> {
        self.bodies.try_recv().ok()
    }
}

async fn read(socket: &mut TcpStream) -> Value {
    let mut bytes = Vec::new();
    loop {
        assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0, "the request was cut");
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let length: usize =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        let body = &bytes[end + 4..];
        if body.len() == length {
            return serde_json::from_slice(body).unwrap();
        }
    }
}
