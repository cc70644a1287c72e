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
use crate::providers::http::wire_format::{CacheMark, Vendor, WireFormat};

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
/// [`extra`](crate::Agent::extra) overrides all this.
///
/// **Prompt caching** is on for Anthropic's own server, and off for others, because some refuse the mark; see
/// [`prompt_caching`](Anthropic::prompt_caching). Then [`cache_control`] marks the last tool, which all agents of a
/// runtime share, the system prompt, and the end of the conversation in this request and the one before: four marks,
/// which is as many as the API takes. So each turn reads from the cache what the turn before has written. What is
/// shorter than the model's minimum (512 to 4,096 tokens) is not cached and costs no more. Writing costs 1.25 times as
/// much as other input, reading a tenth; [`Usage`](crate::Usage) counts both. What was not read for five minutes is
/// forgotten.
///
/// An agent whose [`extra`](crate::Agent::extra) has a `cache_control` anywhere gets no other marks: an hour instead of
/// five minutes is `extra("cache_control", json!({"type": "ephemeral", "ttl": "1h"}))`, where the server places the
/// mark, and `extra("cache_control", Value::Null)` switches caching off for one agent.
///
/// [`cache_control`]: https://platform.claude.com/docs/en/build-with-claude/prompt-caching
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

impl Anthropic {
    /// Sets whether prompts are cached. Default: `true` for Anthropic's own server, `false` for another
    /// [`base_url`](Api::base_url).
    ///
    /// Claude on Amazon Bedrock, Vertex AI and Microsoft Foundry can cache as well.
    #[must_use]
    pub fn prompt_caching(mut self, is_on: bool) -> Self {
        self.set_profile(if is_on { PromptCaching::On } else { PromptCaching::Off });
        self
    }
}

/// Whether prompts are cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromptCaching {
    /// Marks are sent.
    On,
    /// No mark is sent.
    #[default]
    Off,
}

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
    type Profile = PromptCaching;

    fn profile(address: &str) -> PromptCaching {
        if address == Self::VENDOR.address { PromptCaching::On } else { PromptCaching::Off }
    }

    fn url(address: &str, _: &str, _: ResponseMode) -> String {
        format!("{}/v1/messages", address.trim_end_matches("/messages").trim_end_matches("/v1"))
    }

    fn fields(
        request: &Request,
        expect: ResponseMode,
        profile: PromptCaching,
        fields: &mut RequestFields<'_>,
    ) -> serde_json::Result<()> {
        request::fields(request, expect, request::caching(request, profile), fields)
    }

    fn messages(
        request: &Request,
        encoded: usize,
        profile: PromptCaching,
        list: &mut MessageList<'_>,
    ) -> serde_json::Result<()> {
        request::messages(&request.context, encoded, request::caching(request, profile), list)
    }

    fn cache_mark(request: &Request, profile: PromptCaching) -> Option<CacheMark> {
        request::cache_mark(&request.context, request::caching(request, profile))
    }
}

/// The key of this format's data in [`Reply::opaque`](crate::Reply::opaque).
const OPAQUE: &str = "messages";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_vendors_own_server_gets_marks_unless_the_program_says_so() {
        assert_eq!(Messages::profile("https://api.anthropic.com"), PromptCaching::On);
        assert_eq!(Messages::profile("https://bedrock-runtime.us-east-1.amazonaws.com"), PromptCaching::Off);
        assert_eq!(Messages::profile("http://localhost:8080"), PromptCaching::Off);
    }
}
