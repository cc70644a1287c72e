//! OpenAI's Responses, for OpenAI and the other servers that support it.
//!
//! Follows the [API reference](https://platform.openai.com/docs/api-reference/responses), its [streaming
//! events](https://platform.openai.com/docs/api-reference/responses-streaming) and the guide to
//! [reasoning](https://platform.openai.com/docs/guides/reasoning).

mod reply;
mod request;

use crate::provider::Request;
use crate::providers::http::api::Api;
use crate::providers::http::client::ResponseMode;
use crate::providers::http::encode::{MessageList, RequestFields};
use crate::providers::http::wire_format::{Vendor, WireFormat};
use crate::providers::openai::ChatCompletions;

/// A server that speaks Responses: OpenAI, Azure, xAI, OpenRouter, vLLM, llama.cpp and others.
///
/// ```
/// use agentouto::providers::openai_responses::OpenAiResponses;
///
/// let openai = OpenAiResponses::new("sk-…");
/// let llama = OpenAiResponses::keyless("http://localhost:8080/v1");
/// ```
///
/// The base URL is the part before `/responses`; default `https://api.openai.com/v1`. Environment variables:
/// `OPENAI_API_KEY`, `OPENAI_BASE_URL`.
///
/// **Settings.** The system prompt is sent as `instructions`, the limit of tokens as `max_output_tokens`. The effort of
/// [`Reasoning`](crate::Reasoning) is sent, its budget is not. A temperature is not sent together with an effort, nor
/// to OpenAI's reasoning models. [`Effort::None`](crate::Effort) becomes the lowest effort that the model accepts.
/// Tools are sent with `strict: false`, because the API would change their schemas otherwise.
///
/// **Summaries** of the reasoning are not requested: some models give them only to [verified
/// organizations](https://help.openai.com/en/articles/10910291-api-organization-verification). To request them, use
/// `extra("reasoning", json!({"summary": "auto"}))`; see [`extra`](crate::Agent::extra).
///
/// **Attachments.** An image becomes an `input_image`, a document an `input_file`, both in user messages and in the
/// result of a tool. If the API does not accept an attachment, such as audio, an archive or more than 20 MiB in base64,
/// the model gets a note in the text instead. An attachment of the model's own reply is sent back as the item in which
/// it arrived, or else named in the text: `[attached: image/png a.png]`.
///
/// **Reasoning** and the items of built-in tools are sent back to the server unchanged, so that the model need not
/// reason again; so is the `phase` of a message. When the agent has an effort, the reasoning is requested in [encrypted
/// form](https://platform.openai.com/docs/guides/reasoning#encrypted-reasoning-items), by `include`. Models without
/// reasoning refuse that, so otherwise it is not requested.
///
/// **Storage.** Each server has its own default for storing replies; OpenAI stores them. With `extra("store", false)`
/// the server does not, and each request contains all that it needs. Reasoning that is not encrypted cannot be sent
/// back then: of a reply with such reasoning, only the text and the tool calls are sent back. For a model that reasons
/// by default, add `extra("include", json!(["reasoning.encrypted_content"]))`. An organization without data retention
/// needs the same settings.
pub type OpenAiResponses = Api<Responses>;

/// The wire format of [`OpenAiResponses`].
#[derive(Debug)]
pub enum Responses {}

impl WireFormat for Responses {
    const VENDOR: Vendor = Vendor { name: "OpenAiResponses", ..ChatCompletions::VENDOR };
    const MESSAGES: &'static str = "input";
    type Decoder = reply::Decoder;
    type Profile = ();

    fn url(address: &str, _: &str, _: ResponseMode) -> String {
        format!("{}/responses", address.trim_end_matches("/responses"))
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
        request::messages(request, encoded, list)
    }
}

/// The key in [`Reply::opaque`](crate::Reply::opaque) of the output items that the server needs back.
const OPAQUE: &str = "responses";
