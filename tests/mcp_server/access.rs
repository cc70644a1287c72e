//! Who is let in over HTTP, and with what.

use std::time::Duration;

use agentouto::mcp::{self, ServeError};
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::team::{CROWD, team};

fn initialize() -> String {
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" } });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string()
}

/// A call of a tool.
pub(crate) fn called(tool: &str) -> String {
    let params = json!({ "name": tool, "arguments": { "message": "Please." } });
    json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params }).to_string()
}

/// A request as a host makes it.
pub(crate) fn request(client: &Client, url: &str, body: &str) -> RequestBuilder {
    client
        .post(url)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(body.to_owned())
}

/// Begins a session, and gives its id.
pub(crate) async fn begin(client: &Client, url: &str) -> String {
    let answer = request(client, url, &initialize()).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let id = answer.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    answer.text().await.unwrap();
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string();
    let answer = request(client, url, &initialized).header("mcp-session-id", &id).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
    id
}

#[tokio::test]
async fn pages_of_other_origins_and_other_names_of_the_host_are_not_let_in() {
    let (runtime, _keeper) = team();
    let server = mcp::serve(&runtime).http("127.0.0.1:0").allowed_origins(["https://app.example.com:443"]);
    let bound = server.allowed_hosts(["team.example.com"]).bind().await.unwrap();
    let (url, port) = (bound.url(), bound.local_addr().port());
    let serving = tokio::spawn(bound.serve());
    let client = Client::new();
    let own = format!("http://localhost:{port}");
    for (header, value, expected) in [
        ("origin", "https://evil.example", 403),
        ("origin", "null", 403),
        ("origin", "http://localhost:1", 403),
        ("origin", "https://app.example.com.evil.example", 403),
        ("origin", "https://app.example.com", 200),
        ("origin", &*own, 200),
        ("host", "evil.example", 403),
        ("host", "localhost.evil.example", 403),
        ("host", "team.example.com", 200),
        ("host", "localhost", 200),
    ] {
        let answer = request(&client, &url, &initialize()).header(header, value).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), expected, "{header}: {value}");
    }
    serving.abort();
}

/// Sends a request as it stands, and gives the first line of the answer.
async fn raw(stream: &mut TcpStream, head: &str, body: &str) -> String {
    let kind = "content-type: application/json\r\naccept: application/json, text/event-stream";
    let request = format!("POST /mcp HTTP/1.1\r\n{head}\r\n{kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    String::from_utf8(answer.to_vec()).unwrap()
}

#[tokio::test]
async fn a_request_with_two_hosts_is_refused() {
    let (runtime, _keeper) = team();
    let bound = mcp::serve(&runtime).http("127.0.0.1:0").bind().await.unwrap();
    let address = bound.local_addr();
    let serving = tokio::spawn(bound.serve());
    for (head, expected) in [
        ("host: localhost", "HTTP/1.1 200"),
        ("host: localhost\r\nhost: evil.example", "HTTP/1.1 400"),
        ("host: localhost\r\nhost: localhost", "HTTP/1.1 400"),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        assert_eq!(raw(&mut stream, head, &initialize()).await, expected, "{head}");
    }
    serving.abort();
}

#[tokio::test]
async fn a_connection_beyond_the_most_waits_until_another_closes() {
    let (runtime, _keeper) = team();
    let bound = mcp::serve(&runtime).http("127.0.0.1:0").max_connections(2).bind().await.unwrap();
    let (address, url) = (bound.local_addr(), bound.url());
    let serving = tokio::spawn(bound.serve());
    let silent = TcpStream::connect(address).await.unwrap();
    let host = Client::builder().pool_max_idle_per_host(1).build().unwrap();
    begin(&host, &url).await;
    let mut waiting = TcpStream::connect(address).await.unwrap();
    let body = initialize();
    let answered = raw(&mut waiting, "host: localhost", &body);
    tokio::pin!(answered);
    for _ in 0..20 {
        begin(&host, &url).await;
        assert!(futures_util::poll!(&mut answered).is_pending(), "there are two connections already");
    }
    drop(silent);
    assert_eq!(answered.await, "HTTP/1.1 200");
    serving.abort();
}

#[tokio::test]
async fn a_second_request_of_an_id_that_is_not_answered_is_refused_and_the_first_is_answered() {
    let (runtime, _keeper) = team();
    let bound = mcp::serve(&runtime).http("127.0.0.1:0").bind().await.unwrap();
    let url = bound.url();
    let serving = tokio::spawn(bound.serve());
    let client = Client::new();
    let session = begin(&client, &url).await;
    let send = async |id: usize, tool: &str| {
        let body = called(tool).replace("\"id\":2", &format!("\"id\":{id}"));
        let answer = request(&client, &url, &body).header("mcp-session-id", &session).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        answer
    };
    // Its answer comes when all attendees are there.
    let first = send(1_000, "attendee").await;
    for _ in 0..2 {
        let second = send(1_000, "writer").await.text().await.unwrap();
        assert!(
            second.contains("-32600") && second.contains("another request of that id is not answered yet"),
            "{second}"
        );
    }
    let others = futures_util::future::join_all((1..CROWD).map(|id| send(id, "attendee")));
    let (answer, _) = tokio::join!(first.text(), others);
    assert!(answer.unwrap().contains("We met."));
    serving.abort();
}

#[tokio::test]
async fn without_the_token_nobody_is_let_in() {
    let (runtime, _keeper) = team();
    let bound = mcp::serve(&runtime).http("127.0.0.1:0").bearer_token("s3cret-token").bind().await.unwrap();
    let url = bound.url();
    let serving = tokio::spawn(bound.serve());
    let client = Client::new();
    for shown in [
        "",
        "Bearer",
        "Bearer ",
        "Bearer s3cret-tokem",
        "Bearer s3cret-token2",
        "s3cret-token",
        "Basic s3cret-token",
        "Bearers3cret-token",
        "s3cret-token Bearer",
    ] {
        let answer = request(&client, &url, &initialize()).header("authorization", shown).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{shown}");
        assert_eq!(answer.headers()["www-authenticate"], "Bearer");
    }
    for url in [url.clone(), format!("{url}?token=s3cret-token"), format!("{url}/elsewhere")] {
        let answer = request(&client, &url, &initialize()).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "no header: {url}");
    }
    for shown in ["Bearer s3cret-token", "bearer s3cret-token", "BEARER  s3cret-token"] {
        let answer = request(&client, &url, &initialize()).header("authorization", shown).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{shown}");
    }
    serving.abort();
}

#[tokio::test]
async fn an_address_that_others_can_reach_is_refused_without_a_token() {
    let (runtime, _keeper) = team();
    let open = mcp::serve(&runtime).http("0.0.0.0:0").bind().await;
    let Err(error @ ServeError::Unguarded { .. }) = open.map(drop) else { panic!("it must not be bound") };
    assert_eq!(
        error.to_string(),
        "address `0.0.0.0:0` can be reached from other machines; set a `bearer_token`, or bind a loopback address such as `127.0.0.1:8931`"
    );
    for token in ["", "two words", "tab\t"] {
        let bound = mcp::serve(&runtime).http("0.0.0.0:0").bearer_token(token).bind().await;
        assert!(matches!(bound.map(drop), Err(ServeError::Token)), "{token:?}");
    }
    drop(mcp::serve(&runtime).http("0.0.0.0:0").bearer_token("s3cret-token").bind().await.unwrap());
    let taken = mcp::serve(&runtime).http("127.0.0.1:0").bind().await.unwrap();
    let again = mcp::serve(&runtime).http(taken.local_addr().to_string()).bind().await;
    assert!(matches!(again.map(drop), Err(ServeError::Address { .. })));
}

#[tokio::test]
async fn a_request_that_cannot_be_read_gets_an_error_and_the_next_one_is_served() {
    let (runtime, _keeper) = team();
    let bound = mcp::serve(&runtime).http("127.0.0.1:0").bind().await.unwrap();
    let url = bound.url();
    let serving = tokio::spawn(bound.serve());
    let client = Client::new();
    let id = begin(&client, &url).await;

    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let batch = format!("[{}]", vec![called("writer"); 1_000].join(","));
    for (body, code) in [
        ("", -32700),
        ("{\"jsonrpc\":", -32700),
        ("\u{0}\u{1}", -32700),
        ("7", -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600),
        (&*deep, -32600),
        (&*batch, -32600),
    ] {
        let answer = request(&client, &url, body).header("mcp-session-id", &id).send().await.unwrap();
        let start: String = body.chars().take(40).collect();
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{start}");
        let error: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        assert_eq!((&error["error"]["code"], &error["id"]), (&json!(code), &Value::Null), "{start}");
    }

    let exact = |bytes: usize| called("writer") + &" ".repeat(bytes - called("writer").len());
    for (body, kind, session, expected) in [
        (exact(1 << 20), "application/json", &*id, 200),
        (exact((1 << 20) + 1), "application/json", &*id, 413),
        (called("writer"), "text/plain", &*id, 415),
        (called("writer"), "application/json", "no-such-session", 404),
        (called("writer"), "application/json", &*id, 200),
    ] {
        let request = client.post(&url).header("content-type", kind).header("mcp-session-id", session);
        let request = request.header("accept", "application/json, text/event-stream").body(body);
        assert_eq!(request.send().await.unwrap().status().as_u16(), expected, "{kind} {session}");
    }
    for params in [json!({ "name": "writer", "arguments": "x" }), json!({ "arguments": {} })] {
        let odd = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params }).to_string();
        let answer = request(&client, &url, &odd).header("mcp-session-id", &id).send().await.unwrap();
        let answer = answer.text().await.unwrap();
        assert!(answer.contains("-32602") && answer.contains("the parameters cannot be read; expected {"), "{answer}");
    }
    let unknown = json!({ "jsonrpc": "2.0", "id": "한", "method": "agents/dance" }).to_string();
    let answer =
        request(&client, &url, &unknown).header("mcp-session-id", &id).send().await.unwrap().text().await.unwrap();
    assert!(answer.contains("-32601") && answer.contains("\"id\":\"한\""), "{answer}");
    assert_eq!(client.get(url.replace("/mcp", "/")).send().await.unwrap().status(), StatusCode::NOT_FOUND);
    serving.abort();
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_finished_in_time_is_given_up() {
    let (runtime, _keeper) = team();
    let bound = mcp::serve(&runtime).http("127.0.0.1:0").bind().await.unwrap();
    let address = bound.local_addr();
    let serving = tokio::spawn(bound.serve());
    let head = format!("POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-length: 100\r\n\r\n{{");
    for (sent, seconds, expected) in [("POST /mcp HTTP/1.1\r\nhost: ", 10, ""), (&*head, 30, "HTTP/1.1 408 ")] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let begun = Instant::now();
        let mut answer = String::new();
        timeout(Duration::from_secs(120), stream.read_to_string(&mut answer)).await.expect("it is closed").unwrap();
        assert!(answer.starts_with(expected), "{answer}");
        assert!((seconds..seconds + 15).contains(&begun.elapsed().as_secs()), "after {:?}", begun.elapsed());
    }
    serving.abort();
}

#[tokio::test]
async fn there_are_only_so_many_sessions_and_one_that_ends_makes_room() {
    let (runtime, _keeper) = team();
    let bound = mcp::serve(&runtime).http("127.0.0.1:0").bind().await.unwrap();
    let url = bound.url();
    let serving = tokio::spawn(bound.serve());
    let client = Client::new();
    let first = begin(&client, &url).await;
    for _ in 1..1_000 {
        begin(&client, &url).await;
    }
    let refused = request(&client, &url, &initialize()).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(refused.text().await.unwrap().contains("there are 1000 sessions already"));
    let ended = client.delete(&url).header("mcp-session-id", &first).send().await.unwrap();
    assert_eq!(ended.status(), StatusCode::NO_CONTENT);
    begin(&client, &url).await;
    serving.abort();
}
