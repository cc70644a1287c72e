//! Builds a [`Reply`] from its pieces, whatever wire format they arrive in. New pieces go to the [`DeltaSink`].
//!
//! Nothing here reads a wire format or repairs what a model wrote.

use serde_json::Value;

use crate::content::Attachment;
use crate::provider::{Delta, DeltaSink};
use crate::provider::{ProviderError, ProviderErrorKind};
use crate::providers::offer::ToolNames;
use crate::reply::{Reply, StopReason, Usage};
use crate::tool_call::ToolCall;

/// What of a reply has arrived.
#[derive(Debug)]
pub struct ReplyBuilder<'a, 'g> {
    deltas: &'a mut DeltaSink<'g>,
    renamed: ToolNames,
    text: String,
    refusal: String,
    reasoning: String,
    attachments: Vec<Attachment>,
    calls: Vec<PartialCall>,
    stop_reason: Option<StopReason>,
    usage: Option<Usage>,
    has_begun: bool,
    is_complete: bool,
}

/// What of a tool call has arrived.
#[derive(Debug, Default)]
pub(crate) struct PartialCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

impl<'a, 'g> ReplyBuilder<'a, 'g> {
    /// Nothing yet.
    pub(crate) fn new(deltas: &'a mut DeltaSink<'g>, renamed: ToolNames) -> Self {
        Self {
            deltas,
            renamed,
            text: String::new(),
            refusal: String::new(),
            reasoning: String::new(),
            attachments: Vec::new(),
            calls: Vec::new(),
            stop_reason: None,
            usage: None,
            has_begun: false,
            is_complete: false,
        }
    }

    /// There is a reply, if perhaps an empty one.
    pub(crate) fn begin(&mut self) {
        self.has_begun = true;
    }

    /// More of the text.
    pub(crate) fn push_text(&mut self, piece: &str) {
        if !piece.is_empty() {
            self.text.push_str(piece);
            self.emit(|_| Delta::Text(piece.into()));
        }
    }

    /// More of the words in which the model declines.
    pub(crate) fn push_refusal(&mut self, piece: &str) {
        if !piece.is_empty() {
            self.refusal.push_str(piece);
            self.emit(|_| Delta::Text(piece.into()));
        }
    }

    /// More of the reasoning.
    pub(crate) fn push_reasoning(&mut self, piece: &str) {
        if !piece.is_empty() {
            self.reasoning.push_str(piece);
            self.emit(|_| Delta::Reasoning(piece.into()));
        }
    }

    /// Something that the model made.
    pub(crate) fn add_attachment(&mut self, attachment: Attachment) {
        self.attachments.push(attachment);
    }

    /// One more tool call; its place among them is given back.
    pub(crate) fn add_call(&mut self, call: PartialCall) -> usize {
        self.calls.push(call);
        let index = self.calls.len() - 1;
        self.emit(|builder| builder.delta(index, &builder.calls[index].arguments));
        index
    }

    /// The tool calls so far.
    pub(crate) fn calls(&mut self) -> &mut [PartialCall] {
        &mut self.calls
    }

    /// More of the arguments of the call at `index`.
    pub(crate) fn push_arguments(&mut self, index: usize, piece: &str) {
        if let Some(call) = self.calls.get_mut(index) {
            call.arguments.push_str(piece);
            if !piece.is_empty() {
                self.emit(|builder| builder.delta(index, piece));
            }
        }
    }

    /// Why the model stopped.
    pub(crate) fn set_stop_reason(&mut self, reason: StopReason) {
        self.stop_reason = Some(reason);
    }

    /// What the reply costs, as far as the server has told; it takes the place of what was told before.
    pub(crate) fn set_usage(&mut self, usage: Usage) {
        self.usage = Some(usage);
        self.deltas.usage_so_far(usage);
    }

    /// Nothing that matters is missing any more: a stream may end here.
    pub(crate) fn set_complete(&mut self) {
        self.is_complete = true;
    }

    /// Whether nothing that matters is missing.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether a program would read something in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.refusal.is_empty() && self.calls.is_empty() && self.attachments.is_empty()
    }

    /// The reply, if there is anything in it.
    pub(crate) fn into_reply(self, opaque: Option<Value>) -> Result<Reply, ProviderError> {
        // A turn may pause before it says a word.
        if !self.is_empty() || self.stop_reason.as_ref().is_some_and(StopReason::is_pause) {
            return Ok(self.finish(opaque));
        }
        let (kind, reason) = match &self.stop_reason {
            Some(StopReason::ContentFilter) => {
                (ProviderErrorKind::ContentFilter, "the model or a filter declined without a word".to_owned())
            }
            Some(reason) => (
                ProviderErrorKind::EmptyResponse,
                format!("Empty response: neither text nor tool calls; the model stopped for `{reason}`"),
            ),
            None if self.has_begun => {
                (ProviderErrorKind::EmptyResponse, "Empty response: neither text nor tool calls".to_owned())
            }
            None => (ProviderErrorKind::EmptyResponse, "Empty response: no choices".to_owned()),
        };
        Err(ProviderError { partial: self.into_partial(), ..ProviderError::new(kind, reason) })
    }

    /// What has arrived of a reply that will not be whole.
    pub(crate) fn into_partial(self) -> Option<Box<Reply>> {
        let is_anything = self.has_begun || self.usage.is_some() || !self.is_empty() || !self.reasoning.is_empty();
        is_anything.then(|| Box::new(self.finish(None)))
    }

    fn finish(self, opaque: Option<Value>) -> Reply {
        let calls = self.calls.into_iter();
        let tool_calls: Vec<_> =
            calls.map(|call| ToolCall::new(call.id, self.renamed.original(&call.name), call.arguments)).collect();
        let given = |text: String| (!text.is_empty()).then(|| text.into());
        let stop_reason = match self.stop_reason {
            // Vendors say `stop` of a reply with tool calls as well.
            None | Some(StopReason::Stop) if !tool_calls.is_empty() => StopReason::ToolCalls,
            reason => reason.unwrap_or_default(),
        };
        Reply {
            text: given(self.text),
            refusal: given(self.refusal),
            reasoning: given(self.reasoning),
            attachments: self.attachments,
            tool_calls,
            stop_reason,
            usage: self.usage,
            opaque: opaque.map(Into::into),
        }
    }

    fn delta(&self, index: usize, piece: &str) -> Delta {
        let name = self.renamed.original(&self.calls[index].name);
        Delta::ToolCall { index, name: name.into(), arguments: piece.into() }
    }

    fn emit(&mut self, delta: impl FnOnce(&Self) -> Delta) {
        if self.deltas.is_observed() {
            let delta = delta(self);
            self.deltas.delta(delta);
        }
    }
}
