//! The search engine [Brave](https://api-dashboard.search.brave.com/app/documentation/web-search/get-started).

use std::fmt;

use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use super::json_client::JsonClient;
use super::{SearchEngine, SearchResult};
use crate::tool_call::{ToolError, ToolErrorKind};

/// The search engine Brave, by its API. Its key is never shown.
pub struct Brave {
    has_key: bool,
    client: JsonClient,
}

impl Brave {
    /// The API with a key. White space around the key is removed.
    pub fn new(key: impl Into<SecretString>) -> Self {
        let key = key.into();
        let key = key.expose_secret().trim();
        let mut client = JsonClient::new("Brave", VARIABLE, ADDRESS);
        client.secret_header("x-subscription-token", key);
        Self { has_key: !key.is_empty(), client }
    }

    /// The API with the key from the environment variable `BRAVE_API_KEY`. Without one, each search fails, and the model
    /// reads `BRAVE_API_KEY not configured`.
    #[must_use]
    pub fn from_env() -> Self {
        Self::new(std::env::var(VARIABLE).unwrap_or_default())
    }

    /// Sets the URL of another server that speaks the same API. Default: that of Brave.
    #[must_use]
    pub fn base_url(mut self, url: &str) -> Self {
        self.client.set_address(url);
        self
    }
}

const ADDRESS: &str = "https://api.search.brave.com/res/v1";
const VARIABLE: &str = "BRAVE_API_KEY";

impl SearchEngine for Brave {
    fn search<'a>(&'a self, query: &'a str, count: usize) -> BoxFuture<'a, Result<Vec<SearchResult>, ToolError>> {
        Box::pin(async move {
            if !self.has_key {
                let message = format!("{VARIABLE} not configured").into();
                return Err(ToolError { kind: ToolErrorKind::Authentication, message });
            }
            let count = count.to_string();
            let parameters = [("q", query), ("count", &count), ("text_decorations", "false")];
            let answer: Answer = self.client.get("web/search", &parameters).await?;
            let found = answer.web.unwrap_or_default().results.into_iter();
            Ok(found
                .map(|Found { title, url, description }| SearchResult { title, url, snippet: description })
                .collect())
        })
    }
}

impl fmt::Debug for Brave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Brave").field("has_key", &self.has_key).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Answer {
    /// Missing if nothing was found.
    web: Option<Results>,
}

#[derive(Default, Deserialize)]
struct Results {
    #[serde(default)]
    results: Vec<Found>,
}

#[derive(Deserialize)]
struct Found {
    #[serde(default)]
    title: String,
    url: String,
    #[serde(default)]
    description: String,
}
