//! A provider whose replies come from a script: for tests of your own agents, demos and benchmarks.
//!
//! It needs no network and draws no random numbers.

mod plausible;
mod requests;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;

use crate::name::{CALL_AGENT, FINISH, Name};
use crate::provider::{Delta, DeltaSink, Provider, ProviderError, ProviderErrorKind, Request};
use crate::reply::{Reply, StopReason, Usage};
use crate::tool_call::{CallAgent, Finish, ToolCall};

pub use requests::Requests;
use requests::{Input, Progress, Record};

/// A model that follows a script.
///
/// The reply for an agent is looked up by the agent's name: first in the scripts for the call's input, then in the
/// agent's list of replies, then in the closure for all agents. An agent without a script, or whose script has ended,
/// gets an error that says so.
///
/// [`Scripted::requests`] shows a test what the model was asked, and whether the script was used up.
/// [`Scripted::plausible`] needs no script.
///
/// ```
/// use agentouto::providers::scripted::Scripted;
/// use agentouto::{Agent, Reply, Runtime};
///
/// # tokio_test(async {
/// let model = Scripted::new()
///     .replies("researcher", [Reply::call_agent("writer", "write it"), Reply::finish("done")])
///     .replies("writer", [Reply::text("a draft")]);
/// let runtime = Runtime::builder()
///     .provider("script", model)
///     .agent(Agent::new("researcher", "Search."))
///     .agent(Agent::new("writer", "Write."))
///     .build()?;
/// assert_eq!(&*runtime.run("researcher", "a report, please").await?.output, "done");
/// # Ok(())
/// # });
/// # fn tokio_test(test: impl Future<Output = Result<(), Box<dyn std::error::Error>>>) {
/// #     tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test).unwrap();
/// # }
/// ```
#[derive(Default)]
pub struct Scripted {
    scripts: HashMap<Name, Script>,
    for_everybody: Option<Compute>,
    function_calling: Option<bool>,
    record: Arc<Record>,
}

type Compute = Box<dyn Fn(&Request) -> ScriptedReply + Send + Sync>;

/// The replies of one agent.
struct Script {
    by_input: HashMap<Arc<str>, Replies>,
    any_input: Option<Replies>,
    in_order: Replies,
}

struct Replies {
    list: Vec<ScriptedReply>,
    progress: Arc<Progress>,
}

impl Scripted {
    /// A model without any scripts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A model that computes every reply from the request. The closure may run on many threads at once.
    pub fn computed<R: Into<ScriptedReply>>(compute: impl Fn(&Request) -> R + Send + Sync + 'static) -> Self {
        Self::new().otherwise(compute)
    }

    /// Adds replies of `agent`, in the order of its requests over all its calls. May be called several times.
    #[must_use]
    pub fn replies(
        mut self,
        agent: impl Into<Name>,
        replies: impl IntoIterator<Item = impl Into<ScriptedReply>>,
    ) -> Self {
        let (script, _) = self.script(agent.into());
        script.in_order.extend(replies.into_iter().map(Into::into));
        self
    }

    /// Adds the replies of `agent`, turn by turn, for each call whose input is `input`.
    #[must_use]
    pub fn replies_to(
        mut self,
        agent: impl Into<Name>,
        input: impl Into<Arc<str>>,
        replies: impl IntoIterator<Item = impl Into<ScriptedReply>>,
    ) -> Self {
        let (agent, input) = (agent.into(), input.into());
        let (script, record) = self.script(Arc::clone(&agent));
        let new = || Replies::new(record.list(&agent, Input::This(Arc::clone(&input))));
        let written = script.by_input.entry(Arc::clone(&input)).or_insert_with(new);
        written.list.clear();
        written.extend(replies.into_iter().map(Into::into));
        self
    }

    /// Adds the replies of `agent`, turn by turn, for each call whose input has no script of its own.
    #[must_use]
    pub fn replies_to_any(
        mut self,
        agent: impl Into<Name>,
        replies: impl IntoIterator<Item = impl Into<ScriptedReply>>,
    ) -> Self {
        let agent = agent.into();
        let (script, record) = self.script(Arc::clone(&agent));
        let written = script.any_input.get_or_insert_with(|| Replies::new(record.list(&agent, Input::Any)));
        written.list.clear();
        written.extend(replies.into_iter().map(Into::into));
        self
    }

    /// Sets the closure that computes the replies of agents without a script.
    #[must_use]
    pub fn otherwise<R: Into<ScriptedReply>>(
        mut self,
        compute: impl Fn(&Request) -> R + Send + Sync + 'static,
    ) -> Self {
        self.for_everybody = Some(Box::new(move |request| compute(request).into()));
        self
    }

    /// Sets whether the models report support for function calling. Default: unknown.
    ///
    /// The replies follow the script in any case.
    #[must_use]
    pub fn function_calling(mut self, can: bool) -> Self {
        self.function_calling = Some(can);
        self
    }

    /// Returns a handle to the requests that the script is sent from now on. Take it before the script is moved into a
    /// runtime. Without a handle, no request is kept.
    ///
    /// ```
    /// use agentouto::providers::scripted::Scripted;
    /// use agentouto::{Agent, Reply, Runtime};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let model = Scripted::new().replies("writer", [Reply::text("a draft")]);
    /// let requests = model.requests();
    /// let runtime = Runtime::builder().provider("script", model).agent(Agent::new("writer", "Write.")).build()?;
    /// runtime.run("writer", "a poem, please").await?;
    /// let [request] = &requests.of("writer")[..] else { panic!("one request is expected") };
    /// assert_eq!(request.context.input(), "a poem, please");
    /// assert_eq!(request.tools.len(), 2);
    /// requests.assert_used_up();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.record.is_kept.store(true, Ordering::Relaxed);
        Requests(Arc::clone(&self.record))
    }

    fn script(&mut self, agent: Name) -> (&mut Script, &Record) {
        let record = &*self.record;
        let new = || Script {
            by_input: HashMap::new(),
            any_input: None,
            in_order: Replies::new(record.list(&agent, Input::All)),
        };
        (self.scripts.entry(Arc::clone(&agent)).or_insert_with(new), record)
    }

    fn next(&self, request: &Request) -> ScriptedReply {
        self.record.keep(request);
        match (self.scripts.get(&request.agent.name), &self.for_everybody) {
            (Some(script), _) => script.next(request),
            (None, Some(compute)) => compute(request),
            (None, None) => missing(format!("agent `{}` has no script", request.agent.name)),
        }
    }
}

impl Script {
    fn next(&self, request: &Request) -> ScriptedReply {
        let input = request.context.input();
        let (replies, place) = match self.by_input.get(input).or(self.any_input.as_ref()) {
            Some(replies) => {
                let place = request.context.turns();
                replies.progress.reached(place);
                (replies, place)
            }
            None => (&self.in_order, self.in_order.progress.given.fetch_add(1, Ordering::Relaxed)),
        };
        let name = &request.agent.name;
        replies.list.get(place).cloned().unwrap_or_else(|| match replies.list.len() {
            0 => missing(format!("agent `{name}` has no script for the input `{input}`")),
            written => missing(format!("the script of agent `{name}` has ended; it has {written} replies")),
        })
    }
}

impl Replies {
    fn new(progress: Arc<Progress>) -> Self {
        Self { list: Vec::new(), progress }
    }

    fn extend(&mut self, replies: impl Iterator<Item = ScriptedReply>) {
        self.list.extend(replies);
        self.progress.written.store(self.list.len(), Ordering::Relaxed);
    }
}

fn missing(message: String) -> ScriptedReply {
    ScriptedReply::error(ProviderError::new(ProviderErrorKind::Other, message))
}

impl Provider for Scripted {
    fn reply<'a>(
        &'a self,
        request: &'a Request,
        deltas: &'a mut DeltaSink<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        let scripted = self.next(request);
        match scripted.is_instant() {
            true => Box::pin(std::future::ready(scripted.perform())),
            false => Box::pin(async move {
                let pause = scripted.delay / u32::try_from(scripted.pieces.len() + 1).unwrap_or(u32::MAX);
                tokio::time::sleep(pause).await;
                for piece in &scripted.pieces {
                    deltas.delta(Delta::Text(Arc::clone(piece)));
                    tokio::time::sleep(pause).await;
                }
                scripted.perform()
            }),
        }
    }

    fn function_calling(&self, _: &str) -> Option<bool> {
        self.function_calling
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("agents", &self.scripts.keys().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

impl Reply {
    /// A reply of text alone, which ends the call.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// A reply that calls `finish`.
    pub fn finish(message: &str) -> Self {
        Self::default().and_call(FINISH, &Finish { message: message.into() })
    }

    /// A reply that calls an agent.
    pub fn call_agent(agent: &str, message: &str) -> Self {
        Self::default().and_call_agent(agent, message)
    }

    /// A reply that calls a tool.
    pub fn tool(name: &str, arguments: Value) -> Self {
        Self::default().and_tool(name, arguments)
    }

    /// The same reply, with one more call of an agent.
    #[must_use]
    pub fn and_call_agent(self, agent: &str, message: &str) -> Self {
        self.and_call(CALL_AGENT, &CallAgent { agent_name: agent.into(), message: message.into() })
    }

    /// The same reply, with one more call of a tool.
    #[must_use]
    pub fn and_tool(self, name: &str, arguments: Value) -> Self {
        self.and_call(name, &arguments)
    }

    fn and_call(mut self, name: &str, arguments: &impl Serialize) -> Self {
        let id = format!("call_{}", self.tool_calls.len());
        // Serialising a value or a struct of texts cannot fail.
        let arguments = serde_json::to_string(arguments).unwrap_or_default();
        self.tool_calls.push(ToolCall::new(id, name, arguments));
        self.stop_reason = StopReason::ToolCalls;
        self
    }

    /// The same reply, with this usage.
    #[must_use]
    pub fn usage(mut self, input_tokens: u64, output_tokens: u64) -> Self {
        self.usage = Some(Usage { input_tokens, output_tokens, ..Usage::default() });
        self
    }
}

/// One reply in a script. It is made from a [`Reply`] or a [`ProviderError`] by `into()`.
#[derive(Clone, Debug)]
pub struct ScriptedReply {
    outcome: ScriptedOutcome,
    delay: Duration,
    pieces: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
enum ScriptedOutcome {
    Reply(Reply),
    Error(ProviderError),
    Panic(String),
}

impl ScriptedReply {
    /// A reply that fails with this error.
    #[must_use]
    pub fn error(error: ProviderError) -> Self {
        Self::new(ScriptedOutcome::Error(error))
    }

    /// A reply that panics.
    pub fn panic(message: impl Into<String>) -> Self {
        Self::new(ScriptedOutcome::Panic(message.into()))
    }

    /// Delays the reply by this time on tokio's clock.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Streams the reply in these pieces, spread evenly over its delay.
    #[must_use]
    pub fn in_pieces<P: Into<Arc<str>>>(mut self, pieces: impl IntoIterator<Item = P>) -> Self {
        self.pieces = pieces.into_iter().map(Into::into).collect();
        self
    }

    fn new(outcome: ScriptedOutcome) -> Self {
        Self { outcome, delay: Duration::ZERO, pieces: Vec::new() }
    }

    fn is_instant(&self) -> bool {
        self.delay.is_zero() && self.pieces.is_empty()
    }

    #[expect(clippy::panic, reason = "a script may ask for it")]
    fn perform(self) -> Result<Reply, ProviderError> {
        match self.outcome {
            ScriptedOutcome::Reply(reply) => Ok(reply),
            ScriptedOutcome::Error(error) => Err(error),
            ScriptedOutcome::Panic(message) => panic!("{message}"),
        }
    }
}

impl From<Reply> for ScriptedReply {
    fn from(reply: Reply) -> Self {
        Self::new(ScriptedOutcome::Reply(reply))
    }
}

impl From<ProviderError> for ScriptedReply {
    fn from(error: ProviderError) -> Self {
        Self::error(error)
    }
}
