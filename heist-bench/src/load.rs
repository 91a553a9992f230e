//! Load for servers, from a process of its own, so that a server's CPU time is its
//! own: one thread and an epoll instance, the same for all peers.

use crate::system;
use rustix::event::epoll;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

/// Bytes of a message.
pub(crate) const MESSAGE: usize = 64;

/// Where this program is, for those that are not it.
pub(crate) const PROGRAM: &str = "HEIST_BENCH";

/// Has a process send so many messages over so many connections, each of which waits
/// for its echo before it sends the next. Returns the 99th percentile of the time
/// that one took, in nanoseconds.
///
/// # Panics
///
/// If something goes wrong: there is nothing to measure then.
pub(crate) fn echoes(address: SocketAddr, connections: u64, messages: u64) -> u64 {
    let mut child = start(address, connections, messages);
    let answer = first_line(&mut child);
    assert!(child.wait().is_ok_and(|status| status.success()), "the load failed: {answer}");
    answer.trim().parse().unwrap_or_else(|_| panic!("the load said '{answer}'"))
}

/// A process that keeps connections open until it is dropped.
pub(crate) struct Idle(Child);

/// Has a process open so many connections.
pub(crate) fn idle(address: SocketAddr, connections: u64) -> Idle {
    Idle(start(address, connections, 0))
}

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(address: SocketAddr, connections: u64, messages: u64) -> Child {
    let program = std::env::current_exe().expect("a program knows where it is");
    let numbers = [connections.to_string(), messages.to_string()];
    Command::new(program)
        .arg("__load")
        .arg(address.to_string())
        .args(numbers)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a program can start itself")
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    let out = child.stdout.take().expect("it has a pipe");
    BufReader::new(out).read_line(&mut line).expect("a pipe can be read");
    line
}

/// The process.
pub(crate) fn run(address: &str, connections: u64, messages: u64) -> ExitCode {
    system::allow_descriptors();
    let connect = |_| {
        let stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_nodelay(true).expect("a new connection has options");
        stream
    };
    let streams: Vec<TcpStream> = (0..connections).map(connect).collect();
    if messages == 0 {
        // Until the parent goes, or kills.
        let _ = std::io::stdin().read(&mut [0]);
        return ExitCode::SUCCESS;
    }
    let mut times = exchange(streams, messages);
    let at = (times.len() * 99 / 100).min(times.len() - 1);
    println!("{}", *times.select_nth_unstable(at).1);
    ExitCode::SUCCESS
}

/// How long each message took.
fn exchange(mut streams: Vec<TcpStream>, messages: u64) -> Vec<u64> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll instance");
    for (i, stream) in streams.iter().enumerate() {
        stream.set_nonblocking(true).expect("a new connection has options");
        let token = epoll::EventData::new_u64(i as u64);
        epoll::add(&epoll, stream, token, epoll::EventFlags::IN).expect("room for it");
    }
    let mut sent: Vec<Instant> = Vec::new();
    for stream in &mut streams {
        sent.push(Instant::now());
        stream.write_all(&[7; MESSAGE]).expect("an empty connection takes a message");
    }
    let mut missing = vec![MESSAGE; streams.len()];
    let mut times = Vec::with_capacity(messages as usize);
    let mut left = messages.saturating_sub(streams.len() as u64);
    let mut events = Vec::with_capacity(streams.len());
    while (times.len() as u64) < messages.max(streams.len() as u64) {
        events.clear();
        match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("epoll_wait: {error}"),
        }
        for event in &events {
            let i = event.data.u64() as usize;
            match streams[i].read(&mut [0; MESSAGE]) {
                Ok(0) => panic!("the server has closed a connection"),
                Ok(n) => missing[i] -= n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("reading: {error}"),
            }
            if missing[i] == 0 {
                let now = Instant::now();
                times.push((now - sent[i]).as_nanos() as u64);
                if left > 0 {
                    left -= 1;
                    (missing[i], sent[i]) = (MESSAGE, now);
                    streams[i].write_all(&[7; MESSAGE]).expect("an empty connection takes it");
                }
            }
        }
    }
    times
}
