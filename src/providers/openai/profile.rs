//! The differences between OpenAI and other servers that speak Chat Completions, as of 2026-11-22.
//!
//! Nothing here sends a request.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// A server's variant of Chat Completions, derived from the address or [set](super::OpenAi::profile).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Profile {
    /// OpenAI, and all servers that behave like it: Azure, OpenRouter, xAI, vLLM, Bedrock, Together, llama.cpp.
    #[default]
    OpenAi,
    /// Servers that know the limit of output tokens only as `max_tokens`, such as
    /// [Ollama](https://docs.ollama.com/api/openai-compatibility), LM Studio and
    /// [DeepSeek](https://api-docs.deepseek.com/api/create-chat-completion). They silently ignore the other name.
    MaxTokens,
    /// [Mistral](https://docs.mistral.ai/api/#tag/chat): `max_tokens`; tool call ids of nine letters and digits; and no
    /// `user` message directly after a tool result, so an `assistant` message is inserted between them. Also for
    /// Mistral's models on vLLM, whose template requires the same.
    Mistral,
    /// [Groq](https://console.groq.com/docs/reasoning): reasoning is sent back only to `gpt-oss`.
    Groq,
    /// [Perplexity](https://docs.perplexity.ai/api-reference/chat-completions-post): `max_tokens`, and no tools.
    Perplexity,
}

impl Profile {
    /// The profile of the server at an address.
    pub(super) fn of(address: &str) -> Self {
        let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let server = authority.rsplit('@').next().unwrap_or_default().to_ascii_lowercase();
        let (host, port) = server.rsplit_once(':').unwrap_or((&server, ""));
        let is_of = |domain: &str| host == domain || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
        match port {
            // The ports of Ollama and of LM Studio.
            "11434" | "1234" => Self::MaxTokens,
            _ if is_of("ollama.com") || is_of("deepseek.com") => Self::MaxTokens,
            _ if is_of("mistral.ai") => Self::Mistral,
            _ if is_of("groq.com") => Self::Groq,
            _ if is_of("perplexity.ai") => Self::Perplexity,
            _ => Self::OpenAi,
        }
    }

    /// The field that holds the limit of output tokens.
    pub(super) fn limit_field(self) -> &'static str {
        match self {
            Self::OpenAi | Self::Groq => "max_completion_tokens",
            Self::MaxTokens | Self::Mistral | Self::Perplexity => "max_tokens",
        }
    }

    /// The text of the assistant message between tool results and a user message, if the server requires one.
    pub(super) fn before_user(self) -> Option<&'static str> {
        (self == Self::Mistral).then_some("OK")
    }

    /// Returns whether reasoning is sent back to the model.
    pub(super) fn returns_reasoning(self, model: &str) -> bool {
        self != Self::Groq || model.contains("gpt-oss")
    }

    /// The id of a tool call in a form that the server accepts.
    pub(super) fn id(self, id: &str) -> Cow<'_, str> {
        let is_fine = id.len() == MISTRAL_ID && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if self != Self::Mistral || is_fine {
            return Cow::Borrowed(id);
        }
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        Cow::Owned(format!("{:09x}", hasher.finish() >> (64 - 4 * MISTRAL_ID)))
    }
}

const MISTRAL_ID: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_its_address() {
        for (address, profile) in [
            ("https://api.openai.com/v1", Profile::OpenAi),
            ("https://api.mistral.ai/v1", Profile::Mistral),
            ("https://mistral.ai.example.com/v1", Profile::OpenAi),
            ("https://notmistral.ai/v1", Profile::OpenAi),
            ("http://localhost:11434/v1", Profile::MaxTokens),
            ("http://user:pass@192.168.0.2:1234/v1", Profile::MaxTokens),
            ("https://ollama.com/v1", Profile::MaxTokens),
            ("https://api.deepseek.com", Profile::MaxTokens),
            ("https://API.Groq.com/openai/v1", Profile::Groq),
            ("https://api.perplexity.ai", Profile::Perplexity),
            ("http://localhost:8080/v1", Profile::OpenAi),
            ("", Profile::OpenAi),
        ] {
            assert_eq!(Profile::of(address), profile, "{address}");
        }
    }

    #[test]
    fn ids_for_mistral_have_nine_letters_and_digits() {
        assert_eq!(Profile::Mistral.id("6IgxW8LfZ"), "6IgxW8LfZ");
        let (one, other) = (Profile::Mistral.id("null_1"), Profile::Mistral.id("call_0"));
        assert!(one.len() == 9 && other.len() == 9 && one != other, "{one} {other}");
        assert_eq!(Profile::OpenAi.id("null_1"), "null_1");
    }
}
