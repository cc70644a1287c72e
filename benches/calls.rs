//! What calls cost, beside what the same work costs on bare ractor and on bare tokio in the same run:
//! `cargo bench --bench calls`

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tokio::runtime::Runtime as Tokio;
use workloads::{agents, bare_ractor, bare_tokio};

mod workloads;

/// Measures one size of one workload on all three.
macro_rules! compare {
    ($group:expr, $tokio:expr, $n:expr, $workload:ident) => {{
        let (group, tokio, n): (&mut BenchmarkGroup<'_, WallTime>, &Tokio, usize) = ($group, $tokio, $n);
        let runtime = agents::runtime();
        group.throughput(Throughput::Elements(n as u64));
        group.bench_function(BenchmarkId::new("agentouto", n), |bencher| {
            bencher.to_async(tokio).iter(|| agents::$workload(&runtime, n));
        });
        group.bench_function(BenchmarkId::new("ractor", n), |bencher| {
            bencher.to_async(tokio).iter(|| bare_ractor::$workload(n));
        });
        group.bench_function(BenchmarkId::new("tokio", n), |bencher| {
            bencher.to_async(tokio).iter(|| bare_tokio::$workload(n));
        });
    }};
}

fn calls(criterion: &mut Criterion) {
    let tokio = Tokio::new().expect("tokio starts");

    let mut group = criterion.benchmark_group("one");
    compare!(&mut group, &tokio, 1, chain);
    group.finish();

    let mut group = criterion.benchmark_group("fanout");
    group.sample_size(10);
    for n in [100, 1_000, 10_000, 100_000] {
        compare!(&mut group, &tokio, n, fanout);
    }
    group.finish();

    let mut group = criterion.benchmark_group("chain");
    group.sample_size(10);
    for n in [100, 1_000, 10_000, 100_000] {
        compare!(&mut group, &tokio, n, chain);
    }
    group.finish();

    let mut group = criterion.benchmark_group("loop");
    for n in [100, 1_000] {
        compare!(&mut group, &tokio, n, turns);
    }
    group.finish();
}

criterion_group!(benches, calls);
criterion_main!(benches);
