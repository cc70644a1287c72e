//! Tools for models that cannot call functions: [`PromptTools`], a provider around any provider that returns text.
//!
//! It describes the tools in the system prompt ([`Template`]), reads the calls out of the model's text ([`Parser`]),
//! and sends the results as messages of the user. The agent loop sees no difference from other models.
//!
//! # What the model sees
//!
//! The template follows the agent's system prompt. It has a line and a JSON Schema for each tool. The template and the
//! schemas are written once for each set of tools. A result comes as
//!
//! ```text
//! <tool_result name='search'>
//! 3 results
//! </tool_result>
//! ```
//!
//! in a message of the user, because the model did not write it. Results of calls that were made together come in one
//! message, in order. In a result's text, the `<` of `<tool_result` and `</tool_result` is written as `&lt;`, so that
//! no result can close its frame.
//!
//! # What is read
//!
//! All [`Dialect`]s are read, not only the taught one, and the variations that models make: close tags that are
//! missing, elements in another order, attributes, upper case, a fence or CDATA around JSON, line breaks and tabs in
//! its strings, XML entities or backslashes before the brackets, `name: f`, `f(a=1)`. The forms that models were
//! trained on are read as well, from servers that leave them in the text: those of Llama 3 and 4, Qwen 2.5, 3 and
//! Coder, DeepSeek, Gemma, GPT-OSS, Kimi, Mistral, Command, Granite, Phi, GLM, MiniMax, Hunyuan, Nemotron, OLMo, LFM2,
//! InternLM, of Claude's and Cline's XML, and of ReAct. A value without quotes gets the type that the tool's schema
//! gives.
//!
//! Nothing is invented. A call is not carried out if it names an unknown tool, if its arguments are not JSON, or if
//! they do not fit the tool's schema. It goes through the agent loop as a [malformed](crate::ToolCall::malformed) call,
//! and the model reads what was wrong, with the known tools or an example of the right form. The same happens to an
//! answer that has the tag of a call, but no call that can be read. After [`repairs`](PromptTools::repairs) such turns
//! in a row, the text is the answer, without tags.
//!
//! A call that was not meant is not carried out: a call in inline code, in a fence with anything else in it or text
//! behind it, in a quotation, a comment, a table, an indented block, an element such as `<example>` or `<tool_result>`,
//! or in reasoning; also a call that the sentence before it describes as an example, refuses, or attributes to another
//! author. If only that sentence speaks against a call, and the answer ends with the call, the model is told why it was
//! not carried out. This check reads English and some Korean. It is a heuristic, and no protection against a text that
//! was written to deceive.
//!
//! Reasoning in tags of its own, `<think>` and similar tags in any brackets, becomes [`Reply::reasoning`] and is not
//! part of the answer. Observers see it as [`Delta::Reasoning`]. Exception: text before a `</think>` without an opening
//! tag was already shown as text.
//!
//! The source of each form is linked at [`Dialect`].

mod call;
mod dialect;
mod literal;
mod looks;
mod mark;
mod meant;
mod offered_tools;
mod parser;
mod refusal;
mod scan;
mod template;
#[cfg(test)]
mod tests;
mod transcript;
mod value;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;

pub use dialect::Dialect;
pub use parser::Parser;
pub use template::Template;

use crate::context::{ChatMessage, Context};
use crate::provider::{Delta, DeltaSink, Observer, Provider, ProviderError, Request};
use crate::providers::wrapper::ProviderWrapper;
use crate::reply::{Reply, StopReason, Usage};
use crate::tool_call::{ToolCall, ToolSpec};
use offered_tools::OfferedTools;
use refusal::refuses_tools;
use transcript::Transcript;

/// A provider that gives tools to models that cannot call functions.
///
/// A model that can call functions is asked natively. The first of these that knows decides:
/// [`function_calling`](PromptTools::function_calling) here, [`Provider::function_calling`] of the provider inside, and
/// for all other models the rule [`when_unknown`](PromptTools::when_unknown). If a server answers with status 400, 404
/// or 501, in words that say that tools are not supported, its model is asked in text from then on. Any other error is
/// returned. A request without tools is passed on unchanged.
///
/// ```no_run
/// use agentouto::providers::prompt_tools::PromptTools;
/// # #[cfg(feature = "http")]
/// use agentouto::providers::openai::OpenAi;
///
/// # #[cfg(feature = "http")]
/// let gemma = PromptTools::around(OpenAi::keyless("http://127.0.0.1:11434/v1"));
/// ```
///
/// Cancellation and errors are those of the provider inside.
pub struct PromptTools<P> {
    inner: P,
    template: Template,
    repairs: usize,
    configured: Vec<(Arc<str>, bool)>,
    when_unknown: Box<dyn Fn(&str) -> bool + Send + Sync>,
    /// The models whose server refused tools.
    refused: Mutex<HashSet<Arc<str>>>,
    /// The latest sets of tools, each with its part of the prompt. At most [`KEPT`].
    prepared: Mutex<Vec<Arc<Prepared>>>,
}

struct Prepared {
    tools: Arc<OfferedTools>,
    prompt: String,
}

/// The maximum number of sets of tools that are kept.
const KEPT: usize = 8;

impl<P: Provider> PromptTools<P> {
    /// Creates a provider that asks `inner`, in text unless it is known that the model can call functions.
    pub fn around(inner: P) -> Self {
        Self {
            inner,
            template: Template::default(),
            repairs: 2,
            configured: Vec::new(),
            when_unknown: Box::new(|_| false),
            refused: Mutex::default(),
            prepared: Mutex::default(),
        }
    }

    /// Sets the text that describes the tools to the model. Default: [`Template::english`].
    #[must_use]
    pub fn template(mut self, template: Template) -> Self {
        self.template = template;
        self
    }

    /// Sets how many times in a row the model is told what is wrong with its calls, when none of them can be carried
    /// out. After that its text is the answer. Default: 2.
    #[must_use]
    pub fn repairs(mut self, repairs: usize) -> Self {
        self.repairs = repairs;
        self
    }

    /// Sets whether a model can call functions. Overrides the provider inside.
    #[must_use]
    pub fn function_calling(mut self, model: impl Into<Arc<str>>, can: bool) -> Self {
        self.configured.push((model.into(), can));
        self
    }

    /// Sets the rule for a model about which nothing is known: `true` if it is tried with function calling first. The
    /// rule receives the model's name. Default: `false` for all models.
    #[must_use]
    pub fn when_unknown(mut self, rule: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.when_unknown = Box::new(rule);
        self
    }

    /// Returns whether the model is asked with function calling.
    fn is_native(&self, model: &str) -> bool {
        if self.refused.lock().contains(model) {
            return false;
        }
        let configured = self.configured.iter().rev().find(|(name, _)| **name == *model).map(|(_, can)| *can);
        configured.or_else(|| self.inner.function_calling(model)).unwrap_or_else(|| (self.when_unknown)(model))
    }

    async fn ask(&self, request: &Request, deltas: &mut DeltaSink<'_>) -> Result<Reply, ProviderError> {
        if request.tools.is_empty() || self.is_native(&request.agent.model) {
            match self.inner.reply(request, deltas).await {
                Err(error) if !request.tools.is_empty() && refuses_tools(&error) => {
                    let model = &request.agent.model;
                    tracing::info!(
                        model = &**model, kind = ?error.kind, status = error.status,
                        "the server refuses tools; they are told in text from now on"
                    );
                    self.refused.lock().insert(Arc::clone(model));
                }
                result => return result,
            }
        }
        self.ask_in_text(request, deltas).await
    }

    async fn ask_in_text(&self, request: &Request, deltas: &mut DeltaSink<'_>) -> Result<Reply, ProviderError> {
        let prepared = self.prepared(&request.tools);
        let memo = &request.context.memo;
        let begin = || Transcript::of(request, &prepared.prompt, self.template.taught());
        let mut transcript = memo.take().unwrap_or_else(begin);
        let asked = transcript.up_to_date(&request.context);
        let reply = match deltas.is_observed() {
            true => {
                let sink = deltas.inner();
                let mut showing =
                    DeltaParser { deltas, parser: Parser::over(Arc::clone(&prepared.tools)), is_begun: false };
                let reply = self.inner.reply(asked, &mut sink.observed_by(&mut showing)).await;
                showing.end();
                reply
            }
            false => self.inner.reply(asked, deltas).await,
        };
        memo.put(transcript);
        Ok(self.read(reply?, request, &prepared.tools))
    }

    /// Returns the reply with the calls and the reasoning read out of its text.
    fn read(&self, reply: Reply, request: &Request, tools: &Arc<OfferedTools>) -> Reply {
        let Some(written) = &reply.text else { return reply };
        let Parsed { text, reasoning, calls } = Parser::over(Arc::clone(tools)).read(written);
        let reasoning = [reply.reasoning.as_deref().unwrap_or_default(), reasoning.trim()];
        let reasoning: Vec<&str> = reasoning.into_iter().filter(|text| !text.is_empty()).collect();
        let reasoning = (!reasoning.is_empty()).then(|| reasoning.join("\n\n").into());
        let written = Arc::clone(written);
        let reply = Reply { reasoning, ..reply };
        if calls.is_empty() {
            return Reply { text: Some(text.into()), ..reply };
        }
        let is_futile = calls.iter().all(is_malformed);
        if is_futile && malformed_turns(&request.context) >= self.repairs {
            let is_unread = calls.iter().any(|call| call.name.is_empty() && call.arguments.is_empty());
            let cleaned = match text.trim() {
                "" => dialect::without_tags(&written),
                text if is_unread => dialect::without_tags(text),
                text => text.to_owned(),
            };
            return Reply { text: Some(cleaned.into()), ..reply };
        }
        let stop_reason = match reply.stop_reason {
            StopReason::Stop => StopReason::ToolCalls,
            other => other,
        };
        let text = Some(text).filter(|text| !text.is_empty()).map(Into::into);
        Reply { text, tool_calls: calls, stop_reason, ..reply }
    }

    fn prepared(&self, specs: &Arc<[ToolSpec]>) -> Arc<Prepared> {
        let mut all = self.prepared.lock();
        let is_same = |kept: &Arc<Prepared>| Arc::ptr_eq(kept.tools.specs(), specs) || kept.tools.specs() == specs;
        if let Some(found) = all.iter().find(|kept| is_same(kept)) {
            return Arc::clone(found);
        }
        let tools = Arc::new(OfferedTools::new(Arc::clone(specs), self.template.taught()));
        let made = Arc::new(Prepared { tools, prompt: self.template.render(specs) });
        if all.len() == KEPT {
            all.remove(0);
        }
        all.push(Arc::clone(&made));
        made
    }
}

impl<P: Provider> ProviderWrapper for PromptTools<P> {
    fn inner(&self) -> &dyn Provider {
        &self.inner
    }

    fn ask<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(self.ask(request, deltas))
    }

    fn function_calling(&self, _: &str) -> Option<bool> {
        Some(true)
    }
}

impl<P: fmt::Debug> fmt::Debug for PromptTools<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptTools")
            .field("inner", &self.inner)
            .field("repairs", &self.repairs)
            .finish_non_exhaustive()
    }
}

/// Reads a complete text. Returns the text outside of calls, the reasoning and the calls.
///
/// ```
/// use agentouto::providers::prompt_tools::parse;
/// use agentouto::tool::{self, NoArguments};
/// use agentouto::Tool;
///
/// let time = tool::function("time", "Tells the time.", |_: NoArguments| async { "noon" }).spec();
/// let answer = parse("Let me see. <tool_call><name>time</name></tool_call>", &[time]);
/// assert_eq!((&*answer.text, &*answer.calls[0].name, &*answer.calls[0].arguments), ("Let me see.", "time", "{}"));
/// ```
#[must_use]
pub fn parse(text: &str, tools: &[ToolSpec]) -> Parsed {
    Parser::new(tools).read(text)
}

/// The content of a model's text, as [`parse`] read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// The text without calls and reasoning. If there are calls, it does not end in space.
    pub text: String,
    /// The reasoning in tags of its own, without the tags; see [`Parser::take_reasoning`].
    pub reasoning: String,
    /// The calls, in order; see [`Parser::end`].
    pub calls: Vec<ToolCall>,
}

/// Passes on the deltas of a growing reply, with calls and reasoning read out of its text.
struct DeltaParser<'a, 'g> {
    deltas: &'a mut DeltaSink<'g>,
    parser: Parser,
    is_begun: bool,
}

impl DeltaParser<'_, '_> {
    /// Passes on the text that was held back, and the calls.
    fn end(self) {
        if self.is_begun {
            let mut shown = String::new();
            let (calls, reasoning) = self.parser.end_with_reasoning(&mut shown);
            think(self.deltas, reasoning);
            show(self.deltas, shown);
            for (index, ToolCall { name, arguments, .. }) in calls.into_iter().enumerate() {
                self.deltas.delta(Delta::ToolCall { index, name, arguments });
            }
        }
    }
}

impl Observer for DeltaParser<'_, '_> {
    fn delta(&mut self, delta: Delta) {
        match delta {
            Delta::Text(piece) => {
                self.is_begun = true;
                let mut shown = String::new();
                self.parser.push(&piece, &mut shown);
                think(self.deltas, self.parser.take_reasoning());
                show(self.deltas, shown);
            }
            other => self.deltas.delta(other),
        }
    }

    fn usage_so_far(&mut self, usage: Usage) {
        self.deltas.usage_so_far(usage);
    }
}

fn show(deltas: &mut DeltaSink<'_>, text: String) {
    if !text.is_empty() {
        deltas.delta(Delta::Text(text.into()));
    }
}

fn think(deltas: &mut DeltaSink<'_>, reasoning: String) {
    if !reasoning.is_empty() {
        deltas.delta(Delta::Reasoning(reasoning.into()));
    }
}

fn is_malformed(call: &ToolCall) -> bool {
    call.malformed.is_some()
}

/// Returns the number of latest turns, in a row, without a call that could be carried out.
fn malformed_turns(context: &Context) -> usize {
    let turns = context.messages().rev().filter_map(|message| match message {
        ChatMessage::Assistant { tool_calls, .. } => {
            Some(!tool_calls.is_empty() && tool_calls.iter().all(is_malformed))
        }
        _ => None,
    });
    turns.take_while(|is_futile| *is_futile).count()
}
