//! A process in which all tasks wait: what does it cost?

use super::compare::{Comparison, Goal, Measure};
use super::{Benchmark, Peer, Problem, Round};
use crate::session::Session;
use crate::system;
use crate::table::Table;
use std::thread::sleep;
use std::time::Duration;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "idle",
    about: "wake-ups and CPU time of a process in which all tasks wait",
    run,
};

pub(super) const PROBLEM: Problem = Problem {
    name: "idle",
    warm_up: false,
    peers: &[(Peer::Heist, heist), (Peer::Tokio, tokio)],
    go: false,
};

const TASKS: u64 = 100;

/// Until all threads sleep that want to.
const SETTLE: Duration = Duration::from_secs(1);
const SECONDS: u64 = 10;

fn run(session: &mut Session) -> Table {
    let rounds = session.rounds(2, 1);
    let title = "idle: what a process costs in which 100 tasks wait, each second";
    let seconds = SECONDS as f64;
    let mut comparison = Comparison::new(title, &PROBLEM, TASKS, rounds, seconds, Goal::None);
    comparison.measures = vec![
        Measure { name: "wake-ups", per: seconds, goal: Goal::AtMost(2.0) },
        Measure { name: "CPU, µs", per: 1000.0 * seconds, goal: Goal::AtMost(100.0) },
    ];
    comparison.run(session)
}

/// How often threads of this process have gone to sleep, and its CPU time in ns,
/// while nothing happened. The thread that counts sleeps once, which is left out.
fn watch() -> Vec<u64> {
    sleep(SETTLE);
    let before = (system::sleeps(), system::cpu_time());
    sleep(Duration::from_secs(SECONDS));
    let after = (system::sleeps(), system::cpu_time());
    let sleeps = (after.0 - before.0).saturating_sub(1);
    vec![sleeps, (after.1 - before.1).as_nanos() as u64]
}

fn heist(procs: usize, n: u64) -> Round {
    let runtime = super::heist_runtime(procs);
    Box::new(move || {
        let all: Vec<_> = (0..n).map(|_| runtime.go(|| heist::thread::park())).collect();
        let seen = watch();
        all.iter().for_each(|g| g.thread().unpark());
        all.into_iter().for_each(|g| g.join().expect("no panic"));
        seen
    })
}

fn tokio(procs: usize, n: u64) -> Round {
    let runtime = super::tokio_runtime(procs);
    Box::new(move || {
        let notify = std::sync::Arc::new(tokio::sync::Notify::new());
        let all: Vec<_> = (0..n)
            .map(|_| {
                let notify = notify.clone();
                runtime.spawn(async move { notify.notified().await })
            })
            .collect();
        let seen = watch();
        notify.notify_waiters();
        all.into_iter().for_each(|task| runtime.block_on(task).expect("no panic"));
        seen
    })
}
