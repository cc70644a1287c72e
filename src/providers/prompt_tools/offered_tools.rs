//! The tools of one request, prepared once for all requests that offer the same.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::builtin;
use crate::error::list;
use crate::name::{CALL_AGENT, FINISH, Name};
use crate::schema::{self, Schema};
use crate::spelling::Spellings;
use crate::tool_call::{Arguments, ToolCall, ToolSpec};

use super::dialect::Dialect;
use super::looks::LEADS;

/// Tools by name, with their schemas for validation.
pub(super) struct OfferedTools {
    specs: Arc<[ToolSpec]>,
    places: HashMap<Name, usize>,
    /// The schemas, each compiled when it is first needed.
    schemas: Vec<OnceLock<Option<Schema>>>,
    spellings: OnceLock<Spellings>,
    /// The names in order, to find those with a common beginning.
    sorted: Vec<Name>,
    /// The first bytes of the names, and of other words that a line with a call begins with.
    leads: [bool; 256],
    /// Whether `finish` takes a text.
    answers_text: bool,
    dialect: Dialect,
}

impl OfferedTools {
    pub(super) fn new(specs: Arc<[ToolSpec]>, dialect: Dialect) -> Self {
        let places = specs.iter().enumerate().map(|(place, spec)| (Arc::clone(&spec.name), place)).collect();
        let schemas = specs.iter().map(|_| OnceLock::new()).collect();
        let mut sorted: Vec<Name> = specs.iter().map(|spec| Arc::clone(&spec.name)).collect();
        sorted.sort_unstable();
        let mut leads = [false; 256];
        let initials = sorted.iter().filter_map(|name| name.bytes().next());
        initials.chain(LEADS.iter().copied()).for_each(|byte| leads[usize::from(byte)] = true);
        let text = builtin::text_finish();
        let answers_text = specs.contains(&text);
        Self { specs, places, schemas, spellings: OnceLock::new(), sorted, leads, answers_text, dialect }
    }

    pub(super) fn specs(&self) -> &Arc<[ToolSpec]> {
        &self.specs
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// Returns whether a name begins with this text.
    pub(super) fn begins(&self, text: &str) -> bool {
        let place = self.sorted.partition_point(|name| **name < *text);
        self.sorted.get(place).is_some_and(|name| name.starts_with(text))
    }

    /// Returns whether a line with a call may begin with this byte.
    pub(super) fn leads(&self, byte: u8) -> bool {
        self.leads[usize::from(byte)]
    }

    pub(super) fn parameters(&self, name: &str) -> Option<&Value> {
        self.places.get(name).map(|place| &self.specs[*place].parameters)
    }

    /// Returns a call as it was written, with the problem in it, if there is one.
    pub(super) fn validate(&self, name: &str, arguments: &str) -> ToolCall {
        let inner = Some(arguments.trim()).filter(|written| written.starts_with('"'));
        let inner: Option<String> = inner.and_then(|written| serde_json::from_str(written).ok());
        let written = inner.as_deref().unwrap_or(arguments).trim();
        let call = |arguments: &str| ToolCall::new("", name, if arguments.is_empty() { "{}" } else { arguments });
        let problem = match self.problem(name, written) {
            None => return call(written),
            Some(problem) => problem,
        };
        let plain = without_entities(written);
        for meant in [escaped(written), escaped(&plain), plain] {
            if meant != written && self.problem(name, &meant).is_none() {
                return call(&meant);
            }
        }
        ToolCall { malformed: Some(problem.into()), ..call(written) }
    }

    /// Returns a call without a name, which could not be read.
    pub(super) fn unreadable(&self, reason: &str, written: &str) -> ToolCall {
        let example = self.specs.first().map_or_else(String::new, |spec| self.example(&spec.name, &spec.parameters));
        let reason = format!("{reason}; {}{example}", self.known(""));
        ToolCall { malformed: Some(reason.into()), ..ToolCall::new("", "", written) }
    }

    /// Returns the problem in a call, in words for the model.
    fn problem(&self, name: &str, written: &str) -> Option<String> {
        let Some(&place) = self.places.get(name) else {
            return Some(format!("Tool not found; {}{}", self.known(name), self.hint()));
        };
        let example = || self.example(name, &self.specs[place].parameters);
        let wrong = match name {
            // These two are read more tolerantly than their schemas say.
            FINISH if self.answers_text => builtin::finish(written, None).err(),
            // The core checks a typed answer, and says what does not fit.
            FINISH => builtin::arguments(written).err(),
            CALL_AGENT => builtin::call_agent(written).err(),
            _ => match builtin::arguments(written) {
                Ok(arguments) => self.schema(place).and_then(|schema| schema.problem(&Value::Object(arguments))),
                Err(error) => Some(error),
            },
        };
        wrong.map(|wrong| format!("{wrong}{}", example()))
    }

    fn schema(&self, place: usize) -> Option<&Schema> {
        self.schemas[place].get_or_init(|| Schema::new(&self.specs[place].parameters)).as_ref()
    }

    /// Returns the right form: an example of a call of the tool.
    fn example(&self, name: &str, parameters: &Value) -> String {
        let arguments = match schema::example(parameters) {
            Value::Object(arguments) => arguments,
            _ => Arguments::new(),
        };
        let call = ToolCall::new("", name, Value::Object(arguments).to_string());
        format!(". Write it in this form:\n{}", self.dialect.render(&[call]))
    }

    fn known(&self, wanted: &str) -> String {
        let spellings = self.spellings.get_or_init(|| Spellings::new(self.specs.iter().map(|spec| &spec.name)));
        list("tools", &spellings.nearest(wanted), self.specs.len())
    }

    fn hint(&self) -> &str {
        if self.contains(CALL_AGENT) { "; agents are called with call_agent" } else { "" }
    }
}

/// Returns a name without the parts that GPT-OSS and Kimi put around it, `functions.name:0`.
pub(super) fn plain_name(name: &str) -> &str {
    let name = name.trim();
    let name = name.strip_prefix("functions.").unwrap_or(name);
    match name.rsplit_once(':') {
        Some((plain, nth)) if !nth.is_empty() && nth.bytes().all(|byte| byte.is_ascii_digit()) => plain,
        _ => name,
    }
}

/// Returns JSON with `\n` and `\t` for the plain line breaks and tabs in its strings.
pub(super) fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let (mut in_string, mut is_escape) = (false, false);
    for c in json.chars() {
        match c {
            '\n' if in_string && !is_escape => text.push_str("\\n"),
            '\t' if in_string && !is_escape => text.push_str("\\t"),
            '\r' if in_string && !is_escape => text.push_str("\\r"),
            c => text.push(c),
        }
        in_string ^= c == '"' && !is_escape;
        is_escape = in_string && c == '\\' && !is_escape;
    }
    text
}

/// Returns a text with the five entities of XML replaced by their characters.
pub(super) fn without_entities(text: &str) -> String {
    const ENTITIES: [(&str, &str); 6] =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&apos;", "'"), ("&amp;", "&")];
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find('&') {
        plain.push_str(&rest[..place]);
        rest = &rest[place..];
        let (entity, meaning) = ENTITIES.into_iter().find(|(entity, _)| rest.starts_with(entity)).unwrap_or(("&", "&"));
        plain.push_str(meaning);
        rest = &rest[entity.len()..];
    }
    plain + rest
}
