//! Replacements for ids of a server that contain a secret, because the SDK logs ids.

use parking_lot::Mutex;
use std::collections::VecDeque;

/// The most ids with a secret that are remembered, and the longest such id, in bytes.
const MAX_ENTRIES: usize = 1_000;
const MAX_LENGTH: usize = 1_000;

/// Ids that contain a secret, each with its replacement.
#[derive(Default)]
pub(super) struct Ids(Mutex<VecDeque<[String; 2]>>);

impl Ids {
    /// The id for the SDK: unchanged, or replaced if it contains a secret. `None` if such an id is too long.
    pub(super) fn shown(&self, id: String, is_secret: impl Fn(&str) -> bool) -> Option<String> {
        if !is_secret(&id) {
            return Some(id);
        }
        if id.len() > MAX_LENGTH {
            return None;
        }
        let mut known = self.0.lock();
        if let Some([_, shown]) = known.iter().find(|[secret, _]| *secret == id) {
            return Some(shown.clone());
        }
        let shown = uuid::Uuid::new_v4().to_string();
        known.push_back([id, shown.clone()]);
        if known.len() > MAX_ENTRIES {
            known.pop_front();
        }
        Some(shown)
    }

    /// The id for the server.
    pub(super) fn sent(&self, shown: &str) -> String {
        let known = self.0.lock();
        let secret = known.iter().find(|[_, known]| known == shown);
        secret.map_or(shown, |[secret, _]| secret).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_told_the_ids_that_it_gave_and_the_sdk_none_that_holds_a_secret() {
        let (ids, is_secret) = (Ids::default(), |id: &str| id.contains("canary"));
        assert_eq!(ids.shown("plain".to_owned(), is_secret).as_deref(), Some("plain"));
        let shown = ids.shown("canary-1".to_owned(), is_secret).unwrap();
        assert!(!shown.contains("canary"), "{shown}");
        assert_eq!(ids.shown("canary-1".to_owned(), is_secret), Some(shown.clone()));
        assert_eq!([ids.sent(&shown), ids.sent("plain")], ["canary-1", "plain"]);
        assert_eq!(ids.shown("canary".repeat(MAX_LENGTH), is_secret), None);
        for number in 0..10 * MAX_ENTRIES {
            ids.shown(format!("canary {number}"), is_secret);
        }
        assert_eq!(ids.0.lock().len(), MAX_ENTRIES);
    }
}
