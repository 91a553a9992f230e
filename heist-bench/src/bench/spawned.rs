//! Memory of tasks that were spawned and have not run.

use super::parked::{memory_rows, memory_table};
use super::{Benchmark, Peer, Problem, Round};
use crate::session::Session;
use crate::system::Memory;
use crate::table::{Table, plural};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "spawned",
    about: "resident bytes per task that was spawned and has not run, on 1 proc",
    run,
};

pub(super) const PROBLEM: Problem = Problem {
    name: "spawned",
    warm_up: false,
    peers: &[(Peer::Heist, heist), (Peer::Tokio, tokio), (Peer::May, may)],
    go: true,
};

/// The most resident bytes for a goroutine of heist.
const GOAL: f64 = 300.0;

fn run(session: &mut Session) -> Table {
    let rounds = session.rounds(3, 1).min(3);
    let title =
        format!("spawned: bytes per task that has not run, 1 proc ({})", plural(rounds, "round"));
    let mut table = memory_table(title);
    memory_rows(session, &mut table, &PROBLEM, 1, 100_000, rounds, GOAL);
    table
}

/// How many tasks have run although nobody waited.
static RAN: AtomicU64 = AtomicU64::new(0);

/// How many times `n` are spawned at most until `n` have not run.
const PATIENCE: u64 = 10;

/// The growth until `n` tasks have been spawned that have not run. A runtime may
/// give some of them a turn meanwhile; they leave at once, and what they had can
/// be used again.
fn growth(n: u64, spawn: impl Fn(fn())) -> Vec<u64> {
    RAN.store(0, Ordering::Relaxed);
    let before = Memory::now();
    let mut spawned = 0;
    while spawned < n + RAN.load(Ordering::Relaxed) {
        assert!(spawned < n * PATIENCE, "never were there {n} tasks that had not run");
        spawned += 1;
        spawn(|| {
            RAN.fetch_add(1, Ordering::Relaxed);
        });
    }
    Memory::now().since(before)
}

/// A goroutine that floods the queues gives way, so that they never hold as many.
/// A plain thread spawns instead, while a goroutine that computes, and is not to be
/// preempted, keeps the one P.
fn heist(procs: usize, n: u64) -> Round {
    static OVER: AtomicBool = AtomicBool::new(false);
    let runtime = super::heist_runtime(procs);
    Box::new(move || {
        OVER.store(false, Ordering::SeqCst);
        let hog = runtime.go(|| {
            heist::no_preempt(|| {
                while !OVER.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
            });
        });
        let grown = growth(n, |task| drop(runtime.go(task)));
        OVER.store(true, Ordering::SeqCst);
        hog.join().expect("it only spins");
        grown
    })
}

fn tokio(procs: usize, n: u64) -> Round {
    let runtime = super::tokio_runtime(procs);
    let spawn = |task: fn()| drop(tokio::spawn(async move { task() }));
    Box::new(move || super::on_tokio(&runtime, async move { growth(n, spawn) }))
}

fn may(procs: usize, n: u64) -> Round {
    super::may_must_hold(n);
    super::set_up_may(procs);
    Box::new(move || super::on_may(move || growth(n, |task| drop(may::go!(task)))))
}
