//! Typed answers: a call whose output is a Rust value, which the callee's model writes by its JSON Schema.

use std::fmt::Display;
use std::sync::Arc;

use schemars::transform::{RecursiveTransform, Transform as _};
use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::answer_type::{AnswerType, CheckAnswer};
use crate::call_builder::CallBuilder;
use crate::message::Forward;
use crate::panics::catch;
use crate::tool_call::{Arguments, schema_of};
use crate::user::Call;

impl<T> Call<T> {
    /// Expects an answer of type `A`. The parameters of the callee's tool `finish` are the JSON Schema of `A`, and
    /// [`Report::output`](crate::Report::output) is the value. A type that is not an object, or that is a choice of
    /// several, is the parameter `message`.
    ///
    /// A model that ends with text instead of `finish` must write the value as JSON. If the answer does not fit, the
    /// model is told where, what was found and what was expected, up to three times. Then the call fails with
    /// [`CallError::Misfit`](crate::CallError::Misfit). The answer of an actor or a user must be JSON too, and is
    /// checked once. Integers of 128 bits must fit in 64.
    ///
    /// It must be set before the call is sent; otherwise the call fails with that error.
    ///
    /// ```
    /// # use agentouto::{Agent, Reply, Runtime, providers::scripted::Scripted};
    /// #[derive(schemars::JsonSchema, serde::Deserialize)]
    /// struct Verdict {
    ///     /// From 0 to 10.
    ///     score: u8,
    /// }
    ///
    /// # let model = Scripted::new().replies_to_any("judge", [Reply::tool("finish", serde_json::json!({"score": 7}))]);
    /// # let runtime = Runtime::builder().provider("script", model).agent(Agent::new("judge", "Judges.")).build()?;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let verdict = runtime.user("editor").forward("judge", "How good is it?").typed::<Verdict>().await?.output;
    /// assert_eq!(verdict.score, 7);
    /// # Ok::<(), agentouto::RunError>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn typed<A: DeserializeOwned + JsonSchema>(mut self) -> Call<A> {
        if let Some(forward) = self.forward_mut() {
            forward.answer_type = Some(Typed::of::<A>());
        }
        self.decode_by(decode)
    }

    /// Checks an answer that is a `T`. The model reads the error as it reads that of an answer of another type. A panic
    /// in `check`, or in the `Deserialize` of the type, is such an error too. Call it after [`Call::typed`], if at all;
    /// it may be called several times. Without `typed` the call expects text, also from an [agent that answers with a
    /// type](Agent::answers).
    pub fn validated<E: Display>(mut self, check: impl Fn(&T) -> Result<(), E> + Send + Sync + 'static) -> Self
    where
        T: DeserializeOwned,
    {
        if let Some(forward) = self.forward_mut() {
            validate(forward, check);
        }
        self
    }
}

impl<T> CallBuilder<T> {
    /// Expects an answer of type `A`, see [`Call::typed`].
    pub fn typed<A: DeserializeOwned + JsonSchema>(mut self) -> CallBuilder<A> {
        self.forward_mut().answer_type = Some(Typed::of::<A>());
        self.decode_by(decode)
    }

    /// Checks a typed answer further, see [`Call::validated`].
    pub fn validated<E: Display>(mut self, check: impl Fn(&T) -> Result<(), E> + Send + Sync + 'static) -> Self
    where
        T: DeserializeOwned,
    {
        validate(self.forward_mut(), check);
        self
    }
}

impl Agent {
    /// The agent always answers with an `A`, see [`Call::typed`]. A caller that expects another type gets that one.
    #[must_use]
    pub fn answers<A: DeserializeOwned + JsonSchema>(mut self) -> Self {
        self.answer_type = Some(Typed::of::<A>());
        self
    }
}

/// Adds a check of the answer to a Forward that expects a `T`, or any text.
fn validate<T: DeserializeOwned, E: Display>(
    forward: &mut Forward,
    check: impl Fn(&T) -> Result<(), E> + Send + Sync + 'static,
) {
    let AnswerType(inner) = forward.answer_type.take().unwrap_or_else(Typed::of::<String>);
    let check = move |value: &Value| check(&parse(value)?).map_err(|error| error.to_string());
    forward.answer_type = Some(AnswerType(Arc::new(Box::new(Validated { inner, check }))));
}

/// A Rust type.
struct Typed {
    schema: Value,
    form: Form,
    check: fn(&Value) -> Result<(), String>,
}

/// The form in which the model gives the value to `finish`.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// An object: the arguments themselves.
    Object,
    /// A text: the argument `message`, as it is.
    Text,
    /// Any other value: the argument `message`.
    Wrapped,
}

impl Typed {
    fn of<T: DeserializeOwned + JsonSchema>() -> AnswerType {
        let schema = schema_of::<T>();
        // Vendors refuse parameters that are a choice at the root, as those of a flattened enum are.
        let is_choice = ["oneOf", "anyOf", "allOf"].iter().any(|choice| schema.get(choice).is_some());
        let form = match schema.get("type").and_then(Value::as_str) {
            Some("object") if !is_choice => Form::Object,
            Some("string") if schema.get("enum").is_none() && schema.get("const").is_none() => Form::Text,
            _ => Form::Wrapped,
        };
        AnswerType(Arc::new(Box::new(Self { schema, form, check: |value| parse::<T>(value).map(drop) })))
    }

    fn fit(&self, value: Value) -> Result<Arc<str>, String> {
        // The type's `Deserialize` is foreign code, and an actor must not end because its caller's panics.
        catch(|| (self.check)(&value)).unwrap_or_else(type_panicked)?;
        Ok(match (self.form, value) {
            (Form::Text, Value::String(text)) => text.into(),
            (_, value) => value.to_string().into(),
        })
    }
}

impl CheckAnswer for Typed {
    fn schema(&self) -> &Value {
        &self.schema
    }

    fn parameters(&self) -> Value {
        if self.form == Form::Object {
            return self.schema.clone();
        }
        let mut message = self.schema.clone();
        let mut is_recursive = false;
        // A definition of the type may have that name.
        let mut name = "message".to_owned();
        while self.schema["$defs"].get(&name).is_some() {
            name.push('_');
        }
        // A recursive type refers to itself as the root, which it is no more.
        let refer = |schema: &mut Schema| {
            if schema.get("$ref").is_some_and(|target| target == "#") {
                is_recursive = true;
                schema.insert("$ref".to_owned(), format!("#/$defs/{name}").into());
            }
        };
        if let Ok(schema) = <&mut Schema>::try_from(&mut message) {
            RecursiveTransform(refer).transform(schema);
        }
        // References are to the definitions at the root.
        let definitions = message.as_object_mut().and_then(|message| message.shift_remove("$defs"));
        let definition = is_recursive.then(|| message.clone());
        let mut parameters = json!({"type": "object", "properties": {"message": message}, "required": ["message"]});
        if let Some(definitions) = definitions {
            parameters["$defs"] = definitions;
        }
        if let Some(definition) = definition {
            parameters["$defs"][name] = definition;
        }
        parameters
    }

    fn of_arguments(&self, mut arguments: Arguments) -> Result<Arc<str>, String> {
        match self.form {
            Form::Object => self.fit(Value::Object(arguments)),
            Form::Text | Form::Wrapped => {
                self.fit(arguments.remove("message").ok_or("missing required argument `message`")?)
            }
        }
    }

    fn of_text(&self, text: &str) -> Result<Arc<str>, String> {
        if self.form == Form::Text {
            return self.fit(text.into());
        }
        match serde_json::from_str(text) {
            Ok(value) => self.fit(value),
            // A word alone may be one of an enum.
            Err(error) => {
                self.fit(text.trim().into()).map_err(|_| format!("expected JSON, found `{text:.80}` ({error})"))
            }
        }
    }

    fn value(&self, answer: &str) -> Result<Value, String> {
        match self.form {
            Form::Text => Ok(answer.into()),
            Form::Object | Form::Wrapped => serde_json::from_str(answer).map_err(|error| error.to_string()),
        }
    }
}

/// A type with one more check of its values.
struct Validated<F> {
    inner: Arc<Box<dyn CheckAnswer>>,
    check: F,
}

impl<F: Fn(&Value) -> Result<(), String> + Send + Sync> Validated<F> {
    fn fit(&self, text: Arc<str>) -> Result<Arc<str>, String> {
        let value = self.inner.value(&text)?;
        // The check is foreign code.
        catch(|| (self.check)(&value)).unwrap_or_else(|panic| Err(format!("its check panicked: {panic}")))?;
        Ok(text)
    }
}

impl<F: Fn(&Value) -> Result<(), String> + Send + Sync> CheckAnswer for Validated<F> {
    fn schema(&self) -> &Value {
        self.inner.schema()
    }

    fn parameters(&self) -> Value {
        self.inner.parameters()
    }

    fn of_arguments(&self, arguments: Arguments) -> Result<Arc<str>, String> {
        self.fit(self.inner.of_arguments(arguments)?)
    }

    fn of_text(&self, text: &str) -> Result<Arc<str>, String> {
        self.fit(self.inner.of_text(text)?)
    }

    fn value(&self, answer: &str) -> Result<Value, String> {
        self.inner.value(answer)
    }
}

/// The output of a call that expects a `T`.
fn decode<T: DeserializeOwned>(answer_type: Option<&AnswerType>, text: Arc<str>) -> Result<T, String> {
    let answer_type = answer_type.ok_or("the type was set after the call was sent")?;
    let value = answer_type.0.value(&text)?;
    catch(|| parse(&value)).unwrap_or_else(type_panicked)
}

fn type_panicked<T>(panic: Arc<str>) -> Result<T, String> {
    Err(format!("its type panicked: {panic}"))
}

/// Returns the value as a `T`, or where it is not one, what was found and what was expected.
fn parse<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| match error.path().to_string() {
        whole if whole == "." => shorten(&error.inner().to_string()),
        path => format!("`{}`: {}", shorten(&path), shorten(&error.inner().to_string())),
    })
}

/// Cuts the middle out of a long text: the error of a value may contain the value, before what was expected.
fn shorten(text: &str) -> String {
    let cut = |place: Option<(usize, char)>| place.map_or(0, |(place, _)| place);
    let (head, tail) = (cut(text.char_indices().nth(SHOWN)), cut(text.char_indices().nth_back(SHOWN)));
    if head < tail { format!("{} … {}", &text[..head], &text[tail..]) } else { text.to_owned() }
}

/// The number of characters that are shown of the beginning and of the end of an error.
const SHOWN: usize = 300;
