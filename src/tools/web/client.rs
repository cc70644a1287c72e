//! The HTTP client of `web_fetch`. It reaches permitted addresses only, and follows no redirect by itself.

use std::error::Error;
use std::sync::Arc;

use reqwest::header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Proxy, StatusCode};
use secrecy::ExposeSecret as _;
use url::{Host, Url};

use super::resolver::{Unresolved, VettedResolver};
use super::{Settings, USER_AGENT, target, untrusted};
use crate::error_chain::error_chain;
use crate::tool_call::{ToolError, ToolErrorKind};

/// A client whose every connection goes to an address that was checked for it.
pub(super) struct WebClient {
    client: Result<reqwest::Client, String>,
    resolver: VettedResolver,
    settings: Arc<Settings>,
}

impl WebClient {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        let proxy = settings.proxy.as_ref().and_then(|proxy| Url::parse(proxy.expose_secret()).ok());
        let resolver = VettedResolver {
            resolver: Arc::clone(&settings.resolver),
            addresses: settings.addresses.clone(),
            proxy: proxy.and_then(|proxy| proxy.host_str().map(str::to_owned)),
        };
        Self { client: client(&settings, resolver.clone()), resolver, settings }
    }

    /// GETs a URL that was checked, and follows redirects. Returns the URL that answered, and its response, whose
    /// status is 2xx.
    pub(super) async fn get(&self, url: Url) -> Result<(Url, reqwest::Response), ToolError> {
        let mut url = url;
        for _ in 0..=self.settings.max_redirects {
            let response = self.send(&url).await?;
            match location(response.status(), response.headers())? {
                Some(location) => url = target::redirected(&url, &location, &self.settings)?,
                None => return Ok((url, accepted(response)?)),
            }
        }
        Err(format!("more than {} redirects", self.settings.max_redirects).into())
    }

    async fn send(&self, url: &Url) -> Result<reqwest::Response, ToolError> {
        let client = self.client.as_ref().map_err(|error| ToolError::from(format!("no HTTP client: {error}")))?;
        if let (Some(Host::Domain(name)), Some(_)) = (url.host(), &self.settings.proxy) {
            // The proxy resolves the name again. One that is unknown here may be known there.
            match self.resolver.resolve(name).await {
                Err(refused @ Unresolved::Refused(_)) => return Err(refused.to_string().into()),
                Err(Unresolved::NotFound(_)) | Ok(_) => {}
            }
        }
        let sending = client.get(url.clone()).header(ACCEPT, "text/html, text/markdown;q=0.9, text/*;q=0.9, */*;q=0.5");
        sending.send().await.map_err(|error| failed(url, error))
    }
}

fn client(settings: &Settings, resolver: VettedResolver) -> Result<reqwest::Client, String> {
    let mut builder = reqwest::Client::builder()
        .no_proxy()
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        // Each request has a connection of its own, so none goes to what a name meant earlier.
        .pool_max_idle_per_host(0)
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .dns_resolver(resolver)
        .user_agent(USER_AGENT);
    if let Some(proxy) = &settings.proxy {
        // The error would show the URL, and with it the password.
        let proxy = Proxy::all(proxy.expose_secret()).map_err(|_| "the URL of the proxy is invalid".to_owned())?;
        builder = builder.proxy(proxy);
    }
    for pem in &settings.root_certificates {
        let certificates = Certificate::from_pem_bundle(pem).map_err(|error| error_chain(&error))?;
        builder = builder.tls_certs_merge(certificates);
    }
    builder.build().map_err(|error| error_chain(&error))
}

const MAX_HEADER_BYTES: u32 = 64 << 10;

/// Returns where a response redirects to, if it does.
fn location(status: StatusCode, headers: &HeaderMap) -> Result<Option<String>, ToolError> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let mut locations = headers.get_all(LOCATION).iter();
    match (locations.next(), locations.next()) {
        (None, _) => Ok(None),
        (Some(location), None) => Ok(Some(String::from_utf8_lossy(location.as_bytes()).into_owned())),
        // Programs differ in which one they follow.
        (Some(_), Some(_)) => Err("a redirect with more than one `Location`".into()),
    }
}

/// Returns the response if its body can be read.
fn accepted(response: reqwest::Response) -> Result<reqwest::Response, ToolError> {
    let status = response.status();
    if !status.is_success() {
        let reason = status.canonical_reason().unwrap_or("unknown status");
        return Err(format!("HTTP {} {reason}", status.as_u16()).into());
    }
    // The client takes away the encoding that it undoes.
    match response.headers().get(CONTENT_ENCODING) {
        Some(encoding) if encoding.as_bytes() != b"identity" => {
            Err("the body is compressed in a way that was not asked for; gzip is".into())
        }
        _ => Ok(response),
    }
}

/// Returns the value of a header that is a text.
pub(super) fn content_type(response: &reqwest::Response) -> Option<String> {
    Some(response.headers().get(CONTENT_TYPE)?.to_str().ok()?.to_owned())
}

/// Returns the size of a body that is not compressed.
pub(super) fn content_length(response: &reqwest::Response) -> Option<u64> {
    response.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Returns the error of a request that got no response.
fn failed(url: &Url, error: reqwest::Error) -> ToolError {
    // The URL may have a password in it.
    let error = error.without_url();
    if let Some(unresolved) = unresolved(&error) {
        return unresolved.to_string().into();
    }
    let message = format!("`{}`: {}", target::cut(url.host_str().unwrap_or_default(), 100), reason(&error));
    match error.is_connect() {
        true => ToolError::network(message),
        false => ToolError { kind: ToolErrorKind::Other, message: message.into() },
    }
}

/// Returns the text of an error with its causes. The names in a certificate are a server's words, so it is bounded.
pub(super) fn reason(error: &reqwest::Error) -> String {
    target::cut(&untrusted::visible(&error_chain(error)), MAX_REASON).to_owned()
}

const MAX_REASON: usize = 300;

fn unresolved<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e Unresolved> {
    match error.downcast_ref() {
        Some(unresolved) => Some(unresolved),
        None => unresolved(error.source()?),
    }
}
