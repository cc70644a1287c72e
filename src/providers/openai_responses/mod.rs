//! OpenAI's Responses, and the servers that speak it too.
//!
//! Follows the [API reference](https://platform.openai.com/docs/api-reference/responses), its
//! [streaming events](https://platform.openai.com/docs/api-reference/responses-streaming) and the guide to
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
/// The base URL is what stands before `/responses`; default `https://api.openai.com/v1`. Environment:
/// `OPENAI_API_KEY`, `OPENAI_BASE_URL`.
///
/// **Settings.** The system prompt is sent as `instructions`, the limit of tokens as `max_output_tokens`. Of
/// [`Reasoning`](crate::Reasoning) the effort is sent, the budget is not; a temperature is not sent beside it, nor to
/// OpenAI's models that reason. [`Effort::None`](crate::Effort) is the least effort that a model takes. Tools are sent with `strict: false`, because the API would change their schemas otherwise.
///
/// **Summaries** of the reasoning are not asked for: some models give them to
/// [verified organizations](https://help.openai.com/en/articles/10910291-api-organization-verification) only. Ask by
/// `extra("reasoning", json!({"summary": "auto"}))`; see [`extra`](crate::Agent::extra).
///
/// **Attachments.** An image becomes an `input_image`, a document an `input_file`, in what a user says and in the
/// result of a tool. What the API does not take, such as a sound, an archive or more than 20 MiB in
/// base64, the model is told of in text. What a model
/// attached to a reply goes back as the item that it came in, or else is named in the text: `[attached: image/png a.png]`.
///
/// **Reasoning** and the items of built-in tools go back to the server as they came, so that the model need not think
/// again; so does the `phase` of a message. When the agent has an effort, the server is asked for the reasoning in
/// [encrypted form](https://platform.openai.com/docs/guides/reasoning#encrypted-reasoning-items), by `include`. Models
/// that do not reason refuse that, so otherwise it is not asked for.
///
/// **Storage.** Whether a server keeps the replies is its own default; OpenAI does. With `extra("store", false)` it
/// does not, and all that it needs to know travels with each request. Reasoning that is not encrypted cannot go back
/// then: of a reply with such reasoning, text and tool calls go back alone. For a model that reasons unasked, add
/// `extra("include", json!(["reasoning.encrypted_content"]))`. An organization without data retention needs the same
/// settings.
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

/// The key under which [`Reply::opaque`](crate::Reply::opaque) holds the output items that the server must see again.
const OPAQUE: &str = "responses";
