//! The redirects that a client with keys follows.

use reqwest::redirect::Policy;

const MAX_REDIRECTS: usize = 3;

/// Returns a policy that follows a redirect if it keeps the request as it is, within one scheme, host and port. Other
/// redirects are not followed, and their response is returned: they would change the request, or send it and its key
/// elsewhere.
pub(crate) fn same_origin_only() -> Policy {
    Policy::custom(|attempt| {
        let keeps = matches!(attempt.status().as_u16(), 307 | 308);
        let stays = attempt.previous().iter().all(|url| url.origin() == attempt.url().origin());
        match keeps && stays && attempt.previous().len() <= MAX_REDIRECTS {
            true => attempt.follow(),
            false => attempt.stop(),
        }
    })
}
