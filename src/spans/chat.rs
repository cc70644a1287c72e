//! The span of one request to a model.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use serde_json::Value;
use tracing::Span;
use tracing::field::Empty;

use super::invocation::{Shared, record_usage};
use super::{End, OwnSpan, dropped, error_type, fail, messages, record_list};
use crate::agent::{Agent, Effort};
use crate::panics::catch;
use crate::provider::{ProviderError, Request};
use crate::reply::{Reply, Usage};
use crate::telemetry::Traced;

/// One request.
pub(super) struct Chat {
    span: OwnSpan,
    shared: Arc<Shared>,
    begun: Instant,
    is_streamed: bool,
    /// The time of the last piece.
    last: Mutex<Option<Instant>>,
    end: End,
}

impl Chat {
    pub(super) fn begin(shared: &Arc<Shared>, request: &Request, is_typed: bool, is_observed: bool) -> Self {
        shared.sums.lock().requests += 1;
        let streams = shared.agent.as_ref().and_then(|entry| entry.info.streams);
        let is_streamed = streams.unwrap_or(is_observed);
        let span = shared.step(|| span(shared, request, is_typed, is_streamed));
        if !span.is_disabled() {
            if let Some(stop) = stop_sequences(&request.agent) {
                record_list(&span, "gen_ai.request.stop_sequences", &stop);
            }
            if shared.records_content {
                span.record("gen_ai.system_instructions", messages::system(request.context.system()));
                span.record("gen_ai.input.messages", messages::input(request.context.messages()));
                span.record("gen_ai.tool.definitions", messages::definitions(&request.tools));
            }
        }
        let (begun, last) = (Instant::now(), Mutex::default());
        Self { span, shared: Arc::clone(shared), begun, is_streamed, last, end: End::default() }
    }

    fn finish(&self, used: Option<Usage>, reply: Option<&Reply>, error: Option<Cow<'static, str>>) {
        if let Some(used) = used {
            record_usage(&self.span, used);
        }
        self.shared.add(used, reply.map(|reply| &reply.stop_reason));
        #[cfg(feature = "otel")]
        if let Some(instruments) = &self.shared.instruments {
            let model = reply.and_then(|reply| reply.model.as_deref());
            instruments.request(&self.shared, model, self.begun.elapsed(), used, error);
        }
        #[cfg(not(feature = "otel"))]
        drop(error);
    }

    fn record_reply(&self, reply: &Reply) {
        if self.span.is_disabled() {
            return;
        }
        self.span.record("gen_ai.response.id", reply.id.as_deref());
        self.span.record("gen_ai.response.model", reply.model.as_deref());
        record_list(&self.span, "gen_ai.response.finish_reasons", &[reply.stop_reason.to_string().into()]);
        if self.shared.records_content {
            self.span.record("gen_ai.output.messages", messages::output(reply));
        }
    }
}

fn span(shared: &Shared, request: &Request, is_typed: bool, is_streamed: bool) -> Span {
    let Request { agent, .. } = request;
    let (forward, model) = (&shared.forward, shared.model());
    let info = shared.agent.as_ref().map(|entry| &entry.info);
    let space = if model.is_some() { " " } else { "" };
    tracing::info_span!(
        "chat",
        otel.name = %format_args!("chat{space}{}", agent.model),
        otel.kind = "client",
        otel.status_code = Empty,
        otel.status_description = Empty,
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = shared.provider(),
        gen_ai.agent.name = &*agent.name,
        gen_ai.request.model = model,
        gen_ai.request.stream = is_streamed.then_some(true),
        gen_ai.request.temperature = agent.temperature,
        gen_ai.request.max_tokens = agent.max_output_tokens.map(i64::from),
        gen_ai.request.top_p = extra(agent, &["top_p", "topP"]).and_then(|top_p| top_p.as_f64()),
        gen_ai.request.seed = extra(agent, &["seed"]).and_then(|seed| seed.as_i64()),
        gen_ai.request.stop_sequences = Empty,
        gen_ai.request.reasoning.level = agent.reasoning.map(|reasoning| level(reasoning.effort)),
        gen_ai.output.type = is_typed.then_some("json"),
        gen_ai.conversation.id = shared.conversation(),
        session.id = shared.conversation(),
        user.id = &**forward.run.user(),
        server.address = info.and_then(|info| info.address.as_deref()),
        server.port = info.and_then(|info| info.port).map(i64::from),
        gen_ai.response.id = Empty,
        gen_ai.response.model = Empty,
        gen_ai.response.finish_reasons = Empty,
        gen_ai.response.time_to_first_chunk = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        gen_ai.usage.cache_read.input_tokens = Empty,
        gen_ai.usage.cache_write.input_tokens = Empty,
        gen_ai.usage.reasoning.output_tokens = Empty,
        gen_ai.system_instructions = Empty,
        gen_ai.input.messages = Empty,
        gen_ai.output.messages = Empty,
        gen_ai.tool.definitions = Empty,
        agentouto.run.id = %forward.run.root(),
        agentouto.call.id = %forward.call_id,
        error.type = Empty,
    )
}

/// A parameter of the request's body, by the names that the vendors have for it.
fn extra<'a>(agent: &'a Agent, names: &[&str]) -> Option<&'a Value> {
    let nested = agent.extra.get("generationConfig").and_then(Value::as_object);
    [Some(&agent.extra), nested]
        .into_iter()
        .flatten()
        .find_map(|fields| names.iter().find_map(|name| fields.get(*name)))
}

fn stop_sequences(agent: &Agent) -> Option<Vec<Cow<'_, str>>> {
    match extra(agent, &["stop", "stop_sequences", "stopSequences"])? {
        Value::String(only) => Some(vec![only.into()]),
        Value::Array(all) => Some(all.iter().filter_map(Value::as_str).map(Cow::from).collect()),
        _ => None,
    }
}

fn level(effort: Effort) -> &'static str {
    match effort {
        Effort::None => "none",
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
    }
}

impl Traced<Result<Reply, ProviderError>> for Chat {
    fn span(&self) -> Span {
        self.span.0.clone()
    }

    fn piece(&self) {
        if !self.is_streamed {
            return;
        }
        let now = Instant::now();
        let before = self.last.lock().replace(now);
        if before.is_none() {
            let waited = now.duration_since(self.begun).as_secs_f64();
            self.span.record("gen_ai.response.time_to_first_chunk", waited);
        }
        #[cfg(feature = "otel")]
        if let Some(instruments) = &self.shared.instruments {
            instruments.piece(&self.shared, before, self.begun, now);
        }
    }

    fn abort(&self, used: Option<Usage>) {
        if self.end.is_first() {
            let _ = catch(|| {
                let error = dropped(&self.shared.forward);
                fail(&self.span, &error, None);
                self.finish(used, None, Some(error));
            });
        }
    }

    fn end(&self, result: &Result<Reply, ProviderError>) {
        if !self.end.is_first() {
            return;
        }
        match result {
            Ok(reply) => {
                self.record_reply(reply);
                self.finish(reply.usage, Some(reply), None);
            }
            Err(error) => {
                let word = error_type::of_provider(error);
                let description = self.shared.records_content.then_some(error as &dyn Display);
                fail(&self.span, &word, description);
                self.finish(error.usage(), None, Some(word));
            }
        }
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        self.abort(None);
    }
}
