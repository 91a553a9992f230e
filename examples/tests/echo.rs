//! The echo server, with clients of std's.

mod common;

use common::*;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

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

/// Whoever is connected when the server is asked to end is served to the end; whoever
/// comes then is not.
#[test]
fn it_drains_when_it_is_asked_to_end() {
    let mut server = Server::start(env!("CARGO_BIN_EXE_echo"), &[]);
    let mut stream = server.connect();
    assert_eq!(exchange(&stream, b"before", 6), b"before");
    server.signal("TERM");
    // Some may still be accepted, and end at once.
    while TcpStream::connect(&server.address).is_ok() {}
    assert_eq!(exchange(&stream, b"after", 5), b"after");
    assert!(!server.has_ended(), "it waits for one who is connected");
    assert_eq!(exchange(&stream, b"the end", 7), b"the end");
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    assert_eq!(server.ended(), Some(0));
}

/// A second signal is the end at once, for one who stays, too.
#[test]
fn a_second_signal_ends_it() {
    let mut server = Server::start(env!("CARGO_BIN_EXE_echo"), &[]);
    let mut stream = server.connect();
    assert_eq!(exchange(&stream, b"x", 1), b"x");
    server.signal("INT");
    server.says("closing down");
    server.signal("INT");
    server.says("at once");
    assert_eq!(server.ended(), Some(0));
    assert_eq!(stream.read(&mut [0]).map_err(drop), Ok(0));
}

/// Who stays is not waited for for ever.
#[test]
fn its_patience_has_an_end() {
    let mut server = Server::start(env!("CARGO_BIN_EXE_echo"), &[]);
    let stream = server.connect();
    assert_eq!(exchange(&stream, b"x", 1), b"x");
    server.signal("TERM");
    server.says("not waiting any longer");
    assert_eq!(server.ended(), Some(0));
}

/// The limit is said once, however long it lasts, and those who came meanwhile are served
/// afterwards.
#[test]
fn it_bears_it_when_descriptors_run_out() {
    const LIMIT: usize = 40;
    let mut server = Server::start_limited(env!("CARGO_BIN_EXE_echo"), LIMIT);
    // What it needs itself, for the first who waits, is open after this.
    exchange(&server.connect(), b"x", 1);
    assert!(server.own_descriptors() < LIMIT / 2);
    let open: Vec<_> = (0..LIMIT).map(|_| server.connect()).collect();
    let (served, late) = open.split_at(LIMIT / 2);
    served.iter().for_each(|stream| assert_eq!(exchange(stream, b"x", 1), b"x"));
    let mut last = &late[late.len() - 1];
    last.write_all(b"y").unwrap();
    last.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let waits = last.read(&mut [0]).unwrap_err();
    assert_eq!(waits.kind(), std::io::ErrorKind::WouldBlock);
    last.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    served.iter().for_each(|stream| stream.shutdown(Shutdown::Both).unwrap());
    assert_eq!(last.read(&mut [0]).unwrap(), 1);
    drop(open);
    server.signal("TERM");
    assert_eq!(server.ended(), Some(0));
    let errors = server.errors();
    assert!(errors.starts_with("heist: cannot accept connections"), "{errors}");
    assert_eq!(errors.matches("heist:").count(), 1, "{errors}");
}
