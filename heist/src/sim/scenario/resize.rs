//! Another number of Ps while goroutines run.

use super::{build, builder, compute, sleep};
use crate::sim::Rng;
use crate::{go, runtime, thread, time};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// There are more and fewer Ps while goroutines spawn, sleep, yield and block their
/// threads, and others stop the world, or have each P do something. All come to their
/// end, and the last who says how many Ps there are is heard.
pub(super) fn resize(rng: &Rng, procs: usize) {
    let (n, rounds, salt) = (2 + rng.next() % 10, 1 + rng.next() % 6, rng.next() >> 8);
    let ended = Arc::new(AtomicUsize::new(0));
    build(builder(rng, procs)).run(|| {
        let busy: Vec<_> = (0..n)
            .map(|i| {
                let ended = ended.clone();
                go(move || {
                    let nanos = u64::from((salt >> (i % 8)) % 60_000);
                    match (salt + i) % 5 {
                        // Filled queues, timers and bitmaps of a P that may go.
                        0 => spawn_some(salt % 12, salt >> 3),
                        1 => time::sleep(Duration::from_nanos(nanos)),
                        2 => (0..1 + i % 4).for_each(|_| thread::yield_now()),
                        3 => crate::syscall(|| sleep(nanos)),
                        _ => thread::park_timeout(Duration::from_nanos(nanos)),
                    }
                    compute(salt + i);
                    ended.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        let others: Vec<_> = (0..salt % 3)
            .map(|i| {
                go(move || {
                    for round in 0..rounds {
                        compute(salt / 5 + round);
                        match (salt + i + round) % 3 {
                            0 => runtime::release_memory(),
                            _ => drop(runtime::set_max_procs(most(salt / 3 + i + round))),
                        }
                    }
                })
            })
            .collect();
        for round in 0..rounds {
            compute(salt / 11 + round);
            let before = runtime::set_max_procs(most(salt / 7 + 3 * round));
            assert!((1..=MOST.max(procs)).contains(&before), "there were {before} Ps");
        }
        others.into_iter().for_each(|other| assert!(other.join().is_ok()));
        runtime::set_max_procs(most(salt));
        assert_eq!(runtime::max_procs(), most(salt));
        busy.into_iter().for_each(|goroutine| assert!(goroutine.join().is_ok()));
    });
    assert_eq!(ended.load(Ordering::Relaxed), n as usize);
}

/// No resize makes more Ps.
const MOST: usize = 5;

fn most(n: u32) -> usize {
    1 + n as usize % MOST
}

fn spawn_some(n: u32, salt: u32) {
    let all: Vec<_> = (0..n).map(|i| go(move || compute(salt + i))).collect();
    all.into_iter().for_each(|goroutine| assert!(goroutine.join().is_ok()));
}
