//! The text that describes tools to a model.

use std::fmt::Write as _;
use std::sync::Arc;

use super::dialect::Dialect;
use crate::tool_call::{ToolCall, ToolSpec};

/// The part of the system prompt that describes the tools and how to call them. It follows the agent's own prompt.
///
/// ```
/// use agentouto::providers::prompt_tools::{Dialect, Template};
///
/// let template = Template::new("Tools:\n{tool_descriptions}\nCall one like
/// this:\n{call_format}").dialect(Dialect::Hermes);
/// assert!(template.render(&[]).contains(r#"{"name":"tool_name","arguments":{"param":"value"}}"#));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: Arc<str>,
    parameters_label: Arc<str>,
    dialect: Dialect,
}

const TOOL_DESCRIPTIONS: &str = "{tool_descriptions}";
const CALL_FORMAT: &str = "{call_format}";

impl Template {
    /// Creates a template from a text of your own. `{tool_descriptions}` is replaced by the list of tools; without it,
    /// the list follows the text. `{call_format}` is replaced by an example of a call in the template's [`Dialect`].
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), parameters_label: "parameters".into(), dialect: Dialect::default() }
    }

    /// The template in English. The default.
    #[must_use]
    pub fn english() -> Self {
        Self::new(ENGLISH)
    }

    /// The template in Korean, in the words of the design that this library follows.
    #[must_use]
    pub fn korean() -> Self {
        Self { parameters_label: "매개변수".into(), ..Self::new(KOREAN) }
    }

    /// Sets the form in which calls are taught, and in which earlier calls are shown. Default: [`Dialect::Xml`].
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Sets the word before a tool's schema. Default: `parameters`.
    #[must_use]
    pub fn parameters_label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.parameters_label = label.into();
        self
    }

    /// Returns the text for these tools.
    #[must_use]
    pub fn render(&self, tools: &[ToolSpec]) -> String {
        let descriptions = self.descriptions(tools);
        let text = self.text.replace(CALL_FORMAT, &self.call_format());
        match text.contains(TOOL_DESCRIPTIONS) {
            true => text.replace(TOOL_DESCRIPTIONS, &descriptions),
            false => format!("{text}\n\n{descriptions}"),
        }
    }

    pub(super) fn taught(&self) -> Dialect {
        self.dialect
    }

    fn call_format(&self) -> String {
        self.dialect.render(&[ToolCall::new("", "tool_name", r#"{"param": "value"}"#)])
    }

    /// Returns a line for each tool, and one more for its schema if it has one.
    fn descriptions(&self, tools: &[ToolSpec]) -> String {
        let mut lines = String::new();
        for ToolSpec { name, description, parameters } in tools {
            if !lines.is_empty() {
                lines.push('\n');
            }
            // Writing to a String cannot fail.
            let _ = write!(lines, "- {name}: {description}");
            if !parameters.is_null() {
                let _ = write!(lines, "\n  {}: {parameters}", self.parameters_label);
            }
        }
        lines
    }
}

impl Default for Template {
    fn default() -> Self {
        Self::english()
    }
}

const ENGLISH: &str = "\
You can use tools.

Available tools:
{tool_descriptions}

To call a tool, write this, once for each call:
{call_format}

Rules:
1. Call a tool only when you need it.
2. Write its arguments as a JSON object that fits its parameters.
3. Say nothing after your calls: the next message brings their results.
4. Answer in the language of the question.";

const KOREAN: &str = "\
당신은 오케스트레이터 AI입니다. 사용자 질문을 분석하고 필요시 도구를 사용하세요.

사용 가능한 도구:
{tool_descriptions}

도구 호출 형식:
<tool_call>
<name>도구명</name>
<arguments>{\"param\": \"value\"}</arguments>
</tool_call>

규칙:
1. 도구가 필요한 경우에만 호출하세요
2. 정확한 JSON 형식의 인수를 사용하세요
3. 도구 호출 후 결과를 바탕으로 최종 답변을 제공하세요
4. 답변은 항상 질문과 동일한 언어로 하십시오";
