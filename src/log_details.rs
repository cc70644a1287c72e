//! The details that a log keeps on request: tool calls with their outputs, and the text of replies that were cut short.
//!
//! Without a request nothing here runs.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::call_id::CallId;
use crate::content::Content;
use crate::event::{Event, EventKind};
use crate::log::{Log, LogEntry};
use crate::name::Name;
use crate::provider::Delta;
use crate::tool_call::{ToolCall, ToolCallId};
use crate::user::Call;

impl<T> Call<T> {
    /// Keeps more in the log: every tool call with its arguments and its output, see [`Log::tool_calls`], and the text
    /// of replies that were cut short, see [`Log::cut_replies`]. Default: not kept.
    ///
    /// Set it before the call is sent. The log then holds every output in memory, and models are asked to stream their
    /// replies, as they are for [`Call::next_event`].
    ///
    /// ```
    /// # use agentouto::{Agent, Reply, Runtime, providers::scripted::Scripted, tool::{self, NoArguments}};
    /// # let model = Scripted::new().replies("clerk", [Reply::tool("now", serde_json::json!({})), Reply::text("done")]);
    /// # let now = tool::function("now", "Tells the time.", |_: NoArguments| async { "noon" });
    /// # let runtime = Runtime::builder().provider("script", model).agent(Agent::new("clerk", "Works.")).tool(now).build()?;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let report = runtime.user("web").forward("clerk", "What time is it?").log_details().await?;
    /// let used = &report.log.tool_calls()[0];
    /// assert_eq!((&*used.agent, &*used.call.name, &*used.call.arguments), ("clerk", "now", "{}"));
    /// assert_eq!(used.result, Some(Ok("noon".into())));
    /// # Ok::<(), agentouto::RunError>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn log_details(self) -> Self {
        if let Some(observers) = self.scope.call_observers() {
            let texts = Texts::default();
            observers.log_details(Box::new(move |event| texts.detail(event)));
        }
        self
    }
}

/// The texts of the replies that are being streamed.
#[derive(Default)]
struct Texts(Mutex<HashMap<CallId, String>>);

impl Texts {
    /// Returns what a log keeps of an event. The text so far of a cut reply is kept as one delta.
    fn detail(&self, event: &Event) -> Option<LogEntry> {
        let kept = match &event.kind {
            EventKind::ToolStart { .. }
            | EventKind::ToolEnd { .. }
            | EventKind::ToolRefused { .. }
            | EventKind::Undelivered { .. }
            | EventKind::Refused { .. } => event.clone(),
            EventKind::ModelDelta { delta: Delta::Text(piece) } => {
                self.0.lock().entry(event.call_id).or_default().push_str(piece);
                return None;
            }
            EventKind::ModelAborted { .. }
            | EventKind::ModelError { .. }
            | EventKind::ModelRetry { .. }
            | EventKind::ModelFallback { .. } => {
                let text = self.0.lock().remove(&event.call_id).filter(|text| !text.is_empty())?;
                Event { kind: EventKind::ModelDelta { delta: Delta::Text(text.into()) }, ..event.clone() }
            }
            EventKind::ModelReply { .. } => {
                self.0.lock().remove(&event.call_id);
                return None;
            }
            _ => return None,
        };
        Some(LogEntry::Detail(Box::new(kept)))
    }
}

/// A tool call in a [`Log`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LoggedToolCall {
    /// The call of the agent that made it.
    pub call_id: CallId,
    /// The agent's name.
    pub agent: Name,
    /// The tool call as the model wrote it.
    pub call: ToolCall,
    /// The output, or the error that the model reads; `None` if the tool did not end, because its call was cancelled.
    pub result: Option<Result<Content, Arc<str>>>,
    /// `true` if the call was not carried out, and the model was told why.
    pub was_refused: bool,
}

/// The text of a reply that was cut short, in a [`Log`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CutReply {
    /// The call of the agent whose model replied.
    pub call_id: CallId,
    /// The agent's name.
    pub agent: Name,
    /// The text that had arrived.
    pub text: Arc<str>,
}

impl Log {
    /// The calls of tools, in the order in which they began; none unless [`Call::log_details`] was set. Calls of agents
    /// and of `finish` are not among them.
    #[must_use]
    pub fn tool_calls(&self) -> Vec<LoggedToolCall> {
        let agents = self.agents();
        let mut begun = Vec::new();
        let mut open: HashMap<(CallId, &ToolCallId), usize> = HashMap::new();
        for event in self.details() {
            let call_id = event.call_id;
            let mut begin = |call: &ToolCall, result, was_refused| {
                let agent = agents.get(&call_id).map_or_else(Name::default, |name| Arc::clone(name));
                begun.push(LoggedToolCall { call_id, agent, call: call.clone(), result, was_refused });
            };
            match &event.kind {
                EventKind::ToolStart { call } => {
                    begin(call, None, false);
                    open.insert((call_id, &call.id), begun.len() - 1);
                }
                EventKind::ToolRefused { call, reason } => begin(call, Some(Err(Arc::clone(reason))), true),
                EventKind::ToolEnd { id, error, output, .. } => {
                    if let Some(place) = open.remove(&(call_id, id)) {
                        begun[place].result = Some(error.clone().map_or_else(|| Ok(output.clone()), Err));
                    }
                }
                _ => {}
            }
        }
        begun
    }

    /// The texts of replies that were cut short, by a cancellation or by an error; none unless [`Call::log_details`]
    /// was set. A reply that was asked for again after an error has one for each attempt. Arguments of tools, and so of
    /// `finish`, are no text.
    #[must_use]
    pub fn cut_replies(&self) -> Vec<CutReply> {
        let agents = self.agents();
        let texts = self.details().filter_map(|event| match &event.kind {
            EventKind::ModelDelta { delta: Delta::Text(text) } => Some((event.call_id, Arc::clone(text))),
            _ => None,
        });
        let agent = |call_id| agents.get(&call_id).map_or_else(Name::default, |name| Arc::clone(name));
        texts.map(|(call_id, text)| CutReply { call_id, agent: agent(call_id), text }).collect()
    }

    /// Returns whether the log keeps details. A log to which nothing happened that is a detail looks as one without.
    pub(crate) fn has_details(&self) -> bool {
        self.details().next().is_some()
    }

    fn details(&self) -> impl Iterator<Item = &Event> {
        self.entries.iter().filter_map(|entry| match entry {
            LogEntry::Detail(event) => Some(&**event),
            _ => None,
        })
    }

    /// The callees of the calls.
    fn agents(&self) -> HashMap<CallId, &Name> {
        let forwards = self.entries.iter().filter_map(|entry| match entry {
            LogEntry::Forward(forward) => Some((forward.call_id, &forward.receiver)),
            _ => None,
        });
        forwards.collect()
    }
}
