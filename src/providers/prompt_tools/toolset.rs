//! The tools of one request, prepared once for all requests that offer the same.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::builtin;
use crate::error::list;
use crate::message::Name;
use crate::name::{CALL_AGENT, FINISH};
use crate::schema::{self, Schema};
use crate::spelling::Spellings;
use crate::tool::{Arguments, ToolCall, ToolSpec};

use super::dialect::Dialect;

/// Tools by name, with what it takes to judge a call of one.
pub(super) struct Toolset {
    specs: Arc<[ToolSpec]>,
    places: HashMap<Name, usize>,
    /// Each made when it is first needed.
    schemas: Vec<OnceLock<Option<Schema>>>,
    spellings: OnceLock<Spellings>,
    dialect: Dialect,
}

impl Toolset {
    pub(super) fn new(specs: Arc<[ToolSpec]>, dialect: Dialect) -> Self {
        let places = specs.iter().enumerate().map(|(place, spec)| (Arc::clone(&spec.name), place)).collect();
        let schemas = specs.iter().map(|_| OnceLock::new()).collect();
        Self { specs, places, schemas, spellings: OnceLock::new(), dialect }
    }

    pub(super) fn specs(&self) -> &Arc<[ToolSpec]> {
        &self.specs
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    pub(super) fn parameters(&self, name: &str) -> Option<&Value> {
        self.places.get(name).map(|place| &self.specs[*place].parameters)
    }

    /// A call as it was written, with what is wrong with it, if anything is.
    pub(super) fn judge(&self, name: &str, arguments: &str) -> ToolCall {
        let inner = Some(arguments.trim()).filter(|written| written.starts_with('"'));
        let inner: Option<String> = inner.and_then(|written| serde_json::from_str(written).ok());
        let written = inner.as_deref().unwrap_or(arguments).trim();
        let call = |arguments: &str| ToolCall::new("", name, if arguments.is_empty() { "{}" } else { arguments });
        let misfit = match self.misfit(name, written) {
            None => return call(written),
            Some(misfit) => misfit,
        };
        let plain = without_entities(written);
        if plain != written && self.misfit(name, &plain).is_none() {
            return call(&plain);
        }
        ToolCall { malformed: Some(misfit.into()), ..call(written) }
    }

    /// A call that cannot even be named.
    pub(super) fn unreadable(&self, reason: &str, written: &str) -> ToolCall {
        let example = self.specs.first().map_or_else(String::new, |spec| self.example(&spec.name, &spec.parameters));
        let reason = format!("{reason}; {}{example}", self.known(""));
        ToolCall { malformed: Some(reason.into()), ..ToolCall::new("", "", written) }
    }

    /// What is wrong with a call, in words for the model.
    fn misfit(&self, name: &str, written: &str) -> Option<String> {
        let Some(&place) = self.places.get(name) else {
            return Some(format!("Tool not found; {}{}", self.known(name), self.hint()));
        };
        let example = || self.example(name, &self.specs[place].parameters);
        let wrong = match name {
            // These two are read with more patience than their schemas have.
            FINISH => builtin::finish(written).err(),
            CALL_AGENT => builtin::call_agent(written).err(),
            _ => match builtin::arguments(written) {
                Ok(arguments) => self.schema(place).and_then(|schema| schema.misfit(&Value::Object(arguments))),
                Err(error) => Some(error),
            },
        };
        wrong.map(|wrong| format!("{wrong}{}", example()))
    }

    fn schema(&self, place: usize) -> Option<&Schema> {
        self.schemas[place].get_or_init(|| Schema::new(&self.specs[place].parameters)).as_ref()
    }

    /// The right form, shown by a call of the tool.
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

/// A text in which the five entities of XML stand for what they mean.
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
