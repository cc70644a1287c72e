//! Search engines.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use agentouto::tools::Web;
use agentouto::tools::web::{Brave, SearchEngine, SearxNg};
use serde_json::json;

use crate::server::{Answer, Server};
use crate::support::{ask, between_marks};

async fn search(engine: impl SearchEngine, arguments: serde_json::Value) -> Result<String, String> {
    ask(Web::new().timeout(Duration::from_secs(5)).search(engine), arguments).await
}

fn error(message: &str) -> Result<String, String> {
    Err(format!("Error: [web_search] {message}"))
}

fn results(number: usize) -> Vec<serde_json::Value> {
    (1..=number)
        .map(|nth| {
            json!({"title": format!("<b>Title</b> {nth} &amp; more"), "url": format!("https://example.com/{nth}"),
            "description": format!("Text\n {nth}\u{202e} &lt;x&gt;"), "content": null})
        })
        .collect()
}

#[tokio::test]
async fn brave_is_asked_with_its_key_and_its_results_are_marked() {
    let body = json!({"type": "search", "web": {"results": results(10)}}).to_string();
    let server = Server::always(Answer::new("application/json", body)).await;
    let brave = Arc::new(Brave::new(" brave-key \n").base_url(&server.url("/res/v1/")));
    let answer = search(Arc::clone(&brave), json!({"query": " rust & agents ", "count": 2})).await.unwrap();
    assert_eq!(
        between_marks(&answer),
        "1. Title 1 & more\n   https://example.com/1\n   Text 1 <x>\n2. Title 2 & more\n   https://example.com/2\n   Text 2 <x>"
    );
    assert!(answer.starts_with("The text between the two marks comes from a web search."), "{answer}");
    let heard = server.heard().remove(0);
    let line = "GET /res/v1/web/search?q=rust+%26+agents&count=2&text_decorations=false HTTP/1.1\r\n";
    assert!(heard.starts_with(line) && heard.contains("\r\nx-subscription-token: brave-key\r\n"), "{heard}");

    let answer = search(brave, json!({"query": "x"})).await.unwrap();
    assert_eq!(between_marks(&answer).lines().count(), 15, "five results of three lines");
}

#[tokio::test]
async fn searxng_is_asked_on_this_machine_although_a_page_there_is_not_fetched() {
    let server = Server::always(Answer::new("application/json", json!({"results": results(3)}).to_string())).await;
    for base in ["/", "/searx", "/searx/"] {
        let answer = search(SearxNg::at(&server.url(base)), json!({"query": "x", "count": 1})).await.unwrap();
        assert_eq!(between_marks(&answer), "1. Title 1 & more\n   https://example.com/1");
    }
    let paths: Vec<_> = server.heard().iter().map(|head| head.split(' ').nth(1).unwrap().to_owned()).collect();
    assert_eq!(paths, ["/search?q=x&format=json", "/searx/search?q=x&format=json", "/searx/search?q=x&format=json"]);
}

#[tokio::test]
async fn a_search_without_results_says_so() {
    for body in [r#"{"type": "search"}"#, r#"{"web": {"results": []}}"#, r#"{"web": {}}"#] {
        let server = Server::always(Answer::new("application/json", body)).await;
        let brave = Brave::new("brave-key").base_url(&server.url(""));
        assert_eq!(search(brave, json!({"query": "x"})).await.as_deref(), Ok("No results."));
    }
}

#[tokio::test]
async fn what_an_engine_refuses_is_told_without_the_key() {
    for (status, body, expected) in [
        (
            "401 Unauthorized",
            "{\"detail\": \"token brave-key is invalid\"}",
            "authentication failed: Brave: HTTP 401: \
            {\"detail\": \"token [redacted] is invalid\"}; check the configuration of `BRAVE_API_KEY`",
        ),
        ("429 Too Many Requests", "slow down", "Brave: HTTP 429: slow down"),
        ("302 Found", "", "Brave: HTTP 302"),
        ("500 Internal Server Error", "\u{1b}[2Joops", "Brave: HTTP 500: [2Joops"),
        ("200 OK", "<html>", "Brave: an unexpected answer: expected value at line 1 column 1"),
        ("200 OK", "", "Brave: an unexpected answer: EOF while parsing a value at line 1 column 0"),
    ] {
        let server = Server::always(Answer::with(status, &[("location", "/elsewhere")], body)).await;
        let brave = Brave::new("brave-key").base_url(&server.url(""));
        assert_eq!(search(brave, json!({"query": "x"})).await, error(expected));
        assert_eq!(server.heard().len(), 1);
    }
    let server = Server::always(Answer::with("403 Forbidden", &[], "")).await;
    let expected = "authentication failed: SearXNG: HTTP 403; check the configuration of `search.formats of the \
        instance, which needs json`";
    assert_eq!(search(SearxNg::at(&server.url("")), json!({"query": "x"})).await, error(expected));
    let invalid = search(SearxNg::at("no url"), json!({"query": "x"})).await;
    assert_eq!(invalid, error("SearXNG: invalid address: relative URL without a base"));
}

#[tokio::test]
async fn an_answer_that_is_too_large_or_never_comes_is_an_error() {
    let head = crate::server::head("200 OK", &[("content-type", "application/json")]);
    let server = Server::always(Answer::Endless(head, vec![b' '; 64 << 10], Duration::ZERO)).await;
    let failed = search(SearxNg::at(&server.url("")), json!({"query": "x"})).await;
    assert_eq!(failed, error("SearXNG: an answer of more than 2097152 bytes"));
    let server = Server::always(Answer::Silent(Vec::new())).await;
    let slow = Web::new().timeout(Duration::from_millis(100)).search(SearxNg::at(&server.url("")));
    assert_eq!(ask(slow, json!({"query": "x"})).await, error("timed out after 100ms"));
    server.closed().await;
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_named() {
    for (arguments, expected) in [
        (json!({}), "missing required argument `query`"),
        (json!({"query": "\n"}), "`query` is empty"),
        (json!({"query": "x", "count": 0}), "`count`: expected an integer from 1 to 10, got 0"),
        (json!({"query": "x", "count": 11}), "`count`: expected an integer from 1 to 10, got 11"),
        (json!({"query": "x", "count": "3"}), "`count`: expected an integer from 1 to 10, got \"3\""),
    ] {
        assert_eq!(search(Brave::new("brave-key"), arguments).await, error(expected));
    }
}

/// The environment is that of a process of its own.
#[test]
fn without_a_key_the_model_reads_that_it_is_not_configured() {
    for key in [None, Some(" ")] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "--ignored", "search::no_key_is_configured"]).env_remove("BRAVE_API_KEY");
        child.envs(key.map(|key| ("BRAVE_API_KEY", key)));
        let child = child.output().unwrap();
        let said = String::from_utf8(child.stdout).unwrap();
        assert!(child.status.success() && said.contains("1 passed"), "{said}");
    }
}

#[tokio::test]
#[ignore = "run by the test above, in an environment of its own"]
async fn no_key_is_configured() {
    assert_eq!(search(Brave::from_env(), json!({"query": "x"})).await, error("BRAVE_API_KEY not configured"));
}
