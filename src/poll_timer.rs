//! The time that polls of foreign futures take.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;

use crate::event::EventKind;
use crate::outcome::Outcome;

/// A future that times the polls of another one, because a poll that blocks delays every other task on its thread. Its
/// output includes the total time.
pub(crate) struct PollTimer<'a, F> {
    future: F,
    begun: Instant,
    is_polled: bool,
    call: &'a Outcome,
    what: &'static str,
    name: &'a str,
}

/// The time that one poll may take before it is reported.
const MAX_POLL: Duration = Duration::from_millis(100);

impl<'a, F> PollTimer<'a, F> {
    /// Times the first poll from `begun`, which is before the future was made.
    pub(crate) fn new(future: F, begun: Instant, call: &'a Outcome, what: &'static str, name: &'a str) -> Self {
        Self { future, begun, is_polled: false, call, what, name }
    }
}

impl<F: Future + Unpin> Future for PollTimer<'_, F> {
    type Output = (F::Output, Duration);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let begun = if std::mem::replace(&mut self.is_polled, true) { Instant::now() } else { self.begun };
        let polled = self.future.poll_unpin(context);
        let ended = Instant::now();
        let duration = ended.duration_since(begun);
        if duration > MAX_POLL {
            let Self { call, what, name, .. } = &*self;
            tracing::warn!(?duration, "{what} `{name}` blocked an async thread");
            call.emit_to_streams(|| EventKind::Blocked { what: format!("{what} `{name}`").into(), duration });
        }
        polled.map(|output| (output, ended.duration_since(self.begun)))
    }
}
