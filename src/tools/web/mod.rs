//! The web tools: `web_fetch` reads a page, `web_search` asks a search engine. [`Web`] makes both.
//!
//! ```
//! use std::time::Duration;
//! use agentouto::providers::scripted::Scripted;
//! use agentouto::tools::Web;
//! use agentouto::tools::web::Brave;
//! use agentouto::{Agent, Runtime, ToolExt as _};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let model = Scripted::new();
//! let web = Web::new().timeout(Duration::from_secs(10));
//! let runtime = Runtime::builder()
//!     .provider("script", model)
//!     .agent(Agent::new("researcher", "Search and verify."))
//!     .tool(web.fetch().cached(Duration::from_secs(3_600)))
//!     .tool(web.search(Brave::from_env()).at_most(2))
//!     .build()?;
//! # Ok(())
//! # }
//! ```
//!
//! # What can be reached
//!
//! A model chooses the URLs of `web_fetch`, and a page can choose them for a model. So a URL leads only to a public
//! address: not to this machine, to a private network or to the metadata service of a cloud, in no spelling. An address
//! in a URL is checked as it is parsed; a name is resolved once for each connection, all its addresses are checked, and
//! the connection goes to one of these. One address that is not public refuses the name. Each redirect is checked like
//! a URL of a model.
//!
//! Only `http` and `https` are fetched, on the ports 80 and 443. Proxies in the environment are ignored. A redirect
//! from
//! `https` to `http` is not followed. A user and a password in a URL are sent to its host, and never passed on by a
//! redirect.
//!
//! A program can open more: [`Web::allow_loopback`], [`Web::allow_network`], [`Web::allow_port`], [`Web::proxy`]. The
//! address of a search engine is the program's own choice and is not checked.
//!
//! `robots.txt` is not read: a page is fetched because a model asks for it, not by a crawler. The header `User-Agent`
//! names this crate and its version.
//!
//! # What a model reads
//!
//! A text from the web stands between two marks with a random number, under a line that says where it comes from and
//! that it is data. The marks are no boundary: a model may follow a page's instructions in spite of them. What must not
//! happen on such an instruction needs a wrapper of the tool that does it, such as
//! [`ToolExt::approved_by`](crate::ToolExt::approved_by).
//!
//! Characters that a reader does not see are left out: control characters, changes of direction, invisible tags. URLs
//! are shown without user, password and fragment, and without the values of parameters that are secret by their names,
//! such as `token`.
//!
//! # Failures
//!
//! All are errors that the model reads. Only a connection that could not be made is tried again by the runtime, see
//! [`ToolErrorKind::Network`](crate::ToolErrorKind::Network). A transfer that breaks off, or a page that is too large,
//! gives what had arrived, with a note.
//!
//! When a call is cancelled, its connection is closed at once. A lookup by the operating system and the conversion of a
//! page may go on for a moment on their threads; their result is dropped.

mod addresses;
mod arguments;
mod charset;
mod client;
mod fetch;
mod media_type;
mod page;
mod resolver;
mod search;
mod target;
mod untrusted;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

use self::addresses::{Addresses, LOOPBACK, Network};
pub use self::fetch::WebFetch;
pub use self::resolver::Resolver;
use self::resolver::SystemResolver;
pub use self::search::{Brave, SearchEngine, SearchResult, SearxNg, WebSearch};

use crate::tool_interface::Tool;

/// The settings of the web tools, see the [module](self). Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Web {
    settings: Arc<Settings>,
}

impl Web {
    /// The web as it is public.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the tool `web_fetch`. Each one has connections of its own.
    #[must_use]
    pub fn fetch(&self) -> WebFetch {
        WebFetch::new(Arc::clone(&self.settings))
    }

    /// Returns the tool `web_search`, which asks `engine`.
    pub fn search(&self, engine: impl SearchEngine) -> WebSearch {
        WebSearch::new(engine, self.settings.timeout)
    }

    /// Returns both tools, for a program that wraps neither.
    pub fn tools(&self, engine: impl SearchEngine) -> [Arc<dyn Tool>; 2] {
        [Arc::new(self.fetch()), Arc::new(self.search(engine))]
    }

    /// The timeout of a call: for all redirects, the whole body and its conversion together. Default: 20 seconds.
    #[must_use]
    pub fn timeout(self, limit: Duration) -> Self {
        self.set(|settings| settings.timeout = limit)
    }

    /// The most bytes of a body, decompressed. The rest is not read, and the model reads a note. Default: 5 MiB.
    ///
    /// A page needs a multiple of its size in memory while it is converted. One page for each processor is converted at
    /// a time.
    #[must_use]
    pub fn max_bytes(self, bytes: usize) -> Self {
        self.set(|settings| settings.max_bytes = bytes)
    }

    /// The most redirects that are followed. Default: 5.
    #[must_use]
    pub fn max_redirects(self, redirects: usize) -> Self {
        self.set(|settings| settings.max_redirects = redirects)
    }

    /// The most characters of a text if the model does not say. Default: 50,000.
    #[must_use]
    pub fn max_chars(self, chars: usize) -> Self {
        self.set(|settings| settings.max_chars = chars)
    }

    /// Allows this machine: `localhost`, `127.0.0.0/8` and `::1`. For tests and local servers: every model can then
    /// read what they serve on the allowed ports.
    #[must_use]
    pub fn allow_loopback(self) -> Self {
        self.set(|settings| {
            settings.has_loopback = true;
            LOOPBACK.into_iter().for_each(|network| settings.addresses.grant(network));
        })
    }

    /// Allows all addresses that begin with the first `prefix` bits of `address`, such as those of an intranet:
    /// `allow_network([10, 1, 0, 0], 16)`. A prefix that is too long means the address alone.
    ///
    /// In a network with IPv6 only, the names of IPv4 servers have addresses in `64:ff9b::/96` (NAT64). Those are
    /// refused, because there are private ones among them; allow them only if the gateway refuses these.
    #[must_use]
    pub fn allow_network(self, address: impl Into<IpAddr>, prefix: u8) -> Self {
        let network = Network::new(address.into(), prefix);
        self.set(|settings| settings.addresses.grant(network))
    }

    /// Allows a port beside 80 and 443.
    #[must_use]
    pub fn allow_port(self, port: u16) -> Self {
        self.set(|settings| settings.ports.push(port))
    }

    /// Sends all requests of `web_fetch` through an HTTP proxy, such as `http://user:password@10.0.0.1:3128`. Default:
    /// none; the environment is not read.
    ///
    /// The proxy resolves each name again. Here a name is refused as without a proxy, but if the proxy gets another
    /// answer than this machine, it decides what is reached: use one that refuses private addresses itself.
    #[must_use]
    pub fn proxy(self, url: impl Into<SecretString>) -> Self {
        let url = url.into();
        self.set(|settings| settings.proxy = Some(url))
    }

    /// Resolves names in another way. Default: as the operating system does.
    #[must_use]
    pub fn resolver(self, resolver: impl Resolver) -> Self {
        self.set(|settings| settings.resolver = Arc::new(resolver))
    }

    /// Trusts more certificates: those of a text in PEM. Default: those that the operating system trusts.
    #[must_use]
    pub fn root_certificates(self, pem: impl Into<Vec<u8>>) -> Self {
        self.set(|settings| settings.root_certificates.push(pem.into()))
    }

    fn set(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

/// What `web_fetch` may do.
#[derive(Clone)]
struct Settings {
    addresses: Addresses,
    /// `true` if names that mean this machine are allowed.
    has_loopback: bool,
    ports: Vec<u16>,
    timeout: Duration,
    max_bytes: usize,
    max_redirects: usize,
    max_chars: usize,
    proxy: Option<SecretString>,
    resolver: Arc<dyn Resolver>,
    root_certificates: Vec<Vec<u8>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            addresses: Addresses::default(),
            has_loopback: false,
            ports: vec![80, 443],
            timeout: Duration::from_secs(20),
            max_bytes: 5 << 20,
            max_redirects: 5,
            max_chars: 50_000,
            proxy: None,
            resolver: Arc::new(SystemResolver),
            root_certificates: Vec::new(),
        }
    }
}

/// Without the proxy, whose URL may have a password in it.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("addresses", &self.addresses)
            .field("ports", &self.ports)
            .field("timeout", &self.timeout)
            .field("max_bytes", &self.max_bytes)
            .field("max_redirects", &self.max_redirects)
            .field("has_proxy", &self.proxy.is_some())
            .finish_non_exhaustive()
    }
}

const USER_AGENT: &str = concat!("agentouto/", env!("CARGO_PKG_VERSION"));
