//! The context of a run: the root call, the user, the values that callers lend, and the limits that they set.
//!
//! A Forward carries it, so everything below a call has it and nothing else has. Nothing here waits.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::call_id::CallId;
use crate::error::{CallError, Resource};
use crate::name::Name;
use crate::panics::drop_catching;
use crate::provider::Request;
use crate::reply::Usage;

/// The context of a run: the id of its root call, its user's name, and the values that callers lend.
///
/// Every [`Forward`](crate::Forward) and every [`ToolContext`](crate::ToolContext) has the context of its own run. A
/// value that [`Call::with`](crate::Call::with) lends is seen by everything below that call, at any depth, and by
/// nothing else.
#[derive(Clone, Serialize, Deserialize)]
pub struct RunContext {
    root: CallId,
    user: Name,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) conversation: Option<Arc<str>>,
    /// One value of each type.
    #[serde(skip)]
    pub(crate) values: Vec<(TypeId, Arc<dyn Any + Send + Sync>)>,
    /// The limits on what is below the call, if there are any.
    #[serde(skip)]
    pub(crate) admission: Option<Arc<dyn Admission>>,
}

impl RunContext {
    pub(crate) fn new(root: CallId, user: &Name) -> Self {
        Self { root, user: Arc::clone(user), conversation: None, values: Vec::new(), admission: None }
    }

    /// The id of the call with which the user began the run.
    #[must_use]
    pub fn root(&self) -> CallId {
        self.root
    }

    /// The name of the user that began the run.
    #[must_use]
    pub fn user(&self) -> &Name {
        &self.user
    }

    /// The id of the conversation that the run continues, if the user [named one](crate::Call::conversation).
    #[must_use]
    pub fn conversation(&self) -> Option<&Arc<str>> {
        self.conversation.as_ref()
    }

    /// Returns the value of type `T` that the nearest caller above lent; `None` if none of them lent one.
    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        let (_, value) = self.values.iter().find(|(of, _)| *of == TypeId::of::<T>())?;
        value.downcast_ref()
    }

    /// Lends a value, in place of one of the same type.
    pub(crate) fn lend<T: Send + Sync + 'static>(&mut self, value: T) {
        self.values.retain(|(of, _)| *of != TypeId::of::<T>());
        self.values.push((TypeId::of::<T>(), Arc::new(value)));
    }

    /// The error of calls that are cancelled.
    pub(crate) fn cancelled(&self) -> CallError {
        self.admission.as_ref().and_then(|admission| admission.cancelled()).unwrap_or(CallError::Cancelled)
    }
}

impl PartialEq for RunContext {
    /// Compares the runs; the values have no equality.
    fn eq(&self, other: &Self) -> bool {
        (self.root, &self.user) == (other.root, &other.user)
    }
}

impl Drop for RunContext {
    /// Catches the panics of each value, because a context may be dropped wherever a call ends.
    fn drop(&mut self) {
        std::mem::take(&mut self.values).into_iter().for_each(drop_catching);
    }
}

impl fmt::Debug for RunContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunContext").field("root", &self.root).field("user", &self.user).finish_non_exhaustive()
    }
}

/// The admission control of everything below a call: it counts, and refuses what exceeds a limit.
pub(crate) trait Admission: Any + Send + Sync {
    /// Counts a call at this depth that is about to be sent in this scope. The limited call itself is not counted;
    /// observers of the limits are notified by `notify` of it.
    ///
    /// # Errors
    ///
    /// When the call exceeds a limit. It is not counted then.
    fn admit_call(
        &self,
        depth: usize,
        scope: &CancellationToken,
        notify: &dyn Fn() -> Notifier,
    ) -> Result<(), CallError>;

    /// Returns the meter of a request that is about to be sent.
    fn meter(self: Arc<Self>) -> Box<dyn Meter>;

    /// The error of a limit for which everything below was cancelled.
    fn cancelled(&self) -> Option<CallError>;

    /// Returns the number of calls and requests that were refused so far. It only grows.
    fn refusals(&self) -> u64;
}

/// The meter of one request to a model, of which there may be several attempts.
pub(crate) trait Meter: Send + Sync {
    /// Reserves what an attempt may use. Waits while that depends on requests that have not ended.
    ///
    /// # Errors
    ///
    /// When the attempt exceeds a limit. Nothing is reserved then.
    fn reserve<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<(), CallError>>;

    /// Returns the error with which the last attempt was refused, if it was.
    fn refused(&self) -> Option<CallError>;

    /// Counts what the attempt used that was reserved last. `None`: it is not known, and counts as estimated.
    fn settle(&self, used: Option<Usage>);
}

/// Takes the notice that a limit is nearly or wholly used.
pub(crate) type Notifier = Arc<dyn Fn(Notice) + Send + Sync>;

/// The use of a limit.
pub(crate) struct Notice {
    pub(crate) what: Resource,
    pub(crate) used: u64,
    pub(crate) limit: u64,
}
