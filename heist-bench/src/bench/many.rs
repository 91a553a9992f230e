//! Eight producers and eight consumers on one channel.

use super::buffered::{CAPACITY, MAY_NOTE};
use super::compare::{Comparison, Goal};
use super::{Benchmark, Peer, Problem, Round, nanos_since};
use crate::session::Session;
use crate::table::{Table, count};
use std::time::Instant;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "many",
    about: "eight producers and eight consumers on a channel of capacity 128",
    run,
};

/// tokio has no channel for many receivers of whom each takes its share.
pub(super) const PROBLEM: Problem = Problem {
    name: "many",
    warm_up: true,
    peers: &[(Peer::Heist, heist), (Peer::May, may)],
    go: true,
};

/// Producers, and as many consumers.
const SIDES: u64 = 8;

fn run(session: &mut Session) -> Table {
    let n = session.size(800_000, 200_000);
    let title = format!(
        "many: ns per message, {} of them, {SIDES} producers and {SIDES} consumers, capacity \
         {CAPACITY}",
        count(n)
    );
    let rounds = session.rounds(9, 5);
    let goal = Goal::OfBest([0.8, 0.8]);
    let comparison = Comparison::new(title, &PROBLEM, n, rounds, n as f64, goal);
    let mut table = comparison.run(session);
    table.note(MAY_NOTE);
    table.note("tokio is left out: its channels have one receiver");
    table
}

/// Messages of one producer.
fn share(n: u64) -> u64 {
    n / SIDES
}

/// What the consumers must have received in all.
fn sum(n: u64) -> u64 {
    SIDES * (0..share(n)).sum::<u64>()
}

fn heist(procs: usize, n: u64) -> Round {
    let runtime = super::heist_runtime(procs);
    let transfer = move || {
        let begin = Instant::now();
        let (sender, receiver) = heist::chan::bounded(CAPACITY);
        for _ in 0..SIDES {
            let sender = sender.clone();
            drop(heist::go(move || {
                for message in 0..share(n) {
                    sender.send(message).expect("it is received");
                }
            }));
        }
        drop(sender);
        let consumers: Vec<_> = (0..SIDES)
            .map(|_| {
                let receiver = receiver.clone();
                heist::go(move || receiver.iter().sum::<u64>())
            })
            .collect();
        let received = consumers.into_iter().map(|c| c.join().expect("it only receives"));
        assert_eq!(received.sum::<u64>(), sum(n));
        nanos_since(begin)
    };
    Box::new(move || vec![runtime.run(transfer)])
}

fn may(procs: usize, n: u64) -> Round {
    super::set_up_may(procs);
    let transfer = move || {
        let begin = Instant::now();
        let (sender, receiver) = may::sync::mpmc::channel();
        for _ in 0..SIDES {
            let sender = sender.clone();
            drop(may::go!(move || {
                for message in 0..share(n) {
                    sender.send(message).expect("it is received");
                }
            }));
        }
        drop(sender);
        let consumers: Vec<_> = (0..SIDES)
            .map(|_| {
                let receiver = receiver.clone();
                may::go!(move || receiver.iter().sum::<u64>())
            })
            .collect();
        let received = consumers.into_iter().map(|c| c.join().expect("it only receives"));
        assert_eq!(received.sum::<u64>(), sum(n));
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_may(transfer)])
}
