//! Goroutines that compute without end and others that block their thread, and a
//! third kind that wants to run beside them.

use super::{Finding, Source, runtime};
use heist::{go, time};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const BLOCKED: usize = 50;
const TICKS: usize = 300;

pub(super) fn visit() -> Finding {
    let procs = heist::thread::available_parallelism().map_or(1, usize::from);
    let runtime = runtime(procs);
    let (mut late, hogs) = runtime.run(|| beside_hogs(procs));
    late.sort_unstable();
    let stats = runtime.stats();
    let at = |part: usize| late.get(TICKS * part / 100).copied().unwrap_or(Duration::MAX);
    Finding {
        claim: format!(
            "{hogs} goroutines that never yield and {BLOCKED} blocked threads stop nobody"
        ),
        holds: late.len() == TICKS && stats.retakes >= 1,
        measured: vec![
            format!(
                "late    {:.1?} (median), {:.1?} (p90), of {TICKS} sleeps of 1 ms",
                at(50),
                at(90)
            ),
            format!(
                "by      {} Ps taken back, {} threads stopped for a while",
                stats.retakes, stats.freezes
            ),
        ],
        source: Source {
            file: "heist/src/sched/retake.rs",
            text: include_str!("../../../heist/src/sched/retake.rs"),
            line: "fn retake(",
        },
    }
}

/// How late each of many sleeps ends, and beside how many hogs.
fn beside_hogs(hogs: usize) -> (Vec<Duration>, usize) {
    let stop = Arc::new(AtomicBool::new(false));
    let computing: Vec<_> = (0..hogs)
        .map(|_| {
            let stop = stop.clone();
            go(move || while !stop.load(Ordering::Relaxed) {})
        })
        .collect();
    // Nobody tells heist that they block.
    let over = Arc::new((std::sync::Mutex::new(false), std::sync::Condvar::new()));
    let blocked: Vec<_> = (0..BLOCKED)
        .map(|_| {
            let over = over.clone();
            go(move || {
                let is_over = over.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                drop(over.1.wait_while(is_over, |over| !*over));
            })
        })
        .collect();
    let nap = Duration::from_millis(1);
    let late = (0..TICKS)
        .map(|_| {
            let start = Instant::now();
            time::sleep(nap);
            start.elapsed().saturating_sub(nap)
        })
        .collect();
    stop.store(true, Ordering::Relaxed);
    *over.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = true;
    over.1.notify_all();
    for goroutine in computing.into_iter().chain(blocked) {
        // They do not panic.
        let _ = goroutine.join();
    }
    (late, hogs)
}
