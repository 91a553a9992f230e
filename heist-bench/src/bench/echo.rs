//! A server that echoes: 100 connections, 64 bytes at a time.

use super::compare::{Comparison, Goal, Measure};
use super::{Benchmark, Peer, Problem, Round};
use crate::load::{self, MESSAGE};
use crate::plain::{self, Answer};
use crate::session::Session;
use crate::system;
use crate::table::{Table, count};
use std::io::{Read, Write};
use std::net::SocketAddr;

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "echo",
    about: "an echo server, 100 connections of 64 bytes: CPU time per request, p99",
    run,
};

pub(super) const PROBLEM: Problem = Problem {
    name: "echo",
    warm_up: true,
    peers: &[
        (Peer::Heist, heist),
        (Peer::Tokio, tokio),
        (Peer::May, may),
        (Peer::Threads, threads),
        (Peer::Plain, plain),
    ],
    go: true,
};

const CONNECTIONS: u64 = 100;

fn run(session: &mut Session) -> Table {
    let n = session.size(200_000, 50_000);
    let title = format!(
        "echo: CPU time and p99 for {} requests of {MESSAGE} bytes on {CONNECTIONS} connections",
        count(n)
    );
    let rounds = session.rounds(7, 3);
    let mut comparison = Comparison::new(title, &PROBLEM, n, rounds, 1.0, Goal::None);
    comparison.measures = vec![
        Measure { name: "CPU, µs/request", per: 1e3 * n as f64, goal: Goal::OfBest([0.9, 0.9]) },
        Measure { name: "p99, ms", per: 1e6, goal: Goal::OfBest([0.8, 0.8]) },
    ];
    comparison.floor = true;
    let mut table = comparison.run(session);
    table.note("CPU: of the server alone; the load comes from a process on the same CPUs");
    table.note(plain::ABOUT);
    table
}

/// A round: the load, and what it cost the server.
fn round(address: SocketAddr, n: u64) -> Round {
    Box::new(move || {
        let before = system::cpu_time();
        let p99 = load::echoes(address, CONNECTIONS, n);
        vec![(system::cpu_time() - before).as_nanos() as u64, p99]
    })
}

const ANY: &str = "127.0.0.1:0";
const BOUND: &str = "a bound listener has an address";

fn heist(procs: usize, n: u64) -> Round {
    let runtime = Box::leak(Box::new(super::heist_runtime(procs)));
    let listener = heist::net::TcpListener::bind(ANY).expect(ANY);
    let address = listener.local_addr().expect(BOUND);
    drop(runtime.go(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            drop(heist::go(move || echo(&mut stream)));
        }
    }));
    round(address, n)
}

/// What each connection does, wherever calls just wait.
fn echo(stream: &mut (impl Read + Write)) {
    let mut buffer = [0; 1024];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..n]).is_err() {
            return;
        }
    }
}

fn tokio(procs: usize, n: u64) -> Round {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let runtime = Box::leak(Box::new(super::tokio_runtime_with_net(procs)));
    let listener = super::on_tokio(runtime, async { tokio::net::TcpListener::bind(ANY).await });
    let listener = listener.expect(ANY);
    let address = listener.local_addr().expect(BOUND);
    drop(runtime.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            drop(tokio::spawn(async move {
                let mut buffer = [0; 1024];
                while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                    if stream.write_all(&buffer[..n]).await.is_err() {
                        return;
                    }
                }
            }));
        }
    }));
    round(address, n)
}

fn may(procs: usize, n: u64) -> Round {
    super::set_up_may(procs);
    let listener = may::net::TcpListener::bind(ANY).expect(ANY);
    let address = listener.local_addr().expect(BOUND);
    drop(may::go!(move || {
        loop {
            let (mut stream, _) = listener.accept().expect("a connection");
            drop(may::go!(move || echo(&mut stream)));
        }
    }));
    round(address, n)
}

fn threads(procs: usize, n: u64) -> Round {
    let listener = std::net::TcpListener::bind(ANY).expect(ANY);
    let address = listener.local_addr().expect(BOUND);
    std::thread::spawn(move || {
        system::use_cpus(procs);
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            std::thread::spawn(move || echo(&mut stream));
        }
    });
    round(address, n)
}

/// What comes goes back.
struct Echo([u8; 1024]);

impl Answer for Echo {
    fn room(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn answer(&mut self, more: usize) -> &[u8] {
        &self.0[..more]
    }
}

fn plain(_procs: usize, n: u64) -> Round {
    let listener = std::net::TcpListener::bind(ANY).expect(ANY);
    let address = listener.local_addr().expect(BOUND);
    plain::serve(listener, || Echo([0; 1024]));
    round(address, n)
}
