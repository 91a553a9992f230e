//! Peers that send garbage, requests that are broken or come byte by byte, or nothing:
//! the servers go on, and nothing of those peers is left.

mod common;

use common::*;
use std::io::{Read, Write};
use std::net::Shutdown;

const PEERS: u64 = 150;

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % n
    }
}

/// What one peer sends, made from a request that the server knows.
fn nonsense(rng: &mut Rng, request: &[u8]) -> Vec<u8> {
    let mut bytes = request.repeat(1 + rng.below(3));
    match rng.below(4) {
        0 => return (0..rng.below(3000)).map(|_| rng.below(256) as u8).collect(),
        1 => bytes.truncate(rng.below(bytes.len())),
        2 => {}
        _ => {
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(bytes.len());
                bytes[at] = rng.below(256) as u8;
            }
        }
    }
    bytes
}

fn peer(server: &Server, seed: u64, request: &[u8]) {
    let rng = &mut Rng(0x9e37_79b9_7f4a_7c15 ^ seed << 32 | 1);
    // Seeds that are near each other begin alike.
    for _ in 0..8 {
        rng.below(2);
    }
    let mut stream = server.connect();
    let bytes = nonsense(rng, request);
    let piece = if rng.below(3) == 0 { 1 } else { 1 + rng.below(1000) };
    // The server may close at any moment: that is its right.
    if bytes.chunks(piece).any(|piece| stream.write_all(piece).is_err()) || rng.below(3) == 0 {
        return;
    }
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let ended = stream.read_to_end(&mut answer);
    let kind = ended.err().map(|error| error.kind());
    assert_ne!(kind, Some(std::io::ErrorKind::WouldBlock), "it does not end: {bytes:x?}");
}

/// Lets the peers loose on a server, eight at a time.
fn annoy(server: &Server, request: &[u8]) {
    // One that is like the others, so that what they all need is there.
    peer(server, 0, request);
    let before = server.own_descriptors();
    // It says nothing all the while.
    let silent = server.connect();
    std::thread::scope(|scope| {
        for first in 1..=8 {
            scope.spawn(move || {
                (first..PEERS).step_by(8).for_each(|seed| peer(server, seed, request));
            });
        }
    });
    drop(silent);
    assert!(server.settles_at(before), "{} descriptors of {before}", server.descriptors());
}

#[test]
fn http_bears_it() {
    let server = Server::start(env!("CARGO_BIN_EXE_http"), &[]);
    let request = b"GET /plaintext HTTP/1.1\r\nHost: x\r\n\r\n";
    annoy(&server, request);
    assert!(exchange(&server.connect(), request, 15).starts_with(b"HTTP/1.1 200 OK"));
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn redis_bears_it() {
    let server = Server::start(env!("CARGO_BIN_EXE_redis"), &[]);
    annoy(
        &server,
        b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$9\r\n123456789\r\nLPUSH l a b\r\nGET key\r\n",
    );
    assert_eq!(exchange(&server.connect(), b"PING\r\n", 7), b"+PONG\r\n");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn chat_bears_it() {
    let server = Server::start(env!("CARGO_BIN_EXE_chat"), &[]);
    let mut request = b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        .to_vec();
    let welcome = b"HTTP/1.1 101 Switching Protocols";
    assert_eq!(exchange(&server.connect(), &request, welcome.len()), welcome);
    let handshake = request.clone();
    // A message, masked with zeros.
    request.extend_from_slice(b"\x81\x82\0\0\0\0hi");
    annoy(&server, &request);
    assert_eq!(exchange(&server.connect(), &handshake, welcome.len()), welcome);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn tls_bears_it() {
    let folder = Folder::new("garbage");
    let certificate = folder.0.join("cert.pem");
    let server = Server::start(env!("CARGO_BIN_EXE_tls"), &[certificate.to_str().unwrap()]);
    // The beginning of a greeting, which goes on for 80 bytes.
    annoy(&server, b"\x16\x03\x01\x00\x54\x01\x00\x00\x50\x03\x03 and then something else");
    // What is no greeting is answered with an alert.
    assert_eq!(exchange(&server.connect(), b"GET / HTTP/1.1\r\n\r\n", 1), [21]);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn the_proxy_bears_it() {
    let echo = Server::start(env!("CARGO_BIN_EXE_echo"), &[]);
    let proxy = Server::start(env!("CARGO_BIN_EXE_proxy"), &[&echo.address]);
    annoy(&proxy, b"whatever it is, it comes back");
    assert_eq!(exchange(&proxy.connect(), b"still there?", 12), b"still there?");
    assert_eq!((proxy.stop(), echo.stop()), (Some(0), Some(0)));
}
