//! Runs the scenarios of one file, each by itself, and says which of them failed and why.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::check;
use super::scenario::Scenario;
use super::stage;

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

    pub(super) fn run(self) -> Verdicts {
        let scenarios = self.scenarios.into_iter().enumerate().map(|(place, scenario)| Verdict::of(place, scenario));
        Verdicts { suite: self.name, scenarios: scenarios.collect() }
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
    fn of(place: usize, scenario: Value) -> Self {
        let label = |key: &str| scenario[key].as_str().map(str::to_owned);
        let name = label("name").unwrap_or_else(|| format!("number {}", place + 1));
        let title = label("title").unwrap_or_else(|| "without a title".to_owned());
        Self { name, title, reasons: reasons_against(scenario) }
    }
}

fn reasons_against(scenario: Value) -> Vec<String> {
    let judged = catch_unwind(AssertUnwindSafe(|| {
        let scenario = Scenario::parse(scenario).map_err(|error| format!("cannot be read: {error}"))?;
        Ok(check::mismatches(&scenario.expect, &stage::perform(&scenario)))
    }));
    match judged {
        Ok(Ok(mismatches)) => mismatches,
        Ok(Err(unreadable)) => vec![unreadable],
        Err(panic) => vec![format!("panicked: {}", panic_text(&*panic))],
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text")
}
