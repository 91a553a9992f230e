//! Many sleepers at once: none wakes early, and the rest is a few microseconds.

use super::{Finding, Source, grouped, runtime};
use std::time::{Duration, Instant};

const SLEEPERS: u64 = 20_000;

pub(super) fn visit() -> Finding {
    let procs = heist::thread::available_parallelism().map_or(1, usize::from);
    let mut late = runtime(procs).run(|| {
        // Time enough for all of them to fall asleep.
        let begin = Instant::now() + Duration::from_millis(200);
        let sleepers: Vec<_> = (0..SLEEPERS)
            .map(|i| {
                heist::go(move || {
                    let due = begin + Duration::from_micros(i * 25);
                    heist::time::sleep_until(due);
                    Instant::now().checked_duration_since(due)
                })
            })
            .collect();
        sleepers.into_iter().map(|s| s.join().ok().flatten()).collect::<Vec<_>>()
    });
    let early = late.iter().filter(|late| late.is_none()).count();
    late.sort_unstable();
    let at = |percent: usize| late[(late.len() - 1) * percent / 100].unwrap_or_default();
    Finding {
        claim: format!("{} goroutines sleep at once, and none wakes early", grouped(SLEEPERS)),
        holds: early == 0 && late.len() as u64 == SLEEPERS,
        measured: vec![format!("late    {:.1?} at the median, {:.1?} at 99 %", at(50), at(99))],
        source: Source {
            file: "heist/src/sched/timers.rs",
            text: include_str!("../../../heist/src/sched/timers.rs"),
            line: "pub(crate) fn check",
        },
    }
}
