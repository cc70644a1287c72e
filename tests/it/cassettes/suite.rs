//! A folder of cases, replayed all at once, and what came of them: lines on standard output, and whether all is well.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::case::Case;
use super::replay::{self, Findings};
use super::say;

/// Cases in folders by provider, one JSON file for each.
pub(super) struct Suite {
    origin: Origin,
    folder: PathBuf,
}

#[derive(Clone, Copy, PartialEq)]
enum Origin {
    /// Written for this project: nothing in them is left out.
    Fixtures,
    /// Real traffic, in which there may be things that agentouto does not speak of.
    Recordings,
}

impl Suite {
    pub(super) fn fixtures() -> Self {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/fixtures");
        Self { origin: Origin::Fixtures, folder }
    }

    pub(super) fn recordings(folder: impl Into<PathBuf>) -> Self {
        Self { origin: Origin::Recordings, folder: folder.into() }
    }

    /// The folder and the path of every case.
    pub(super) fn cases(&self) -> Vec<(String, PathBuf)> {
        let folders = entries(&self.folder).into_iter().filter(|path| path.is_dir());
        let files = folders.flat_map(|folder| {
            let name = stem(&folder);
            entries(&folder).into_iter().map(move |path| (name.clone(), path))
        });
        files.filter(|(_, path)| path.extension().is_some_and(|end| end == "json")).collect()
    }

    /// Whether all cases pass. The last lines that it prints say how many do.
    pub(super) async fn pass(&self) -> bool {
        let Self { origin, folder } = self;
        let mut running = JoinSet::new();
        for (folder, path) in self.cases() {
            let origin = *origin;
            running.spawn(async move { (folder.clone(), stem(&path), origin.judge(&folder, &path).await) });
        }
        let mut verdicts = running.join_all().await;
        verdicts.sort_by(|(a, b, _), (c, d, _)| (a, b).cmp(&(c, d)));
        let mut tallies = BTreeMap::<String, Tally>::new();
        for (folder, case, verdict) in verdicts {
            let title = format!("{} {folder}", origin.name());
            tallies.entry(title.clone()).or_default().count(&title, &case, verdict);
        }
        // A folder without a single case is a mistake in the path, not a success.
        if tallies.is_empty() {
            say(format_args!("{}: no cases in {}", origin.name(), folder.display()));
        }
        for (title, Tally { streams, splits, places, .. }) in &tallies {
            say(format_args!(
                "{title}: {streams} streams again byte by byte, and cut in two at {splits} of {places} places"
            ));
        }
        for (title, Tally { passed, failed, skipped, .. }) in &tallies {
            say(format_args!("{title}: {passed} passed, {failed} failed, {skipped} skipped"));
        }
        !tallies.is_empty() && tallies.values().all(|tally| tally.failed == 0)
    }
}

/// What came of one case.
enum Verdict {
    Replayed(Findings),
    Skipped(String),
    /// It could not be replayed to its end.
    Broken(String),
}

impl Origin {
    fn name(self) -> &'static str {
        match self {
            Self::Fixtures => "fixtures",
            Self::Recordings => "cassettes",
        }
    }

    /// Replays a case in a task of its own, so that a panic or a wait without end is a failure of this case alone.
    async fn judge(self, folder: &str, path: &Path) -> Verdict {
        let case = match read(path) {
            Ok(case) => case,
            Err(error) => return Verdict::Broken(format!("the file cannot be read: {error}")),
        };
        let wire = match case.wire(folder) {
            Ok(wire) => wire,
            Err(reason) if self == Self::Fixtures => return Verdict::Broken(reason),
            Err(reason) => return Verdict::Skipped(reason),
        };
        let mut replaying = tokio::spawn(async move { replay::replay(&case, wire).await });
        match timeout(LONGEST_CASE, &mut replaying).await {
            Ok(Ok(findings)) => Verdict::Replayed(self.weigh(findings)),
            Ok(Err(panic)) => Verdict::Broken(panic.to_string()),
            Err(_) => {
                replaying.abort();
                Verdict::Broken(format!("not done within {LONGEST_CASE:?}"))
            }
        }
    }

    /// In a fixture all can be compared, and its streams are so short that they are cut everywhere.
    fn weigh(self, mut findings: Findings) -> Findings {
        if self == Self::Fixtures {
            if findings.differences.is_empty() && findings.splits < findings.places {
                findings.notes.push("a stream of it is too long to be cut everywhere".to_owned());
            }
            findings.differences.append(&mut findings.notes);
        }
        findings
    }
}

pub(super) fn read(path: &Path) -> Result<Case, String> {
    Case::read(&std::fs::read(path).map_err(|error| error.to_string())?)
}

/// What came of the cases in one folder.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
    streams: usize,
    splits: usize,
    places: usize,
}

impl Tally {
    fn count(&mut self, title: &str, case: &str, verdict: Verdict) {
        match verdict {
            Verdict::Replayed(Findings { differences, notes, streams, splits, places }) => {
                for note in notes {
                    say(format_args!("{title}: note on {case}: {note}"));
                }
                for difference in &differences {
                    say(format_args!("{title}: failed {case}: {difference}"));
                }
                self.passed += usize::from(differences.is_empty());
                self.failed += usize::from(!differences.is_empty());
                self.streams += streams;
                self.splits += splits;
                self.places += places;
            }
            Verdict::Broken(reason) => {
                say(format_args!("{title}: failed {case}: {reason}"));
                self.failed += 1;
            }
            Verdict::Skipped(reason) => {
                say(format_args!("{title}: skipped {case}: {reason}"));
                self.skipped += 1;
            }
        }
    }
}

/// What is in a folder, in order.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// All cases run at once, on however slow a machine.
const LONGEST_CASE: Duration = Duration::from_secs(300);
