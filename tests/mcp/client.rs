//! Servers that nobody here wrote: of Node and of Python, over standard streams and over HTTP.

use std::path::Path;
use std::time::{Duration, Instant};

use agentouto::mcp::{Error, ServerConfig, Servers};
use agentouto::{AttachmentKind, AttachmentSource, EventKind, Runtime};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::time::timeout;

use crate::are_wanted;
use crate::child::{Counterpart, installed};
use crate::support::{LIMIT, SOON, call, folder, offered, order, runtime, until_offered, with};

fn node(package: &str) -> [String; 1] {
    [installed(&format!("node_modules/@modelcontextprotocol/{package}/dist/index.js")).to_str().unwrap().to_owned()]
}

fn everything() -> ServerConfig {
    let [script] = node("server-everything");
    ServerConfig::stdio(installed("node"), [script.as_str(), "stdio"])
}

/// The same server over HTTP, on that port; 0 is any.
async fn everything_over_http(port: u16) -> Counterpart {
    let mut command = Command::new(installed("node"));
    let [script] = node("server-everything");
    let preload = concat!("--require ", env!("CARGO_MANIFEST_DIR"), "/tests/mcp/loopback.cjs");
    command.args([script.as_str(), "streamableHttp"]).env("NODE_OPTIONS", preload).env("PORT", port.to_string());
    Counterpart::start(command).await
}

fn address(counterpart: &Counterpart) -> ServerConfig {
    ServerConfig::http(format!("{}/mcp", counterpart.address))
}

async fn text(runtime: &Runtime, tool: &str, arguments: Value) -> String {
    call(runtime, tool, arguments).await.content.text.to_string()
}

/// What any client must be able to do with the everything server.
async fn everything_works(server: ServerConfig) {
    let (runtime, servers) = with(server).await;
    let names = offered(&runtime).await;
    assert!(names.is_sorted() && names.len() >= 12, "{names:?}");
    assert_eq!(text(&runtime, "echo", json!({"message": "한글 😀"})).await, "Echo: 한글 😀");
    assert_eq!(text(&runtime, "get-sum", json!({"a": 2, "b": 3})).await, "The sum of 2 and 3 is 5.");

    let image = call(&runtime, "get-tiny-image", json!({})).await.content;
    assert_eq!(image.attachments.len(), 1);
    assert_eq!(image.attachments[0].kind, AttachmentKind::Image);
    let AttachmentSource::Inline { media_type, base64 } = &image.attachments[0].source else { panic!("{image:?}") };
    assert!(&**media_type == "image/png" && base64.starts_with("iVBORw0KGgo"), "{media_type}");

    let structured = text(&runtime, "get-structured-content", json!({"location": "New York"})).await;
    let weather: Value = serde_json::from_str(&structured).expect("it is given once");
    assert_eq!(weather["conditions"], "Cloudy");
    let links = text(&runtime, "get-resource-links", json!({"count": 2})).await;
    assert_eq!(links.matches("\nResource demo://resource/dynamic/").count(), 2, "{links}");
    let reference = json!({"resourceType": "Text", "resourceId": 1});
    let reference = text(&runtime, "get-resource-reference", reference).await;
    assert!(
        reference.contains("\nResource demo://resource/dynamic/text/1:\nResource 1: This is a plaintext"),
        "{reference}"
    );
    let blob = call(&runtime, "get-resource-reference", json!({"resourceType": "Blob", "resourceId": 1})).await.content;
    assert_eq!(blob.attachments.len(), 1, "{blob:?}");
    let failed = call(&runtime, "get-sum", json!({"a": "x"})).await;
    assert!(failed.is_error && failed.content.text.starts_with("Error: "), "{failed:?}");

    let server = servers.server("srv").unwrap();
    let resources = server.resources().await.unwrap();
    let document = resources.iter().find(|resource| resource.uri.ends_with("architecture.md")).unwrap();
    assert_eq!(document.media_type.as_deref(), Some("text/markdown"));
    assert!(server.read_resource(&*document.uri).await.unwrap().text.starts_with("# "));
    assert!(!server.resource_templates().await.unwrap().is_empty());
    assert!(matches!(server.read_resource("demo://none").await, Err(Error::Request { .. })));
    let prompts = server.prompts().await.unwrap();
    let prompt = prompts.iter().find(|prompt| &*prompt.name == "args-prompt").unwrap();
    assert!(prompt.arguments[0].is_required && &*prompt.arguments[0].name == "city");
    let messages = server.prompt("args-prompt", [("city", "Busan")]).await.unwrap();
    assert!(messages[0].content.text.contains("Busan") && !messages[0].is_assistant, "{messages:?}");
    let missing = server.prompt("args-prompt", [("", ""); 0]).await.unwrap_err();
    assert!(missing.to_string().starts_with("MCP server `srv`: error -32602: "), "{missing}");
    servers.close().await;
    assert!(offered(&runtime).await.is_empty());
}

#[tokio::test]
async fn everything_works_over_standard_streams() {
    if are_wanted() {
        everything_works(everything()).await;
    }
}

#[tokio::test]
async fn everything_works_over_http() {
    if are_wanted() {
        let counterpart = everything_over_http(0).await;
        everything_works(address(&counterpart).bearer_token("token").header("X-Other", "value")).await;
    }
}

/// Progress of a real server arrives as events, and withdrawing its call does no harm.
async fn progress_works(server: ServerConfig) {
    let (runtime, _servers) = with(server).await;
    let long = order("trigger-long-running-operation", json!({"duration": 1, "steps": 4}));
    let mut pending = runtime.user("user").forward("clerk", long.clone());
    let mut seen = Vec::new();
    while let Some(event) = timeout(LIMIT, pending.next_event()).await.unwrap() {
        match event.kind {
            EventKind::ToolProgress { progress, .. } => seen.push((progress.done, progress.total)),
            EventKind::ToolEnd { error, .. } => assert_eq!(error, None),
            _ => {}
        }
    }
    assert_eq!(seen, [1.0, 2.0, 3.0, 4.0].map(|step| (step, Some(4.0))));
    let mut withdrawn = runtime.user("user").forward("clerk", long);
    while let Some(event) = timeout(LIMIT, withdrawn.next_event()).await.unwrap() {
        if matches!(event.kind, EventKind::ToolProgress { .. }) {
            break;
        }
    }
    drop(withdrawn);
    assert_eq!(text(&runtime, "echo", json!({"message": "on"})).await, "Echo: on");
}

#[tokio::test]
async fn progress_works_over_standard_streams() {
    if are_wanted() {
        progress_works(everything()).await;
    }
}

#[tokio::test]
async fn progress_works_over_http() {
    if are_wanted() {
        let counterpart = everything_over_http(0).await;
        progress_works(address(&counterpart)).await;
    }
}

/// A thousand calls at once, of agents.
async fn a_thousand_calls(server: ServerConfig) {
    let (runtime, _servers) = with(server).await;
    let began = Instant::now();
    let calls = (0..1_000).map(|n| {
        let runtime = runtime.clone();
        async move { text(&runtime, "echo", json!({"message": n.to_string()})).await }
    });
    let answers = futures_util::future::join_all(calls).await;
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(*answer, format!("Echo: {n}"));
    }
    eprintln!("a thousand calls took {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_of_agents_lose_none_over_standard_streams() {
    if are_wanted() {
        a_thousand_calls(everything()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_of_agents_lose_none_over_http() {
    if are_wanted() {
        let counterpart = everything_over_http(0).await;
        a_thousand_calls(address(&counterpart)).await;
    }
}

#[tokio::test]
async fn fault_101_an_http_server_that_dies_ends_what_is_pending_and_its_successor_is_found() {
    if !are_wanted() {
        return;
    }
    let counterpart = everything_over_http(0).await;
    let port = counterpart.address.rsplit(':').next().unwrap().parse().unwrap();
    let (runtime, _servers) = with(address(&counterpart)).await;
    let long = order("trigger-long-running-operation", json!({"duration": 100, "steps": 400}));
    let mut pending = runtime.user("user").forward("clerk", long);
    while let Some(event) = timeout(LIMIT, pending.next_event()).await.unwrap() {
        if matches!(event.kind, EventKind::ToolProgress { .. }) {
            break;
        }
    }
    let died = Instant::now();
    drop(counterpart);
    let ended = timeout(LIMIT, pending).await.expect("the call ends").unwrap().to_string();
    eprintln!("the call ended {:?} after its server: {ended}", died.elapsed());
    assert!(ended.contains("MCP server `srv`: "), "{ended}");
    assert!(died.elapsed() < SOON, "it took {:?}", died.elapsed());

    let _successor = everything_over_http(port).await;
    let back = async {
        while text(&runtime, "echo", json!({"message": "back"})).await != "Echo: back" {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(LIMIT, back).await.expect("it is found");
}

#[tokio::test]
async fn fault_101_a_session_that_is_gone_is_replaced() {
    if !are_wanted() {
        return;
    }
    let counterpart = everything_over_http(0).await;
    let port = counterpart.address.rsplit(':').next().unwrap().parse().unwrap();
    let (runtime, _servers) = with(address(&counterpart)).await;
    drop(counterpart);
    // It knows nothing of our session, and says so.
    let _successor = everything_over_http(port).await;
    let first = text(&runtime, "echo", json!({"message": "1"})).await;
    assert!(first == "Echo: 1" || first.starts_with("Error: [echo] MCP server `srv`: "), "{first}");
    let back = async { while text(&runtime, "echo", json!({"message": "2"})).await != "Echo: 2" {} };
    timeout(LIMIT, back).await.expect("there is a new session");
}

#[tokio::test]
async fn an_http_server_that_is_not_there_is_named() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error =
        Servers::new().server("web", ServerConfig::http(format!("http://{free}/mcp"))).connect().await.unwrap_err();
    assert!(error.to_string().starts_with("MCP server `web`: could not connect: "), "{error}");
    let header = ServerConfig::http(format!("http://{free}/mcp")).header("bad header", "secret");
    let error = Servers::new().server("web", header).connect().await.unwrap_err();
    assert_eq!(error.to_string(), "MCP server `web`: `bad header` cannot be the name of a header");
}

#[tokio::test]
async fn headers_and_token_are_sent_and_no_error_shows_them() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp?key=canary-query", listener.local_addr().unwrap());
    let server = ServerConfig::http(url).bearer_token("canary-token").header("X-Other", "canary-header");
    let refuse = async || {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.windows(4).any(|window| window == b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut head).await.unwrap(), 0);
        }
        let body = "no canary-token canary-header";
        let answer = format!("HTTP/1.1 400 No\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(head).unwrap().to_lowercase()
    };
    // It asks once more, in the other way in which servers are spoken to.
    let (heads, error) =
        tokio::join!(async { [refuse().await, refuse().await] }, Servers::new().server("web", server).connect());
    let [head, _] = heads;
    assert!(head.contains("authorization: bearer canary-token\r\n"), "{head}");
    assert!(head.contains("x-other: canary-header\r\n") && head.contains("post /mcp?key=canary-query"), "{head}");
    let error = error.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
}

#[tokio::test]
async fn the_filesystem_server_reads_and_writes_where_it_may() {
    if !are_wanted() {
        return;
    }
    let place = folder("files").canonicalize().unwrap();
    std::fs::write(place.join("a.txt"), "inside").unwrap();
    let [script] = node("server-filesystem");
    let (runtime, _servers) =
        with(ServerConfig::stdio(installed("node"), [script.as_str(), place.to_str().unwrap()])).await;
    assert_eq!(text(&runtime, "read_text_file", json!({"path": place.join("a.txt")})).await, "inside");
    text(&runtime, "write_file", json!({"path": place.join("b.txt"), "content": "new"})).await;
    assert_eq!(std::fs::read_to_string(place.join("b.txt")).unwrap(), "new");
    let outside = call(&runtime, "read_text_file", json!({"path": "/etc/hostname"})).await;
    assert!(outside.is_error && outside.content.text.contains("Access denied"), "{outside:?}");
}

#[tokio::test]
async fn servers_of_python_work_and_share_a_runtime_with_those_of_node() {
    if !are_wanted() {
        return;
    }
    let repository = folder("repository");
    let git = |arguments: &[&str]| {
        let status = std::process::Command::new("git").args(arguments).current_dir(&repository).status().unwrap();
        assert!(status.success(), "git {arguments:?}");
    };
    git(&["init", "--quiet", "--initial-branch=main"]);
    std::fs::write(repository.join("a.txt"), "a").unwrap();
    git(&["add", "a.txt"]);
    let entry = json!({"mcpServers": {
        "time": {"command": installed("venv/bin/mcp-server-time"), "args": ["--local-timezone", "Asia/Seoul"]},
        "git": {"command": installed("venv/bin/mcp-server-git"), "args": ["--repository", repository]},
    }});
    let servers = Servers::from_json(&entry.to_string()).unwrap().server("everything", everything());
    let (runtime, servers) = (runtime(), servers.connect().await.unwrap());
    servers.add_to(&runtime).unwrap();
    let time = json!({"source_timezone": "Asia/Seoul", "time": "09:00", "target_timezone": "UTC"});
    let converted = text(&runtime, "convert_time", time).await;
    assert!(converted.contains("T00:00:00+00:00"), "{converted}");
    let path = Path::new(&repository).to_str().unwrap();
    let status = text(&runtime, "git_status", json!({"repo_path": path})).await;
    assert!(status.contains("new file:   a.txt"), "{status}");
    assert_eq!(text(&runtime, "echo", json!({"message": "hi"})).await, "Echo: hi");
    assert!(servers.refused().is_empty(), "{:?}", servers.refused());
}

#[tokio::test]
async fn two_of_the_same_server_have_every_tool_twice_by_their_names() {
    if !are_wanted() {
        return;
    }
    let servers = Servers::new().server("one", everything()).server("two", everything()).connect().await.unwrap();
    let runtime = runtime();
    servers.add_to(&runtime).unwrap();
    let names = offered(&runtime).await;
    assert!(names.iter().all(|name| name.starts_with("one__") || name.starts_with("two__")), "{names:?}");
    assert_eq!(text(&runtime, "two__echo", json!({"message": "2"})).await, "Echo: 2");
    drop(servers);
    until_offered(&runtime, &[]).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn fault_112_a_server_behind_npx_ends_with_all_that_npx_started() {
    if !are_wanted() {
        return;
    }
    let place = installed("package.json").parent().unwrap().display().to_string();
    let mark = format!("mark-{}", std::process::id());
    let npx = ServerConfig::stdio("npx", ["--offline", "--prefix", &place, "mcp-server-everything", "stdio", &mark]);
    // Where the system has no Node, the counterparts brought one.
    let path = format!("{}:{place}/venv/bin", std::env::var("PATH").unwrap());
    let (runtime, servers) = with(npx.env("PATH", path).connect_timeout(2 * LIMIT)).await;
    assert_eq!(text(&runtime, "echo", json!({"message": "hi"})).await, "Echo: hi");
    let marked = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.map(|process| std::fs::read(process.path().join("cmdline")).unwrap_or_default());
        lines.filter(|line| String::from_utf8_lossy(line).contains(&mark)).count()
    };
    assert!(marked() >= 2, "npx and what it started: {}", marked());
    drop(servers);
    let ended = async {
        while marked() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LIMIT, ended).await.unwrap_or_else(|_| panic!("{} processes live on", marked()));
}
