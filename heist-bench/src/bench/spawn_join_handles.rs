//! As `spawn_join`, with a handle for each task, joined in order.

use super::compare::{Comparison, Goal};
use super::spawn_join::{MAY_BATCH, MAY_NOTE};
use super::{Benchmark, Peer, Problem, Round, nanos_since};
use crate::session::Session;
use crate::table::{Table, count};
use std::time::Instant;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "spawn_join_handles",
    about: "the same with a vector of join handles, joined in order",
    run,
};

pub(super) const PROBLEM: Problem = Problem {
    name: "spawn_join_handles",
    warm_up: true,
    peers: &[(Peer::Heist, heist), (Peer::Tokio, tokio), (Peer::May, may)],
    go: false,
};

fn run(session: &mut Session) -> Table {
    let n = session.size(1_000_000, 100_000);
    let title = format!("spawn_join_handles: ns per task, {} tasks, each joined", count(n));
    let rounds = session.rounds(5, 3);
    let comparison = Comparison::new(title, &PROBLEM, n, rounds, n as f64, Goal::None);
    let mut table = comparison.run(session);
    table.note(MAY_NOTE);
    table
}

/// The sum shows that every value arrived.
fn check(sum: u64, n: u64) {
    assert_eq!(sum, n * n.saturating_sub(1) / 2, "values were lost");
}

fn heist(procs: usize, n: u64) -> Round {
    let runtime = super::heist_runtime(procs);
    let spawn_all = move || {
        let begin = Instant::now();
        let handles: Vec<_> = (0..n).map(|i| heist::go(move || i)).collect();
        check(handles.into_iter().map(|handle| handle.join().expect("no panic")).sum(), n);
        nanos_since(begin)
    };
    Box::new(move || vec![runtime.run(spawn_all)])
}

fn tokio(procs: usize, n: u64) -> Round {
    let runtime = super::tokio_runtime(procs);
    let spawn_all = move || async move {
        let begin = Instant::now();
        let handles: Vec<_> = (0..n).map(|i| tokio::spawn(async move { i })).collect();
        let mut sum = 0;
        for handle in handles {
            sum += handle.await.expect("no panic");
        }
        check(sum, n);
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_tokio(&runtime, spawn_all())])
}

/// In batches: see [`MAY_BATCH`].
fn may(procs: usize, n: u64) -> Round {
    super::set_up_may(procs);
    let spawn_all = move || {
        let begin = Instant::now();
        for batch in super::batches(n, MAY_BATCH) {
            let handles: Vec<_> = (0..batch).map(|i| may::go!(move || i)).collect();
            let values = handles.into_iter().map(|handle| handle.join().expect("no panic"));
            check(values.sum(), batch);
        }
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_may(spawn_all)])
}
