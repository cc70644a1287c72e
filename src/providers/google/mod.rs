//! Google's `generateContent`, through which Gemini and Gemma are reached.
//!
//! Follows the [API reference](https://ai.google.dev/api/generate-content).

mod reply;
mod request;

use crate::provider::Request;
use crate::providers::http::api::Api;
use crate::providers::http::client::ResponseMode;
use crate::providers::http::encode::{MessageList, RequestFields};
use crate::providers::http::wire_format::{Vendor, WireFormat};

/// Google's Gemini API, or another server that speaks `generateContent`.
///
/// ```
/// use agentouto::providers::google::Google;
///
/// let google = Google::new("AIza…");
/// let proxy = Google::keyless("http://localhost:8080");
/// ```
///
/// The base URL is what stands before `/models`; where no part of it is a version of the API, `/v1beta` is added.
/// Default `https://generativelanguage.googleapis.com`. A model whose name has a `/`, such as `tunedModels/…`, takes the
/// place of `models/…` there. Environment: `GEMINI_API_KEY` or else `GOOGLE_API_KEY`; `GOOGLE_GEMINI_BASE_URL`.
///
/// **Settings.** Temperature and limit of tokens are sent as they are. [`Reasoning`](crate::Reasoning) becomes a
/// [level of thinking](https://ai.google.dev/gemini-api/docs/thinking) from Gemini 3 on, and a budget before that; thoughts
/// are asked for. An effort without a budget stands for 1,024 (low), 8,192 (medium) or 24,576 (high) tokens, which is what
/// [Google's own mapping](https://ai.google.dev/gemini-api/docs/openai#thinking) says. A budget that a model does not take
/// is raised or lowered to the nearest that it does. [`Effort::None`](crate::Effort) is a budget of 0, or the least that
/// a model takes that always thinks. [`extra`](crate::Agent::extra) overrides this:
/// `extra("generationConfig", json!({"thinkingConfig": {"thinkingLevel": "high"}}))`.
///
/// **Attachments** become `inlineData`, or `fileData` where they have an address. Those of tool results stand within the
/// result from Gemini 3 on, and follow in a message of their own before that. What the API does not take, such as an
/// archive, or more than 20 MiB in base64, the model is told of in text. What the model makes
/// itself, such as pictures, is in [`Reply::attachments`](crate::Reply::attachments), and goes back in its part of the reply.
///
/// **Reasoning** goes back to the server as its
/// [thought signatures](https://ai.google.dev/gemini-api/docs/thought-signatures), each in its part of the reply; so do
/// the parts of tools that the server runs itself. The thoughts themselves do not, unless they are signed. Tool calls
/// that another provider made have no signatures. Google asks for none in a [`history`](crate::Forward::history), but
/// Gemini 3 refuses to go on with a call in whose midst the provider was changed.
pub type Google = Api<GenerateContent>;

/// The wire format of [`Google`].
#[derive(Debug)]
pub enum GenerateContent {}

impl WireFormat for GenerateContent {
    const VENDOR: Vendor = Vendor {
        name: "Google",
        address: "https://generativelanguage.googleapis.com",
        key_header: "x-goog-api-key",
        key_prefix: "",
        headers: &[],
        key_variables: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        address_variable: "GOOGLE_GEMINI_BASE_URL",
    };
    const MESSAGES: &'static str = "contents";
    type Decoder = reply::Decoder;
    type Profile = ();

    fn url(address: &str, model: &str, expect: ResponseMode) -> String {
        let folder = if model.contains('/') { "" } else { "models/" };
        let method = match expect {
            ResponseMode::Json => "generateContent",
            ResponseMode::EventStream => "streamGenerateContent?alt=sse",
        };
        // Google's own clients name the server alone, gateways often the version too.
        let path = address.split_once("://").map_or(address, |(_, rest)| rest).split('/').skip(1);
        let mut versions = path.filter_map(|part| part.strip_prefix('v'));
        let version = if versions.any(|rest| rest.starts_with(char::is_numeric)) { "" } else { "/v1beta" };
        format!("{address}{version}/{folder}{model}:{method}")
    }

    fn fields(request: &Request, _: ResponseMode, (): (), fields: &mut RequestFields<'_>) -> serde_json::Result<()> {
        request::fields(request, fields)
    }

    fn messages(request: &Request, encoded: usize, (): (), list: &mut MessageList<'_>) -> serde_json::Result<()> {
        request::messages(request, encoded, list)
    }
}

/// The key under which [`Reply::opaque`](crate::Reply::opaque) holds what this format needs.
const OPAQUE: &str = "generate_content";
