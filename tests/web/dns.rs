//! A DNS server on loopback that answers each question as it is told, and the resolver of a well-known library that asks
//! it.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use agentouto::BoxFuture;
use agentouto::tools::web::Resolver;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// The server. It ends when it is dropped.
pub(crate) struct DnsServer {
    port: u16,
    lookups: Arc<Mutex<HashMap<String, usize>>>,
    _running: JoinSet<()>,
}

impl DnsServer {
    /// A server whose answer for a name may differ from one lookup to the next. All have a time to live of 0.
    pub(crate) async fn start(answer: impl Fn(&str, usize) -> Vec<IpAddr> + Send + 'static) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let lookups = Arc::<Mutex<HashMap<String, usize>>>::default();
        let counts = Arc::clone(&lookups);
        let mut running = JoinSet::new();
        running.spawn(async move {
            let mut packet = [0; 1500];
            while let Ok((len, from)) = socket.recv_from(&mut packet).await {
                let (name, kind, end) = question(&packet[..len]);
                // Each lookup asks for both kinds of address, for A first.
                let nth = {
                    let mut counts = counts.lock().unwrap();
                    let count = counts.entry(name.clone()).or_default();
                    *count += usize::from(kind == A);
                    count.saturating_sub(1)
                };
                socket.send_to(&response(&packet[..end], kind, &answer(&name, nth)), from).await.unwrap();
            }
        });
        Self { port, lookups, _running: running }
    }

    /// A resolver that asks this server, keeps nothing, and asks for IPv4 and then for IPv6.
    pub(crate) fn resolver(&self) -> impl Resolver + use<> {
        let mut connection = ConnectionConfig::udp();
        connection.port = self.port;
        let server = NameServerConfig::new(Ipv4Addr::LOCALHOST.into(), true, vec![connection]);
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let options = builder.options_mut();
        options.cache_size = 0;
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        Hickory(builder.build().unwrap())
    }

    /// How often a name was looked up.
    pub(crate) fn lookups(&self, name: &str) -> usize {
        self.lookups.lock().unwrap().get(name).copied().unwrap_or_default()
    }
}

struct Hickory(TokioResolver);

impl Resolver for Hickory {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = self.0.lookup_ip(format!("{name}.")).await.map_err(io::Error::other)?;
            Ok(found.iter().collect())
        })
    }
}

const A: u16 = 1;
const AAAA: u16 = 28;

/// The name and the type in a question, and where it ends (RFC 1035, 4.1.2).
fn question(packet: &[u8]) -> (String, u16, usize) {
    let (mut labels, mut at) = (Vec::new(), 12);
    while packet[at] > 0 {
        let len = usize::from(packet[at]);
        labels.push(String::from_utf8_lossy(&packet[at + 1..=at + len]).to_ascii_lowercase());
        at += len + 1;
    }
    (labels.join("."), u16::from_be_bytes([packet[at + 1], packet[at + 2]]), at + 5)
}

/// The response to a packet that ends with its question (RFC 1035, 4.1.1 and 4.1.3).
fn response(question: &[u8], kind: u16, addresses: &[IpAddr]) -> Vec<u8> {
    let records: Vec<Vec<u8>> = addresses
        .iter()
        .filter_map(|address| match address {
            IpAddr::V4(address) if kind == A => Some(address.octets().to_vec()),
            IpAddr::V6(address) if kind == AAAA => Some(address.octets().to_vec()),
            _ => None,
        })
        .collect();
    let mut packet = question.to_vec();
    // A response with recursion, one question, these answers, and nothing else.
    packet[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
    for data in records {
        // The name of the question, the type, the class IN, the time to live 0.
        packet.extend_from_slice(&[0xc0, 12, 0, kind as u8, 0, 1, 0, 0, 0, 0, 0, data.len() as u8]);
        packet.extend_from_slice(&data);
    }
    packet
}
