//! Whether the ids of tool calls are those that a scenario has written.

use std::collections::HashMap;

/// What ids a model's tool calls have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ids {
    /// Those in the script.
    AsWritten,
    /// Others: within one context each id in the script stands for one other, and no two for the same.
    Renamed,
}

impl Ids {
    /// The ids of one context, none of which has been seen yet.
    pub(super) fn of_a_context(self) -> Renaming {
        Renaming { ids: self, actual: HashMap::new(), written: HashMap::new() }
    }
}

/// Which id stands for which in one context.
pub(super) struct Renaming {
    ids: Ids,
    actual: HashMap<String, String>,
    written: HashMap<String, String>,
}

impl Renaming {
    /// The id that must stand where the script has `written`, given that `actual` stands there.
    pub(super) fn expected(&mut self, written: &str, actual: &str) -> String {
        if self.ids == Ids::AsWritten {
            return written.to_owned();
        }
        match (self.actual.get(written), self.written.get(actual)) {
            (Some(known), _) => known.clone(),
            (None, Some(other)) => format!("another id for `{written}` than for `{other}`"),
            (None, None) => {
                self.actual.insert(written.to_owned(), actual.to_owned());
                self.written.insert(actual.to_owned(), written.to_owned());
                actual.to_owned()
            }
        }
    }
}
