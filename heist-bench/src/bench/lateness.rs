//! As many tasks compute, and call nobody, as there are workers. Another one sleeps
//! for a millisecond at a time. How late is it, and what does that cost the others?

use super::compare::{Comparison, Goal};
use super::{Benchmark, Peer, Problem, Round, now, on_threads};
use crate::session::Session;
use crate::system;
use crate::table::Table;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "lateness",
    about: "how late a sleeper is while others compute on all workers",
    run: run_lateness,
};

pub(super) const BENCHMARK_WORK: Benchmark = Benchmark {
    name: "lateness_work",
    about: "what those who compute get done meanwhile",
    run: run_work,
};

pub(super) const BENCHMARK_SHARE: Benchmark = Benchmark {
    name: "lateness_share",
    about: "how much of the CPUs those who compute have meanwhile",
    run: run_share,
};

pub(super) const PROBLEM: Problem = Problem {
    name: "lateness",
    warm_up: true,
    peers: &[
        (Peer::Heist, |procs, n| heist(procs, n, |sleeper| sleeper.lateness)),
        (Peer::Threads, |procs, n| threads(procs, n, |sleeper| sleeper.lateness)),
    ],
    go: true,
};

pub(super) const PROBLEM_WORK: Problem = Problem {
    name: "lateness_work",
    warm_up: true,
    peers: &[
        (Peer::Heist, |procs, n| heist(procs, n, |sleeper| vec![sleeper.step])),
        (Peer::Threads, |procs, n| threads(procs, n, |sleeper| vec![sleeper.step])),
    ],
    go: true,
};

/// Without Go: its goroutines go from thread to thread while they compute, so that
/// nobody knows how long they have run.
pub(super) const PROBLEM_SHARE: Problem = Problem {
    name: "lateness_share",
    warm_up: true,
    peers: &[
        (Peer::Heist, |procs, n| heist(procs, n, |sleeper| vec![sleeper.share])),
        (Peer::Threads, |procs, n| threads(procs, n, |sleeper| vec![sleeper.share])),
    ],
    go: false,
};

const SLEEP: Duration = Duration::from_millis(1);
const MILLION: f64 = 1e6;

fn run_lateness(session: &mut Session) -> Table {
    let rounds = session.rounds(6, 3);
    let title = "lateness: µs that a sleeper is late while all workers compute";
    let goal = Goal::Of(Peer::Threads, 1.2);
    let mut comparison = Comparison::new(title, &PROBLEM, 200, rounds, 1000.0, goal);
    comparison.tail = Some(goal);
    let mut table = comparison.run(session);
    table.note("tokio and may are left out: there the sleeper never runs again");
    table
}

fn run_work(session: &mut Session) -> Table {
    // Those who share the machine slow some rounds down to a third.
    let rounds = session.rounds(24, 3);
    let title = "lateness_work: ns of all workers' time for a step of those who compute meanwhile";
    let goal = Goal::Of(Peer::Threads, 1.05);
    Comparison::new(title, &PROBLEM_WORK, 200, rounds, 1000.0, goal).run(session)
}

fn run_share(session: &mut Session) -> Table {
    let rounds = session.rounds(12, 3);
    let title = "lateness_share: all workers' time, by the CPU time of those who compute meanwhile";
    let goal = Goal::Of(Peer::Threads, 1.05);
    let mut table = Comparison::new(title, &PROBLEM_SHARE, 200, rounds, MILLION, goal).run(session);
    table.note("steps, but for how fast the machine was at that moment");
    table
}

/// What a round of sleeping has shown.
struct Sleeper {
    lateness: Vec<u64>,
    /// The time of all workers for 1,000 steps of those who computed.
    step: u64,
    /// That time, in millionths of the CPU time that those had.
    share: u64,
}

/// Those who compute, as seen by the sleeper.
#[derive(Clone, Default)]
struct Hogs {
    stop: Arc<AtomicBool>,
    steps: Arc<AtomicU64>,
    /// Nanoseconds on a CPU. Who computes stays on the thread, also in heist.
    cpu: Arc<AtomicU64>,
}

impl Hogs {
    fn compute(&self) {
        let begin = system::thread_cpu_time();
        let (mut x, mut steps) = (1u64, 0);
        while !self.stop.load(Ordering::Relaxed) {
            for _ in 0..1000 {
                x = black_box(x.rotate_left(7) ^ 0x9e37_79b9);
            }
            steps += 1000;
        }
        self.steps.fetch_add(steps, Ordering::Relaxed);
        let had = (system::thread_cpu_time() - begin).as_nanos() as u64;
        self.cpu.fetch_add(had, Ordering::Relaxed);
    }

    /// Sleeps `n` times while they compute, and has them stop; `join` waits for that.
    fn watch(&self, procs: usize, n: u64, sleep: fn(Duration), join: impl FnOnce()) -> Sleeper {
        let begin = now();
        let lateness = (0..n)
            .map(|_| {
                let due = now() + SLEEP.as_nanos() as u64;
                sleep(SLEEP);
                now().saturating_sub(due)
            })
            .collect();
        self.stop.store(true, Ordering::Relaxed);
        let took = now() - begin;
        join();
        let time = took as f64 * procs as f64;
        let by = |what: &AtomicU64| time / what.load(Ordering::Relaxed).max(1) as f64;
        let (step, share) = (by(&self.steps) * 1000.0, by(&self.cpu) * MILLION);
        Sleeper { lateness, step: step as u64, share: share as u64 }
    }
}

fn heist(procs: usize, n: u64, samples: fn(Sleeper) -> Vec<u64>) -> Round {
    let runtime = super::heist_runtime(procs);
    let round = move || {
        let hogs = Hogs::default();
        let all: Vec<_> = (0..procs)
            .map(|_| {
                let hogs = hogs.clone();
                heist::go(move || hogs.compute())
            })
            .collect();
        let join = || all.into_iter().for_each(|hog| hog.join().expect("no panic"));
        samples(hogs.watch(procs, n, heist::time::sleep, join))
    };
    Box::new(move || runtime.run(round))
}

fn threads(procs: usize, n: u64, samples: fn(Sleeper) -> Vec<u64>) -> Round {
    let round = move || {
        let hogs = Hogs::default();
        let all: Vec<_> = (0..procs)
            .map(|_| {
                let hogs = hogs.clone();
                std::thread::spawn(move || hogs.compute())
            })
            .collect();
        let join = || all.into_iter().for_each(|hog| hog.join().expect("no panic"));
        samples(hogs.watch(procs, n, std::thread::sleep, join))
    };
    Box::new(move || on_threads(procs, round))
}
