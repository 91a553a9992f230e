//! An HTTP server under wrk: 64 connections that are kept alive, one request after the
//! other on each, or sixteen at once.

use super::compare::{Comparison, Goal, Measure};
use super::{Benchmark, Peer, Problem, Round};
use crate::plain::{self, Answer};
use crate::session::Session;
use crate::system;
use crate::table::Table;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "http",
    about: "an HTTP server under wrk, 64 connections: time per request, p99",
    run,
};

pub(super) const BENCHMARK_PIPELINED: Benchmark = Benchmark {
    name: "http_pipelined",
    about: "the same with 16 requests at once on each connection",
    run: run_pipelined,
};

/// Its size is how many requests are sent at once.
pub(super) const PROBLEM: Problem = Problem {
    name: "http",
    warm_up: true,
    peers: &[
        (Peer::Heist, heist),
        (Peer::Tokio, tokio),
        (Peer::May, may),
        (Peer::Plain, plain),
        (Peer::Restless, restless),
    ],
    go: true,
};

fn run(session: &mut Session) -> Table {
    let title = "http: ns per request, one at a time on 64 connections";
    let p99 = Goal::OfBest([0.8, 0.8]);
    compare(session, title, 1, Goal::OfBest([0.91, 0.91]), Some(p99))
}

fn run_pipelined(session: &mut Session) -> Table {
    let title = "http_pipelined: ns per request, 16 at a time on 64 connections";
    compare(session, title, 16, Goal::OfBest([0.91, 0.91]), None)
}

fn compare(session: &mut Session, title: &str, depth: u64, time: Goal, p99: Option<Goal>) -> Table {
    if system::on_path("wrk").is_none() {
        let mut table = Table::new(title, &[]);
        table.note("wrk was not found: install the package 'wrk' to have this table");
        return table;
    }
    let rounds = session.rounds(7, 3);
    let mut comparison = Comparison::new(title, &PROBLEM, depth, rounds, 1.0, time);
    if let Some(goal) = p99 {
        comparison.measures = vec![
            Measure { name: "ns/request", per: 1.0, goal: time },
            Measure { name: "p99, µs", per: 1e3, goal },
        ];
    }
    comparison.floor = true;
    let mut table = comparison.run(session);
    table.note("wrk has a thread of its own, on the same CPUs");
    table.note(plain::ABOUT);
    table.note(plain::ABOUT_RESTLESS);
    table
}

/// What wrk runs: it sends so many requests at once, and says how many were answered,
/// in how many microseconds, with what 99th percentile, and how many failed.
const SCRIPT: &str = r#"
function init() batch = wrk.format("GET", "/plaintext"):rep(DEPTH) end
function request() return batch end
function done(summary, latency)
  local e = summary.errors
  io.write(string.format("answers %d %d %d %d\n", summary.requests, summary.duration,
    latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))
end
"#;

/// A second under load: nanoseconds per request, and of the 99th percentile if they
/// come one at a time.
fn round(address: SocketAddr, depth: u64) -> Round {
    Box::new(move || {
        // A file, since each thread of wrk reads it anew; gone after the round.
        let scratch = system::Scratch::new("wrk").expect("a folder");
        let script = scratch.path().join("load.lua");
        std::fs::write(&script, SCRIPT.replace("DEPTH", &depth.to_string())).expect("a file");
        let mut wrk = Command::new("wrk");
        wrk.args(["-t1", "-c64", "-d1", "-s"]).arg(&script);
        let output = wrk.arg(format!("http://{address}/plaintext")).output().expect("wrk runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let answers = text.lines().find_map(|line| line.strip_prefix("answers "));
        let numbers: Vec<u64> =
            answers.unwrap_or("").split(' ').filter_map(|word| word.parse().ok()).collect();
        let [requests @ (1..), micros, p99, 0] = numbers[..] else { panic!("wrk said: {text}") };
        // Of requests that are sent at once wrk does not know how long each took.
        let p99 = (depth == 1).then_some(p99 * 1000);
        [micros * 1000 / requests].into_iter().chain(p99).collect()
    })
}

const ANY: &str = "127.0.0.1:0";
const BOUND: &str = "a bound listener has an address";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: text/plain\r\n\
    Content-Length: 13\r\n\r\nHello, World!";

/// What came on a connection and is not answered yet, and the answers to the rest.
struct Connection {
    buffer: [u8; 4096],
    filled: usize,
    answers: Vec<u8>,
}

impl Connection {
    fn new() -> Connection {
        Connection { buffer: [0; 4096], filled: 0, answers: Vec::with_capacity(4096) }
    }
}

impl Answer for Connection {
    fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.filled..]
    }

    /// Answers all that has come in full.
    fn answer(&mut self, more: usize) -> &[u8] {
        self.filled += more;
        self.answers.clear();
        let mut used = 0;
        while used < self.filled {
            let mut headers = [httparse::EMPTY_HEADER; 16];
            let mut request = httparse::Request::new(&mut headers);
            match request.parse(&self.buffer[used..self.filled]) {
                Ok(httparse::Status::Complete(length)) => used += length,
                Ok(httparse::Status::Partial) => break,
                Err(error) => panic!("wrk sends requests: {error}"),
            }
            self.answers.extend_from_slice(ANSWER);
        }
        self.buffer.copy_within(used..self.filled, 0);
        self.filled -= used;
        &self.answers
    }
}

/// What each connection does, wherever calls just wait.
fn serve(stream: &mut (impl Read + Write)) {
    let mut connection = Box::new(Connection::new());
    while let Ok(n @ 1..) = stream.read(connection.room()) {
        if stream.write_all(connection.answer(n)).is_err() {
            return;
        }
    }
}

fn heist(procs: usize, depth: u64) -> Round {
    let runtime = Box::leak(Box::new(super::heist_runtime(procs)));
    let listener = heist::net::TcpListener::bind(ANY).expect(ANY);
    let address = listener.local_addr().expect(BOUND);
    drop(runtime.go(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            drop(heist::go(move || serve(&mut stream)));
        }
    }));
    round(address, depth)
}

fn tokio(procs: usize, depth: u64) -> Round {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let runtime = Box::leak(Box::new(super::tokio_runtime_with_net(procs)));
    let listener = super::on_tokio(runtime, async { tokio::net::TcpListener::bind(ANY).await });
    let listener = listener.expect(ANY);
    let address = listener.local_addr().expect(BOUND);
    drop(runtime.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            drop(tokio::spawn(async move {
                let mut connection = Box::new(Connection::new());
                while let Ok(n @ 1..) = stream.read(connection.room()).await {
                    if stream.write_all(connection.answer(n)).await.is_err() {
                        return;
                    }
                }
            }));
        }
    }));
    round(address, depth)
}

fn may(procs: usize, depth: u64) -> Round {
    super::set_up_may(procs);
    let listener = may::net::TcpListener::bind(ANY).expect(ANY);
    let address = listener.local_addr().expect(BOUND);
    drop(may::go!(move || {
        loop {
            let (mut stream, _) = listener.accept().expect("a connection");
            drop(may::go!(move || serve(&mut stream)));
        }
    }));
    round(address, depth)
}

fn plain(_procs: usize, depth: u64) -> Round {
    let listener = std::net::TcpListener::bind(ANY).expect(ANY);
    let address = listener.local_addr().expect(BOUND);
    plain::serve(listener, Connection::new);
    round(address, depth)
}

fn restless(_procs: usize, depth: u64) -> Round {
    let listener = std::net::TcpListener::bind(ANY).expect(ANY);
    let address = listener.local_addr().expect(BOUND);
    let awake = Arc::new(AtomicBool::new(false));
    plain::serve_awake(listener, Connection::new, awake.clone());
    let mut round = round(address, depth);
    Box::new(move || {
        awake.store(true, Ordering::Relaxed);
        let samples = round();
        awake.store(false, Ordering::Relaxed);
        samples
    })
}
