//! The difference of two lists of lines, as text.

use std::fmt::Write as _;

/// The maximum number of lines that a difference shows.
const MAX_SHOWN: usize = 200;
/// The number of equal lines that are shown before and after a change.
const CONTEXT: usize = 3;
/// The maximum size of the table in which the longest common part is looked up.
const MAX_TABLE: usize = 4_000_000;

/// One line of a difference.
#[derive(Clone, Copy, PartialEq)]
enum Line<'a> {
    Both(&'a str),
    Missing(&'a str),
    Extra(&'a str),
}

/// Returns the difference: lines that are in both lists begin with two spaces, lines of `expected` alone with `- `,
/// lines of `actual` alone with `+ `. `None`: the lists are the same.
pub(super) fn difference(expected: &[&str], actual: &[String]) -> Option<String> {
    let is_same = expected.len() == actual.len() && expected.iter().zip(actual).all(|(one, other)| one == other);
    (!is_same).then(|| show(&lines(expected, actual)))
}

fn lines<'a>(expected: &[&'a str], actual: &'a [String]) -> Vec<Line<'a>> {
    let before = expected.iter().zip(actual).take_while(|(one, other)| *one == *other).count();
    let (expected_rest, actual_rest) = (&expected[before..], &actual[before..]);
    let ends = expected_rest.iter().rev().zip(actual_rest.iter().rev());
    let after = ends.take_while(|(one, other)| *one == *other).count();
    let changed = &expected_rest[..expected_rest.len() - after];
    let mut lines: Vec<_> = expected[..before].iter().map(|line| Line::Both(line)).collect();
    changes(&mut lines, changed, &actual_rest[..actual_rest.len() - after]);
    lines.extend(expected[expected.len() - after..].iter().map(|line| Line::Both(line)));
    lines
}

/// Appends the lines between the equal beginning and the equal end.
fn changes<'a>(lines: &mut Vec<Line<'a>>, expected: &[&'a str], actual: &'a [String]) {
    let width = actual.len() + 1;
    let (mut one, mut other) = (0, 0);
    if (expected.len() + 1).saturating_mul(width) <= MAX_TABLE {
        // The length of the longest common part of what follows each pair of places.
        let mut common = vec![0_u32; (expected.len() + 1) * width];
        for one in (0..expected.len()).rev() {
            for other in (0..actual.len()).rev() {
                common[one * width + other] = match expected[one] == actual[other] {
                    true => common[(one + 1) * width + other + 1] + 1,
                    false => common[(one + 1) * width + other].max(common[one * width + other + 1]),
                };
            }
        }
        while one < expected.len() && other < actual.len() {
            if expected[one] == actual[other] {
                lines.push(Line::Both(expected[one]));
                (one, other) = (one + 1, other + 1);
            } else if common[(one + 1) * width + other] >= common[one * width + other + 1] {
                lines.push(Line::Missing(expected[one]));
                one += 1;
            } else {
                lines.push(Line::Extra(&actual[other]));
                other += 1;
            }
        }
    }
    lines.extend(expected[one..].iter().map(|line| Line::Missing(line)));
    lines.extend(actual[other..].iter().map(|line| Line::Extra(line)));
}

fn show(lines: &[Line<'_>]) -> String {
    let is_near = |place: usize| {
        let near = &lines[place.saturating_sub(CONTEXT)..(place + CONTEXT + 1).min(lines.len())];
        near.iter().any(|line| !matches!(line, Line::Both(_)))
    };
    let (mut text, mut shown, mut was_near) = (String::new(), 0, true);
    for (place, line) in lines.iter().enumerate() {
        let near = is_near(place);
        if !near && was_near {
            text.push_str("  …\n");
        }
        was_near = near;
        if !near {
            continue;
        }
        shown += 1;
        // Writing to a String cannot fail.
        let _ = match line {
            _ if shown > MAX_SHOWN => {
                let _ = writeln!(text, "  … and {} more lines", lines.len() - place);
                break;
            }
            Line::Both(line) => writeln!(text, "  {line}"),
            Line::Missing(line) => writeln!(text, "- {line}"),
            Line::Extra(line) => writeln!(text, "+ {line}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: &[&str], actual: &[&str], shown: Option<&str>) {
        let actual: Vec<String> = actual.iter().map(|&line| line.to_owned()).collect();
        assert_eq!(difference(expected, &actual).as_deref(), shown, "{expected:?} {actual:?}");
    }

    #[test]
    fn a_difference_shows_what_is_missing_and_what_is_extra() {
        check(&[], &[], None);
        check(&["a", "b"], &["a", "b"], None);
        check(&[], &["a"], Some("+ a\n"));
        check(&["a"], &[], Some("- a\n"));
        check(&["a", "b", "c"], &["a", "x", "c"], Some("  a\n- b\n+ x\n  c\n"));
        check(&["a", "a"], &["a", "a", "a"], Some("  a\n  a\n+ a\n"));
        check(&["b", "a", "c", "d"], &["a", "b", "d", "c"], Some("- b\n  a\n- c\n+ b\n  d\n+ c\n"));
        check(&["1", "2", "3", "4", "5"], &["1", "2", "3", "4"], Some("  …\n  2\n  3\n  4\n- 5\n"));
    }

    #[test]
    fn a_difference_of_a_hundred_thousand_lines_is_short_and_quick() {
        let actual: Vec<String> = (0..100_000).map(|n| format!("a > b{n}")).collect();
        let mut expected: Vec<&str> = actual.iter().map(String::as_str).collect();
        expected[50_000] = "x";
        assert_eq!(difference(&expected, &actual).unwrap().lines().count(), 10);
        expected.reverse();
        assert!(difference(&expected, &actual).unwrap().lines().count() <= MAX_SHOWN + 2);
    }
}
