//! A thousand goroutines take turns: nobody is left behind.

use super::{Finding, Source, each, grouped, runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const GOROUTINES: usize = 1_000;
const TURNS: u64 = 1_000;

/// How many turns the last may be behind the first, as a factor.
const FAIR: f64 = 3.0;

pub(super) fn visit() -> Finding {
    let runtime = runtime(1);
    let turns: Arc<Vec<AtomicU64>> = Arc::new((0..GOROUTINES).map(|_| AtomicU64::new(0)).collect());
    let (time, behind) = runtime.run(|| {
        let start = Instant::now();
        let handles: Vec<_> = (0..GOROUTINES)
            .map(|i| {
                let turns = turns.clone();
                heist::go(move || {
                    for _ in 0..TURNS {
                        turns[i].fetch_add(1, Ordering::Relaxed);
                        heist::thread::yield_now();
                    }
                    // The first to finish looks at the others.
                    turns.iter().map(|t| t.load(Ordering::Relaxed)).min().unwrap_or(0)
                })
            })
            .collect();
        let least = handles.into_iter().filter_map(|h| h.join().ok()).min().unwrap_or(0);
        (start.elapsed(), least)
    });
    let total: u64 = turns.iter().map(|t| t.load(Ordering::Relaxed)).sum();
    let all = GOROUTINES as u64 * TURNS;
    Finding {
        claim: format!(
            "{GOROUTINES} goroutines that yield on one P stay within a factor of {FAIR} of each other"
        ),
        holds: total == all && behind as f64 * FAIR >= TURNS as f64,
        measured: vec![
            format!(
                "turns   {} of {}, a turn in {}",
                grouped(total),
                grouped(all),
                each(time, total)
            ),
            format!("when the first had {TURNS} turns, the last had {behind}"),
        ],
        source: Source {
            file: "heist/src/sched/find.rs",
            text: include_str!("../../../heist/src/sched/find.rs"),
            line: "fn next_round",
        },
    }
}
