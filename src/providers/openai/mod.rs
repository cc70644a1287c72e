//! OpenAI's Chat Completions, and the many servers that speak it too.
//!
//! Follows the [API reference](https://platform.openai.com/docs/api-reference/chat), and reads what other
//! servers make of it.

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
/// The base URL is what stands before `/chat/completions`; default `https://api.openai.com/v1`. Environment:
/// `OPENAI_API_KEY`, `OPENAI_BASE_URL`.
///
/// **OpenAI's own models** from GPT-5.4 on refuse tools beside reasoning here, and every agent has tools. Without
/// [`reasoning`](crate::Agent::reasoning) they do not reason; with it, the call fails and says so. For tools and
/// reasoning use [`OpenAiResponses`](crate::providers::openai_responses::OpenAiResponses).
///
/// **Settings.** Of [`Reasoning`](crate::Reasoning) the effort is sent (`reasoning_effort`), the budget is not; a
/// temperature is not sent beside it, nor to OpenAI's models that reason. The limit of tokens is `max_completion_tokens`, or
/// `max_tokens` where the [`Profile`] says so.
///
/// **Attachments.** An image becomes an `image_url`, a sound an `input_audio`, a document a `file`. The
/// API takes documents as PDF only, so text becomes text; what it does not take, such as an archive, or more than 20 MiB
/// in base64, the model is told of in text. It takes sounds and documents as bytes only; of those that have an address, the model is told the
/// address. It takes no attachments in the result of a tool either: they follow in a user message, after
/// the results of the same turn. What a model attached to a reply of its own is named in its text:
/// `[attached: image/png a.png]`.
///
/// **Reasoning** goes back to the server in the field it came in (`reasoning_content`, `reasoning` or
/// `reasoning_details`) as long as the model is at work with tools, because
/// [some](https://api-docs.deepseek.com/guides/thinking_mode) [servers](https://openrouter.ai/docs/use-cases/reasoning-tokens)
/// need it there; so do the signatures of
/// [Gemini's](https://ai.google.dev/gemini-api/docs/thought-signatures) tool calls (`extra_content`).
pub type OpenAi = Api<ChatCompletions>;

impl OpenAi {
    /// The server's own way to speak the format. Default: as its address says; a server behind a proxy or at an address
    /// of your own needs this, such as `Profile::Mistral` for Mistral's models on vLLM.
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

/// The key under which [`Reply::opaque`](crate::Reply::opaque) holds what this format needs.
const OPAQUE: &str = "chat_completions";
