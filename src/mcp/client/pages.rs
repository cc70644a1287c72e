//! All pages of a list, with limits of entries and bytes. Nothing here knows the type of the entries.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, Hasher, RandomState};
use std::io;

use rmcp::model::{PaginatedRequestParams, ServerResult};
use serde::Serialize;

/// The limits of a list.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// No further page is requested once there are more entries than this.
    pub(crate) entries: usize,
    /// The most bytes of all pages together.
    pub(crate) bytes: usize,
}

/// Requests page after page.
///
/// It ends with the last page, which has no cursor or an empty one; before a page that was there before, or after one
/// whose cursor was; or with too many entries.
///
/// # Errors
///
/// When a page cannot be fetched or parsed, or has more bytes than are left.
pub(crate) async fn all<T, F: Future<Output = Result<ServerResult, String>>>(
    most: Limits,
    ask: impl Fn(PaginatedRequestParams) -> F,
    read: impl Fn(ServerResult) -> Option<(Vec<T>, Option<String>)>,
) -> Result<Vec<T>, String> {
    let (mut entries, mut cursors, mut left) = (Vec::new(), HashSet::new(), most.bytes);
    let (mut pages, hashing) = (HashSet::new(), RandomState::new());
    let mut cursor = None;
    loop {
        let answer = ask(PaginatedRequestParams::default().with_cursor(cursor)).await?;
        let (size, hash) = measure(&answer, hashing.build_hasher());
        left = left.checked_sub(size).ok_or_else(|| format!("its list has more than {} bytes", most.bytes))?;
        let page = read(answer).ok_or("it answered with something else than it was asked for")?;
        if !pages.insert(hash) {
            return Ok(entries);
        }
        entries.extend(page.0);
        let next = page.1.filter(|next| !next.is_empty());
        cursor = next.filter(|next| entries.len() <= most.entries && cursors.insert(next.clone()));
        if cursor.is_none() {
            return Ok(entries);
        }
    }
}

/// The number of bytes of a value as JSON, and their hash.
fn measure(value: &impl Serialize, hasher: impl Hasher) -> (usize, u64) {
    struct Measure<H>(usize, H);

    impl<H: Hasher> io::Write for Measure<H> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            self.1.write(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut measure = Measure(0, hasher);
    // A value that cannot be written came from JSON nevertheless, and is limited by the number of its entries.
    let _ = serde_json::to_writer(&mut measure, value);
    (measure.0, measure.1.finish())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use serde_json::{Value, json};

    /// The list of a server that answers with these pages, and the number of requests.
    async fn listed(most: Limits, page: impl Fn(usize) -> Value) -> (Result<Vec<Value>, String>, usize) {
        let asked = Cell::new(0);
        let ask = |_| {
            let answer = ServerResult::CustomResult(rmcp::model::CustomResult::new(page(asked.get())));
            asked.set(asked.get() + 1);
            std::future::ready(Ok(answer))
        };
        let read = |answer| match answer {
            ServerResult::CustomResult(mut page) => {
                let next = page.0["next"].as_str().map(str::to_owned);
                Some((page.0["entries"].take().as_array()?.clone(), next))
            }
            _ => None,
        };
        (all(most, ask, read).await, asked.get())
    }

    #[tokio::test]
    async fn pages_are_asked_for_until_the_last_one_or_one_that_was_there_before() {
        let most = Limits { entries: 100, bytes: 10_000 };
        let three = |n: usize| json!({"entries": [n], "next": (n < 2).then(|| n.to_string())});
        assert_eq!(listed(most, three).await, (Ok(vec![json!(0), json!(1), json!(2)]), 3));
        let circle = |n: usize| json!({"entries": [], "next": (n % 2).to_string()});
        assert_eq!(listed(most, circle).await, (Ok(vec![]), 3));
        let empty = |n: usize| json!({"entries": [n], "next": ""});
        assert_eq!(listed(most, empty).await, (Ok(vec![json!(0)]), 1));
        let same = |_| json!({"entries": [1], "next": "again"});
        assert_eq!(listed(most, same).await, (Ok(vec![json!(1)]), 2));
        let unreadable = |_| json!({"entries": 1});
        let expected = "it answered with something else than it was asked for".to_owned();
        assert_eq!(listed(most, unreadable).await, (Err(expected), 1));
    }

    #[tokio::test]
    async fn a_list_without_end_ends_with_too_many_entries_or_bytes() {
        let page = |n: usize| json!({"entries": ["x".repeat(1_000)], "next": n.to_string()});
        let (entries, asked) = listed(Limits { entries: 4, bytes: 1_000_000 }, page).await;
        assert_eq!((entries.unwrap().len(), asked), (5, 5));
        let expected = Err("its list has more than 10000 bytes".to_owned());
        assert_eq!(listed(Limits { entries: 1_000, bytes: 10_000 }, page).await, (expected, 10));
        // Cursors count as well.
        let cursor = |n: usize| json!({"entries": [], "next": "x".repeat(1_000) + &n.to_string()});
        assert!(listed(Limits { entries: 1_000, bytes: 10_000 }, cursor).await.0.is_err());
    }
}
