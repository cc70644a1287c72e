//! The body of an error response: the server's message, and the kind of error that it means. Nothing here waits.

use std::time::Duration;

use serde_json::Value;

use crate::provider::ProviderErrorKind;

/// An error in a server's own words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorBody {
    /// The message.
    pub(crate) message: String,
    /// The HTTP status that the body itself contains, for errors within a successful response.
    pub(crate) status: Option<u16>,
    /// The id of the request that failed.
    pub(crate) request_id: Option<String>,
    /// The time that the server asks to wait.
    pub(crate) retry_after: Option<Duration>,
    /// Its `code`, `type` and `status`, and the names of the quotas that it mentions.
    codes: String,
}

impl ErrorBody {
    /// An error that the server reported in another form.
    pub(crate) fn new(message: impl Into<String>, words: &str) -> Self {
        Self { message: message.into(), codes: words.to_owned(), ..Self::default() }
    }

    /// Reads `{"error": {"message": …}}`, `{"error": "…"}`, `{"message": …}` or `{"detail": …}`, or a list of them.
    pub(crate) fn read(body: &Value) -> Option<Self> {
        if let Value::Array(bodies) = body {
            return bodies.iter().find_map(Self::read);
        }
        let error = body.get("error").filter(|error| !error.is_null()).unwrap_or(body);
        let message = match error {
            Value::String(text) => text.clone(),
            _ => ["message", "detail"].iter().find_map(|key| match error.get(key)? {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                other => Some(other.to_string()),
            })?,
        };
        let status = ["status_code", "status", "code"].iter().find_map(|key| {
            let number = u16::try_from(error.get(key)?.as_u64()?).ok()?;
            (400..600).contains(&number).then_some(number)
        });
        let details = error.get("details").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let quotas = details.iter().filter_map(|detail| detail.get("violations")?.as_array()).flatten();
        let quotas = quotas.filter_map(|violation| violation.get("quotaId")?.as_str());
        let reasons = details.iter().filter_map(|detail| detail.get("reason")?.as_str());
        let words = ["code", "type", "status"].iter().filter_map(|key| error.get(key)?.as_str());
        Some(Self {
            message,
            status,
            request_id: body.get("request_id").and_then(Value::as_str).map(str::to_owned),
            retry_after: details.iter().find_map(|detail| seconds(detail.get("retryDelay")?.as_str()?)),
            codes: words.chain(quotas).chain(reasons).collect::<Vec<_>>().join(" "),
        })
    }

    /// Reads a body that is known to be an error; without a known message, all of it is shown.
    pub(crate) fn reported(body: &Value) -> Self {
        Self::read(body).unwrap_or_else(|| Self::new(body.to_string(), ""))
    }

    /// The kind of error, given the HTTP status of the response.
    pub(crate) fn kind(&self, status: Option<u16>) -> ProviderErrorKind {
        use ProviderErrorKind::*;
        let says = |words: &[&str]| words.iter().any(|word| self.codes.contains(word));
        if says(&["insufficient_quota", "billing", "PerDay"]) || self.mentions(NO_CREDIT) {
            return QuotaExceeded;
        }
        if status == Some(403) && self.mentions(&["quota exceeded"]) {
            return QuotaExceeded;
        }
        if status.is_none_or(|status| status == 400) && (says(&["API_KEY_INVALID"]) || self.begins(BAD_KEY)) {
            return Authentication;
        }
        // The request would be too large at any time.
        if status == Some(429) && self.mentions(&["request too large"]) && self.mentions(&["reduced", "too large for"])
        {
            return ContextTooLong;
        }
        let is_about_the_request = status.is_none_or(|status| matches!(status, 400 | 413 | 422));
        if is_about_the_request && (says(&["context_length", "exceed_context"]) || self.mentions(TOO_LONG)) {
            return ContextTooLong;
        }
        if is_about_the_request && says(&["content_filter", "content_policy"]) {
            return ContentFilter;
        }
        if says(&["overloaded", "UNAVAILABLE"]) && status.is_none_or(|status| status >= 500) {
            return Overloaded;
        }
        match status {
            Some(status) => of_status(status),
            None if says(&["rate_limit", "RESOURCE_EXHAUSTED"]) => RateLimited,
            None if says(&["authentication", "permission", "api_key"]) => Authentication,
            None if says(&["invalid", "not_found", "exceed"]) => InvalidRequest,
            None if says(&["server_error", "api_error", "unavailable"]) => Unavailable,
            None if says(&["timeout"]) => Timeout,
            None => Other,
        }
    }

    /// Returns whether the model itself failed because of its output, so that a retry may succeed.
    pub(crate) fn is_sampling(&self) -> bool {
        self.codes.contains("tool_use_failed")
    }

    fn begins(&self, phrases: &[&str]) -> bool {
        let message = self.message.to_ascii_lowercase();
        phrases.iter().any(|phrase| message.starts_with(phrase))
    }

    fn mentions(&self, phrases: &[&str]) -> bool {
        let message = self.message.to_ascii_lowercase();
        phrases.iter().any(|phrase| message.contains(phrase))
    }
}

/// The phrases for a request with too many tokens, of servers without an error code for it.
const TOO_LONG: &[&str] = &[
    "context length",
    "context window",
    "context size",
    "prompt is too long",
    "input token count",
    "too many tokens",
    "maximum prompt length",
    "exceed context limit",
];
/// The phrases for a wrong key, of servers that report it with the status 400.
const BAD_KEY: &[&str] = &["api key not valid", "incorrect api key", "invalid api key"];
const NO_CREDIT: &[&str] = &["credit balance is too low"];

/// The kind of error that an HTTP status means by itself.
pub(crate) fn of_status(status: u16) -> ProviderErrorKind {
    match status {
        401 | 403 => ProviderErrorKind::Authentication,
        402 => ProviderErrorKind::QuotaExceeded,
        408 => ProviderErrorKind::Timeout,
        413 => ProviderErrorKind::ContextTooLong,
        429 => ProviderErrorKind::RateLimited,
        503 | 529 => ProviderErrorKind::Overloaded,
        409 | 500..600 => ProviderErrorKind::Unavailable,
        400..500 => ProviderErrorKind::InvalidRequest,
        _ => ProviderErrorKind::Other,
    }
}

/// Reads a [duration](https://protobuf.dev/reference/protobuf/google.protobuf/#duration) such as `34.4s`.
fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.strip_suffix('s')?.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(body: Value, status: Option<u16>, message: &str, kind: ProviderErrorKind) {
        let failure = ErrorBody::read(&body).unwrap();
        assert_eq!((failure.message.as_str(), failure.kind(status.or(failure.status))), (message, kind), "{body}");
    }

    #[test]
    fn the_words_and_their_kind() {
        use ProviderErrorKind::*;
        check(json!({"error": {"message": "m", "code": "insufficient_quota"}}), Some(429), "m", QuotaExceeded);
        check(json!({"error": {"message": "m", "code": "rate_limit_exceeded"}}), Some(429), "m", RateLimited);
        check(json!({"error": {"message": "m", "type": "overloaded_error"}}), None, "m", Overloaded);
        check(json!({"error": {"message": "m", "code": 502}}), None, "m", Unavailable);
        check(json!({"error": {"message": "m", "code": 503, "status": "UNAVAILABLE"}}), None, "m", Overloaded);
        check(json!({"error": {"message": "m", "type": "tokens"}}), None, "m", Other);
        check(json!({"error": {"message": "m", "code": "context_length_exceeded"}}), Some(400), "m", ContextTooLong);
        check(json!({"error": {"message": "m", "type": "exceed_context_size_error"}}), Some(400), "m", ContextTooLong);
        check(
            json!({"error": {"message": "prompt is too long: 9 > 8"}}),
            Some(400),
            "prompt is too long: 9 > 8",
            ContextTooLong,
        );
        check(json!({"error": {"message": "m", "code": "content_filter"}}), Some(400), "m", ContentFilter);
        check(json!({"error": "m"}), Some(404), "m", InvalidRequest);
        check(json!({"error": "m"}), Some(413), "m", ContextTooLong);
        for message in ["input length and `max_tokens` exceed context limit: 9 > 8", "Request too large for gpt-4o"] {
            let status = if message.starts_with("input") { 400 } else { 429 };
            check(json!({"error": {"message": message}}), Some(status), message, ContextTooLong);
        }
        let invalid = json!([{"reason": "API_KEY_INVALID"}]);
        check(json!({"error": {"message": "m", "details": invalid}}), Some(400), "m", Authentication);
        check(
            json!({"error": "Incorrect API key provided: x"}),
            Some(400),
            "Incorrect API key provided: x",
            Authentication,
        );
        check(json!({"error": {"message": "Quota exceeded for x"}}), Some(403), "Quota exceeded for x", QuotaExceeded);
        check(json!({"error": {"message": "Quota exceeded for x"}}), Some(429), "Quota exceeded for x", RateLimited);
        check(json!([{"error": {"message": "m", "code": 429}}]), None, "m", RateLimited);
        check(json!({"detail": "m"}), Some(401), "m", Authentication);
        check(json!({"detail": [{"loc": ["body"]}]}), Some(422), r#"[{"loc":["body"]}]"#, InvalidRequest);
        check(json!({"object": "error", "message": "m", "code": 40303}), Some(402), "m", QuotaExceeded);
        assert_eq!(ErrorBody::read(&json!({"error": {}})), None);
        assert_eq!(ErrorBody::read(&json!([])), None);
    }

    #[test]
    fn what_google_says_of_quotas() {
        let body = |quota: &str| {
            json!({"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED", "details": [
                {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": quota}]},
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"},
            ]}})
        };
        let minute = body("GenerateRequestsPerMinutePerProjectPerModel");
        assert_eq!(ErrorBody::read(&minute).unwrap().retry_after, Some(Duration::from_millis(34_500)));
        check(minute, Some(429), "m", ProviderErrorKind::RateLimited);
        check(body("GenerateRequestsPerDayPerProjectPerModel"), Some(429), "m", ProviderErrorKind::QuotaExceeded);
    }

    #[test]
    fn fault_17_statuses_that_may_pass() {
        for status in [409, 500, 502, 504, 520] {
            assert_eq!(of_status(status), ProviderErrorKind::Unavailable, "{status}");
        }
        for status in [503, 529] {
            assert_eq!(of_status(status), ProviderErrorKind::Overloaded, "{status}");
        }
    }
}
