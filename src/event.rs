//! The events of a run, one for each step that can be observed. Nothing here decides anything.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::call_id::CallId;
use crate::content::Content;
use crate::error::{CallError, Resource};
use crate::message::{Forward, Return};
use crate::name::Name;
use crate::provider::{Delta, ProviderError};
use crate::reply::{StopReason, Usage};
use crate::tool_call::{Arguments, Progress, ToolCall, ToolCallId};

/// One step of a call. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The number of the event among all events of the runtime. The cause of an event has a lower number and arrives
    /// before it. Events of calls that run at the same time may arrive in either order.
    pub sequence: u64,
    /// The call that took the step.
    pub call_id: CallId,
    /// The parent of that call; `None` when a user began it.
    pub parent: Option<CallId>,
    /// The step that the call took.
    pub kind: EventKind,
}

/// The kind of an [`Event`], with its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// The call began.
    Forward {
        /// The Forward that began the call.
        forward: Arc<Forward>,
    },
    /// The call ended.
    Return {
        /// The Return that ended the call.
        answer: Arc<Return>,
    },
    /// The call was not begun, because no agent, actor or user has that name.
    Undelivered {
        /// The name that was called.
        agent: Name,
    },
    /// The call was not begun, because it would have exceeded a caller's [budget](crate::Call::budget).
    Refused {
        /// The name that was called.
        agent: Name,
        /// The error that its caller gets.
        error: CallError,
    },
    /// A request to a model began.
    ModelRequest {
        /// The number of the request within the call, from 1.
        turn: usize,
        /// The model's name.
        model: Arc<str>,
    },
    /// The body of a request was sent to a server, one for each attempt. Emitted to event streams only, and only if
    /// [`RuntimeBuilder::record_content`](crate::RuntimeBuilder::record_content) is set.
    ModelSent {
        /// The exact body, as JSON. It has no key and no header, but everything that the model reads.
        body: Arc<str>,
    },
    /// A piece of a model's reply arrived.
    ModelDelta {
        /// The new piece.
        delta: Delta,
    },
    /// A model's reply is complete.
    ModelReply {
        /// The usage of the reply, where the server reports it.
        usage: Option<Usage>,
        /// The reason why the model stopped. After [`StopReason::Length`] the text is cut.
        stop_reason: StopReason,
        /// The number of tool calls in the reply.
        tool_calls: usize,
        /// The time from the request to the complete reply.
        latency: Duration,
    },
    /// A request to a model failed.
    ModelError {
        /// The provider's error.
        error: ProviderError,
        /// The time from the request to the failure.
        latency: Duration,
    },
    /// A request to a model failed, and is sent again after a pause.
    ModelRetry {
        /// The error of the request.
        error: ProviderError,
        /// The time until the next request.
        pause: Duration,
    },
    /// A request to a model failed, and another provider is asked.
    ModelFallback {
        /// The error of the request.
        error: ProviderError,
    },
    /// Four fifths of a caller's [budget](crate::Call::budget), or all of it, are used.
    Budget {
        /// The limited resource.
        what: Resource,
        /// The amount used, in the unit of the resource.
        used: u64,
        /// The limit.
        limit: u64,
    },
    /// The call ended while its model was still replying.
    ModelAborted {
        /// The usage that was known at the end of the call.
        usage: Option<Usage>,
        /// The time from the request to the end of the call.
        latency: Duration,
    },
    /// A tool was started.
    ToolStart {
        /// The tool call that the model made.
        call: ToolCall,
    },
    /// A tool reported its progress.
    ToolProgress {
        /// The id of the tool call.
        id: ToolCallId,
        /// The progress that the tool reported.
        progress: Progress,
    },
    /// A peer decided on a tool call that needs its [approval](crate::ToolExt::approved_by). If it approved, the tool
    /// runs next. The log keeps this event.
    ToolApproval(Arc<Approval>),
    /// A tool call got a [kept](crate::ToolExt::cached) result, and the tool was not run.
    ToolCacheHit {
        /// The id of the tool call.
        id: ToolCallId,
        /// The tool's name.
        name: Name,
    },
    /// A tool has ended.
    ToolEnd {
        /// The id of the tool call.
        id: ToolCallId,
        /// The tool's name.
        name: Name,
        /// The error, if the tool failed.
        error: Option<Arc<str>>,
        /// The output, as the model reads it.
        #[serde(default)]
        output: Content,
        /// The time from start to end.
        latency: Duration,
    },
    /// A tool call was not carried out, and the model was told why.
    ToolRefused {
        /// The tool call that the model made.
        call: ToolCall,
        /// The reason that the model was told.
        reason: Arc<str>,
    },
    /// One poll of a tool or a provider blocked an async thread for more than 100 ms. Such a tool should be a
    /// [`tool::blocking`](crate::tool::blocking) function.
    Blocked {
        /// The kind and the name of what blocked: `tool` or `provider`, then its name.
        what: Arc<str>,
        /// The duration of the poll.
        duration: Duration,
    },
    /// A Return came for a call that was no longer waiting for one. It was dropped.
    LateReturn {
        /// The name of the callee that sent it.
        sender: Name,
    },
}

/// A decision on one tool call that needed the [approval](crate::ToolExt::approved_by) of a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Approval {
    /// The id of the tool call.
    pub id: ToolCallId,
    /// The tool's name.
    pub tool: Name,
    /// The agent that called the tool.
    pub agent: Name,
    /// The arguments that the peer was asked about.
    pub arguments: Arguments,
    /// The peer that was asked.
    pub by: Name,
    /// The id of the call that asked it.
    pub question: CallId,
    /// The decision.
    pub decision: Decision,
    /// The time of the decision, on the system's clock.
    pub at: SystemTime,
}

/// The decision of a peer on a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The tool runs, once, with the arguments that the peer was asked about.
    Approved,
    /// The tool runs, once, with these arguments instead.
    Changed(Arguments),
    /// The tool does not run, because the peer said so, or said something that is no approval. The reason, or that
    /// answer; empty if there is none.
    Refused(Arc<str>),
    /// The tool does not run, because there was no answer, for this reason.
    Unanswered(Arc<str>),
}
