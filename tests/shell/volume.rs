//! Row 81 and 82: many commands leave nothing behind.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::child::{child, said};
use crate::support::{
    Folder, SOON, Tier, assert_gone_within_two_seconds, output, own_zombies, processes_with, run, unique_sleep, until,
};

fn count(folder: &str) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// Waits until the file descriptors, threads and zombies are those of before.
async fn assert_nothing_is_left(tier: Tier, before: (usize, usize)) {
    let now = || (count("/proc/self/fd"), count("/proc/self/task"));
    let begun = Instant::now();
    let is_more = |(files, threads)| files > before.0 || threads > before.1;
    while is_more(now()) || !own_zombies().is_empty() {
        let state = format!("{tier:?}: {:?} instead of {before:?}, {:?}", now(), own_zombies());
        assert!(begun.elapsed() < SOON, "{state}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn fault_81_a_thousand_commands_in_sequence_and_two_hundred_at_once_leave_nothing() {
    for tier in Tier::ALL {
        let folder = Folder::new();
        let text = said(child("volume::runs_many").env("ROOT", folder.root()).env("TIER", format!("{tier:?}")));
        let line = text.lines().find(|line| line.contains("MANY")).unwrap_or_else(|| panic!("{text}"));
        println!("{line}");
    }
}

/// On one thread, and with a process of its own, whose children and files are counted.
#[tokio::test(flavor = "current_thread")]
#[ignore = "run by other tests"]
async fn runs_many() {
    let (tier, root) = (Tier::named(&std::env::var("TIER").unwrap()), std::env::var("ROOT").unwrap());
    let shell = tier.shell(root.as_ref());
    if let Err(error) = shell.detect().await {
        return println!("MANY row 81 does not run with {tier:?} on this machine: {error}");
    }
    output(&shell, ":").await;
    assert_nothing_is_left(tier, (usize::MAX, usize::MAX)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = (count("/proc/self/fd"), count("/proc/self/task"));
    let begun = Instant::now();
    for number in 0..1000 {
        // A process that is left behind holds the output open, and costs 100 ms where it has no namespace to end with.
        let left = if number % 20 == 0 { "sleep 100 &" } else { "" };
        assert_eq!(output(&shell, &format!("echo {number}; {left}")).await, format!("{number}\n"));
    }
    let in_sequence = begun.elapsed();
    assert_nothing_is_left(tier, before).await;
    let begun = Instant::now();
    let texts = join_all((0..200).map(|number| {
        let shell = shell.clone();
        async move { output(&shell, &format!("echo {number}; sleep 0.1")).await == format!("{number}\n") }
    }));
    assert!(texts.await.into_iter().all(|is_right| is_right));
    let at_once = begun.elapsed();
    assert_nothing_is_left(tier, before).await;
    // All are cancelled while they run.
    let sleep = unique_sleep();
    let shell = Arc::new(shell);
    let running: Vec<_> = (0..200)
        .map(|_| {
            let (shell, command) = (Arc::clone(&shell), format!("trap '' TERM; ({sleep} &); {sleep}"));
            tokio::spawn(async move { run(&shell, &command).await.map_err(|error| error.message) })
        })
        .collect();
    until("all processes", || processes_with(&sleep).len() >= 400).await;
    let begun = Instant::now();
    running.iter().for_each(tokio::task::JoinHandle::abort);
    assert!(join_all(running).await.iter().all(Result::is_err));
    assert_gone_within_two_seconds(&sleep, &format!("{tier:?}"));
    let gone = begun.elapsed();
    assert_nothing_is_left(tier, before).await;
    println!("MANY {tier:?}: 1000 in sequence {in_sequence:?}, 200 at once {at_once:?}, 200 cancelled {gone:?}");
}
