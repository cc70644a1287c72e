//! One request to a model, with its events and its span.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::Instrument as _;

use crate::event::EventKind;
use crate::outcome::Outcome;
use crate::poll_timer::PollTimer;
use crate::provider::{DeltaSink, ProviderError, Request};
use crate::reply::Reply;
use crate::snapshot::AgentEntry;
use crate::span;

/// Sends one request to the model, and records its usage, even if the future is dropped before its end.
pub(crate) async fn request(
    call: &Outcome,
    request: &Request,
    AgentEntry { agent, provider_name, provider }: &AgentEntry,
) -> Result<Reply, ProviderError> {
    let turn = request.context.turns() + 1;
    call.emit_to_streams(|| EventKind::ModelRequest { turn, model: Arc::clone(&agent.model) });
    let mut emit = |delta| call.emit_to_streams(|| EventKind::ModelDelta { delta });
    let deltas = match call.scope.is_streamed() {
        true => DeltaSink::to(&mut emit),
        false => DeltaSink::none(),
    };
    let span = span::chat_span(request, provider_name);
    let begun = Instant::now();
    let mut guard = ModelCallGuard { call, begun, deltas, is_over: false };
    let replying = provider.reply(request, &mut guard.deltas);
    let (reply, latency) =
        PollTimer::new(replying, begun, call, "provider", provider_name).instrument(span.clone()).await;
    guard.end(&reply, latency);
    span::record_reply(&span, &reply);
    reply
}

/// A running request to a model. If it is dropped before its end, it emits the usage that is known so far.
struct ModelCallGuard<'a> {
    call: &'a Outcome,
    begun: Instant,
    deltas: DeltaSink<'a>,
    is_over: bool,
}

impl ModelCallGuard<'_> {
    fn end(mut self, reply: &Result<Reply, ProviderError>, latency: Duration) {
        self.is_over = true;
        self.call.emit(|| match reply {
            Ok(reply) => EventKind::ModelReply {
                usage: reply.usage,
                stop_reason: reply.stop_reason.clone(),
                tool_calls: reply.tool_calls.len(),
                latency,
            },
            Err(error) => EventKind::ModelError { error: error.clone(), latency },
        });
    }
}

impl Drop for ModelCallGuard<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let (usage, latency) = (self.deltas.known_usage(), self.begun.elapsed());
            self.call.emit(|| EventKind::ModelAborted { usage, latency });
        }
    }
}
