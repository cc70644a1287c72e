//! Anthropic's Messages, for Anthropic and the other servers that support it.
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
/// The base URL is the part before `/v1/messages`, with or without the `/v1`; default `https://api.anthropic.com`.
/// Environment variables: `ANTHROPIC_API_KEY`, `ANTHROPIC_BASE_URL`.
///
/// **Settings.** The API requires a limit of tokens. If the agent has none, it is 32,000 from Claude 3.7 on, 8,192 for
/// 3.5, 4,096 for 3, and 8,192 for other models, and at least 4,096 more than a budget.
///
/// [`Reasoning`](crate::Reasoning) becomes [adaptive
/// thinking](https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking) with its effort from Claude 4.6
/// on, with a summary of the thoughts. Older models think [with a
/// budget](https://platform.claude.com/docs/en/build-with-claude/extended-thinking); so does 4.6 if a budget is set. An
/// effort without a budget stands for 1,024 (low), 4,096 (medium) or 16,384 (high) tokens, or fewer if the limit of
/// tokens is lower. A budget below 1,024 is raised to 1,024. [`Effort::None`](crate::Effort) turns thinking off; for
/// models that always think, it is sent as effort `low`.
///
/// A temperature is not sent together with reasoning, and never from Claude 4.7 on, which refuses one.
/// [`extra`](crate::Agent::extra) overrides all this. Prompt caching: `extra("cache_control", json!({"type":
/// "ephemeral"}))`.
///
/// **Attachments.** An image becomes an `image`, a document a `document` (text as text, anything else as PDF), both in
/// messages and in results of tools. If the API does not accept an attachment, such as audio, an archive or an image of
/// more than 5 MiB in base64, the model gets a note in the text instead. A text of only white space is sent as `(no
/// text)`, or left out of a reply. An attachment of another model's reply is named in its text: `[attached: image/png
/// a.png]`.
///
/// **Reasoning** is sent back to the server with its signatures, in its position among the blocks of the reply; so are
/// the blocks of tools that the server runs itself.
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

/// The key of this format's data in [`Reply::opaque`](crate::Reply::opaque).
const OPAQUE: &str = "messages";
