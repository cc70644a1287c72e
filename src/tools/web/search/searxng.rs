//! The search engine [SearXNG](https://docs.searxng.org/dev/search_api.html), which a program can host itself.

use std::fmt;

use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use super::json_client::JsonClient;
use super::{SearchEngine, SearchResult};
use crate::tool_call::ToolError;

/// An instance of SearXNG. Its settings must have `json` among `search.formats`.
pub struct SearxNg {
    client: JsonClient,
}

impl SearxNg {
    /// The instance at a URL, which may be on this machine. A user and a password in the URL are sent, and never shown.
    #[must_use]
    pub fn at(url: &str) -> Self {
        Self { client: JsonClient::new("SearXNG", "search.formats of the instance, which needs json", url) }
    }

    /// Sends a header with each search, such as a key of a proxy in front of the instance. Its value is a secret.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<SecretString>) -> Self {
        self.client.secret_header(name, value.into().expose_secret());
        self
    }
}

impl SearchEngine for SearxNg {
    fn search<'a>(&'a self, query: &'a str, _: usize) -> BoxFuture<'a, Result<Vec<SearchResult>, ToolError>> {
        Box::pin(async move {
            let answer: Answer = self.client.get("search", &[("q", query), ("format", "json")]).await?;
            let found = answer.results.into_iter();
            Ok(found
                .map(|Found { title, url, content }| SearchResult {
                    title: title.unwrap_or_default(),
                    url,
                    snippet: content.unwrap_or_default(),
                })
                .collect())
        })
    }
}

impl fmt::Debug for SearxNg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SearxNg").finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Answer {
    results: Vec<Found>,
}

#[derive(Deserialize)]
struct Found {
    title: Option<String>,
    url: String,
    content: Option<String>,
}
