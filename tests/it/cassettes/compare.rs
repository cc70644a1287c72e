//! Whether an outcome is what an independent parser made of the response.

use agentouto::{ProviderError, ProviderErrorKind, Reply, StopReason, ToolCall};
use serde_json::Value;

use super::case::{Arguments, Expect, ExpectedCall, Response, Wire};
use super::differences::Differences;
use super::meaning::{kinds, stop_reasons, usages};
use super::replay::{Outcome, Shown};

/// What differs between an outcome and what was made of the response.
pub(super) fn differences(wire: Wire, response: &Response, expect: &Expect, outcome: &Outcome) -> Vec<String> {
    let mut found = Differences::default();
    let calls = expect.tool_calls.as_deref().unwrap_or_default();
    let said = [&expect.text, &expect.refusal].into_iter().flatten().any(|text| !text.is_empty());
    match &outcome.result {
        Err(error) if !expect.error.is_null() => {
            check_error(response, expect, error, &mut found);
            check_partial(wire, response, expect, error, &mut found);
        }
        _ if !expect.error.is_null() => found.0.push(format!("no error, where the server said {}", expect.error)),
        Ok(reply) => {
            check_reply(wire, response, expect, reply, &mut found);
            // Only something to show makes a reply, be it an image.
            let is_anything = said || !calls.is_empty() || !reply.attachments.is_empty();
            found.hold(is_anything, || "a reply, where there was nothing".to_owned());
        }
        Err(error) if !(said && block(expect).is_none()) && calls.is_empty() => {
            check_empty(wire, expect, error, &mut found);
            check_partial(wire, response, expect, error, &mut found);
        }
        Err(error) => found.0.push(format!("an error, where there was a reply: {error:?}")),
    }
    let empty = Reply::default();
    let reply = match &outcome.result {
        Ok(reply) => reply,
        Err(error) => error.partial.as_deref().unwrap_or(&empty),
    };
    if response.is_stream() {
        check_shown(&outcome.shown, reply, &mut found);
    }
    found.0
}

fn check_reply(wire: Wire, response: &Response, expect: &Expect, reply: &Reply, found: &mut Differences) {
    check_words(response, expect, reply, found);
    let calls = expect.tool_calls.as_deref().unwrap_or_default();
    if let Some(word) = &expect.finish {
        let declines = expect.refusal.is_some();
        let meant = stop_reasons(wire, word, !calls.is_empty(), declines);
        found.one_of("stop reason", &reply.stop_reason, &meant.iter().collect::<Vec<_>>());
    }
    match &expect.usage {
        Value::Null => found.same("usage", reply.usage, None),
        usage => found.one_of("usage", reply.usage, &usages(wire, usage)),
    }
    check_calls(calls, &reply.tool_calls, found);
}

fn check_words(response: &Response, expect: &Expect, reply: &Reply, found: &mut Differences) {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if expect.text.is_some() {
        found.same("text", reply.text.as_deref(), given(&expect.text).as_deref());
    }
    if block(expect).is_none() {
        found.same("refusal", reply.refusal.as_deref(), given(&expect.refusal).as_deref());
    }
    let reasoning = reply.reasoning.as_deref().unwrap_or_default();
    match given(&expect.reasoning) {
        Some(expected) => found.same("reasoning", reasoning, &expected),
        // The parser does not know every place in which reasoning is told. All the same it must have been told.
        None => {
            found.hold(is_made_of(reasoning, &response.strings()), || format!("reasoning of its own: {reasoning:?}"))
        }
    }
}

fn check_calls(expected: &[ExpectedCall], calls: &[ToolCall], found: &mut Differences) {
    if expected.len() != calls.len() {
        return found.0.push(format!("{} tool calls instead of {}: {calls:?}", calls.len(), expected.len()));
    }
    for (call, expected) in std::iter::zip(calls, expected) {
        if let Some(id) = &expected.id {
            found.same("tool call id", &*call.id, id);
        }
        found.same("tool name", &*call.name, expected.name.as_deref().unwrap_or_default());
        match &expected.arguments {
            Arguments::Raw(raw) => found.same("arguments", &*call.arguments, raw),
            Arguments::Json(json) => {
                let arguments = parse(&call.arguments);
                found.hold(arguments.as_ref() == Some(json), || {
                    format!("arguments of `{}`: {} instead of {json}", call.name, call.arguments)
                });
            }
        }
    }
}

/// An answer with nothing in it. What there was besides is in the partial reply.
fn check_empty(wire: Wire, expect: &Expect, error: &ProviderError, found: &mut Differences) {
    let finish = expect.finish.as_deref().unwrap_or_default();
    let is_filtered = stop_reasons(wire, finish, false, false).contains(&StopReason::ContentFilter);
    match block(expect) {
        None if !is_filtered => found.same("kind", error.kind, ProviderErrorKind::EmptyResponse),
        _ => found.same("kind", error.kind, ProviderErrorKind::ContentFilter),
    }
    if let Some(reason) = block(expect) {
        found.hold(format!("{error:?}").contains(reason), || format!("`{reason}` is not told: {error:?}"));
    }
}

/// What came before a failure.
fn check_partial(wire: Wire, response: &Response, expect: &Expect, error: &ProviderError, found: &mut Differences) {
    let partial = error.partial.as_deref().cloned().unwrap_or_default();
    if expect.error.is_null() {
        return match (&error.partial, &expect.usage) {
            // Where nothing at all came there is nothing to keep.
            (None, usage) if usages(wire, usage).contains(&None) => {}
            _ => check_reply(wire, response, expect, &partial, found),
        };
    }
    check_words(response, expect, &partial, found);
    if !expect.usage.is_null() {
        found.one_of("usage before the error", partial.usage, &usages(wire, &expect.usage));
    }
}

fn check_error(response: &Response, expect: &Expect, error: &ProviderError, found: &mut Differences) {
    let recorded = &expect.error;
    let words = ["/error/message", "/message", "/detail", "/error", "/response/error/message", ""];
    let message = words.iter().find_map(|path| recorded.pointer(path)?.as_str()).unwrap_or_default();
    // A long page of HTML may be cut.
    let message = &message[..message.floor_char_boundary(LONGEST_MESSAGE)];
    found.hold(error.message.contains(message), || format!("message: {:?} lacks {message:?}", error.message));
    if expect.status != 200 {
        found.same("status", error.status, Some(expect.status));
    }
    found.one_of("kind", error.kind, &kinds(expect.status, recorded));
    if let Some(seconds) = expect.retry_after {
        found.same("wait", error.retry_after.map(|wait| wait.as_secs_f64()), Some(seconds));
    }
    let header = ["request-id", "x-request-id"].iter().find_map(|name| response.headers.get(*name));
    let ids: Vec<_> = [header, recorded.get("request_id")].into_iter().flatten().filter_map(Value::as_str).collect();
    if !ids.is_empty() {
        found.one_of("request id", error.request_id.as_deref().unwrap_or_default(), &ids);
    }
}

/// What an observer saw adds up to the reply.
fn check_shown(shown: &Shown, reply: &Reply, found: &mut Differences) {
    let text = reply.text.as_ref().or(reply.refusal.as_ref()).map(|text| &**text).unwrap_or_default();
    // A refusal may follow on a text.
    found.hold(shown.text.starts_with(text) && (text.is_empty() == shown.text.is_empty()), || {
        format!("shown text: {:?} instead of {text:?}", shown.text)
    });
    found.same("shown reasoning", &*shown.reasoning, reply.reasoning.as_deref().unwrap_or_default());
    found.same(
        "shown tool calls",
        shown.calls.keys().copied().max().map_or(0, |last| last + 1),
        reply.tool_calls.len(),
    );
    for ((name, arguments), call) in std::iter::zip(shown.calls.values(), &reply.tool_calls) {
        found.same("shown tool name", &**name, &*call.name);
        // No arguments may be shown as nothing at all.
        found.hold(
            **arguments == *call.arguments || arguments.is_empty() && parse(&call.arguments) == parse(""),
            || format!("shown arguments: {arguments:?} instead of {:?}", call.arguments),
        );
    }
}

/// Why the request itself was blocked. The parser writes that in place of a refusal.
fn block(expect: &Expect) -> Option<&str> {
    expect.refusal.as_deref()?.strip_prefix("blocked:")
}

/// Arguments as JSON. Some servers send nothing for none.
fn parse(arguments: &str) -> Option<Value> {
    serde_json::from_str(if arguments.trim().is_empty() { "{}" } else { arguments }).ok()
}

/// Whether a text can be put together from pieces, with space between them.
fn is_made_of(text: &str, pieces: &[String]) -> bool {
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for at in 0..text.len() {
        if !reached[at] || !text.is_char_boundary(at) {
            continue;
        }
        let rest = &text[at..];
        if let Some(space) = rest.chars().next().filter(|next| next.is_whitespace()) {
            reached[at + space.len_utf8()] = true;
        }
        for piece in pieces.iter().filter(|piece| rest.starts_with(&***piece)) {
            reached[at + piece.len()] = true;
        }
    }
    reached[text.len()]
}

const LONGEST_MESSAGE: usize = 400;
