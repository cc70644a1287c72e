//! Rows 77 to 89: the ends of commands, what they inherit, and where they run.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agentouto::Tool as _;
use agentouto::tools::Shell;
use serde_json::json;

use crate::child::{child, said};
use crate::support::{
    Folder, SOON, Tier, Victim, assert_gone_within_two_seconds, exec, output, processes_with, run, shells,
    unique_sleep, until,
};

#[tokio::test]
async fn fault_77_a_process_that_is_left_behind_holds_nothing_up() {
    for (tier, _folder, shell) in shells("77", &Tier::ALL).await {
        let sleep = unique_sleep();
        let begun = Instant::now();
        assert_eq!(output(&shell, &format!("echo begun; {sleep} & exit 0")).await, "begun\n", "{tier:?}");
        assert!(begun.elapsed() < SOON, "{tier:?}: the call does not wait for it");
        assert_gone_within_two_seconds(&sleep, &format!("{tier:?}"));
    }
}

/// Ways to outlive a shell.
fn escapes(sleep: &str) -> [String; 7] {
    let daemon = "import os,sys\nif os.fork(): os._exit(0)\ntry: os.setsid()\nexcept OSError: pass\nif os.fork(): os._exit(0)\n\
                  try: os.setpgid(0, 0)\nexcept OSError: pass\nos.closerange(0, 100)\nos.execvp('sleep', sys.argv[1:])";
    [
        format!("{sleep} &"),
        format!("nohup {sleep} > /dev/null 2>&1 &"),
        format!("( ( {sleep} & ) & )"),
        format!("setsid {sleep} > /dev/null 2>&1 < /dev/null &"),
        format!("setsid -f {sleep} > /dev/null 2>&1 < /dev/null"),
        format!("python3 -c \"{daemon}\" {sleep}"),
        format!("bash -c 'set -m; {sleep} & disown' 2> /dev/null"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_78_no_process_outlives_the_call() {
    for (tier, _folder, shell) in shells("78", &Tier::ALL).await {
        for number in 0..escapes("").len() {
            let sleep = unique_sleep();
            let escape = &escapes(&sleep)[number];
            // Until it runs, unless the sandbox stops it.
            output(&shell, &format!("{escape}\nsleep 0.2")).await;
            assert_gone_within_two_seconds(&sleep, &format!("{tier:?} {escape}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_78_processes_that_fork_while_they_are_killed_end() {
    for (tier, folder, shell) in shells("78", &Tier::ALL).await {
        let sleep = unique_sleep();
        let command = format!("touch begun; while :; do ( ({sleep} &) & ); done");
        let running = tokio::spawn(async move { run(&shell, &command).await });
        until("the begin", || folder.root().join("begun").exists()).await;
        until("some processes", || processes_with(&sleep).len() > 20).await;
        running.abort();
        let _ = running.await;
        assert_gone_within_two_seconds(&sleep, &format!("{tier:?}"));
    }
}

#[tokio::test]
async fn fault_79_a_process_that_ignores_sigterm_is_killed_and_one_that_does_not_may_end_itself() {
    for (tier, _folder, shell) in shells("79", &Tier::ALL).await {
        let shell = shell.timeout(Duration::from_secs(2));
        let sleep = unique_sleep();
        let begun = Instant::now();
        let command = format!("trap '' TERM HUP INT; {sleep}; {sleep}");
        let error = run(&shell, &command).await.unwrap_err();
        assert!(begun.elapsed() >= Duration::from_millis(2500), "{tier:?}: it had half a second");
        assert!(error.message.starts_with("timed out"), "{tier:?}: {}", error.message);
        assert_eq!(processes_with(&sleep), [0_i32; 0], "{tier:?}");
        let error = run(&shell, &format!("trap 'echo cleaned up; exit' TERM; {sleep} & wait")).await.unwrap_err();
        assert!(error.message.ends_with("\ncleaned up\n"), "{tier:?}: {}", error.message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_80_a_cancelled_command_is_gone_within_two_seconds() {
    for (tier, folder, shell) in shells("80", &Tier::ALL).await {
        let sleep = unique_sleep();
        let command = format!("trap '' TERM; touch begun; ({sleep} & ) ; {sleep}");
        let running = tokio::spawn(async move { run(&shell, &command).await });
        until("the begin", || folder.root().join("begun").exists()).await;
        until("both processes", || processes_with(&sleep).len() >= 2).await;
        let begun = Instant::now();
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        assert!(begun.elapsed() < Duration::from_millis(500), "{tier:?}: the cancellation waits for nothing");
        assert_gone_within_two_seconds(&sleep, &format!("{tier:?}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_80_a_command_can_be_cancelled_at_any_moment() {
    for (tier, _folder, shell) in shells("80", &Tier::ALL).await {
        let sleep = unique_sleep();
        for step in 0..60 {
            let moment = Duration::from_micros(step * 300);
            let _ = tokio::time::timeout(moment, run(&shell, &format!("{sleep} & {sleep}"))).await;
        }
        assert_gone_within_two_seconds(&sleep, &format!("{tier:?}"));
        assert_eq!(output(&shell, "echo fine").await, "fine\n", "{tier:?}");
    }
}

#[tokio::test]
async fn fault_80_the_end_of_the_async_runtime_ends_the_command() {
    for (tier, folder, shell) in shells("80", &Tier::ALL).await {
        let sleep = unique_sleep();
        let own = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let command = format!("touch begun; {sleep}");
        own.spawn(async move { run(&shell, &command).await });
        until("the begin", || folder.root().join("begun").exists()).await;
        own.shutdown_background();
        assert_gone_within_two_seconds(&sleep, &format!("{tier:?}"));
    }
}

#[tokio::test]
async fn fault_80_a_service_that_is_killed_takes_its_commands_with_it() {
    for (tier, folder, _shell) in shells("80", &Tier::ALL).await {
        let sleep = unique_sleep();
        let mut service = child("child::runs_a_command");
        let command = format!("trap '' TERM HUP; touch begun; ({sleep} & ); {sleep}");
        service.env("ROOT", folder.root()).env("TIER", format!("{tier:?}")).env("COMMAND", command);
        let mut service = service.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("the begin", || folder.root().join("begun").exists()).await;
        service.kill().unwrap();
        service.wait().unwrap();
        assert_gone_within_two_seconds(&sleep, &format!("{tier:?}"));
    }
}

#[tokio::test]
async fn fault_80_a_service_that_is_killed_at_any_moment_takes_its_commands_with_it() {
    for (tier, folder, _shell) in shells("80", &Tier::ALL).await {
        let sleep = unique_sleep();
        for step in 0..40 {
            let mut service = child("child::runs_a_command");
            let command = format!("trap '' TERM HUP; ({sleep} & ); {sleep}");
            service.env("ROOT", folder.root()).env("TIER", format!("{tier:?}")).env("COMMAND", command);
            let mut service = service.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(step * 2));
            service.kill().unwrap();
            service.wait().unwrap();
        }
        assert_gone_within_two_seconds(&sleep, &format!("{tier:?}"));
        // Also the one that tries the sandbox.
        assert_gone_within_two_seconds(&format!("{}", folder.root().display()), &format!("{tier:?}"));
    }
}

#[tokio::test]
async fn fault_83_no_way_to_write_a_command_leads_out_of_the_sandbox() {
    for (tier, folder, shell) in shells("83", &Tier::SANDBOXES).await {
        let outside = folder.outside("outside");
        fs::write(&outside, "as it was").unwrap();
        let path = outside.display();
        fs::write(folder.root().join("pager"), format!("#!/bin/sh\nrm -f {path}; echo x > {path}\n")).unwrap();
        for command in [
            format!("true && rm {path}"),
            format!("true; rm -f {path}"),
            format!("echo $(rm -f {path})"),
            format!("echo `echo x > {path}`"),
            format!("sh <<'END'\necho x > {path}\nEND"),
            format!("true # comment\nrm -f {path}"),
            format!("echo 'rm -f {path}' | sh"),
            format!("env X=1 sh -c 'echo x > {path}'"),
            "git -c core.pager='sh ./pager' -p help -a; sh ./pager".to_owned(),
            format!("ln {path} hard; echo x >> hard; ln -s {path} soft; echo x >> soft; cp soft copy; mv {path} moved"),
            format!(
                "python3 -c \"open('{path}', 'a').write('x')\"; truncate -s 0 {path}; dd if=/dev/zero of={path} count=1"
            ),
        ] {
            let _ = run(&shell, &command).await;
            assert_eq!(fs::read_to_string(&outside).unwrap(), "as it was", "{tier:?} {command}");
        }
    }
}

#[tokio::test]
async fn fault_84_the_keys_of_the_service_are_out_of_reach() {
    const KEY: &str = "sk-canary-84-0123456789";
    for (tier, folder, _shell) in shells("84", &Tier::ALL).await {
        let find = "env; cat /proc/*/environ /proc/*/task/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -a KEY";
        let mut service = child("child::runs_a_command");
        service.env("ROOT", folder.root()).env("TIER", format!("{tier:?}")).env("OPENAI_API_KEY", KEY);
        // Without a sandbox a process can read the environment of every process of the user.
        let find = if tier == Tier::Without { "env" } else { find };
        let text = said(service.env("COMMAND", find));
        assert!(text.contains("OK[") && text.contains("PATH=/usr/local/sbin:"), "{tier:?}: {text}");
        assert!(!text.contains("canary"), "{tier:?}: {text}");
    }
}

#[tokio::test]
async fn fault_84_the_environment_is_what_the_program_says() {
    for (tier, _folder, shell) in shells("84", &Tier::SANDBOXES).await {
        let shell = shell.environment("TOKEN", "s3cr3t 'quoted'").environment("HOME", "/usr");
        let text = output(&shell, "env | sort | cut -d= -f1; echo \"$TOKEN $HOME\"").await;
        assert_eq!(text, "HOME\nLANG\nPATH\nPWD\nTERM\nTMPDIR\nTOKEN\ns3cr3t 'quoted' /usr\n", "{tier:?}");
        assert!(!format!("{shell:?} {:?}", shell.exec()).contains("s3cr3t"), "{tier:?}");
        assert!(format!("{shell:?}").contains("TOKEN"), "{tier:?}");
    }
    // No other user reads it in the list of processes.
    for (tier, folder, shell) in shells("84", &Tier::ALL).await {
        let shell = shell.environment("TOKEN", "s3cr3t-in-no-argument");
        let running = tokio::spawn(async move { run(&shell, "touch begun; sleep 1000").await });
        until("the begin", || folder.root().join("begun").exists()).await;
        assert_eq!(processes_with("s3cr3t-in-no-argument"), [0_i32; 0], "{tier:?}");
        running.abort();
    }
}

#[tokio::test]
async fn fault_86_without_a_sandbox_nothing_runs_and_the_error_has_the_fix() {
    let folder = Folder::new();
    let (root, programs) = (folder.root(), folder.outside("programs"));
    fs::create_dir(&programs).unwrap();
    // The words of bubblewrap where AppArmor refuses user namespaces.
    let refusing = "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n";
    fs::write(programs.join("bwrap"), refusing).unwrap();
    fs::set_permissions(programs.join("bwrap"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let best = |name: &str, path: &str| said(child(name).env("ROOT", &root).env("PATH", path));
    let refusing = programs.to_str().unwrap();
    if shells("86", &[Tier::Landlock]).await.is_empty() {
        return;
    }
    for path in ["/nowhere", refusing] {
        let text = best("child::detects_the_best", path);
        assert!(text.contains("SANDBOX[Some(Landlock)] it works"), "{path}: {text}");
    }
    let neither = best("child::detects_the_best_without_landlock", "/nowhere");
    let expected = "commands need a sandbox, and none works here. bubblewrap does not work (there is no program `bwrap` in \
                    `PATH`). To fix it: install bubblewrap 0.8 or later (Debian and Ubuntu: `apt-get install bubblewrap`).";
    assert!(neither.contains(&format!("ERROR[{expected}")), "{neither}");
    assert!(
        neither.contains("Or: Landlock does not work (") && neither.contains("use Linux 6.12 or later"),
        "{neither}"
    );
    assert!(neither.contains(&format!("CALL[{expected}")) && !neither.contains("it ran"), "{neither}");
    let refused = best("child::detects_the_best_without_landlock", refusing);
    assert!(
        refused.contains("(STDERR:; bwrap: setting up") || refused.contains("(bwrap: setting up uid map"),
        "{refused}"
    );
    assert!(refused.contains("To fix it: "), "{refused}");
}

#[tokio::test]
async fn fault_86_the_description_says_whether_there_is_a_sandbox() {
    let folder = Folder::new();
    let describe = |shell: Shell| shell.exec().spec().description.to_string();
    let shell = || Shell::beneath(folder.root()).unwrap();
    assert!(describe(shell()).contains("runs in a sandbox: it has no network"));
    assert!(describe(shell().allow_network()).contains("runs in a sandbox: it can use the network"));
    assert!(describe(shell().without_sandbox()).contains("without a sandbox, with all rights of this program"));
    let spec = shell().exec().spec();
    assert_eq!((&*spec.name, &spec.parameters["required"]), ("exec", &json!(["command"])));
}

#[tokio::test]
async fn fault_87_there_is_no_input_and_no_terminal() {
    for (tier, folder, shell) in shells("87", &Tier::ALL).await {
        let text = output(&shell, "cat; read line; echo \"read: $?\"; test -t 0 || test -t 1 || echo none; tty").await;
        assert_eq!(text, "read: 1\nnone\nnot a tty\n\n\nExit code: 1", "{tier:?}");
        if tier == Tier::Without {
            continue;
        }
        // The service has a terminal, and the command tries to type into it.
        let type_in = "import fcntl\ntry:\n t = open('/dev/tty', 'r+b', buffering=0); t.write(b'SHOWN'); print('opened', t.read(1))\n \
                       for c in b'x': fcntl.ioctl(t, 0x5412, bytes([c]))\nexcept OSError as e: print('refused', e.errno)";
        fs::write(folder.root().join("type.py"), type_in).unwrap();
        let service = child("child::runs_a_command");
        let line = format!(
            "{:?} {}",
            service.get_program(),
            service.get_args().map(|a| a.to_str().unwrap()).collect::<Vec<_>>().join(" ")
        );
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null());
        terminal.env("ROOT", folder.root()).env("TIER", format!("{tier:?}")).env("COMMAND", "python3 type.py");
        let text = said(&mut terminal);
        assert!(text.contains("refused") && !text.contains("SHOWN"), "{tier:?}: {text}");
    }
}

#[tokio::test]
async fn fault_88_escapes_and_invalid_text_do_not_reach_the_model() {
    for (tier, _folder, shell) in shells("88", &Tier::ALL).await {
        let command =
            r"printf '\033[31mred\033[0m \033]0;title\007a\377b\0c\r\n'; printf '\033[2Jgone\342\200\256x\n' >&2";
        assert_eq!(output(&shell, command).await, "red a\\xffb\\x00c\n\nSTDERR:\ngone\\u{202e}x\n", "{tier:?}");
    }
}

#[tokio::test]
async fn fault_89_a_working_dir_is_beneath_the_root_or_an_error() {
    for (tier, folder, shell) in shells("89", &Tier::ALL).await {
        let root = folder.root();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(folder.outside("root-evil")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        symlink("a/b", root.join("inside")).unwrap();
        symlink(folder.outside("root-evil"), root.join("out")).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let pwd = async |working_dir: &str| {
            let result = exec(&shell, json!({"command": "pwd -P", "working_dir": working_dir})).await;
            result.map_err(|error| error.message.to_string())
        };
        let real = root.canonicalize().unwrap();
        for (working_dir, expected) in
            [("", ""), (".", ""), ("a", "a"), ("a/../a/b", "a/b"), ("inside", "a/b"), ("./a/", "a")]
        {
            let expected = format!("{}\n", real.join(expected).components().collect::<std::path::PathBuf>().display());
            assert_eq!(pwd(working_dir).await, Ok(expected), "{tier:?} {working_dir}");
        }
        let absolute = real.join("a/b");
        for (working_dir, expected) in [
            ("..", "it leads out of the root"),
            ("a/../../root-evil", "it leads out of the root"),
            ("out", "it leads out of the root"),
            ("up/root-evil", "it leads out of the root"),
            ("missing", "there is no such folder"),
            ("file", "it is not a folder"),
            ("~", "there is no such folder"),
            ("a\0b", "contains a NUL character"),
            ("/", "absolute paths are refused; use a path relative to the root"),
            ("/etc", "absolute paths are refused; use a path relative to the root"),
            (absolute.to_str().unwrap(), "absolute paths are refused; use \"a/b\""),
            (real.to_str().unwrap(), "absolute paths are refused; use \".\""),
            (&format!("{}-evil", real.display()), "absolute paths are refused; use a path relative to the root"),
        ] {
            assert_eq!(pwd(working_dir).await, Err(format!("working_dir {working_dir:?}: {expected}")), "{tier:?}");
        }
        for refused in ["loop", &"x".repeat(4096)] {
            assert!(pwd(refused).await.unwrap_err().starts_with("working_dir \""), "{tier:?}");
        }
        // The root is replaced while it is in use, and then gone.
        fs::rename(&root, folder.outside("moved")).unwrap();
        assert!(pwd("").await.unwrap_err().contains("was deleted or replaced"), "{tier:?}");
        fs::create_dir(&root).unwrap();
        assert!(pwd("").await.unwrap_err().contains("was deleted or replaced"), "{tier:?}");
    }
}

#[test]
fn fault_89_a_root_must_be_a_folder_of_its_own() {
    let folder = Folder::new();
    fs::write(folder.outside("file"), "").unwrap();
    for (root, expected) in
        [("missing", "No such file"), ("file", "Not a directory"), ("/", "choose a folder of its own")]
    {
        let error = Shell::beneath(folder.outside(root)).unwrap_err().to_string();
        assert!(error.contains(expected), "{root}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_89_a_working_dir_that_is_exchanged_all_the_time_leads_nowhere_else() {
    for (tier, folder, shell) in shells("89", &Tier::SANDBOXES).await {
        let (root, outside) = (folder.root(), folder.outside("outside"));
        fs::create_dir(&outside).unwrap();
        fs::create_dir(root.join("real")).unwrap();
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let exchange = std::thread::spawn({
            let (stop, root, outside) = (stop.clone(), root.clone(), outside.clone());
            move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let (dir, link) = (root.join("dir"), root.join("link"));
                    let _ = fs::rename(root.join("real"), &dir);
                    let _ = fs::rename(&dir, root.join("real"));
                    let _ = symlink(&outside, &link);
                    let _ = fs::rename(&link, &dir);
                    let _ = fs::remove_file(&dir);
                }
            }
        });
        for _ in 0..40 {
            let _ = exec(&shell, json!({"command": "touch here", "working_dir": "dir"})).await;
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        exchange.join().unwrap();
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{tier:?}");
    }
}

/// The same rows for a service that does not run as root, where this one does.
#[tokio::test]
async fn a_service_without_root_has_the_same_sandboxes() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    for tier in Tier::SANDBOXES {
        let folder = Folder::new();
        std::os::unix::fs::chown(folder.root(), Some(65534), Some(65534)).unwrap();
        fs::set_permissions(folder.outside(""), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let binary = folder.outside("service");
        fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
        let service = |command: &str| {
            let mut service = Command::new(&binary);
            service.args(["child::runs_a_command", "--exact", "--ignored", "--nocapture"]).uid(65534).gid(65534);
            service.env("ROOT", folder.root()).env("TIER", format!("{tier:?}")).env("COMMAND", command);
            said(service.current_dir("/"))
        };
        let text = service("id -u; touch x && echo wrote; touch /usr/x; cat /etc/shadow; grep -c . /proc/cpuinfo");
        if text.contains("ERROR[commands need a sandbox") {
            println!("row 86 does not run with {tier:?} without root on this machine: {text}");
            continue;
        }
        assert!(text.contains("OK[65534\nwrote\n"), "{tier:?}: {text}");
        assert!(!text.contains("root:"), "{tier:?}: {text}");
        // All processes that it may signal: those of the sandbox.
        let victim = unique_sleep();
        let other = Command::new("sh").args(["-c", &format!("exec {victim}")]).uid(65534).gid(65534).spawn();
        let mut other = Victim(other.unwrap());
        service("kill -9 -1; echo survived");
        assert_eq!(other.0.try_wait().unwrap(), None, "{tier:?}: another process of the user lives on");
        let text = service("bomb() { bomb | bomb & sleep 100; }; bomb; wait");
        assert!(
            text.contains("ERROR[the command was ended: more than 512") || text.contains("fork"),
            "{tier:?}: {text}"
        );
    }
}
