//! A producer and a consumer, and a buffered channel between them.

use super::compare::{Comparison, Goal};
use super::{Benchmark, Peer, Problem, Round, nanos_since};
use crate::session::Session;
use crate::table::{Table, count};
use std::time::Instant;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "buffered",
    about: "a producer and a consumer, and a channel of capacity 128 between them",
    run,
};

pub(super) const PROBLEM: Problem = Problem {
    name: "buffered",
    warm_up: true,
    peers: &[(Peer::Heist, heist), (Peer::Tokio, tokio), (Peer::May, may)],
    go: true,
};

pub(super) const CAPACITY: usize = 128;

/// What may does instead of waiting when a buffer is full.
pub(super) const MAY_NOTE: &str =
    "may: unbounded, which is easier, as a sender never waits; it has no other channels";

fn run(session: &mut Session) -> Table {
    let n = session.size(1_000_000, 250_000);
    let title = format!("buffered: ns per message, {} of them, capacity {CAPACITY}", count(n));
    let rounds = session.rounds(9, 5);
    let goal = Goal::OfBest([0.9, 0.9]);
    let comparison = Comparison::new(title, &PROBLEM, n, rounds, n as f64, goal);
    let mut table = comparison.run(session);
    table.note(MAY_NOTE);
    table
}

/// What the consumer must have received in all.
fn sum(n: u64) -> u64 {
    (0..n).sum()
}

fn heist(procs: usize, n: u64) -> Round {
    let runtime = super::heist_runtime(procs);
    let transfer = move || {
        let begin = Instant::now();
        let (sender, receiver) = heist::chan::bounded(CAPACITY);
        drop(heist::go(move || {
            for message in 0..n {
                sender.send(message).expect("it is received");
            }
        }));
        assert_eq!(receiver.iter().sum::<u64>(), sum(n));
        nanos_since(begin)
    };
    Box::new(move || vec![runtime.run(transfer)])
}

fn tokio(procs: usize, n: u64) -> Round {
    let runtime = super::tokio_runtime(procs);
    let transfer = move || async move {
        let begin = Instant::now();
        let (sender, mut receiver) = tokio::sync::mpsc::channel(CAPACITY);
        drop(tokio::spawn(async move {
            for message in 0..n {
                sender.send(message).await.expect("it is received");
            }
        }));
        let mut received = 0;
        while let Some(message) = receiver.recv().await {
            received += message;
        }
        assert_eq!(received, sum(n));
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_tokio(&runtime, transfer())])
}

/// Its channel for one sender and one receiver: see [`MAY_NOTE`].
fn may(procs: usize, n: u64) -> Round {
    super::set_up_may(procs);
    let transfer = move || {
        let begin = Instant::now();
        let (sender, receiver) = may::sync::spsc::channel();
        drop(may::go!(move || {
            for message in 0..n {
                sender.send(message).expect("it is received");
            }
        }));
        assert_eq!(receiver.iter().sum::<u64>(), sum(n));
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_may(transfer)])
}
