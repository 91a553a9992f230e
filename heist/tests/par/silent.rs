//! Branches that compute without a fork or a call while all Ps are busy: what they wait for
//! runs all the same.

use super::common::watched;
use super::pool;
use heist::par::join;
use heist::runtime;
use std::sync::Arc;
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

/// Those who yield, poll or fork for ever are always there: what a P is told comes first now
/// and then.
#[test]
fn a_broadcast_beside_those_who_yield() {
    let (_sender, receiver) = heist::chan::unbounded::<()>();
    let pollers = receiver.clone();
    type Call = Arc<dyn Fn() + Send + Sync>;
    let busy: [(&str, Call); 3] = [
        ("yield", Arc::new(heist::thread::yield_now)),
        ("try_recv", Arc::new(move || assert!(pollers.try_recv().is_err()))),
        ("join", Arc::new(|| assert_eq!(join(|| 6, || 7), (6, 7)))),
    ];
    for procs in [1, 2] {
        for (what, call) in &busy {
            let (pool, done) = (pool(procs), Arc::new(AtomicBool::new(false)));
            for _ in 0..3 {
                let (call, done) = (call.clone(), done.clone());
                pool.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        call();
                    }
                });
            }
            watched(|| {
                let told = pool.broadcast(|context| context.index());
                assert!(told.into_iter().eq(0..procs), "{what}");
                done.store(true, Ordering::Relaxed);
            });
        }
    }
}
