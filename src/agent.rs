//! The description of an agent: its name, its instructions and its model. A value; it does nothing by itself.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::answer_type::AnswerType;
use crate::name::Name;

/// The description of an agent. All agents have the same interface, and any agent can call any agent.
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
    /// The name by which it is called.
    pub name: Name,
    /// The agent's instructions: the second sentence of its system prompt.
    pub instructions: Arc<str>,
    /// The description of this agent that other agents read. Default: its `instructions`.
    pub role: Option<Arc<str>>,
    /// The model's name, as its provider spells it. Default: empty, for providers that serve one model.
    pub model: Arc<str>,
    /// The name under which its provider is registered. Default: the only provider there is.
    pub provider: Option<Name>,
    /// The sampling temperature. Default: the provider's. Not sent while the agent reasons.
    pub temperature: Option<f64>,
    /// The maximum number of tokens in one reply, reasoning included. Default: the provider's.
    pub max_output_tokens: Option<u32>,
    /// The settings for reasoning before a reply. Default: the provider's.
    pub reasoning: Option<Reasoning>,
    /// Parameters merged into the body of every request. An object is merged with the provider's own, a list is
    /// appended to the provider's own, `null` removes the field, and any other value replaces it. Do not change the
    /// messages.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
    /// The type of all its answers, see [`Agent::answers`]. Default: text. Serialised as a JSON Schema, and not read
    /// back.
    #[serde(default, skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub answer_type: Option<AnswerType>,
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
            answer_type: None,
        }
    }

    /// The description of this agent that other agents read.
    #[must_use]
    pub fn role(mut self, role: impl Into<Arc<str>>) -> Self {
        self.role = Some(role.into());
        self
    }

    /// The model's name, as its provider spells it.
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

    /// The maximum number of tokens in one reply.
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

    /// The description that other agents read: the role, or else the instructions.
    pub(crate) fn description(&self) -> &Arc<str> {
        self.role.as_ref().unwrap_or(&self.instructions)
    }
}

/// The settings for the reasoning of a model before it replies.
///
/// A provider that supports only one of effort and budget uses that one and ignores the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasoning {
    /// The effort. Default: medium.
    pub effort: Effort,
    /// The maximum number of tokens for reasoning. Default: the provider's.
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

/// The effort that a model puts into its reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// No reasoning, where the model has a setting for that.
    None,
    /// Little reasoning.
    Low,
    /// Medium reasoning, as most models do when asked to reason.
    #[default]
    Medium,
    /// Much reasoning.
    High,
}
