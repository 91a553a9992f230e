//! Workloads on machines of many sizes, one policy beside the other.

use super::chart;
use super::options::Options;
use heist_sim::sim::{Measured, Plan, Workload, measure};
use std::io::{IsTerminal, Write};
use std::time::Instant;

/// A plan and what came out.
pub(super) type Row = (Plan, Measured);

pub(super) fn run(options: &Options) -> Result<(), String> {
    let plans = options.plans()?;
    let (total, started) = (plans.len(), Instant::now());
    let talk = std::io::stderr().is_terminal();
    let mut rows: Vec<Row> = Vec::new();
    measure(plans, processes(), |plan, measured| {
        rows.push((plan.clone(), measured));
        if talk {
            let (workload, cores) = (plan.workload(), plan.cores());
            eprint!("\r{}/{total} measured: {workload} on {cores} cores            ", rows.len());
            let _ = std::io::stderr().flush();
        }
    })
    .map_err(|error| error.to_string())?;
    if talk {
        eprint!("\r                                                                \r");
    }
    std::fs::create_dir_all(&options.out)
        .map_err(|error| format!("cannot make {}: {error}", options.out.display()))?;
    let of_all = &rows;
    for (workload, shape) in options.tables() {
        let of_it = |(plan, _): &&Row| plan.workload() == workload && plan.shape() == shape;
        let mut rows: Vec<&Row> = of_all.iter().filter(of_it).collect();
        rows.sort_by_key(|(plan, _)| (plan.cores(), plan.policy().to_string()));
        print_table(workload, shape, &rows);
        if options.places {
            rows.iter().for_each(|row| print_places(row));
        }
        let name =
            if shape == "flat" { workload.to_string() } else { format!("{workload}-{shape}") };
        let path = options.out.join(format!("{name}.svg"));
        std::fs::write(&path, chart::draw(workload, shape, &rows))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        println!("  chart: {}\n", path.display());
    }
    let speed = rows.iter().map(|(_, m)| m.speed).sum::<f64>() / rows.len().max(1) as f64;
    println!(
        "{total} runs in {:.1} s, {:.1} million primitive operations a second each",
        started.elapsed().as_secs_f64(),
        speed / 1e6
    );
    Ok(())
}

/// A run is one process; as many as there are CPUs.
pub(super) fn processes() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn print_table(workload: Workload, shape: &str, rows: &[&Row]) {
    println!("{workload}: {} ({shape})", describe(workload));
    println!(
        "  {:>5} {:<14} {:>10} {:>9} {:>9} {:>9} {:>9} {:>7} {:>8} {:>9} {:>7} {:>7} {:>9} {:>6}",
        "cores",
        "policy",
        "tasks/µs",
        "of linear",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "probes",
        "/search",
        "transfers",
        "far",
        "wakes",
        "lock ns",
        "search"
    );
    for (plan, m) in rows {
        let [p50, p99, p999] = m.latency.map(micros);
        println!(
            "  {:>5} {:<14} {:>10.2} {:>9} {:>9} {:>9} {:>9} {:>7.2} {:>8.1} {:>9.2} {:>7} {:>7.3} {:>9.0} {:>6}",
            plan.cores(),
            plan.policy().to_string(),
            m.throughput,
            share(of_linear(plan, m, rows)),
            p50,
            p99,
            p999,
            m.probes,
            m.probes_per_search,
            m.transfers,
            share(far(m)),
            m.wakes,
            m.lock_wait,
            share(m.searching),
        );
    }
}

fn print_places((plan, m): &Row) {
    println!("  on {} cores, {}: waited for each task", plan.cores(), plan.policy());
    for (what, places) in [("a cache line", &m.transfers_at), ("a lock", &m.waits_at)] {
        for (place, nanos) in places {
            println!("    {nanos:>10.1} ns for {what} at {place}");
        }
    }
}

/// The share of linear speed-up: of what the cores could compute if tasks were
/// all that there is, or, where a task is only scheduling, of the smallest
/// machine's rate for each core.
pub(super) fn of_linear(plan: &Plan, m: &Measured, rows: &[&Row]) -> f64 {
    if m.efficiency > 0.0 {
        return m.efficiency;
    }
    let smallest = rows
        .iter()
        .filter(|(other, _)| other.policy() == plan.policy())
        .min_by_key(|(other, _)| other.cores());
    smallest.map_or(1.0, |(other, first)| {
        m.throughput / first.throughput * other.cores() as f64 / plan.cores() as f64
    })
}

/// The share of cache lines that came from beyond the own last-level cache.
fn far(m: &Measured) -> f64 {
    let [_, node, remote] = m.transfers_by;
    if m.transfers > 0.0 { (node + remote) / m.transfers } else { 0.0 }
}

fn micros(nanos: f64) -> String {
    if nanos > 0.0 { format!("{:.2}", nanos / 1e3) } else { "-".into() }
}

fn share(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

pub(super) fn describe(workload: Workload) -> &'static str {
    match workload {
        Workload::Tree => "a tree of goroutines, each computes 1 µs and spawns two",
        Workload::Forks => "a tree of forks over leaves of 1 µs",
        Workload::Tasks(_) => "independent tasks in heaps of unequal size",
        Workload::Yields => "ten goroutines for each core that yield",
        Workload::Hot => "one goroutine spawns tasks of 10 µs for all",
        Workload::PingPong => "pairs of goroutines that wake each other; latency: there and back",
        Workload::Bursts => {
            "all sleep, then four tasks of 5 µs for each core; latency: until begun"
        }
        Workload::Open(_) => "tasks of 20 µs arrive at random; latency: until begun",
    }
}
