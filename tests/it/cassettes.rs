//! Recorded provider traffic, replayed: every answer becomes what an independent parser made of it, however its
//! bytes are cut, and every request carries what the recorded one carried.
//!
//! The recordings are no part of this project. The environment variable `AGENTOUTO_CASSETTES` names their folder;
//! in it are folders by provider, and in those one JSON file for each case. Nothing here knows a case by its name.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "these are tests")]

mod case;
mod compare;
mod conversation;
mod differences;
mod meaning;
mod replay;
mod wires;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use agentouto::Provider;
use agentouto::providers::anthropic::Anthropic;
use agentouto::providers::google::Google;
use agentouto::providers::openai::OpenAi;
use agentouto::providers::openai_responses::OpenAiResponses;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::case::{Case, Wire};
use self::replay::Findings;
use crate::server::KEY;

/// A provider that speaks the wire at `base_url` and asks once.
fn provider(wire: Wire, base_url: &str) -> Arc<dyn Provider> {
    match wire {
        Wire::Chat => Arc::new(OpenAi::new(KEY).base_url(base_url).retries(0)),
        Wire::Messages => Arc::new(Anthropic::new(KEY).base_url(base_url).retries(0)),
        Wire::Gemini => Arc::new(Google::new(KEY).base_url(base_url).retries(0)),
        Wire::Responses => Arc::new(OpenAiResponses::new(KEY).base_url(base_url).retries(0)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_traffic_is_understood_and_goes_on_as_it_did() -> ExitCode {
    let Some(folder) = std::env::var_os(VARIABLE) else {
        println!("cassettes: skipped: {VARIABLE} does not name a folder of recordings");
        return ExitCode::SUCCESS;
    };
    let mut running = JoinSet::new();
    let mut tallies = BTreeMap::<String, Tally>::new();
    for provider in entries(Path::new(&folder)).into_iter().filter(|path| path.is_dir()) {
        let folder = stem(&provider);
        tallies.insert(folder.clone(), Tally::default());
        for path in entries(&provider).into_iter().filter(|path| path.extension().is_some_and(|end| end == "json")) {
            let folder = folder.clone();
            running.spawn(async move { (folder.clone(), stem(&path), judge(folder, path).await) });
        }
    }
    let mut verdicts: Vec<_> = running.join_all().await;
    verdicts.sort_by(|(a, b, _), (c, d, _)| (a, b).cmp(&(c, d)));
    for (folder, case, verdict) in verdicts {
        tallies.entry(folder.clone()).or_default().count(&folder, &case, verdict);
    }
    // A folder without a single case is a mistake in the path, not a success.
    let mut is_well = !tallies.is_empty();
    if tallies.is_empty() {
        println!("cassettes: no folders of recordings in {}", Path::new(&folder).display());
    }
    for (folder, Tally { streams, splits, places, .. }) in &tallies {
        println!(
            "cassettes {folder}: {streams} streams again byte by byte, and cut in two at {splits} of {places} places"
        );
    }
    for (folder, Tally { passed, failed, skipped, .. }) in &tallies {
        println!("cassettes {folder}: {passed} passed, {failed} failed, {skipped} skipped");
        is_well &= *failed == 0;
    }
    // Not a panic: its message would come after the summary.
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What came of one case.
enum Verdict {
    Replayed(Findings),
    Skipped(String),
    /// It could not be replayed to its end.
    Broken(String),
}

/// Replays a case in a task of its own, so that a panic or a wait without end is a failure of this case alone.
async fn judge(folder: String, path: PathBuf) -> Verdict {
    let case = match std::fs::read(&path).map_err(|error| error.to_string()).and_then(|bytes| Case::read(&bytes)) {
        Ok(case) => case,
        Err(error) => return Verdict::Broken(format!("the file cannot be read: {error}")),
    };
    let wire = match case.wire(&folder) {
        Ok(wire) => wire,
        Err(reason) => return Verdict::Skipped(reason),
    };
    let mut replaying = tokio::spawn(async move { replay::replay(&case, wire).await });
    match timeout(LONGEST_CASE, &mut replaying).await {
        Ok(Ok(findings)) => Verdict::Replayed(findings),
        Ok(Err(panic)) => Verdict::Broken(panic.to_string()),
        Err(_) => {
            replaying.abort();
            Verdict::Broken(format!("not done within {LONGEST_CASE:?}"))
        }
    }
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
    fn count(&mut self, folder: &str, case: &str, verdict: Verdict) {
        match verdict {
            Verdict::Replayed(Findings { differences, notes, streams, splits, places }) => {
                for note in notes {
                    println!("cassettes {folder}: note on {case}: {note}");
                }
                for difference in &differences {
                    println!("cassettes {folder}: failed {case}: {difference}");
                }
                self.passed += usize::from(differences.is_empty());
                self.failed += usize::from(!differences.is_empty());
                self.streams += streams;
                self.splits += splits;
                self.places += places;
            }
            Verdict::Broken(reason) => {
                println!("cassettes {folder}: failed {case}: {reason}");
                self.failed += 1;
            }
            Verdict::Skipped(reason) => {
                println!("cassettes {folder}: skipped {case}: {reason}");
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

const VARIABLE: &str = "AGENTOUTO_CASSETTES";
/// All cases run at once, on however slow a machine.
const LONGEST_CASE: Duration = Duration::from_secs(300);
