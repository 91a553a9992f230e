//! A server without a runtime: one thread and an epoll instance, and for each event a
//! read and a write. No server can do less for a request. It has one thread however many
//! procs the others have: they may answer more requests at a time, but not for less.

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Events that one wait takes at most, as with the others.
const BATCH: usize = 128;

/// What tables say of it.
pub(crate) const ABOUT: &str = "plain: a server of one thread, whatever procs the others have";

/// What tables say of one that never sleeps.
pub(crate) const ABOUT_RESTLESS: &str = "restless: plain that never sleeps, which costs a CPU";

/// The token of the listener; streams have their index.
const LISTENER: u64 = u64::MAX;

/// What one end of a connection says to the other.
pub(crate) trait Answer {
    /// Where the next bytes go.
    fn room(&mut self) -> &mut [u8];

    /// So many bytes have come: what is said to that.
    fn answer(&mut self, more: usize) -> &[u8];
}

/// Answers until the process ends, in a thread of its own.
pub(crate) fn serve<A: Answer + 'static>(listener: TcpListener, connection: fn() -> A) {
    serve_awake(listener, connection, Arc::default());
}

/// The same; it does not sleep while `awake` says so.
pub(crate) fn serve_awake<A: Answer + 'static>(
    listener: TcpListener,
    connection: fn() -> A,
    awake: Arc<AtomicBool>,
) {
    std::thread::spawn(move || run(&listener, connection, &awake));
}

fn run<A: Answer>(listener: &TcpListener, connection: fn() -> A, awake: &AtomicBool) {
    const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll instance");
    let token = epoll::EventData::new_u64(LISTENER);
    epoll::add(&epoll, listener, token, epoll::EventFlags::IN).expect("room for it");
    let mut streams: Vec<Option<(TcpStream, A)>> = Vec::new();
    let mut events = Vec::with_capacity(BATCH);
    loop {
        events.clear();
        let timeout = awake.load(Ordering::Relaxed).then_some(&AT_ONCE);
        match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), timeout) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("epoll_wait: {error}"),
        }
        for event in &events {
            let i = event.data.u64();
            if i == LISTENER {
                let (stream, _) = listener.accept().expect("a connection");
                stream.set_nonblocking(true).expect("a new connection has options");
                let free = streams.iter().position(Option::is_none).unwrap_or(streams.len());
                let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
                let token = epoll::EventData::new_u64(free as u64);
                epoll::add(&epoll, &stream, token, flags).expect("room for it");
                if free == streams.len() {
                    streams.push(None);
                }
                streams[free] = Some((stream, connection()));
                continue;
            }
            let entry = &mut streams[i as usize];
            if entry.as_mut().is_some_and(|(stream, state)| !answer(stream, state)) {
                // With that it is gone from the epoll instance, too.
                *entry = None;
            }
        }
    }
}

/// Answers what has come. False when the other end has gone.
fn answer(stream: &mut TcpStream, state: &mut impl Answer) -> bool {
    loop {
        let room = state.room();
        let len = room.len();
        match stream.read(room) {
            Ok(0) => return false,
            Ok(n) => {
                if !say(stream, state.answer(n)) {
                    return false;
                }
                // Less than asked for is all that there was, until the next event.
                if n < len {
                    return true;
                }
            }
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// Writes all of it. False when the other end has gone.
///
/// If there is no room, everybody waits for this connection: clients read whatever else
/// they do, and so much is rarely on its way.
fn say(stream: &mut TcpStream, mut rest: &[u8]) -> bool {
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(n) => rest = &rest[n..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let writable = &mut [PollFd::new(stream, PollFlags::OUT)];
                match poll(writable, None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => panic!("poll: {error}"),
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}
