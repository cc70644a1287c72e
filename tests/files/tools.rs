//! The tools as agents and programs see them.

use std::time::Duration;

use agentouto::providers::scripted::Scripted;
use agentouto::{Agent as Model, ChatMessage, Reply, Request, Runtime, Tool, ToolExt as _};
use serde_json::{Value, json};

use crate::support::{Agent, Folder};

#[test]
fn the_names_and_parameters_are_those_of_the_assistant() {
    let folder = Folder::new();
    let files = folder.files();
    let specs: Vec<_> = files.tools().iter().map(Tool::spec).collect();
    let parameters = |spec: &agentouto::ToolSpec| {
        let properties: Vec<String> = spec.parameters["properties"].as_object().unwrap().keys().cloned().collect();
        (spec.name.to_string(), properties.join(" "), spec.parameters["required"].clone())
    };
    let expected = [
        ("read_file", "path offset limit", json!(["path"])),
        ("write_file", "path content", json!(["path", "content"])),
        ("edit_file", "path old_text new_text", json!(["path", "old_text", "new_text"])),
        ("list_dir", "path offset limit", json!(["path"])),
    ];
    let expected = expected.map(|(name, properties, required)| (name.to_owned(), properties.to_owned(), required));
    assert_eq!(specs.iter().map(parameters).collect::<Vec<_>>(), expected);
    assert!(specs.iter().all(|spec| spec.parameters["type"] == "object" && !spec.description.is_empty()));
}

#[tokio::test]
async fn files_that_may_be_read_only_have_no_tool_that_writes() {
    let folder = Folder::new();
    folder.put("a", "one");
    let files = folder.files().read_only();
    let names: Vec<String> = files.tools().iter().map(|tool| tool.spec().name.to_string()).collect();
    assert_eq!(names, ["read_file", "list_dir"]);
    let agent = Agent::new(&files);
    agent.read("a").await.unwrap();
    for answer in [agent.write("a", "two").await, agent.write("b/c", "x").await, agent.edit("a", "one", "two").await] {
        assert_eq!(answer.unwrap_err(), "these files may be read only");
    }
    assert_eq!((folder.get("a"), folder.names()), ("one".to_owned(), vec!["a".to_owned()]));
}

#[test]
fn arguments_are_checked_before_a_person_is_asked() {
    let folder = Folder::new();
    let write = folder.files().write_file().approved_by("human");
    let check =
        |arguments: Value| write.check(arguments.as_object().unwrap()).map_err(|error| error.message.to_string());
    assert_eq!(check(json!({"path": "a", "content": ""})), Ok(()));
    assert!(check(json!({"path": "../a", "content": ""})).unwrap_err().contains("leads out of the root"));
    assert!(check(json!({"path": "a"})).unwrap_err().contains("missing field `content`"));
    let read_only = folder.files().read_only();
    assert!(
        read_only.edit_file().check(json!({"path": "a", "old_text": "", "new_text": ""}).as_object().unwrap()).is_err()
    );
}

#[tokio::test]
async fn an_agent_reads_edits_and_writes() {
    let folder = Folder::new();
    folder.put("src/lib.rs", "fn add(a: u8) {}\n");
    let model = Scripted::computed(|request: &Request| match request.context.turns() {
        0 => Reply::default()
            .and_tool("list_dir", json!({"path": "src"}))
            .and_tool("read_file", json!({"path": "src/lib.rs"})),
        1 => Reply::default().and_tool("edit_file", json!({"path": "src/lib.rs", "old_text": "u8", "new_text": "u16"})),
        2 => Reply::default()
            .and_tool("write_file", json!({"path": "src/lib.rs", "content": "done\n"}))
            .and_tool("read_file", json!({"path": "/etc/passwd"})),
        _ => {
            let outputs = request.context.messages().filter_map(|message| match message {
                ChatMessage::Tool { output, .. } => Some(output.content.text.to_string()),
                _ => None,
            });
            Reply::text(outputs.collect::<Vec<_>>().join("\n--\n"))
        }
    });
    let files = folder.files().timeout(Duration::from_secs(20));
    let runtime = Runtime::builder().provider("script", model).agent(Model::new("a", "Work.")).tools(files.tools());
    let output = runtime.build().unwrap().run("a", "go").await.unwrap().output;
    assert_eq!(
        &*output,
        "[src: entries 1 to 1 of 1]\nfile 17 bytes: lib.rs\n--\n[src/lib.rs: lines 1 to 1 of 1]\nfn add(a: u8) {}\n\n--\n\
         Edited `src/lib.rs`, line 1.\n--\nReplaced `src/lib.rs` (5 bytes; it had 18 bytes).\n--\n\
         Error: [read_file] `/etc/passwd` is an absolute path; paths are relative to the root, such as `etc/passwd`"
    );
    assert_eq!(folder.get("src/lib.rs"), "done\n");
}
