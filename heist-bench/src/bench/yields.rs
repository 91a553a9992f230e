//! A thousand tasks that each yield a thousand times.

use super::compare::{Comparison, Goal};
use super::gate::{HeistGate, MayGate, TokioGate, notify};
use super::{Benchmark, Peer, Problem, Round, nanos_since};
use crate::session::Session;
use crate::table::Table;
use std::time::Instant;

pub(super) const BENCHMARK: Benchmark =
    Benchmark { name: "yield", about: "a thousand tasks yield a thousand times each", run };

pub(super) const PROBLEM: Problem = Problem {
    name: "yield",
    warm_up: true,
    peers: &[(Peer::Heist, heist), (Peer::Tokio, tokio), (Peer::May, may)],
    go: true,
};

/// How often each task yields.
const YIELDS: u64 = 1000;

fn run(session: &mut Session) -> Table {
    let n = 1000;
    let title = "yield: ns per yield, 1,000 tasks that yield 1,000 times each";
    let rounds = session.rounds(15, 5);
    let goal = Goal::OfBest([0.4, 0.5]);
    Comparison::new(title, &PROBLEM, n, rounds, (n * YIELDS) as f64, goal).run(session)
}

fn heist(procs: usize, n: u64) -> Round {
    let runtime = super::heist_runtime(procs);
    let gate = HeistGate::new();
    let yield_all = move || {
        let begin = Instant::now();
        gate.close_for_me(n);
        for _ in 0..n {
            drop(heist::go(|| {
                for _ in 0..YIELDS {
                    heist::thread::yield_now();
                }
                gate.done();
            }));
        }
        gate.wait();
        nanos_since(begin)
    };
    Box::new(move || vec![runtime.run(yield_all)])
}

fn tokio(procs: usize, n: u64) -> Round {
    let runtime = super::tokio_runtime(procs);
    let (gate, notify) = (TokioGate::new(), notify());
    let yield_all = move || async move {
        let begin = Instant::now();
        gate.close(n, notify);
        for _ in 0..n {
            drop(tokio::spawn(async {
                for _ in 0..YIELDS {
                    tokio::task::yield_now().await;
                }
                gate.done();
            }));
        }
        gate.wait(notify).await;
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_tokio(&runtime, yield_all())])
}

fn may(procs: usize, n: u64) -> Round {
    super::set_up_may(procs);
    let gate = MayGate::new();
    let yield_all = move || {
        let begin = Instant::now();
        gate.close_for_me(n);
        for _ in 0..n {
            drop(may::go!(|| {
                for _ in 0..YIELDS {
                    may::coroutine::yield_now();
                }
                gate.done();
            }));
        }
        gate.wait();
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_may(yield_all)])
}
