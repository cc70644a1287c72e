//! How fast tool calls are read out of text: prose, calls, and texts that were made to be slow. All at two sizes, since the
//! time per byte must not depend on the size.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

#[allow(dead_code, reason = "the other workloads are measured elsewhere")]
#[path = "workloads/texts.rs"]
mod texts;

use texts::{CALL, HOSTILE, PROSE, read, text};

fn prompt_tools(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("prompt_tools");
    group.sample_size(10);
    let mut measure = |kind: &str, written: &str, piece: usize| {
        group.throughput(Throughput::Bytes(written.len() as u64));
        group.bench_function(BenchmarkId::new(kind, written.len()), |bencher| bencher.iter(|| read(written, piece)));
    };
    for bytes in [1 << 20, 8 << 20] {
        measure("prose", &text("", PROSE, bytes), 64 << 10);
        measure("prose in tokens", &text("", PROSE, bytes), 4);
        measure("calls", &text("", CALL, bytes), 64 << 10);
        measure("calls in tokens", &text("", CALL, bytes), 4);
        for (kind, head, repeated) in HOSTILE {
            measure(kind, &text(head, repeated, bytes), 64 << 10);
        }
    }
    group.finish();
}

criterion_group!(benches, prompt_tools);
criterion_main!(benches);
