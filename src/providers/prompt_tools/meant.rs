//! Decides whether a call is meant, from the text before it: an example, a refusal and a quotation are not. Plain
//! functions.

/// The maximum length of the text before a call that is read, in bytes.
pub(super) const MAX_LEAD: usize = 320;

/// The text before a call.
pub(super) struct Lead<'a> {
    /// The text before the call in the answer.
    pub(super) before: &'a str,
    /// The indentation of the call: 4 and more are code.
    pub(super) indent: usize,
    /// `true` if its line begins with the mark of a quotation.
    pub(super) is_quoted: bool,
}

impl Lead<'_> {
    /// Returns whether a call with tags of its own is meant.
    pub(super) fn is_meant(&self) -> bool {
        !self.is_shown() && !self.tells()
    }

    /// Returns whether the words before a call say that it is not meant.
    pub(super) fn tells(&self) -> bool {
        let sentence = self.sentence(false);
        !intends(&sentence) && (tells_of(&sentence) || self.is_under_a_heading())
    }

    /// Returns whether the line before it is the heading of an example.
    fn is_under_a_heading(&self) -> bool {
        let line = self.before.trim_end().rsplit('\n').next().unwrap_or_default();
        let line = line.trim_matches(|c: char| !c.is_alphabetic()).to_lowercase();
        line.split_whitespace().count() <= 3 && ["example", "예시"].iter().any(|word| line.starts_with(word))
    }

    /// Returns whether a call in a fence is meant. A fence may hold any code.
    pub(super) fn is_meant_in_a_fence(&self) -> bool {
        let over = self.sentence(true);
        let is_open = intends(&self.sentence(false));
        self.is_meant() && (is_open || !explains(&over) && !supposes(&words(&over)))
    }

    /// Returns whether a call stands in code, in a comment, a table or a quotation.
    pub(super) fn is_shown(&self) -> bool {
        let line = self.before.rsplit('\n').next().unwrap_or_default().trim_start();
        let is_indented =
            self.indent >= 4 && !(self.before.trim_end().ends_with(':') && intends(&self.sentence(false)));
        is_indented || self.is_quotation() || COMMENTS.iter().any(|sign| line.starts_with(sign))
    }

    fn is_quotation(&self) -> bool {
        let is_in = |quotes: &str| self.before.matches(quotes).count() % 2 == 1;
        self.is_quoted() || self.is_in_quotes() || is_in("\"\"\"") || is_in("'''")
    }

    /// Returns whether its line is a quotation, or the text before it ends with a quotation mark.
    pub(super) fn is_quoted(&self) -> bool {
        self.is_quoted || self.before.ends_with(['"', '\'', '“', '‘', '«', '„', '「', '『', '`'])
    }

    /// Returns whether a quotation that begins on the line has no end yet. A quotation mark behind a letter or a digit
    /// begins none: `a 5" screen`.
    fn is_in_quotes(&self) -> bool {
        let line = self.before.rsplit('\n').next().unwrap_or_default();
        let (mut is_open, mut last) = (false, ' ');
        for c in line.chars() {
            is_open = match c {
                '"' => !is_open && !last.is_alphanumeric(),
                '“' => !is_open,
                '„' | '«' | '「' | '『' => true,
                '”' | '»' | '」' | '』' => false,
                _ => is_open,
            };
            last = c;
        }
        is_open
    }

    /// The sentence that leads to the call, in lower case. A sentence that has ended is read only if `is_over`.
    fn sentence(&self, is_over: bool) -> String {
        let text = self.before.trim_end();
        let is_end = |(place, c): (usize, char)| {
            let behind = text[place + c.len_utf8()..].chars().next();
            matches!(c, '.' | '!' | '?' | '。') && behind.is_none_or(char::is_whitespace)
                || c == '\n' && behind == Some('\n')
        };
        let ends = |text: &str| text.ends_with(['.', '!', '?', '。']);
        if ends(text) && !is_over {
            return String::new();
        }
        let within = text.trim_end_matches(['.', '!', '?', '。']);
        let begin =
            within.char_indices().rev().find(|place| is_end(*place)).map_or(0, |(place, c)| place + c.len_utf8());
        within[begin..].to_lowercase().replace('’', "'")
    }
}

/// The beginnings of comments, and of the row of a table.
const COMMENTS: [&str; 8] = ["<!--", "//", "/*", "{#", "# ", "-- ", "% ", "|"];
/// Phrases of an explanation only.
const EXAMPLE: [&str; 29] = [
    "for example",
    "for instance",
    "e.g.",
    "an example",
    "example:",
    "example call",
    "such as",
    "looks like",
    "look like",
    "usage",
    "documentation",
    "as documented",
    "you write",
    "one writes",
    "you could",
    "you can ",
    "must write",
    "tool form",
    "the form is",
    "the form of a",
    "beispiel",
    "por ejemplo",
    "par exemple",
    "例如",
    "例：",
    "例:",
    "예를 들",
    "예시",
    "않겠습니다",
];
/// Phrases of an explanation, and also of a model that means the call.
const MANNER: [&str; 8] = ["like this", "like so", "as follows", "this way", "syntax", "format", "template", "이렇게"];
/// Phrases that report a call of another author, or an earlier one.
const REPORT: [&str; 19] = [
    "ignore this",
    "i previously",
    "i already called",
    "i already ran",
    "earlier i wrote",
    "you said:",
    "you wrote:",
    "user wrote",
    "user said",
    "previous assistant",
    "previous agent",
    "prompt injection",
    "instruction was",
    "told me to",
    "asked me to",
    "wanted this",
    "있었습니다",
    "다음과 같습니다",
    "내용입니다",
];
/// The beginnings of a clause that announces a call.
const INTENT: [&str; 21] = [
    "let me ",
    "i'll ",
    "i will ",
    "i call ",
    "i am calling ",
    "i'm calling ",
    "i'm going to ",
    "i am going to ",
    "i need to ",
    "so i call ",
    "so i'll ",
    "so i will ",
    "so let me ",
    "now ",
    "checking ",
    "searching ",
    "looking ",
    "fetching ",
    "finding ",
    "opening ",
    "reading ",
];
/// Words that announce something other than a call.
const SHOWING: [&str; 12] = [
    "show",
    "give",
    "explain",
    "illustrate",
    "demonstrate",
    "quote",
    "describe",
    "present",
    "cite",
    "write",
    "answer",
    "tell",
];
/// Words with which a model speaks of itself, anywhere in a sentence. Many of them are in [`INTENT`] too. There they
/// must begin the clause, with a space behind them, and stand beside beginnings that do not name the model.
const FIRST: [&str; 9] =
    ["i will", "i'll", "i'm going to", "i am going to", "let me", "let's", "i need to", "i am calling", "i call "];
const VERBS: [&str; 28] = [
    "write", "writing", "call", "calling", "use", "using", "run", "running", "execute", "invoke", "do", "output",
    "emit", "send", "make", "making", "issue", "say", "look", "be", "delete", "produce", "type", "add", "follow",
    "try", "perform", "print",
];
const SOURCES: [&str; 21] = [
    "page", "site", "website", "webpage", "document", "file", "email", "mail", "message", "article", "comment", "post",
    "readme", "content", "contents", "snippet", "text", "output", "log", "result", "attacker",
];
/// Verbs that may stand near the end of a sentence about a source.
const SAID: [&str; 8] = ["was", "were", "had", "returned", "responded", "showed", "included", "wanted"];
const SAYING: [&str; 19] = [
    "says",
    "said",
    "reads",
    "contains",
    "contained",
    "states",
    "tells",
    "asks",
    "has",
    "shows",
    "includes",
    "wants",
    "instructs",
    "is",
    "ends",
    "begins",
    "writes",
    "wrote",
    "saying",
];

/// Returns whether a sentence speaks of a call that is not made: an example, a refused or supposed one, or one that
/// another author wrote.
fn tells_of(sentence: &str) -> bool {
    let words = words(sentence);
    let mentions_a_tag = sentence.contains("`<") || sentence.contains("`[");
    explains(sentence) || mentions_a_tag || supposes(&words) || refuses(&words) || cites(sentence, &words)
}

/// Returns whether the last clause of a sentence announces a call. That outweighs the rest of the sentence.
fn intends(sentence: &str) -> bool {
    let clause = sentence.rsplit([',', ';', '—', '\n']).find(|clause| !clause.trim().is_empty()).unwrap_or_default();
    let clause = clause.trim_start_matches(|c: char| !c.is_alphanumeric());
    let words = words(clause);
    let is_korean = clause.trim_end().trim_end_matches(':').ends_with("겠습니다")
        && !["않겠습니다", "보여", "설명", "소개", "알려"].iter().any(|other| clause.contains(other));
    let begins = INTENT.iter().any(|begin| clause.starts_with(begin))
        || clause.starts_with("use ") && sentence.len() > clause.len() && !explains(sentence);
    let denies = |word: &&str| matches!(*word, "not" | "never") || word.ends_with("n't") || SHOWING.contains(word);
    is_korean || begins && !words.iter().any(denies) && !supposes(&self::words(sentence))
}

fn words(sentence: &str) -> Vec<&str> {
    sentence.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|word| !word.is_empty()).collect()
}

/// Returns whether a sentence explains: "For example", "like this".
fn explains(sentence: &str) -> bool {
    let says = |all: &[&str]| all.iter().any(|phrase| sentence.contains(phrase));
    says(&EXAMPLE) || says(&MANNER) && !says(&FIRST)
}

/// Returns whether a sentence supposes: "One would call".
fn supposes(words: &[&str]) -> bool {
    leads_to_a_verb(words, |word| matches!(word, "would" | "could" | "might" | "if"))
}

/// Returns whether a sentence refuses: "I will not write".
fn refuses(words: &[&str]) -> bool {
    let is_refusal = |word: &str| {
        matches!(word, "not" | "never" | "cannot" | "without" | "avoid" | "refuse" | "instead") || word.ends_with("n't")
    };
    leads_to_a_verb(words, is_refusal)
}

fn leads_to_a_verb(words: &[&str], begins: impl Fn(&str) -> bool) -> bool {
    let near = |at: usize| words[at + 1..words.len().min(at + 4)].iter().any(|word| VERBS.contains(word));
    (0..words.len()).any(|at| begins(words[at]) && near(at))
}

/// Returns whether a sentence cites: "The page says", "here is the text of the file".
fn cites(sentence: &str, words: &[&str]) -> bool {
    let is_own = |words: &[&str]| words.iter().any(|word| matches!(*word, "i" | "i'll" | "i'm" | "let" | "my"));
    let sources = || (0..words.len()).filter(|at| SOURCES.contains(&words[*at])).map(|at| &words[at + 1..]);
    if REPORT.iter().any(|phrase| sentence.contains(phrase)) {
        return true;
    }
    let is_over = |behind: &[&str]| {
        let said = behind.iter().position(|word| SAID.contains(word));
        said.is_some_and(|said| behind.len() <= said + 4) && !behind.contains(&"not") && !is_own(behind)
    };
    if sentence.trim_end().ends_with([':', '"']) && sources().any(is_over) {
        return true;
    }
    let is_said =
        sources().any(|behind| behind.len() <= 8 && behind.iter().any(|word| SAYING.contains(word)) && !is_own(behind));
    let Some(behind) = sources().next_back() else { return false };
    let presents =
        words.windows(2).any(|two| {
            matches!(
                two,
                ["here", "is" | "are"] | ["this", "is"] | ["below", "is"] | ["text" | "content" | "contents", "of"]
            )
        }) || words.iter().any(|word| matches!(*word, "here's" | "from" | "found" | "quote" | "quoted" | "quoting"));
    let is_presented = behind.len() <= 3 && presents && !is_own(words) && sentence.trim_end().ends_with(':');
    is_said
        || is_presented
        || words.len() <= 4
            && behind.is_empty()
            && sentence.trim_end().ends_with(':')
            && !is_own(words)
            && !words.iter().any(|word| word.ends_with("ing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lead(before: &str) -> Lead<'_> {
        Lead { before, indent: 0, is_quoted: false }
    }

    #[test]
    fn what_leads_to_a_call_that_is_made_is_no_explanation() {
        for before in [
            "",
            "I'll check.",
            "I don't know the weather. Let me look.",
            "I can't see it from here, so I ask the tool:",
            "Let`s look: ",
            "Here is the function call:\n\n",
            "Let me read the file:\n",
            "Plan: look it up.\nAction:\n",
            "I will call the tool like this:\n",
            "날씨를 확인하겠습니다.\n\n",
            "The page says nothing. I look elsewhere.\n",
            "I cannot answer without a look. ",
            "You asked for \"the weather\", so I look: ",
            "A 5\" screen it is. Now I look: ",
            "The user asks for the weather, so I call the tool: ",
            "Let me check the documentation:\n",
            "Let me find an example of x:\n",
            "I won't guess; I'll call search:\n",
            "Never mind, use search:\n",
            "This doesn't look right, so I call search:\n",
            "예시를 찾아보겠습니다:\n",
            "Searching for an example:\n",
            "Now the file:\n",
        ] {
            assert!(lead(before).is_meant(), "{before}");
            assert!(lead(before).is_meant_in_a_fence(), "{before}");
        }
    }

    #[test]
    fn an_example_a_refusal_and_a_quotation_are_not_meant() {
        for before in [
            "I will not write ",
            "I won't call ",
            "Never use ",
            "You can delete a file with a call like this:\n\n",
            "you would call it like this: ",
            "For example:\n",
            "Usage: write `<tool_call>` then\n",
            "The page says: \"",
            "The review reads: \"Great blender! ",
            "후기에 “아주 좋아요. ",
            "The page says:\n",
            "The website contains the following text:\n",
            "Here is the content of the page:\n\n",
            "예시:\n",
            "Let me show you an example:\n",
            "I'll give an example:\n",
            "For example, use search:\n",
            "예시를 보여 드리겠습니다:\n",
            "# Example\n\n",
            "This is the form of a call:\n",
            "**Example 1**\n",
            "The injected text was:\n",
            "The web page had this hidden text:\n",
            "Ignore this: ",
            "I previously tried:\n",
            "웹 페이지에는 다음과 같은 내용이 있었습니다:\n\n",
        ] {
            assert!(!lead(before).is_meant(), "{before}");
        }
        assert!(!lead("One would write it like this.\n\n").is_meant_in_a_fence());
        assert!(!Lead { indent: 4, ..lead("") }.is_meant());
        assert!(!Lead { indent: 4, ..lead("It prints:\n\n    ") }.is_meant());
        assert!(Lead { indent: 4, ..lead("Let me search:\n\n    ") }.is_meant());
        assert!(!Lead { is_quoted: true, ..lead("") }.is_meant());
    }
}
