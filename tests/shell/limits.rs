//! Row 76: time, processes, memory and output have an end.

use std::fs;
use std::time::{Duration, Instant};

use agentouto::testing::TestCall;
use agentouto::{Tool as _, ToolErrorKind};
use serde_json::json;

use crate::child::{child, said};
use crate::support::{
    Folder, SOON, Tier, assert_gone_within_two_seconds, exec, output, processes_with, run, shells, unique_sleep, until,
};

#[tokio::test]
async fn fault_76_a_command_that_takes_too_long_is_ended_and_its_output_is_kept() {
    for (tier, _folder, shell) in shells("76", &Tier::ALL).await {
        let sleep = unique_sleep();
        let shell = shell.timeout(Duration::from_millis(1500));
        let error = run(&shell, &format!("echo begun; {sleep}")).await.unwrap_err();
        assert_eq!(error.kind, ToolErrorKind::Timeout, "{tier:?}");
        // The shell may say that its child was terminated.
        let expected = "timed out after 1.5s, and was ended. Its output until then:\nbegun\n";
        assert!(error.message.starts_with(expected), "{tier:?}: {}", error.message);
        assert_eq!(processes_with(&sleep), [0_i32; 0], "{tier:?}: the processes end before the call does");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_76_a_fork_bomb_ends() {
    for (tier, _folder, shell) in shells("76", &Tier::ALL).await {
        let sleep = unique_sleep();
        let begun = Instant::now();
        let result = run(&shell.max_processes(100), &format!("bomb() {{ bomb | bomb & {sleep}; }}; bomb; wait")).await;
        // Where the kernel has a limit of its own, the shell fails before the watch ends it.
        match result {
            Err(error) => assert!(error.message.contains("more than 100 processes"), "{tier:?}: {}", error.message),
            Ok(text) => assert!(text.contains("Exit code:"), "{tier:?}: {text}"),
        }
        let took = begun.elapsed();
        println!("{tier:?}: the bomb ended after {took:?}");
        assert!(took < SOON, "{tier:?}: {took:?}");
        assert_gone_within_two_seconds(&sleep, &format!("{tier:?}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_76_processes_that_use_too_much_memory_together_are_ended() {
    for (tier, _folder, shell) in shells("76", &Tier::ALL).await {
        let sleep = unique_sleep();
        let hold = "import sys,time; held = bytearray(24 << 20); held[::4096] = b'x' * len(held[::4096])";
        let command =
            format!("for i in 1 2 3 4 5 6; do python3 -c \"{hold}; time.sleep(1000)\" '{sleep}' & done; wait");
        let error = run(&shell.max_memory_bytes(100 << 20), &command).await.unwrap_err();
        assert!(error.message.contains("more than 104857600 bytes of memory"), "{tier:?}: {}", error.message);
        assert_gone_within_two_seconds(&sleep, &format!("{tier:?}"));
    }
}

#[tokio::test]
async fn fault_76_one_process_gets_no_more_data_than_the_limit() {
    for (tier, _folder, shell) in shells("76", &Tier::ALL).await {
        let text = output(&shell.max_memory_bytes(64 << 20), "python3 -c 'bytearray(1 << 30)' 2>&1 | tail -n 1").await;
        assert_eq!(text, "MemoryError\n", "{tier:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_76_endless_output_is_cut_and_the_file_has_an_end() {
    for (tier, folder, shell) in shells("76", &Tier::ALL).await {
        let before = resident();
        let shell = shell.timeout(Duration::from_secs(2)).max_kept_bytes(1 << 20);
        for endless in ["yes", "cat /dev/urandom", "head -c 10G /dev/zero"] {
            let error = run(&shell, endless).await.unwrap_err();
            assert_eq!(error.kind, ToolErrorKind::Timeout, "{tier:?} {endless}");
            assert!(error.message.len() < 65 * 1024, "{tier:?} {endless}: {} bytes", error.message.len());
            assert!(error.message.contains(" bytes left out …]"), "{tier:?} {endless}");
            let path = error.message.rsplit_once(" are in the file ").unwrap().1.split_once("; ").unwrap().0;
            let size = fs::metadata(folder.root().join(path)).unwrap().len();
            assert!((1 << 20) - 4 < size && size <= 1 << 20, "{tier:?} {endless}: {size}");
        }
        let grown = resident().saturating_sub(before);
        assert!(grown < 64 << 20, "{tier:?}: {grown} bytes more");
    }
}

fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test]
async fn fault_76_long_output_is_whole_in_a_file_beneath_the_root() {
    for (tier, folder, shell) in shells("76", &Tier::ALL).await {
        let shell = shell.max_output_bytes(1000);
        let text = output(&shell, "seq 1 2000; echo 'to errors' >&2").await;
        assert!(text.starts_with("1\n2\n3\n"), "{tier:?}: {text}");
        assert!(
            text.contains("\n1999\n2000\n\nSTDERR:\nto errors\n\n[all output is in the file .exec/"),
            "{tier:?}: {text}"
        );
        let path = text.rsplit_once("in the file ").unwrap().1.trim_end().trim_end_matches(']');
        let whole = fs::read_to_string(folder.root().join(path)).unwrap();
        let expected: String = (1..=2000).map(|number| format!("{number}\n")).collect();
        assert_eq!(whole.replace("to errors\n", ""), expected, "{tier:?}");
        // The model can go on with it, in the same sandbox.
        assert_eq!(output(&shell, &format!("tail -c 5 {path}")).await.len(), 5, "{tier:?}");
        for _ in 0..20 {
            output(&shell, "seq 1 2000").await;
        }
        let files = || {
            fs::read_dir(folder.root().join(".exec"))
                .map_or(0, |folder| folder.flatten().filter(|f| f.path().is_file()).count())
        };
        assert_eq!(files(), 16, "{tier:?}");
        drop(shell);
        // With the last handle, which the last command may hold for a moment.
        until("the removal of the files", || files() == 0).await;
    }
}

#[tokio::test]
async fn a_folder_for_long_output_that_a_command_replaced_by_a_symlink_is_not_followed() {
    for (tier, folder, shell) in shells("76", &Tier::ALL).await {
        let shell = shell.max_output_bytes(1024);
        let target = folder.outside("target");
        fs::create_dir(&target).unwrap();
        shell.detect().await.unwrap();
        let _ = fs::remove_dir_all(folder.root().join(".exec"));
        std::os::unix::fs::symlink(&target, folder.root().join(".exec")).unwrap();
        let result = run(&shell, "seq 1 2000").await;
        match (tier, result) {
            // Its temporary folder is there as well.
            (Tier::Landlock, Err(error)) => assert!(error.message.contains("could not run"), "{}", error.message),
            (Tier::Landlock, Ok(text)) => panic!("{text}"),
            (_, Ok(text)) => assert!(text.contains("[the output left out was dropped: "), "{tier:?}: {text}"),
            (_, Err(error)) => panic!("{tier:?}: {}", error.message),
        }
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0, "{tier:?}: nothing is written outside");
    }
}

#[tokio::test]
async fn output_is_reported_while_it_arrives_and_not_too_often() {
    for (tier, folder, shell) in shells("76", &Tier::ALL).await {
        let call = TestCall::new("test", "");
        let go = folder.root().join("go");
        let command = "echo first; while ! test -e go; do sleep 0.01; done; for i in $(seq 1 2000); do echo $i; done";
        let (tool, arguments) = (shell.exec(), json!({ "command": command }).as_object().unwrap().clone());
        let running = tokio::spawn({
            let context = call.context();
            async move { tool.call(arguments, context).await.map(|content| content.text.to_string()) }
        });
        until("the first report", || !call.progress().is_empty()).await;
        assert!(!running.is_finished(), "{tier:?}");
        assert_eq!(call.progress()[0].message.as_deref(), Some("first\n"), "{tier:?}");
        fs::write(&go, "").unwrap();
        let begun = Instant::now();
        running.await.unwrap().unwrap();
        let reports = call.progress();
        let most = 3 + begun.elapsed().as_millis() / 200;
        assert!(reports.len() as u128 <= most, "{tier:?}: {} reports", reports.len());
        assert!(reports.iter().all(|report| report.message.as_ref().unwrap().len() <= 2048), "{tier:?}");
        let last = reports.last().unwrap();
        assert!(last.message.as_ref().unwrap().ends_with("1999\n2000\n"), "{tier:?}: {last:?}");
        assert_eq!(last.done, (6 + (1..=2000).map(|i: u32| i.to_string().len() + 1).sum::<usize>()) as f64, "{tier:?}");
    }
}

#[tokio::test]
async fn a_command_that_cannot_be_one_is_an_error() {
    for (tier, _folder, shell) in shells("76", &Tier::ALL).await {
        let error = |command: String| {
            let arguments = json!({ "command": command }).as_object().unwrap().clone();
            assert!(shell.exec().check(&arguments).is_err(), "{tier:?}: it is refused before anyone is asked");
            let shell = shell.clone();
            async move { exec(&shell, json!({ "command": command })).await.unwrap_err().message }
        };
        assert_eq!(&*error("echo a\0b".to_owned()).await, "command contains a NUL character", "{tier:?}");
        let long = error("x".repeat(1 << 20)).await;
        assert!(long.starts_with("command has 1048576 bytes, at most 130048 are possible"), "{tier:?}: {long}");
        // The longest one runs.
        let longest = format!("echo done #{}", "x".repeat(130_048 - 11));
        assert_eq!(output(&shell, &longest).await, "done\n", "{tier:?}");
        assert_eq!(output(&shell, "--version").await.lines().last(), Some("Exit code: 127"), "{tier:?}: not an option");
    }
}

#[test]
fn a_service_without_file_descriptors_gets_an_error_and_goes_on() {
    let folder = Folder::new();
    println!("{}", said(child("child::has_no_file_descriptors").env("ROOT", folder.root())));
}
