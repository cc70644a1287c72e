//! The processes of this machine, as `/proc` shows them: which belong to a command, and how much memory they use.
//!
//! Nothing here trusts a process id for longer than a moment: a signal goes through a pidfd to a process whose start
//! time is the one that was read.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The shortest time between two looks at all processes. One look uses at most a twentieth of a processor.
const INTERVAL: Duration = Duration::from_millis(200);
const SHARE: u32 = 20;

/// One process.
#[derive(Clone, Copy)]
pub(super) struct Process {
    pub(super) id: i32,
    pub(super) parent: i32,
    group: i32,
    /// It has ended, and its parent has not noticed yet.
    pub(super) is_zombie: bool,
    threads: usize,
    /// The time of its start, in ticks since boot. With the id it names a process for ever.
    started: u64,
}

impl Process {
    pub(super) fn read(id: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name, in parentheses, can have spaces and parentheses.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |field: usize| fields.get(field)?.parse().ok();
        Some(Self {
            id,
            parent: number(1)?,
            group: number(2)?,
            is_zombie: *fields.first()? == "Z",
            threads: fields.get(17)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }

    /// Sends a signal, if the process still exists.
    pub(super) fn signal(&self, signal: Signal) {
        let Some(id) = Pid::from_raw(self.id) else { return };
        let Ok(process) = pidfd_open(id, PidfdFlags::empty()) else { return };
        if Self::read(self.id).is_some_and(|now| now.started == self.started) {
            let _ = pidfd_send_signal(process, signal);
        }
    }

    /// Returns the bytes of memory that are no file's.
    fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id)).unwrap_or_default();
        let kibibytes = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
        let counted = |line: &&str| ["RssAnon:", "RssShmem:", "VmSwap:"].iter().any(|name| line.starts_with(name));
        status.lines().filter(counted).filter_map(kibibytes).sum::<u64>() * 1024
    }

    /// Returns whether the process started before another one.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        self.started < other.started
    }

    /// Returns whether the process was started with this text in its environment.
    pub(super) fn has_in_environment(&self, text: &str) -> bool {
        let environment = fs::read(format!("/proc/{}/environ", self.id)).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == text.as_bytes())
    }
}

/// All processes at one moment.
pub(super) struct Processes {
    all: Vec<Process>,
    /// The time at which the look at them began.
    pub(super) begun: Instant,
}

impl Processes {
    pub(super) fn read() -> io::Result<Self> {
        let begun = Instant::now();
        let ids = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        Ok(Self { all: ids.filter_map(Process::read).collect(), begun })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Process> {
        self.all.iter()
    }

    /// Returns the processes of a process group, with all their descendants.
    pub(super) fn of_group(&self, group: i32) -> Vec<Process> {
        let mut children: HashMap<i32, Vec<&Process>> = HashMap::new();
        let mut found: HashMap<i32, Process> = HashMap::new();
        for process in &self.all {
            children.entry(process.parent).or_default().push(process);
            if process.group == group {
                found.insert(process.id, *process);
            }
        }
        let mut new: Vec<i32> = found.keys().copied().collect();
        while let Some(parent) = new.pop() {
            for child in children.get(&parent).into_iter().flatten() {
                if found.insert(child.id, **child).is_none() {
                    new.push(child.id);
                }
            }
        }
        found.into_values().collect()
    }

    /// Returns the number of processes and threads of a group with its descendants, and what gives their memory in
    /// bytes.
    pub(super) fn usage(&self, group: i32) -> (usize, impl FnOnce() -> u64) {
        let processes = self.of_group(group);
        let count = processes.iter().map(|process| process.threads).sum();
        (count, move || processes.iter().map(Process::memory).sum())
    }
}

/// The most descendants that are looked for. A command that forks all the time has ever more.
const MAX_DESCENDANTS: usize = 256;

/// Returns the children of a process, and theirs. Reads nothing but these. Empty on a kernel without the files that
/// list children.
pub(super) fn descendants(id: i32) -> Vec<Process> {
    let mut found: Vec<Process> = children(id);
    let mut next = 0;
    while let Some(process) = found.get(next).filter(|_| next < MAX_DESCENDANTS) {
        found.extend(children(process.id));
        next += 1;
    }
    found
}

fn children(id: i32) -> Vec<Process> {
    let Ok(threads) = fs::read_dir(format!("/proc/{id}/task")) else { return Vec::new() };
    let lists = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let ids: Vec<i32> =
        lists.flat_map(|list| list.split_whitespace().flat_map(str::parse).collect::<Vec<_>>()).collect();
    ids.into_iter().filter_map(Process::read).collect()
}

/// Returns the number of all processes and threads of this machine, at next to no cost.
pub(super) fn total() -> usize {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let tasks = text.split_whitespace().nth(3).and_then(|tasks| tasks.split_once('/')?.1.parse().ok());
    tasks.unwrap_or_default()
}

/// A look at all processes that running commands share.
#[derive(Default)]
pub(super) struct SharedProcesses(Mutex<Option<Look>>);

struct Look {
    processes: Arc<Processes>,
    valid_until: Instant,
}

impl SharedProcesses {
    /// Returns all processes, as they were a moment ago, and the time until a newer look is possible.
    pub(super) fn recent(&self) -> io::Result<(Arc<Processes>, Duration)> {
        let now = Instant::now();
        let look = self.look_if(|last| last.valid_until <= now)?;
        Ok((look.0, look.1.saturating_duration_since(now)))
    }

    /// Returns all processes, as they were at this time or later.
    pub(super) fn since(&self, time: Instant) -> io::Result<Arc<Processes>> {
        self.look_if(|last| last.processes.begun < time).map(|look| look.0)
    }

    fn look_if(&self, is_old: impl FnOnce(&Look) -> bool) -> io::Result<(Arc<Processes>, Instant)> {
        let mut last = self.0.lock();
        if let Some(look) = last.as_ref()
            && !is_old(look)
        {
            return Ok((Arc::clone(&look.processes), look.valid_until));
        }
        let processes = Arc::new(Processes::read()?);
        let valid_until = Instant::now() + INTERVAL.max(processes.begun.elapsed() * SHARE);
        *last = Some(Look { processes: Arc::clone(&processes), valid_until });
        Ok((processes, valid_until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn fault_82_a_process_that_took_over_an_id_gets_no_signal() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let now = Process::read(child.id().cast_signed()).unwrap();
        let before = Process { started: now.started - 1, ..now };
        before.signal(Signal::KILL);
        assert_eq!(child.try_wait().unwrap(), None);
        now.signal(Signal::KILL);
        assert!(!child.wait().unwrap().success());
        // One that has ended gets none either.
        now.signal(Signal::KILL);
    }

    #[test]
    fn a_group_has_its_descendants_in_other_groups() {
        use std::os::unix::process::CommandExt as _;
        let mut leader = Command::new("sh");
        leader.args(["-c", "setsid sleep 1000 & wait"]).process_group(0);
        let mut leader = leader.spawn().unwrap();
        let group = leader.id().cast_signed();
        let members = loop {
            let members = Processes::read().unwrap().of_group(group);
            if members.iter().any(|process| process.group != group) {
                break members;
            }
        };
        assert_eq!(members.len(), 2);
        members.iter().for_each(|process| process.signal(Signal::KILL));
        leader.wait().unwrap();
    }
}
