//! A token goes round a ring of 503 tasks: threadring, of the benchmarks game.

use super::compare::{Comparison, Goal};
use super::{Benchmark, Peer, Problem, Round, nanos_since};
use crate::session::Session;
use crate::table::{Table, count};
use std::time::Instant;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "ring",
    about: "a token goes round a ring of 503 tasks, over rendezvous channels",
    run,
};

pub(super) const PROBLEM: Problem = Problem {
    name: "ring",
    warm_up: true,
    peers: &[(Peer::Heist, heist), (Peer::Tokio, tokio), (Peer::May, may)],
    go: true,
};

/// Tasks in the ring. One of them starts a lap and waits for the token to be back,
/// the others pass it on.
const TASKS: u64 = 503;

fn run(session: &mut Session) -> Table {
    let laps = session.size(1000, 400);
    let hops = laps * TASKS;
    let title = format!("ring: ns per hop, {} hops round {TASKS} tasks", count(hops));
    let rounds = session.rounds(9, 5);
    let goal = Goal::OfBest([0.5, 0.4]);
    let comparison = Comparison::new(title, &PROBLEM, laps, rounds, hops as f64, goal);
    let mut table = comparison.run(session);
    table.note("tokio and may have no rendezvous: a capacity of one, and none at all");
    table
}

fn heist(procs: usize, laps: u64) -> Round {
    let runtime = super::heist_runtime(procs);
    let run_laps = move || {
        let (first, mut last) = heist::chan::bounded(0);
        for _ in 1..TASKS {
            let (next, receiver) = heist::chan::bounded(0);
            let previous = std::mem::replace(&mut last, receiver);
            drop(heist::go(move || {
                for token in previous {
                    next.send(token).expect("it is received");
                }
            }));
        }
        let begin = Instant::now();
        for lap in 0..laps {
            first.send(lap).expect("it is received");
            assert_eq!(last.recv(), Ok(lap));
        }
        nanos_since(begin)
    };
    Box::new(move || vec![runtime.run(run_laps)])
}

/// With a capacity of one, which is the nearest that tokio has to a rendezvous.
fn tokio(procs: usize, laps: u64) -> Round {
    let runtime = super::tokio_runtime(procs);
    let run_laps = move || async move {
        let (first, mut last) = tokio::sync::mpsc::channel(1);
        for _ in 1..TASKS {
            let (next, receiver) = tokio::sync::mpsc::channel(1);
            let mut previous = std::mem::replace(&mut last, receiver);
            drop(tokio::spawn(async move {
                while let Some(token) = previous.recv().await {
                    next.send(token).await.expect("it is received");
                }
            }));
        }
        let begin = Instant::now();
        for lap in 0..laps {
            first.send(lap).await.expect("it is received");
            assert_eq!(last.recv().await, Some(lap));
        }
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_tokio(&runtime, run_laps())])
}

/// Unbounded, which with one token is no difference.
fn may(procs: usize, laps: u64) -> Round {
    super::set_up_may(procs);
    let run_laps = move || {
        let (first, mut last) = may::sync::spsc::channel();
        for _ in 1..TASKS {
            let (next, receiver) = may::sync::spsc::channel();
            let previous = std::mem::replace(&mut last, receiver);
            drop(may::go!(move || {
                for token in previous {
                    next.send(token).expect("it is received");
                }
            }));
        }
        let begin = Instant::now();
        for lap in 0..laps {
            first.send(lap).expect("it is received");
            assert_eq!(last.recv(), Ok(lap));
        }
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_may(run_laps)])
}
