//! HTTP/2, where one connection carries many requests, but not any number of them.
#![cfg(feature = "http")]

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use agentouto::providers::openai::OpenAi;
use agentouto::{Agent, Runtime};
use futures_util::future::join_all;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

/// More than one connection takes.
const CALLS: usize = 250;
/// What most servers allow on one connection.
const STREAMS: u32 = 100;

/// The certificate of the server is trusted by a variable of the environment, which is a process's own.
#[test]
fn more_calls_are_under_way_than_one_connection_takes() {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = std::env::temp_dir().join(format!("agentouto-multiplexing-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("cert.pem"), cert.pem()).unwrap();
    std::fs::write(folder.join("key.der"), signing_key.serialize_der()).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "multiplexing::all_calls_are_under_way_at_once"])
        .env("SSL_CERT_FILE", folder.join("cert.pem"))
        .env("AGENTOUTO_TEST_KEY", folder.join("key.der"))
        .output()
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let said = String::from_utf8(child.stdout).unwrap();
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
}

/// The server answers nobody before all have asked, so that it comes to an end only if all can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the test above, in an environment of its own"]
async fn all_calls_are_under_way_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("https://localhost:{}/v1", listener.local_addr().unwrap().port());
    tokio::spawn(serve(listener));
    let openai = OpenAi::keyless(&base_url).total_timeout(Duration::from_secs(60)).retries(0);
    let runtime = Runtime::builder().provider("openai", openai).agent(Agent::new("a", "")).build().unwrap();
    let caller = runtime.user("user").caller();
    let answers = join_all((0..CALLS).map(|nth| caller.call_agent("a", nth.to_string()))).await;
    for answer in answers {
        assert_eq!(&*answer.unwrap().text, "done");
    }
}

async fn serve(listener: TcpListener) {
    let read = |variable: &str| std::fs::read(std::env::var(variable).unwrap()).unwrap();
    let pem = String::from_utf8(read("SSL_CERT_FILE")).unwrap();
    let certificate = tokio_rustls::rustls::pki_types::pem::PemObject::from_pem_slice(pem.as_bytes()).unwrap();
    let key = PrivatePkcs8KeyDer::from(read("AGENTOUTO_TEST_KEY")).into();
    let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let everybody = Arc::new(Barrier::new(CALLS));
    while let Ok((socket, _)) = listener.accept().await {
        let (acceptor, everybody) = (acceptor.clone(), Arc::clone(&everybody));
        tokio::spawn(async move {
            let socket = acceptor.accept(socket).await.unwrap();
            let mut connection =
                h2::server::Builder::new().max_concurrent_streams(STREAMS).handshake(socket).await.unwrap();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let everybody = Arc::clone(&everybody);
                tokio::spawn(async move {
                    everybody.wait().await;
                    let head = http::Response::builder().header("content-type", "application/json").body(()).unwrap();
                    let body = r#"{"choices": [{"message": {"content": "done"}, "finish_reason": "stop"}]}"#;
                    respond.send_response(head, false).unwrap().send_data(bytes::Bytes::from(body), true).unwrap();
                });
            }
        });
    }
}
