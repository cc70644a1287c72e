//! Readers of a tool call's text: the tool's name, and the arguments as they are written. One function reads each form
//! that models write. The [`OfferedTools`] decide whether the call can be carried out.

use std::slice;

use serde_json::{Deserializer, Map, Value};

use super::literal;
use super::mark::{Begins, Mark, TagKind};
use super::offered_tools::{OfferedTools, escaped, plain_name, without_entities};
use super::scan::{End, Scan};
use super::value::{property, typed};
use crate::tool_call::ToolCall;

/// The maximum number of malformed calls of one answer that are returned. Calls behind the last of them are not read.
pub(super) const MAX_MALFORMED: usize = 32;
/// The JSON keys that name a tool.
const NAME_KEYS: [&str; 5] = ["name", "tool", "tool_name", "function", "action"];
/// The JSON keys that hold the arguments.
const ARGUMENT_KEYS: [&str; 6] = ["arguments", "parameters", "args", "input", "action_input", "tool_input"];
/// Keys that are not related to the arguments.
const OTHER_KEYS: [&str; 11] = [
    "id",
    "type",
    "call_id",
    "tool_call_id",
    "index",
    "thought",
    "thoughts",
    "reason",
    "reasoning",
    "explanation",
    "description",
];
/// Keys in the record of an earlier call.
const RESULT_KEYS: [&str; 13] = [
    "result",
    "results",
    "output",
    "outputs",
    "status",
    "observation",
    "response",
    "returned",
    "return_value",
    "error",
    "duration",
    "duration_ms",
    "is_error",
];
/// Keys of an object around calls.
const AROUND_KEYS: [&str; 3] = ["tool_calls", "tool_call", "function_call"];
/// The elements that name a tool.
const NAME_TAGS: [&str; 3] = ["name", "tool_name", "tool"];
/// The elements that hold the arguments.
const ARGUMENT_TAGS: [&str; 4] = ["arguments", "parameters", "args", "input"];
/// The longest name of a parameter in a tag of its own, in bytes.
const MAX_KEY: usize = 128;

/// Reads the text between `<tool_call …>` and its end. `named` is the name in the tag itself, if there is one.
/// `is_closed` is `true` if there was an end.
pub(super) fn tagged(body: &str, named: Option<&str>, is_closed: bool, tools: &OfferedTools) -> Vec<ToolCall> {
    let body = unwrapped(body);
    if let Some(name) = named.filter(|_| body.is_empty() || body.starts_with(['{', '['])) {
        return vec![tools.validate(name, body)];
    }
    if body.starts_with(['{', '[']) {
        return json(body, tools);
    }
    if let Some(function) = without_prefix(body, "<function=") {
        let each: Vec<&str> = body.split("</function>").map(str::trim).filter(|call| !call.is_empty()).collect();
        return match each.len() > 1 && each.iter().all(|call| call.starts_with("<function=")) {
            true => limited(each.into_iter().map(|call| self::function(&call["<function=".len()..], is_closed, tools))),
            false => vec![self::function(function, is_closed, tools)],
        };
    }
    if let Some(call) = lines(body, tools) {
        return vec![call];
    }
    if let Some(calls) = code(body, tools) {
        return calls;
    }
    let (elements, after) = Elements::read(body);
    let is_end = |c: char| c.is_whitespace() || matches!(c, '<' | '{');
    let bare = body.split(is_end).next().unwrap_or_default();
    let name = elements.name.as_deref().or(named).or_else(|| Some(bare).filter(|bare| tools.contains(bare)));
    let rest = body.strip_prefix(bare).unwrap_or_default().trim();
    let call = match (name, elements.given()) {
        (Some(name), Some(arguments)) => tools.validate(name, arguments),
        (Some(name), None) if bare == name && !rest.is_empty() => {
            tools.validate(name, &parameters(unwrapped(rest), name, is_closed, tools))
        }
        (Some(name), None) if elements.has_others || elements.has_text && bare != name => {
            ToolCall { name: name.into(), ..tools.unreadable("the call has no <arguments>", body) }
        }
        (Some(name), None) => tools.validate(name, ""),
        (None, _) => tools.unreadable("the call names no tool", body),
    };
    match after.is_empty() {
        true => vec![call],
        false => limited([call].into_iter().chain(Elements::all(after, tools))),
    }
}

/// Reads the text behind `<function=`: the name, `>`, and the arguments as JSON or as one element each. The `>` may
/// stand behind the JSON.
pub(super) fn function(written: &str, is_closed: bool, tools: &OfferedTools) -> ToolCall {
    let end = written.find(|c: char| c.is_whitespace() || matches!(c, '>' | '{' | '(')).unwrap_or(written.len());
    let (name, body) = written.split_at(end);
    let quoted = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
    let name = without_entities(quoted.unwrap_or(name));
    let body = body.trim().trim_start_matches('>');
    let body = body.strip_suffix("</function>").unwrap_or(body).trim();
    let body = match body.trim_end_matches('>').trim_end().strip_prefix('(') {
        Some(inner) => inner.strip_suffix(')').unwrap_or(inner),
        None if body.starts_with('{') => body.trim_end_matches('>'),
        None => body,
    };
    let body = unwrapped(body);
    match body.is_empty() || body.starts_with(['{', '[', '"']) {
        true => tools.validate(&name, body),
        false => tools.validate(&name, &parameters(body, &name, is_closed, tools)),
    }
}

/// Reads the content of a block of calls other than the taught one: JSON, code, elements, or a name with arguments
/// behind it. `tag` is the tag that opens it.
pub(super) fn block(body: &str, tag: &str, is_closed: bool, tools: &OfferedTools) -> Vec<ToolCall> {
    if let Some(name) = attribute(tag, "name") {
        let body = unwrapped(body);
        return vec![match body.is_empty() || body.starts_with('{') {
            true => tools.validate(&name, body),
            false => tools.validate(&name, &parameters(body, &name, is_closed, tools)),
        }];
    }
    let body = behind_marks(body);
    if let Begins::Mark(mark) = Mark::read(body, true)
        && let ("invoke", Some(end), false) = (mark.word(), mark.end, mark.is_closing)
        && attribute(&body[..end], "name").is_some()
        && let Some(close) = closing(&body[end..], "invoke")
    {
        return block(&body[end..end + close], &body[..end], is_closed, tools);
    }
    let inner = unwrapped(body);
    if inner.starts_with('{') || inner.starts_with('[') {
        return code(inner, tools).unwrap_or_else(|| json(inner, tools));
    }
    if let Some(calls) = code(inner, tools) {
        return calls;
    }
    if let Some(named) = inner.strip_prefix("call:") {
        return vec![bare_keys(named, tools)];
    }
    match name_before(body, tools) {
        Some((name, rest)) => {
            let rest = unwrapped(rest);
            vec![match rest.is_empty() || rest.starts_with('{') {
                true => tools.validate(name, rest),
                false => tools.validate(name, &parameters(rest, name, is_closed, tools)),
            }]
        }
        None => tagged(body, None, is_closed, tools),
    }
}

/// Returns a text without the tags that stand between the parts of a call, and without the word that DeepSeek and Step
/// write there.
fn behind_marks(text: &str) -> &str {
    let text = text.trim_start();
    let rest = text.strip_prefix("function").filter(|rest| rest.contains("invoke")).unwrap_or(text);
    match Mark::read(rest, true) {
        Begins::Mark(mark) if mark.kind() == Some(TagKind::Stray) && !mark.is_closing => {
            mark.end.map_or(text, |end| rest[end..].trim_start())
        }
        _ => text,
    }
}

/// Reads calls that are written as code, `f(a=1)`.
pub(super) fn code(written: &str, tools: &OfferedTools) -> Option<Vec<ToolCall>> {
    let calls = literal::calls(written)?;
    Some(limited(calls.into_iter().map(|(name, arguments)| {
        // The built-in tools of Llama are called as `f.call(…)`.
        let plain = name.strip_suffix(".call").filter(|plain| !tools.contains(&name) && tools.contains(plain));
        tools.validate(plain.unwrap_or(&name), &Value::Object(arguments).to_string())
    })))
}

/// Reads `f{a:<escape>text<escape>}`.
fn bare_keys(written: &str, tools: &OfferedTools) -> ToolCall {
    let (name, arguments) = written.split_at(written.find('{').unwrap_or(written.len()));
    match literal::object(arguments) {
        Some(object) => tools.validate(name.trim(), &Value::Object(object).to_string()),
        None if arguments.is_empty() => tools.validate(name.trim(), ""),
        None => ToolCall {
            name: name.trim().into(),
            ..tools.unreadable("the call has no arguments that can be read", written)
        },
    }
}

/// Reads `name: f`, and `arguments: {…}` on the next line.
fn lines(body: &str, tools: &OfferedTools) -> Option<ToolCall> {
    let rest = body.strip_prefix("name:").or_else(|| body.strip_prefix("Name:"))?;
    let (name, rest) = rest.split_once('\n').unwrap_or((rest, ""));
    let name = name.trim().trim_end_matches(',').trim_matches(['"', '\'', '`']);
    let rest = rest.trim();
    let arguments = match rest.split_once(':') {
        Some((key, arguments)) if ARGUMENT_KEYS.contains(&key.trim().to_ascii_lowercase().as_str()) => {
            unwrapped(arguments)
        }
        _ => rest,
    };
    Some(tools.validate(name, arguments))
}

/// Returns the name that stands before arguments, and the rest: `functions.f:0<|tool_call_argument_begin|>{…}` as Kimi
/// writes it, `function<｜tool▁sep｜>f` and a fence as DeepSeek does, `f<arg_key>…` as GLM does.
fn name_before<'a>(body: &'a str, tools: &OfferedTools) -> Option<(&'a str, &'a str)> {
    let mut rest = body.trim_start();
    let mut name = None;
    while !rest.is_empty() && !rest.starts_with(['{', '`']) {
        if rest.starts_with('<') {
            let Begins::Mark(mark) = Mark::read(rest, true) else { break };
            match mark.word() {
                "tool_sep" | "tool_call_argument_begin" => rest = &rest[mark.end?..],
                _ => break,
            }
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '<' | '{')).unwrap_or(rest.len());
            let word = &rest[..end];
            rest = &rest[end..];
            match word {
                "function" if rest.starts_with('<') => {}
                _ if name.is_some() => return None,
                word => name = Some(plain_name(word)),
            }
        }
        rest = rest.trim_start();
    }
    let is_name =
        |name: &&str| tools.contains(name) || name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    Some((name.filter(is_name)?, rest))
}

/// Reads elements named after the arguments, `<location>Seoul</location>`, as Cline writes them.
pub(super) fn named_elements(body: &str, name: &str, tools: &OfferedTools) -> ToolCall {
    let root = tools.parameters(name).unwrap_or(&Value::Null);
    let mut arguments = Map::new();
    let mut rest = body.trim();
    while !rest.is_empty() {
        let pair = rest.strip_prefix('<').and_then(|rest| rest.split_once('>')).and_then(|(key, rest)| {
            let is_known = property(root, key).is_some() && !arguments.contains_key(key);
            let (value, rest) = rest.split_once(&format!("</{key}>")).filter(|_| is_known)?;
            Some((key, value, rest))
        });
        let Some((key, value, after)) = pair else {
            return ToolCall {
                name: name.into(),
                ..tools.unreadable("the call has elements that are no parameters", body)
            };
        };
        arguments.insert(key.to_owned(), typed(without_line_ends(value), schema_of(root, key), root));
        rest = after.trim_start();
    }
    tools.validate(name, &Value::Object(arguments).to_string())
}

/// Reads JSON in the place of calls: objects, or arrays of them, one after the other.
pub(super) fn json(written: &str, tools: &OfferedTools) -> Vec<ToolCall> {
    match values(written).or_else(|error| values(&escaped(written)).map_err(|_| error)) {
        Ok(values) => limited(values.iter().flat_map(each).map(|call| call.validate(tools))),
        Err(error) => {
            let call = tools.unreadable(&format!("the call is not valid JSON: {error}"), written);
            vec![ToolCall { name: name_in(written).unwrap_or_default().into(), ..call }]
        }
    }
}

/// Returns the calls up to the limit of malformed ones.
fn limited(calls: impl Iterator<Item = ToolCall>) -> Vec<ToolCall> {
    let (mut read, mut malformed) = (Vec::new(), 0);
    for call in calls {
        malformed += usize::from(call.malformed.is_some());
        read.push(call);
        if malformed == MAX_MALFORMED {
            break;
        }
    }
    read
}

/// Reads JSON values with nothing but `,` or `;` between them.
fn values(written: &str) -> Result<Vec<Value>, serde_json::Error> {
    let mut rest = written.trim();
    let mut values = Vec::new();
    while !rest.is_empty() {
        let mut stream = Deserializer::from_str(rest).into_iter();
        match stream.next() {
            Some(value) => values.push(value?),
            None => break,
        }
        let behind = rest[stream.byte_offset()..].trim_start().trim_start_matches([',', ';']).trim_start();
        if !behind.is_empty() && !behind.starts_with(['{', '[']) {
            // Returns the error of the invalid JSON.
            serde_json::from_str::<serde::de::IgnoredAny>(rest)?;
        }
        rest = behind;
    }
    Ok(values)
}

/// The result for JSON without a tag of calls.
pub(super) enum Bare {
    Calls(Vec<ToolCall>),
    Text,
}

/// Reads JSON without a tag of calls. It is read as calls if every object names a known tool, and has arguments or
/// needs none. Two cases are calls that cannot be carried out: an object that names a known tool but cannot be read,
/// and one that has the form of a call and stands [alone](Place::Alone). The description of a tool is text.
pub(super) fn bare_json(written: &str, place: Place, tools: &OfferedTools) -> Bare {
    let parsed = serde_json::from_str(written.trim()).or_else(|_| serde_json::from_str(escaped(written).trim()));
    let Ok(value) = parsed else {
        return match name_in(written).filter(|name| tools.contains(name)) {
            Some(_) => Bare::Calls(json(written, tools)),
            None => Bare::Text,
        };
    };
    let calls: Vec<Json> = each(&value).collect();
    let is_described = |call: &Json| call.is_description();
    let is_meant = |call: &Json| match (call.name, call.arguments) {
        (Some(name), Some(_)) => tools.contains(name),
        (Some(name), None) => tools.contains(name) && !call.has_others && tools.validate(name, "").malformed.is_none(),
        (None, _) => false,
    };
    let is_like_one = |call: &Json| {
        let arguments = call.arguments.is_some_and(Value::is_object);
        let other = call.whole.get("function_name").and_then(Value::as_str).is_some_and(|name| tools.contains(name));
        arguments && (call.name.is_some() && !call.has_more || other)
    };
    if calls.iter().any(is_described) || calls.iter().any(Json::is_record) {
        return Bare::Text;
    }
    match calls.iter().all(is_meant) || place == Place::Alone && calls.iter().all(is_like_one) {
        true => Bare::Calls(limited(calls.iter().map(|call| call.validate(tools)))),
        false => Bare::Text,
    }
}

/// The place of JSON.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Place {
    /// At the beginning of an answer or a line.
    Alone,
    /// In a fence.
    Fenced,
}

fn each(calls: &Value) -> impl Iterator<Item = Json<'_>> {
    let around = calls.as_object().filter(|object| object.len() == 1).into_iter();
    let inside = around.flatten().find(|(key, _)| AROUND_KEYS.contains(&&***key)).map(|(_, inside)| inside);
    let calls = match inside.unwrap_or(calls) {
        Value::Array(calls) if !calls.is_empty() => calls,
        call => slice::from_ref(call),
    };
    calls.iter().map(Json::read)
}

/// A call in JSON.
struct Json<'a> {
    whole: &'a Value,
    name: Option<&'a str>,
    arguments: Option<&'a Value>,
    has_others: bool,
    /// `true` if it has keys other than the name's, the arguments' and [`OTHER_KEYS`].
    has_more: bool,
}

impl<'a> Json<'a> {
    fn read(whole: &'a Value) -> Self {
        let call = whole.get("function").filter(|inner| inner.is_object()).unwrap_or(whole);
        let (key, name) = NAME_KEYS.iter().find_map(|key| Some((*key, call[*key].as_str()?))).unzip();
        let arguments = ARGUMENT_KEYS.iter().find_map(|key| call.get(*key));
        let is_other = |other: &String| Some(&**other) != key && !OTHER_KEYS.contains(&&**other);
        let is_more = |other: &String| is_other(other) && !ARGUMENT_KEYS.contains(&&**other);
        let has = |is: &dyn Fn(&String) -> bool| call.as_object().is_some_and(|call| call.keys().any(is));
        let (has_others, has_more) = (has(&is_other), has(&is_more));
        Self { whole, name, arguments, has_others, has_more }
    }

    /// Returns whether it describes a tool's parameters: its arguments are names of types, or a schema.
    fn is_description(&self) -> bool {
        const TYPES: [&str; 11] =
            ["string", "str", "number", "integer", "int", "float", "boolean", "bool", "object", "array", "..."];
        let is_type = |value: &Value| value.as_str().is_some_and(|text| TYPES.contains(&text));
        let Some(arguments) = self.arguments.and_then(Value::as_object) else { return false };
        self.whole.get("description").is_some()
            || arguments.get("properties").is_some_and(Value::is_object) && arguments.contains_key("type")
            || !arguments.is_empty() && arguments.values().all(is_type)
    }

    /// Returns whether it is the record of an earlier call.
    fn is_record(&self) -> bool {
        let of_result = |kind: &str| kind.contains("result") || kind.contains("output");
        let is_result = ["type", "role"].iter().filter_map(|key| self.whole[*key].as_str()).any(of_result);
        is_result || RESULT_KEYS.iter().any(|key| self.whole.get(*key).is_some())
    }

    /// Returns whether its arguments are empty, and other keys beside them may be arguments.
    fn is_loose(&self) -> bool {
        let is_empty = match self.arguments {
            Some(Value::Object(arguments)) => arguments.is_empty(),
            Some(Value::String(arguments)) => arguments.trim().is_empty(),
            arguments => arguments.is_some_and(Value::is_null),
        };
        is_empty && self.has_more
    }

    fn validate(&self, tools: &OfferedTools) -> ToolCall {
        match (self.name, self.arguments) {
            (Some(name), Some(_)) if self.is_loose() => {
                let call = tools.unreadable("the call has keys beside its \"arguments\"", &self.whole.to_string());
                ToolCall { name: name.into(), ..call }
            }
            (Some(name), Some(Value::String(arguments))) => tools.validate(name, arguments),
            (Some(name), Some(Value::Null)) => tools.validate(name, ""),
            (Some(name), Some(arguments)) => tools.validate(name, &arguments.to_string()),
            (Some(name), None) if self.has_others => {
                let call = tools.unreadable("the call has no \"arguments\"", &self.whole.to_string());
                ToolCall { name: name.into(), ..call }
            }
            (Some(name), None) => tools.validate(name, ""),
            (None, _) => tools.unreadable("the call names no tool", &self.whole.to_string()),
        }
    }
}

/// Returns arguments that are written as one element each, `<parameter=core>1</parameter>`,
/// `<parameter name="core">1</parameter>` or `<arg_key>core</arg_key><arg_value>1</arg_value>`, as JSON; or JSON
/// unchanged. A value has the type that the tool's schema gives.
fn parameters(written: &str, name: &str, is_closed: bool, tools: &OfferedTools) -> String {
    let root = tools.parameters(name).unwrap_or(&Value::Null);
    let mut arguments = Map::new();
    let mut rest = written;
    while let Some(parameter) =
        Parameter::read(rest, is_closed, |key| property(root, key).is_some() && !arguments.contains_key(key))
    {
        let Parameter { key, value, is_text, rest: behind } = parameter;
        let value = without_line_ends(value);
        let value = if is_text { value.into() } else { typed(value, schema_of(root, &key), root) };
        if arguments.insert(key, value).is_some() {
            // Returned as written, and so reported as invalid JSON: one of the two may be part of a value.
            return written.to_owned();
        }
        rest = behind.trim_start();
    }
    // A rest is neither form. It is returned as written, and so reported as invalid JSON.
    if arguments.is_empty() || !rest.is_empty() { written.to_owned() } else { Value::Object(arguments).to_string() }
}

/// Returns a tool's schema of one argument: by its name, or the one for all others.
fn schema_of<'a>(root: &'a Value, key: &str) -> &'a Value {
    property(root, key).unwrap_or(&root["additionalProperties"])
}

/// One argument in an element.
struct Parameter<'a> {
    key: String,
    value: &'a str,
    /// `true` if the element declares its value as text.
    is_text: bool,
    rest: &'a str,
}

impl<'a> Parameter<'a> {
    fn read(text: &'a str, is_closed: bool, is_new: impl Fn(&str) -> bool) -> Option<Self> {
        let Begins::Mark(mark) = Mark::read(text, true) else { return None };
        let (key, behind) = Self::key(text, &mark)?;
        let (inside, word, is_closed) = match mark.word() {
            "arg_key" => {
                let behind = behind_tag(behind).trim_start();
                let Begins::Mark(mark) = Mark::read(behind, true) else { return None };
                let inside = &behind[mark.end.filter(|_| mark.word() == "arg_value")?..];
                // Without its end, the last value may be incomplete.
                (inside, "arg_value", false)
            }
            _ => (behind, "parameter", is_closed),
        };
        let is_text = mark.end.is_some_and(|end| attribute(&text[..end], "string").is_some_and(|is| is == "true"));
        let (value, rest) = Self::value(inside, word, is_closed, is_new)?;
        Some(Self { key, value, is_text, rest })
    }

    /// Returns the name of the argument that begins with this tag, and the text behind it.
    fn key(text: &'a str, mark: &Mark) -> Option<(String, &'a str)> {
        if mark.is_closing {
            return None;
        }
        match (mark.word(), mark.end) {
            ("parameter", None) => {
                let named = &text[mark.named + 1..];
                let end = named[..named.floor_char_boundary(MAX_KEY)].find('>')?;
                Some((named[..end].trim().trim_matches('"').to_owned(), &named[end + 1..]))
            }
            ("parameter", Some(end)) => Some((attribute(&text[..end], "name")?, &text[end..])),
            ("arg_key", Some(end)) => {
                let named = &text[end..];
                let end = named[..named.floor_char_boundary(MAX_KEY)].find('<')?;
                Some((named[..end].trim().to_owned(), &named[end..]))
            }
            _ => None,
        }
    }

    /// Returns the value at the beginning of a text, and the text behind it. Without a close tag it ends at the next
    /// argument, which must begin a line if the value does, or at the end of the call.
    fn value(
        inside: &'a str,
        word: &str,
        is_closed: bool,
        is_new: impl Fn(&str) -> bool,
    ) -> Option<(&'a str, &'a str)> {
        let is_inline = !inside.starts_with(['\n', '\r']);
        for (place, _) in inside.match_indices('<') {
            let (value, rest) = inside.split_at(place);
            let Begins::Mark(mark) = Mark::read(rest, true) else { continue };
            if mark.is_closing && mark.word() == word {
                return Some((value, behind_tag(rest)));
            }
            let begins_a_line = || is_inline || value.trim_end_matches([' ', '\t']).ends_with('\n');
            if Self::key(rest, &mark).is_some_and(|(key, _)| is_new(&key)) && begins_a_line() {
                return Some((value, rest));
            }
        }
        is_closed.then(|| (inside.strip_suffix("</function>").unwrap_or(inside), ""))
    }
}

/// Returns the position of the tag that closes an element of this word.
fn closing(text: &str, word: &str) -> Option<usize> {
    text.match_indices('<').map(|(place, _)| place).find(|place| match Mark::read(&text[*place..], true) {
        Begins::Mark(mark) => mark.is_closing && mark.word() == word,
        _ => false,
    })
}

fn behind_tag(text: &str) -> &str {
    text.split_once('>').map_or("", |(_, behind)| behind)
}

/// Returns a value without the line breaks that its element puts around it.
fn without_line_ends(value: &str) -> &str {
    let value = value.strip_prefix("\r\n").or_else(|| value.strip_prefix('\n')).unwrap_or(value);
    value.strip_suffix("\r\n").or_else(|| value.strip_suffix('\n')).unwrap_or(value)
}

/// The elements of a call.
#[derive(Default)]
struct Elements<'a> {
    name: Option<String>,
    arguments: Option<&'a str>,
    /// An object beside the elements.
    loose: Option<&'a str>,
    has_others: bool,
    /// `true` if text stands beside the elements.
    has_text: bool,
}

impl<'a> Elements<'a> {
    /// Returns the arguments; `None` if there are none, or if they are empty or missing beside other content.
    fn given(&self) -> Option<&'a str> {
        let has_more = self.has_others || self.has_text;
        let is_none = |arguments: &str| matches!(arguments.trim(), "" | "{}");
        match self.arguments {
            Some(arguments) if is_none(arguments) && self.loose.is_some() => self.loose,
            Some(arguments) if is_none(arguments) && has_more => None,
            Some(arguments) => Some(arguments),
            None if has_more => None,
            None => self.loose,
        }
    }

    /// Returns the calls that follow a first one in the same tag.
    fn all(mut body: &'a str, tools: &OfferedTools) -> impl Iterator<Item = ToolCall> {
        std::iter::from_fn(move || {
            let (elements, after) = Elements::read((!body.is_empty()).then_some(body)?);
            let whole = std::mem::replace(&mut body, after);
            Some(match (&elements.name, elements.given()) {
                (Some(name), Some(arguments)) => tools.validate(name, arguments),
                _ => {
                    let written = &whole[..whole.len() - after.len()];
                    tools.unreadable("the second call in a tag has no name, or no <arguments>", written)
                }
            })
        })
    }

    /// Reads the elements of one call. Also returns the text from the next call's elements on.
    fn read(body: &'a str) -> (Self, &'a str) {
        let mut elements = Self::default();
        let (mut rest, mut may_be_loose) = (body, true);
        loop {
            rest = rest.trim_start();
            if may_be_loose && !rest.starts_with('<') {
                let object = labelled(rest);
                may_be_loose = !object.starts_with('{');
                if !may_be_loose && let End::Found { body, .. } = Scan::from(0).value(object) {
                    elements.loose = Some(&object[..body]);
                    rest = closed(&object[body..]);
                }
            }
            let Some(place) = rest.find('<') else {
                elements.has_text |= rest.contains(char::is_alphanumeric);
                return (elements, "");
            };
            elements.has_text |= rest[..place].contains(char::is_alphanumeric);
            let tag = &rest[place + 1..];
            let word = tag.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
            let broken = tag[word.len()..].trim_start();
            let among = |tags: &[&str]| tags.iter().any(|tag| tag.eq_ignore_ascii_case(word));
            let inside = match tag.find('>') {
                _ if among(&ARGUMENT_TAGS) && broken.starts_with('{') => broken,
                Some(end) => &tag[end + 1..],
                None => return (elements, ""),
            };
            if among(&NAME_TAGS) && elements.name.is_some() && elements.arguments.is_some() {
                return (elements, &rest[place..]);
            } else if among(&NAME_TAGS) && elements.name.is_none() {
                let written = inside.trim_start().split(['<', '\n']).next().unwrap_or_default();
                rest = &inside.trim_start()[written.len()..];
                let name = without_entities(written.trim());
                elements.name = Some(name.replace("\\_", "_"));
            } else if among(&ARGUMENT_TAGS) && elements.arguments.is_none() {
                let (arguments, after) = arguments(inside, word);
                elements.arguments = Some(arguments);
                rest = after;
            } else {
                let is_other = word.starts_with(|c: char| c.is_ascii_alphabetic()) && !among(&OTHER_KEYS);
                elements.has_others |= is_other;
                // The text in such an element is not an argument.
                let text = if among(&OTHER_KEYS) { inside.find('<').unwrap_or(inside.len()) } else { 0 };
                rest = &inside[text..];
            }
        }
    }
}

/// Returns a text without the fence or the words that stand before arguments: `arguments:`.
fn labelled(text: &str) -> &str {
    let text = text.trim_start();
    let label = ARGUMENT_KEYS.iter().find_map(|key| without_prefix(text, key)?.trim_start().strip_prefix([':', '=']));
    opened(label.unwrap_or(text))
}

/// Returns the arguments at the beginning of a text, and the text behind them. JSON ends where its last brace closes,
/// if only the end of the element follows. Anything else ends where the element does.
fn arguments<'a>(inside: &'a str, tag: &str) -> (&'a str, &'a str) {
    let close = format!("</{tag}>");
    let begin = inside.len() - opened(inside).len();
    if inside[begin..].starts_with(['{', '['])
        && let End::Found { body, .. } = Scan::from(begin).value(inside)
    {
        let after = closed(&inside[body..]);
        if after.is_empty() || after.starts_with('<') {
            return (&inside[begin..body], without_prefix(after, &close).unwrap_or(after));
        }
    }
    let upper = close.to_ascii_uppercase();
    let split = inside.split_once(&*close).or_else(|| inside.split_once(&*upper));
    let (arguments, after) = split.unwrap_or((inside, ""));
    (unwrapped(arguments), after)
}

/// Returns a text without the wrapping that models put around JSON: a fence, a CDATA section.
fn unwrapped(text: &str) -> &str {
    let inner = opened(text);
    let inner = inner.trim_end();
    let inner = inner.strip_suffix("]]>").unwrap_or(inner).trim_end();
    inner.strip_suffix("```").unwrap_or(inner).trim_end()
}

fn opened(text: &str) -> &str {
    let text = text.trim_start();
    let text = text.strip_prefix("<![CDATA[").unwrap_or(text).trim_start();
    match text.strip_prefix("```") {
        Some(fenced) => fenced.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').trim_start(),
        None => text,
    }
}

fn closed(text: &str) -> &str {
    let text = text.trim_start();
    let text = text.strip_prefix("```").unwrap_or(text).trim_start();
    text.strip_prefix("]]>").unwrap_or(text).trim_start()
}

/// Returns the value of an attribute of a tag.
pub(super) fn attribute(tag: &str, name: &str) -> Option<String> {
    let attributes = &tag[tag.find(' ')?..];
    let (_, rest) = attributes.split_once(&format!(" {name}="))?;
    let quote = rest.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    rest[1..].split_once(quote).map(|(value, _)| without_entities(value))
}

/// Returns the text behind a prefix, in upper or lower case.
fn without_prefix<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let begins = text.get(..prefix.len())?.eq_ignore_ascii_case(prefix);
    begins.then(|| &text[prefix.len()..])
}

/// Returns the name in JSON that cannot be read, in quotes of either kind.
fn name_in(text: &str) -> Option<&str> {
    let (_, rest) = NAME_KEYS
        .iter()
        .find_map(|key| text.split_once(&format!("\"{key}\"")).or_else(|| text.split_once(&format!("'{key}'"))))?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    let quote = rest.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    rest[1..].split_once(quote).map(|(name, _)| name)
}
