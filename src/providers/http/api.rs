//! A vendor's API as users meet it: one [`Api`] for all wire formats, asked through [`Retry`].

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};

use super::client::HttpClient;
use super::endpoint::Endpoint;
use super::wire_format::WireFormat;
use crate::provider::{DeltaSink, Provider, Request};
use crate::provider::{ProviderError, ProviderErrorKind};
use crate::providers::retry::Retry;
use crate::reply::Reply;

/// A server that speaks the wire format `W`; use it by its names [`OpenAi`](crate::providers::openai::OpenAi),
/// [`OpenAiResponses`](crate::providers::openai_responses::OpenAiResponses), [`Anthropic`](crate::providers::anthropic::Anthropic) and
/// [`Google`](crate::providers::google::Google).
///
/// All calls share its connections (HTTP/2 where the server offers it, a hundred requests on each), its budget of
/// retries and its limit of requests at once: see [`Retry`]. Failed requests are tried again up to twice. An error names the server's id of the request.
///
/// A reply is asked for piece by piece when somebody looks on; both ways end in the same [`Reply`]. When a call is
/// cancelled its request is dropped with it, and the connection is closed (HTTP/2: the stream is reset).
///
/// Keys are shown nowhere: neither by `Debug` nor in errors, events or traces. No redirect to another scheme, host
/// or port is followed.
pub struct Api<W: WireFormat> {
    retry: Retry<Endpoint<W>>,
    function_calling: Option<bool>,
}

/// When a reply is asked for piece by piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streaming {
    /// When somebody looks on.
    #[default]
    WhenObserved,
    /// Always: what has arrived is known even when the rest fails.
    Always,
    /// Never, for servers that cannot.
    Never,
}

impl<W: WireFormat> Api<W> {
    /// The vendor itself, with a key. Space around the key is dropped.
    pub fn new(key: impl Into<SecretString>) -> Self {
        let key = SecretString::from(key.into().expose_secret().trim());
        let mut api = Self::keyless(W::VENDOR.address);
        api.endpoint().http.secret_header(W::VENDOR.key_header, W::VENDOR.key_prefix, key);
        api
    }

    /// A server at an address that asks for no key.
    #[must_use]
    pub fn keyless(base_url: &str) -> Self {
        let mut http = HttpClient::default();
        for (name, value) in W::VENDOR.headers {
            http.header(name, value);
        }
        let endpoint = Endpoint {
            http,
            address: String::new(),
            streaming: Streaming::default(),
            profile: None,
            unknown: Mutex::default(),
            wire: PhantomData,
        };
        Self { retry: Retry::around(endpoint), function_calling: None }.base_url(base_url)
    }

    /// With the key, and the address if there is one, in the environment. The documentation of each name of this type
    /// says in which variables.
    ///
    /// # Errors
    ///
    /// When no key is set there, or an empty one.
    pub fn from_env() -> Result<Self, ProviderError> {
        let variable = |name: &&str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let key = W::VENDOR.key_variables.iter().find_map(variable).ok_or_else(|| {
            let message = format!("the environment variable {} is not set", W::VENDOR.key_variables.join(" or "));
            ProviderError::new(ProviderErrorKind::Authentication, message)
        })?;
        let api = Self::new(key);
        Ok(match variable(&W::VENDOR.address_variable) {
            Some(base_url) => api.base_url(&base_url),
            None => api,
        })
    }

    /// Another server. Default: the vendor's.
    #[must_use]
    pub fn base_url(mut self, base_url: &str) -> Self {
        let address = base_url.trim().trim_end_matches('/');
        let endpoint = self.endpoint();
        endpoint.http.secret_address(address);
        endpoint.address = address.to_owned();
        self
    }

    /// Sends a header with every request, in place of one of the same name. Its value counts as a secret.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<SecretString>) -> Self {
        self.endpoint().http.secret_header(name, "", value.into());
        self
    }

    /// Sends a header whose value is asked for before each request, in place of one of the same name: a token that
    /// expires, of Vertex, Entra or Bedrock. Its value counts as a secret. The source keeps a value itself as long as that
    /// is good. It has the time of the request, whose error its error is; it is dropped when the call is cancelled.
    ///
    /// ```
    /// use agentouto::ProviderError;
    /// use agentouto::providers::google::Google;
    ///
    /// async fn token() -> Result<String, ProviderError> {
    ///     Ok("ya29.…".to_owned())
    /// }
    ///
    /// let vertex = Google::keyless("https://aiplatform.googleapis.com/v1/projects/…/publishers/google")
    ///     .header_source("authorization", || async { Ok(format!("Bearer {}", token().await?)) });
    /// ```
    #[must_use]
    pub fn header_source<F, R, T>(mut self, name: &str, source: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, ProviderError>> + Send + 'static,
        T: Into<SecretString>,
    {
        let ask = move || {
            let value = source();
            Box::pin(async move { value.await.map(Into::into) }) as BoxFuture<'static, _>
        };
        self.endpoint().http.header_source(name, Box::new(ask));
        self
    }

    pub(crate) fn set_profile(&mut self, profile: W::Profile) {
        self.endpoint().profile = Some(profile);
    }

    /// When to ask for the reply piece by piece. Default: when somebody looks on.
    #[must_use]
    pub fn streaming(mut self, streaming: Streaming) -> Self {
        self.endpoint().streaming = streaming;
        self
    }

    /// How long connecting may take. Default: 10 seconds.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.endpoint().http.connect_timeout = limit;
        self
    }

    /// For how long nothing may arrive of a reply that has begun. Default: 60 seconds. A reply begins with the first piece
    /// of its text, of a tool call or of an attachment. Until then the model is at work, which
    /// [`total_timeout`](Self::total_timeout) alone limits, whether somebody looks on or not.
    #[must_use]
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.endpoint().http.idle_timeout = limit;
        self
    }

    /// How long one try may take, however much arrives. Default: 600 seconds. `Duration::MAX` stands for no limit.
    #[must_use]
    pub fn total_timeout(mut self, limit: Duration) -> Self {
        self.endpoint().http.total_timeout = limit;
        self
    }

    /// How many times a failed request is tried again, where that may help. Default: 2. See [`Retry`].
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retry = self.retry.retries(retries);
        self
    }

    /// How many requests may be under way at once; the others wait for their turn, in order. Default: no limit.
    #[must_use]
    pub fn max_in_flight(mut self, requests: usize) -> Self {
        self.retry = self.retry.max_in_flight(requests);
        self
    }

    /// Whether the models that are served can call functions.
    /// Default: those of the vendor can; of another server it is not known.
    #[must_use]
    pub fn function_calling(mut self, can: bool) -> Self {
        self.function_calling = Some(can);
        self
    }

    fn endpoint(&mut self) -> &mut Endpoint<W> {
        self.retry.inner_mut()
    }
}

impl<W: WireFormat> Provider for Api<W> {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        self.retry.reply(request, deltas)
    }

    fn function_calling(&self, _: &str) -> Option<bool> {
        // What the vendors themselves serve today can; what others serve at their addresses, nobody knows.
        let endpoint = self.retry.inner();
        let is_vendor = endpoint.address == W::VENDOR.address;
        self.function_calling.or(W::function_calling(endpoint.profile())).or(is_vendor.then_some(true))
    }
}

impl<W: WireFormat> fmt::Debug for Api<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint { address, streaming, .. } = self.retry.inner();
        // Without a password or a query, which may be secrets.
        let address = address.split('?').next().and_then(|address| address.rsplit('@').next());
        f.debug_struct(W::VENDOR.name).field("address", &address).field("streaming", streaming).finish_non_exhaustive()
    }
}
