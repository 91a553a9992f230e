//! Goroutines that do not come back to the runtime: they compute, or block their
//! thread.

use super::{build, builder, compute, runtime, sleep};
use crate::prim::sim::work;
use crate::sim::Rng;
use crate::{go, no_preempt, thread};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Goroutines that compute past their slice, or block their thread, declared or not:
/// their Ps are taken, and they come back for one.
pub(super) fn hogs(rng: &Rng, procs: usize) {
    let (n, salt) = (procs as u32 + rng.next() % 4, rng.next() >> 8);
    let runtime = runtime(rng, procs);
    runtime.run(|| {
        let hogs: Vec<_> = (0..n)
            .map(|i| {
                go(move || {
                    let mut sum = 0;
                    for round in 0..1 + (salt + i) % 3 {
                        let long = u64::from((salt / 7 + 13 * i + round) % 40) * 500_000;
                        match (salt + i + round) % 4 {
                            0 => work(long),
                            1 => sleep(long),
                            2 => crate::syscall(|| sleep(long)),
                            _ => crate::blocking(|| sleep(long)),
                        }
                        sum += go(move || i).join().unwrap_or(1_000_000);
                    }
                    sum == i * (1 + (salt + i) % 3)
                })
            })
            .collect();
        assert!(hogs.into_iter().all(|hog| hog.join().unwrap_or(false)));
    });
}

/// Every P's goroutine blocks its thread until one runs that has none: only a P that
/// is taken, or was handed on, can bring that about.
pub(super) fn calls(rng: &Rng, procs: usize) {
    let (n, salt) = (procs + rng.next() as usize % 3, rng.next() >> 8);
    runtime(rng, procs).run(|| {
        let (begun, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let callers: Vec<_> = (0..n)
            .map(|i| {
                let (begun, over) = (begun.clone(), over.clone());
                go(move || {
                    begun.fetch_add(1, Ordering::Relaxed);
                    let blocks = || {
                        while !over.load(Ordering::Relaxed) {
                            sleep(50_000 + u64::from(salt % 7) * 100_000);
                        }
                        // Calls of the runtime within one.
                        go(move || compute(salt)).join().is_ok()
                    };
                    match (salt as usize + i) % 3 {
                        0 => blocks(),
                        1 => crate::syscall(blocks),
                        _ => crate::blocking(blocks),
                    }
                })
            })
            .collect();
        while begun.load(Ordering::Relaxed) < n {
            thread::yield_now();
        }
        over.store(true, Ordering::Relaxed);
        assert!(callers.into_iter().all(|caller| caller.join().unwrap_or(false)));
    });
}

/// More goroutines than Ps compute until one has run that is behind them all. Few may
/// go on without a P, so that threads are stopped, and go on again.
pub(super) fn freeze(rng: &Rng, procs: usize) {
    let procs = 1 + procs % 3;
    let hogs = procs as u32 + rng.next() % 3;
    let (piece, salt) = (5_000 << (rng.next() % 7), rng.next() >> 8);
    let runtime = build(builder(rng, procs).max_runners(rng.next() as usize % 2));
    runtime.run(|| {
        let over = Arc::new(AtomicBool::new(false));
        let hogs: Vec<_> = (0..hogs)
            .map(|i| {
                let over = over.clone();
                go(move || {
                    let (mut calls, mut round) = (0, 0);
                    while !over.load(Ordering::Relaxed) {
                        round += 1;
                        match (salt >> i) % 4 {
                            // For a while where it must not be stopped. Not for ever: a
                            // machine may be in step with it, and look only then.
                            1 if round < 8 => no_preempt(|| work(piece)),
                            // Sometimes in the runtime.
                            2 => calls += u32::from(go(move || compute(salt)).join().is_ok()),
                            _ => {}
                        }
                        work(piece);
                    }
                    calls
                })
            })
            .collect();
        let last = go(move || compute(salt));
        assert!(last.join().is_ok());
        over.store(true, Ordering::Relaxed);
        hogs.into_iter().for_each(|hog| assert!(hog.join().is_ok()));
    });
}

/// As many goroutines as Ps compute, and call nobody, until one has slept some times: a
/// timer that is late takes a P from one of them.
pub(super) fn late(rng: &Rng, procs: usize) {
    let (naps, piece) = (1 + rng.next() % 4, 1_000 << (rng.next() % 6));
    let nap = Duration::from_micros(100 + u64::from(rng.next() % 1_000));
    runtime(rng, procs).run(|| {
        let over = Arc::new(AtomicBool::new(false));
        let compute = || {
            let over = over.clone();
            go(move || {
                while !over.load(Ordering::Relaxed) {
                    work(piece);
                }
            })
        };
        let hogs: Vec<_> = (0..procs).map(|_| compute()).collect();
        for _ in 0..naps {
            crate::time::sleep(nap);
        }
        over.store(true, Ordering::Relaxed);
        hogs.into_iter().for_each(|hog| assert!(hog.join().is_ok()));
    });
}
