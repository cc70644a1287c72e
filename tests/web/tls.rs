//! TLS and HTTP/2.

use std::net::Ipv4Addr;
use std::sync::Arc;

use agentouto::tools::Web;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use crate::dns::DnsServer;
use crate::support::{between_marks, failure, fetch};

/// A server that speaks HTTP/2 for `secure.test`. It redirects `/down` to http, and answers all else with a text.
async fn secure() -> (u16, String, JoinSet<()>) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["secure.test".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der()).into();
    let mut config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut running = JoinSet::new();
    running.spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            // A client that does not trust the certificate goes away.
            let Ok(socket) = acceptor.accept(socket).await else { continue };
            let mut connection = h2::server::handshake(socket).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let head = http::Response::builder();
                let head = match request.uri().path() {
                    "/down" => head.status(302).header("location", "http://secure.test/"),
                    "/headers" => (0..2_000).fold(head, |head, nth| head.header(format!("x-{nth}"), "y".repeat(100))),
                    _ => head.header("content-type", "text/plain"),
                };
                let mut body = respond.send_response(head.body(()).unwrap(), false).unwrap();
                body.send_data("over HTTP/2".into(), true).unwrap();
            }
        }
    });
    (port, cert.pem(), running)
}

#[tokio::test]
async fn a_page_is_fetched_over_http2_from_a_server_whose_certificate_is_trusted() {
    let (port, pem, _running) = secure().await;
    let dns = DnsServer::start(|_, _| vec![Ipv4Addr::LOCALHOST.into()]).await;
    let web = Web::new().resolver(dns.resolver()).allow_loopback().allow_port(port);
    let url = format!("https://secure.test:{port}/x");
    let failed = fetch(&web, &url).await.unwrap_err();
    assert!(failed.contains("certificate"), "{failed}");

    let web = web.root_certificates(pem);
    assert_eq!(between_marks(&fetch(&web, &url).await.unwrap()), "over HTTP/2");
    let other = fetch(&web, format!("https://other.test:{port}/")).await.unwrap_err();
    assert!(other.contains("certificate"), "{other}");
    let bomb = fetch(&web, format!("https://secure.test:{port}/headers")).await.unwrap_err();
    assert!(bomb.starts_with("Error: [web_fetch] `secure.test`: "), "{bomb}");
    let expected = failure("a redirect is not followed: it leads from https to http, to http://secure.test/");
    assert_eq!(fetch(&web, format!("https://secure.test:{port}/down")).await, expected);
}

#[tokio::test]
async fn certificates_that_are_none_are_an_error() {
    let web = Web::new().root_certificates("-----BEGIN CERTIFICATE-----\nnot base64!\n-----END CERTIFICATE-----");
    let failed = fetch(&web, "https://example.com/").await.unwrap_err();
    assert!(failed.starts_with("Error: [web_fetch] no HTTP client: "), "{failed}");
}
