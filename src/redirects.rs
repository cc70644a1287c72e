//! Which redirects a client follows that carries keys.

use reqwest::redirect::Policy;

const MAX_REDIRECTS: usize = 3;

/// Follows a redirect that keeps the request as it is, within one scheme, host and port. All others are
/// handed back: they would change the request, or carry it and its key elsewhere.
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
