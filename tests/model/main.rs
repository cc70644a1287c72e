//! A randomised model of the core: programs of agents, tools, actors, users, cancellations and shutdowns, drawn from
//! seeds and run on one thread and on several. After each, the same list must hold: one Return for each Forward, nothing
//! alive and nothing begun after the end, no hang.
//!
//! - `AGENTOUTO_PROGRAMS=100000` says how many programs are run, `AGENTOUTO_FIRST` from which seed on.
//! - `AGENTOUTO_SEED=17` prints and runs the program of one seed, `AGENTOUTO_TIMES` times on each kind of tokio runtime.
//! - `AGENTOUTO_ONLY=actors,cancel` and `AGENTOUTO_SKIP=actors` say what programs are made of, and `AGENTOUTO_SKIP` what
//!   is checked; `AGENTOUTO_ALSO` adds to the former; `parts.rs` has the names. The same seed gives another program then.
//! - `AGENTOUTO_WORKERS` says how many programs run at once (default: 4, because most of them wait most of the time), and
//!   `AGENTOUTO_SECONDS` after how long a program hangs (default: 20).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "these are tests")]

mod check;
mod draw;
mod parts;
mod process;
mod program;
mod rng;
mod run;
mod team;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::time::{Duration, Instant};

use parts::Parts;
use process::{LONGEST_IDLE, Process};
use run::Flavour;
use world::{World, lock, settles};

/// The longest that one program may take, in seconds.
const LONGEST_RUN: u64 = 20;
/// How many programs are run by default.
const PROGRAMS: u64 = 2_000;
/// The worlds that are alive still, or were when the last one was added.
static WORLDS: Mutex<Vec<(u64, Weak<World>)>> = Mutex::new(Vec::new());

#[test]
fn whatever_a_program_does_every_call_has_one_outcome_and_nothing_is_left() {
    process::silence_drawn_panics();
    let parts = Parts::from_env();
    // Tokio opens files with its first runtime that it keeps for good.
    drop(Flavour::MultiThread.build(None));
    let before = Process::now();
    let failure = match number("AGENTOUTO_SEED") {
        Some(seed) => {
            println!("{}", draw::program(seed, &parts));
            let times = number("AGENTOUTO_TIMES").unwrap_or(1);
            (0..times).find_map(|_| check(seed, &parts))
        }
        None => check_all(&parts),
    };
    assert!(failure.is_none(), "{}", failure.unwrap_or_default());
    let is_all_gone = settles(LONGEST_IDLE, || left().is_empty());
    assert!(is_all_gone, "the programs of these seeds left something that is alive still: {:?}", left());
    before.is_left_as_it_was();
}

/// The seeds of programs of which something is alive.
fn left() -> Vec<u64> {
    let mut worlds = lock(&WORLDS);
    worlds.retain(|(_, world)| world.strong_count() > 0);
    worlds.iter().map(|(seed, _)| *seed).collect()
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number, not `{text}`")))
}

/// Checks programs until one fails, several at once.
fn check_all(parts: &Parts) -> Option<String> {
    let first = number("AGENTOUTO_FIRST").unwrap_or(0);
    let end = first + number("AGENTOUTO_PROGRAMS").unwrap_or(PROGRAMS);
    let (next, failure, begun) = (AtomicU64::new(first), Mutex::new(None::<(u64, String)>), Instant::now());
    let resident = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..number("AGENTOUTO_WORKERS").unwrap_or(4) {
            scope.spawn(|| {
                while lock(&failure).is_none() {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= end {
                        break;
                    }
                    if seed == first + (end - first) / 2 {
                        *lock(&resident) = Some(Process::now());
                    }
                    if let Some(what) = check(seed, parts) {
                        let mut failure = lock(&failure);
                        if failure.as_ref().is_none_or(|(before, _)| seed < *before) {
                            *failure = Some((seed, what));
                        }
                    }
                }
            });
        }
    });
    let failure = lock(&failure).take();
    let count = next.load(Ordering::SeqCst).min(end) - first;
    println!("{count} programs from seed {first} on, each on one thread and on several, in {:?}", begun.elapsed());
    if let (None, Some(half)) = (&failure, &*lock(&resident)) {
        half.has_not_grown();
    }
    failure.map(|(seed, what)| format!("after {} programs: {what}", seed - first + 1))
}

/// Runs the program of a seed on both kinds of tokio runtime; gives an account of what is wrong.
fn check(seed: u64, parts: &Parts) -> Option<String> {
    let longest = Duration::from_secs(number("AGENTOUTO_SECONDS").unwrap_or(LONGEST_RUN));
    [Flavour::CurrentThread, Flavour::MultiThread].into_iter().find_map(|flavour| {
        let world = World::new(draw::program(seed, parts), parts.clone());
        left();
        lock(&WORLDS).push((seed, Arc::downgrade(&world)));
        let (end, ended) = mpsc::channel();
        let running = Arc::clone(&world);
        let thread = std::thread::spawn(move || {
            let _ = end.send(run::execute(&running, flavour));
        });
        let failures = match ended.recv_timeout(longest) {
            Ok(failures) => {
                let _ = thread.join();
                failures
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let mut failures = world.failures();
                failures.push(format!("HANG: not over after {longest:?}; {}", world.hang_report()));
                world.abandon();
                failures
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => vec!["the run itself panicked".to_owned()],
        };
        let again = format!("AGENTOUTO_SEED={seed} cargo test --test model");
        let list = || failures.iter().map(|failure| format!("- {failure}\n")).collect::<String>();
        (!failures.is_empty()).then(|| {
            format!("seed {seed} on {flavour:?}, with {parts:?}\n{}\n{}repeat it with: {again}", list(), world.program)
        })
    })
}
