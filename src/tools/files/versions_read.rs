//! The versions of files that calls have read: the base of compare-and-swap. Nothing here waits.
//!
//! Each agent's call has its own versions, because it is that call's model which knows what a file held. A call that
//! has not read a file itself has the version that its run read last. Versions are kept as long as their run is alive.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Weak};

use crate::call_id::CallId;
use crate::run_context::RunContext;
use crate::tool_interface::ToolContext;
use crate::tools::files::version::Version;

/// The greatest number of versions that are kept for one run, about 10 MB. Each file that a call reads has two: of the
/// call, and of the run. A run that reads more must read again before it writes.
const MAX_VERSIONS: usize = 50_000;
/// The number of runs from which on those that are over are looked for.
const MIN_SWEEP: usize = 64;

/// What a call knows of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Neither the call nor its run has read it.
    Never,
    /// The version that was read last.
    Version(Version),
    /// The run read more files than are kept.
    Forgotten,
}

/// The versions that the calls of all runs have read.
#[derive(Default)]
pub(super) struct VersionsRead {
    runs: HashMap<CallId, RunVersions>,
    /// The number of runs at which those that are over are removed.
    sweep_at: usize,
}

#[derive(Default)]
struct RunVersions {
    /// The contexts of the run, by address: it is alive as long as one of them is.
    contexts: HashMap<usize, Weak<RunContext>>,
    versions: HashMap<Reader, HashMap<Arc<Path>, Version>>,
    count: usize,
    has_forgotten: bool,
}

/// A part of a run that has read files.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Reader {
    Call(CallId),
    /// The call of the run that read last.
    Any,
}

impl VersionsRead {
    /// Returns what a call knows of a file.
    pub(super) fn known(&mut self, context: &ToolContext, file: &Path) -> Known {
        let run = self.run(context);
        let of = |reader| run.versions.get(&reader)?.get(file);
        match of(Reader::Call(context.call_id)).or_else(|| of(Reader::Any)) {
            Some(version) => Known::Version(version.clone()),
            None if run.has_forgotten => Known::Forgotten,
            None => Known::Never,
        }
    }

    /// Notes that a call has read a file.
    pub(super) fn read(&mut self, context: &ToolContext, file: &Arc<Path>, version: &Version) {
        let run = self.run(context);
        run.insert(Reader::Any, file, version.clone());
        run.insert(Reader::Call(context.call_id), file, version.clone());
    }

    /// Notes that a call has written a file, whose content it knows now.
    pub(super) fn written(&mut self, context: &ToolContext, file: &Arc<Path>, version: Version) {
        self.run(context).insert(Reader::Call(context.call_id), file, version);
    }

    /// Notes that a file does not exist any more.
    pub(super) fn gone(&mut self, context: &ToolContext, file: &Path) {
        let run = self.run(context);
        for reader in [Reader::Any, Reader::Call(context.call_id)] {
            let removed = run.versions.get_mut(&reader).and_then(|files| files.remove(file));
            run.count -= usize::from(removed.is_some());
        }
    }

    fn run(&mut self, context: &ToolContext) -> &mut RunVersions {
        if self.runs.len() >= self.sweep_at.max(MIN_SWEEP) {
            self.runs.retain(|_, run| run.is_alive());
            self.sweep_at = self.runs.len() * 2;
        }
        let run = self.runs.entry(context.run.root()).or_default();
        let address = Arc::as_ptr(&context.run).addr();
        if !run.contexts.contains_key(&address) {
            // Another run may have had this id before.
            if !run.is_alive() {
                *run = RunVersions::default();
            }
            if run.contexts.len().is_power_of_two() {
                run.contexts.retain(|_, context| context.strong_count() > 0);
            }
            run.contexts.insert(address, Arc::downgrade(&context.run));
        }
        run
    }
}

impl RunVersions {
    fn is_alive(&self) -> bool {
        self.contexts.values().any(|context| context.strong_count() > 0)
    }

    fn insert(&mut self, reader: Reader, file: &Arc<Path>, version: Version) {
        if self.count >= MAX_VERSIONS {
            self.versions.clear();
            (self.count, self.has_forgotten) = (0, true);
        }
        let former = self.versions.entry(reader).or_default().insert(Arc::clone(file), version);
        self.count += usize::from(former.is_none());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestCall;

    fn version(number: u8) -> Version {
        Version::Content([number; 32])
    }

    fn path(number: usize) -> Arc<Path> {
        Path::new(&number.to_string()).into()
    }

    #[test]
    fn runs_that_are_over_are_forgotten() {
        let mut read = VersionsRead::default();
        let kept = TestCall::new("test", "").context();
        read.read(&kept, &path(0), &version(1));
        for number in 0..10_000 {
            read.read(&TestCall::new("test", "").context(), &path(number), &version(2));
        }
        assert!(read.runs.len() <= 2 * MIN_SWEEP, "{} runs are kept", read.runs.len());
        assert_eq!(read.known(&kept, &path(0)), Known::Version(version(1)));
    }

    #[test]
    fn fault_72_a_run_that_read_too_many_files_must_read_again() {
        let mut read = VersionsRead::default();
        let context = TestCall::new("test", "").context();
        // Each is kept for the call and for its run.
        for number in 0..=MAX_VERSIONS / 2 {
            read.read(&context, &path(number), &version(1));
        }
        assert_eq!(read.known(&context, &path(0)), Known::Forgotten);
        assert_eq!(read.known(&context, &path(MAX_VERSIONS)), Known::Forgotten);
        assert_eq!(read.known(&context, &path(MAX_VERSIONS / 2)), Known::Version(version(1)));
    }

    #[test]
    fn a_run_with_the_id_of_one_that_is_over_knows_nothing_of_it() {
        let mut read = VersionsRead::default();
        let over = TestCall::new("test", "").context();
        read.read(&over, &path(0), &version(1));
        let mut other = TestCall::new("test", "").context();
        // The same id in another context: a run that a seeded source of ids began anew.
        let again = RunContext::new(over.run.root(), over.run.user());
        (other.call_id, other.run) = (over.call_id, Arc::new(again));
        assert_eq!(read.known(&other, &path(0)), Known::Version(version(1)));
        drop(over);
        let again = RunContext::new(other.run.root(), other.run.user());
        other.run = Arc::new(again);
        assert_eq!(read.known(&other, &path(0)), Known::Never);
    }

    #[test]
    fn a_run_whose_callers_lend_values_is_one_run_and_its_contexts_are_not_kept() {
        let mut read = VersionsRead::default();
        let first = TestCall::new("test", "").context();
        read.read(&first, &path(0), &version(1));
        for number in 0..10_000_u32 {
            let mut below = TestCall::new("test", "").context();
            let mut lent = RunContext::clone(&first.run);
            lent.lend(number);
            below.run = Arc::new(lent);
            assert_eq!(read.known(&below, &path(0)), Known::Version(version(1)));
        }
        let run = &read.runs[&first.run.root()];
        assert!(run.contexts.len() < 64, "{} contexts are kept", run.contexts.len());
    }
}
