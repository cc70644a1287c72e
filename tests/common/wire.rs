//! The four wire formats, and the provider that speaks each.

use std::sync::Arc;

use agentouto::Provider;
use agentouto::providers::anthropic::Anthropic;
use agentouto::providers::google::Google;
use agentouto::providers::openai::OpenAi;
use agentouto::providers::openai_responses::OpenAiResponses;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Chat,
    Responses,
    Messages,
    Gemini,
}

impl Wire {
    pub(crate) const ALL: &[Self] = &[Self::Chat, Self::Responses, Self::Messages, Self::Gemini];
}

/// What speaks `wire` to the server at `address`, which is `http://host:port`.
pub(crate) fn provider(wire: Wire, address: &str) -> Arc<dyn Provider> {
    match wire {
        Wire::Chat => Arc::new(OpenAi::keyless(&format!("{address}/v1"))),
        Wire::Messages => Arc::new(Anthropic::keyless(address)),
        Wire::Gemini => Arc::new(Google::keyless(&format!("{address}/v1beta"))),
        Wire::Responses => Arc::new(OpenAiResponses::keyless(&format!("{address}/v1"))),
    }
}
