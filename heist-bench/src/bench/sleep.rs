//! 200,000 tasks sleep for 1 to 200 ms.

use super::compare::{Comparison, Goal, Measure};
use super::gate::{HeistGate, MayGate, TokioGate, notify};
use super::{Benchmark, Peer, Problem, Round, nanos_since};
use crate::session::Session;
use crate::system;
use crate::table::{Table, count};
use std::time::{Duration, Instant};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "sleep",
    about: "200,000 tasks sleep for 1 to 200 ms: ms, and ms of CPU time",
    run,
};

pub(super) const PROBLEM: Problem = Problem {
    name: "sleep",
    warm_up: true,
    peers: &[(Peer::Heist, heist), (Peer::Tokio, tokio), (Peer::May, may)],
    go: true,
};

/// The longest sleep, in milliseconds.
const LONGEST: u64 = 200;

fn run(session: &mut Session) -> Table {
    let n = session.size(200_000, 50_000);
    let title = format!("sleep: ms until {} tasks have slept for 1 to {LONGEST} ms", count(n));
    let rounds = session.rounds(7, 3);
    let mut comparison = Comparison::new(title, &PROBLEM, n, rounds, 1e6, Goal::None);
    // Fewer tasks need hardly more than the longest sleep, whoever runs them.
    let wall = if session.options.quick { Goal::None } else { Goal::OfBest([0.6, 0.6]) };
    comparison.measures = vec![
        Measure { name: "wall", per: 1e6, goal: wall },
        Measure { name: "CPU", per: 1e6, goal: Goal::OfBest([0.5, 0.5]) },
    ];
    comparison.least = Some(LONGEST as f64);
    // A page for each stack, and the same for what Go has.
    system::touch_memory(n * 2 * 4096);
    let mut table = comparison.run(session);
    table.note(format!("wall: nobody can need less than {LONGEST} ms"));
    table
}

/// How long a task sleeps.
fn duration(task: u64) -> Duration {
    Duration::from_millis(1 + task % LONGEST)
}

/// When a round began, by the clock on the wall and by that of the CPUs.
struct Begin(Instant, Duration);

impl Begin {
    fn now() -> Begin {
        Begin(Instant::now(), system::cpu_time())
    }

    /// How long it took by both.
    fn elapsed(&self) -> Vec<u64> {
        let wall = nanos_since(self.0);
        vec![wall, (system::cpu_time() - self.1).as_nanos() as u64]
    }
}

fn heist(procs: usize, n: u64) -> Round {
    let runtime = super::heist_runtime(procs);
    let gate = HeistGate::new();
    let sleep_all = move || {
        let begin = Begin::now();
        gate.close_for_me(n);
        for task in 0..n {
            drop(heist::go(move || {
                heist::time::sleep(duration(task));
                gate.done();
            }));
        }
        gate.wait();
        begin.elapsed()
    };
    Box::new(move || runtime.run(sleep_all))
}

fn tokio(procs: usize, n: u64) -> Round {
    let runtime = super::tokio_runtime_with_time(procs);
    let (gate, notify) = (TokioGate::new(), notify());
    let sleep_all = move || async move {
        let begin = Begin::now();
        gate.close(n, notify);
        for task in 0..n {
            drop(tokio::spawn(async move {
                tokio::time::sleep(duration(task)).await;
                gate.done();
            }));
        }
        gate.wait(notify).await;
        begin.elapsed()
    };
    Box::new(move || super::on_tokio(&runtime, sleep_all()))
}

/// All at once or not at all: in batches they would not sleep together.
fn may(procs: usize, n: u64) -> Round {
    super::may_must_hold(n);
    super::set_up_may(procs);
    let gate = MayGate::new();
    let sleep_all = move || {
        let begin = Begin::now();
        gate.close_for_me(n);
        for task in 0..n {
            drop(may::go!(move || {
                may::coroutine::sleep(duration(task));
                gate.done();
            }));
        }
        gate.wait();
        begin.elapsed()
    };
    Box::new(move || super::on_may(sleep_all))
}
