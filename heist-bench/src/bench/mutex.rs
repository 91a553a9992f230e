//! A hundred tasks increment a counter that a mutex guards.

use super::compare::{Comparison, Goal};
use super::{Benchmark, Peer, Problem, Round, nanos_since};
use crate::session::Session;
use crate::table::{Table, count};
use std::sync::Arc;
use std::time::Instant;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "mutex",
    about: "a hundred tasks increment a counter that a mutex guards",
    run,
};

pub(super) const PROBLEM: Problem = Problem {
    name: "mutex",
    warm_up: true,
    peers: &[
        (Peer::Heist, heist),
        (Peer::Tokio, tokio),
        (Peer::May, may),
        (Peer::Threads, threads),
    ],
    go: true,
};

const TASKS: u64 = 100;

fn run(session: &mut Session) -> Table {
    let n = session.size(1_000_000, 250_000);
    let title = format!("mutex: ns per lock and unlock, {} by {TASKS} tasks", count(n));
    let rounds = session.rounds(9, 5);
    let goal = Goal::OfBest([0.8, 0.8]);
    Comparison::new(title, &PROBLEM, n, rounds, n as f64, goal).run(session)
}

/// Increments of one task.
fn share(n: u64) -> u64 {
    n / TASKS
}

fn heist(procs: usize, n: u64) -> Round {
    let runtime = super::heist_runtime(procs);
    let increment_all = move || {
        let begin = Instant::now();
        let counter = Arc::new(heist::sync::Mutex::new(0));
        let increment = || {
            let counter = Arc::clone(&counter);
            move || (0..share(n)).for_each(|_| *counter.lock().expect("nobody panics") += 1)
        };
        let tasks: Vec<_> = (0..TASKS).map(|_| heist::go(increment())).collect();
        tasks.into_iter().for_each(|task| task.join().expect("it only counts"));
        assert_eq!(*counter.lock().expect("nobody panics"), TASKS * share(n));
        nanos_since(begin)
    };
    Box::new(move || vec![runtime.run(increment_all)])
}

/// tokio's own mutex. Its documentation advises std's where a guard does not live
/// across an await, which blocks the worker; the problem is one of tasks that wait.
fn tokio(procs: usize, n: u64) -> Round {
    let runtime = super::tokio_runtime(procs);
    let increment_all = move || async move {
        let begin = Instant::now();
        let counter = Arc::new(tokio::sync::Mutex::new(0));
        let increment = || {
            let counter = Arc::clone(&counter);
            async move {
                for _ in 0..share(n) {
                    *counter.lock().await += 1;
                }
            }
        };
        let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(increment())).collect();
        for task in tasks {
            task.await.expect("it only counts");
        }
        assert_eq!(*counter.lock().await, TASKS * share(n));
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_tokio(&runtime, increment_all())])
}

fn may(procs: usize, n: u64) -> Round {
    super::set_up_may(procs);
    let increment_all = move || {
        let begin = Instant::now();
        let counter = Arc::new(may::sync::Mutex::new(0));
        let increment = || {
            let counter = Arc::clone(&counter);
            move || (0..share(n)).for_each(|_| *counter.lock().expect("nobody panics") += 1)
        };
        let tasks: Vec<_> = (0..TASKS).map(|_| may::go!(increment())).collect();
        tasks.into_iter().for_each(|task| task.join().expect("it only counts"));
        assert_eq!(*counter.lock().expect("nobody panics"), TASKS * share(n));
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_may(increment_all)])
}

/// OS threads and std's mutex.
fn threads(procs: usize, n: u64) -> Round {
    let increment_all = move || {
        let begin = Instant::now();
        let counter = Arc::new(std::sync::Mutex::new(0));
        let increment = || {
            let counter = Arc::clone(&counter);
            move || (0..share(n)).for_each(|_| *counter.lock().expect("nobody panics") += 1)
        };
        let tasks: Vec<_> = (0..TASKS).map(|_| std::thread::spawn(increment())).collect();
        tasks.into_iter().for_each(|task| task.join().expect("it only counts"));
        assert_eq!(*counter.lock().expect("nobody panics"), TASKS * share(n));
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_threads(procs, increment_all)])
}
