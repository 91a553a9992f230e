//! Memory of connections on which nothing happens.

use super::parked::{Waiting, growth, memory_rows, memory_table};
use super::{Benchmark, Peer, Problem, Round};
use crate::load;
use crate::session::Session;
use crate::system;
use crate::table::{Table, count, plural};
use std::io::Read;
use std::net::SocketAddr;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "connections",
    about: "resident bytes per idle connection, with a task that reads from it",
    run,
};

pub(super) const PROBLEM: Problem = Problem {
    name: "connections",
    warm_up: false,
    peers: &[(Peer::Heist, heist), (Peer::Tokio, tokio), (Peer::May, may)],
    go: true,
};

/// The most resident bytes for a connection of heist's.
const GOAL: f64 = 4700.0;

fn run(session: &mut Session) -> Table {
    let rounds = session.rounds(3, 1).min(3);
    let procs = session.options.procs[0];
    let n = session.size(10_000, 2_000);
    let title = format!(
        "connections: bytes per idle connection, {} ({})",
        plural(procs, "proc"),
        plural(rounds, "round")
    );
    let mut table = memory_table(title);
    memory_rows(session, &mut table, &PROBLEM, procs, n, rounds, GOAL);
    table.note(format!("{} of them; what the kernel keeps for each is not counted", count(n)));
    table
}

const ANY: &str = "127.0.0.1:0";
const BOUND: &str = "a bound listener has an address";

/// A round: the growth while `n` connections come.
fn round(waiting: &'static Waiting, address: SocketAddr, n: u64) -> Round {
    growth(waiting, n, move || std::mem::forget(load::idle(address, n)))
}

/// What each connection does: it reads, and nothing comes.
fn wait(waiting: &Waiting, stream: &mut impl Read) {
    waiting.one_more();
    let _ = stream.read(&mut [0; 64]);
}

fn heist(procs: usize, n: u64) -> Round {
    system::allow_descriptors();
    let runtime = Box::leak(Box::new(super::heist_runtime(procs)));
    let waiting = Waiting::new();
    let listener = heist::net::TcpListener::bind(ANY).expect(ANY);
    let address = listener.local_addr().expect(BOUND);
    drop(runtime.go(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            drop(heist::go(move || wait(waiting, &mut stream)));
        }
    }));
    round(waiting, address, n)
}

fn tokio(procs: usize, n: u64) -> Round {
    use tokio::io::AsyncReadExt;
    system::allow_descriptors();
    let runtime = Box::leak(Box::new(super::tokio_runtime_with_net(procs)));
    let waiting = Waiting::new();
    let listener = super::on_tokio(runtime, async { tokio::net::TcpListener::bind(ANY).await });
    let listener = listener.expect(ANY);
    let address = listener.local_addr().expect(BOUND);
    drop(runtime.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            drop(tokio::spawn(async move {
                waiting.one_more();
                let _ = stream.read(&mut [0; 64]).await;
            }));
        }
    }));
    round(waiting, address, n)
}

fn may(procs: usize, n: u64) -> Round {
    system::allow_descriptors();
    super::may_must_hold(n);
    super::set_up_may(procs);
    let waiting = Waiting::new();
    let listener = may::net::TcpListener::bind(ANY).expect(ANY);
    let address = listener.local_addr().expect(BOUND);
    drop(may::go!(move || {
        loop {
            let (mut stream, _) = listener.accept().expect("a connection");
            drop(may::go!(move || wait(waiting, &mut stream)));
        }
    }));
    round(waiting, address, n)
}
