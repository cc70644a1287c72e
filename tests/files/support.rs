//! A folder for one test, and calls of the tools without a model.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agentouto::testing::TestCall;
use agentouto::tools::Files;
use agentouto::{Tool, ToolContext};
use serde_json::{Value, json};

/// A new folder with a root `root` in it. It is removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        Self::within(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    pub(crate) fn within(parent: &Path) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("files-{}-{number}", std::process::id()));
        fs::create_dir_all(folder.join("root")).unwrap();
        Self(folder.canonicalize().unwrap())
    }

    /// The tools for the root.
    pub(crate) fn files(&self) -> Files {
        Files::beneath(self.root()).unwrap()
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.0.join("root")
    }

    /// A path outside of the root.
    pub(crate) fn outside(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// A path in the root.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// Writes a file of the root, with its folders.
    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// The names in the root, in their order.
    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.root())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

/// The calls of one agent.
#[derive(Clone)]
pub(crate) struct Agent {
    pub(crate) files: Files,
    pub(crate) context: ToolContext,
}

impl Agent {
    /// An agent in a run of its own.
    pub(crate) fn new(files: &Files) -> Self {
        Self { files: files.clone(), context: TestCall::new("test", "").context() }
    }

    /// Another agent in the same run.
    pub(crate) fn colleague(&self) -> Self {
        let mut colleague = Self::new(&self.files);
        colleague.context.run = Arc::clone(&self.context.run);
        colleague
    }

    async fn call(&self, tool: impl Tool, arguments: Value) -> Result<String, String> {
        let Value::Object(arguments) = arguments else { panic!("no object") };
        let output = tool.call(arguments, self.context.clone()).await;
        output.map(|content| content.text.to_string()).map_err(|error| error.message.to_string())
    }

    pub(crate) async fn read(&self, path: &str) -> Result<String, String> {
        self.call(self.files.read_file(), json!({ "path": path })).await
    }

    pub(crate) async fn read_lines(&self, path: &str, offset: u64, limit: u64) -> Result<String, String> {
        self.call(self.files.read_file(), json!({ "path": path, "offset": offset, "limit": limit })).await
    }

    pub(crate) async fn write(&self, path: &str, content: &str) -> Result<String, String> {
        self.call(self.files.write_file(), json!({ "path": path, "content": content })).await
    }

    pub(crate) async fn edit(&self, path: &str, old: &str, new: &str) -> Result<String, String> {
        self.call(self.files.edit_file(), json!({ "path": path, "old_text": old, "new_text": new })).await
    }

    pub(crate) async fn list(&self, path: &str) -> Result<String, String> {
        self.call(self.files.list_dir(), json!({ "path": path })).await
    }

    pub(crate) async fn list_entries(&self, path: &str, offset: u64, limit: u64) -> Result<String, String> {
        self.call(self.files.list_dir(), json!({ "path": path, "offset": offset, "limit": limit })).await
    }

    /// The answers of all four tools for one path.
    pub(crate) async fn all(&self, path: &str) -> [Result<String, String>; 4] {
        [
            self.read(path).await,
            self.write(path, "evil").await,
            self.edit(path, "secret", "evil").await,
            self.list(path).await,
        ]
    }
}

/// This test program, to run one of its tests in a process of its own, with a value for it.
pub(crate) fn child(test: &str, value: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env("AGENTOUTO_FILES_CHILD", value);
    command
}

/// The value that [`child`] gave to this process, if it is one.
pub(crate) fn child_value() -> Option<String> {
    std::env::var("AGENTOUTO_FILES_CHILD").ok()
}
