//! The metrics of a run, with the names, units and buckets of the [OpenTelemetry
//! conventions](https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/gen-ai-metrics.md).

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use opentelemetry::metrics::{Counter, Histogram, Meter};
use opentelemetry::{KeyValue, global};

use super::invocation::{Shared, Sums};
use crate::reply::Usage;

/// The instruments of the global meter provider, from the first invocation on for which there is one.
#[derive(Default)]
pub(super) struct Metrics(OnceLock<Arc<Instruments>>);

impl Metrics {
    pub(super) fn instruments(&self) -> Option<Arc<Instruments>> {
        if let Some(instruments) = self.0.get() {
            return Some(Arc::clone(instruments));
        }
        let provider = global::meter_provider();
        // The provider that OpenTelemetry begins with does nothing and has no state. Nothing else tells it apart.
        if size_of_val(&*provider) == 0 {
            return None;
        }
        Some(Arc::clone(self.0.get_or_init(|| Arc::new(Instruments::new(&provider.meter("agentouto"))))))
    }
}

/// The instruments.
pub(super) struct Instruments {
    duration: Histogram<f64>,
    first_chunk: Histogram<f64>,
    next_chunk: Histogram<f64>,
    tokens: Histogram<u64>,
    input_tokens: Counter<u64>,
    output_tokens: Counter<u64>,
    cache_read: Counter<u64>,
    cache_write: Counter<u64>,
    reasoning: Counter<u64>,
    agent_duration: Histogram<f64>,
    agent_requests: Histogram<u64>,
    agent_tool_calls: Histogram<u64>,
    tool_duration: Histogram<f64>,
}

/// The advice for durations of requests and tools, in seconds: from 10 ms on, doubled 13 times.
const REQUEST: [f64; 14] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// The advice for durations of invocations, in seconds.
const INVOCATION: [f64; 13] = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6];
/// The advice for counts within an invocation.
const COUNT: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];
/// The advice for tokens.
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

impl Instruments {
    fn new(meter: &Meter) -> Self {
        let seconds = |name: &'static str, buckets: &[f64]| {
            meter.f64_histogram(name).with_unit("s").with_boundaries(buckets.to_vec()).build()
        };
        let number = |name: &'static str, unit: &'static str, buckets: &[f64]| {
            meter.u64_histogram(name).with_unit(unit).with_boundaries(buckets.to_vec()).build()
        };
        let tokens = |name: &'static str| meter.u64_counter(name).with_unit("{token}").build();
        Self {
            duration: seconds("gen_ai.client.operation.duration", &REQUEST),
            first_chunk: seconds("gen_ai.client.operation.time_to_first_chunk", &REQUEST),
            next_chunk: seconds("gen_ai.client.operation.time_per_output_chunk", &REQUEST),
            tokens: number("gen_ai.client.token.usage", "{token}", &TOKENS),
            input_tokens: tokens("gen_ai.client.inference.usage.input_tokens"),
            output_tokens: tokens("gen_ai.client.inference.usage.output_tokens"),
            cache_read: tokens("gen_ai.client.inference.usage.cache_read.input_tokens"),
            cache_write: tokens("gen_ai.client.inference.usage.cache_write.input_tokens"),
            reasoning: tokens("gen_ai.client.inference.usage.reasoning.output_tokens"),
            agent_duration: seconds("gen_ai.invoke_agent.duration", &INVOCATION),
            agent_requests: number("gen_ai.invoke_agent.inference_calls", "{inference_call}", &COUNT),
            agent_tool_calls: number("gen_ai.invoke_agent.tool_calls", "{tool_call}", &COUNT),
            tool_duration: seconds("gen_ai.execute_tool.duration", &REQUEST),
        }
    }

    /// Records a request that has ended.
    pub(super) fn request(
        &self,
        shared: &Shared,
        response_model: Option<&str>,
        took: Duration,
        used: Option<Usage>,
        error: Option<Cow<'static, str>>,
    ) {
        let mut with = inference(shared);
        with.extend(response_model.map(|model| KeyValue::new("gen_ai.response.model", model.to_owned())));
        self.count(used, &mut with);
        with.extend(error.map(|error| KeyValue::new("error.type", error)));
        self.duration.record(took.as_secs_f64(), &with);
    }

    fn count(&self, used: Option<Usage>, with: &mut Vec<KeyValue>) {
        if let Some(used) = used {
            for (kind, tokens) in [("input", used.input_tokens), ("output", used.output_tokens)] {
                with.push(KeyValue::new("gen_ai.token.type", kind));
                self.tokens.record(tokens, with);
                with.pop();
            }
        }
        with.push(KeyValue::new("gen_ai.token.modality", "unknown"));
        let used = used.unwrap_or_default();
        self.input_tokens.add(used.input_tokens, with);
        self.output_tokens.add(used.output_tokens, with);
        let parts = [
            (&self.cache_read, used.cached_tokens),
            (&self.cache_write, used.cache_write_tokens),
            (&self.reasoning, used.reasoning_tokens),
        ];
        for (counter, tokens) in parts.into_iter().filter(|(_, tokens)| *tokens > 0) {
            counter.add(tokens, with);
        }
        with.pop();
    }

    /// Records a piece of a reply, after the one before.
    pub(super) fn piece(&self, shared: &Shared, before: Option<Instant>, begun: Instant, now: Instant) {
        let histogram = if before.is_some() { &self.next_chunk } else { &self.first_chunk };
        histogram.record(now.duration_since(before.unwrap_or(begun)).as_secs_f64(), &inference(shared));
    }

    /// Records an invocation that has ended.
    pub(super) fn invocation(&self, shared: &Shared, sums: &Sums, took: Duration, error: Option<Cow<'static, str>>) {
        let mut with = vec![agent(shared)];
        if shared.agent.is_some() {
            self.agent_requests.record(sums.requests, &with);
            self.agent_tool_calls.record(sums.tool_calls, &with);
        }
        with.extend(shared.model().map(|model| KeyValue::new("gen_ai.request.model", model.to_owned())));
        with.extend(error.map(|error| KeyValue::new("error.type", error)));
        self.agent_duration.record(took.as_secs_f64(), &with);
    }

    /// Records a tool call that has ended.
    pub(super) fn tool(&self, shared: &Shared, tool: &str, took: Duration, error: Option<Cow<'static, str>>) {
        let name = KeyValue::new("gen_ai.tool.name", tool.to_owned());
        let mut with = vec![name, KeyValue::new("gen_ai.tool.type", "function"), agent(shared)];
        with.extend(error.map(|error| KeyValue::new("error.type", error)));
        self.tool_duration.record(took.as_secs_f64(), &with);
    }
}

fn agent(shared: &Shared) -> KeyValue {
    KeyValue::new("gen_ai.agent.name", Arc::clone(&shared.forward.receiver))
}

/// The attributes of a request.
fn inference(shared: &Shared) -> Vec<KeyValue> {
    let info = shared.agent.as_ref().map(|entry| &entry.info);
    let text = |name: &'static str, text: Option<&str>| text.map(|text| KeyValue::new(name, text.to_owned()));
    let mut with = vec![KeyValue::new("gen_ai.operation.name", "chat")];
    with.extend(text("gen_ai.provider.name", shared.provider()));
    with.extend(text("gen_ai.request.model", shared.model()));
    with.extend(text("server.address", info.and_then(|info| info.address.as_deref())));
    with.extend(info.and_then(|info| info.port).map(|port| KeyValue::new("server.port", i64::from(port))));
    with
}
