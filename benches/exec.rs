//! The cost of `exec` beside `bwrap` by hand: `cargo bench --bench exec`
//!
//! The command does nothing. `bwrap` gets the arguments that the tool gives it, without its limits and its filter of
//! system calls, and is started as a program would start it. The two take turns, so that both see the same machine. The
//! ratio of the medians is printed; the target is at most 1.2. The other ways to run a command are printed beside it.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agentouto::tools::Shell;
use agentouto::tools::shell::Sandbox;
use agentouto::{Tool as _, ToolContext};
use serde_json::json;

/// The number of commands of each kind.
const COMMANDS: usize = 300;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("agentouto-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let folder = folder.canonicalize()?;
    let tokio = tokio::runtime::Builder::new_current_thread().build()?;
    let shell = Shell::beneath(&folder)?;
    let kinds = [
        ("bubblewrap", shell.clone().sandbox(Sandbox::Bubblewrap)),
        ("Landlock", shell.clone().sandbox(Sandbox::Landlock)),
        ("no sandbox", shell.without_sandbox()),
    ];
    let by_hand = arguments(&folder);
    for (name, shell) in &kinds {
        if let Err(error) = tokio.block_on(shell.detect()) {
            println!("{name}: not on this machine: {error}");
            continue;
        }
        let (mut tool, mut hand, mut bare) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..COMMANDS {
            tool.push(time(|| tokio.block_on(exec(shell)))?);
            bare.push(time(|| run(Command::new("/bin/sh").args(["-c", ":"])))?);
            if *name == "bubblewrap" {
                hand.push(time(|| run(Command::new("bwrap").args(&by_hand)))?);
            }
        }
        let (tool, bare) = (median(tool), median(bare));
        print!("{name}: exec {tool:?}, `sh -c :` {bare:?}");
        if !hand.is_empty() {
            let hand = median(hand);
            print!(", bwrap by hand {hand:?}, ratio {:.2}", tool.as_secs_f64() / hand.as_secs_f64());
        }
        println!();
    }
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

async fn exec(shell: &Shell) -> Result<(), Box<dyn std::error::Error>> {
    let arguments = json!({"command": ":"}).as_object().cloned().unwrap_or_default();
    let content =
        shell.exec().call(arguments, ToolContext::for_test()).await.map_err(|error| error.message.to_string())?;
    assert_eq!(&*content.text, "(no output)");
    Ok(())
}

fn run(command: &mut Command) -> Result<(), Box<dyn std::error::Error>> {
    let output = command.env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null()).output()?;
    assert!(output.status.success(), "{output:?}");
    Ok(())
}

/// The arguments of the tool, as a running command shows them.
fn arguments(folder: &std::path::Path) -> Vec<String> {
    let show = "tr '\\0' '\\n' < /proc/1/cmdline";
    let shell = match Shell::beneath(folder) {
        Ok(shell) => shell.sandbox(Sandbox::Bubblewrap),
        Err(_) => return Vec::new(),
    };
    let Ok(tokio) = tokio::runtime::Builder::new_current_thread().build() else { return Vec::new() };
    let arguments = json!({ "command": show }).as_object().cloned().unwrap_or_default();
    let Ok(shown) = tokio.block_on(shell.exec().call(arguments, ToolContext::for_test())) else { return Vec::new() };
    let mut by_hand: Vec<String> =
        shown.text.lines().skip(1).take_while(|argument| *argument != "/bin/sh").map(str::to_owned).collect();
    if let Some(place) = by_hand.iter().position(|argument| argument == "--seccomp") {
        by_hand.drain(place..place + 2);
    }
    by_hand.extend(["/bin/sh", "-c", ":"].map(str::to_owned));
    by_hand
}

fn time(work: impl FnOnce() -> Result<(), Box<dyn std::error::Error>>) -> Result<Duration, Box<dyn std::error::Error>> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
