//! Ids of calls. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The id of one call: of a [`Forward`](crate::Forward) and its [`Return`](crate::Return). Displayed as a UUID.
///
/// A call that a user begins gets its id from the runtime's source, which is random unless
/// [`RuntimeBuilder::call_ids`](crate::RuntimeBuilder::call_ids) sets another one. Every other id is derived from the
/// parent's id and the call's position among the parent's calls. For calls that a model makes, this is their position
/// in its replies. So a run whose first id is given repeats these ids, in whatever order the calls start. A tool or an
/// actor draws the ids of its calls in the order in which it makes them. These ids repeat only if that order does,
/// which is not guaranteed for calls that are made at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(Uuid);

impl CallId {
    /// A random id (UUID version 4).
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// Returns a source of ids that gives the same sequence for the same seed.
    ///
    /// ```
    /// use agentouto::CallId;
    ///
    /// let mut first = CallId::seeded(7);
    /// let mut again = CallId::seeded(7);
    /// assert_eq!([first(), first()], [again(), again()]);
    /// ```
    pub fn seeded(seed: u64) -> impl FnMut() -> Self + Send + 'static {
        let root = Self(Uuid::from_u64_pair(seed, !seed));
        let mut drawn = 0;
        move || {
            drawn += 1;
            root.child(drawn)
        }
    }

    /// The id of the `nth` action of this call (UUID version 8).
    #[must_use]
    pub(crate) fn child(self, nth: u64) -> Self {
        let (high, low) = self.0.as_u64_pair();
        let high = mix(high ^ mix(low ^ nth.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        let low = mix(low.wrapping_add(nth) ^ high.rotate_left(32));
        Self(Uuid::new_v8(Uuid::from_u64_pair(high, low).into_bytes()))
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every bit of the input affects every bit of the output.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn children_of_one_call_and_of_its_children_never_share_an_id() {
        let root = CallId::seeded(1)();
        let mut seen = HashSet::from([root]);
        for nth in 0..1_000 {
            let child = root.child(nth);
            assert!(seen.insert(child), "child {nth}");
            for deeper in 0..10 {
                assert!(seen.insert(child.child(deeper)), "child {nth}.{deeper}");
            }
        }
    }
}
