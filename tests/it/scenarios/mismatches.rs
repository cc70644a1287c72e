//! What is wrong, in words that name what was expected and what came.

use std::fmt::Debug;

use super::expect::Texts;

/// What was found to be wrong, in words.
#[derive(Default)]
pub(super) struct Mismatches(Vec<String>);

impl Mismatches {
    /// All of it, in the order in which it was found.
    pub(super) fn list(self) -> Vec<String> {
        self.0
    }

    pub(super) fn add(&mut self, mismatch: String) {
        self.0.push(mismatch);
    }

    pub(super) fn holds(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.add(otherwise());
        }
    }

    pub(super) fn equal<T: PartialEq + Debug + ?Sized>(&mut self, what: &str, expected: &T, actual: &T) {
        let otherwise = || format!("{what}: expected {}, got {}", shown(expected), shown(actual));
        self.holds(expected == actual, otherwise);
    }

    /// As [`Self::equal`], where something is expected.
    pub(super) fn equal_if_stated<T: PartialEq + Debug>(
        &mut self,
        what: &str,
        expected: Option<&T>,
        actual: Option<&T>,
    ) {
        match (expected, actual) {
            (Some(expected), Some(actual)) => self.equal(what, expected, actual),
            (Some(expected), None) => self.add(format!("{what}: expected {}, got none", shown(expected))),
            (None, _) => {}
        }
    }

    pub(super) fn contains(&mut self, what: &str, expected: &Texts, actual: &str) {
        for text in expected.iter() {
            let otherwise = || format!("{what}: expected it to contain {}, got {}", shown(text), shown(actual));
            self.holds(actual.contains(text.as_str()), otherwise);
        }
    }

    pub(super) fn contains_none(&mut self, what: &str, unwanted: &Texts, actual: &str) {
        for text in unwanted.iter() {
            let otherwise = || format!("{what}: expected it not to contain {}, got {}", shown(text), shown(actual));
            self.holds(!actual.contains(text.as_str()), otherwise);
        }
    }
}

/// A value in a message, not too long.
pub(super) fn shown(value: &(impl Debug + ?Sized)) -> String {
    const LONGEST: usize = 600;
    let text = format!("{value:?}");
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}
