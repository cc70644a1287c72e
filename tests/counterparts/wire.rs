//! The four wire formats, and the provider that speaks each.

use std::sync::Arc;

use agentouto::Provider;
use agentouto::providers::anthropic::Anthropic;
use agentouto::providers::google::Google;
use agentouto::providers::openai::OpenAi;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "not all are there yet, and not every test needs all")]
pub(crate) enum Wire {
    Chat,
    Responses,
    Messages,
    Gemini,
}

impl Wire {
    /// Those that have a provider.
    // TODO: `Responses`, when it has one.
    pub(crate) const ALL: &[Self] = &[Self::Chat, Self::Messages, Self::Gemini];
}

/// What speaks `wire` to the server at `address`, which is `http://host:port`.
pub(crate) fn provider(wire: Wire, address: &str) -> Arc<dyn Provider> {
    match wire {
        Wire::Chat => Arc::new(OpenAi::keyless(&format!("{address}/v1"))),
        Wire::Messages => Arc::new(Anthropic::keyless(address)),
        Wire::Gemini => Arc::new(Google::keyless(&format!("{address}/v1beta"))),
        // TODO: OpenAiResponses::keyless(&format!("{address}/v1"))
        Wire::Responses => unreachable!("{wire:?} has no provider yet"),
    }
}
