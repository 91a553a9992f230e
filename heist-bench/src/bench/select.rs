//! Four producers with a channel each, and a consumer that selects among them.

use super::buffered::{CAPACITY, MAY_NOTE};
use super::compare::{Comparison, Goal};
use super::{Benchmark, Peer, Problem, Round, nanos_since};
use crate::session::Session;
use crate::table::{Table, count};
use std::time::Instant;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "select",
    about: "a consumer selects among four channels of capacity 128",
    run,
};

pub(super) const BENCHMARK_UNBUFFERED: Benchmark = Benchmark {
    name: "select_unbuffered",
    about: "a consumer selects among four rendezvous channels",
    run: run_unbuffered,
};

pub(super) const PROBLEM: Problem = Problem {
    name: "select",
    warm_up: true,
    peers: &[
        (Peer::Heist, |procs, n| heist(procs, n, CAPACITY)),
        (Peer::Tokio, |procs, n| tokio(procs, n, CAPACITY)),
        (Peer::May, may),
    ],
    go: true,
};

pub(super) const PROBLEM_UNBUFFERED: Problem = Problem {
    name: "select_unbuffered",
    warm_up: true,
    peers: &[
        (Peer::Heist, |procs, n| heist(procs, n, 0)),
        // The nearest that tokio has to a rendezvous.
        (Peer::Tokio, |procs, n| tokio(procs, n, 1)),
    ],
    go: true,
};

const CHANNELS: u64 = 4;

fn run(session: &mut Session) -> Table {
    let n = session.size(400_000, 200_000);
    let title = format!(
        "select: ns per message, {} of them over {CHANNELS} channels of capacity {CAPACITY}",
        count(n)
    );
    let rounds = session.rounds(9, 5);
    let goal = Goal::OfBest([0.7, 0.7]);
    let comparison = Comparison::new(title, &PROBLEM, n, rounds, n as f64, goal);
    let mut table = comparison.run(session);
    table.note(MAY_NOTE);
    table
}

fn run_unbuffered(session: &mut Session) -> Table {
    let n = session.size(200_000, 100_000);
    let title = format!(
        "select_unbuffered: ns per message, {} of them over {CHANNELS} rendezvous channels",
        count(n)
    );
    let rounds = session.rounds(9, 5);
    let goal = Goal::OfBest([0.4, 0.4]);
    let comparison = Comparison::new(title, &PROBLEM_UNBUFFERED, n, rounds, n as f64, goal);
    let mut table = comparison.run(session);
    table.note("tokio has no rendezvous: a capacity of one, which is easier");
    table.note("may is left out: it has unbounded channels only");
    table
}

/// Messages of one producer.
fn share(n: u64) -> u64 {
    n / CHANNELS
}

/// What the consumer must have received in all.
fn sum(n: u64) -> u64 {
    CHANNELS * (0..share(n)).sum::<u64>()
}

fn heist(procs: usize, n: u64, capacity: usize) -> Round {
    let runtime = super::heist_runtime(procs);
    let transfer = move || {
        let begin = Instant::now();
        // A channel without senders would always be ready.
        let [(_a, a), (_b, b), (_c, c), (_d, d)] = [(); CHANNELS as usize].map(|()| {
            let (sender, receiver) = heist::chan::bounded(capacity);
            let producer = sender.clone();
            drop(heist::go(move || {
                for message in 0..share(n) {
                    producer.send(message).expect("it is received");
                }
            }));
            (sender, receiver)
        });
        let mut received = 0;
        for _ in 0..CHANNELS * share(n) {
            let message = heist::chan::select! {
                recv(a) -> message => message,
                recv(b) -> message => message,
                recv(c) -> message => message,
                recv(d) -> message => message,
            };
            received += message.expect("no sender is gone");
        }
        assert_eq!(received, sum(n));
        nanos_since(begin)
    };
    Box::new(move || vec![runtime.run(transfer)])
}

/// `select!`, in random order as everybody here.
fn tokio(procs: usize, n: u64, capacity: usize) -> Round {
    let runtime = super::tokio_runtime(procs);
    let transfer = move || async move {
        let begin = Instant::now();
        let [mut a, mut b, mut c, mut d] = [(); CHANNELS as usize].map(|()| {
            let (sender, receiver) = tokio::sync::mpsc::channel(capacity);
            drop(tokio::spawn(async move {
                for message in 0..share(n) {
                    sender.send(message).await.expect("it is received");
                }
            }));
            receiver
        });
        let mut received = 0;
        for _ in 0..CHANNELS * share(n) {
            // A channel that is disconnected does not match.
            received += tokio::select! {
                Some(message) = a.recv() => message,
                Some(message) = b.recv() => message,
                Some(message) = c.recv() => message,
                Some(message) = d.recv() => message,
            };
        }
        assert_eq!(received, sum(n));
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_tokio(&runtime, transfer())])
}

/// A completion queue for all messages: its `select!` makes one for each, with a
/// coroutine for each channel, and is slower by orders of magnitude.
fn may(procs: usize, n: u64) -> Round {
    super::set_up_may(procs);
    let transfer = move || {
        let begin = Instant::now();
        let received = may::cqueue::scope(|queue| {
            for channel in 0..CHANNELS as usize {
                let (sender, receiver) = may::sync::spsc::channel();
                drop(may::go!(move || {
                    for message in 0..share(n) {
                        sender.send(message).expect("it is received");
                    }
                }));
                may::go!(queue, channel, move |events| {
                    for message in receiver {
                        events.send(message as usize);
                    }
                });
            }
            let mut received = 0;
            while let Ok(event) = queue.poll(None) {
                received += event.extra as u64;
            }
            received
        });
        assert_eq!(received, sum(n));
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_may(transfer)])
}
