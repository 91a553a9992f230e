//! `heist::net`: std's sockets, whose calls park the goroutine; nobody waits for
//! ever, nothing is left behind.

mod close;
#[path = "../common/mod.rs"]
mod common;
mod life;
mod tcp;
mod udp;
mod unix;

use common::*;
use heist::net::{
    Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket, UnixDatagram,
    UnixListener, UnixStream,
};
use heist::sync::WaitGroup;
use heist::thread;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::iter::FusedIterator;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// As std's are.
const fn unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
const _: () = {
    unwind_safe::<TcpStream>();
    unwind_safe::<TcpListener>();
    unwind_safe::<UdpSocket>();
    unwind_safe::<UnixStream>();
    unwind_safe::<UnixListener>();
    unwind_safe::<UnixDatagram>();
    unwind_safe::<heist::net::Incoming<'_>>();
};

const fn fused<T: FusedIterator>() {}
const _: () = {
    fused::<heist::net::Incoming<'_>>();
    fused::<heist::net::IntoIncoming>();
    fused::<heist::net::unix::Incoming<'_>>();
};

/// Both ends of a connection.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, peer) = listener.accept().unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    (client, server)
}

/// How many descriptors the process has.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Random numbers, the same in each run.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}
