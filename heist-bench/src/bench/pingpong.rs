//! Two tasks send a ball back and forth over rendezvous channels; one of them may be
//! locked to its OS thread.

use super::compare::{Comparison, Goal};
use super::{Benchmark, Peer, Problem, Round, nanos_since};
use crate::session::Session;
use crate::table::{Table, count};
use std::time::Instant;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "pingpong",
    about: "two tasks send a ball back and forth over rendezvous channels",
    run,
};

pub(super) const BENCHMARK_LOCKED: Benchmark = Benchmark {
    name: "pingpong_locked",
    about: "the same, with one of the tasks locked to its OS thread",
    run: run_locked,
};

pub(super) const PROBLEM: Problem = Problem {
    name: "pingpong",
    warm_up: true,
    peers: &[(Peer::Heist, heist), (Peer::Tokio, tokio), (Peer::May, may)],
    go: true,
};

pub(super) const PROBLEM_LOCKED: Problem = Problem {
    name: "pingpong_locked",
    warm_up: true,
    peers: &[(Peer::Heist, heist_locked), (Peer::Threads, threads)],
    go: true,
};

/// The most that a round trip of heist may cost with more workers of what it
/// costs with one: the same, give or take what measurements vary by.
const GROWTH: f64 = 1.05;

fn run(session: &mut Session) -> Table {
    // For long enough: a CPU that was idle, as one of two is while others have their round,
    // takes a millisecond to be as fast as it can.
    let n = session.size(1_000_000, 300_000);
    let title = format!("pingpong: ns per round trip, {} of them", count(n));
    let rounds = session.rounds(9, 5);
    let goal = Goal::OfBest([0.6, 0.6]);
    let mut comparison = Comparison::new(title, &PROBLEM, n, rounds, n as f64, goal);
    comparison.growth = Some(GROWTH);
    let mut table = comparison.run(session);
    table.note("tokio and may have no rendezvous: a capacity of one, and none at all");
    table
}

fn run_locked(session: &mut Session) -> Table {
    let n = session.size(30_000, 10_000);
    let title = format!("pingpong_locked: ns per round trip, {} of them", count(n));
    let rounds = session.rounds(9, 5);
    let goal = Goal::Of(Peer::Go, 0.5);
    let comparison = Comparison::new(title, &PROBLEM_LOCKED, n, rounds, n as f64, goal);
    let mut table = comparison.run(session);
    table.note("threads: two OS threads, as if both were locked");
    table
}

fn heist(procs: usize, n: u64) -> Round {
    play(procs, n, || ())
}

fn heist_locked(procs: usize, n: u64) -> Round {
    play(procs, n, heist::runtime::pin)
}

/// With what the first player holds while it plays.
fn play<G: 'static>(procs: usize, n: u64, hold: fn() -> G) -> Round {
    let runtime = super::heist_runtime(procs);
    let play = move || {
        let _held = hold();
        let (ping, pings) = heist::chan::bounded(0);
        let (pong, pongs) = heist::chan::bounded(0);
        let partner = heist::go(move || {
            for ball in pings {
                pong.send(ball).expect("it is received");
            }
        });
        let begin = Instant::now();
        for ball in 0..n {
            ping.send(ball).expect("it is received");
            assert_eq!(pongs.recv(), Ok(ball));
        }
        let nanos = nanos_since(begin);
        drop(ping);
        partner.join().expect("it only plays");
        nanos
    };
    Box::new(move || vec![runtime.run(play)])
}

fn threads(procs: usize, n: u64) -> Round {
    let play = move || {
        let (ping, pings) = std::sync::mpsc::sync_channel(0);
        let (pong, pongs) = std::sync::mpsc::sync_channel(0);
        std::thread::scope(|s| {
            s.spawn(move || {
                for ball in pings {
                    pong.send(ball).expect("it is received");
                }
            });
            let begin = Instant::now();
            for ball in 0..n {
                ping.send(ball).expect("it is received");
                assert_eq!(pongs.recv(), Ok(ball));
            }
            let nanos = nanos_since(begin);
            drop(ping);
            nanos
        })
    };
    Box::new(move || vec![super::on_threads(procs, play)])
}

/// With a capacity of one, which is the nearest that tokio has to a rendezvous.
fn tokio(procs: usize, n: u64) -> Round {
    let runtime = super::tokio_runtime(procs);
    let play = move || async move {
        let (ping, mut pings) = tokio::sync::mpsc::channel(1);
        let (pong, mut pongs) = tokio::sync::mpsc::channel(1);
        drop(tokio::spawn(async move {
            while let Some(ball) = pings.recv().await {
                pong.send(ball).await.expect("it is received");
            }
        }));
        let begin = Instant::now();
        for ball in 0..n {
            ping.send(ball).await.expect("it is received");
            assert_eq!(pongs.recv().await, Some(ball));
        }
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_tokio(&runtime, play())])
}

/// All channels of may are unbounded; with one ball in play that is no
/// difference. That for one sender and one receiver is its fastest.
fn may(procs: usize, n: u64) -> Round {
    super::set_up_may(procs);
    let play = move || {
        let (ping, pings) = may::sync::spsc::channel();
        let (pong, pongs) = may::sync::spsc::channel();
        drop(may::go!(move || {
            while let Ok(ball) = pings.recv() {
                pong.send(ball).expect("it is received");
            }
        }));
        let begin = Instant::now();
        for ball in 0..n {
            ping.send(ball).expect("it is received");
            assert_eq!(pongs.recv(), Ok(ball));
        }
        nanos_since(begin)
    };
    Box::new(move || vec![super::on_may(play)])
}
