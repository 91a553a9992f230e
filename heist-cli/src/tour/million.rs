//! A million goroutines: each parked, with a stack of its own.

use super::{Finding, Source, each, grouped, runtime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What a parked goroutine may keep resident: a page of stack, and its block.
const BYTES_EACH: u64 = 4_600;

pub(super) fn visit() -> Finding {
    // A parked goroutine keeps a page; a small machine gets fewer of them.
    let room = available_bytes().unwrap_or(u64::MAX) / 2 / BYTES_EACH;
    let n = 1_000_000.min(room);
    let procs = heist::thread::available_parallelism().map_or(1, usize::from);
    let runtime = runtime(procs);
    static PARKED: AtomicU64 = AtomicU64::new(0);
    PARKED.store(0, Ordering::SeqCst);

    let before = resident_bytes();
    let (spawning, bytes, waking, woken) = runtime.run(|| {
        let start = Instant::now();
        let handles: Vec<_> = (0..n)
            .map(|i| {
                heist::go(move || {
                    PARKED.fetch_add(1, Ordering::Relaxed);
                    heist::thread::park();
                    i
                })
            })
            .collect();
        while PARKED.load(Ordering::Relaxed) < n {
            heist::thread::yield_now();
        }
        let spawning = start.elapsed();
        let bytes = resident_bytes().saturating_sub(before);
        let start = Instant::now();
        handles.iter().for_each(|handle| handle.thread().unpark());
        let woken = handles.into_iter().enumerate();
        let woken = woken.filter_map(|(i, h)| h.join().ok().filter(|v| *v == i as u64)).count();
        (spawning, bytes, start.elapsed(), woken as u64)
    });
    // The handles are a vector of this stop's own, 40 bytes each.
    let bytes_each = bytes / n.max(1);
    Finding {
        claim: format!(
            "{} goroutines at once, each parked on its own stack, at most {} bytes each",
            grouped(n),
            grouped(BYTES_EACH)
        ),
        holds: woken == n && bytes_each <= BYTES_EACH,
        measured: vec![
            format!("memory  {} resident bytes each, its handle included", grouped(bytes_each)),
            format!("spawned and parked in {} each", each(spawning, n)),
            format!(
                "woken and joined   in {} each, all {} of them",
                each(waking, n),
                grouped(woken)
            ),
        ],
        source: Source {
            file: "heist/src/sched/spawn.rs",
            text: include_str!("../../../heist/src/sched/spawn.rs"),
            line: "unsafe fn spawn_inside",
        },
    }
}

/// The resident memory of this process.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    pages * 4096
}

fn available_bytes() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
