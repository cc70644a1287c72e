//! Measures a workload, with `--floor` on bare ractor, with `--traced` under a `tracing` subscriber. One JSON line:
//! `cargo run --release --example load -- <fanout|chain|loop|hold|cancel|http|parse> <N> [--floor] [--traced]`
//! `hold` parks N calls in the model, all at once for a second; `cancel` times how a parked chain of N calls ends;
//! `parse` reads N megabytes of text that was made to be slow to read tool calls out of;
//! `http` calls models behind a server on loopback that thinks for 50 ms, beside bare `reqwest` with `--floor`.

use std::time::{Duration, Instant};

use agentouto::Message;
use serde_json::json;
use workloads::{agents, bare_ractor, http, texts};

#[path = "mod.rs"]
mod workloads;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (flags, words): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let [workload, n] = &words[..] else { return Err("say a workload and a number: fanout 1000".into()) };
    let n = n.replace('_', "").parse()?;
    if workload == "serve" {
        return Ok(http::serve()?);
    }
    if workload == "parse" {
        for (kind, wall) in texts::read_all(n) {
            let mb_per_s = n as f64 / texts::HOSTILE.len() as f64 / wall.as_secs_f64();
            println!(
                "{}",
                json!({"kind": kind, "wall_s": wall.as_secs_f64(), "mb_per_s": mb_per_s, "peak_rss_mb": peak_rss_mb()?})
            );
        }
        return Ok(());
    }
    if flags.iter().any(|flag| flag == "--traced") {
        tracing_subscriber::fmt().with_writer(std::io::sink).init();
    }
    let (wall, forwards, returns) = match flags.iter().any(|flag| flag == "--floor") {
        true => floor(workload, n).await?,
        false => run(workload, n).await?,
    };
    let (wall_s, per_op_us) = (wall.as_secs_f64(), wall.as_secs_f64() * 1e6 / n as f64);
    println!(
        "{}",
        json!({
            "workload": workload, "n": n, "wall_s": wall_s, "per_op_us": per_op_us,
            "peak_rss_mb": peak_rss_mb()?, "forwards": forwards, "returns": returns,
        })
    );
    Ok(())
}

async fn run(workload: &str, n: usize) -> Result<(Duration, usize, usize), Box<dyn std::error::Error>> {
    if workload == "http" {
        return http::agents(n).await;
    }
    let (runtime, begun) = (agents::runtime(), Instant::now());
    let (log, begun) = match workload {
        "fanout" => (agents::fanout(&runtime, n).await?.log, begun),
        "chain" => (agents::chain(&runtime, n).await?.log, begun),
        "loop" => (agents::turns(&runtime, n).await?.log, begun),
        "hold" => (agents::hold(&runtime, n).await?.log, begun),
        "cancel" => agents::cancel(&runtime, n).await,
        other => return Err(format!("unknown workload `{other}`").into()),
    };
    let wall = begun.elapsed();
    let forwards = log.messages().filter(|message| matches!(message, Message::Forward(_))).count();
    Ok((wall, forwards, log.messages().count() - forwards))
}

async fn floor(workload: &str, n: usize) -> Result<(Duration, usize, usize), Box<dyn std::error::Error>> {
    let mut begun = Instant::now();
    let calls = match workload {
        "fanout" => bare_ractor::fanout(n).await,
        "chain" => bare_ractor::chain(n).await,
        "loop" => bare_ractor::turns(n).await,
        "hold" => bare_ractor::hold(n).await,
        "cancel" => {
            begun = bare_ractor::cancel(n).await;
            n
        }
        "http" => return http::floor(n).await,
        other => return Err(format!("unknown workload `{other}`").into()),
    };
    Ok((begun.elapsed(), calls, calls))
}

/// The most memory that this process has had so far, as Linux tells it.
fn peak_rss_mb() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM in /proc/self/status")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? / 1024)
}
