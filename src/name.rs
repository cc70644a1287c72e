//! Names: the rules for a valid name, the comparison of names, and a map of values by name.
//!
//! A name appears in the prompts of all agents, so it must not look like two lines, like another name, or like nothing.

use std::borrow::Cow;
use std::sync::Arc;

use rpds::{HashTrieMapSync, RedBlackTreeMapSync};
use unicode_general_category::{GeneralCategory, get_general_category};
use unicode_normalization::UnicodeNormalization as _;

/// The name of an agent, an actor, a user, a tool or a provider. Cheap to clone; compared exactly.
pub type Name = Arc<str>;

/// The name of the user as which [`Runtime::run`](crate::Runtime::run) calls. No agent and no actor may have it.
pub(crate) const USER: &str = "user";
/// The tool by which an agent calls another.
pub(crate) const CALL_AGENT: &str = "call_agent";
/// The tool by which an agent ends its call.
pub(crate) const FINISH: &str = "finish";
const INVISIBLE: &str = "a name must not have characters that are invisible or turn text around";
/// The longest name, in characters.
const MAX_LENGTH: usize = 64;

/// Returns what is wrong with a name, if anything. Reserved names match in any case of their letters.
pub(crate) fn problem(name: &str, reserved: &[&str]) -> Option<&'static str> {
    Some(match name {
        "" => "a name must not be empty",
        _ if is_reserved(name, reserved) => "the name is reserved",
        _ if name.chars().nth(MAX_LENGTH).is_some() => "a name may have at most 64 characters",
        _ if name.chars().any(char::is_control) => "a name must not have control characters",
        _ if [visible(name).next(), visible(name).last()].into_iter().flatten().any(char::is_whitespace) => {
            "a name must not begin or end with white space"
        }
        _ if has_invisible(name) => INVISIBLE,
        _ => return None,
    })
}

/// Returns whether a name looks like a reserved one.
pub(crate) fn is_reserved(name: &str, reserved: &[&str]) -> bool {
    reserved.iter().any(|word| visible(name).nfkc().flat_map(char::to_lowercase).eq(word.chars()))
}

/// Returns what is wrong with the name of a user, or of a caller that calls as a user.
pub(crate) fn problem_of_user(name: &str) -> Option<&'static str> {
    problem(name, &[CALL_AGENT, FINISH])
}

/// Returns the key by which names are compared: the name in [NFC](https://www.unicode.org/reports/tr15/), because the
/// same letters may be encoded in several ways, without the characters that only select how another one looks.
pub(crate) fn key(name: &str) -> Cow<'_, str> {
    if name.is_ascii() { name.into() } else { visible(name).nfc().collect::<String>().into() }
}

/// Returns the same key, shared with the name where possible.
pub(crate) fn shared_key(name: &Name) -> Name {
    match key(name) {
        Cow::Borrowed(_) => Arc::clone(name),
        Cow::Owned(key) => key.into(),
    }
}

const JOINER: char = '\u{200d}';
/// Characters that Unicode classifies as letters, marks or symbols, and that fonts do not show.
const BLANK: [char; 8] =
    ['\u{34f}', '\u{115f}', '\u{1160}', '\u{17b4}', '\u{17b5}', '\u{2800}', '\u{3164}', '\u{ffa0}'];

/// Returns whether a character only selects how the one before it looks.
pub(crate) fn is_variation(c: char) -> bool {
    matches!(c, '\u{180b}'..='\u{180d}' | '\u{180f}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

fn visible(name: &str) -> impl Iterator<Item = char> {
    name.chars().filter(|c| *c != JOINER && !is_variation(*c))
}

/// Returns whether a character is not shown, or changes how the text around it is shown. Control characters are not
/// looked at.
pub(crate) fn is_invisible(c: char) -> bool {
    use GeneralCategory::{Format, LineSeparator, ParagraphSeparator, Unassigned};
    let category = get_general_category(c);
    BLANK.contains(&c) || matches!(category, Format | LineSeparator | ParagraphSeparator | Unassigned)
}

/// Returns whether a name has characters that could mislead a reader: format characters, line separators, blank
/// letters. A zero-width joiner is allowed between two symbols, as in emoji, and a variation selector after any
/// character.
fn has_invisible(name: &str) -> bool {
    use GeneralCategory::{ModifierSymbol, OtherSymbol};
    let is_symbol =
        |c: Option<char>| c.is_some_and(|c| matches!(get_general_category(c), OtherSymbol | ModifierSymbol));
    let mut before = None;
    if name.starts_with(is_variation) {
        return true;
    }
    let mut rest = name.chars().filter(|c| !is_variation(*c)).peekable();
    while let Some(c) = rest.next() {
        let is_invisible = match c {
            JOINER => !is_symbol(before) || !is_symbol(rest.peek().copied()),
            c => is_invisible(c),
        };
        if is_invisible {
            return true;
        }
        before = Some(c);
    }
    false
}

/// Values by name, in the order in which they were added. A clone takes constant time and shares all that neither
/// changes.
#[derive(Clone)]
pub(crate) struct NameMap<V> {
    places: HashTrieMapSync<Name, u64>,
    values: RedBlackTreeMapSync<u64, V>,
}

impl<V> Default for NameMap<V> {
    fn default() -> Self {
        Self { places: HashTrieMapSync::new_sync(), values: RedBlackTreeMapSync::new_sync() }
    }
}

impl<V> NameMap<V> {
    pub(crate) fn find(&self, name: &str) -> Option<&V> {
        self.values.get(self.places.get(&*key(name))?)
    }

    /// The values in the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &V> {
        self.values.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.values.size()
    }

    /// Appends a value.
    ///
    /// # Errors
    ///
    /// When the name is taken.
    pub(crate) fn insert(&mut self, name: &Name, value: V) -> Result<(), Name> {
        let key = shared_key(name);
        if self.places.contains_key(&key) {
            return Err(Arc::clone(name));
        }
        let place = self.values.last().map_or(0, |(last, _)| last + 1);
        self.places.insert_mut(key, place);
        self.values.insert_mut(place, value);
        Ok(())
    }

    /// Removes the value of that name. Returns whether there was one.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        let key = key(name);
        let place = self.places.get(&*key).copied();
        self.places.remove_mut(&*key);
        place.is_some_and(|place| self.values.remove_mut(&place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, expected: Option<&str>) {
        assert_eq!(problem(name, &[USER, CALL_AGENT, FINISH]), expected, "{name:?}");
    }

    #[test]
    fn a_name_that_a_reader_could_misread_is_unfit() {
        let reserved = Some("the name is reserved");
        for name in ["user", "User", "FINISH", "Call_Agent", "\u{ff55}ser", "user\u{fe0f}"] {
            check(name, reserved);
        }
        check("", Some("a name must not be empty"));
        check(&"x".repeat(65), Some("a name may have at most 64 characters"));
        for name in ["a\nb", "a\u{7f}", "a\u{85}b", "\t"] {
            check(name, Some("a name must not have control characters"));
        }
        for name in [" ", "user ", " a", "\u{3000}a", "\u{2028}"] {
            check(name, Some("a name must not begin or end with white space"));
        }
        for name in [
            "a\u{2028}b",
            "a\u{2029}b",
            "\u{202e}nimda",
            "a\u{2066}b",
            "user\u{200b}",
            "a\u{200c}b",
            "a\u{200d}b",
            "a\u{ad}b",
            "\u{feff}a",
            "a\u{2060}",
            "a\u{e0041}",
            "a\u{3164}",
            "\u{2800}",
            "✍\u{200d}",
            "\u{200d}✍",
            "\u{200d}",
            "\u{fe0f}",
        ] {
            check(name, Some("a name must not have characters that are invisible or turn text around"));
        }
    }

    #[test]
    fn a_name_of_any_script_and_of_emoji_is_fit() {
        for name in
            ["작가✍️", "👩🏽‍💻", "❤️‍🔥 heart", "editor in chief", "caf\u{e9}", "cafe\u{301}", "محرر", "users", "finisher"]
        {
            check(name, None);
        }
        check(&"가".repeat(64), None);
    }

    #[test]
    fn names_that_look_the_same_are_the_same_and_keep_their_places() {
        let mut map = NameMap::default();
        for (n, name) in ["caf\u{e9}", "b", "✍\u{fe0f}"].into_iter().enumerate() {
            map.insert(&name.into(), n).unwrap();
        }
        for twin in ["cafe\u{301}", "b", "✍"] {
            assert_eq!(map.insert(&twin.into(), 9), Err(twin.into()));
        }
        assert_eq!((map.find("cafe\u{301}"), map.find("✍"), map.find("B")), (Some(&0), Some(&2), None));
        let before = map.clone();
        assert!(map.remove("cafe\u{301}") && !map.remove("caf\u{e9}"));
        map.insert(&"caf\u{e9}".into(), 3).unwrap();
        assert_eq!(map.iter().collect::<Vec<_>>(), [&1, &2, &3]);
        assert_eq!(before.iter().collect::<Vec<_>>(), [&0, &1, &2], "a clone stays as it was");
    }
}
