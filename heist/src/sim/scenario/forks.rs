//! Fork-join: every branch runs once, whoever runs it.

use super::{build, builder, compute, runtime, sleep};
use crate::prim::sim::work;
use crate::sim::Rng;
use crate::{chan, go, par, thread};
use std::sync::atomic::{AtomicU32, Ordering};

/// How often each leaf of a tree has run.
struct Leaves(Vec<AtomicU32>);

impl Leaves {
    fn new(n: usize) -> Self {
        Leaves((0..n).map(|_| AtomicU32::new(0)).collect())
    }

    fn run(&self, i: usize) {
        self.0[i].fetch_add(1, Ordering::Relaxed);
    }

    fn check(&self) {
        let ran: Vec<u32> = self.0.iter().map(|leaf| leaf.load(Ordering::Relaxed)).collect();
        assert!(ran.iter().all(|n| *n == 1), "each leaf runs once: {ran:?}");
    }
}

/// A tree of joins over leaves `from` to `to`; `leaf` is told which. The sum of what
/// they return.
fn sum(from: usize, to: usize, leaf: &(dyn Fn(usize) -> usize + Sync)) -> usize {
    if to - from == 1 {
        return leaf(from);
    }
    let middle = from + (to - from).div_ceil(2);
    let (a, b) = par::join(|| sum(from, middle, leaf), || sum(middle, to, leaf));
    a + b
}

/// Leaves that compute, some for long; some yield, some park, some unwind.
pub(super) fn tree(rng: &Rng, procs: usize) {
    let (n, salt) = (2 + rng.next() as usize % 14, rng.next() >> 8);
    let unwinds = rng.next().is_multiple_of(4);
    let leaves = Leaves::new(n);
    runtime(rng, procs).run(|| {
        let leaf = |i: usize| {
            leaves.run(i);
            match (salt as usize / 3 + 5 * i) % 8 {
                0 => thread::yield_now(),
                1 => work(u64::from(salt % 200_000)),
                2 => drop(go(move || compute(salt)).join()),
                3 if unwinds => std::panic::resume_unwind(Box::new(i)),
                _ => compute(salt + i as u32),
            }
            i
        };
        let sum = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sum(0, n, &leaf)));
        match sum {
            Ok(sum) => assert_eq!(sum, n * (n - 1) / 2),
            Err(_) => assert!(unwinds, "a leaf unwound"),
        }
    });
    leaves.check();
}

/// First branches that wait for second ones, and block on what those do.
pub(super) fn that_wait(rng: &Rng, procs: usize) {
    fn both(depth: u32, salt: u32) -> u32 {
        if depth == 0 {
            compute(salt);
            return 1;
        }
        let (tell, told) = chan::bounded(0);
        let (a, b) = par::join(
            || {
                let before = both(depth - 1, salt / 3);
                match (salt + depth) % 3 {
                    0 => told.recv().map_or(0, |n: u32| n + before),
                    // With its thread.
                    1 => crate::blocking(|| told.recv().map_or(0, |n| n + before)),
                    _ => go(move || told.recv().unwrap_or(0)).join().unwrap_or(0) + before,
                }
            },
            || {
                let ours = both(depth - 1, salt / 5);
                assert!(tell.send(ours).is_ok(), "the first branch waits");
                0
            },
        );
        a + b
    }
    let (depth, salt) = (1 + rng.next() % 3, rng.next() >> 4);
    let counted = runtime(rng, procs).run(|| both(depth, salt));
    assert_eq!(counted, 1 << depth);
}

/// Those who fork are raided, lose their Ps and are stopped, wherever they are.
pub(super) fn and_hogs(rng: &Rng, procs: usize) {
    let (n, salt) = (2 + rng.next() as usize % 6, rng.next() >> 8);
    let leaves = Leaves::new(2 * n);
    let runtime = build(builder(rng, procs).max_runners(rng.next() as usize % 2));
    runtime.run(|| {
        let leaf = |i: usize| {
            leaves.run(i);
            match (salt as usize / 3 + i) % 4 {
                0 => work(u64::from(1 + salt % 30) * 1_000_000),
                1 => sleep(u64::from(salt % 20) * 1_000_000),
                _ => compute(salt + i as u32),
            }
            1
        };
        thread::scope(|s| {
            let other = s.spawn(|| sum(0, n, &leaf));
            assert_eq!(sum(n, 2 * n, &leaf), n);
            assert_eq!(other.join().ok(), Some(n));
        });
    });
    leaves.check();
}
