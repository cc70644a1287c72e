//! A tool call's text, read: what it names, and its arguments as they are written. Each form that models write is read
//! by one function here; whether the call can be carried out is judged by the [`Toolset`].

use std::slice;

use serde_json::{Map, Value};

use super::scan::{End, Scan};
use super::toolset::{Toolset, without_entities};
use crate::tool::ToolCall;

/// The keys by which JSON names a tool.
const NAME_KEYS: [&str; 5] = ["name", "tool", "tool_name", "function", "action"];
/// The keys under which JSON has the arguments.
const ARGUMENT_KEYS: [&str; 6] = ["arguments", "parameters", "args", "input", "action_input", "tool_input"];
/// Keys that say nothing of the arguments.
const OTHER_KEYS: [&str; 3] = ["id", "type", "call_id"];
/// The elements that name a tool.
const NAME_TAGS: [&str; 3] = ["name", "tool_name", "tool"];
/// The elements that hold the arguments.
const ARGUMENT_TAGS: [&str; 4] = ["arguments", "parameters", "args", "input"];

/// Reads what stands between `<tool_call …>` and its end. `named` is the name in the tag itself, if there is one.
pub(super) fn tagged(body: &str, named: Option<&str>, tools: &Toolset) -> Vec<ToolCall> {
    let body = unwrapped(body);
    if let Some(name) = named.filter(|_| body.is_empty() || body.starts_with(['{', '['])) {
        return vec![tools.judge(name, body)];
    }
    if body.starts_with(['{', '[']) {
        return json(body, tools);
    }
    if let Some(function) = body.strip_prefix("<function=") {
        return vec![self::function(function, tools)];
    }
    let elements = Elements::read(body);
    let bare = body.split(|c: char| c.is_whitespace() || matches!(c, '<' | '{')).next().unwrap_or_default();
    let name = elements.name.as_deref().or(named).or_else(|| Some(bare).filter(|bare| tools.contains(bare)));
    let rest = body.strip_prefix(bare).unwrap_or_default().trim();
    vec![match (name, elements.arguments) {
        (Some(name), Some(arguments)) => tools.judge(name, arguments),
        (Some(name), None) if bare == name && !rest.is_empty() => tools.judge(name, &parameters(rest, name, tools)),
        (Some(name), None) if elements.has_others => {
            ToolCall { name: name.into(), ..tools.unreadable("the call has no <arguments>", body) }
        }
        (Some(name), None) => tools.judge(name, ""),
        (None, _) => tools.unreadable("the call names no tool", body),
    }]
}

/// Reads what stands behind `<function=`: the name, `>`, and the arguments as JSON or as one element each.
pub(super) fn function(written: &str, tools: &Toolset) -> ToolCall {
    let (name, body) = written.split_once('>').unwrap_or((written, ""));
    let name = name.trim();
    let quoted = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
    let name = without_entities(quoted.unwrap_or(name));
    let body = body.trim_end();
    let body = unwrapped(body.strip_suffix("</function>").unwrap_or(body));
    match body.is_empty() || body.starts_with(['{', '[', '"']) {
        true => tools.judge(&name, body),
        false => tools.judge(&name, &parameters(body, &name, tools)),
    }
}

/// Reads JSON that stands for calls: an object, or an array of such.
pub(super) fn json(written: &str, tools: &Toolset) -> Vec<ToolCall> {
    match serde_json::from_str(written.trim()) {
        Ok(calls) => each(&calls).map(|call| call.judge(tools)).collect(),
        Err(error) => {
            let name = quoted_after(written, "\"name\"").unwrap_or_default();
            let call = tools.unreadable(&format!("the call is not valid JSON: {error}"), written);
            vec![ToolCall { name: name.into(), ..call }]
        }
    }
}

/// Reads JSON that nothing says to be calls. It is meant as such if every object names a tool that there is, and has
/// arguments.
pub(super) fn bare_json(written: &str, tools: &Toolset) -> Option<Vec<ToolCall>> {
    let calls = serde_json::from_str(written.trim()).ok()?;
    let is_meant = |call: Json| call.arguments.is_some() && call.name.is_some_and(|name| tools.contains(name));
    each(&calls).all(is_meant).then(|| each(&calls).map(|call| call.judge(tools)).collect())
}

fn each(calls: &Value) -> impl Iterator<Item = Json<'_>> {
    let calls = match calls {
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
}

impl<'a> Json<'a> {
    fn read(whole: &'a Value) -> Self {
        let call = whole.get("function").filter(|inner| inner.is_object()).unwrap_or(whole);
        let (key, name) = NAME_KEYS.iter().find_map(|key| Some((*key, call[*key].as_str()?))).unzip();
        let arguments = ARGUMENT_KEYS.iter().find_map(|key| call.get(*key));
        let is_other = |other: &String| Some(&**other) != key && !OTHER_KEYS.contains(&&**other);
        Self { whole, name, arguments, has_others: call.as_object().is_some_and(|call| call.keys().any(is_other)) }
    }

    fn judge(&self, tools: &Toolset) -> ToolCall {
        match (self.name, self.arguments) {
            (Some(name), Some(Value::String(arguments))) => tools.judge(name, arguments),
            (Some(name), Some(arguments)) => tools.judge(name, &arguments.to_string()),
            (Some(name), None) if self.has_others => {
                let call = tools.unreadable("the call has no \"arguments\"", &self.whole.to_string());
                ToolCall { name: name.into(), ..call }
            }
            (Some(name), None) => tools.judge(name, ""),
            (None, _) => tools.unreadable("the call names no tool", &self.whole.to_string()),
        }
    }
}

/// The arguments that are written as one element each, `<parameter=core>1</parameter>` or
/// `<arg_key>core</arg_key><arg_value>1</arg_value>`, as JSON; or JSON as it is. A value is text where the tool's
/// schema says so, and else JSON if it can be read as such.
fn parameters(written: &str, name: &str, tools: &Toolset) -> String {
    let properties = tools.parameters(name).map(|schema| &schema["properties"]);
    let mut arguments = Map::new();
    let mut rest = written;
    loop {
        let pair = match rest.strip_prefix("<parameter=") {
            Some(parameter) => parameter.split_once('>').and_then(|(key, rest)| {
                let (value, rest) = rest.split_once("</parameter>")?;
                Some((key, value, rest))
            }),
            None => rest.strip_prefix("<arg_key>").and_then(|pair| {
                let (key, rest) = pair.split_once("</arg_key>")?;
                let (value, rest) = rest.trim_start().strip_prefix("<arg_value>")?.split_once("</arg_value>")?;
                Some((key, value, rest))
            }),
        };
        let Some((key, value, after)) = pair else { break };
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        let is_text = properties.is_some_and(|properties| properties[key]["type"] == "string");
        let json = Some(value).filter(|_| !is_text).and_then(|value| serde_json::from_str(value).ok());
        arguments.insert(key.trim().to_owned(), json.unwrap_or_else(|| value.into()));
        rest = after.trim_start();
    }
    // What is left is neither: it is told that it is no JSON.
    if arguments.is_empty() || !rest.is_empty() { written.to_owned() } else { Value::Object(arguments).to_string() }
}

/// The elements of a call.
#[derive(Default)]
struct Elements<'a> {
    name: Option<String>,
    arguments: Option<&'a str>,
    has_others: bool,
}

impl<'a> Elements<'a> {
    fn read(body: &'a str) -> Self {
        let mut elements = Self::default();
        let mut rest = body;
        while let Some(place) = rest.find('<') {
            let tag = &rest[place + 1..];
            let word = tag.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
            let Some(end) = tag.find('>') else { break };
            let inside = &tag[end + 1..];
            if NAME_TAGS.contains(&word) && elements.name.is_none() {
                let name = inside.split('<').next().unwrap_or_default().trim();
                elements.name = Some(without_entities(name.lines().next().unwrap_or_default().trim()));
                rest = inside;
            } else if ARGUMENT_TAGS.contains(&word) && elements.arguments.is_none() {
                let (arguments, after) = arguments(inside, word);
                elements.arguments = Some(arguments);
                rest = after;
            } else {
                elements.has_others |= !tag.starts_with('/') && !tag.starts_with('!');
                rest = inside;
            }
        }
        elements
    }
}

/// The arguments at the beginning of a text, and what stands behind them. JSON ends where its last brace closes, if
/// nothing but the end of the element follows; all else ends where the element does.
fn arguments<'a>(inside: &'a str, tag: &str) -> (&'a str, &'a str) {
    let close = format!("</{tag}>");
    let begin = inside.len() - opened(inside).len();
    if inside[begin..].starts_with(['{', '['])
        && let End::Found { body, .. } = Scan::from(begin).value(inside)
    {
        let after = closed(&inside[body..]);
        if after.is_empty() || after.starts_with('<') {
            return (&inside[begin..body], after.strip_prefix(&*close).unwrap_or(after));
        }
    }
    let (arguments, after) = inside.split_once(&*close).unwrap_or((inside, ""));
    (unwrapped(arguments), after)
}

/// A text without what models put around JSON: a fence, a CDATA section.
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

/// The value of an attribute of a tag.
pub(super) fn attribute(tag: &str, name: &str) -> Option<String> {
    let (_, rest) = tag.split_once(&format!(" {name}="))?;
    let quote = rest.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    rest[1..].split_once(quote).map(|(value, _)| without_entities(value))
}

/// The JSON string behind a key, for a name in JSON that cannot be read otherwise.
fn quoted_after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(key)?;
    rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?.split_once('"').map(|(name, _)| name)
}
