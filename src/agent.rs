//! An agent: who it is, and which model speaks for it. A value; it does nothing by itself.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::name::Name;

/// An agent, described. Every agent has the same interface, and any may call any.
///
/// ```
/// use agentouto::{Agent, Effort};
///
/// let writer = Agent::new("writer", "Turn findings into a report.")
///     .model("gpt-5.6")
///     .provider("openai")
///     .reasoning(Effort::High);
/// assert_eq!(&*writer.name, "writer");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Agent {
    /// What others call it by.
    pub name: Name,
    /// What it is told to do, the second sentence of its system prompt.
    pub instructions: Arc<str>,
    /// What the others are told that it does. Default: its `instructions`.
    pub role: Option<Arc<str>>,
    /// The model's name, as its provider spells it. Default: empty, for providers that serve one model.
    pub model: Arc<str>,
    /// The name under which its provider is registered. Default: the only provider there is.
    pub provider: Option<Name>,
    /// The sampling temperature. Default: the provider's. Not sent while the agent reasons.
    pub temperature: Option<f64>,
    /// The most tokens that one reply may have, reasoning included. Default: the provider's.
    pub max_output_tokens: Option<u32>,
    /// Whether and how the model reasons before it replies. Default: as the provider does unasked.
    pub reasoning: Option<Reasoning>,
    /// Parameters merged into the body of every request: objects are merged with what the provider sets itself, lists are
    /// joined to its own, `null` leaves a field out, and anything else replaces it. The messages are not to be changed.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

impl Agent {
    /// An agent with a name and instructions.
    pub fn new(name: impl Into<Name>, instructions: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            instructions: instructions.into(),
            role: None,
            model: Arc::default(),
            provider: None,
            temperature: None,
            max_output_tokens: None,
            reasoning: None,
            extra: Map::new(),
        }
    }

    /// What the others are told that it does.
    #[must_use]
    pub fn role(mut self, role: impl Into<Arc<str>>) -> Self {
        self.role = Some(role.into());
        self
    }

    /// The model that speaks for it.
    #[must_use]
    pub fn model(mut self, model: impl Into<Arc<str>>) -> Self {
        self.model = model.into();
        self
    }

    /// The name under which its provider is registered.
    #[must_use]
    pub fn provider(mut self, provider: impl Into<Name>) -> Self {
        self.provider = Some(provider.into());
        self
    }

    /// The sampling temperature.
    #[must_use]
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.temperature = Some(temperature);
        self
    }

    /// The most tokens that one reply may have.
    #[must_use]
    pub fn max_output_tokens(mut self, tokens: u32) -> Self {
        self.max_output_tokens = Some(tokens);
        self
    }

    /// Lets the model reason before it replies.
    #[must_use]
    pub fn reasoning(mut self, reasoning: impl Into<Reasoning>) -> Self {
        self.reasoning = Some(reasoning.into());
        self
    }

    /// One more parameter for the body of every request.
    #[must_use]
    pub fn extra(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.extra.insert(key.into(), value.into());
        self
    }

    /// What the others are told: its role, or else its instructions.
    pub(crate) fn description(&self) -> &Arc<str> {
        self.role.as_ref().unwrap_or(&self.instructions)
    }
}

/// Whether and how a model reasons before it replies.
///
/// Providers that know only one of effort and budget use that one and ignore the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasoning {
    /// How hard. Default: medium.
    pub effort: Effort,
    /// The most tokens to reason with. Default: the provider's.
    pub budget: Option<u32>,
}

impl Reasoning {
    /// Medium effort, with at most `tokens` to reason with.
    #[must_use]
    pub fn budget(tokens: u32) -> Self {
        Self { effort: Effort::Medium, budget: Some(tokens) }
    }
}

impl From<Effort> for Reasoning {
    fn from(effort: Effort) -> Self {
        Self { effort, budget: None }
    }
}

/// How hard a model reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// Not at all, where the model can be told so.
    None,
    /// A little.
    Low,
    /// As most models do when asked to reason.
    #[default]
    Medium,
    /// Much.
    High,
}
