//! Proxies: fault 94.

use std::process::Command;

use agentouto::tools::Web;
use agentouto::tools::web::SearxNg;
use serde_json::json;

use crate::dns::DnsServer;
use crate::server::{Answer, Server};
use crate::support::{ask, between_marks, failure, fetch, local, private};

/// The environment is that of a process of its own.
#[tokio::test]
async fn fault_94_proxies_in_the_environment_see_nothing() {
    let proxy = Server::always(Answer::text("by the proxy")).await;
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "--ignored", "proxies::nothing_goes_through_a_proxy_of_the_environment"]);
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        child.env(name, proxy.url(""));
    }
    let child = tokio::task::spawn_blocking(move || child.output().unwrap()).await.unwrap();
    let said = String::from_utf8(child.stdout).unwrap();
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
    assert_eq!(proxy.heard(), [""; 0], "nothing connected to the proxy");
}

#[tokio::test]
#[ignore = "run by the test above, in an environment of its own"]
async fn nothing_goes_through_a_proxy_of_the_environment() {
    let server = Server::always(Answer::new("application/json", r#"{"results": []}"#)).await;
    let answer = fetch(&local(&server), server.url("/")).await.unwrap();
    assert_eq!(between_marks(&answer), r#"{"results": []}"#);
    let found = ask(Web::new().search(SearxNg::at(&server.url(""))), json!({"query": "x"})).await;
    assert_eq!(found.as_deref(), Ok("No results."));
    // By name, where a proxy would not be asked for an address.
    let refused = fetch(&Web::new(), "https://localhost/").await;
    assert_eq!(refused, private("localhost"));
}

#[tokio::test]
async fn fault_94_a_configured_proxy_gets_what_may_be_fetched_and_nothing_else() {
    let proxy = Server::always(Answer::text("by the proxy")).await;
    let dns = DnsServer::start(|name, _| match name {
        "private.test" => vec![[10, 0, 0, 1].into()],
        "public.test" => vec![[93, 184, 216, 34].into()],
        _ => vec![],
    })
    .await;
    let address = format!("http://me:word@127.0.0.1:{}", proxy.port);
    let web = Web::new().proxy(address).resolver(dns.resolver());
    assert!(!format!("{web:?}").contains("word"), "{web:?}");
    for host in ["127.0.0.1", "localhost", "10.0.0.1"] {
        assert_eq!(fetch(&web, format!("http://{host}/")).await, private(host));
    }
    let refused = failure("`private.test` has an address that is not public; only public ones are fetched");
    assert_eq!(fetch(&web, "http://private.test/").await, refused);
    assert_eq!(proxy.heard(), [""; 0], "nothing connected to the proxy");

    // Names that only the proxy knows are left to it.
    for name in ["public.test", "unknown.test"] {
        let answer = fetch(&web, format!("http://{name}/x")).await.unwrap();
        assert_eq!(between_marks(&answer), "by the proxy");
    }
    let heard = proxy.heard();
    assert!(heard[0].starts_with("GET http://public.test/x HTTP/1.1\r\n"), "{heard:?}");
    assert!(heard.iter().all(|head| head.contains("proxy-authorization: Basic bWU6d29yZA==")), "{heard:?}");
}

#[tokio::test]
async fn an_invalid_proxy_is_an_error_that_shows_no_password() {
    let web = Web::new().proxy("ht tp://me:word@:0");
    assert_eq!(fetch(&web, "http://example.com/").await, failure("no HTTP client: the URL of the proxy is invalid"));
}
