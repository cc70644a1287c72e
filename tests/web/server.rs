//! An HTTP/1.1 server on loopback that answers byte by byte as it is told, and keeps what it hears.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::LIMIT;

/// What is sent on one connection.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// These bytes, and then the end of the connection.
    Whole(Vec<u8>),
    /// These bytes, and then the second ones again and again, with a pause after each.
    Endless(Vec<u8>, Vec<u8>, Duration),
    /// These bytes, and then nothing, while the connection stays.
    Silent(Vec<u8>),
}

impl Answer {
    /// A response with a body.
    pub(crate) fn new(content_type: &str, body: impl AsRef<[u8]>) -> Self {
        Self::with("200 OK", &[("content-type", content_type)], body)
    }

    pub(crate) fn html(body: impl AsRef<[u8]>) -> Self {
        Self::new("text/html; charset=utf-8", body)
    }

    pub(crate) fn text(body: impl AsRef<[u8]>) -> Self {
        Self::new("text/plain; charset=utf-8", body)
    }

    pub(crate) fn redirect(location: &str) -> Self {
        Self::with("302 Found", &[("location", location)], "")
    }

    pub(crate) fn with(status: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Self {
        let length = body.as_ref().len().to_string();
        let mut bytes = head(status, &[headers, &[("content-length", &length)]].concat());
        bytes.extend_from_slice(body.as_ref());
        Self::Whole(bytes)
    }
}

/// The head of a response.
pub(crate) fn head(status: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\n{headers}\r\n").into_bytes()
}

/// The server. It ends when it is dropped.
pub(crate) struct Server {
    pub(crate) port: u16,
    heard: Arc<Mutex<Vec<String>>>,
    closed: tokio::sync::Mutex<mpsc::UnboundedReceiver<()>>,
    asked: tokio::sync::Mutex<mpsc::UnboundedReceiver<()>>,
    _running: JoinSet<()>,
}

impl Server {
    /// A server on 127.0.0.1 that answers each request by its head.
    pub(crate) async fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        Self::on(Ipv4Addr::LOCALHOST, 0, answer).await
    }

    pub(crate) async fn always(answer: Answer) -> Self {
        Self::start(move |_| answer.clone()).await
    }

    pub(crate) async fn on(
        address: impl Into<IpAddr>,
        port: u16,
        answer: impl Fn(&str) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((address.into(), port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (heard, answer) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(answer));
        let ((close, closed), (ask, asked)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let mut running = JoinSet::new();
        let hears = Arc::clone(&heard);
        running.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut socket, _)) = listener.accept().await {
                let nth = hears.lock().unwrap().len();
                hears.lock().unwrap().push(String::new());
                let (hears, answer) = (Arc::clone(&hears), Arc::clone(&answer));
                let (close, ask) = (close.clone(), ask.clone());
                connections.spawn(async move {
                    let request = read_head(&mut socket).await;
                    hears.lock().unwrap()[nth].clone_from(&request);
                    let _ = ask.send(());
                    send(&mut socket, answer(&request)).await;
                    let _ = close.send(());
                });
            }
        });
        let (closed, asked) = (closed.into(), asked.into());
        Self { port, heard, closed, asked, _running: running }
    }

    /// A URL of the server.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The heads of all requests, one for each connection. That of a connection without a request is empty.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    /// Waits until a request has come.
    pub(crate) async fn asked(&self) {
        timeout(LIMIT, self.asked.lock().await.recv()).await.expect("a request comes").unwrap();
    }

    /// Waits until a connection has ended.
    pub(crate) async fn closed(&self) {
        timeout(LIMIT, self.closed.lock().await.recv()).await.expect("a connection ends").unwrap();
    }
}

/// Reads up to the end of a head, or of the connection.
pub(crate) async fn read_head(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        match socket.read_u8().await {
            Ok(byte) => bytes.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends an answer; returns when it is sent or the other side has gone.
async fn send(socket: &mut TcpStream, answer: Answer) {
    match answer {
        Answer::Whole(bytes) => {
            let _ = socket.write_all(&bytes).await;
            let _ = socket.shutdown().await;
        }
        Answer::Endless(head, piece, pause) => {
            let mut sent = socket.write_all(&head).await;
            while sent.is_ok() {
                tokio::time::sleep(pause).await;
                sent = socket.write_all(&piece).await;
            }
        }
        Answer::Silent(bytes) => {
            let _ = socket.write_all(&bytes).await;
            while socket.read_u8().await.is_ok() {}
        }
    }
}
