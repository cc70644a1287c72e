//! A cache of results that removes the least recently used ones. Nothing here waits.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::content::{Attachment, AttachmentSource, Content};

/// The limits of the cache: the time and the amount that results are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) time_to_live: Duration,
    pub(super) results: usize,
    pub(super) bytes: usize,
}

#[derive(Default)]
pub(super) struct LruCache {
    kept: HashMap<Arc<str>, CachedResult>,
    /// The keys in the order in which they were last used.
    by_use: BTreeMap<u64, Arc<str>>,
    uses: u64,
    bytes: usize,
}

struct CachedResult {
    content: Content,
    bytes: usize,
    used: u64,
    /// `None` if it never expires.
    expires: Option<Instant>,
}

impl LruCache {
    /// Returns the result under this key, if there is one that has not expired.
    pub(super) fn get(&mut self, key: &str, now: Instant) -> Option<Content> {
        let kept = self.take(key)?;
        if kept.expires.is_some_and(|expires| expires <= now) {
            return None;
        }
        let content = kept.content.clone();
        self.put(key.into(), kept);
        Some(content)
    }

    /// Keeps a result, if it fits and does not expire at once. The least recently used results are removed to make room.
    pub(super) fn insert(&mut self, key: &Arc<str>, content: &Content, bounds: &Bounds, now: Instant) {
        self.take(key);
        let bytes = key.len() + size(content);
        if bytes > bounds.bytes || bounds.time_to_live.is_zero() {
            return;
        }
        let expires = now.checked_add(bounds.time_to_live);
        self.put(Arc::clone(key), CachedResult { content: content.clone(), bytes, used: 0, expires });
        while self.kept.len() > bounds.results || self.bytes > bounds.bytes {
            let Some(oldest) = self.by_use.first_key_value().map(|(_, key)| Arc::clone(key)) else { return };
            self.take(&oldest);
        }
    }

    fn put(&mut self, key: Arc<str>, kept: CachedResult) {
        self.uses += 1;
        self.bytes += kept.bytes;
        self.by_use.insert(self.uses, Arc::clone(&key));
        self.kept.insert(key, CachedResult { used: self.uses, ..kept });
    }

    fn take(&mut self, key: &str) -> Option<CachedResult> {
        let kept = self.kept.remove(key)?;
        self.by_use.remove(&kept.used);
        self.bytes -= kept.bytes;
        Some(kept)
    }
}

fn size(content: &Content) -> usize {
    let attachments = content.attachments.iter().map(|Attachment { source, name, .. }| {
        let source = match source {
            AttachmentSource::Inline { media_type, base64 } => media_type.len() + base64.len(),
            AttachmentSource::Url { url } => url.len(),
        };
        source + name.as_ref().map_or(0, |name| name.len())
    });
    content.text.len() + attachments.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_expires_at_once_takes_no_room_and_what_never_does_is_kept() {
        let (now, key) = (Instant::now(), Arc::from("key"));
        for (time_to_live, kept) in [(Duration::ZERO, 0), (Duration::from_nanos(1), 1), (Duration::MAX, 1)] {
            let mut cache = LruCache::default();
            cache.insert(&key, &"text".into(), &Bounds { time_to_live, results: 9, bytes: 99 }, now);
            assert_eq!((cache.kept.len(), cache.by_use.len(), cache.bytes), (kept, kept, 7 * kept), "{time_to_live:?}");
            assert_eq!(cache.get("key", now).is_some(), kept == 1, "{time_to_live:?}");
        }
    }
}
