//! Which URLs are fetched: faults 90, 91 and 99.

use agentouto::tools::Web;
use serde_json::json;

use crate::server::{Answer, Server};
use crate::support::{ask, between_marks, failure, fetch, local, private};

/// Spellings of this machine, each with `PORT` in place of a port.
const SPELLINGS: &[(&str, &str)] = &[
    ("http://127.0.0.1:PORT", "127.0.0.1"),
    ("http://localhost:PORT/", "localhost"),
    ("http://LocalHost.:PORT/", "localhost."),
    ("http://a.localhost:PORT/", "a.localhost"),
    ("http://0.0.0.0:PORT/", "0.0.0.0"),
    ("http://0:PORT/", "0.0.0.0"),
    ("http://[::]:PORT/", "::"),
    ("http://[::1]:PORT/", "::1"),
    ("http://[::ffff:127.0.0.1]:PORT/", "::ffff:127.0.0.1"),
    ("http://[::127.0.0.1]:PORT/", "::7f00:1"),
    ("http://[64:ff9b::127.0.0.1]:PORT/", "64:ff9b::7f00:1"),
    ("http://2130706433:PORT/", "127.0.0.1"),
    ("http://0x7f.1:PORT/", "127.0.0.1"),
    ("http://0177.0.0.1:PORT/", "127.0.0.1"),
    ("http://127.1:PORT/", "127.0.0.1"),
    ("http://127.0.0.1.:PORT/", "127.0.0.1"),
    ("http://①②⑦.0.0.1:PORT/", "127.0.0.1"),
    ("http://１２７。０。０。１:PORT/", "127.0.0.1"),
    ("http://127%2E0%2e0.1:PORT/", "127.0.0.1"),
    ("http:\\\\127.0.0.1:PORT\\", "127.0.0.1"),
    ("http:/127.0.0.1:PORT/", "127.0.0.1"),
    (" \tht\ntp://127.0\r.0.1:PORT/ ", "127.0.0.1"),
    ("http://example.com@127.0.0.1:PORT/", "127.0.0.1"),
    ("http://example.com:80@127.0.0.1:PORT/", "127.0.0.1"),
    ("http://127.0.0.1:PORT\\@example.com/", "127.0.0.1"),
    ("http://127.0.0.1:PORT#@example.com/", "127.0.0.1"),
    ("http://127.0.0.1:0PORT/", "127.0.0.1"),
];

#[tokio::test]
async fn fault_90_no_spelling_of_this_machine_reaches_it() {
    let server = Server::always(Answer::text("secret")).await;
    let web = Web::new().allow_port(server.port);
    for (url, host) in SPELLINGS {
        let url = url.replace("PORT", &server.port.to_string());
        assert_eq!(fetch(&web, &url).await, private(host), "{url:?}");
    }
    assert_eq!(server.heard(), [""; 0], "nothing connected");
}

#[tokio::test]
async fn fault_90_the_same_spellings_reach_it_when_the_program_allows_loopback() {
    let server = Server::always(Answer::text("hello")).await;
    // These are IPv4 addresses of this machine, in the end.
    for (url, _) in SPELLINGS.iter().filter(|(_, host)| ["127.0.0.1", "localhost"].contains(host)) {
        let url = url.replace("PORT", &server.port.to_string());
        let answer = fetch(&local(&server), &url).await.unwrap();
        assert_eq!(between_marks(&answer), "hello", "{url:?}");
    }
    let web = local(&server);
    assert_eq!(fetch(&web, format!("http://0.0.0.0:{}/", server.port)).await, private("0.0.0.0"));
    assert_eq!(fetch(&web, format!("http://10.0.0.1:{}/", server.port)).await, private("10.0.0.1"));
}

#[tokio::test]
async fn fault_91_no_address_with_a_special_purpose_is_connected_to() {
    let web = Web::new();
    for host in [
        "10.255.255.255",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.0.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "fc00::1",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "64:ff9b::808:808",
        "64:ff9b:1::808:808",
        "2002:808:808::1",
        "2001::1",
        "2001:db8::1",
        "100::1",
        "3fff::1",
        "5f00::1",
    ] {
        let url = if host.contains(':') { format!("http://[{host}]/") } else { format!("http://{host}/") };
        assert_eq!(fetch(&web, url).await, private(host));
    }
}

#[tokio::test]
async fn fault_99_a_port_that_is_not_allowed_is_not_connected_to() {
    let server = Server::always(Answer::text("secret")).await;
    let web = Web::new().allow_loopback().allow_port(8080);
    for port in [22, 25, 6379, server.port] {
        let expected = failure(&format!("port {port} is not allowed; allowed are 80, 443, 8080"));
        assert_eq!(fetch(&web, format!("http://127.0.0.1:{port}/")).await, expected);
        assert_eq!(fetch(&web, format!("https://localhost:{port}/")).await, expected);
    }
    assert_eq!(server.heard(), [""; 0], "nothing connected");
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_named_and_nothing_is_fetched() {
    let server = Server::always(Answer::text("secret")).await;
    let (url, web) = (server.url("/"), local(&server));
    for (arguments, expected) in [
        (json!({}), "missing required argument `url`"),
        (json!({"url": " "}), "`url` is empty"),
        (json!({"url": ["x"]}), "`url` is not a text"),
        (json!({"url": url, "maxChars": 0}), "`maxChars`: expected an integer of at least 100, got 0"),
        (json!({"url": url, "maxChars": -5}), "`maxChars`: expected an integer of at least 100, got -5"),
        (json!({"url": url, "maxChars": "many"}), "`maxChars`: expected an integer of at least 100, got \"many\""),
        (json!({"url": url, "maxChars": 100.5}), "`maxChars`: expected an integer of at least 100, got 100.5"),
        (json!({"url": url, "extractMode": "html"}), "`extractMode`: expected `markdown` or `text`, got \"html\""),
        (json!({"url": "/x"}), "invalid URL: relative URL without a base; expected one with http:// or https://"),
        (json!({"url": "file:///etc/passwd"}), "`file` URLs are not fetched; expected http or https"),
    ] {
        assert_eq!(ask(web.fetch(), arguments).await, failure(expected));
    }
    assert_eq!(server.heard(), [""; 0], "nothing connected");
}

#[test]
fn the_limits_are_those_of_the_catalogue() {
    let shown = format!("{:?}", Web::new());
    for part in ["ports: [80, 443]", "timeout: 20s", "max_bytes: 5242880", "max_redirects: 5", "has_proxy: false"] {
        assert!(shown.contains(part), "{shown}");
    }
}
