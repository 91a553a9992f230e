//! Out of the blue, a task spawns 64 others. How long until each runs?

use super::compare::{Comparison, Goal};
use super::gate::{HeistGate, MayGate, TokioGate, notify};
use super::{Benchmark, Peer, Problem, Round, clock_reading, now};
use crate::session::Session;
use crate::table::Table;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "burst",
    about: "latency from spawn to first instruction: 64 tasks after 2 ms of idleness",
    run,
};

pub(super) const PROBLEM: Problem = Problem {
    name: "burst",
    warm_up: true,
    peers: &[(Peer::Heist, heist), (Peer::Tokio, tokio), (Peer::May, may), (Peer::Rayon, rayon)],
    go: true,
};

/// Tasks in a burst.
const TASKS: u64 = 64;

/// Bursts in a round.
const BURSTS: usize = 30;

/// How long everybody sleeps before a burst.
const IDLE: Duration = Duration::from_millis(2);

fn run(session: &mut Session) -> Table {
    let rounds = session.rounds(10, 3);
    let title =
        format!("burst: µs from spawn to start, {} bursts of {TASKS} tasks", rounds * BURSTS);
    let goal = Goal::OfBest([0.5, 0.5]);
    let mut comparison = Comparison::new(title, &PROBLEM, TASKS, rounds, 1000.0, goal);
    comparison.tail = Some(Goal::None);
    let mut table = comparison.run(session);
    let reading = clock_reading();
    table.note(format!(
        "a reading of the clock takes {reading:.0} ns, and on 1 proc the median task waits for \
         about {TASKS} of them: {:.1} µs in every line",
        reading * TASKS as f64 / 1000.0
    ));
    table
}

/// When a task was spawned and when it began, in a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Times {
    spawned: AtomicU64,
    began: AtomicU64,
}

impl Times {
    fn of(n: u64) -> &'static [Times] {
        Box::leak((0..n).map(|_| Times::default()).collect())
    }

    #[inline]
    fn spawn(&self) {
        self.spawned.store(now(), Ordering::Relaxed);
    }

    #[inline]
    fn begin(&self) {
        self.began.store(now(), Ordering::Relaxed);
    }

    fn latency(&self) -> u64 {
        // Read after the gate, which orders them.
        let spawned = self.spawned.load(Ordering::Relaxed);
        self.began.load(Ordering::Relaxed).saturating_sub(spawned)
    }
}

/// A round: bursts with idleness before each.
fn bursts(times: &'static [Times], mut burst: impl FnMut() + 'static) -> Round {
    Box::new(move || {
        let mut latencies = Vec::with_capacity(BURSTS * times.len());
        for _ in 0..BURSTS {
            sleep(IDLE);
            burst();
            latencies.extend(times.iter().map(Times::latency));
        }
        latencies
    })
}

fn heist(procs: usize, n: u64) -> Round {
    let runtime = super::heist_runtime(procs);
    let (gate, times) = (HeistGate::new(), Times::of(n));
    let burst = move || {
        gate.close_for_me(n);
        for task in times {
            task.spawn();
            drop(heist::go(|| {
                task.begin();
                gate.done();
            }));
        }
        gate.wait();
    };
    bursts(times, move || runtime.run(burst))
}

fn tokio(procs: usize, n: u64) -> Round {
    let runtime = super::tokio_runtime(procs);
    let (gate, times, notify) = (TokioGate::new(), Times::of(n), notify());
    let burst = move || async move {
        gate.close(n, notify);
        for task in times {
            task.spawn();
            drop(tokio::spawn(async {
                task.begin();
                gate.done();
            }));
        }
        gate.wait(notify).await;
    };
    bursts(times, move || super::on_tokio(&runtime, burst()))
}

fn may(procs: usize, n: u64) -> Round {
    super::set_up_may(procs);
    let (gate, times) = (MayGate::new(), Times::of(n));
    let burst = move || {
        gate.close_for_me(n);
        for task in times {
            task.spawn();
            drop(may::go!(|| {
                task.begin();
                gate.done();
            }));
        }
        gate.wait();
    };
    bursts(times, move || super::on_may(burst))
}

fn rayon(procs: usize, n: u64) -> Round {
    let pool = super::rayon_pool(procs);
    let times = Times::of(n);
    let burst = move || {
        rayon::scope(|scope| {
            for task in times {
                task.spawn();
                scope.spawn(|_| task.begin());
            }
        });
    };
    bursts(times, move || pool.install(burst))
}
