//! What a server says went wrong: its words and what kind of failure they mean. Nothing here asks a server.

use serde_json::Value;

use crate::error::ProviderErrorKind;

/// A failure in a server's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What happened.
    pub(crate) message: String,
    /// The HTTP status that it names itself, where it comes without one.
    pub(crate) status: Option<u16>,
    /// Its `code` and `type`.
    words: String,
}

impl Failure {
    /// Reads `{"error": {"message": …}}`, `{"error": "…"}`, `{"message": …}` or `{"detail": …}`.
    pub(crate) fn read(body: &Value) -> Option<Self> {
        let error = body.get("error").filter(|error| !error.is_null()).unwrap_or(body);
        let message = match error {
            Value::String(text) => text.clone(),
            _ => ["message", "detail"].iter().find_map(|key| match error.get(key)? {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                other => Some(other.to_string()),
            })?,
        };
        let words = ["code", "type"].map(|key| error.get(key).and_then(Value::as_str).unwrap_or_default());
        let status = ["status_code", "status", "code"].iter().find_map(|key| {
            let number = u16::try_from(error.get(key)?.as_u64()?).ok()?;
            (400..600).contains(&number).then_some(number)
        });
        Some(Self { message, status, words: words.join(" ") })
    }

    /// The same for what is surely a failure: without words of its own, all of it is shown.
    pub(crate) fn reported(body: &Value) -> Self {
        Self::read(body).unwrap_or_else(|| Self { message: body.to_string(), status: None, words: String::new() })
    }

    /// What kind of failure it is, given the HTTP status that it came with.
    pub(crate) fn kind(&self, status: Option<u16>) -> ProviderErrorKind {
        let says = |words: &[&str]| words.iter().any(|word| self.words.contains(word));
        if says(&["insufficient_quota"]) {
            return ProviderErrorKind::QuotaExceeded;
        }
        match status {
            Some(status) => of_status(status),
            None if says(&["rate_limit"]) => ProviderErrorKind::RateLimited,
            None if says(&["authentication", "permission", "api_key"]) => ProviderErrorKind::Authentication,
            None if says(&["invalid", "content_filter", "exceed"]) => ProviderErrorKind::InvalidRequest,
            None if says(&["overloaded", "server_error", "unavailable"]) => ProviderErrorKind::Unavailable,
            None => ProviderErrorKind::Other,
        }
    }
}

/// What kind of failure an HTTP status means by itself.
pub(crate) fn of_status(status: u16) -> ProviderErrorKind {
    match status {
        401 | 403 => ProviderErrorKind::Authentication,
        402 => ProviderErrorKind::QuotaExceeded,
        408 => ProviderErrorKind::Timeout,
        429 => ProviderErrorKind::RateLimited,
        409 | 500..600 => ProviderErrorKind::Unavailable,
        400..500 => ProviderErrorKind::InvalidRequest,
        _ => ProviderErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(body: Value, status: Option<u16>, message: &str, kind: ProviderErrorKind) {
        let failure = Failure::read(&body).unwrap();
        assert_eq!((failure.message.as_str(), failure.kind(status.or(failure.status))), (message, kind), "{body}");
    }

    #[test]
    fn the_words_and_their_kind() {
        use ProviderErrorKind::*;
        check(json!({"error": {"message": "m", "code": "insufficient_quota"}}), Some(429), "m", QuotaExceeded);
        check(json!({"error": {"message": "m", "code": "rate_limit_exceeded"}}), Some(429), "m", RateLimited);
        check(json!({"error": {"message": "m", "type": "overloaded_error"}}), None, "m", Unavailable);
        check(json!({"error": {"message": "m", "code": 502}}), None, "m", Unavailable);
        check(json!({"error": {"message": "m", "type": "tokens"}}), None, "m", Other);
        check(json!({"error": "m"}), Some(404), "m", InvalidRequest);
        check(json!({"detail": "m"}), Some(401), "m", Authentication);
        check(json!({"detail": [{"loc": ["body"]}]}), Some(422), r#"[{"loc":["body"]}]"#, InvalidRequest);
        check(json!({"object": "error", "message": "m", "code": 40303}), Some(402), "m", QuotaExceeded);
        assert_eq!(Failure::read(&json!({"error": {}})), None);
        assert_eq!(Failure::read(&json!([])), None);
    }

    #[test]
    fn fault_17_statuses_that_may_pass() {
        for status in [409, 500, 502, 503, 504, 520, 529] {
            assert_eq!(of_status(status), ProviderErrorKind::Unavailable, "{status}");
        }
    }
}
