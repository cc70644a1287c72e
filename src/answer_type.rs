//! The type of answer that the sender of a Forward expects. It becomes the schema of the tool `finish`, so no provider
//! knows of it. The check of an answer is a value; nothing here knows the type itself.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::tool_call::Arguments;

/// The type of answer that the sender of a [`Forward`](crate::Forward) expects, or that an agent always gives. Cheap to
/// clone; serialised as its JSON Schema.
#[derive(Clone)]
// Boxed within, so that it takes one word of every Forward.
pub struct AnswerType(pub(crate) Arc<Box<dyn CheckAnswer>>);

/// The check of an answer. An `Err` is what is wrong with it, for the model.
pub(crate) trait CheckAnswer: Send + Sync {
    /// The JSON Schema of the type.
    fn schema(&self) -> &Value;

    /// The parameters of a `finish` that takes such an answer.
    fn parameters(&self) -> Value;

    /// Returns the answer in the arguments of a `finish`, as text.
    fn of_arguments(&self, arguments: Arguments) -> Result<Arc<str>, String>;

    /// Returns the answer that a text is, as text.
    fn of_text(&self, text: &str) -> Result<Arc<str>, String>;

    /// Returns the value that an answer is, which was returned as text before.
    fn value(&self, answer: &str) -> Result<Value, String>;
}

impl PartialEq for AnswerType {
    fn eq(&self, other: &Self) -> bool {
        self.0.schema() == other.0.schema()
    }
}

impl Serialize for AnswerType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.schema().serialize(serializer)
    }
}

impl fmt::Debug for AnswerType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnswerType").field(self.0.schema()).finish()
    }
}

/// The type of answer that an invocation must give, if it is not any text.
pub(crate) type Expected = Option<Box<ExpectedAnswer>>;

pub(crate) struct ExpectedAnswer {
    pub(crate) answer_type: AnswerType,
    /// The number of answers so far that did not fit.
    misfits: usize,
}

/// The number of times that a model is told that its answer does not fit, before the call fails.
const MAX_CORRECTIONS: usize = 3;

impl ExpectedAnswer {
    pub(crate) fn new(answer_type: AnswerType) -> Self {
        Self { answer_type, misfits: 0 }
    }

    /// Counts an answer that does not fit. Returns whether the model may be told so.
    pub(crate) fn correct(&mut self) -> bool {
        self.misfits += 1;
        self.misfits <= MAX_CORRECTIONS
    }
}

/// A function that returns the output of a call from the text of its answer, which fits the type.
pub(crate) type Decode<T> = fn(Option<&AnswerType>, Arc<str>) -> Result<T, String>;

/// The output of a call that expects any text.
pub(crate) fn text(_: Option<&AnswerType>, text: Arc<str>) -> Result<Arc<str>, String> {
    Ok(text)
}
