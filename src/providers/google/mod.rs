//! Google's `generateContent`, the format of Gemini and Gemma.
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
/// The base URL is the part before `/models`; if no part of it is a version of the API, `/v1beta` is added. Default
/// `https://generativelanguage.googleapis.com`. A model whose name contains a `/`, such as `tunedModels/…`, replaces
/// `models/…` in the path. Environment variables: `GEMINI_API_KEY` or else `GOOGLE_API_KEY`; `GOOGLE_GEMINI_BASE_URL`.
///
/// **Settings.** Temperature and limit of tokens are sent unchanged. [`Reasoning`](crate::Reasoning) becomes a
/// [thinking level](https://ai.google.dev/gemini-api/docs/thinking) from Gemini 3 on, and a budget before that;
/// thoughts are requested. An effort without a budget stands for 1,024 (low), 8,192 (medium) or 24,576 (high) tokens,
/// as in [Google's own mapping](https://ai.google.dev/gemini-api/docs/openai#thinking). A budget that a model does not
/// accept is raised or lowered to the nearest that it does. [`Effort::None`](crate::Effort) is a budget of 0, or the
/// lowest one that a model accepts if it always thinks. [`extra`](crate::Agent::extra) overrides this:
/// `extra("generationConfig", json!({"thinkingConfig": {"thinkingLevel": "high"}}))`.
///
/// **Attachments** become `inlineData`, or `fileData` if they have an address. Attachments of tool results are part of
/// the result from Gemini 3 on, and follow in a separate message before that. If the API does not accept an attachment,
/// such as an archive or more than 20 MiB in base64, the model gets a note in the text instead. Files that the model
/// generates, such as images, are in [`Reply::attachments`](crate::Reply::attachments), and are sent back in their part
/// of the reply.
///
/// **Reasoning** is sent back to the server as its [thought
/// signatures](https://ai.google.dev/gemini-api/docs/thought-signatures), each in its part of the reply; so are the
/// parts of tools that the server runs itself. The thoughts themselves are sent back only if they are signed. Tool
/// calls that another provider made have no signatures. From Gemini 3 on, which requires one, they get the [signature
/// that is not validated](https://ai.google.dev/gemini-api/docs/thought-signatures#faqs).
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
        // Google's own clients give only the host, gateways often give the version too.
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

/// The key of this format's data in [`Reply::opaque`](crate::Reply::opaque).
const OPAQUE: &str = "generate_content";
