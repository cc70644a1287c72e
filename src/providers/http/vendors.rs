//! The vendors behind addresses, by the [names of the OpenTelemetry
//! conventions](https://opentelemetry.io/docs/specs/semconv/registry/attributes/gen-ai/#gen-ai-provider-name), as of
//! 2026-11-22. Nothing here sends a request.

use reqwest::Url;

use crate::provider::ProviderInfo;

/// The name for each domain and all below it.
const NAMES: [(&str, &str); 22] = [
    ("openai.com", "openai"),
    ("anthropic.com", "anthropic"),
    ("claude.com", "anthropic"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("googleapis.com", "gcp.gen_ai"),
    ("openai.azure.com", "azure.ai.openai"),
    ("cognitiveservices.azure.com", "azure.ai.openai"),
    ("services.ai.azure.com", "azure.ai.inference"),
    ("models.ai.azure.com", "azure.ai.inference"),
    ("cohere.com", "cohere"),
    ("cohere.ai", "cohere"),
    ("deepseek.com", "deepseek"),
    ("groq.com", "groq"),
    ("ml.cloud.ibm.com", "ibm.watsonx.ai"),
    ("mistral.ai", "mistral_ai"),
    ("moonshot.ai", "moonshot_ai"),
    ("moonshot.cn", "moonshot_ai"),
    ("perplexity.ai", "perplexity"),
    ("x.ai", "x_ai"),
    ("openrouter.ai", "openrouter"),
    ("ollama.com", "ollama"),
];

/// What a base URL says of its server. A user name, a password, a path and a query are left out, because they may be
/// secrets.
pub(super) fn info(address: &str) -> ProviderInfo {
    let url = Url::parse(address).ok();
    let host = url.as_ref().and_then(Url::host_str);
    ProviderInfo {
        name: host.and_then(name).map(Into::into),
        address: host.map(Into::into),
        port: url.as_ref().and_then(Url::port_or_known_default),
        streams: None,
    }
}

fn name(host: &str) -> Option<&'static str> {
    // One name per region: `bedrock-runtime.eu-west-1.amazonaws.com`, `europe-west1-aiplatform.googleapis.com`.
    if host.ends_with(".amazonaws.com") && host.starts_with("bedrock") {
        return Some("aws.bedrock");
    }
    if host.ends_with("-aiplatform.googleapis.com") {
        return Some("gcp.vertex_ai");
    }
    let is_of = |domain: &str| host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    NAMES.iter().find(|(domain, _)| is_of(domain)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vendor_has_the_name_of_the_conventions_and_no_secret_is_in_it() {
        for (address, name, host, port) in [
            ("https://api.openai.com/v1", Some("openai"), "api.openai.com", 443),
            ("https://api.anthropic.com", Some("anthropic"), "api.anthropic.com", 443),
            ("https://generativelanguage.googleapis.com", Some("gcp.gemini"), "generativelanguage.googleapis.com", 443),
            (
                "https://us-east5-aiplatform.googleapis.com/v1/projects/secret",
                Some("gcp.vertex_ai"),
                "us-east5-aiplatform.googleapis.com",
                443,
            ),
            ("https://mine.openai.azure.com/openai/v1?k=secret", Some("azure.ai.openai"), "mine.openai.azure.com", 443),
            (
                "https://bedrock-runtime.eu-west-1.amazonaws.com/v1",
                Some("aws.bedrock"),
                "bedrock-runtime.eu-west-1.amazonaws.com",
                443,
            ),
            ("https://api.x.ai/v1", Some("x_ai"), "api.x.ai", 443),
            ("https://api.max.ai/v1", None, "api.max.ai", 443),
            ("http://me:secret@127.0.0.1:11434/v1", None, "127.0.0.1", 11434),
            ("http://[::1]:80/v1", None, "[::1]", 80),
        ] {
            let found = info(address);
            assert_eq!((found.name.as_deref(), found.address.as_deref(), found.port), (name, Some(host), Some(port)));
            assert!(!format!("{found:?}").contains("secret"), "{found:?}");
        }
        assert_eq!(info("not a url"), ProviderInfo::default());
    }
}
