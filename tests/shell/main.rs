//! The tool `exec` against real processes, in every sandbox that this machine has.
#![cfg(target_os = "linux")]

mod child;
mod escapes;
mod faults;
mod limits;
mod support;
mod volume;
