//! Waiting for devices: the poller, with what is ready when nobody expects it.

use super::{build, builder, compute, runtime, sleep};
use crate::prim::sim::Device;
use crate::prim::{clock, thread as os};
use crate::sched::m;
use crate::sched::netpoll::{self, Call, Patience, Pollable, Side};
use crate::sched::schedt::{self, Sched};
use crate::sim::Rng;
use crate::{go, time};
use std::io;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How many messages a read takes at the most.
const MOST: usize = 3;

/// A device and what waits for it, as a socket has it.
#[derive(Default)]
struct Port {
    device: Device,
    poll: Pollable,
}

impl Port {
    fn new() -> Arc<Port> {
        Arc::default()
    }

    #[track_caller]
    fn call<P: Fn() -> Patience>(&self, side: Side, patience: P) -> Call<'_, P> {
        Call { fd: &self.device, side, patience, site: Location::caller(), home }
    }

    fn read(&self, patience: Patience) -> io::Result<usize> {
        let call = self.call(Side::Read, || patience);
        self.poll.run_short(call, |n| *n < MOST, || self.device.read(MOST))
    }

    fn write(&self) -> io::Result<usize> {
        self.poll.run(self.call(Side::Write, || Patience::Forever), || self.device.write(1))
    }

    fn set_deadline(&self, side: Side, nanos: Option<u64>) {
        self.poll.set_deadline(side, nanos.map(|nanos| clock::now() + nanos), home);
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.poll.release(&self.device);
    }
}

/// The caller's scheduler; that of a plain thread is one that stays.
fn home() -> &'static Sched {
    let open = || schedt::all().find(|sched| !sched.closing());
    match m::current().map(|m| m.sched).or_else(open) {
        Some(sched) => sched,
        None => panic!("a plain thread waits after the last runtime has ended"),
    }
}

/// Nobody waits and nothing is registered any more.
fn assert_nobody_is_left() {
    assert!(!netpoll::anybody_waits(), "somebody waits for a device that is gone");
    for sched in schedt::all().filter(|sched| !sched.closing()) {
        assert!(!sched.poll.is_wanted(), "a device that is gone is registered");
    }
}

/// The other end, on a thread of its own: `messages` in some portions, each after
/// a while. Hangs up when they have been read: the end would wake whoever sleeps over
/// them.
fn feed(device: &Device, messages: usize, salt: u32) {
    let device = device.clone();
    let feeds = move || {
        let mut left = messages;
        while left > 0 {
            pause(salt >> (left % 8));
            let portion = left.min(1 + (salt as usize >> (left % 5)) % 4);
            device.deliver(portion);
            device.make_room(portion);
            left -= portion;
        }
        pause(salt);
        let mut looks = 0;
        while !device.is_drained() {
            looks += 1;
            assert!(looks < 10_000, "there are messages, and who waits for them sleeps");
            sleep(10_000);
        }
        device.hang_up();
    };
    if os::start("device".to_owned(), 1 << 20, feeds).is_err() {
        crate::sim::explore::skip();
    }
}

/// Nothing, a few steps, or so long that everybody sleeps meanwhile.
fn pause(n: u32) {
    match n % 4 {
        0 => {}
        1 => compute(n),
        _ => sleep(u64::from(n % 90_000)),
    }
}

/// Reads until the end, one way or another. Returns how much.
fn read_all(port: &Port, salt: u32) -> usize {
    let mut sum = 0;
    loop {
        let patience = match salt % 3 {
            0 => Patience::For(2_000 + u64::from(salt % 30_000)),
            _ => Patience::Forever,
        };
        match port.read(patience) {
            Ok(0) => return sum,
            Ok(n) => sum += n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                assert_ne!(patience, Patience::Forever, "it waits");
            }
            // Of somebody's deadline, which is not set for ever.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                port.set_deadline(Side::Read, salt.is_multiple_of(2).then_some(40_000));
            }
            Err(error) => panic!("{error}"),
        }
        compute(salt);
    }
}

/// Every message is read once, by whoever reads, however long they wait; and all of
/// them hear of the end.
pub(super) fn readers(rng: &Rng, procs: usize) {
    let ports: Vec<_> = (0..1 + rng.next() % 3).map(|_| Port::new()).collect();
    let (each, salt) = (rng.next() as usize % 8, rng.next() >> 8);
    let outside = rng.next().is_multiple_of(3);
    runtime(rng, procs).run(move || {
        let readers: Vec<_> = (0..2 * ports.len())
            // One or two for each.
            .filter(|i| i % 2 == 0 || (salt >> i) % 2 == 0)
            .map(|i| {
                let port = ports[i / 2].clone();
                go(move || read_all(&port, salt >> i))
            })
            .collect();
        let mut sum = 0;
        let delivered = each * ports.len();
        for (i, port) in ports.into_iter().enumerate() {
            feed(&port.device, each, salt >> i);
            if (salt >> i) % 4 == 0 {
                port.set_deadline(Side::Read, Some(u64::from(salt % 50_000)));
            }
            if outside && i == 0 {
                // A thread that is no runtime's.
                let theirs = Arc::new(AtomicUsize::new(0));
                let (port, all) = (port.clone(), theirs.clone());
                let reads = move || {
                    all.store(read_all(&port, salt), Ordering::Relaxed);
                };
                match os::start("reader".to_owned(), 1 << 20, reads) {
                    Ok(reader) => crate::blocking(|| drop(reader.join())),
                    Err(_) => crate::sim::explore::skip(),
                }
                sum += theirs.load(Ordering::Relaxed);
            }
        }
        sum += readers.into_iter().map(|reader| reader.join().unwrap_or(1_000_000)).sum::<usize>();
        assert_eq!(sum, delivered);
        assert_nobody_is_left();
    });
}

/// A thread that is no runtime's waits, while nobody has anything to run.
pub(super) fn outside(rng: &Rng, procs: usize) {
    let runtime = runtime(rng, procs);
    let (each, salt) = (rng.next() as usize % 8, rng.next() >> 8);
    if rng.next().is_multiple_of(2) {
        runtime.run(|| compute(salt));
    }
    sleep(u64::from(salt % 50_000));
    let port = Port::new();
    feed(&port.device, each, salt);
    assert_eq!(read_all(&port, salt), each);
    drop(port);
    assert_nobody_is_left();
}

/// Ports are closed, or run out of time, while others wait to read and to write there:
/// all of them hear of it, also if the next port has the same block and its device is
/// ready in the same moment.
pub(super) fn closing(rng: &Rng, procs: usize) {
    let (rounds, n, salt) = (1 + rng.next() % 4, 1 + rng.next() % 3, rng.next() >> 8);
    runtime(rng, procs).run(move || {
        for round in 0..rounds {
            let salt = salt >> round;
            let port = Port::new();
            let ends: fn(&Port, u32) -> io::Result<usize> = |port, i| {
                if i.is_multiple_of(2) { port.read(Patience::Forever) } else { port.write() }
            };
            let waiting: Vec<_> = (0..n)
                .map(|i| {
                    let port = port.clone();
                    go(move || {
                        loop {
                            match ends(&port, salt + i) {
                                Ok(0) => return None,
                                Ok(_) => compute(salt),
                                Err(error) => return Some(error.kind()),
                            }
                        }
                    })
                })
                .collect();
            let messages = (salt as usize >> 3) % 4;
            let device = port.device.clone();
            let delivers = os::start("device".to_owned(), 1 << 20, move || {
                (0..messages).for_each(|i| {
                    pause(salt >> i);
                    device.deliver(1);
                    device.make_room(1);
                });
            });
            let expected = if (salt >> 5).is_multiple_of(2) {
                time::sleep(Duration::from_nanos(u64::from(salt % 60_000)));
                port.poll.close();
                io::ErrorKind::ConnectionAborted
            } else {
                // One that is moved, and the last one.
                port.set_deadline(Side::Read, Some(u64::from(salt % 20_000)));
                port.set_deadline(Side::Read, None);
                port.set_deadline(Side::Read, Some(u64::from(salt % 60_000)));
                port.set_deadline(Side::Write, Some(u64::from(salt % 50_000)));
                io::ErrorKind::TimedOut
            };
            for one in waiting {
                assert_eq!(one.join().ok().flatten(), Some(expected));
            }
            match delivers {
                Ok(thread) => crate::blocking(|| drop(thread.join())),
                Err(_) => crate::sim::explore::skip(),
            }
            drop(port);
            assert_nobody_is_left();
        }
    });
}

/// Goroutines of two runtimes wait for the same ports, and one runtime ends: its own
/// leave, and the others wait in their own poller from then on.
pub(super) fn two_runtimes(rng: &Rng, procs: usize) {
    let (here, there) = (runtime(rng, procs), build(builder(rng, 1 + procs / 2)));
    let (n, each, salt) = (1 + rng.next() % 3, 1 + rng.next() as usize % 5, rng.next() >> 8);
    let ports: Vec<_> = (0..n).map(|_| Port::new()).collect();
    // What those that were unwound have read.
    let lost = Arc::new(AtomicUsize::new(0));
    for port in &ports {
        let (port, lost) = (port.clone(), lost.clone());
        drop(there.go(move || {
            while let Ok(n @ 1..) = port.read(Patience::Forever) {
                lost.fetch_add(n, Ordering::Relaxed);
            }
        }));
    }
    sleep(u64::from(salt % 20_000));
    let readers: Vec<_> = ports
        .iter()
        .map(|port| {
            let port = port.clone();
            here.go(move || read_all(&port, 1))
        })
        .collect();
    for (i, port) in ports.iter().enumerate() {
        feed(&port.device, each, salt >> i);
    }
    pause(salt >> 3);
    drop(there);
    let sum: usize = readers.into_iter().map(|one| one.join().unwrap_or(1_000_000)).sum();
    assert_eq!(sum + lost.load(Ordering::Relaxed), n as usize * each);
    drop(ports);
    assert_nobody_is_left();
}
