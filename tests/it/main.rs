//! Everything that is tested through the public API, in one binary.

mod faults;
mod observers;
mod peers;
mod team;
mod tidy;
mod withdrawal;
