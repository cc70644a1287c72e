//! One request to a model, with its events, its span, and what it uses of the limits of callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::TryFutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tracing::{Instrument as _, Span};

use crate::answer_delta::AnswerDeltas;
use crate::error::CallError;
use crate::event::EventKind;
use crate::outcome::Outcome;
use crate::poll_timer::PollTimer;
use crate::provider::{Attempts, Delta, DeltaSink, NextAttempt, ProviderError, ProviderErrorKind, Request};
use crate::reply::{Reply, Usage};
use crate::run_context::Meter;
use crate::snapshot::AgentEntry;
use crate::telemetry::{InvocationTrace, RequestTrace};

/// Sends one request to the model, and records its usage, even if the future is dropped before its end.
pub(crate) async fn request(
    call: &Outcome,
    request: &Request,
    AgentEntry { agent, provider_name, provider, .. }: &AgentEntry,
    trace: Option<&InvocationTrace>,
) -> Result<Reply, CallError> {
    let meter = call.forward.run.admission.clone().map(|admission| admission.meter());
    if let Some(meter) = &meter {
        meter.reserve(request).await?;
    }
    let attempts = CallAttempts { call, request, meter, is_next: AtomicBool::new(false), usage: Mutex::default() };
    let turn = request.context.turns() + 1;
    call.emit_to_streams(|| EventKind::ModelRequest { turn, model: Arc::clone(&agent.model) });
    let is_observed = call.scope.is_streamed();
    let has_text = call.forward.answer_type.is_none() && agent.answer_type.is_none();
    let trace = trace.map(|trace| trace.request(request, !has_text, is_observed));
    // Made by the first piece, because most calls are not streamed.
    let mut answer: Option<Box<AnswerDeltas>> = None;
    let mut emit = |delta| {
        trace.iter().for_each(|trace| trace.piece());
        if attempts.is_next.swap(false, Ordering::Relaxed) {
            answer = None;
            // Another attempt at the rest of a paused reply: the answer begins anew, with the text before the rest.
            if has_text && request.context.is_paused() {
                let delta = Delta::Answer { text: request.context.resumed(None), begins: true };
                call.emit_to_streams(|| EventKind::ModelDelta { delta });
            }
        }
        let answer = answer.get_or_insert_with(|| Box::new(AnswerDeltas::new(request.context.is_paused())));
        let answer = answer.next(&delta).filter(|_| has_text);
        for delta in [Some(delta), answer].into_iter().flatten() {
            call.emit_to_streams(|| EventKind::ModelDelta { delta });
        }
    };
    let deltas = match is_observed {
        true => DeltaSink::to(&mut emit),
        false => DeltaSink::none(),
    };
    let span = trace.as_ref().map_or_else(Span::none, |trace| trace.span());
    let begun = Instant::now();
    let deltas = deltas.attempts(&attempts);
    let mut guard = ModelCallGuard { attempts: &attempts, trace: trace.as_ref(), begun, deltas, is_over: false };
    let replying = provider.reply(request, &mut guard.deltas);
    let (reply, latency) = PollTimer::new(replying, begun, call, "provider", provider_name).instrument(span).await;
    guard.end(&reply, latency);
    let refused = attempts.meter.and_then(|meter| meter.refused());
    reply.map_err(|error| refused.unwrap_or_else(|| CallError::Provider { provider: Arc::clone(provider_name), error }))
}

/// The attempts of one request of a call.
struct CallAttempts<'a> {
    call: &'a Outcome,
    request: &'a Request,
    meter: Option<Box<dyn Meter>>,
    /// Whether an attempt has begun of which no piece has arrived: the answer begins anew.
    is_next: AtomicBool,
    usage: Mutex<KnownUsage>,
}

/// The usage of the attempts of one request that have ended, and that of the present one so far, where they are known.
type KnownUsage = (Option<Usage>, Option<Usage>);

fn sum((ended, present): KnownUsage) -> Option<Usage> {
    ended.into_iter().chain(present).reduce(std::ops::Add::add)
}

impl Attempts for CallAttempts<'_> {
    fn next<'a>(
        &'a self,
        NextAttempt { error, settled, pause }: NextAttempt<'a>,
    ) -> BoxFuture<'a, Result<(), ProviderError>> {
        self.is_next.store(true, Ordering::Relaxed);
        self.call.emit_to_streams(|| match pause {
            Some(pause) => EventKind::ModelRetry { error: error.clone(), pause },
            None => EventKind::ModelFallback { error: error.clone() },
        });
        let used = error.usage().map(|usage| usage.without(settled));
        let ended = self.settled();
        *self.usage.lock() = (sum((ended, used)), None);
        let Some(meter) = &self.meter else { return Box::pin(std::future::ready(Ok(()))) };
        meter.settle(used);
        Box::pin(meter.reserve(self.request).map_err(move |refused| {
            let message = format!("{refused}; before, {error}");
            ProviderError { should_retry: Some(false), ..ProviderError::new(ProviderErrorKind::Other, message) }
        }))
    }

    fn sent(&self, body: &[u8]) {
        if self.call.scope.telemetry().records_content() {
            self.call.emit_to_streams(|| EventKind::ModelSent { body: String::from_utf8_lossy(body).into() });
        }
    }

    fn settled(&self) -> Option<Usage> {
        self.usage.lock().0
    }

    fn usage_so_far(&self, usage: Usage) {
        self.usage.lock().1 = Some(usage);
    }
}

/// A running request to a model. If it is dropped before its end, it emits the usage that is known so far.
struct ModelCallGuard<'a> {
    attempts: &'a CallAttempts<'a>,
    trace: Option<&'a RequestTrace>,
    begun: Instant,
    deltas: DeltaSink<'a>,
    is_over: bool,
}

impl ModelCallGuard<'_> {
    fn end(mut self, reply: &Result<Reply, ProviderError>, latency: Duration) {
        self.is_over = true;
        self.trace.iter().for_each(|trace| trace.end(reply));
        if let Some(meter) = &self.attempts.meter {
            let settled = self.attempts.settled().unwrap_or_default();
            let used = reply.as_ref().map_or_else(ProviderError::usage, |reply| reply.usage);
            meter.settle(used.map(|used| used.without(settled)));
        }
        self.attempts.call.emit(|| match reply {
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
            let (known, latency) = (*self.attempts.usage.lock(), self.begun.elapsed());
            let usage = sum(known);
            self.trace.iter().for_each(|trace| trace.abort(usage));
            self.attempts.meter.iter().for_each(|meter| meter.settle(known.1));
            self.attempts.call.emit(|| EventKind::ModelAborted { usage, latency });
        }
    }
}
