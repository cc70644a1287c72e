//! The tools for files, against real files, directories, links, pipes, mounts and processes.

#![cfg(unix)]

mod cancellation;
mod conflicts;
mod editing;
mod failures;
mod listing;
mod paths;
#[cfg(target_os = "linux")]
mod races;
mod reading;
mod support;
mod tools;
mod writing;
