//! A task spawns a million others, which do nothing, and waits for them.

use super::compare::{Comparison, Goal};
use super::gate::{HeistGate, MayGate, TokioGate, notify};
use super::{Benchmark, Peer, Problem, Round, nanos_since};
use crate::session::Session;
use crate::table::{Table, count};
use std::time::Instant;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "spawn_join",
    about: "spawn a million trivial tasks and wait for all of them",
    run,
};

pub(super) const PROBLEM: Problem = Problem {
    name: "spawn_join",
    warm_up: true,
    peers: &[(Peer::Heist, heist), (Peer::Tokio, tokio), (Peer::May, may), (Peer::Rayon, rayon)],
    go: true,
};

fn run(session: &mut Session) -> Table {
    let n = session.size(1_000_000, 100_000);
    let title = format!("spawn_join: ns per task, {} trivial tasks", count(n));
    let rounds = session.rounds(7, 3);
    let goal = Goal::OfBest([0.6, 0.5]);
    let comparison = Comparison::new(title, &PROBLEM, n, rounds, n as f64, goal);
    let mut table = comparison.run(session);
    table.note(MAY_NOTE);
    table
}

/// may gives each coroutine a stack of two memory mappings at once, of which
/// the kernel allows 65,530 by default, so it cannot have a million. It waits
/// for each batch of as many as it keeps in its pool, which is easier.
pub(super) const MAY_BATCH: u64 = 1000;

pub(super) const MAY_NOTE: &str =
    "may: in batches of 1,000, which is easier; a million exceed vm.max_map_count";

fn heist(procs: usize, n: u64) -> Round {
    let runtime = super::heist_runtime(procs);
    let gate = HeistGate::new();
    Box::new(move || vec![runtime.run(|| spawn_all(n, gate))])
}

/// On a goroutine: spawns `n` others, waits, and says how long that took.
pub(super) fn spawn_all(n: u64, gate: &'static HeistGate) -> u64 {
    let begin = Instant::now();
    gate.close_for_me(n);
    for _ in 0..n {
        drop(heist::go(|| gate.done()));
    }
    gate.wait();
    nanos_since(begin)
}

/// With a counter and a `Notify`; a `JoinSet` takes half as long again.
fn tokio(procs: usize, n: u64) -> Round {
    let runtime = super::tokio_runtime(procs);
    let (gate, notify) = (TokioGate::new(), notify());
    let spawn_all = move || async move {
        let begin = Instant::now();
        gate.close(n, notify);
        for _ in 0..n {
            drop(tokio::spawn(async { gate.done() }));
        }
        gate.wait(notify).await;
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_tokio(&runtime, spawn_all())])
}

/// In batches: see [`MAY_BATCH`].
fn may(procs: usize, n: u64) -> Round {
    super::set_up_may(procs);
    let gate = MayGate::new();
    let spawn_all = move || {
        let begin = Instant::now();
        for batch in super::batches(n, MAY_BATCH) {
            gate.close_for_me(batch);
            for _ in 0..batch {
                drop(may::go!(|| gate.done()));
            }
            gate.wait();
        }
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_may(spawn_all)])
}

/// A scope, which waits at its end.
fn rayon(procs: usize, n: u64) -> Round {
    let pool = super::rayon_pool(procs);
    let spawn_all = move || {
        let begin = Instant::now();
        rayon::scope(|scope| {
            for _ in 0..n {
                scope.spawn(|_| {
                    std::hint::black_box(());
                });
            }
        });
        nanos_since(begin)
    };
    Box::new(move || vec![pool.install(spawn_all)])
}
