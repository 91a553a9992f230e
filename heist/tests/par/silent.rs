//! Branches that compute without a fork or a call while all Ps are busy: what they wait for
//! runs all the same.

use super::common::watched;
use super::pool;
use heist::par::join;
use heist::runtime;
use std::sync::atomic::{AtomicBool, Ordering};

/// Computes until it is set.
fn spin_until(flag: &AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// A first branch that waits for its second one.
fn spin_for_sibling() {
    let done = AtomicBool::new(false);
    join(|| spin_until(&done), || done.store(true, Ordering::Relaxed));
}

#[test]
fn one_that_waits_for_its_sibling_on_each_p() {
    watched(|| pool(1).install(spin_for_sibling));
    watched(|| {
        pool(2).install(|| {
            heist::thread::scope(|s| {
                s.spawn(spin_for_sibling);
                s.spawn(spin_for_sibling);
            });
        });
    });
}

#[test]
fn a_second_branch_that_waits_for_an_older_fork() {
    let done = AtomicBool::new(false);
    let spin = || spin_until(&done);
    watched(|| {
        pool(1).install(|| join(|| join(|| (), spin), || done.store(true, Ordering::Relaxed)));
    });
}

/// It loses its P to one that never leaves it idle.
#[test]
fn one_that_has_lost_its_p() {
    let done = AtomicBool::new(false);
    let others = || {
        while !done.load(Ordering::Relaxed) {
            heist::thread::yield_now();
        }
    };
    let wait = || spin_until(&done);
    watched(|| {
        pool(1).install(|| {
            heist::thread::scope(|s| {
                s.spawn(others);
                join(wait, || done.store(true, Ordering::Relaxed));
            });
            assert!(runtime::stats().retakes > 0);
        });
    });
}

/// As above, and it blocks its thread.
#[test]
fn one_that_has_lost_its_p_in_a_call() {
    for call in [|f: &dyn Fn()| heist::syscall(f), |f: &dyn Fn()| f()] {
        let done = AtomicBool::new(false);
        let (send, receive) = std::sync::mpsc::channel();
        let receive = std::sync::Mutex::new(receive);
        let others = || {
            while !done.load(Ordering::Relaxed) {
                heist::thread::yield_now();
            }
        };
        watched(|| {
            pool(1).install(|| {
                heist::thread::scope(|s| {
                    s.spawn(others);
                    let wait = || call(&|| receive.lock().unwrap().recv().unwrap());
                    join(wait, || send.send(()).unwrap());
                    done.store(true, Ordering::Relaxed);
                });
            });
        });
    }
}

/// What a P is told, nobody else may do: one that computes there loses it although another
/// P is idle.
#[test]
fn a_broadcast_to_one_that_computes() {
    let (begun, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let pool = pool(2);
    watched(|| {
        std::thread::scope(|s| {
            s.spawn(|| {
                pool.install(|| {
                    begun.store(true, Ordering::Relaxed);
                    spin_until(&done);
                });
            });
            spin_until(&begun);
            assert_eq!(pool.broadcast(|context| context.index()), [0, 1]);
            done.store(true, Ordering::Relaxed);
        });
    });
}
