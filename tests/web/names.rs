//! Names and what they mean: fault 92.

use std::net::{IpAddr, Ipv4Addr};

use agentouto::tools::Web;
use serde_json::json;

use crate::dns::DnsServer;
use crate::server::{Answer, Server};
use crate::support::{ask, between_marks, call, failure, fetch, runtime};

const PRIVATE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The one address that these tests allow.
const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Two servers on one port, of which only the first may be reached.
async fn servers(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> (Server, Server) {
    let public = Server::on(PUBLIC, 0, answer).await;
    let private = Server::on(PRIVATE, public.port, |_| Answer::text("secret")).await;
    (public, private)
}

fn web(dns: &DnsServer, server: &Server) -> Web {
    Web::new().resolver(dns.resolver()).allow_port(server.port).allow_network(PUBLIC, 32)
}

fn refused(name: &str) -> Result<String, String> {
    failure(&format!("`{name}` has an address that is not public; only public ones are fetched"))
}

#[tokio::test]
async fn fault_92_a_name_with_any_private_address_is_refused() {
    let (public, private) = servers(|_| Answer::text("hello")).await;
    let dns = DnsServer::start(|name, _| match name {
        "public.test" => vec![PUBLIC],
        "private.test" => vec![PRIVATE],
        "first.test" => vec![PRIVATE, PUBLIC],
        "last.test" => vec![PUBLIC, PUBLIC, PRIVATE],
        "six.test" => vec![PUBLIC, "::1".parse().unwrap()],
        "mapped.test" => vec![PUBLIC, "::ffff:127.0.0.1".parse().unwrap()],
        "cloud.test" => vec![[169, 254, 169, 254].into()],
        "zero.test" => vec![[0, 0, 0, 0].into()],
        _ => vec![],
    })
    .await;
    let web = web(&dns, &public);
    for name in ["private", "first", "last", "six", "cloud", "zero"].map(|name| format!("{name}.test")) {
        assert_eq!(fetch(&web, format!("http://{name}:{}/", public.port)).await, refused(&name));
    }
    let unknown = fetch(&web, format!("http://unknown.test:{}/", public.port)).await;
    assert_eq!(unknown, failure("no address of `unknown.test` was found"));
    assert_eq!(public.heard(), [""; 0], "nothing connected to a name that is in part public");

    for name in ["public.test", "mapped.test", "PUBLIC.Test"] {
        let answer = fetch(&web, format!("http://{name}:{}/", public.port)).await;
        // The address is that of 127.0.0.1, which is not allowed here.
        match name {
            "mapped.test" => assert_eq!(answer, refused(name)),
            _ => assert_eq!(between_marks(&answer.unwrap()), "hello"),
        }
    }
    assert_eq!(private.heard(), [""; 0], "nothing connected to the private address");
    assert_eq!(public.heard().len(), 2);
}

#[tokio::test]
async fn fault_92_each_connection_asks_once_and_goes_where_that_answer_leads() {
    let (public, private) = servers(|_| Answer::text("hello")).await;
    // Public at the first question, private from then on.
    let dns = DnsServer::start(|_, nth| if nth == 0 { vec![PUBLIC] } else { vec![PRIVATE] }).await;
    let url = format!("http://flip.test:{}/", public.port);
    let runtime = runtime(web(&dns, &public).fetch());
    let first = call(&runtime, &json!({"url": url})).await;
    assert_eq!(between_marks(&first.content.text), "hello");
    assert_eq!(dns.lookups("flip.test"), 1, "one lookup for one connection");
    // The same client: neither a connection nor an answer was kept.
    let second = call(&runtime, &json!({"url": url})).await;
    assert_eq!(Err(second.content.text.to_string()), refused("flip.test"));
    assert_eq!((public.heard().len(), private.heard().len()), (1, 0));
}

#[tokio::test]
async fn fault_92_a_redirect_to_the_same_name_asks_again_and_is_refused_when_the_answer_has_flipped() {
    let (public, private) = servers(|_| Answer::redirect("/again")).await;
    let dns = DnsServer::start(|_, nth| if nth == 0 { vec![PUBLIC] } else { vec![PRIVATE] }).await;
    let url = format!("http://flip.test:{}/", public.port);
    assert_eq!(fetch(&web(&dns, &public), url).await, refused("flip.test"));
    assert_eq!((public.heard().len(), private.heard().len()), (1, 0));
}

#[tokio::test]
async fn fault_92_the_resolver_of_the_system_is_not_trusted_either() {
    let server = Server::always(Answer::text("secret")).await;
    // In /etc/hosts of most machines, and refused without loopback; other names of this machine go the same way.
    let web = Web::new().allow_port(server.port);
    for name in ["localhost.localdomain", "ip6-localhost", "ip6-loopback"] {
        let failed = ask(web.fetch(), json!({"url": format!("http://{name}:{}/", server.port)})).await.unwrap_err();
        assert!(failed.contains("is not public") || failed.contains("no address of"), "{failed}");
    }
    assert_eq!(server.heard(), [""; 0], "nothing connected");
}
