//! Tests that need a process of their own: this binary again, with one of the functions below.

use std::process::{Command, Output};

use agentouto::tools::Shell;

use crate::support::{Tier, output, run};

/// A command that runs one of the ignored tests of this binary, which are not tests by themselves.
pub(crate) fn child(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command
}

/// Runs the child, which must succeed, and returns all that it said.
pub(crate) fn said(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{text}");
    text
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("${name} is not set"))
}

/// Runs the command `$COMMAND` in the sandbox `$TIER` beneath `$ROOT`, and says what came of it.
#[tokio::test]
#[ignore = "run by other tests"]
async fn runs_a_command() {
    let shell = Tier::named(&variable("TIER")).shell(variable("ROOT").as_ref());
    match run(&shell, &variable("COMMAND")).await {
        Ok(text) => println!("OK[{text}]"),
        Err(error) => println!("ERROR[{}]", error.message),
    }
}

/// Says which sandbox is the best.
#[tokio::test]
#[ignore = "run by other tests"]
async fn detects_the_best() {
    let shell = Shell::beneath(variable("ROOT")).unwrap();
    match shell.detect().await {
        Ok(sandbox) => println!("SANDBOX[{sandbox:?}] {}", output(&shell, "echo it works").await),
        Err(error) => println!("ERROR[{error}]"),
    }
}

/// Has no Landlock, and says which sandbox is the best.
#[tokio::test]
#[ignore = "run by other tests"]
async fn detects_the_best_without_landlock() {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    let rules = [(libc::SYS_landlock_create_ruleset, vec![])].into_iter().collect();
    let refuse = SeccompAction::Errno(libc::EOPNOTSUPP.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter: BpfProgram = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap().try_into().unwrap();
    seccompiler::apply_filter_all_threads(&filter).unwrap();
    let shell = Shell::beneath(variable("ROOT")).unwrap();
    println!("ERROR[{}]", shell.detect().await.unwrap_err());
    let error = run(&shell, "echo it ran").await.unwrap_err();
    println!("CALL[{}]", error.message);
}

/// Has a file open that its children inherit, and runs a command in each sandbox.
#[tokio::test]
#[ignore = "run by other tests"]
async fn has_a_file_without_cloexec() {
    let secret = std::fs::File::open(variable("SECRET")).unwrap();
    rustix::io::fcntl_setfd(&secret, rustix::io::FdFlags::empty()).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&secret);
    let bare = Command::new("cat").arg(format!("/proc/self/fd/{number}")).output().unwrap();
    println!("BARE[{}]", String::from_utf8_lossy(&bare.stdout));
    for tier in Tier::ALL {
        let shell = tier.shell(variable("ROOT").as_ref());
        if shell.detect().await.is_ok() {
            let command = format!("bash -c 'cat <&{number}'; cat /proc/self/fd/{number}; ls /proc/self/fd");
            println!("{tier:?}[{}]", output(&shell, &command).await);
        }
    }
}

/// Runs out of file descriptors, and then has them again.
#[tokio::test]
#[ignore = "run by other tests"]
async fn has_no_file_descriptors() {
    for tier in Tier::ALL {
        let shell = tier.shell(variable("ROOT").as_ref());
        if shell.detect().await.is_err() {
            continue;
        }
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let low = rustix::process::Rlimit { current: Some(64), ..limit };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, low).unwrap();
        for free in 0..24 {
            let mut open: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
            open.truncate(open.len() - free);
            let result = run(&shell, "echo done").await;
            drop(open);
            match result {
                Ok(text) => assert_eq!(text, "done\n"),
                Err(error) => assert!(error.message.contains("Too many open files"), "{free} free: {}", error.message),
            }
        }
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
        assert_eq!(output(&shell, "echo done").await, "done\n");
        println!("{tier:?} recovered");
    }
}
