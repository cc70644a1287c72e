//! N calls at once to a model behind HTTP, and the same posts on bare `reqwest`. The server is a process of its own, so
//! that both have all sockets that a process may have.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agentouto::providers::openai::OpenAi;
use agentouto::{Agent, Runtime};
use futures_util::future::join_all;
use serde_json::json;
use tokio::task::coop::unconstrained;

use super::loopback::{Answer, Server};

/// How long the server thinks.
const LATENCY: Duration = Duration::from_millis(50);

/// What the server answers: a chat completion.
pub(crate) fn completion() -> String {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 30, "completion_tokens": 1, "total_tokens": 31},
    })
    .to_string()
}

/// The other process: serves until its input ends, having said where.
pub(crate) fn serve() -> std::io::Result<()> {
    let server = Server::start(&Answer { content_type: "application/json", body: completion(), latency: LATENCY })?;
    println!("{}", server.address);
    // Blocks this thread alone; the server runs on the others.
    std::io::stdin().read_line(&mut String::new()).map(drop)
}

struct Other {
    process: Child,
    address: String,
}

impl Other {
    fn start() -> std::io::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["serve", "0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut address = String::new();
        let said = process.stdout.take().expect("its output is piped");
        BufReader::new(said).read_line(&mut address)?;
        Ok(Self { process, address: address.trim().to_owned() })
    }

    async fn answered(&self) -> reqwest::Result<usize> {
        let count = reqwest::get(&self.address).await?.text().await?;
        Ok(count.parse().expect("a number"))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Through agents: how long it takes, how many calls went well, and how many requests the server got.
pub(crate) async fn agents(n: usize) -> Result<(Duration, usize, usize), Box<dyn std::error::Error>> {
    let server = Other::start()?;
    let runtime = Runtime::builder()
        .provider("openai", OpenAi::new("sk-none").base_url(&server.address))
        .agent(Agent::new("worker", "Work.").model("m"))
        .build()?;
    let caller = runtime.user("load").caller();
    let begun = Instant::now();
    let calls = (0..n).map(|nth| caller.call_agent("worker", nth.to_string()));
    let answers = unconstrained(join_all(calls)).await;
    let wall = begun.elapsed();
    let good = answers.into_iter().filter(|answer| answer.as_ref().is_ok_and(|answer| &*answer.text == "done")).count();
    Ok((wall, good, server.answered().await?))
}

/// The same posts on bare `reqwest`, each in a task of its own.
pub(crate) async fn floor(n: usize) -> Result<(Duration, usize, usize), Box<dyn std::error::Error>> {
    let server = Other::start()?;
    let client = reqwest::Client::new();
    let begun = Instant::now();
    let posts = (0..n).map(|nth| tokio::spawn(post(client.clone(), server.address.clone(), nth)));
    let answers = unconstrained(join_all(posts)).await;
    let wall = begun.elapsed();
    let good = answers.into_iter().filter(|answer| matches!(answer, Ok(Ok(body)) if body.contains("done"))).count();
    Ok((wall, good, server.answered().await?))
}

pub(crate) async fn post(client: reqwest::Client, address: String, nth: usize) -> reqwest::Result<String> {
    let tool = |name: &str, parameters: serde_json::Value| json!({"type": "function", "function": {"name": name, "description": "D.", "parameters": parameters}});
    let body = json!({
        "model": "m",
        "tools": [tool("call_agent", json!({"type": "object"})), tool("finish", json!({"type": "object"}))],
        "messages": [{"role": "system", "content": "You are \"worker\". Work."}, {"role": "user", "content": nth.to_string()}],
    });
    let request = client.post(format!("{address}/chat/completions")).header("content-type", "application/json");
    request.bearer_auth("sk-none").body(body.to_string()).send().await?.text().await
}
