//! A timer for a minute is made, and stopped at once: what most timeouts do.

use super::compare::{Comparison, Goal};
use super::{Benchmark, Peer, Problem, Round, nanos_since};
use crate::session::Session;
use crate::table::{Table, count};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::task::unconstrained;

pub(super) const BENCHMARK: Benchmark =
    Benchmark { name: "timer", about: "create and cancel a timer for a minute", run };

/// may can sleep, but has no timer that could be stopped.
pub(super) const PROBLEM: Problem = Problem {
    name: "timer",
    warm_up: true,
    peers: &[(Peer::Heist, heist), (Peer::Tokio, tokio)],
    go: true,
};

const MINUTE: Duration = Duration::from_secs(60);

fn run(session: &mut Session) -> Table {
    let n = session.size(300_000, 100_000);
    let title = format!("timer: ns per timer created and cancelled, {} of them", count(n));
    let rounds = session.rounds(9, 5);
    let goal = Goal::OfBest([0.5, 0.5]);
    let comparison = Comparison::new(title, &PROBLEM, n, rounds, n as f64, goal);
    let mut table = comparison.run(session);
    table.note("may is left out: it has no timers that can be stopped");
    table
}

fn heist(procs: usize, n: u64) -> Round {
    let runtime = super::heist_runtime(procs);
    let start_and_stop = move || {
        let begin = Instant::now();
        for _ in 0..n {
            let timer = heist::time::Timer::after(MINUTE, || unreachable!("it is stopped"));
            assert!(timer.stop(), "it had not fired");
        }
        nanos_since(begin)
    };
    Box::new(move || vec![runtime.run(start_and_stop)])
}

/// A `Sleep` that was polled: before, it is in no timer wheel. Unconstrained, as a
/// task that has used up its budget would no longer have it put there.
fn tokio(procs: usize, n: u64) -> Round {
    let runtime = super::tokio_runtime_with_time(procs);
    let start_and_stop = move || async move {
        let begin = Instant::now();
        for _ in 0..n {
            let mut sleep = pin!(tokio::time::sleep(MINUTE));
            let is_over = poll_fn(|context| Poll::Ready(sleep.as_mut().poll(context))).await;
            assert!(is_over.is_pending());
        }
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_tokio(&runtime, unconstrained(start_and_stop()))])
}
