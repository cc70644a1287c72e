//! The comparison of the calls of a run with those that a test expects.

use std::collections::HashMap;

use crate::call_id::CallId;
use crate::event::EventKind;
use crate::log::{Log, LogEntry};

use super::difference::difference;

impl Log {
    /// Checks that the run made these calls, no others, and in this order.
    ///
    /// | line | meaning |
    /// |---|---|
    /// | `researcher > writer` | The first peer called the second one. |
    /// | `researcher * search_web` | The agent called the tool. |
    /// | `researcher * search_web (refused)` | The model called the tool, and the call was not carried out. |
    /// | `researcher > poet (undelivered)` | No peer has that name, or a [budget](crate::Call::budget) is used up. |
    /// | `& researcher > writer` | A line of a group: neighbouring lines that begin with `&` may come in any order. |
    ///
    /// A call is followed by what is below it, and then by the next call of its caller, as in [`Log::tree`]. So calls
    /// that a model makes at once always have the order in which the model named them. Tools that run at once, and
    /// calls that tools make, begin in any order; they need a group. White space around a line is ignored.
    ///
    /// Tools and undelivered calls are compared if the log keeps them, see
    /// [`Call::log_details`](crate::Call::log_details); otherwise only calls are. To get the lines of a run, print
    /// [`Log::call_lines`].
    ///
    /// ```
    /// # use agentouto::{Agent, Reply, Runtime, providers::scripted::Scripted, tool::{self, NoArguments}};
    /// # let model = Scripted::new()
    /// #     .replies("researcher", [Reply::tool("search_web", serde_json::json!({})), Reply::call_agent("writer", "?").and_call_agent("critic", "?"), Reply::text("done")])
    /// #     .otherwise(|_: &agentouto::Request| Reply::text("done"));
    /// # let search = tool::function("search_web", "Searches.", |_: NoArguments| async { "found" });
    /// # let agents = ["researcher", "writer", "critic"].map(|name| Agent::new(name, ""));
    /// # let runtime = Runtime::builder().provider("script", model).agents(agents).tool(search).build()?;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let report = runtime.user("user").forward("researcher", "a report, please").log_details().await?;
    /// report.log.assert_calls([
    ///     "user > researcher",
    ///     "  researcher * search_web",
    ///     "  & researcher > critic",
    ///     "  & researcher > writer",
    /// ]);
    /// # Ok::<(), agentouto::RunError>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When the calls differ, with the difference.
    #[track_caller]
    #[expect(clippy::panic, reason = "it is an assertion")]
    pub fn assert_calls<L: AsRef<str>>(&self, expected: impl IntoIterator<Item = L>) {
        let expected: Vec<L> = expected.into_iter().collect();
        let lines: Vec<Expected<'_>> = expected.iter().map(|line| Expected::of(line.as_ref())).collect();
        let mut actual = self.call_lines();
        arrange(&mut actual, &lines);
        let expected: Vec<&str> = lines.iter().map(|line| line.text).collect();
        let Some(difference) = difference(&expected, &actual) else { return };
        let names_tools = expected.iter().any(|line| line.contains(" * ") || line.ends_with(" (undelivered)"));
        let hint = match names_tools && !self.has_details() {
            true => "\nthe log keeps no tool calls; set `Call::log_details` before the call is sent",
            false => "",
        };
        panic!("the calls differ (-expected, +actual){hint}\n{difference}");
    }

    /// The calls as the lines that [`Log::assert_calls`] compares.
    #[must_use]
    pub fn call_lines(&self) -> Vec<String> {
        let mut steps = Vec::new();
        let mut below: HashMap<CallId, Vec<usize>> = HashMap::new();
        let mut receivers: HashMap<CallId, &str> = HashMap::new();
        let mut open = Vec::new();
        for entry in &*self.entries {
            let (call, parent, line) = match entry {
                LogEntry::Forward(forward) => {
                    receivers.insert(forward.call_id, &forward.receiver);
                    let line = format!("{} > {}", forward.sender, forward.receiver);
                    (Some(forward.call_id), forward.parent, line)
                }
                LogEntry::Detail(event) => {
                    let (caller, what) = match &event.kind {
                        EventKind::ToolStart { call } => (event.call_id, format!("* {}", call.name)),
                        EventKind::ToolRefused { call, .. } => (event.call_id, format!("* {} (refused)", call.name)),
                        EventKind::Undelivered { agent } | EventKind::Refused { agent, .. } => {
                            let Some(caller) = event.parent else { continue };
                            (caller, format!("> {agent} (undelivered)"))
                        }
                        _ => continue,
                    };
                    let agent = receivers.get(&caller).unwrap_or(&"");
                    (None, Some(caller), format!("{agent} {what}"))
                }
                LogEntry::Return(_) | LogEntry::Usage(..) | LogEntry::Approval(_) => continue,
            };
            // A model may have written any name.
            let line = line.replace(char::is_control, " ");
            match parent.filter(|parent| receivers.contains_key(parent)) {
                Some(parent) => below.entry(parent).or_default().push(steps.len()),
                None => open.push(steps.len()),
            }
            steps.push((call, line));
        }
        open.reverse();
        let mut lines = Vec::with_capacity(steps.len());
        while let Some(place) = open.pop() {
            let (call, line) = &mut steps[place];
            lines.push(std::mem::take(line));
            let next = call.and_then(|call| below.remove(&call)).unwrap_or_default();
            open.extend(next.into_iter().rev());
        }
        lines
    }
}

/// A line that a test expects.
struct Expected<'a> {
    text: &'a str,
    /// Whether it may change places with its neighbours for which this is true.
    is_grouped: bool,
}

impl<'a> Expected<'a> {
    fn of(line: &'a str) -> Self {
        let line = line.trim();
        match line.strip_prefix("& ") {
            Some(text) => Self { text: text.trim(), is_grouped: true },
            None => Self { text: line, is_grouped: false },
        }
    }
}

/// Brings the lines of each group into the order in which they are expected.
fn arrange(actual: &mut [String], expected: &[Expected<'_>]) {
    let mut end = 0;
    for group in expected.chunk_by(|one, next| one.is_grouped && next.is_grouped) {
        let begin = end;
        end += group.len();
        if group.len() < 2 {
            continue;
        }
        let Some(lines) = actual.get_mut(begin.min(end)..) else { return };
        let length = lines.len().min(group.len());
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for (place, line) in group.iter().enumerate().rev() {
            places.entry(line.text).or_default().push(place);
        }
        // What is not expected comes last, in its order.
        lines[..length].sort_by_cached_key(|line| places.get_mut(&**line).and_then(Vec::pop).unwrap_or(usize::MAX));
    }
}
