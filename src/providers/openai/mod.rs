//! OpenAI's Chat Completions, for OpenAI and the many other servers that support it.
//!
//! Follows the [API reference](https://platform.openai.com/docs/api-reference/chat), and reads the variants of other
//! servers.

mod profile;
mod reply;
mod request;

pub use profile::Profile;

use crate::provider::Request;
use crate::providers::http::api::Api;
use crate::providers::http::client::ResponseMode;
use crate::providers::http::encode::{MessageList, RequestFields};
use crate::providers::http::wire_format::{Vendor, WireFormat};

/// A server that speaks Chat Completions: OpenAI, vLLM, Ollama, llama.cpp, LM Studio, OpenRouter, Groq, DeepSeek,
/// Mistral, xAI and others.
///
/// ```
/// use agentouto::providers::openai::OpenAi;
///
/// let openai = OpenAi::new("sk-…");
/// let llama = OpenAi::keyless("http://localhost:8080/v1");
/// let azure = OpenAi::keyless("https://….openai.azure.com/openai/v1").header("api-key", "…");
/// ```
///
/// The base URL is the part before `/chat/completions`; default `https://api.openai.com/v1`. Environment variables:
/// `OPENAI_API_KEY`, `OPENAI_BASE_URL`.
///
/// **OpenAI's own models** from GPT-5.4 on refuse tools together with reasoning in this format, and every agent has
/// tools. Without [`reasoning`](crate::Agent::reasoning) these models do not reason; with it, the call fails with an
/// error that says so. For tools and reasoning use
/// [`OpenAiResponses`](crate::providers::openai_responses::OpenAiResponses).
///
/// **Settings.** The effort of [`Reasoning`](crate::Reasoning) is sent (`reasoning_effort`), its budget is not. A
/// temperature is not sent together with an effort, nor to OpenAI's reasoning models. The limit of tokens is sent as
/// `max_completion_tokens`, or as `max_tokens` if the [`Profile`] says so.
///
/// **Attachments.** An image becomes an `image_url`, audio an `input_audio`, a document a `file`. The API accepts
/// documents only as PDF, so a text document is sent as text. If the API does not accept an attachment, such as an
/// archive or more than 20 MiB in base64, the model gets a note in the text instead. Audio and documents are accepted
/// only as bytes; for those given by an address, the model gets the address in the text. The API accepts no attachments
/// in the result of a tool: they follow in a user message, after the results of the same turn. An attachment of the
/// model's own reply is named in the text of that reply: `[attached: image/png a.png]`.
///
/// **Reasoning** is sent back to the server in the field in which it arrived (`reasoning_content`, `reasoning` or
/// `reasoning_details`) while the model works with tools, because
/// [some](https://api-docs.deepseek.com/guides/thinking_mode)
/// [servers](https://openrouter.ai/docs/use-cases/reasoning-tokens) require that. So are the signatures of
/// [Gemini's](https://ai.google.dev/gemini-api/docs/thought-signatures) tool calls (`extra_content`).
pub type OpenAi = Api<ChatCompletions>;

impl OpenAi {
    /// Sets the server's variant of the format. Default: derived from the address.
    ///
    /// A server behind a proxy or at an address of your own needs this, such as `Profile::Mistral` for Mistral's models
    /// on vLLM.
    #[must_use]
    pub fn profile(mut self, profile: Profile) -> Self {
        self.set_profile(profile);
        self
    }
}

/// The wire format of [`OpenAi`].
#[derive(Debug)]
pub enum ChatCompletions {}

impl WireFormat for ChatCompletions {
    const VENDOR: Vendor = Vendor {
        name: "OpenAi",
        address: "https://api.openai.com/v1",
        key_header: "authorization",
        key_prefix: "Bearer ",
        headers: &[],
        key_variables: &["OPENAI_API_KEY"],
        address_variable: "OPENAI_BASE_URL",
    };
    const MESSAGES: &'static str = "messages";
    type Decoder = reply::Decoder;
    type Profile = Profile;

    fn profile(address: &str) -> Profile {
        Profile::of(address)
    }

    fn function_calling(profile: Profile) -> Option<bool> {
        (profile == Profile::Perplexity).then_some(false)
    }

    fn url(address: &str, _: &str, _: ResponseMode) -> String {
        format!("{}/chat/completions", address.trim_end_matches("/chat/completions"))
    }

    fn fields(
        request: &Request,
        expect: ResponseMode,
        profile: Profile,
        fields: &mut RequestFields<'_>,
    ) -> serde_json::Result<()> {
        request::fields(request, expect, profile, fields)
    }

    fn messages(
        request: &Request,
        encoded: usize,
        profile: Profile,
        list: &mut MessageList<'_>,
    ) -> serde_json::Result<()> {
        request::messages(request, encoded, profile, list)
    }
}

/// The key of this format's data in [`Reply::opaque`](crate::Reply::opaque).
const OPAQUE: &str = "chat_completions";
