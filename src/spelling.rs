//! Names with a similar spelling: the names that a model may have meant by one that does not exist.
//!
//! A search takes some nanoseconds for each name, because one reply may contain a thousand unknown names, and there may
//! be ten thousand names to compare.

use std::cmp::Ordering;

use crate::name::Name;

/// The maximum number of names in a result.
const MAX_SHOWN: usize = 20;
/// The maximum number of names that are compared by edit distance: those whose letters differ least.
const MAX_COMPARED: usize = 64;
/// The maximum number of letters that are compared. No name has more, but a model may write a whole page as a name.
const MAX_LETTERS: usize = 64;

/// Names, prepared for many searches.
pub(crate) struct Spellings {
    names: Vec<Name>,
    lower: Vec<String>,
    letters: Vec<Letters>,
}

impl Spellings {
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a Name>) -> Self {
        let names: Vec<Name> = names.cloned().collect();
        let lower: Vec<String> = names.iter().map(|name| lower(name)).collect();
        Self { letters: lower.iter().map(|name| Letters::of(name)).collect(), lower, names }
    }

    /// Returns all names, or the nearest by spelling when there are many. Case is ignored.
    pub(crate) fn nearest(&self, wanted: &str) -> Vec<Name> {
        if self.names.len() <= MAX_SHOWN {
            return self.names.clone();
        }
        let wanted = lower(wanted);
        let mut places = self.most_similar(Letters::of(&wanted));
        places.sort_by_cached_key(|place| strsim::levenshtein(&wanted, &self.lower[*place]));
        places.into_iter().take(MAX_SHOWN).map(|place| Name::clone(&self.names[place])).collect()
    }

    /// Returns the indices of the names whose letters differ least.
    fn most_similar(&self, wanted: Letters) -> Vec<usize> {
        let differences: Vec<u8> = self.letters.iter().map(|letters| letters.difference(wanted)).collect();
        let mut counts = [0; 1 + u8::MAX as usize];
        differences.iter().for_each(|difference| counts[usize::from(*difference)] += 1);
        let mut seen = 0;
        let limit = (0..u8::MAX).find(|difference| {
            seen += counts[usize::from(*difference)];
            seen > MAX_COMPARED
        });
        let limit = limit.unwrap_or(u8::MAX);
        let places = |order: Ordering| {
            let fits = move |(place, difference): (usize, &u8)| (difference.cmp(&limit) == order).then_some(place);
            differences.iter().enumerate().filter_map(fits)
        };
        places(Ordering::Less).chain(places(Ordering::Equal)).take(MAX_COMPARED).collect()
    }
}

fn lower(name: &str) -> String {
    name.chars().flat_map(char::to_lowercase).take(MAX_LETTERS).collect()
}

/// The set of letters in a name, and their number.
#[derive(Clone, Copy)]
struct Letters {
    set: u64,
    count: u64,
}

impl Letters {
    fn of(name: &str) -> Self {
        // Modulo 37, all letters and digits of ASCII have different bits, except `0` and `z`.
        let with = |letters: Self, c| Self { set: letters.set | 1 << (u32::from(c) % 37), count: letters.count + 1 };
        name.chars().fold(Self { set: 0, count: 0 }, with)
    }

    /// Returns a lower bound of the edit distance.
    fn difference(self, other: Self) -> u8 {
        let missing = (self.set & !other.set).count_ones().max((other.set & !self.set).count_ones());
        missing.max(self.count.abs_diff(other.count) as u32) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn letters_never_differ_by_more_than_the_edit_distance(one in "[a-e0-3_]{0,64}", other in "[a-e0-3_]{0,64}") {
            let difference = Letters::of(&one).difference(Letters::of(&other));
            prop_assert!(usize::from(difference) <= strsim::levenshtein(&one, &other));
        }
    }

    fn check(wanted: &str, first: &str) {
        let names: Vec<Name> = (0..10_000).map(|n| Name::from(format!("agent number {n}"))).collect();
        let others = ["Writer", "critic", "작가", ""].map(Name::from);
        let spellings = Spellings::new(names.iter().chain(&others));
        let nearest = spellings.nearest(wanted);
        assert_eq!(nearest.len(), MAX_SHOWN);
        assert_eq!(&*nearest[0], first, "{wanted:?}: {nearest:?}");
    }

    #[test]
    fn among_ten_thousand_names_the_nearest_comes_first() {
        check("writer", "Writer");
        check("writr", "Writer");
        check("CRITIC!", "critic");
        check("작가님", "작가");
        check("agent_number_4711", "agent number 4711");
        check("agent nr 42", "agent number 42");
        check("", "");
        let page = "x".repeat(1 << 20);
        let names: Vec<Name> = (0..100).map(|n| Name::from(n.to_string())).collect();
        assert_eq!(Spellings::new(names.iter()).nearest(&page).len(), MAX_SHOWN);
        assert_eq!(Spellings::new(names[..3].iter()).nearest("x"), names[..3], "few are all shown, as they joined");
    }
}
