//! Builds a [`Reply`] from its pieces, for all wire formats. New pieces go to the [`DeltaSink`].
//!
//! Nothing here reads a wire format or repairs the model's output.

use std::sync::Arc;

use serde_json::Value;

use crate::content::Attachment;
use crate::provider::{Delta, DeltaSink, ProviderError, ProviderErrorKind};
use crate::providers::offer::ToolNames;
use crate::reply::{Reply, StopReason, Usage};
use crate::tool_call::ToolCall;

/// The part of a reply that has arrived.
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
    id: Option<Arc<str>>,
    model: Option<Arc<str>>,
    has_begun: bool,
    is_complete: bool,
}

/// The part of a tool call that has arrived.
#[derive(Debug, Default)]
pub(crate) struct PartialCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

impl<'a, 'g> ReplyBuilder<'a, 'g> {
    /// An empty builder.
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
            id: None,
            model: None,
            has_begun: false,
            is_complete: false,
        }
    }

    /// Records that there is a reply, even if it stays empty.
    pub(crate) fn begin(&mut self) {
        self.has_begun = true;
    }

    /// Appends to the text.
    pub(crate) fn push_text(&mut self, piece: &str) {
        if !piece.is_empty() {
            self.text.push_str(piece);
            self.emit(|_| Delta::Text(piece.into()));
        }
    }

    /// Appends to the text of a refusal.
    pub(crate) fn push_refusal(&mut self, piece: &str) {
        if !piece.is_empty() {
            self.refusal.push_str(piece);
            self.emit(|_| Delta::Text(piece.into()));
        }
    }

    /// Appends to the reasoning.
    pub(crate) fn push_reasoning(&mut self, piece: &str) {
        if !piece.is_empty() {
            self.reasoning.push_str(piece);
            self.emit(|_| Delta::Reasoning(piece.into()));
        }
    }

    /// Adds an attachment that the model made.
    pub(crate) fn add_attachment(&mut self, attachment: Attachment) {
        self.attachments.push(attachment);
    }

    /// Adds a tool call, and returns its index.
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

    /// Appends to the arguments of the call at `index`.
    pub(crate) fn push_arguments(&mut self, index: usize, piece: &str) {
        if let Some(call) = self.calls.get_mut(index) {
            call.arguments.push_str(piece);
            if !piece.is_empty() {
                self.emit(|builder| builder.delta(index, piece));
            }
        }
    }

    /// Sets the reason why the model stopped.
    pub(crate) fn set_stop_reason(&mut self, reason: StopReason) {
        self.stop_reason = Some(reason);
    }

    /// Sets the usage that the server has reported so far; replaces an earlier one.
    pub(crate) fn set_usage(&mut self, usage: Usage) {
        self.usage = Some(usage);
        self.deltas.usage_so_far(usage);
    }

    /// Sets the server's id of the reply and the name of its model, unless they are known. Each chunk may repeat them.
    pub(crate) fn identify(&mut self, id: Option<&str>, model: Option<&str>) {
        for (known, told) in [(&mut self.id, id), (&mut self.model, model)] {
            if known.is_none() {
                *known = told.filter(|told| !told.is_empty()).map(Into::into);
            }
        }
    }

    /// Records that nothing important is missing any more: a stream may end here.
    pub(crate) fn set_complete(&mut self) {
        self.is_complete = true;
    }

    /// Returns whether nothing important is missing.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns whether the reply has no content.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.refusal.is_empty() && self.calls.is_empty() && self.attachments.is_empty()
    }

    /// The reply.
    ///
    /// # Errors
    ///
    /// When it has no content and is not a pause.
    pub(crate) fn into_reply(self, opaque: Option<Value>) -> Result<Reply, ProviderError> {
        // A turn may pause before any text.
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

    /// The part that has arrived of a reply that will not be completed.
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
            // Vendors also send `stop` for a reply with tool calls.
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
            id: self.id,
            model: self.model,
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
