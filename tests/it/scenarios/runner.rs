//! Runs the scenarios of one file, each by itself, and says which of them failed and why.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// Says what is wrong with what comes of a scenario; an error is why it cannot be read.
pub(super) type Judge = fn(Value) -> Result<Vec<String>, String>;

/// The scenarios of one file, not yet read one by one, so that one that cannot be read fails alone.
pub(super) struct Suite {
    name: String,
    scenarios: Vec<Value>,
}

impl Suite {
    /// The scenarios in `{folder}/{name}.json`.
    pub(super) fn read(folder: &Path, name: &str) -> Result<Self, String> {
        let path = folder.join(name).with_extension("json");
        let text = std::fs::read_to_string(&path).map_err(|error| format!("scenarios {}: {error}", path.display()))?;
        Self::parse(name, &text).map_err(|error| format!("scenarios {}: {error}", path.display()))
    }

    pub(super) fn parse(name: &str, text: &str) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct File {
            scenarios: Vec<Value>,
        }
        let File { scenarios } = serde_json::from_str(text)?;
        Ok(Self { name: name.to_owned(), scenarios })
    }

    /// The same scenarios, under another name.
    pub(super) fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    pub(super) fn run(self, judge: Judge) -> Verdicts {
        let scenarios = self.scenarios.into_iter().enumerate();
        let verdicts = scenarios.map(|(place, scenario)| Verdict::of(place, scenario, judge));
        Verdicts { suite: self.name, scenarios: verdicts.collect() }
    }
}

/// What came of the scenarios of one file. Shown, it is the failures, and one line that counts.
pub(super) struct Verdicts {
    suite: String,
    pub(super) scenarios: Vec<Verdict>,
}

impl Verdicts {
    pub(super) fn all_passed(&self) -> bool {
        !self.scenarios.is_empty() && self.failed().next().is_none()
    }

    fn failed(&self) -> impl Iterator<Item = &Verdict> {
        self.scenarios.iter().filter(|verdict| !verdict.reasons.is_empty())
    }
}

impl fmt::Display for Verdicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for verdict in self.failed() {
            writeln!(f, "FAILED {} ({})", verdict.name, verdict.title)?;
            for reason in &verdict.reasons {
                writeln!(f, "    {reason}")?;
            }
        }
        let failed = self.failed().count();
        write!(f, "scenarios {}: {} passed, {failed} failed", self.suite, self.scenarios.len() - failed)
    }
}

/// What came of one scenario. It has passed if there are no reasons against it.
pub(super) struct Verdict {
    name: String,
    title: String,
    pub(super) reasons: Vec<String>,
}

impl Verdict {
    fn of(place: usize, scenario: Value, judge: Judge) -> Self {
        let label = |key: &str| scenario[key].as_str().map(str::to_owned);
        let name = label("name").unwrap_or_else(|| format!("number {}", place + 1));
        let title = label("title").unwrap_or_else(|| "without a title".to_owned());
        Self { name, title, reasons: reasons_against(scenario, judge) }
    }
}

fn reasons_against(scenario: Value, judge: Judge) -> Vec<String> {
    match catch_unwind(AssertUnwindSafe(|| judge(scenario))) {
        Ok(Ok(mismatches)) => mismatches,
        Ok(Err(unreadable)) => vec![format!("cannot be read: {unreadable}")],
        Err(panic) => vec![format!("panicked: {}", panic_text(&*panic))],
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text")
}
