//! Tool names for the names of agents. Pure.

use std::collections::HashSet;

use crate::name::Name;

/// The longest name of a tool, in bytes.
const MAX_LENGTH: usize = 64;

/// A unique tool name for each of the names, in their order.
///
/// A name that matches `[a-zA-Z0-9_-]{1,64}` stays unchanged. Of any other name, the ASCII letters and digits, `_` and
/// `-` are kept, the characters between them become one `_`, and `-` with eight hexadecimal digits that depend on the
/// whole name is appended; if nothing is kept, the name is `agent-` and the digits. Such a name does not depend on the
/// other names, unless it is taken.
pub(super) fn tool_names<'a>(names: impl Iterator<Item = &'a Name> + Clone) -> Vec<String> {
    let mut taken: HashSet<String> =
        names.clone().filter(|name| is_fit(name)).map(|name| name.as_ref().to_owned()).collect();
    names
        .map(|name| match is_fit(name) {
            true => name.as_ref().to_owned(),
            false => {
                let free = (0..).map(|attempt| made_of(name, attempt)).find(|made| taken.insert(made.clone()));
                free.unwrap_or_default()
            }
        })
        .collect()
}

/// Returns whether a name can be a tool's name unchanged.
pub(super) fn is_fit(name: &str) -> bool {
    (1..=MAX_LENGTH).contains(&name.len()) && name.bytes().all(is_kept)
}

fn is_kept(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn made_of(name: &str, attempt: u32) -> String {
    let mut kept = String::new();
    for letter in name.chars() {
        if u8::try_from(letter).is_ok_and(is_kept) {
            kept.push(letter);
        } else if !kept.ends_with('_') {
            kept.push('_');
        }
    }
    let kept = kept.trim_matches('_');
    let readable = if kept.is_empty() { "agent" } else { kept };
    let digits = digest(name, attempt);
    // The text is all ASCII.
    format!("{}-{digits:08x}", &readable[..readable.len().min(MAX_LENGTH - 9)])
}

/// [FNV-1a](https://datatracker.ietf.org/doc/html/draft-eastlake-fnv) of the attempt and the name, 32 bits.
fn digest(name: &str, attempt: u32) -> u32 {
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let salt = if attempt == 0 { Vec::new() } else { attempt.to_le_bytes().to_vec() };
    name.bytes().chain(salt).fold(0x811C_9DC5, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(names: &[&str], expected: &[&str]) {
        let names: Vec<Name> = names.iter().map(|name| Name::from(*name)).collect();
        assert_eq!(tool_names(names.iter()), expected);
    }

    #[test]
    fn a_name_that_is_fit_stays_and_any_other_gets_one_that_follows_from_it_alone() {
        check(&["researcher", "a-b_C9"], &["researcher", "a-b_C9"]);
        check(&["작가"], &["agent-457563c0"]);
        check(&["편집자", "작가"], &["agent-23312ff0", "agent-457563c0"]);
        check(&["the writer ✍ of texts"], &["the_writer_of_texts-807ad5a3"]);
    }

    #[test]
    fn names_are_fit_and_differ_whatever_they_are_made_of() {
        let taken = made_of("작가", 0);
        let long = "x".repeat(65);
        let names: Vec<Name> = ["작가", &taken, "a b", "a  b", "a_b", &long, " ", "__", "🙂"].map(Name::from).to_vec();
        let made = tool_names(names.iter());
        assert!(made.iter().all(|name| is_fit(name)), "{made:?}");
        assert_eq!(made.iter().collect::<HashSet<_>>().len(), names.len(), "{made:?}");
        assert_eq!(made[1], taken, "who bears a fit name keeps it, whoever came first");
        assert_ne!(made[0], taken);
        assert_eq!(made, tool_names(names.iter()), "it repeats");
    }
}
