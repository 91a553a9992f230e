//! Memory of tasks that were spawned and have not run.

use super::parked::{memory_rows, memory_table};
use super::{Benchmark, Peer, Problem, Round};
use crate::session::Session;
use crate::system::Memory;
use crate::table::{Table, plural};
use std::sync::atomic::{AtomicU64, Ordering};

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

/// The growth while `spawn_all` runs, which passes on what each task does. None
/// of the tasks may get a turn meanwhile.
fn growth(spawn_all: impl FnOnce(fn())) -> Vec<u64> {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    STARTED.store(0, Ordering::Relaxed);
    let before = Memory::now();
    spawn_all(|| {
        STARTED.fetch_add(1, Ordering::Relaxed);
    });
    let grown = Memory::now().since(before);
    let started = STARTED.load(Ordering::Relaxed);
    assert_eq!(started, 0, "{started} tasks have run already");
    grown
}

fn heist(procs: usize, n: u64) -> Round {
    let runtime = super::heist_runtime(procs);
    let spawn_all = move |task: fn()| (0..n).for_each(|_| drop(heist::go(task)));
    Box::new(move || runtime.run(|| growth(spawn_all)))
}

fn tokio(procs: usize, n: u64) -> Round {
    let runtime = super::tokio_runtime(procs);
    let spawn_all =
        move |task: fn()| (0..n).for_each(|_| drop(tokio::spawn(async move { task() })));
    Box::new(move || super::on_tokio(&runtime, async move { growth(spawn_all) }))
}

fn may(procs: usize, n: u64) -> Round {
    super::set_up_may(procs);
    let spawn_all = move |task: fn()| (0..n).for_each(|_| drop(may::go!(task)));
    Box::new(move || super::on_may(move || growth(spawn_all)))
}
