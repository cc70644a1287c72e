//! A text that a regular expression matches. Nothing here matches one.

/// The maximum length of a text, in characters.
const MAX_CHARS: usize = 10_000;
/// The maximum depth of groups.
const MAX_DEPTH: usize = 32;

/// Returns a text that the pattern matches, with each part repeated `repeated` times if the pattern allows it. Another
/// `variant` has other characters where the pattern leaves a choice. `None`: the pattern has something that is not
/// followed here, such as look-around.
pub(super) fn matching(pattern: &str, repeated: usize, variant: usize) -> Option<String> {
    let mut reader = Reader { chars: pattern.chars().collect(), place: 0, repeated, variant };
    let text = reader.alternatives(0)?;
    (reader.place == reader.chars.len()).then_some(text)
}

struct Reader {
    chars: Vec<char>,
    place: usize,
    repeated: usize,
    variant: usize,
}

impl Reader {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.place).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek();
        self.place += usize::from(next.is_some());
        next
    }

    fn skip(&mut self, text: &str) -> bool {
        let is_next = text.chars().enumerate().all(|(nth, c)| self.chars.get(self.place + nth) == Some(&c));
        self.place += if is_next { text.chars().count() } else { 0 };
        is_next
    }

    /// Reads alternatives, and returns a text of the first.
    fn alternatives(&mut self, depth: usize) -> Option<String> {
        if depth > MAX_DEPTH {
            return None;
        }
        let first = self.sequence(depth)?;
        while self.skip("|") {
            self.sequence(depth)?;
        }
        Some(first)
    }

    fn sequence(&mut self, depth: usize) -> Option<String> {
        let mut text = String::new();
        while let Some(next) = self.peek().filter(|next| !matches!(next, '|' | ')')) {
            self.place += 1;
            let part = self.part(next, depth)?;
            let times = self.times()?;
            if text.len() + part.len().checked_mul(times)? > MAX_CHARS {
                return None;
            }
            text.push_str(&part.repeat(times));
        }
        Some(text)
    }

    fn part(&mut self, first: char, depth: usize) -> Option<String> {
        Some(match first {
            '^' | '$' => String::new(),
            '.' => "x".to_owned(),
            '[' => self.class()?.to_string(),
            '(' => {
                if self.skip("?<") || self.skip("?P<") {
                    // The name of a group; a look-behind begins with one of these characters.
                    while self.next().filter(|c| !matches!(c, '=' | '!'))? != '>' {}
                } else if !self.skip("?:") && self.peek() == Some('?') {
                    return None;
                }
                let inner = self.alternatives(depth + 1)?;
                (self.next()? == ')').then_some(inner)?
            }
            '\\' => match self.next()? {
                'b' | 'B' | 'A' | 'z' | 'Z' => String::new(),
                escaped => self.choose(&self.escape(escaped)?).map(|(c, length)| {
                    self.place += length;
                    c.to_string()
                })?,
            },
            '*' | '+' | '?' => return None,
            literal => literal.to_string(),
        })
    }

    /// Reads how often the part before is repeated.
    fn times(&mut self) -> Option<usize> {
        let (min, max) = match self.peek() {
            Some('*') => (0, usize::MAX),
            Some('+') => (1, usize::MAX),
            Some('?') => (0, 1),
            Some('{') => {
                let end = self.chars[self.place..].iter().position(|&c| c == '}')?;
                let range: String = self.chars[self.place + 1..self.place + end].iter().collect();
                self.place += end;
                match range.split_once(',') {
                    None => (range.parse().ok()?, range.parse().ok()?),
                    Some((min, "")) => (min.parse().ok()?, usize::MAX),
                    Some((min, max)) => (min.parse().ok()?, max.parse().ok()?),
                }
            }
            _ => return Some(1),
        };
        self.place += 1;
        // It is lazy or possessive.
        let _ = self.skip("?") || self.skip("+");
        Some(self.repeated.max(min).min(max))
    }

    /// Returns the characters that an escape stands for, with the number of further characters of the escape.
    fn escape(&self, escaped: char) -> Option<Escape> {
        let code = |length: usize| {
            let digits: String = self.chars.get(self.place..self.place + length)?.iter().collect();
            char::from_u32(u32::from_str_radix(&digits, 16).ok()?).map(|c| (vec![(c, c)], length))
        };
        Some(match escaped {
            'd' => (vec![('1', '9'), ('0', '0')], 0),
            'w' => (vec![('a', 'z'), ('A', 'Z'), ('0', '9'), ('_', '_')], 0),
            's' => (vec![(' ', ' ')], 0),
            'D' | 'S' => (vec![('a', 'z')], 0),
            'W' => (vec![('-', '-'), (' ', ' ')], 0),
            'n' => (vec![('\n', '\n')], 0),
            'r' => (vec![('\r', '\r')], 0),
            't' => (vec![('\t', '\t')], 0),
            'x' => code(2)?,
            'u' => code(4)?,
            other if other.is_alphanumeric() => return None,
            literal => (vec![(literal, literal)], 0),
        })
    }

    fn choose(&self, (ranges, length): &Escape) -> Option<(char, usize)> {
        let all = ranges.iter().flat_map(|&(first, last)| first..=last);
        let count = all.clone().take(1_000).count();
        all.clone().nth(self.variant.checked_rem(count)?).map(|c| (c, *length))
    }

    /// Reads a class after its `[`, and returns one of its characters.
    fn class(&mut self) -> Option<char> {
        let is_negated = self.skip("^");
        let mut ranges = Vec::new();
        let mut is_first = true;
        loop {
            let first = match self.next()? {
                ']' if !is_first => break,
                '[' if self.peek() == Some(':') => return None,
                '&' if self.peek() == Some('&') => return None,
                '\\' => {
                    let escaped = self.next()?;
                    let (mut some, length) = self.escape(escaped)?;
                    self.place += length;
                    if let [(one, other)] = some[..]
                        && one == other
                    {
                        one
                    } else {
                        ranges.append(&mut some);
                        is_first = false;
                        continue;
                    }
                }
                c => c,
            };
            is_first = false;
            let is_range = self.peek() == Some('-') && self.chars.get(self.place + 1).is_some_and(|&c| c != ']');
            let last = match is_range {
                true => {
                    self.place += 1;
                    match self.next()? {
                        '\\' => {
                            let escaped = self.next()?;
                            let (some, length) = self.escape(escaped)?;
                            self.place += length;
                            some.first()?.0
                        }
                        c => c,
                    }
                }
                false => first,
            };
            ranges.push((first, last));
        }
        if !is_negated {
            return self.choose(&(ranges, 0)).map(|(c, _)| c);
        }
        let is_free = |c: &char| !ranges.iter().any(|(first, last)| (first..=last).contains(&c));
        let free = "abcxyzABC123-_ .,;äß作".chars().filter(is_free);
        free.clone().nth(self.variant.checked_rem(free.count())?)
    }
}

/// Ranges of characters, and the number of characters that follow in the escape.
type Escape = (Vec<(char, char)>, usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_matches_its_pattern() {
        let check = |pattern: &str, expected: Option<&str>| {
            assert_eq!(matching(pattern, 1, 0).as_deref(), expected, "{pattern}");
        };
        check(r"^\d{4}-\d{2}$", Some("1111-11"));
        check(r"^[A-Z]{2,5}_(foo|bar)+\.?$", Some("AA_foo."));
        check(r"^(?:a|b)?(?<name>[^a-z]*)\x41\u00e4$", Some("aAAä"));
        check(r"[]a]x", Some("]x"));
        check("", Some(""));
        for unknown in
            [r"(?=a)b", r"(?<!a)b", r"(a)\1", r"\p{L}", "(", "[a", "a{", "*", "(a", "a)", "a{99999999}", "[[:alpha:]]"]
        {
            check(unknown, None);
        }
        assert_eq!(matching("^a*b{0,3}$", 5, 0).as_deref(), Some("aaaaabbb"));
        assert_eq!(matching("^[a-c]$", 1, 4).as_deref(), Some("b"));
        check(&"(".repeat(100_000), None);
    }
}
