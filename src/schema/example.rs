//! An example of a value that fits a schema. Nothing here is random.
//!
//! A schema is merged with what it refers to and with one branch of each choice. A value is made for the result, and
//! kept if it fits the schema as it was.

use std::cell::Cell;
use std::collections::HashSet;

use serde_json::{Map, Number, Value, json};

use super::pattern;

/// The maximum depth of an example. What is deeper has what is required only.
const MAX_DEPTH: usize = 4;
/// The maximum further depth.
const MAX_LEAN_DEPTH: usize = 32;
/// The maximum number of steps for one example. The copy of a value of a schema is a step, and so is each piece of a
/// text.
const MAX_STEPS: usize = 300_000;
/// The maximum depth of a schema; serde_json reads none that is deeper.
const MAX_SCHEMA_DEPTH: usize = 128;
/// The maximum number of schemas that are merged into one.
const MAX_MERGED: usize = 200;
/// The maximum number of choices within one another. A choice may lead to itself.
const MAX_CHOICES: usize = 100;
/// The maximum length of an array, of a text and of a list of properties.
const MAX_LENGTH: usize = 10_000;

/// Returns a value that fits the schema, or nearly so if nothing that is found fits. An object has its required
/// properties, or all of them if none is required.
pub(crate) fn example(schema: &Value) -> Value {
    if size_and_depth(schema).1 > MAX_SCHEMA_DEPTH {
        return json!({});
    }
    let maker = Maker { root: schema, steps: Cell::new(MAX_STEPS), choices: Cell::new(0), variant: Cell::new(0) };
    let fitting = maker.make(schema, MAX_DEPTH, Mode::Full);
    maker.steps.set(MAX_STEPS);
    fitting.or_else(|| maker.make(schema, MAX_DEPTH, Mode::Loose)).unwrap_or_default()
}

/// How much a value has.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// Items and properties that may be left out are shown.
    Full,
    /// Only what is required.
    Lean,
    /// Only what is required, and `null` for what cannot be made. It need not fit.
    Loose,
}

struct Maker<'a> {
    root: &'a Value,
    /// The number of steps that are left.
    steps: Cell<usize>,
    /// The number of choices that are being made, each within the one before.
    choices: Cell<usize>,
    /// The number of the value among those that must differ.
    variant: Cell<usize>,
}

/// A schema without references and combinations.
type Merged = Map<String, Value>;
/// The choices that are left: of each, one branch must be merged.
type Choices = Vec<Vec<Value>>;
type Check<'c> = &'c dyn Fn(&Value) -> bool;

impl Maker<'_> {
    fn step(&self) -> bool {
        self.spend(1)
    }

    /// Returns whether there are steps left.
    fn spend(&self, steps: usize) -> bool {
        let left = self.steps.get();
        self.steps.set(left.saturating_sub(steps));
        left > 0
    }

    fn make(&self, schema: &Value, depth: usize, mode: Mode) -> Option<Value> {
        if !self.step() || depth == 0 {
            return match mode {
                Mode::Full => self.make_lean(schema),
                Mode::Lean => None,
                Mode::Loose => Some(Value::Null),
            };
        }
        let (mut merged, mut choices) = (Merged::new(), Choices::new());
        self.merge(schema, &mut merged, &mut choices)?;
        let is_fit = |value: &Value| mode == Mode::Loose || self.fits(value, schema, MAX_DEPTH + MAX_LEAN_DEPTH);
        self.choose(merged, &choices, depth, mode, &is_fit)
    }

    /// Makes the value with the least depth, so that a schema which refers to itself ends as soon as it can.
    fn make_lean(&self, schema: &Value) -> Option<Value> {
        (1..=MAX_LEAN_DEPTH).find_map(|depth| self.make(schema, depth, Mode::Lean))
    }

    /// Merges a schema, and what it refers to, into another. `None`: nothing fits both.
    fn merge(&self, schema: &Value, merged: &mut Merged, choices: &mut Choices) -> Option<()> {
        let mut waiting = vec![schema];
        let mut count = 0;
        while let Some(schema) = waiting.pop() {
            count += 1;
            let schema = match schema {
                Value::Bool(false) => return None,
                Value::Object(schema) if count <= MAX_MERGED => schema,
                _ => continue,
            };
            waiting.extend(self.target(schema));
            waiting.extend(list(schema, "allOf").iter().rev());
            for (key, value) in schema {
                if !self.spend(size_and_depth(value).0) {
                    return None;
                }
                match key.as_str() {
                    "anyOf" | "oneOf" => choices.push(value.as_array().cloned().unwrap_or_default()),
                    "if" => {
                        let part = |key| schema.get(key).unwrap_or(&Value::Bool(true));
                        choices.push(vec![json!({"allOf": [value, part("then")]}), part("else").clone()]);
                    }
                    "$defs" | "definitions" | "title" | "description" => {}
                    _ => merge_keyword(merged, key, value),
                }
            }
        }
        Some(())
    }

    /// Returns the schema that another one refers to.
    fn target(&self, schema: &Map<String, Value>) -> Option<&Value> {
        let reference = schema.get("$ref").or(schema.get("$dynamicRef"))?.as_str()?.strip_prefix('#')?;
        let named = |definition: &&Value| {
            !reference.is_empty() && (definition["$anchor"] == reference || definition["$dynamicAnchor"] == reference)
        };
        let definitions = ["$defs", "definitions"].into_iter().filter_map(|key| self.root[key].as_object());
        self.root.pointer(reference).or_else(|| definitions.flat_map(Map::values).find(named))
    }

    /// Tries each branch of each choice.
    fn choose(
        &self,
        merged: Merged,
        choices: &[Vec<Value>],
        depth: usize,
        mode: Mode,
        is_fit: Check<'_>,
    ) -> Option<Value> {
        let Some((branches, others)) = choices.split_first() else { return self.build(&merged, depth, mode, is_fit) };
        if self.choices.get() == MAX_CHOICES {
            return None;
        }
        self.choices.update(|choices| choices + 1);
        let is_null = |branch: &&Value| mode == Mode::Full && branch["type"] == "null";
        let (last, first): (Vec<_>, Vec<_>) = branches.iter().partition(is_null);
        let made = first.into_iter().chain(last).find_map(|branch| {
            if self.steps.get() == 0 {
                return None;
            }
            if !self.spend(merged.values().chain(others.iter().flatten()).map(|value| size_and_depth(value).0).sum()) {
                return None;
            }
            let (mut merged, mut choices) = (merged.clone(), others.to_vec());
            self.merge(branch, &mut merged, &mut choices)?;
            self.choose(merged, &choices, depth, mode, is_fit)
        });
        self.choices.update(|choices| choices - 1);
        made
    }

    fn build(&self, schema: &Merged, depth: usize, mode: Mode, is_fit: Check<'_>) -> Option<Value> {
        let variant = self.variant.get();
        let given = list(schema, "examples").iter().take(1).chain(schema.get("const")).chain(schema.get("default"));
        let values = list(schema, "enum");
        let values = values.iter().cycle().skip(variant.checked_rem(values.len()).unwrap_or(0)).take(values.len());
        let given = given.filter(|_| variant == 0).chain(schema.get("const")).chain(values);
        if let Some(value) = given.into_iter().find(|value| is_fit(value)) {
            return Some(value.clone());
        }
        if schema.contains_key("const") || schema.contains_key("enum") {
            return None;
        }
        let (last, first): (Vec<_>, Vec<_>) = kinds(schema).into_iter().partition(|kind| *kind == "null");
        first.into_iter().chain(last).find_map(|kind| match kind {
            "string" => self.strings(schema).into_iter().map(Value::from).find(is_fit),
            "integer" => numbers(schema, 1.0, variant).into_iter().filter_map(integer).find(is_fit),
            "number" => numbers(schema, 1.5, variant).into_iter().find(is_fit),
            "boolean" => {
                [variant.is_multiple_of(2), !variant.is_multiple_of(2)].into_iter().map(Value::from).find(is_fit)
            }
            "array" => self.array(schema, depth, mode).filter(is_fit),
            "object" => self.object(schema, depth, mode).filter(is_fit),
            _ => Some(Value::Null).filter(is_fit),
        })
    }

    fn strings(&self, schema: &Merged) -> Vec<String> {
        let (min, variant) = (size(schema, "minLength").unwrap_or(0).min(MAX_LENGTH), self.variant.get());
        let mut texts = Vec::new();
        let pattern = schema.get("pattern").and_then(Value::as_str);
        if !self.spend(pieces(min) + pattern.map_or(0, |pattern| pieces(pattern.len()))) {
            return texts;
        }
        if let Some(pattern) = pattern {
            texts.extend([1, 0, min].iter().filter_map(|times| pattern::matching(pattern, *times, variant)));
        }
        texts.extend(schema.get("format").and_then(Value::as_str).and_then(formatted).map(str::to_owned));
        let max = size(schema, "maxLength").unwrap_or(usize::MAX);
        texts.extend(["text", "other"].map(|word| {
            let stem = if variant == 0 { word.to_owned() } else { format!("{variant}{word}") };
            stem.chars().cycle().take(stem.len().max(min).min(max)).collect()
        }));
        texts
    }

    fn array(&self, schema: &Merged, depth: usize, mode: Mode) -> Option<Value> {
        let (min, max) = (size(schema, "minItems").unwrap_or(0), size(schema, "maxItems").unwrap_or(usize::MAX));
        let (first, rest) = item_schemas(schema);
        let contained = schema.get("contains").map_or(0, |_| size(schema, "minContains").unwrap_or(1));
        let shown = if mode == Mode::Full { first.len().max(usize::from(schema.contains_key("items"))) } else { 0 };
        let wanted = shown.max(min).max(contained).min(max).min(MAX_LENGTH);
        let is_unique = schema.get("uniqueItems") == Some(&Value::Bool(true));
        let outer = self.variant.get();
        let mut items = Vec::new();
        for nth in 0..wanted {
            if self.steps.get() == 0 {
                break;
            }
            let mut item = first.get(nth).or(rest).cloned().unwrap_or(Value::Bool(true));
            if let Some(contains) = schema.get("contains").filter(|_| nth < contained) {
                item = json!({"allOf": [item, contains]});
            }
            self.variant.set(if is_unique { nth } else { outer });
            let made = self.make(&item, depth - 1, mode);
            self.variant.set(outer);
            match made {
                Some(value) => items.push(value),
                None if nth < min.max(contained) => return None,
                None => break,
            }
        }
        Some(items.into())
    }

    fn object(&self, schema: &Merged, depth: usize, mode: Mode) -> Option<Value> {
        let none = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let (min, max) = (size(schema, "minProperties").unwrap_or(0), size(schema, "maxProperties"));
        let in_order = list(schema, "required").iter().filter_map(Value::as_str);
        let mut required: HashSet<&str> = in_order.clone().collect();
        let shows_all = required.is_empty() && mode == Mode::Full;
        let (shown, further): (Vec<_>, Vec<_>) =
            properties.keys().map(String::as_str).partition(|name| shows_all || required.contains(name));
        let mut names = shown;
        names.extend(in_order.filter(|name| !properties.contains_key(*name)));
        if required.is_empty() {
            names.truncate(max.unwrap_or(usize::MAX));
        }
        names.extend(further.into_iter().take(min.saturating_sub(names.len())));
        let mut object = Map::new();
        let mut next = 0;
        while let Some(name) = names.get(next).copied() {
            next += 1;
            if object.contains_key(name) {
                continue;
            }
            match self.make(&property(schema, properties, name), depth - 1, mode) {
                Some(value) => object.insert(name.to_owned(), value),
                None if required.contains(&name) => return None,
                None => continue,
            };
            for key in ["dependentRequired", "dependencies"] {
                let depending = schema.get(key).and_then(|all| all.get(name)).and_then(Value::as_array);
                let depending = depending.into_iter().flatten().filter_map(Value::as_str);
                depending.for_each(|other| {
                    names.push(other);
                    required.insert(other);
                });
            }
        }
        self.add_properties(&mut object, schema, min, depth, mode);
        Some(object.into())
    }

    /// Adds properties that the schema does not name, up to the minimum.
    fn add_properties(&self, object: &mut Map<String, Value>, schema: &Merged, min: usize, depth: usize, mode: Mode) {
        let none = Map::new();
        let patterns = schema.get("patternProperties").and_then(Value::as_object).unwrap_or(&none);
        let names = schema.get("propertyNames");
        for nth in 1..=min.min(MAX_LENGTH) * 2 {
            if object.len() >= min || self.steps.get() == 0 {
                return;
            }
            let outer = self.variant.replace(nth);
            let named = names.and_then(|names| self.make(&json!({"allOf": [{"type": "string"}, names]}), depth, mode));
            let patterned = patterns
                .keys()
                .take_while(|name| self.spend(pieces(name.len())))
                .find_map(|name| pattern::matching(name, 1, nth));
            self.variant.set(outer);
            let name = named.as_ref().and_then(Value::as_str).map(str::to_owned).or(patterned);
            let name = name.unwrap_or_else(|| format!("property{nth}"));
            if let Some(value) = self.make(&property(schema, &none, &name), depth - 1, mode) {
                object.entry(name).or_insert(value);
            }
        }
    }

    /// Returns whether a value fits a schema, as far as its keywords are known here. Patterns, formats and references
    /// to elsewhere are not.
    fn fits(&self, value: &Value, schema: &Value, depth: usize) -> bool {
        let schema = match schema {
            Value::Bool(any) => return *any,
            Value::Object(schema) if depth > 0 && self.spend(1 + list(schema, "enum").len()) => schema,
            _ => return true,
        };
        let is_fit = |schema: &Value| self.fits(value, schema, depth - 1);
        let part = |key| schema.get(key).is_none_or(is_fit);
        let (any, one) = (list(schema, "anyOf"), list(schema, "oneOf"));
        self.target(schema).is_none_or(is_fit)
            && list(schema, "allOf").iter().all(is_fit)
            && (any.is_empty() || any.iter().any(is_fit))
            && (one.is_empty() || one.iter().filter(|schema| is_fit(schema)).count() == 1)
            && schema.get("not").is_none_or(|not| !is_fit(not))
            && schema.get("if").is_none_or(|condition| part(if is_fit(condition) { "then" } else { "else" }))
            && schema.get("const").is_none_or(|only| is_same(only, value))
            && schema.get("enum").is_none_or(|_| list(schema, "enum").iter().any(|one| is_same(one, value)))
            && (schema.get("type").is_none() || kinds(schema).iter().any(|kind| is_of(value, kind)))
            && match value {
                Value::Number(number) => number_fits(number, schema),
                Value::String(text) => is_within(text.chars().count(), schema, "minLength", "maxLength"),
                Value::Array(items) => self.array_fits(items, schema, depth),
                Value::Object(object) => self.object_fits(object, schema, depth),
                Value::Null | Value::Bool(_) => true,
            }
    }

    fn array_fits(&self, items: &[Value], schema: &Merged, depth: usize) -> bool {
        let (first, rest) = item_schemas(schema);
        let is_fit = |(nth, item): (usize, &Value)| {
            first.get(nth).or(rest).is_none_or(|schema| self.fits(item, schema, depth - 1))
        };
        let is_unique = schema.get("uniqueItems") == Some(&Value::Bool(true));
        let contained = schema
            .get("contains")
            .map(|contains| items.iter().filter(|item| self.fits(item, contains, depth - 1)).count());
        is_within(items.len(), schema, "minItems", "maxItems")
            && items.iter().enumerate().all(is_fit)
            && contained.is_none_or(|count| count >= size(schema, "minContains").unwrap_or(1))
            && (!is_unique || are_unique(items))
    }

    fn object_fits(&self, object: &Map<String, Value>, schema: &Merged, depth: usize) -> bool {
        let none = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let is_known = |name: &String| properties.contains_key(name) || schema.contains_key("patternProperties");
        let depending = schema.get("dependentRequired").and_then(Value::as_object).unwrap_or(&none);
        let has_all = |names: &[Value]| names.iter().filter_map(Value::as_str).all(|name| object.contains_key(name));
        is_within(object.len(), schema, "minProperties", "maxProperties")
            && has_all(list(schema, "required"))
            && object.iter().all(|(name, value)| match properties.get(name) {
                Some(schema) => self.fits(value, schema, depth - 1),
                None if is_known(name) => true,
                None => schema.get("additionalProperties").is_none_or(|schema| self.fits(value, schema, depth - 1)),
            })
            && depending.keys().all(|name| !object.contains_key(name) || has_all(list(depending, name)))
            && schema
                .get("propertyNames")
                .is_none_or(|names| object.keys().all(|name| self.fits(&Value::from(name.as_str()), names, depth - 1)))
    }
}

/// Returns the schema of a property.
fn property(schema: &Merged, properties: &Map<String, Value>, name: &str) -> Value {
    let patterns = schema.get("patternProperties").and_then(Value::as_object);
    let patterned = || match patterns.map(Map::len) {
        // Which pattern matches the name is not known here.
        Some(1) => patterns.and_then(|patterns| patterns.values().next()),
        _ => None,
    };
    let found = properties.get(name).or_else(patterned).or(schema.get("additionalProperties"));
    found.cloned().unwrap_or(Value::Bool(true))
}

/// Returns the schemas of the first items of an array, and the one of all others.
fn item_schemas(schema: &Merged) -> (&[Value], Option<&Value>) {
    let items = schema.get("items");
    let first = [list(schema, "prefixItems"), list(schema, "items")].into_iter().find(|first| !first.is_empty());
    (first.unwrap_or_default(), items.filter(|items| !items.is_array()).or(schema.get("additionalItems")))
}

fn are_unique(items: &[Value]) -> bool {
    let mut seen = HashSet::new();
    items.iter().all(|item| seen.insert(item.to_string()))
}

/// Returns the number of steps that a text costs.
fn pieces(length: usize) -> usize {
    length / 8
}

/// Returns the number of values in a value, with the pieces of its texts, and the depth. It is a loop, because a value
/// may be deep.
fn size_and_depth(value: &Value) -> (usize, usize) {
    let (mut waiting, mut size, mut deepest) = (vec![(value, 1)], 0, 0);
    while let Some((value, depth)) = waiting.pop() {
        (size, deepest) = (size + 1, depth.max(deepest));
        match value {
            Value::Array(items) => waiting.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(members) => {
                size += members.keys().map(|name| pieces(name.len())).sum::<usize>();
                waiting.extend(members.values().map(|member| (member, depth + 1)));
            }
            Value::String(text) => size += pieces(text.len()),
            _ => {}
        }
    }
    (size, deepest)
}

/// Adds a keyword to those of a merged schema.
fn merge_keyword(merged: &mut Merged, key: &str, value: &Value) {
    let Some(before) = merged.get_mut(key) else {
        merged.insert(key.to_owned(), value.clone());
        return;
    };
    let is_less = |one: &Value, other: &Value| one.as_f64() < other.as_f64();
    match (key, before, value) {
        ("required", Value::Array(before), Value::Array(more)) => {
            before.extend(more.iter().cloned());
            let mut seen = HashSet::new();
            before.retain(|name| seen.insert(name.to_string()));
        }
        ("enum", Value::Array(before), Value::Array(other)) => before.retain(|value| other.contains(value)),
        ("type", before, other) => {
            let (one, two) = (words(before), words(other));
            let is_in = |kind: &&str, all: &[&str]| all.contains(kind) || *kind == "integer" && all.contains(&"number");
            let mut both: Vec<&str> = one.iter().copied().filter(|kind| is_in(kind, &two)).collect();
            both.extend(two.iter().copied().filter(|kind| !one.contains(kind) && is_in(kind, &one)));
            *before = json!(both);
        }
        (
            "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" | "minContains",
            before,
            value,
        ) if is_less(before, value) => {
            *before = value.clone();
        }
        ("maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties", before, value)
            if is_less(value, before) =>
        {
            *before = value.clone();
        }
        ("properties" | "patternProperties", Value::Object(before), Value::Object(more)) => {
            for (name, schema) in more {
                match before.get_mut(name) {
                    Some(before) => *before = json!({"allOf": [before.take(), schema]}),
                    None => drop(before.insert(name.clone(), schema.clone())),
                }
            }
        }
        ("items" | "additionalProperties" | "contains" | "propertyNames", before, schema) if !before.is_array() => {
            *before = json!({"allOf": [before.take(), schema]});
        }
        _ => {}
    }
}

/// Returns the types that a schema names, or the type that its keywords imply.
fn kinds(schema: &Merged) -> Vec<&str> {
    let implied = [
        ("object", &["properties", "required", "additionalProperties", "minProperties", "patternProperties"][..]),
        ("array", &["items", "prefixItems", "minItems", "contains", "uniqueItems"]),
        ("string", &["minLength", "maxLength", "pattern", "format"]),
        ("number", &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]),
    ];
    match schema.get("type") {
        Some(kind) => words(kind),
        None => {
            let is_implied = |keys: &[&str]| keys.iter().any(|key| schema.contains_key(*key));
            let first = implied.iter().find(|(_, keys)| is_implied(keys)).map(|(kind, _)| *kind);
            let others = ["string", "integer", "boolean", "object", "array", "null"];
            first.into_iter().chain(others).collect()
        }
    }
}

/// The numbers that a schema may mean, the likeliest first.
fn numbers(schema: &Merged, usual: f64, variant: usize) -> Vec<Value> {
    let number = |key| schema.get(key).and_then(Value::as_f64);
    let low = [number("minimum"), number("exclusiveMinimum")].into_iter().flatten().reduce(f64::max);
    let high = [number("maximum"), number("exclusiveMaximum")].into_iter().flatten().reduce(f64::min);
    let step = number("multipleOf").filter(|step| *step > 0.0);
    #[expect(clippy::cast_precision_loss, reason = "it is a small number")]
    let ahead = variant as f64 * step.unwrap_or(1.0);
    let mut numbers = vec![low.unwrap_or(usual) + ahead, usual + ahead, ahead, usual + 1.0 + ahead];
    if let Some(step) = step {
        let from_low = low.map(|low| (low / step).ceil() * step);
        let to_high = high.map(|high| (high / step).floor() * step);
        numbers.extend(
            [from_low.map(|n| n + ahead), from_low.map(|n| n + step), Some(step + ahead), Some(0.0)]
                .into_iter()
                .flatten(),
        );
        numbers.extend([to_high.map(|n| n - ahead), to_high.map(|n| n - step)].into_iter().flatten());
    }
    if let Some(low) = low {
        numbers.extend([low.ceil() + ahead, low.floor() + 1.0 + ahead]);
    }
    if let Some(high) = high {
        numbers.extend([high - ahead, high.floor() - ahead, high.ceil() - 1.0 - ahead]);
    }
    if let (Some(low), Some(high)) = (low, high) {
        numbers.push(low.midpoint(high));
    }
    // A limit as it is written may be too large for a float.
    let written =
        ["minimum", "maximum"].into_iter().filter_map(|key| schema.get(key).filter(|n| n.is_number())).cloned();
    let first = written.clone().take(usize::from(schema.contains_key("minimum") && variant == 0));
    let made = numbers.into_iter().filter_map(|n| integer(json!(n)).or_else(|| Number::from_f64(n).map(Value::Number)));
    first.collect::<Vec<_>>().into_iter().chain(made).chain(written).collect()
}

/// Returns a number as an integer, if it is one.
fn integer(number: Value) -> Option<Value> {
    /// Up to here every integer is a float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.is_i64() || number.is_u64() {
        return Some(number);
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is a whole number in the range")]
    number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() <= EXACT).map(|n| json!(n as i64))
}

/// A text in a format that JSON Schema knows.
fn formatted(format: &str) -> Option<&'static str> {
    Some(match format {
        "date-time" => "2025-01-31T12:00:00Z",
        "date" => "2025-01-31",
        "time" => "12:00:00Z",
        "duration" => "P1D",
        "email" | "idn-email" => "user@example.com",
        "hostname" | "idn-hostname" => "example.com",
        "ipv4" | "ip" => "192.0.2.1",
        "ipv6" => "2001:db8::1",
        "uri" | "url" | "uri-reference" | "iri" | "iri-reference" => "https://example.com/",
        "uri-template" => "https://example.com/{id}",
        "uuid" => "123e4567-e89b-42d3-a456-426614174000",
        "json-pointer" => "/text",
        "relative-json-pointer" => "0",
        "byte" => "dGV4dA==",
        _ => return None,
    })
}

fn list<'a>(schema: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn words(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size that is out of range is cut")]
fn size(schema: &Map<String, Value>, key: &str) -> Option<usize> {
    schema.get(key).and_then(Value::as_f64).map(|size| size.ceil() as usize)
}

fn is_within(length: usize, schema: &Merged, min: &str, max: &str) -> bool {
    size(schema, min).is_none_or(|min| length >= min) && size(schema, max).is_none_or(|max| length <= max)
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => false,
    }
}

fn is_same(one: &Value, other: &Value) -> bool {
    one == other || one.is_number() && one.as_f64() == other.as_f64()
}

fn number_fits(number: &Number, schema: &Merged) -> bool {
    /// The part of a step by which a multiple may miss it, because fractions are not exact.
    const TOLERANCE: f64 = 1e-9;
    let Some(number) = number.as_f64() else { return true };
    let limit = |key| schema.get(key).and_then(Value::as_f64);
    // In draft 4 these two are booleans.
    let excludes = |key| schema.get(key) == Some(&Value::Bool(true));
    limit("minimum").is_none_or(|min| if excludes("exclusiveMinimum") { number > min } else { number >= min })
        && limit("maximum").is_none_or(|max| if excludes("exclusiveMaximum") { number < max } else { number <= max })
        && limit("exclusiveMinimum").is_none_or(|min| number > min)
        && limit("exclusiveMaximum").is_none_or(|max| number < max)
        && limit("multipleOf").is_none_or(|step| {
            let times = number / step;
            (times - times.round()).abs() < TOLERANCE
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn problem(schema: &Value) -> Option<String> {
        let validator = jsonschema::options().should_validate_formats(true).build(schema).unwrap();
        let value = example(schema);
        let error = validator.iter_errors(&value).next()?.to_string();
        Some(format!("{schema}\n{value}\n{error}"))
    }

    #[test]
    fn an_example_fits_the_schemas_that_people_write() {
        let node = json!({"type": "object", "properties": {"op": {"type": "string"}, "args": {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/expr"}}}, "required": ["op", "args"], "additionalProperties": false});
        for schema in [
            json!({"type": "object", "properties": {"a": {"const": 7}, "b": {"enum": ["x", 1]}, "c": {"default": "no", "type": "integer"}}}),
            json!({"type": "object", "properties": {"a": {"examples": ["lie"], "type": "boolean"}}, "required": ["a"]}),
            json!({"type": "integer", "minimum": 3, "maximum": 3}),
            json!({"type": "integer", "exclusiveMinimum": 10, "multipleOf": 7}),
            json!({"type": "integer", "maximum": -5}),
            json!({"type": "integer", "minimum": u64::MAX}),
            json!({"type": "integer", "minimum": i64::MIN, "maximum": i64::MIN}),
            json!({"type": "integer", "minimum": 0.5, "maximum": 1.5}),
            json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
            json!({"type": "number", "multipleOf": 0.25, "minimum": 0.3}),
            json!({"type": "string", "minLength": 10, "maxLength": 12}),
            json!({"type": "string", "maxLength": 0}),
            json!({"type": "string", "pattern": "^[a-z]{2,4}-\\d+$", "minLength": 12}),
            json!({"type": "string", "format": "date-time"}),
            json!({"type": "string", "format": "uuid"}),
            json!({"type": "string", "format": "email"}),
            json!({"type": "string", "format": "ipv6"}),
            json!({"type": "string", "format": "duration"}),
            json!({"type": "string", "format": "uri"}),
            json!({"type": "array", "items": {"type": "string"}, "minItems": 5, "uniqueItems": true}),
            json!({"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 3, "uniqueItems": true}),
            json!({"type": "array", "items": {"type": "integer", "maximum": 0, "minimum": -9}, "minItems": 4, "uniqueItems": true}),
            json!({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "uniqueItems": true}),
            json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": false, "minItems": 2}),
            json!({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "null"}, "minItems": 3}),
            json!({"type": "array", "contains": {"const": "x"}, "minContains": 2, "items": {"type": "string"}}),
            json!({"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}}),
            json!({"type": "object", "minProperties": 2, "additionalProperties": false, "patternProperties": {"^[a-z]x$": {"type": "integer"}}}),
            json!({"type": "object", "minProperties": 1, "propertyNames": {"enum": ["red", "green"]}}),
            json!({"type": "object", "required": ["a"], "properties": {"a": {}, "b": {"type": "null"}}, "minProperties": 2}),
            json!({"type": "object", "required": ["a"], "dependentRequired": {"a": ["b"]}, "properties": {"b": {"type": "integer"}}}),
            json!({"type": "object", "required": ["x"], "additionalProperties": {"type": "array"}}),
            json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}),
            json!({"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]}, {"type": "object", "properties": {"kind": {"const": "b"}, "n": {"type": "integer"}}, "required": ["kind", "n"]}]}),
            json!({"anyOf": [{"type": "string", "maxLength": 2}, {"type": "null"}], "not": {"type": "null"}}),
            json!({"allOf": [{"properties": {"a": {"type": "integer", "minimum": 5}}, "required": ["a"]}, {"properties": {"a": {"maximum": 5}, "b": {"type": "string"}}, "required": ["b"]}]}),
            json!({"type": "integer", "allOf": [{"minimum": 4}, {"minimum": 8}], "anyOf": [{"maximum": 3}, {"maximum": 9}]}),
            json!({"not": {"type": "string"}}),
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "if": {"properties": {"a": {"const": "x"}}}, "then": {"required": ["b"]}, "else": {"required": ["c"]}}),
            json!({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "array", "items": {"$ref": "#named"}}, "c": {"$anchor": "named", "type": "null"}}}),
            json!({"type": ["null", "array"], "items": {"type": "object", "properties": {"deep": {"type": "array", "items": {"type": "array", "items": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["x"], "properties": {"x": {"type": "array", "minItems": 2, "items": {"type": "integer"}}}}}}}}}}),
            json!({"$ref": "#/$defs/expr", "$defs": {"expr": {"oneOf": [node, {"type": "number"}]}}}),
            json!({"type": "object", "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["value", "next"]}),
            json!({"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}),
            json!({"type": "object", "properties": {"名前": {"type": "string", "minLength": 3, "pattern": "^[ぁ-ん]+$"}}, "required": ["名前"]}),
            json!({"type": "integer", "not": {"const": 1}}),
            json!({"type": "string", "not": {"enum": ["text"]}}),
            json!({"type": "number", "multipleOf": 0.1, "minimum": 0.25}),
            json!({"type": "number", "multipleOf": 0.01, "exclusiveMinimum": 0, "maximum": 1}),
            json!({"type": "integer", "multipleOf": 2.5, "minimum": 6}),
            json!({"type": "integer", "multipleOf": 0.5, "exclusiveMinimum": 1, "exclusiveMaximum": 3}),
            json!({"type": "array", "items": {"type": "number", "multipleOf": 0.25}, "minItems": 5, "uniqueItems": true}),
            json!({"anyOf": [{"$ref": "#"}, {"type": "string"}]}),
            json!(true),
            json!({}),
        ] {
            assert_eq!(problem(&schema), None);
        }
    }

    #[test]
    fn a_schema_that_nothing_fits_or_that_is_hostile_gives_something_soon() {
        let wide: Vec<Value> = (0..200).map(|_| json!({"$ref": "#"})).collect();
        let many: Vec<Value> = (0..50_000).map(|n| format!("property {n}").into()).collect();
        let properties: Map<_, _> = (0..50_000).map(|n| (format!("property {n}"), json!({"type": "null"}))).collect();
        let mut choices = json!({"type": "string"});
        for _ in 0..30 {
            choices =
                json!({"anyOf": [choices, choices], "allOf": [{"oneOf": [{"type": "integer"}, {"type": "null"}]}]});
            if choices.to_string().len() > 100_000 {
                break;
            }
        }
        for schema in [
            json!(false),
            json!(7),
            json!({"type": "elephant"}),
            json!({"$ref": "https://example.com/schema"}),
            json!({"allOf": [{"type": "string"}, {"type": "integer"}]}),
            json!({"type": "integer", "minimum": 5, "maximum": 4}),
            json!({"type": "string", "minLength": 1e300}),
            json!({"type": "array", "minItems": 1e18, "items": {"$ref": "#"}}),
            json!({"type": "object", "minProperties": 1e18}),
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
            json!({"type": "object", "required": wide.iter().enumerate().map(|(n, _)| format!("p{n}")).collect::<Vec<_>>(), "additionalProperties": {"$ref": "#"}}),
            json!({"type": "object", "properties": {"a": {"anyOf": wide}}, "required": ["a"]}),
            json!({"allOf": wide}),
            json!({"anyOf": [{"$ref": "#"}]}),
            json!({"oneOf": [{"$ref": "#"}, {"$ref": "#"}], "type": "object", "properties": {"a": {"$ref": "#"}}}),
            json!({"allOf": vec![json!({"anyOf": [{"required": ["a"], "properties": {"a": {"$ref": "#"}}}]}); 150]}),
            json!({"if": {"$ref": "#"}, "then": {"$ref": "#"}, "else": {"$ref": "#"}}),
            json!({"type": "array", "minItems": 10_000, "items": {"type": "string", "minLength": 10_000}}),
            json!({"type": "array", "minItems": 10_000, "items": {"const": "x".repeat(100_000)}}),
            json!({"type": "array", "minItems": 10_000, "items": {"type": "object", "minProperties": 10_000}}),
            json!({"type": "object", "minProperties": 10_000, "patternProperties": {("a|".repeat(50_000)): false}}),
            json!({"type": "array", "minItems": 10_000, "items": {"type": "string", "pattern": "a|".repeat(50_000)}}),
            json!({"type": "array", "minItems": 10_000, "uniqueItems": true, "anyOf": vec![json!({"minItems": 9_999}); 10]}),
            json!({"const": many.iter().map(|_| json!([])).collect::<Vec<_>>(), "items": {"prefixItems": many}}),
            json!({"const": many.iter().map(|_| json!("no")).collect::<Vec<_>>(), "items": {"enum": many}}),
            json!({"allOf": [{"anyOf": many}, {"anyOf": many}], "not": {}}),
            json!({"type": "object", "properties": properties, "required": many}),
            json!({"type": "object", "properties": properties, "minProperties": 10_000}),
            choices,
        ] {
            let begun = std::time::Instant::now();
            let length = example(&schema).to_string().len();
            assert!(length < 8_000_000, "{length} bytes for {schema:.200}");
            assert!(begun.elapsed().as_secs() < 20, "{schema:.200}");
        }
    }

    /// A schema that something fits.
    fn schemas() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            (-50..50_i64, 0..20_i64, 1..4_i64).prop_map(|(min, more, step)| {
                json!({"type": "integer", "minimum": min, "maximum": min + more + step, "multipleOf": step})
            }),
            (-9.0..9.0_f64, 0.1..9.0_f64)
                .prop_map(|(min, more)| json!({"type": "number", "exclusiveMinimum": min, "maximum": min + more})),
            (0..9_u8, 0..9_u8)
                .prop_map(|(min, more)| json!({"type": "string", "minLength": min, "maxLength": min + more})),
            Just(json!({"type": "boolean"})),
            Just(json!({"enum": ["a", 1, null]})),
            Just(json!({"const": {"a": [1]}})),
            "[a-c]{1,3}".prop_map(|text| json!({"type": "string", "pattern": format!("^{text}[x-z]+$")})),
        ];
        leaf.prop_recursive(4, 40, 4, |inner| {
            prop_oneof![
                (inner.clone(), 0..4_u8)
                    .prop_map(|(items, min)| json!({"type": "array", "items": items, "minItems": min})),
                prop::collection::vec(inner.clone(), 1..3).prop_map(|all| {
                    json!({"type": "array", "minItems": all.len(), "prefixItems": all, "items": false})
                }),
                prop::collection::vec(inner.clone(), 1..4).prop_map(|all| json!({"anyOf": all})),
                prop::collection::vec(inner.clone(), 1..3)
                    .prop_map(|all| json!({"allOf": [{"description": "x"}, {"anyOf": all}]})),
                (prop::collection::vec((inner, any::<bool>()), 0..4), any::<bool>()).prop_map(|(all, more)| {
                    let required: Vec<_> =
                        all.iter().enumerate().filter(|(_, (_, is))| *is).map(|(n, _)| format!("p{n}")).collect();
                    let all: Map<_, _> =
                        all.into_iter().enumerate().map(|(n, (schema, _))| (format!("p{n}"), schema)).collect();
                    json!({"type": "object", "properties": all, "required": required, "additionalProperties": more})
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn an_example_fits_any_schema(schema in schemas()) {
            prop_assert_eq!(problem(&schema), None);
        }
    }
}
