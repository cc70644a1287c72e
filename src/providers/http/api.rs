//! A vendor's API as users configure it: one [`Api`] for all wire formats, which sends its requests through [`Retry`].

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};

use super::client::HttpClient;
use super::endpoint::Endpoint;
use super::vendors;
use super::wire_format::WireFormat;
use crate::provider::{DeltaSink, Provider, ProviderError, ProviderErrorKind, ProviderInfo, Request};
use crate::providers::retry::Retry;
use crate::reply::Reply;

/// A server that speaks the wire format `W`.
///
/// Use it by its names [`OpenAi`](crate::providers::openai::OpenAi),
/// [`OpenAiResponses`](crate::providers::openai_responses::OpenAiResponses),
/// [`Anthropic`](crate::providers::anthropic::Anthropic) and [`Google`](crate::providers::google::Google).
///
/// All calls share its connections (HTTP/2 if the server offers it, with a hundred requests on each connection), its
/// budget of retries and its limit of concurrent requests: see [`Retry`]. A failed request is retried up to twice.
/// Errors contain the server's request id.
///
/// A reply is streamed if the call has an observer, unless [`streaming`](Self::streaming) says otherwise; with and
/// without streaming, the result is the same [`Reply`]. When a call is cancelled, its request is dropped and the
/// connection is closed (HTTP/2: the stream is reset).
///
/// Keys are never shown: not by `Debug`, and not in errors, events or traces. Redirects to another scheme, host or port
/// are not followed.
pub struct Api<W: WireFormat> {
    retry: Retry<Endpoint<W>>,
    function_calling: Option<bool>,
}

/// The rule that decides if a reply is streamed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streaming {
    /// Streams if the call has an observer.
    #[default]
    WhenObserved,
    /// Always streams, so that the part of a reply that has arrived is known even when the rest fails.
    Always,
    /// Never streams, for servers that do not support it.
    Never,
}

impl<W: WireFormat> Api<W> {
    /// The vendor itself, with a key. White space around the key is removed.
    pub fn new(key: impl Into<SecretString>) -> Self {
        let key = SecretString::from(key.into().expose_secret().trim());
        let mut api = Self::keyless(W::VENDOR.address);
        api.endpoint().http.secret_header(W::VENDOR.key_header, W::VENDOR.key_prefix, key);
        api
    }

    /// A server at `base_url` that requires no key.
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

    /// The vendor with the key, and the base URL if one is set, from environment variables.
    ///
    /// The documentation of each name of this type lists its variables.
    ///
    /// # Errors
    ///
    /// When no key is set, or it is empty.
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

    /// Sets the base URL of another server. Default: the vendor's.
    #[must_use]
    pub fn base_url(mut self, base_url: &str) -> Self {
        let address = base_url.trim().trim_end_matches('/');
        let endpoint = self.endpoint();
        endpoint.http.secret_address(address);
        endpoint.address = address.to_owned();
        self
    }

    /// Sends a header with every request. It replaces a header of the same name. Its value is treated as a secret.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<SecretString>) -> Self {
        self.endpoint().http.secret_header(name, "", value.into());
        self
    }

    /// Sends a header whose value is requested from `source` before each request, such as a token for Vertex, Entra or
    /// Bedrock that expires.
    ///
    /// It replaces a header of the same name, and its value is treated as a secret. The source itself caches a value
    /// for as long as it is valid. Its time counts towards the request's timeout, and its error becomes the request's
    /// error. When the call is cancelled, the source's future is dropped.
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

    /// Sets when replies are streamed. Default: if the call has an observer.
    #[must_use]
    pub fn streaming(mut self, streaming: Streaming) -> Self {
        self.endpoint().streaming = streaming;
        self
    }

    /// The timeout for connecting. Default: 10 seconds.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.endpoint().http.connect_timeout = limit;
        self
    }

    /// The longest time without new data once a reply has begun. Default: 60 seconds.
    ///
    /// A reply begins with the first piece of its text, of a tool call or of an attachment. Until then only
    /// [`total_timeout`](Self::total_timeout) limits the model, with or without an observer.
    #[must_use]
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.endpoint().http.idle_timeout = limit;
        self
    }

    /// The timeout of one attempt, even while data arrives. Default: 600 seconds. `Duration::MAX` means no limit.
    #[must_use]
    pub fn total_timeout(mut self, limit: Duration) -> Self {
        self.endpoint().http.total_timeout = limit;
        self
    }

    /// The number of retries of a failed request, if a retry may help. Default: 2. See [`Retry`].
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retry = self.retry.retries(retries);
        self
    }

    /// The maximum number of concurrent requests; the others wait, in order. Default: no limit.
    #[must_use]
    pub fn max_in_flight(mut self, requests: usize) -> Self {
        self.retry = self.retry.max_in_flight(requests);
        self
    }

    /// Sets whether the server's models support function calling.
    ///
    /// Default: `true` for the vendor's own server; unknown for another server.
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
        // All models that the vendors serve today support it; at another address nothing is known.
        let endpoint = self.retry.inner();
        let is_vendor = endpoint.address == W::VENDOR.address;
        self.function_calling.or(W::function_calling(endpoint.profile())).or(is_vendor.then_some(true))
    }

    fn info(&self) -> ProviderInfo {
        let Endpoint { address, streaming, .. } = self.retry.inner();
        let streams = match streaming {
            Streaming::WhenObserved => None,
            Streaming::Always => Some(true),
            Streaming::Never => Some(false),
        };
        ProviderInfo { streams, ..vendors::info(address) }
    }
}

impl<W: WireFormat> fmt::Debug for Api<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint { address, streaming, .. } = self.retry.inner();
        // Without a password or a query, because these may be secrets.
        let address = address.split('?').next().and_then(|address| address.rsplit('@').next());
        f.debug_struct(W::VENDOR.name).field("address", &address).field("streaming", streaming).finish_non_exhaustive()
    }
}
