//! One attempt to get a reply over HTTP, or two where data of another server is refused. All vendors use
//! [`Endpoint::ask`], with and without streaming.

use std::collections::HashSet;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::api::Streaming;
use super::client::{HttpClient, Response, ResponseMode};
use super::encode;
use super::error_body::ErrorBody;
use super::forbidden;
use super::reply_builder::ReplyBuilder;
use super::sse;
use super::wire_format::{DecodeError, Decoded, Decoder, WireFormat};
use crate::context::{ChatMessage, Context};
use crate::provider::{DeltaSink, Provider, ProviderError, ProviderErrorKind, Request};
use crate::providers::offer::ToolNames;
use crate::reply::Reply;

/// A server that speaks the wire format `W`.
pub(crate) struct Endpoint<W: WireFormat> {
    pub(crate) http: HttpClient,
    pub(crate) address: String,
    pub(crate) streaming: Streaming,
    /// The profile that the program has set; otherwise it is derived from the address.
    pub(crate) profile: Option<W::Profile>,
    /// The unknown types of events that have arrived so far.
    pub(crate) unknown: Mutex<HashSet<String>>,
    pub(crate) wire: PhantomData<W>,
}

impl<W: WireFormat> Endpoint<W> {
    /// Sends a request. If the server refuses data that came from another server of the same format, or from another
    /// model, the request is sent once more without it: the model then reasons again.
    async fn ask(&self, request: &Request, deltas: &mut DeltaSink<'_>) -> Result<Reply, ProviderError> {
        let error = match self.ask_once(request, deltas).await {
            Err(error) if refuses_opaque(&error) => error,
            result => return result,
        };
        let Some(context) = without_opaque(&request.context) else { return Err(error) };
        deltas.retry(&error, Duration::ZERO).await?;
        let Request { call_id, agent, tools, .. } = request;
        let request = Request { call_id: *call_id, agent: Arc::clone(agent), context, tools: Arc::clone(tools) };
        self.ask_once(&request, deltas).await
    }

    async fn ask_once(&self, request: &Request, deltas: &mut DeltaSink<'_>) -> Result<Reply, ProviderError> {
        forbidden::check()?;
        let expect = match self.streaming {
            Streaming::WhenObserved if deltas.is_observed() => ResponseMode::EventStream,
            Streaming::Always => ResponseMode::EventStream,
            Streaming::WhenObserved | Streaming::Never => ResponseMode::Json,
        };
        let body = encode::encode::<W>(request, expect, self.profile())?;
        let url = self.url(&request.agent.model, expect);
        if let Some(attempts) = deltas.attempts {
            attempts.sent(&body);
        }
        let response = self.http.post(&url, body.clone()).await;
        let mut response = response.map_err(|error| with_hint(error, &body))?;
        let mut builder = ReplyBuilder::new(deltas, ToolNames::of(&request.tools));
        let mut decoder = W::Decoder::default();
        let arrived = self.read_reply(&mut response, &mut decoder, &mut builder).await;
        let result = match arrived {
            Ok(()) => builder.into_reply(decoder.opaque()),
            Err(error) => Err(ProviderError { partial: builder.into_partial(), ..error }),
        };
        result.map_err(|error| response.with_request_id(error))
    }

    pub(crate) fn profile(&self) -> W::Profile {
        self.profile.unwrap_or_else(|| W::profile(&self.address))
    }

    /// The URL of a request for `model`. A query of the address is kept after the path.
    fn url(&self, model: &str, expect: ResponseMode) -> String {
        let Some((address, query)) = self.address.split_once('?') else { return W::url(&self.address, model, expect) };
        let url = W::url(address.trim_end_matches('/'), model, expect);
        let mark = if url.contains('?') { '&' } else { '?' };
        format!("{url}{mark}{query}")
    }

    /// Reads a response. A server may send JSON where events are expected, or events where JSON is, with the wrong
    /// content type.
    async fn read_reply(
        &self,
        response: &mut Response<'_>,
        decoder: &mut W::Decoder,
        builder: &mut ReplyBuilder<'_, '_>,
    ) -> Result<(), ProviderError> {
        let mut events = sse::Decoder::default();
        if !response.is_events() {
            let mut body = Vec::new();
            let read = response.read_into(&mut body).await;
            let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&body).trim_ascii_start();
            if !sse::is_stream(body) {
                return read.and_then(|()| Self::read_json(response, body, decoder, builder));
            }
            events.feed(body);
        }
        self.read_events(response, events, decoder, builder).await
    }

    fn read_json(
        response: &Response<'_>,
        body: &[u8],
        decoder: &mut W::Decoder,
        builder: &mut ReplyBuilder<'_, '_>,
    ) -> Result<(), ProviderError> {
        decoder.whole(body, builder).map_err(|broken| match broken {
            DecodeError::Reported(failure) => response.reported_error(&failure),
            DecodeError::Unreadable(error) => response.unexpected_error(
                format_args!("the answer (content type `{}`) cannot be read: {error}", response.content_type()),
                body,
            ),
        })
    }

    /// Logs an unknown type of events, once.
    fn log_unknown(&self, event: &str) {
        let mut unknown = self.unknown.lock();
        if unknown.len() < MAX_UNKNOWN && unknown.insert(event.to_owned()) {
            tracing::info!(event, provider = W::VENDOR.name, "events of an unknown type are passed over");
        }
    }

    async fn read_events(
        &self,
        response: &mut Response<'_>,
        mut events: sse::Decoder,
        decoder: &mut W::Decoder,
        builder: &mut ReplyBuilder<'_, '_>,
    ) -> Result<(), ProviderError> {
        loop {
            match response.advance(&mut events).await {
                Ok(true) => {}
                Ok(false) | Err(_) if builder.is_complete() => return Ok(()),
                Ok(false) => return Err(stream_ended(response, events)),
                Err(error) => return Err(error),
            }
            let event = events.event();
            let read = decoder.event(event, builder);
            if !builder.is_empty() || builder.is_complete() {
                response.begin();
            }
            match read {
                Ok(Decoded::More) => {}
                Ok(Decoded::Unknown) => self.log_unknown(event.name),
                Ok(Decoded::Last) => {
                    response.finish().await;
                    return Ok(());
                }
                Err(DecodeError::Reported(failure)) => return Err(response.reported_error(&failure)),
                Err(DecodeError::Unreadable(error)) => {
                    let what = format_args!("an event cannot be read: {error}");
                    return Err(response.unexpected_error(what, event.data.as_bytes()));
                }
            }
        }
    }
}

/// Returns whether the server refuses signed or encrypted reasoning, as OpenAI (`The encrypted content … could not be
/// verified`), Anthropic (``Invalid `signature` in `thinking` block``) and Google (`Thought signature is not valid`) do
/// when another organization, server or model made it.
fn refuses_opaque(error: &ProviderError) -> bool {
    let said = error.message.to_lowercase();
    let is_encrypted = said.contains("encrypted content") && said.contains("could not be verified");
    let is_signed = said.contains("signature") && (said.contains("thinking") || said.contains("thought"));
    error.kind == ProviderErrorKind::InvalidRequest && (is_encrypted || is_signed)
}

/// A copy of a conversation without the data that servers get back, see [`Reply::opaque`]; `None` if it has none.
fn without_opaque(context: &Context) -> Option<Context> {
    let mut has_opaque = false;
    let stripped = context.messages().cloned().map(|mut message| {
        if let ChatMessage::Assistant { opaque, .. } = &mut message {
            has_opaque |= opaque.take().is_some();
        }
        message
    });
    let stripped = Context::with_messages(context.system(), stripped.collect::<Vec<_>>());
    has_opaque.then_some(stripped)
}

/// Adds a hint to an error that mentions a setting of the request, or a key within one.
fn with_hint(error: ProviderError, body: &[u8]) -> ProviderError {
    if error.kind != ProviderErrorKind::InvalidRequest {
        return error;
    }
    let said = run_together(&error.message);
    let words: Vec<&str> = error.message.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let mentions = |key: &str, is_within: bool| match key.contains(|c: char| c == '_' || c.is_uppercase()) {
        true => said.contains(&run_together(key)),
        // A plain word within a setting, such as `type`, may refer to anything.
        false => !is_within && words.contains(&key),
    };
    let mut fields: Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
    fields.retain(|key, _| !NO_SETTINGS.contains(&&**key));
    let direct = fields.keys().find(|key| mentions(key, false));
    let within = || fields.iter().find(|(_, value)| holds(value, &mentions)).map(|(key, _)| key);
    let Some(key) = direct.or_else(within) else { return error };
    let message = format!("{}; `Agent::extra(\"{key}\", …)` sets `{key}`, and `null` leaves it out", error.message);
    ProviderError { message: message.into(), ..error }
}

/// Returns whether a setting contains, at any depth, a key that is mentioned.
fn holds(setting: &Value, mentions: &impl Fn(&str, bool) -> bool) -> bool {
    let is_held = |(key, value): (&String, &Value)| mentions(key, true) || holds(value, mentions);
    setting.as_object().is_some_and(|fields| fields.iter().any(is_held))
}

/// The letters and digits of a text, in lower case: `thinking_level`, `thinkingLevel` and "Thinking level" are the
/// same.
fn run_together(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// The fields of a body that are not settings.
const NO_SETTINGS: [&str; 9] =
    ["model", "messages", "input", "contents", "tools", "system", "systemInstruction", "instructions", "stream"];

/// The error of a stream that ended too early, with the text that the server sent outside of events, if any.
fn stream_ended(response: &Response<'_>, events: sse::Decoder) -> ProviderError {
    let stray = events.into_stray();
    let json = stray.find('{').and_then(|begin| serde_json::Deserializer::from_str(&stray[begin..]).into_iter().next());
    json.and_then(Result::ok).and_then(|json| ErrorBody::read(&json)).map_or_else(
        || ProviderError::new(ProviderErrorKind::Truncated, "the stream ended before the reply was complete"),
        |failure| response.reported_error(&failure),
    )
}

/// The most unknown types of events that are remembered; a server may invent any number.
const MAX_UNKNOWN: usize = 64;

impl<W: WireFormat> Provider for Endpoint<W> {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(self.ask(request, deltas))
    }
}
