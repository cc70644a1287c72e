//! Anthropic's Messages, and other servers that speak it.
//!
//! Follows the [API reference](https://docs.anthropic.com/en/api/messages) and its
//! [streaming](https://docs.anthropic.com/en/api/messages-streaming).

mod reply;
mod request;

use crate::provider::Request;
use crate::providers::http::api::Api;
use crate::providers::http::client::ResponseMode;
use crate::providers::http::encode::{MessageList, RequestFields};
use crate::providers::http::wire_format::{Vendor, WireFormat};

/// Anthropic, or another server that speaks its Messages format.
///
/// ```
/// use agentouto::providers::anthropic::Anthropic;
///
/// let anthropic = Anthropic::new("sk-ant-…");
/// let llama = Anthropic::keyless("http://localhost:8080");
/// ```
///
/// The base URL is what stands before `/v1/messages`, with or without the `/v1`; default `https://api.anthropic.com`. Environment:
/// `ANTHROPIC_API_KEY`, `ANTHROPIC_BASE_URL`.
///
/// **Settings.** The API needs a limit of tokens. Where the agent has none it is 32,000 from Claude 3.7 on, 8,192 (3.5) or
/// 4,096 (3) before that, and 8,192 for models of others, with at least 4,096 beside a budget.
///
/// [`Reasoning`](crate::Reasoning) becomes
/// [adaptive thinking](https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking) with its effort from
/// Claude 4.6 on, and its thoughts are asked for as a summary. Older models think
/// [with a budget](https://platform.claude.com/docs/en/build-with-claude/extended-thinking); so does 4.6 if there is one.
/// An effort without a budget stands for 1,024 (low), 4,096 (medium) or 16,384 (high) tokens, less where the limit of
/// tokens is lower. A budget below 1,024 is raised to that. [`Effort::None`](crate::Effort) turns thinking off, or is
/// effort `low` for models that always think.
///
/// A temperature is not sent beside it, and not at all from Claude 4.7 on, which refuses one.
/// [`extra`](crate::Agent::extra) overrides all this. Prompt caching: `extra("cache_control", json!({"type": "ephemeral"}))`.
///
/// **Attachments.** An image becomes an `image`, a document a `document` (text as text, anything else as PDF), both in
/// messages and in results of tools. What the API does not take, such as a sound, an archive or a picture of more than
/// 5 MiB in base64, the model is told of in text. A text without a letter is sent as `(no text)`, or left out of a reply.
/// What another model attached to a reply is named in its text: `[attached: image/png a.png]`.
///
/// **Reasoning** goes back to the server with its signatures, in its place among the blocks of the reply; so do the
/// blocks of tools that the server runs itself.
pub type Anthropic = Api<Messages>;

/// The wire format of [`Anthropic`].
#[derive(Debug)]
pub enum Messages {}

impl WireFormat for Messages {
    const VENDOR: Vendor = Vendor {
        name: "Anthropic",
        address: "https://api.anthropic.com",
        key_header: "x-api-key",
        key_prefix: "",
        headers: &[("anthropic-version", "2023-06-01")],
        key_variables: &["ANTHROPIC_API_KEY"],
        address_variable: "ANTHROPIC_BASE_URL",
    };
    const MESSAGES: &'static str = "messages";
    type Decoder = reply::Decoder;
    type Profile = ();

    fn url(address: &str, _: &str, _: ResponseMode) -> String {
        format!("{}/v1/messages", address.trim_end_matches("/messages").trim_end_matches("/v1"))
    }

    fn fields(
        request: &Request,
        expect: ResponseMode,
        (): (),
        fields: &mut RequestFields<'_>,
    ) -> serde_json::Result<()> {
        request::fields(request, expect, fields)
    }

    fn messages(request: &Request, encoded: usize, (): (), list: &mut MessageList<'_>) -> serde_json::Result<()> {
        request::messages(&request.context, encoded, list)
    }
}

/// The key under which [`Reply::opaque`](crate::Reply::opaque) holds what this format needs.
const OPAQUE: &str = "messages";
