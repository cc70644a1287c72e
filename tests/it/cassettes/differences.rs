//! A list of what differs.

use std::fmt::Debug;

#[derive(Default)]
pub(super) struct Differences(pub(super) Vec<String>);

impl Differences {
    pub(super) fn same<T: PartialEq + Debug>(&mut self, what: &str, ours: T, recorded: T) {
        self.hold(ours == recorded, || format!("{what}: {ours:?} instead of {recorded:?}"));
    }

    pub(super) fn one_of<T: PartialEq + Debug>(&mut self, what: &str, ours: T, recorded: &[T]) {
        self.hold(recorded.contains(&ours), || format!("{what}: {ours:?} is none of {recorded:?}"));
    }

    pub(super) fn hold(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(what());
        }
    }
}
