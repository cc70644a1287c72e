//! The pauses of long work: a call that was cancelled ends at the next one.

use std::time::{Duration, Instant};

use crate::tool_call::Progress;
use crate::tool_interface::ToolContext;

/// The time between two reports of progress.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Pauses between pieces of work, and reports progress once a second.
pub(super) struct Pace<'a> {
    context: &'a ToolContext,
    reported: Instant,
}

impl<'a> Pace<'a> {
    pub(super) fn new(context: &'a ToolContext) -> Self {
        Self { context, reported: Instant::now() }
    }

    /// Pauses. A call that was cancelled, or whose time is over, does not return from here.
    pub(super) async fn pause(&mut self, unit: &str, done: u64, total: Option<u64>) {
        tokio::task::yield_now().await;
        if self.reported.elapsed() >= REPORT_EVERY {
            self.reported = Instant::now();
            let message = Some(format!("{done} {unit}").into());
            self.context.progress(Progress { done: done as f64, total: total.map(|total| total as f64), message });
        }
    }
}
