//! Secrets of the program, and of the URLs that a model fetches: fault 96. Whatever the servers do with them, no error,
//! event, `Debug` output or log shows one.
//!
//! With `AGENTOUTO_TRACE` all is traced at the level TRACE; CI looks through the trace and the output for the canaries.

use std::process::Command;

use agentouto::tools::Web;
use agentouto::tools::web::{Brave, SearxNg};
use agentouto::{EventKind, Tool};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::server::{Answer, Server, head};
use crate::support::{LIMIT, local, runtime};
use crate::trace;

/// What stands in every secret here, and nowhere else.
const CANARY: &str = "canary-0123456789";

#[track_caller]
fn check(what: &str, text: &str) {
    assert!(!text.contains(CANARY), "{what}: {text}");
    assert!(!text.contains("Y2FuYXJ5"), "{what}, in Base64: {text}");
}

/// All that is told of a call but the arguments, which are the model's own words: its output, and the events of tools.
async fn told(tool: impl Tool, arguments: Value) -> String {
    let runtime = runtime(tool);
    let mut pending = runtime.user("user").forward("clerk", arguments.to_string());
    let mut told = String::new();
    while let Some(event) = timeout(LIMIT, pending.next_event()).await.unwrap() {
        if let EventKind::ToolProgress { .. } | EventKind::ToolEnd { .. } = event.kind {
            told.push_str(&format!("{event:?}\n"));
        }
    }
    told + timeout(LIMIT, pending).await.unwrap().unwrap().output.as_ref()
}

/// The tests below once more, in a process that traces everything.
#[test]
fn fault_96_no_secret_is_in_a_trace() {
    let file = std::env::temp_dir().join(format!("agentouto-web-canary-{}", std::process::id()));
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["canary::", "--skip", "in_a_trace", "--nocapture"]).env("AGENTOUTO_TRACE", &file);
    let child = child.output().unwrap();
    let (traced, said) = (std::fs::read_to_string(&file).unwrap(), String::from_utf8(child.stdout).unwrap());
    std::fs::remove_file(file).unwrap();
    assert!(child.status.success() && said.contains("2 passed"), "{said}");
    for part in ["TRACE", " hyper_util::", "agentouto::tool_run"] {
        assert!(traced.contains(part), "{part} is traced");
    }
    check("trace", &traced);
    check("output", &said);
}

/// Answers that succeed, and that fail in each way that has an error of its own.
fn answers() -> Vec<Answer> {
    let begun = head("200 OK", &[("content-type", "text/plain"), ("content-length", "10")]);
    let echo = format!("http://me:{CANARY}@127.0.0.1:9/?token={CANARY}");
    vec![
        Answer::text("hello"),
        Answer::new("application/pdf", "%PDF-"),
        Answer::with("401 Unauthorized", &[], "no"),
        Answer::with("404 Not Found", &[], "no"),
        Answer::redirect("http://[::2]/"),
        Answer::redirect("http://["),
        Answer::redirect(&echo),
        Answer::redirect(&format!("ftp://me:{CANARY}@example.com/?token={CANARY}")),
        Answer::Whole(b"\0garbage".to_vec()),
        Answer::Whole(Vec::new()),
        Answer::Whole(begun),
    ]
}

#[tokio::test]
async fn fault_96_no_secret_of_a_url_is_shown() {
    trace::start();
    for answer in answers() {
        let server = Server::always(answer).await;
        for secret in [format!("me:{CANARY}@"), format!("{CANARY}@")] {
            let url = format!(
                "http://{secret}127.0.0.1:{}/?a=b&token={CANARY}&X-Amz-Signature={CANARY}#{CANARY}",
                server.port
            );
            check("told", &told(local(&server).fetch(), json!({"url": url})).await);
        }
        assert!(server.heard()[0].contains(&format!("token={CANARY}")), "they are sent: {:?}", server.heard());
    }
    // URLs that are not fetched, each for another reason.
    for url in [
        format!("http://me:{CANARY}@10.0.0.1/?token={CANARY}"),
        format!("http://me:{CANARY}@example.com:22/?token={CANARY}"),
        format!("ftp://me:{CANARY}@example.com/?token={CANARY}"),
        format!("http://me:{CANARY}@[/?token={CANARY}"),
        format!("http://me:{CANARY}@unknown.invalid/?token={CANARY}"),
        format!("me:{CANARY}@example.com?token={CANARY}"),
        format!("http://me:{CANARY}@127.0.0.1:9/?token={CANARY}{}", "x".repeat(9_000)),
    ] {
        check("told", &told(Web::new().fetch(), json!({"url": url})).await);
        let nested = told(Web::new().fetch(), json!({"url": {"x": url}})).await;
        check("told", &nested);
    }
}

#[tokio::test]
async fn fault_96_no_secret_of_a_search_engine_or_of_a_proxy_is_shown() {
    trace::start();
    let echo = format!("the key key-{CANARY}, the password pass-{CANARY} and query-{CANARY} are wrong");
    let mut answers = answers();
    answers
        .extend(["401 Unauthorized", "429 Too Many Requests", "500 Oh"].map(|status| Answer::with(status, &[], &echo)));
    answers.push(Answer::new("application/json", &echo));
    for answer in answers {
        let server = Server::always(answer).await;
        let address = format!("http://me:pass-{CANARY}@127.0.0.1:{}/?apikey=query-{CANARY}", server.port);
        let brave = Brave::new(format!("key-{CANARY}")).base_url(&address);
        let searxng = SearxNg::at(&address);
        check("brave", &format!("{brave:?} {searxng:?}"));
        let web = Web::new().proxy(address.clone());
        check("web", &format!("{web:?} {:?} {:?}", web.fetch(), web.search(SearxNg::at(&address))));
        check("brave", &told(web.search(brave), json!({"query": "x"})).await);
        let searxng = searxng.header("x-api-key", format!("key-{CANARY}"));
        check("searxng", &told(web.search(searxng), json!({"query": "x"})).await);
        let fetched = told(web.fetch(), json!({"url": "http://93.184.216.34/"})).await;
        // What a proxy says is a page, and a page is shown as it is.
        if !fetched.contains("[begin ") {
            check("proxied", &fetched);
        }
    }
    let unreached = format!("http://me:pass-{CANARY}@127.0.0.1:9/?apikey=query-{CANARY}");
    check("unreached", &told(Web::new().search(SearxNg::at(&unreached)), json!({"query": "x"})).await);
    check("unreached", &told(Web::new().proxy(unreached).fetch(), json!({"url": "http://93.184.216.34/"})).await);
    check("no header", &told(Web::new().search(Brave::new(format!("a\n{CANARY}"))), json!({"query": "x"})).await);
}
