//! The echo server, with clients of std's.

mod common;

use common::*;
use std::io::Read;
use std::net::Shutdown;

#[test]
fn what_is_sent_comes_back() {
    let server = Server::start(env!("CARGO_BIN_EXE_echo"), &[]);
    std::thread::scope(|scope| {
        for client in 0..20u8 {
            let server = &server;
            scope.spawn(move || {
                let mut stream = server.connect();
                for round in 0..50u8 {
                    let bytes = [client ^ round; 1000];
                    assert_eq!(exchange(&stream, &bytes, 1000), bytes);
                }
                stream.shutdown(Shutdown::Write).unwrap();
                assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it closes, too");
            });
        }
    });
    assert_eq!(server.stop(), Some(0), "it ends when it is asked to");
}

#[test]
fn connections_leave_nothing_behind() {
    let server = Server::start(env!("CARGO_BIN_EXE_echo"), &[]);
    exchange(&server.connect(), b"x", 1);
    let before = server.own_descriptors();
    let open: Vec<_> = (0..200).map(|_| server.connect()).collect();
    open.iter().for_each(|stream| drop(exchange(stream, b"x", 1)));
    assert!(server.descriptors() >= 200);
    drop(open);
    assert!(server.settles_at(before), "{} of {before}", server.descriptors());
}
