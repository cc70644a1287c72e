//! What the vendors' words mean to agentouto, said a second time and apart from the library.

use agentouto::{ProviderErrorKind, StopReason, Usage};
use serde_json::Value;

use super::case::Wire;

/// The stop reasons that a vendor's finish word may become.
pub(super) fn stop_reasons(wire: Wire, word: &str, has_calls: bool, declines: bool) -> Vec<StopReason> {
    use StopReason::{ContentFilter, Length, Other, Stop, ToolCalls};
    let meant = match (wire, word) {
        (Wire::Chat, "stop") | (Wire::Responses, "completed") | (Wire::Gemini, "STOP") => Stop,
        (Wire::Chat, "tool_calls" | "function_call") | (Wire::Messages, "tool_use") => ToolCalls,
        (Wire::Messages, "end_turn" | "stop_sequence") => Stop,
        (Wire::Chat, "length")
        | (Wire::Responses, "incomplete:max_output_tokens")
        | (Wire::Messages, "max_tokens" | "model_context_window_exceeded")
        | (Wire::Gemini, "MAX_TOKENS") => Length,
        (Wire::Chat, "content_filter")
        | (Wire::Responses, "incomplete:content_filter")
        | (Wire::Messages, "refusal")
        | (
            Wire::Gemini,
            "SAFETY"
            | "RECITATION"
            | "LANGUAGE"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION"
            | "MODEL_ARMOR",
        ) => ContentFilter,
        // The parser writes `incomplete:…`, the vendor only what stands behind it.
        (Wire::Responses, word) => Other(word.strip_prefix("incomplete:").unwrap_or(word).into()),
        (_, word) => Other(word.into()),
    };
    match meant {
        // Responses and Gemini have one word for both.
        Stop if has_calls && matches!(wire, Wire::Responses | Wire::Gemini) => vec![ToolCalls],
        // Some servers say `stop` and call, or `tool_calls` and call nothing: either tells the truth.
        Stop if has_calls => vec![Stop, ToolCalls],
        ToolCalls if !has_calls => vec![ToolCalls, Stop],
        // A reply that declines in words of their own may be told apart, though the server says that it just stopped.
        Stop if declines => vec![Stop, ContentFilter],
        other => vec![other],
    }
}

/// The usages that a vendor's figures may become; `None` where none has to be told.
pub(super) fn usages(wire: Wire, usage: &Value) -> Vec<Option<Usage>> {
    let count = |path: &str| usage.pointer(path).and_then(Value::as_u64);
    let sum = |paths: &[&str]| paths.iter().filter_map(|path| count(path)).sum::<u64>();
    let most = |paths: &[&str]| paths.iter().filter_map(|path| count(path)).max().unwrap_or(0);
    let told = |input_tokens, output_tokens, [cached_tokens, cache_write_tokens]: [u64; 2], reasoning_tokens| {
        Some(Usage { input_tokens, output_tokens, cached_tokens, cache_write_tokens, reasoning_tokens })
    };
    let meant = match wire {
        Wire::Chat => return chat_usages(usage),
        Wire::Responses => told(
            sum(&["/input_tokens"]),
            sum(&["/output_tokens"]),
            ["/input_tokens_details/cached_tokens", "/input_tokens_details/cache_write_tokens"]
                .map(|path| sum(&[path])),
            sum(&["/output_tokens_details/reasoning_tokens"]),
        ),
        Wire::Messages => told(
            sum(&["/input_tokens", "/cache_creation_input_tokens", "/cache_read_input_tokens"]),
            sum(&["/output_tokens"]),
            ["/cache_read_input_tokens", "/cache_creation_input_tokens"].map(|path| sum(&[path])),
            sum(&["/output_tokens_details/thinking_tokens"]),
        ),
        Wire::Gemini => told(
            sum(&["/promptTokenCount", "/toolUsePromptTokenCount"]),
            sum(&["/candidatesTokenCount", "/thoughtsTokenCount"]),
            [most(&["/cachedContentTokenCount"]), 0],
            sum(&["/thoughtsTokenCount"]),
        ),
    };
    // Figures that are all missing say nothing, and neither do figures that are all zero.
    if meant == Some(Usage::default()) { vec![meant, None] } else { vec![meant] }
}

fn chat_usages(usage: &Value) -> Vec<Option<Usage>> {
    let count = |path: &str| usage.pointer(path).and_then(Value::as_u64);
    let most = |paths: &[&str]| paths.iter().filter_map(|path| count(path)).max().unwrap_or(0);
    let input_tokens = most(&["/prompt_tokens"]);
    let written = most(&["/completion_tokens"]);
    let rest = count("/total_tokens").and_then(|total| total.checked_sub(input_tokens)).unwrap_or(written);
    let reasoning_tokens = most(&["/completion_tokens_details/reasoning_tokens", "/reasoning_tokens"]);
    let cached_tokens = most(&[
        "/prompt_tokens_details/cached_tokens",
        "/num_cached_tokens",
        "/prompt_cache_hit_tokens",
        "/cached_tokens",
    ]);
    let cache_write_tokens =
        most(&["/prompt_tokens_details/cache_write_tokens", "/prompt_tokens_details/cache_creation_input_tokens"]);
    let told = |output_tokens| {
        Some(Usage { input_tokens, output_tokens, cached_tokens, cache_write_tokens, reasoning_tokens })
    };
    match rest == written + reasoning_tokens {
        // Some servers count the reasoning beside the completion; the total knows.
        true => vec![told(rest)],
        // Where the total has something else in it, nobody knows who wrote that.
        false => vec![told(written), told(rest)],
    }
}

/// The kinds that a failure may have, by the words of it and the HTTP status.
pub(super) fn kinds(status: u16, error: &Value) -> Vec<ProviderErrorKind> {
    use ProviderErrorKind::*;
    let said = error.to_string().to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let status = if status == 200 { stated_status(error).unwrap_or(200) } else { status };
    let is_about_the_request = matches!(status, 200 | 400 | 404 | 413 | 422);
    if is_about_the_request && says(&["content_filter", "content_policy_violation", "responsibleaipolicyviolation"]) {
        return vec![ContentFilter];
    }
    if is_about_the_request && says(CONTEXT_WORDS) || says(&["input token count"]) && says(&["exceeds the maximum"]) {
        return vec![ContextTooLong];
    }
    if status == 402 || says(&["insufficient_quota", "credit balance is too low", "billing_hard_limit"]) {
        return vec![QuotaExceeded];
    }
    match status {
        401 | 403 => vec![Authentication],
        408 => vec![Timeout],
        // Google says the same of a minute's share and of the account's; only with a delay is it surely the former.
        429 if says(&["resource_exhausted"]) && !says(&["retrydelay"]) => vec![RateLimited, QuotaExceeded],
        429 => vec![RateLimited],
        503 | 529 => vec![Overloaded],
        500.. if says(&["overloaded_error", "\"unavailable\""]) => vec![Overloaded],
        409 | 500.. => vec![Unavailable],
        400.. => vec![InvalidRequest],
        _ => by_words(&says),
    }
}

/// A failure that came without an HTTP status of its own, within a stream.
fn by_words(says: &impl Fn(&[&str]) -> bool) -> Vec<ProviderErrorKind> {
    use ProviderErrorKind::*;
    if says(&["overloaded", "\"unavailable\"", "service_unavailable"]) {
        vec![Overloaded]
    } else if says(&["rate_limit", "resource_exhausted"]) {
        vec![RateLimited]
    } else if says(&["authentication_error", "permission_error", "invalid_api_key"]) {
        vec![Authentication]
    } else if says(&["invalid_request", "invalid_argument", "not_found"]) {
        vec![InvalidRequest]
    } else if says(&["server_error", "api_error", "internal"]) {
        vec![Unavailable]
    } else {
        // Nothing tells whether the request or the server is at fault.
        vec![Other, Unavailable, InvalidRequest, InvalidResponse]
    }
}

/// The HTTP status that a failure names itself.
fn stated_status(error: &Value) -> Option<u16> {
    let inner = error.get("error").filter(|inner| inner.is_object()).unwrap_or(error);
    ["status_code", "status", "code"]
        .iter()
        .filter_map(|key| u16::try_from(inner.get(key)?.as_u64()?).ok())
        .find(|status| (400..600).contains(status))
}

const CONTEXT_WORDS: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size_error",
    "prompt is too long",
    "prompt too long",
    "maximum context length",
    "max context length",
    "available context size",
    "exceeds the context window",
    "exceed context limit",
];
