//! Tasks that block their OS thread, five times each for 20 ms, in calls that the
//! runtime is told about and in calls that it is not; and somebody who sleeps for a
//! millisecond at a time meanwhile.

use super::compare::{Comparison, Goal};
use super::{Benchmark, Peer, Problem, Round, now, on_threads, on_tokio};
use crate::session::Session;
use crate::system;
use crate::table::Table;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "blockers",
    about: "200 tasks block their thread, in calls that say so",
    run: run_declared,
};

pub(super) const BENCHMARK_UNDECLARED: Benchmark = Benchmark {
    name: "blockers_undeclared",
    about: "the same, and heist is not told",
    run: run_undeclared,
};

pub(super) const BENCHMARK_TICKER: Benchmark = Benchmark {
    name: "blockers_ticker",
    about: "how late a sleeper is meanwhile",
    run: run_ticker,
};

pub(super) const PROBLEM: Problem = Problem {
    name: "blockers",
    warm_up: true,
    peers: &[
        (Peer::Heist, |procs, n| heist(procs, n, declared)),
        (Peer::Tokio, tokio),
        (Peer::Threads, threads),
    ],
    go: true,
};

pub(super) const PROBLEM_UNDECLARED: Problem = Problem {
    name: "blockers_undeclared",
    warm_up: true,
    peers: &[(Peer::Heist, |procs, n| heist(procs, n, block)), (Peer::Threads, threads)],
    go: false,
};

pub(super) const PROBLEM_TICKER: Problem = Problem {
    name: "blockers_ticker",
    warm_up: true,
    peers: &[
        (Peer::Heist, ticker_heist),
        (Peer::Threads, ticker_threads),
        (Peer::Plain, ticker_plain),
    ],
    go: true,
};

const TASKS: u64 = 200;
const TIMES: usize = 5;
const BLOCK: Duration = Duration::from_millis(20);
const TICK: Duration = Duration::from_millis(1);

fn run_declared(session: &mut Session) -> Table {
    let rounds = session.rounds(6, 3);
    let title = "blockers: ms for 200 tasks that block their thread 5 times for 20 ms";
    let goal = Goal::Of(Peer::Threads, 1.05);
    let mut table = Comparison::new(title, &PROBLEM, TASKS, rounds, 1e6, goal).run(session);
    table.note("may is left out: it blocks with them, and takes ten seconds");
    table
}

fn run_undeclared(session: &mut Session) -> Table {
    let rounds = session.rounds(6, 3);
    let title = "blockers_undeclared: the same, and nobody tells heist";
    let goal = Goal::Of(Peer::Threads, 1.3);
    Comparison::new(title, &PROBLEM_UNDECLARED, TASKS, rounds, 1e6, goal).run(session)
}

fn run_ticker(session: &mut Session) -> Table {
    let rounds = session.rounds(6, 3);
    let title = "blockers_ticker: µs that a sleeper is late while those block (nobody tells heist)";
    let goal = Goal::AtMost(200.0);
    let mut comparison = Comparison::new(title, &PROBLEM_TICKER, TASKS, rounds, 1000.0, goal);
    comparison.tail = Some(goal);
    let mut table = comparison.run(session);
    table.note("plain: threads that are there already, and precise timers: what the kernel gives");
    table
}

fn block() {
    std::thread::sleep(BLOCK);
}

fn declared() {
    heist::blocking(block);
}

fn time(f: impl FnOnce()) -> Vec<u64> {
    let begin = now();
    f();
    vec![now() - begin]
}

/// How late a sleep was, for each until `over`.
fn tick(sleep: fn(Duration), over: impl Fn() -> bool) -> Vec<u64> {
    let mut lateness = Vec::new();
    while !over() {
        let due = now() + TICK.as_nanos() as u64;
        sleep(TICK);
        lateness.push(now().saturating_sub(due));
    }
    lateness
}

fn start_heist(n: u64, block: fn()) -> Vec<heist::thread::JoinHandle<()>> {
    (0..n).map(|_| heist::go(move || (0..TIMES).for_each(|_| block()))).collect()
}

fn join_heist(all: Vec<heist::thread::JoinHandle<()>>) {
    all.into_iter().for_each(|g| g.join().expect("no panic"));
}

fn heist(procs: usize, n: u64, block: fn()) -> Round {
    let runtime = super::heist_runtime(procs);
    Box::new(move || runtime.run(|| time(|| join_heist(start_heist(n, block)))))
}

fn ticker_heist(procs: usize, n: u64) -> Round {
    let runtime = super::heist_runtime(procs);
    let round = move || {
        let all = start_heist(n, block);
        let lateness = tick(heist::time::sleep, || all.iter().all(|g| g.is_finished()));
        join_heist(all);
        lateness
    };
    Box::new(move || runtime.run(round))
}

fn tokio(procs: usize, n: u64) -> Round {
    let runtime = super::tokio_runtime(procs);
    let round = move || async move {
        let begin = now();
        let task = async || {
            for _ in 0..TIMES {
                tokio::task::spawn_blocking(block).await.expect("no panic");
            }
        };
        let all: Vec<_> = (0..n).map(|_| tokio::spawn(task())).collect();
        for one in all {
            one.await.expect("no panic");
        }
        vec![now() - begin]
    };
    Box::new(move || on_tokio(&runtime, round()))
}

fn start_threads(n: u64) -> Vec<std::thread::JoinHandle<()>> {
    (0..n).map(|_| std::thread::spawn(|| (0..TIMES).for_each(|_| block()))).collect()
}

fn join_threads(all: Vec<std::thread::JoinHandle<()>>) {
    all.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

fn threads(procs: usize, n: u64) -> Round {
    Box::new(move || on_threads(procs, || time(|| join_threads(start_threads(n)))))
}

fn ticker_threads(procs: usize, n: u64) -> Round {
    let round = move || {
        let all = start_threads(n);
        let lateness = tick(std::thread::sleep, || all.iter().all(|t| t.is_finished()));
        join_threads(all);
        lateness
    };
    Box::new(move || on_threads(procs, round))
}

/// What the kernel gives a sleeper at best: the threads were made before, they begin one
/// after the other, and its timers are not rounded.
fn ticker_plain(procs: usize, n: u64) -> Round {
    const APART: Duration = Duration::from_micros(30);
    system::use_cpus(procs);
    let begin = Arc::new(Barrier::new(n as usize + 1));
    let running = Arc::new(AtomicU64::new(0));
    for i in 0..n as u32 {
        let (begin, running) = (begin.clone(), running.clone());
        std::thread::spawn(move || {
            loop {
                begin.wait();
                std::thread::sleep(APART * i);
                (0..TIMES).for_each(|_| block());
                running.fetch_sub(1, Ordering::SeqCst);
            }
        });
    }
    system::sleep_precisely();
    Box::new(move || {
        running.store(n, Ordering::SeqCst);
        begin.wait();
        tick(std::thread::sleep, || running.load(Ordering::SeqCst) == 0)
    })
}
