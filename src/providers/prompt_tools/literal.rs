//! Calls as a line of code, `f(a=1, b='x')`, and the literals in them: those of Python, of JSON, and of Gemma.
//!
//! A call is read exactly as written or not at all: an argument without a name, a variable and a sum have no value
//! here.

use serde_json::{Map, Number, Value};

use super::offered_tools::plain_name;

/// The maximum depth of a literal.
const MAX_DEPTH: usize = 64;
/// The quotation marks of a string, the longest first. The last two are Gemma's.
const QUOTES: [&str; 6] = ["\"\"\"", "'''", "\"", "'", "<|\"|>", "<escape>"];

/// Reads one call or several, in brackets or without, each alone or in a `print(…)`. `None` for anything else.
pub(super) fn calls(code: &str) -> Option<Vec<(String, Map<String, Value>)>> {
    let mut code = Code { rest: code.trim() };
    let in_brackets = code.take("[");
    let mut calls = Vec::new();
    loop {
        code.rest = code.rest.trim_start_matches([',', ';']).trim_start();
        if code.rest.is_empty() || in_brackets && code.rest.starts_with(']') {
            break;
        }
        calls.push(code.printed()?);
        if !code.rest.starts_with([',', ';', ']', '\n']) && !code.rest.trim_start().is_empty() {
            code.rest.starts_with(char::is_whitespace).then_some(())?;
        }
        code.rest = code.rest.trim_start();
    }
    if in_brackets && !code.take("]") {
        return None;
    }
    (code.rest.trim().is_empty() && !calls.is_empty()).then_some(calls)
}

/// Reads an object with bare keys, `{location:<escape>Seoul<escape>, n: 5}`, as Gemma's models write it.
pub(super) fn object(code: &str) -> Option<Map<String, Value>> {
    let mut code = Code { rest: code.trim() };
    let object = code.object(MAX_DEPTH)?;
    code.rest.trim().is_empty().then_some(object)
}

struct Code<'a> {
    rest: &'a str,
}

impl<'a> Code<'a> {
    /// Skips a token, if it is the next, and the space around it.
    fn take(&mut self, token: &str) -> bool {
        match self.rest.trim_start().strip_prefix(token) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn name(&mut self) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !c.is_alphanumeric() && !"_-.".contains(c)).unwrap_or(rest.len());
        self.rest = &rest[end..];
        (end > 0).then(|| &rest[..end])
    }

    /// Reads a call, alone or in a `print(…)`.
    fn printed(&mut self) -> Option<(String, Map<String, Value>)> {
        let begin = self.rest;
        if self.name()? == "print" && self.take("(") {
            let call = self.call()?;
            self.rest = self.rest.trim_start();
            return self.close().then_some(call);
        }
        self.rest = begin;
        self.call()
    }

    fn call(&mut self) -> Option<(String, Map<String, Value>)> {
        let name = self.name()?;
        self.take("(").then_some(())?;
        let name = plain_name(name);
        let name = name.strip_prefix("default_api.").unwrap_or(name).to_owned();
        let mut arguments = Map::new();
        if self.rest.starts_with('{') {
            arguments = self.object(MAX_DEPTH)?;
            return self.close().then_some((name, arguments));
        }
        while !self.rest.trim_start().starts_with(')') {
            let key = self.name()?;
            self.take("=").then_some(())?;
            let value = self.value(MAX_DEPTH)?;
            arguments.insert(key.to_owned(), value).is_none().then_some(())?;
            if !self.take(",") {
                break;
            }
        }
        self.close().then_some((name, arguments))
    }

    /// Skips the end of a call, and leaves the space behind it.
    fn close(&mut self) -> bool {
        match self.rest.trim_start().strip_prefix(')') {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        self.rest = self.rest.trim_start();
        if let Some(quote) = QUOTES.into_iter().find(|quote| self.rest.starts_with(quote)) {
            return self.text(quote).map(Value::from);
        }
        match self.rest.as_bytes().first()? {
            b'{' => self.object(depth).map(Value::from),
            b'[' => self.list('[', "]", depth),
            b'(' => self.list('(', ")", depth),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Option<Value> {
        let end = self.rest.find(|c: char| !c.is_alphanumeric() && !"_-+.".contains(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word {
            "True" | "true" => Some(true.into()),
            "False" | "false" => Some(false.into()),
            "None" | "null" => Some(Value::Null),
            number => number.parse::<Number>().ok().map(Value::from),
        }
    }

    fn list(&mut self, open: char, close: &str, depth: usize) -> Option<Value> {
        self.rest = self.rest.strip_prefix(open)?;
        let mut values = Vec::new();
        while !self.take(close) {
            values.push(self.value(depth)?);
            if !self.take(",") {
                self.take(close).then_some(())?;
                break;
            }
        }
        Some(values.into())
    }

    fn object(&mut self, depth: usize) -> Option<Map<String, Value>> {
        let depth = depth.checked_sub(1)?;
        self.take("{").then_some(())?;
        let mut fields = Map::new();
        while !self.take("}") {
            let quote = QUOTES.into_iter().find(|quote| self.rest.starts_with(quote));
            let key = match quote {
                Some(quote) => self.text(quote)?,
                None => self.name()?.to_owned(),
            };
            self.take(":").then_some(())?;
            fields.insert(key, self.value(depth)?).is_none().then_some(())?;
            if !self.take(",") {
                self.take("}").then_some(())?;
                break;
            }
        }
        Some(fields)
    }

    fn text(&mut self, quote: &str) -> Option<String> {
        self.rest = &self.rest[quote.len()..];
        let is_code = quote.starts_with(['"', '\'']);
        let mut text = String::new();
        loop {
            if let Some(rest) = self.rest.strip_prefix(quote) {
                self.rest = rest;
                return Some(text);
            }
            let mut chars = self.rest.chars();
            match chars.next()? {
                '\\' if is_code => {
                    self.rest = chars.as_str();
                    self.escape(&mut text)?;
                }
                c => {
                    text.push(c);
                    self.rest = chars.as_str();
                }
            }
        }
    }

    /// Reads the escape behind a backslash.
    fn escape(&mut self, text: &mut String) -> Option<()> {
        let mut chars = self.rest.chars();
        let c = chars.next()?;
        self.rest = chars.as_str();
        let digits = match c {
            '\n' => return Some(()),
            'n' | 't' | 'r' | '\\' | '\'' | '"' | '/' => {
                text.push(match c {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    c => c,
                });
                return Some(());
            }
            'x' => 2,
            'u' => 4,
            _ => return None,
        };
        let mut code = self.hex(digits)?;
        if (0xD800..0xDC00).contains(&code) {
            self.rest = self.rest.strip_prefix("\\u")?;
            let low = self.hex(4)?.checked_sub(0xDC00).filter(|low| *low < 0x400)?;
            code = 0x10000 + ((code - 0xD800) << 10) + low;
        }
        text.push(char::from_u32(code)?);
        Some(())
    }

    fn hex(&mut self, digits: usize) -> Option<u32> {
        let code = u32::from_str_radix(self.rest.get(..digits)?, 16).ok()?;
        self.rest = &self.rest[digits..];
        Some(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(code: &str, expected: &Value) {
        let read = calls(code).map(|calls| {
            let call = |(name, arguments)| json!([name, arguments]);
            Value::from(calls.into_iter().map(call).collect::<Vec<_>>())
        });
        assert_eq!(read.unwrap_or(Value::Null), *expected, "{code}");
    }

    #[test]
    fn calls_are_read_with_their_literals() {
        check("[f(a=1)]", &json!([["f", {"a": 1}]]));
        check("f()", &json!([["f", {}]]));
        check(
            "[f(a=1,), g(b='x, y)]', c=[1, -2.5, (True, None)], d={'k': \"v\"})]",
            &json!([
                ["f", {"a": 1}], ["g", {"b": "x, y)]", "c": [1, -2.5, [true, null]], "d": {"k": "v"}}]
            ]),
        );
        check("print(f(a='it\\'s\\n\"so\"'))\nprint(g())", &json!([["f", {"a": "it's\n\"so\""}], ["g", {}]]));
        check("default_api.f(a=\"\"\"two\n\"lines\\\"\"\"\")", &json!([["f", {"a": "two\n\"lines\""}]]));
        check("f(a='\\ud83d\\ude00\\x41')", &json!([["f", {"a": "😀A"}]]));
        check("f({\"a\": {\"b\": null}})", &json!([["f", {"a": {"b": null}}]]));
    }

    #[test]
    fn what_has_no_value_is_no_call() {
        for code in [
            "f(1)",
            "f(a=b)",
            "f(a=1 + 2)",
            "f(a=\"x\"",
            "[f(a=1)",
            "f(a=1) and so on",
            "f",
            "",
            "[]",
            "f(a=1, a=2)",
            "f(a='\\ud83d')",
            "f(a=g(b=1))",
        ] {
            check(code, &Value::Null);
        }
        check(&format!("f(a={})", "[".repeat(100_000)), &Value::Null);
        check(&"print(".repeat(1_000_000), &Value::Null);
    }

    #[test]
    fn the_objects_of_gemma_are_read() {
        assert_eq!(
            object("{location:<escape>Seoul, \"KR\"<escape>,n:5,deep:{on:true,all:[<|\"|>x<|\"|>]}}").map(Value::from),
            Some(json!({"location": "Seoul, \"KR\"", "n": 5, "deep": {"on": true, "all": ["x"]}}))
        );
        assert_eq!(object("{location:Seoul}"), None);
    }
}
