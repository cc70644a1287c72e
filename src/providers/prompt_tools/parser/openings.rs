//! The beginnings of calls, results and comments: lines, tags, brackets, JSON, escaped tags.

use super::*;

impl Parser {
    /// Shows one byte of text that may have been meant as a call.
    pub(super) fn mention(&mut self, input: Input<'_>, tag: usize, shown: &mut String) -> Option<usize> {
        let Input { rest, is_whole } = input;
        if rest.len() <= tag && !is_whole {
            return None;
        }
        let is_own = self.line_is_blank || self.before.trim_end().ends_with(':');
        let is_meant = || !self.is_in_element() && self.listed.is_none() && self.lead().is_meant();
        let follows = rest[tag..].bytes().next();
        let is_glued = follows
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'{' | b'[' | b'<' | b'\n' | b'('));
        self.has_marker = self.has_marker || (is_own || is_glued) && self.open_backticks == 0 && is_meant();
        Some(self.show(rest, 1, shown))
    }

    /// Reads the beginning of a line that may be a call without tags.
    pub(super) fn line(&mut self, input: Input<'_>) -> Step {
        let Input { rest, is_whole } = input;
        let (form, body) = match line_looks(rest, &self.tools, is_whole) {
            Line::Incomplete => return Step::Wait,
            Line::Text => return Step::Text,
            Line::Result if self.has_calls() => {
                self.commit();
                self.state = State::Dropped;
                return Step::Taken(rest.len());
            }
            Line::Result => return Step::Text,
            Line::Unreadable => {
                self.has_marker |= self.leads_to_a_call();
                return Step::Text;
            }
            Line::Thought(length) if !self.has_text && self.calls.is_empty() => {
                self.state = State::Reasoning(Closes::Untagged);
                return Step::Taken(length);
            }
            Line::Thought(_) => return Step::Text,
            Line::Passed(_) if self.blank.len() >= PIECE => return Step::Text,
            Line::Passed(length) => {
                self.has_marker |= rest[..length].contains("Action") && self.leads_to_a_call();
                self.blank.push_str(&rest[..length]);
                return Step::Taken(length);
            }
            Line::Named { name, body, how } => (Form::Named(name, how), body),
            Line::Code { body } => (Form::Code, body),
        };
        if !self.leads_to_a_call() {
            return Step::Text;
        }
        let scan = Scan::from(body);
        let scan = if matches!(form, Form::Code) { scan.of_code() } else { scan };
        self.state = State::Call { form, body, scan, is: Is::Meant };
        Step::Taken(0)
    }

    /// Reads what begins with `<`.
    pub(super) fn tag(&mut self, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, is_whole } = input;
        if rest.as_bytes().get(1).is_some_and(|byte| *byte == b'!') {
            return self.comment(input, shown);
        }
        let mark = match Mark::read(rest, is_whole) {
            Begins::Mark(mark) => mark,
            Begins::Incomplete if mark::may_begin(rest) || self.line_is_blank && self.tools.begins(&rest[1..]) => {
                return None;
            }
            _ => {
                // A call that is cut off in its first tag.
                let is_last = is_whole && self.open_backticks == 0 && rest.len() < MAX_HEAD && rest.starts_with(CALL);
                self.has_marker |= is_last && !rest.contains(['>', '\n']) && self.leads_to_a_call();
                return Some(self.show(rest, 1, shown));
            }
        };
        if let ("s", Some(end), true) = (mark.word(), mark.end, mark.is_closing) {
            // `</s>` ends a turn, or struck-out text in HTML.
            return match rest[end..].trim_start().bytes().next() {
                None if is_whole => Some(end),
                None if rest.len() < MAX_HEAD => None,
                _ => Some(self.show(rest, 1, shown)),
            };
        }
        let element = &rest[1..mark.named];
        let kind = match mark.kind() {
            Some(kind) => kind,
            None if self.line_is_blank && mark.end.is_some() && self.tools.contains(element) => {
                return self.element(mark, input, shown);
            }
            None => return Some(self.other(mark, rest, shown)),
        };
        if self.open_backticks > 0 && self.is_in_code(input)? {
            return Some(self.show(rest, 1, shown));
        }
        self.open_backticks = 0;
        self.marked(mark, kind, input, shown)
    }

    /// Reads a tag with a known kind.
    pub(super) fn marked(&mut self, mark: Mark, kind: TagKind, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, .. } = input;
        match (kind, mark.end) {
            (TagKind::Function, _) => self.function(mark, input, shown),
            (TagKind::Call | TagKind::Block | TagKind::Wrapper, Some(_)) => self.opening(mark, kind, input, shown),
            (TagKind::Python, Some(end)) => self.python(end, input, shown),
            (TagKind::Unread, Some(end)) => self.mention(input, end, shown),
            (TagKind::Turn, Some(end)) => Some(end),
            (TagKind::Stray, Some(end)) if self.has_calls() => Some(end),
            (TagKind::Stray, Some(end)) => {
                // The end of a call without its beginning.
                let is_own = self.has_text && (self.line_is_blank || self.before.ends_with('>'));
                let is_lost = is_own && matches!(mark.word(), "tool_call" | "function");
                self.has_marker = self.has_marker || is_lost && self.leads_to_a_call();
                Some(self.show(rest, end, shown))
            }
            (TagKind::Reasoning, Some(end)) => self.reasoning(Closes::Tag(mark), end, input, shown),
            (TagKind::ReasoningEnd, Some(end)) => self.reasoning_end(end, input, shown),
            (TagKind::Result, Some(end)) => Some(self.results(rest, end, mark.element().unwrap_or(NTH_RESULTS), shown)),
            (TagKind::Channel, Some(end)) => self.channel(end, input, shown),
            _ => Some(self.show(rest, 1, shown)),
        }
    }

    /// Reads what begins with `<!`. A comment without an end is text.
    pub(super) fn comment(&mut self, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, is_whole } = input;
        const COMMENT: (&str, &str) = ("<!--", "-->");
        if self.open_backticks > 0 || !rest.starts_with(COMMENT.0) {
            let may_be = self.open_backticks == 0 && COMMENT.0.starts_with(rest) && !is_whole;
            return if may_be { None } else { Some(self.show(rest, 1, shown)) };
        }
        if self.is_closed(Closes::Text(COMMENT.1), COMMENT.0.len(), input)? {
            self.state = State::Until(COMMENT.1, Shown::Yes);
        }
        Some(self.show(rest, COMMENT.0.len(), shown))
    }

    /// Reads a tag that is not one of calls. It may open or close reasoning, or an element that holds the words of
    /// others.
    pub(super) fn other(&mut self, mark: Mark, rest: &str, shown: &mut String) -> usize {
        let (Some(end), Some(nth)) = (mark.end, mark.element()) else { return self.show(rest, 1, shown) };
        let is_open = self.line_is_blank && self.open_backticks == 0 && !rest[..end].ends_with("/>");
        if mark.is_end() {
            self.close(nth);
        } else if is_open {
            if call::attribute(&rest[..end], "type").as_deref() == Some("reasoning") {
                self.think(Closes::Tag(mark));
                return end;
            }
            self.elements[nth] = self.elements[nth].saturating_add(1);
        }
        self.show(rest, end, shown)
    }

    /// Closes an element.
    pub(super) fn close(&mut self, nth: usize) {
        self.elements[nth] = self.elements[nth].saturating_sub(1);
        if !self.is_in_element() {
            self.is_within_mention = None;
        }
    }

    /// Reads a result. The model made it up, because real results are messages of the user.
    pub(super) fn results(&mut self, rest: &str, end: usize, nth: usize, shown: &mut String) -> usize {
        if self.has_calls() {
            self.commit();
            self.state = State::Dropped;
            return rest.len();
        }
        if !self.line_is_blank && !self.is_in_element() {
            self.is_within_mention = Some(false);
        }
        self.elements[nth] = self.elements[nth].saturating_add(1);
        self.show(rest, end, shown)
    }

    /// Reads the tag that Llama writes before code. The tag is dropped only before a call.
    pub(super) fn python(&mut self, end: usize, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, is_whole } = input;
        let inside = head(&rest[end..]).trim_start();
        let looks = match inside.bytes().next() {
            Some(b'{' | b'[' | b'<') => Lookahead::Call,
            None => Lookahead::Incomplete,
            Some(_) => match line_looks(inside, &self.tools, is_whole) {
                Line::Incomplete => Lookahead::Incomplete,
                Line::Text | Line::Unreadable => Lookahead::Text,
                _ => Lookahead::Call,
            },
        };
        match looks {
            Lookahead::Call => {
                self.line_is_blank = true;
                Some(end)
            }
            Lookahead::Incomplete if !is_whole && rest.len() - end < MAX_HEAD => None,
            _ => Some(self.show(rest, 1, shown)),
        }
    }

    /// Reads the head of a message of GPT-OSS (reasoning, a call, or text), or a channel of Gemma.
    pub(super) fn channel(&mut self, end: usize, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, is_whole } = input;
        const MESSAGE: &str = "<|message|>";
        const THOUGHT: &str = "<|channel>thought";
        if rest.starts_with(THOUGHT) {
            self.think(Closes::Text("<channel|>"));
            return Some(THOUGHT.len());
        }
        if rest.starts_with("<|channel>") {
            return if THOUGHT.starts_with(rest) && !is_whole { None } else { Some(end) };
        }
        let Some(place) = head(rest).find(MESSAGE) else {
            return if is_whole || rest.len() >= MAX_HEAD { Some(self.show(rest, 1, shown)) } else { None };
        };
        let (header, body) = (&rest[end..place], place + MESSAGE.len());
        if let Some(to) = header.find("to=") {
            let begin = end + to + "to=".len();
            let name = rest[begin..place].split(|c: char| c.is_whitespace() || c == '<').next().unwrap_or_default();
            let begin = begin + (name.len() - name.strip_prefix("functions.").unwrap_or(name).len());
            let name = (begin, begin + name.strip_prefix("functions.").unwrap_or(name).len());
            let inside = rest[body..].trim_start();
            let body = rest.len() - inside.len();
            return match inside.bytes().next() {
                Some(b'{') => self.begin(Form::Named(name, Named::Marked), body, Scan::from(body), self.verdict()),
                None if !is_whole && rest.len() < 2 * MAX_HEAD => None,
                _ => {
                    self.has_marker |= self.leads_to_a_call();
                    Some(body)
                }
            };
        }
        match header.contains("analysis") {
            true => self.think(Closes::Message),
            false => self.skips_space = !self.has_text,
        }
        Some(body)
    }

    /// Reads an opening tag of calls. If the text behind it does not look like a call, the tag is a mention.
    pub(super) fn opening(&mut self, mark: Mark, kind: TagKind, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, is_whole } = input;
        let end = mark.end?;
        let (tag, inside) = (&rest[..end], head(&rest[end..]).trim_start());
        if let Some(name) = call::attribute(tag, "name").filter(|_| tag.ends_with("/>")) {
            self.closed_in_itself(tag, &name, self.verdict(), shown);
            return Some(end);
        }
        let is_final = is_whole || rest.len() - end >= MAX_HEAD;
        if inside.is_empty() && !is_final {
            return None;
        }
        // A wrapper around tags of calls. The content of the taught tag is a call.
        let is_around = kind == TagKind::Wrapper || rest[1..mark.named].contains(':');
        if kind != TagKind::Block && inside.starts_with('<') && self.leads_to_a_call() {
            match Mark::read(inside, is_final) {
                Begins::Incomplete if mark::may_begin(inside) => return None,
                Begins::Mark(inner) if is_opening(&inner) && (is_around || inner.kind() == Some(TagKind::Call)) => {
                    return Some(end);
                }
                _ => {}
            }
        }
        let looks = match kind {
            _ if call::attribute(tag, "name").is_some() => Lookahead::Call,
            TagKind::Call => call_looks(inside, &self.tools, is_whole),
            _ => block_looks(inside, &self.tools, is_whole),
        };
        match looks {
            Lookahead::Call => {
                let is_plain = kind == TagKind::Call && rest.starts_with(CALL);
                let form = if is_plain { Form::Tagged } else { Form::Block(mark) };
                let scan = match inside.starts_with(['{', '[']) {
                    _ if is_plain => Scan::from(end),
                    true => Scan::from(end).of_json(),
                    false => Scan::from(end).of_code(),
                };
                self.begin(form, end, scan, self.verdict())
            }
            Lookahead::Incomplete if !is_final => None,
            _ => self.mention(input, end, shown),
        }
    }

    /// Adds a call in one tag, `<tool_call name="f" arguments="{}"/>`.
    pub(super) fn closed_in_itself(&mut self, tag: &str, name: &str, is: Is, shown: &mut String) {
        let call = self.tools.validate(name, &call::attribute(tag, "arguments").unwrap_or_default());
        match is {
            Is::Meant => {
                self.commit();
                self.add([call]);
            }
            Is::Told => self.tell(tag, vec![call], shown),
            _ => self.pass_over(tag, is, shown),
        }
    }

    /// Reads what begins with `<function=`.
    pub(super) fn function(&mut self, mark: Mark, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, is_whole } = input;
        let head = head(rest);
        let begin = mark.named + 1;
        let is_end = |c: char| c.is_whitespace() || matches!(c, '>' | '{' | '(' | '<');
        let end = match head[begin.min(head.len())..].find(is_end) {
            Some(length) => begin + length,
            None if is_whole || rest.len() >= MAX_HEAD => {
                let is_cut = self.tools.begins(&head[begin.min(head.len())..]);
                self.has_marker = self.has_marker || is_cut && self.leads_to_a_call();
                return Some(self.show(rest, 1, shown));
            }
            None => return None,
        };
        match function_looks(&head[end..], is_whole) {
            Lookahead::Call if !rest[..end].ends_with('=') => {
                let body = if rest[end..].starts_with('>') { end + 1 } else { end };
                let form = if rest.starts_with("<FUNCTION=") { Form::Escaped(UPPER[1].0) } else { Form::Function };
                self.begin(form, body, Scan::from(body), self.verdict())
            }
            Lookahead::Incomplete if !is_whole && rest.len() < MAX_HEAD => None,
            _ => self.mention(input, end + usize::from(rest[end..].starts_with('>')), shown),
        }
    }

    pub(super) fn begin(&mut self, form: Form, body: usize, scan: Scan, is: Is) -> Option<usize> {
        if is == Is::Meant {
            self.commit();
        }
        self.state = State::Call { form, body, scan, is };
        Some(0)
    }

    /// Reads an element at the beginning of a line that has the name of a tool. It is a call if it holds elements or
    /// nothing.
    pub(super) fn element(&mut self, mark: Mark, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, is_whole } = input;
        let end = mark.end?;
        let inside = head(&rest[end..]).trim_start();
        let name = &rest[1..mark.named];
        let is_plain = end == mark.named + 1 && !mark.is_closing;
        let may_close = format!("</{name}>");
        let looks = match inside.bytes().next() {
            _ if !is_plain => Lookahead::Text,
            None => Lookahead::Incomplete,
            Some(b'<') if inside.starts_with(&may_close) => Lookahead::Call,
            Some(b'<') => {
                let key = inside[1..].split(['>', '<', ' ', '\n']).next().unwrap_or_default();
                let is_key = self.tools.parameters(name).is_some_and(|schema| !schema["properties"][key].is_null());
                match &inside[1 + key.len()..] {
                    "" => Lookahead::Incomplete,
                    behind if is_key && behind.starts_with('>') => Lookahead::Call,
                    _ => Lookahead::Text,
                }
            }
            Some(_) => Lookahead::Text,
        };
        match looks {
            Lookahead::Call => {
                let is = self.is_meant(input)?;
                self.begin(Form::Element(mark.named), end, Scan::from(end), is)
            }
            Lookahead::Incomplete if !is_whole && rest.len() - end < MAX_HEAD => None,
            _ => Some(self.show(rest, 1, shown)),
        }
    }

    /// Reads what begins with `[`.
    pub(super) fn bracket(&mut self, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, is_whole } = input;
        let may_be = |word: &str| !is_whole && word.len() > rest.len() && word.starts_with(rest);
        if rest.as_bytes().get(1).is_some_and(|byte| BRACKETED.contains(byte)) {
            if let Some(step) = self.thought_in_brackets_if_any(input, shown) {
                return step;
            }
            if let Some(stray) = STRAYS.iter().find(|stray| rest.starts_with(**stray)).filter(|_| self.has_calls()) {
                return Some(stray.len());
            }
            if rest.starts_with(RESULTS.0) && self.line_is_blank {
                return Some(self.results(rest, RESULTS.0.len(), NTH_RESULTS, shown));
            }
            if rest.starts_with(RESULTS.1) {
                self.close(NTH_RESULTS);
                return Some(self.show(rest, RESULTS.1.len(), shown));
            }
            if may_be(MISTRAL)
                || may_be(REQUEST)
                || may_be(RESULTS.0)
                || may_be(RESULTS.1)
                || STRAYS.iter().any(|stray| may_be(stray))
            {
                return None;
            }
            if rest.starts_with(REQUEST) && self.is_meant(input)? == Is::Meant {
                self.line_is_blank = true;
                self.has_marker = true;
                return Some(REQUEST.len());
            }
            if rest.starts_with(MISTRAL) {
                return self.mistral(input, shown);
            }
        } else if rest.len() == 1 && !is_whole {
            return None;
        }
        if !self.stands_alone() {
            return Some(self.show(rest, 1, shown));
        }
        match code_looks(head(rest), &self.tools, is_whole) {
            Lookahead::Call if self.leads_to_a_call() => {
                self.state = State::Call { form: Form::Code, body: 0, scan: Scan::from(0).of_code(), is: Is::Meant };
                Some(0)
            }
            Lookahead::Incomplete if rest.len() < MAX_HEAD => None,
            _ => self.json(input, shown),
        }
    }

    /// Returns whether JSON or code may be a call here: at the beginning of a line, or behind a colon.
    pub(super) fn stands_alone(&self) -> bool {
        self.open_backticks == 0 && (self.line_is_blank || !self.is_inside && self.before.trim_end().ends_with(':'))
    }

    pub(super) fn mistral(&mut self, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, is_whole } = input;
        let is = self.is_meant(input)?;
        if is == Is::InCode {
            return Some(self.show(rest, 1, shown));
        }
        match mistral_arguments(rest, is_whole) {
            Ok(body) => self.begin(Form::Mistral, body, Scan::from(body), is),
            Err(Lookahead::Incomplete) if !is_whole => None,
            Err(_) => self.mention(input, MISTRAL.len(), shown),
        }
    }

    /// Reads JSON that no text precedes on its line.
    pub(super) fn json(&mut self, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, is_whole } = input;
        if !self.stands_alone() || !self.leads_to_a_call() {
            return Some(self.show(rest, 1, shown));
        }
        match json_looks(head(rest), is_whole) {
            Lookahead::Call => {
                self.state = State::Call { form: Form::Json, body: 0, scan: Scan::from(0), is: Is::Meant };
                Some(0)
            }
            Lookahead::Incomplete if rest.len() < MAX_HEAD => None,
            _ => Some(self.show(rest, 1, shown)),
        }
    }

    /// Reads a tag that is written with entities, or with a backslash before its brackets.
    pub(super) fn escaped(&mut self, input: Input<'_>, shown: &mut String) -> Option<usize> {
        let Input { rest, is_whole } = input;
        const MAX_LENGTH: usize = 48;
        let is_entity = rest.starts_with('&');
        let open = if is_entity { "&lt;" } else { "\\<" };
        let Some(behind) = rest.strip_prefix(open) else {
            let may_be = open.starts_with(rest) && !is_whole;
            return if may_be { None } else { Some(self.show(rest, 1, shown)) };
        };
        let word =
            behind.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '\\').next().unwrap_or_default();
        let plain = word.replace('\\', "").to_ascii_lowercase();
        if word.len() == behind.len()
            && !is_whole
            && word.len() < MAX_LENGTH
            && ESCAPED.iter().any(|known| known.0.starts_with(&*plain))
        {
            return None;
        }
        let known = ESCAPED.iter().find(|known| known.0 == plain && word.len() < MAX_LENGTH);
        let Some((_, entity, backslash)) = known else {
            return Some(self.show(rest, 1, shown));
        };
        let is = self.is_meant(input)?;
        if is == Is::InCode {
            return Some(self.show(rest, 1, shown));
        }
        if word.contains(|c: char| c.is_ascii_uppercase()) {
            self.has_marker |= is == Is::Meant;
            return Some(self.show(rest, 1, shown));
        }
        let close = if is_entity { entity } else { backslash };
        self.begin(Form::Escaped(close), 0, Scan::from(0), is)
    }
}
