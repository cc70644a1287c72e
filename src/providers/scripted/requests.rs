//! The requests that a script has answered, and the replies that it has left.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::name::Name;
use crate::provider::Request;

/// The requests that a [`Scripted`](super::Scripted) model was sent, in the order in which they came. Cheap to clone;
/// every clone sees the same requests.
#[derive(Clone)]
pub struct Requests(pub(super) Arc<Record>);

impl Requests {
    /// The requests so far: each with its agent, its conversation and the tools that the model was offered.
    ///
    /// A request is among them from its beginning, whether or not it was answered: also when its call was cancelled, and
    /// when the script gave an error or a panic.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Request>> {
        self.0.requests.lock().clone()
    }

    /// The requests of one agent so far.
    #[must_use]
    pub fn of(&self, agent: &str) -> Vec<Arc<Request>> {
        self.0.requests.lock().iter().filter(|request| *request.agent.name == *agent).map(Arc::clone).collect()
    }

    /// Checks that every reply in the script was given. A reply for a call [with some
    /// input](super::Scripted::replies_to) was given if at least one call got it. Replies of closures are not counted.
    ///
    /// The check is not made by a drop, because a runtime catches panics in the drop of its providers.
    ///
    /// ```should_panic
    /// use agentouto::Reply;
    /// use agentouto::providers::scripted::Scripted;
    ///
    /// let model = Scripted::new().replies("writer", [Reply::text("a draft")]);
    /// let requests = model.requests();
    /// requests.assert_used_up(); // the script of agent `writer`: 1 of 1 replies are left
    /// ```
    ///
    /// # Panics
    ///
    /// When replies are left. The message names each agent, with the number of its replies.
    #[track_caller]
    pub fn assert_used_up(&self) {
        let left: Vec<String> = self.0.scripts.lock().iter().filter_map(|script| script.left()).collect();
        assert!(left.is_empty(), "the script is not used up:\n{}", left.join("\n"));
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("requests", &self.0.requests.lock().len()).finish()
    }
}

/// The state that a script shares with its handles.
#[derive(Default)]
pub(super) struct Record {
    pub(super) is_kept: AtomicBool,
    requests: Mutex<Vec<Arc<Request>>>,
    scripts: Mutex<Vec<Listed>>,
}

impl Record {
    /// Keeps a request, if a handle was asked for.
    pub(super) fn keep(&self, request: &Request) {
        if self.is_kept.load(Ordering::Relaxed) {
            let request = Arc::new(request.clone());
            self.requests.lock().push(request);
        }
    }

    /// Adds a script of an agent to those that must be used up.
    pub(super) fn list(&self, agent: &Name, input: Input) -> Arc<Progress> {
        let progress = Arc::<Progress>::default();
        self.scripts.lock().push(Listed { agent: Arc::clone(agent), input, progress: Arc::clone(&progress) });
        progress
    }
}

/// The calls for which a script was written.
pub(super) enum Input {
    /// All calls together.
    All,
    /// Each call that has no script of its own.
    Any,
    /// Each call with this input.
    This(Arc<str>),
}

/// The number of replies in a script, and the number of those that were given.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) written: AtomicUsize,
    pub(super) given: AtomicUsize,
}

impl Progress {
    /// Notes that the replies up to this place were given.
    pub(super) fn reached(&self, place: usize) {
        // Read first: many threads may read a value at once.
        if self.given.load(Ordering::Relaxed) <= place {
            self.given.fetch_max(place + 1, Ordering::Relaxed);
        }
    }
}

struct Listed {
    agent: Name,
    input: Input,
    progress: Arc<Progress>,
}

impl Listed {
    fn left(&self) -> Option<String> {
        let written = self.progress.written.load(Ordering::Relaxed);
        let left = written.saturating_sub(self.progress.given.load(Ordering::Relaxed));
        let whose = match &self.input {
            Input::All => format!("agent `{}`", self.agent),
            Input::Any => format!("agent `{}` for any input", self.agent),
            Input::This(input) => format!("agent `{}` for the input `{input:.80}`", self.agent),
        };
        (left > 0).then(|| format!("the script of {whose}: {left} of {written} replies are left"))
    }
}
