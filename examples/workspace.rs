//! An agent repairs a small project with the built-in tools: `cargo run --example workspace --features files,shell`
//!
//! The model follows a script, so no key is needed. Commands run in a sandbox: bubblewrap (`apt install bubblewrap`), or
//! Landlock on Linux 6.12 or later. Elsewhere the example says what is missing.

use std::error::Error;
use std::fs;
use std::time::Duration;

use agentouto::providers::scripted::Scripted;
use agentouto::tools::{Files, Shell};
use agentouto::{Agent, EventKind, Reply, Runtime};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A project with a failing test.
    let root = std::env::temp_dir().join(format!("workspace-{}", std::process::id()));
    fs::create_dir_all(&root)?;
    fs::write(root.join("add.sh"), "echo $(($1 - $2))\n")?;
    fs::write(
        root.join("test.sh"),
        "sum=$(sh add.sh 2 3)\n[ \"$sum\" = 5 ] && echo passed || echo \"2 + 3 is $sum\"\n",
    )?;

    let files = Files::beneath(&root)?;
    let shell = Shell::beneath(&root)?.timeout(Duration::from_secs(10));
    let test = || Reply::tool("exec", json!({"command": "sh test.sh"}));
    let edit = json!({"path": "add.sh", "old_text": "$1 - $2", "new_text": "$1 + $2"});
    let script = Scripted::new()
        .replies("engineer", [Reply::tool("list_dir", json!({"path": "."})), test()])
        .replies("engineer", [Reply::tool("read_file", json!({"path": "add.sh"})), Reply::tool("edit_file", edit)])
        .replies("engineer", [test(), Reply::finish("add.sh subtracted. It adds now, and the test passes.")]);
    let runtime = Runtime::builder()
        .provider("script", script)
        .agent(Agent::new("engineer", "Repair the project. Run its test before and after."))
        .tools(files.tools())
        .tools(shell.tools())
        .build()?;

    let mut call = runtime.user("user").forward("engineer", "The test fails.");
    while let Some(event) = call.next_event().await {
        match event.kind {
            EventKind::ToolStart { call } => println!("{} {}", call.name, call.arguments),
            EventKind::ToolEnd { output, .. } => println!("{}\n", output.text),
            _ => {}
        }
    }
    let report = call.await?;
    let repaired = fs::read_to_string(root.join("add.sh"))?;
    fs::remove_dir_all(&root)?;
    println!("{report}");
    match repaired.contains('+') {
        true => Ok(()),
        false => Err("the project is not repaired".into()),
    }
}
