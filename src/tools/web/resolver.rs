//! The way from a name to addresses: [`Resolver`], and the check of every answer.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::addresses::Addresses;

/// A resolver of names. Implement it for a DNS server of your choice. Default of a [`Web`](super::Web): that of the
/// operating system.
///
/// ```
/// use std::io;
/// use std::net::IpAddr;
/// use agentouto::BoxFuture;
/// use agentouto::tools::Web;
/// use agentouto::tools::web::Resolver;
///
/// /// Knows one name, and nothing else.
/// struct OneName;
///
/// impl Resolver for OneName {
///     fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
///         Box::pin(async move {
///             match name {
///                 "docs.example.com" => Ok(vec![IpAddr::from([93, 184, 216, 34])]),
///                 _ => Err(io::Error::other("unknown name")),
///             }
///         })
///     }
/// }
///
/// let web = Web::new().resolver(OneName);
/// # let _ = web;
/// ```
pub trait Resolver: Send + Sync + 'static {
    /// Returns all addresses of a name. Each connection asks once, and is made to one of the addresses of that answer.
    /// Answers should not be filtered: one address that is not public refuses the whole name.
    ///
    /// Dropping the future must end the lookup, or let it end unseen.
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The resolver of the operating system. A lookup that is dropped keeps one of tokio's blocking threads until it ends.
pub(super) struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// A resolver that gives only addresses that may be reached.
#[derive(Clone)]
pub(super) struct VettedResolver {
    pub(super) resolver: Arc<dyn Resolver>,
    pub(super) addresses: Addresses,
    /// The host of the proxy, which the program chose.
    pub(super) proxy: Option<String>,
}

impl VettedResolver {
    /// Returns the addresses of a name, all of which may be reached.
    pub(super) async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, Unresolved> {
        let found = self.resolver.resolve(name).await.unwrap_or_default();
        if found.is_empty() {
            return Err(Unresolved::NotFound(name.to_owned()));
        }
        match found.iter().all(|address| self.addresses.permit(*address)) {
            true => Ok(found),
            false => Err(Unresolved::Refused(name.to_owned())),
        }
    }
}

/// The client's way to addresses: what is returned here is what it connects to.
impl reqwest::dns::Resolve for VettedResolver {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let this = self.clone();
        Box::pin(async move {
            let found = match this.proxy.as_deref() == Some(name.as_str()) {
                true => this.resolver.resolve(name.as_str()).await?,
                false => this.resolve(name.as_str()).await?,
            };
            // The client fills in the port.
            let addresses = found.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as reqwest::dns::Addrs)
        })
    }
}

/// The reason why a name leads nowhere. It shows no address, which would tell a model about a private network.
#[derive(Debug)]
pub(super) enum Unresolved {
    NotFound(String),
    Refused(String),
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(name) => write!(f, "no address of `{name}` was found"),
            Self::Refused(name) => {
                write!(f, "`{name}` has an address that is not public; only public ones are fetched")
            }
        }
    }
}

impl Error for Unresolved {}
