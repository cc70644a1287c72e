//! The names under which tools of servers are offered. Plain functions.

use std::collections::{BTreeMap, HashSet};

use crate::name::Name;

/// The longest name that model vendors accept.
const MAX_LENGTH: usize = 64;

/// A name in the characters that model vendors accept: `.`, `/`, `:` and spaces become `_`.
///
/// # Errors
///
/// When the name contains any other character, is empty or is too long. So no two names can look alike.
pub(crate) fn clean(name: &str) -> Result<String, String> {
    let shown: String = name.chars().take(MAX_LENGTH).flat_map(char::escape_default).collect();
    if name.is_empty() || name.len() > MAX_LENGTH {
        return Err(format!("its name `{shown}` has {} bytes; 1 to {MAX_LENGTH} are allowed", name.len()));
    }
    name.chars()
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' => Ok(c),
            '.' | '/' | ':' | ' ' => Ok('_'),
            other => Err(format!("its name `{shown}` has the character U+{:04X}", u32::from(other))),
        })
        .collect()
}

/// The name under which each tool is offered, or the reason why it is not. `tools` are pairs of a server and a tool,
/// both cleaned; `taken` returns the kind of thing that has a name already.
///
/// A tool keeps its own name if nothing else has it. If names collide, with a tool of another server or with an
/// existing name, all of the colliding tools are offered as `{server}__{tool}`. A tool whose name collides even then is
/// not offered.
pub(crate) fn offer(tools: &[(&str, &str)], taken: impl Fn(&str) -> Option<&'static str>) -> Vec<Result<Name, String>> {
    let mut bearers: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, tool) in tools {
        *bearers.entry(tool).or_default() += 1;
    }
    let wanted: Vec<String> = tools
        .iter()
        .map(|(server, tool)| match bearers.get(tool) {
            Some(1) if taken(tool).is_none() => (*tool).to_owned(),
            _ => format!("{server}__{tool}"),
        })
        .collect();
    let (mut seen, mut twice) = (HashSet::new(), HashSet::new());
    for name in &wanted {
        if !seen.insert(name) {
            twice.insert(name);
        }
    }
    let check = |name: &String| match taken(name) {
        _ if name.len() > MAX_LENGTH => Err(format!("with its server's name it is `{name}`, which is too long")),
        _ if twice.contains(name) => Err(format!("another tool is `{name}` as well")),
        Some(other) => Err(format!("{other} is `{name}` already")),
        None => Ok(name.as_str().into()),
    };
    wanted.iter().map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cleaned_by_one_rule_or_refused() {
        let check = |name: &str, expected: Result<&str, &str>| {
            assert_eq!(clean(name).as_deref().map_err(String::as_str), expected, "{name:?}");
        };
        check("read_file-2", Ok("read_file-2"));
        check("github.issues/create now:x", Ok("github_issues_create_now_x"));
        check("", Err("its name `` has 0 bytes; 1 to 64 are allowed"));
        check("rе", Err("its name `r\\u{435}` has the character U+0435"));
        check("read\u{200b}", Err("its name `read\\u{200b}` has the character U+200B"));
        assert!(clean(&"x".repeat(64)).is_ok());
        assert!(clean(&"x".repeat(65)).is_err());
        let long = clean(&"x".repeat(10_000)).unwrap_err();
        assert!(long.len() < 200, "{long}");
    }

    #[test]
    fn only_what_collides_is_named_after_its_server_and_every_one_of_it() {
        let taken = |name: &str| match name {
            "writer" => Some("an agent"),
            "a__both" => Some("a tool"),
            _ => None,
        };
        let tools = [("a", "both"), ("a", "own"), ("a", "writer"), ("b", "both"), ("b", "other")];
        let offered = |tools: &[(&str, &str)]| -> Vec<Result<String, String>> {
            offer(tools, taken).into_iter().map(|name| name.map(|name| name.to_string())).collect()
        };
        let expected = [
            Err("a tool is `a__both` already".to_owned()),
            Ok("own".to_owned()),
            Ok("a__writer".to_owned()),
            Ok("b__both".to_owned()),
            Ok("other".to_owned()),
        ];
        assert_eq!(offered(&tools), expected);
        let (mut turned, mut answer) = (tools, expected);
        turned.reverse();
        answer.reverse();
        assert_eq!(offered(&turned), answer, "whatever the order");
    }

    #[test]
    fn what_collides_even_with_its_servers_name_is_not_offered() {
        let tools = [("a", "b__c"), ("a__b", "c"), ("x", "b__c"), ("y", "c")];
        let offered = offer(&tools, |_| None);
        assert!(offered[0].is_err() && offered[1].is_err(), "{offered:?}");
        assert_eq!(offered[2].as_deref(), Ok("x__b__c"));
        assert_eq!(offered[3].as_deref(), Ok("y__c"));
        let same = [("a", "t_x"), ("a", "t_x")];
        assert!(offer(&same, |_| None).iter().all(Result::is_err));
    }
}
