//! A goroutine that forks keeps its P while it computes, but not from others: each of
//! these hangs if whoever ends the strand gets no P.

use heist::par::join;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longer than a slice: by then the one that computes has been left alone once.
const LATER: Duration = Duration::from_millis(40);

/// Something that ends the strand sooner or later.
struct End(AtomicBool);

impl End {
    fn new() -> &'static End {
        Box::leak(Box::new(End(AtomicBool::new(false))))
    }

    fn come(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Forks, and does nothing else until the end comes: neither forks again nor calls.
    fn computes_until(&self) {
        let strand = || {
            while !self.0.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        join(|| join(strand, || ()), || ());
    }
}

fn on_one_p(f: impl FnOnce(&'static End) + Send) {
    heist::Builder::new().max_procs(1).build().unwrap().run(|| f(End::new()));
}

#[test]
fn whose_timer_is_due() {
    on_one_p(|end| {
        let (tell, told) = heist::chan::bounded(0);
        let other = heist::go(move || {
            tell.send(()).unwrap();
            heist::time::sleep(LATER);
            end.come();
        });
        told.recv().unwrap();
        end.computes_until();
        other.join().unwrap();
    });
}

#[test]
fn whom_it_has_spawned() {
    on_one_p(|end| {
        let other = heist::go(move || end.come());
        end.computes_until();
        other.join().unwrap();
    });
}

#[test]
fn whom_a_plain_thread_wakes() {
    on_one_p(|end| {
        let (send, receive) = heist::chan::bounded(0);
        let other = heist::go(move || {
            receive.recv().unwrap();
            end.come();
        });
        let thread = std::thread::spawn(move || {
            std::thread::sleep(LATER);
            send.send(()).unwrap();
        });
        end.computes_until();
        thread.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn for_whom_the_network_has_something() {
    on_one_p(|end| {
        let (mut here, there) = heist::net::UnixStream::pair().unwrap();
        let other = heist::go(move || {
            here.read_exact(&mut [0]).unwrap();
            end.come();
        });
        let mut there = std::os::unix::net::UnixStream::from(std::os::fd::OwnedFd::from(there));
        let thread = std::thread::spawn(move || {
            std::thread::sleep(LATER);
            there.write_all(&[1]).unwrap();
        });
        end.computes_until();
        thread.join().unwrap();
        other.join().unwrap();
    });
}

/// And if nobody comes it keeps its P, so that as many compute as there are Ps.
#[test]
fn without_others_it_keeps_its_p() {
    let runtime = heist::Builder::new().max_procs(1).build().unwrap();
    let end = End::new();
    let thread = std::thread::spawn(|| {
        std::thread::sleep(2 * LATER);
        end.come();
    });
    runtime.run(|| end.computes_until());
    thread.join().unwrap();
    assert_eq!(runtime.stats().retakes, 0);
}
