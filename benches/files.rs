//! The tools for files beside plain calls of the standard library: `cargo bench --bench files --features files`
//!
//! Each tool call goes to a thread that may block and back. The floors do the same work by a path, in the same thread.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use agentouto::testing::TestCall;
use agentouto::tools::Files;
use agentouto::{Arguments, Tool, ToolContext};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use tokio::runtime::Runtime as Tokio;

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-files");
    fs::create_dir_all(&root).expect("the folder is made");
    root
}

fn arguments(value: Value) -> Arguments {
    match value {
        Value::Object(arguments) => arguments,
        _ => Arguments::new(),
    }
}

async fn call(tool: &impl Tool, arguments: &Arguments, context: &ToolContext) -> usize {
    tool.call(arguments.clone(), context.clone()).await.expect("the call succeeds").text.len()
}

fn reading(criterion: &mut Criterion) {
    let (tokio, root, test) = (Tokio::new().expect("tokio starts"), root(), TestCall::new("bench", ""));
    let tool = Files::beneath(&root).expect("it opens").max_output_bytes(usize::MAX).read_file();
    let mut group = criterion.benchmark_group("read_file");
    for lines in [10, 1_000, 100_000] {
        let path = root.join("read");
        fs::write(&path, "a line of fifty bytes, with the newline at its end\n".repeat(lines)).expect("it is written");
        let (arguments, context) = (arguments(json!({"path": "read", "limit": lines})), test.context());
        group.bench_function(BenchmarkId::new("agentouto", lines), |bencher| {
            bencher.to_async(&tokio).iter(|| call(&tool, &arguments, &context));
        });
        group.bench_function(BenchmarkId::new("read_to_string", lines), |bencher| {
            bencher.iter(|| fs::read_to_string(&path).map(|text| text.len()));
        });
    }
    group.finish();
}

/// Writes a file as careful programs do.
fn write_and_rename(path: &Path, content: &str, is_synced: bool) -> std::io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = File::create(&temporary)?;
    file.write_all(content.as_bytes())?;
    if is_synced {
        file.sync_all()?;
    }
    fs::rename(temporary, path)
}

fn writing(criterion: &mut Criterion) {
    let (tokio, root, test) = (Tokio::new().expect("tokio starts"), root(), TestCall::new("bench", ""));
    let tool = Files::beneath(&root).expect("it opens").write_file();
    let mut group = criterion.benchmark_group("write_file");
    for bytes in [1_000, 1_000_000] {
        let content = "x".repeat(bytes);
        let (arguments, context) = (arguments(json!({"path": "write", "content": content})), test.context());
        group.bench_function(BenchmarkId::new("agentouto", bytes), |bencher| {
            bencher.to_async(&tokio).iter(|| call(&tool, &arguments, &context));
        });
        for (name, is_synced) in [("rename, synced", true), ("rename", false)] {
            group.bench_function(BenchmarkId::new(name, bytes), |bencher| {
                bencher.iter(|| write_and_rename(&root.join("plain"), &content, is_synced));
            });
        }
    }
    group.finish();
}

fn listing(criterion: &mut Criterion) {
    let (tokio, root, test) = (Tokio::new().expect("tokio starts"), root(), TestCall::new("bench", ""));
    let folder = root.join("folder");
    fs::create_dir_all(&folder).expect("the folder is made");
    for number in 0..1_000 {
        File::create(folder.join(number.to_string())).expect("it is made");
    }
    let tool = Files::beneath(&root).expect("it opens").list_dir();
    let (arguments, context) = (arguments(json!({"path": "folder", "limit": 1_000})), test.context());
    let mut group = criterion.benchmark_group("list_dir");
    group.bench_function("agentouto", |bencher| {
        bencher.to_async(&tokio).iter(|| call(&tool, &arguments, &context));
    });
    group.bench_function("read_dir with sizes", |bencher| {
        let size = |entry: std::io::Result<fs::DirEntry>| entry.and_then(|entry| entry.metadata()).map(|it| it.len());
        bencher.iter(|| fs::read_dir(&folder).map(|entries| entries.map(size).filter_map(Result::ok).sum::<u64>()));
    });
    group.finish();
}

criterion_group!(benches, reading, writing, listing);
criterion_main!(benches);
