//! The HTTP client of the search engines: it GETs JSON from an address that the program chose.
//!
//! It follows no redirect, takes no proxy from the environment, and shows no secret in an error.

use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use serde::de::DeserializeOwned;
use url::Url;

use super::super::USER_AGENT;
use super::super::target::{cut, is_secret};
use super::super::untrusted::visible;
use crate::error_chain::error_chain;
use crate::secrets::Secrets;
use crate::tool_call::ToolError;

/// A client for one search engine.
pub(super) struct JsonClient {
    /// The name of the engine, for errors.
    name: &'static str,
    /// What a person must check if the engine refuses requests.
    setting: &'static str,
    address: Result<Url, url::ParseError>,
    client: Result<reqwest::Client, String>,
    headers: Result<HeaderMap, &'static str>,
    secrets: Secrets,
}

impl JsonClient {
    pub(super) fn new(name: &'static str, setting: &'static str, address: &str) -> Self {
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .user_agent(USER_AGENT)
            .build()
            .map_err(|error| error_chain(&error));
        let headers = Ok(HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]));
        let address_later = Err(url::ParseError::EmptyHost);
        let mut this = Self { name, setting, address: address_later, client, headers, secrets: Secrets::default() };
        this.set_address(address);
        this
    }

    pub(super) fn set_address(&mut self, address: &str) {
        self.address = Url::parse(address.trim());
        let Ok(url) = &self.address else { return };
        let decoded = |text: &str| {
            let text = text.replace('+', "%2B");
            url::form_urlencoded::parse(text.as_bytes()).map(|(name, _)| name.into_owned()).next()
        };
        let user = [url.username(), url.password().unwrap_or_default()];
        let user = user.into_iter().flat_map(|text| [Some(text.to_owned()), decoded(text)]).flatten();
        let query = url.query_pairs().filter(|(name, _)| is_secret(name)).map(|(_, value)| value.into_owned());
        user.chain(query).for_each(|secret| self.secrets.add(secret.into()));
    }

    /// Sends a header with a secret value. One that no header can carry makes each search fail.
    pub(super) fn secret_header(&mut self, name: &str, secret: &str) {
        secret.split_whitespace().for_each(|part| self.secrets.add(part.into()));
        let Ok(headers) = &mut self.headers else { return };
        match HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_str(secret).ok()) {
            Some((name, mut value)) => {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
            None => self.headers = Err("a header holds characters that no header can carry"),
        }
    }

    /// GETs `path` below the address.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        parameters: &[(&str, &str)],
    ) -> Result<T, ToolError> {
        let mut url = self.address.clone().map_err(|error| format!("{}: invalid address: {error}", self.name))?;
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path.split('/'));
        }
        url.query_pairs_mut().extend_pairs(parameters);
        let client = self.client.as_ref().map_err(|error| format!("no HTTP client: {error}"))?;
        let headers = self.headers.clone().map_err(|error| format!("{}: {error}", self.name))?;
        let sending = client.get(url).headers(headers).send();
        let mut response = sending.await.map_err(|error| self.failed(error))?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.failed(error))? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_BYTES {
                return Err(format!("{}: an answer of more than {MAX_BYTES} bytes", self.name).into());
            }
        }
        match response.status() {
            status if status.is_success() => serde_json::from_slice(&body)
                .map_err(|error| format!("{}: an unexpected answer: {error}", self.name).into()),
            status => Err(self.refused(status.as_u16(), &body)),
        }
    }

    fn refused(&self, status: u16, body: &[u8]) -> ToolError {
        let said = visible(&self.secrets.redact(&String::from_utf8_lossy(body)));
        let said = cut(said.trim(), MAX_SHOWN);
        let separator = if said.is_empty() { "" } else { ": " };
        let what = format!("{}: HTTP {status}{separator}{said}", self.name);
        match status {
            401 | 403 => ToolError::authentication(self.setting, what),
            _ => what.into(),
        }
    }

    fn failed(&self, error: reqwest::Error) -> ToolError {
        let is_connect = error.is_connect();
        // The URL may have a secret in it.
        let chain = error_chain(&error.without_url());
        let message = format!("{}: {}", self.name, self.secrets.redact(&chain));
        if is_connect { ToolError::network(message) } else { message.into() }
    }
}

/// The most bytes of an answer, decompressed.
const MAX_BYTES: usize = 2 << 20;
const MAX_SHOWN: usize = 300;
