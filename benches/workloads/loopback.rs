//! A server on loopback that answers every POST the same way after a while, over connections that stay open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// What it answers.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
    /// How long it thinks first.
    pub(crate) latency: Duration,
}

/// Where it listens, and how many POSTs it has answered.
pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) answered: Arc<AtomicUsize>,
}

impl Server {
    /// Serves until the tokio runtime ends. `GET` anything gives the number of POSTs so far.
    pub(crate) fn start(answer: &Answer) -> std::io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind("127.0.0.1:0".parse().expect("an address"))?;
        let listener = socket.listen(65_535)?;
        let address = format!("http://{}", listener.local_addr()?);
        let answered = Arc::new(AtomicUsize::new(0));
        let response = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {}\r\ncontent-length: {}\r\n\r\n{}",
            answer.content_type,
            answer.body.len(),
            answer.body
        );
        tokio::spawn(accept(listener, response.into(), answer.latency, Arc::clone(&answered)));
        Ok(Self { address, answered })
    }
}

async fn accept(listener: TcpListener, response: Arc<str>, latency: Duration, answered: Arc<AtomicUsize>) {
    while let Ok((socket, _)) = listener.accept().await {
        tokio::spawn(converse(socket, Arc::clone(&response), latency, Arc::clone(&answered)));
    }
}

async fn converse(
    mut socket: TcpStream,
    response: Arc<str>,
    latency: Duration,
    answered: Arc<AtomicUsize>,
) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut heard = Vec::with_capacity(4096);
    loop {
        let Some(length) = request(&heard) else {
            if socket.read_buf(&mut heard).await? == 0 {
                return Ok(());
            }
            continue;
        };
        let is_post = heard.starts_with(b"POST");
        heard.drain(..length);
        if is_post {
            tokio::time::sleep(latency).await;
            answered.fetch_add(1, Ordering::Relaxed);
            socket.write_all(response.as_bytes()).await?;
        } else {
            let count = answered.load(Ordering::Relaxed).to_string();
            let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{count}", count.len());
            socket.write_all(response.as_bytes()).await?;
        }
    }
}

/// The length of the request that stands at the beginning, if all of it is there.
fn request(heard: &[u8]) -> Option<usize> {
    let head = heard.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&heard[..head]).ok()?;
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    Some(head + length.unwrap_or(0)).filter(|length| heard.len() >= *length)
}
