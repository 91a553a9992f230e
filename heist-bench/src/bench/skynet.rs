//! Skynet: a tree of tasks, ten below each, down to a million leaves. Each node
//! sums up what its children send over its channel and sends that up.

use super::compare::{Comparison, Goal};
use super::{Benchmark, Peer, Problem, Round, nanos_since};
use crate::session::Session;
use crate::table::{Table, count};
use std::ops::Range;
use std::pin::Pin;
use std::time::Instant;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "skynet",
    about: "a tree of tasks with a million leaves, and a channel for each node",
    run,
};

pub(super) const PROBLEM: Problem = Problem {
    name: "skynet",
    warm_up: true,
    peers: &[(Peer::Heist, heist), (Peer::Tokio, tokio), (Peer::May, may)],
    go: true,
};

/// Children of a node.
const CHILDREN: u64 = 10;

fn run(session: &mut Session) -> Table {
    let n = session.size(1_000_000, 100_000);
    let title = format!("skynet: ms for a tree of {} leaves", count(n));
    let rounds = session.rounds(7, 3);
    let goal = Goal::Of(Peer::Go, 0.3);
    Comparison::new(title, &PROBLEM, n, rounds, 1e6, goal).run(session)
}

/// The leaves below each child of a node with those leaves.
fn children(leaves: Range<u64>) -> impl Iterator<Item = Range<u64>> + Send {
    let share = (leaves.end - leaves.start).div_ceil(CHILDREN);
    let begins = leaves.clone().step_by(share as usize);
    begins.map(move |begin| begin..leaves.end.min(begin + share))
}

/// What arrives at the top.
fn sum(n: u64) -> u64 {
    (0..n).sum()
}

fn heist(procs: usize, n: u64) -> Round {
    fn node(up: heist::chan::Sender<u64>, leaves: Range<u64>) {
        let value = if leaves.end - leaves.start == 1 {
            leaves.start
        } else {
            let (sender, receiver) = heist::chan::bounded(0);
            let spawn = |child| {
                let sender = sender.clone();
                drop(heist::go(move || node(sender, child)));
            };
            let count = children(leaves).map(spawn).count();
            receiver.iter().take(count).sum()
        };
        up.send(value).expect("it is received");
    }
    let runtime = super::heist_runtime(procs);
    let tree = move || {
        let begin = Instant::now();
        let (sender, receiver) = heist::chan::bounded(0);
        drop(heist::go(move || node(sender, 0..n)));
        assert_eq!(receiver.recv(), Ok(sum(n)));
        nanos_since(begin)
    };
    Box::new(move || vec![runtime.run(tree)])
}

/// With a capacity of one. Room for all children makes it no faster, and channels
/// without bounds take twice as long.
fn tokio(procs: usize, n: u64) -> Round {
    use tokio::sync::mpsc::{Sender, channel};
    fn node(up: Sender<u64>, leaves: Range<u64>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let value = if leaves.end - leaves.start == 1 {
                leaves.start
            } else {
                let (sender, mut receiver) = channel(1);
                let spawn = |child| drop(tokio::spawn(node(sender.clone(), child)));
                let mut sum = 0;
                for _ in 0..children(leaves).map(spawn).count() {
                    sum += receiver.recv().await.expect("every child sends");
                }
                sum
            };
            up.send(value).await.expect("it is received");
        })
    }
    let runtime = super::tokio_runtime(procs);
    let tree = move || async move {
        let begin = Instant::now();
        let (sender, mut receiver) = channel(1);
        drop(tokio::spawn(node(sender, 0..n)));
        assert_eq!(receiver.recv().await, Some(sum(n)));
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_tokio(&runtime, tree())])
}

/// Nearly all of its coroutines are there at a time, if there can be as many.
fn may(procs: usize, n: u64) -> Round {
    use may::sync::mpsc::{Sender, channel};
    fn node(up: Sender<u64>, leaves: Range<u64>) {
        let value = if leaves.end - leaves.start == 1 {
            leaves.start
        } else {
            let (sender, receiver) = channel();
            let spawn = |child| {
                let sender = sender.clone();
                drop(may::go!(move || node(sender, child)));
            };
            let count = children(leaves).map(spawn).count();
            receiver.iter().take(count).sum()
        };
        up.send(value).expect("it is received");
    }
    super::may_must_hold(n + n / (CHILDREN - 1));
    super::set_up_may(procs);
    let tree = move || {
        let begin = Instant::now();
        let (sender, receiver) = channel();
        drop(may::go!(move || node(sender, 0..n)));
        assert_eq!(receiver.recv(), Ok(sum(n)));
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_may(tree)])
}
