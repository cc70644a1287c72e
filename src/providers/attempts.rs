//! What failed attempts leave behind: what was shown of the reply, and what was paid for it.

use std::time::Duration;

use crate::provider::{DeltaSink, NextAttempt, ProviderError, ProviderErrorKind};
use crate::reply::Usage;

/// Returns whether a part of the reply has arrived and was shown.
pub(super) fn has_arrived(error: &ProviderError) -> bool {
    error.partial.as_ref().is_some_and(|partial| {
        let is_said = partial.text.is_some() || partial.refusal.is_some() || !partial.tool_calls.is_empty();
        // After an empty reply the model may reason again.
        is_said || partial.reasoning.is_some() && error.kind != ProviderErrorKind::EmptyResponse
    })
}

/// Returns whether another provider may reply to the same request: see [`Fallback`](super::Fallback).
pub(super) fn falls_back(error: &ProviderError) -> bool {
    use ProviderErrorKind::*;
    let is_of_the_provider = match error.kind {
        Authentication | RateLimited | QuotaExceeded | Overloaded | Unavailable | Connection | Timeout | Truncated => {
            true
        }
        InvalidRequest | ContextTooLong | ContentFilter | EmptyResponse | InvalidResponse | Other => false,
    };
    is_of_the_provider && !has_arrived(error)
}

/// The usage of the attempts of a call that have ended.
pub(super) fn settled(deltas: &DeltaSink<'_>) -> Usage {
    deltas.attempts.and_then(|attempts| attempts.settled()).unwrap_or_default()
}

/// Announces the next attempt of a wrapper, after an attempt that began when `before` was settled. What was settled
/// since then is the usage of attempts inside.
pub(super) async fn next_attempt(
    deltas: &mut DeltaSink<'_>,
    error: &ProviderError,
    pause: Option<Duration>,
    before: Usage,
) -> Result<(), ProviderError> {
    let settled = settled(deltas).without(before);
    deltas.next_attempt(NextAttempt { error, settled, pause }).await
}

/// The usage of all attempts, as far as it is known.
pub(super) fn sum(spent: Option<Usage>, usage: Option<Usage>) -> Option<Usage> {
    match (spent, usage) {
        (Some(spent), Some(usage)) => Some(spent + usage),
        (spent, usage) => spent.or(usage),
    }
}

/// The error that a request ends with, including the usage of earlier attempts.
pub(super) fn with_spent(mut error: ProviderError, spent: Option<Usage>) -> ProviderError {
    if let Some(spent) = spent {
        let partial = error.partial.get_or_insert_default();
        partial.usage = sum(Some(spent), partial.usage);
    }
    error
}
