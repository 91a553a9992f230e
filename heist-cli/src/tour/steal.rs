//! One goroutine spawns all the work; the other Ps come and take it.

use super::{Finding, Source, grouped, runtime};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

const TASKS: u64 = 4_000;

/// More Ps than most laptops have cores: they share.
const PROCS: usize = 4;

pub(super) fn visit() -> Finding {
    let runtime = runtime(PROCS);
    let start = Instant::now();
    let mut ran = BTreeMap::<String, u64>::new();
    let threads: Vec<String> = runtime.run(|| {
        let handles: Vec<_> = (0..TASKS)
            .map(|i| {
                heist::go(move || {
                    // Some twenty microseconds of work.
                    black_box((0..20_000u64).fold(i, |sum, n| black_box(sum ^ n)));
                    std::thread::current().name().unwrap_or("?").to_owned()
                })
            })
            .collect();
        handles.into_iter().filter_map(|h| h.join().ok()).collect()
    });
    let time = start.elapsed();
    threads.into_iter().for_each(|name| *ran.entry(name).or_default() += 1);
    let stats = runtime.stats();
    let total: u64 = ran.values().sum();
    let most = ran.values().max().copied().unwrap_or(1);

    let mut measured: Vec<String> = ran
        .iter()
        .map(|(name, n)| {
            let bar = "#".repeat((n * 40 / most).max(1) as usize);
            format!("{name:>9}  {bar} {n}")
        })
        .collect();
    measured.push(format!(
        "{} steals moved {} goroutines; {:.0} ms in all",
        grouped(stats.steals),
        grouped(stats.stolen),
        time.as_secs_f64() * 1e3
    ));
    Finding {
        claim: format!(
            "{} tasks spawned by one of {PROCS} Ps, and the others take part",
            grouped(TASKS)
        ),
        holds: total == TASKS && ran.len() > 1 && stats.steals > 0,
        measured,
        source: Source {
            file: "heist/src/sched/steal.rs",
            text: include_str!("../../../heist/src/sched/steal.rs"),
            line: "pub(crate) fn steal(",
        },
    }
}
