//! What can be observed of a run, one value a step. Nothing here decides anything.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::call_id::CallId;
use crate::message::{Forward, Return};
use crate::name::Name;
use crate::provider::Delta;
use crate::provider::ProviderError;
use crate::reply::{StopReason, Usage};
use crate::tool_call::{Progress, ToolCall, ToolCallId};

/// One step of a call. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its place among all events of the runtime. What causes an event has a lower number and arrives before it;
    /// events of calls that run at the same time may arrive in either order.
    pub sequence: u64,
    /// The call that took the step.
    pub call_id: CallId,
    /// The call on whose behalf that call was made.
    pub parent: Option<CallId>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened in an [`Event`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// The call began.
    Forward {
        /// The message that began it.
        forward: Arc<Forward>,
    },
    /// The call ended.
    Return {
        /// The message that ended it.
        answer: Arc<Return>,
    },
    /// The call was not begun, because nobody has that name.
    Undelivered {
        /// The name.
        agent: Name,
    },
    /// A model is asked.
    ModelRequest {
        /// Which of the call's requests this is, from 1.
        turn: usize,
        /// The model's name.
        model: Arc<str>,
    },
    /// A model's reply has grown.
    ModelDelta {
        /// By this piece.
        delta: Delta,
    },
    /// A model has replied.
    ModelReply {
        /// What the reply cost, where the server says.
        usage: Option<Usage>,
        /// Why the model stopped. After [`StopReason::Length`] the text is cut.
        stop_reason: StopReason,
        /// The tools that it calls.
        tool_calls: usize,
        /// From the request to the whole reply.
        latency: Duration,
    },
    /// A model could not be asked.
    ModelError {
        /// Why.
        error: ProviderError,
        /// From the request to the failure.
        latency: Duration,
    },
    /// The call ended while its model was still replying.
    ModelAborted {
        /// What is known of the cost so far.
        usage: Option<Usage>,
        /// From the request to the end.
        latency: Duration,
    },
    /// A tool was started.
    ToolStart {
        /// What the model asked for.
        call: ToolCall,
    },
    /// A tool has come this far.
    ToolProgress {
        /// The call's id.
        id: ToolCallId,
        /// How far.
        progress: Progress,
    },
    /// A tool has ended.
    ToolEnd {
        /// The call's id.
        id: ToolCallId,
        /// The tool's name.
        name: Name,
        /// Why it failed, if it did.
        error: Option<Arc<str>>,
        /// From start to end.
        latency: Duration,
    },
    /// A tool call was not carried out, and the model was told why.
    ToolRefused {
        /// What the model asked for.
        call: ToolCall,
        /// Why it was not done.
        reason: Arc<str>,
    },
    /// Something held an async thread for too long without awaiting. It should be a
    /// [`tool::blocking`](crate::tool::blocking) function.
    Blocked {
        /// What it was: `tool` or `provider`, and its name.
        what: Arc<str>,
        /// For how long.
        duration: Duration,
    },
    /// A Return came for a call that was no longer waited for. It was dropped.
    LateReturn {
        /// Who sent it.
        sender: Name,
    },
}
