//! What goroutines and plain threads wait for each other with.

use super::{compute, runtime};
use crate::prim::thread as os;
use crate::sim::Rng;
use crate::sync::{Barrier, Condvar, Mutex, Once, RwLock, Semaphore, WaitGroup};
use crate::{chan, go, thread, time};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Goroutines, and a thread among them, count under a mutex and a lock for many
/// readers: nobody is in with somebody else who changes something.
pub(super) fn locks(rng: &Rng, procs: usize) {
    let (n, rounds, salt) = (2 + rng.next() % 4, 1 + rng.next() % 5, rng.next() >> 8);
    struct Shared {
        mutex: Mutex<u32>,
        rwlock: RwLock<(u32, u32)>,
    }
    let shared = Arc::new(Shared { mutex: Mutex::new(0), rwlock: RwLock::new((0, 0)) });
    let one = move |shared: &Shared, i: u32| {
        for round in 0..rounds {
            let mut count = shared.mutex.lock().unwrap_or_else(|e| panic!("{e}"));
            let before = *count;
            compute(salt + i + round);
            if (salt + round).is_multiple_of(3) {
                thread::yield_now();
            }
            *count = before + 1;
            drop(count);
            let (a, b) = *shared.rwlock.read().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(a, b, "nobody writes while somebody reads");
            if shared.mutex.try_lock().is_ok_and(|count| *count == 0) {
                panic!("it was counted");
            }
            let mut pair = shared.rwlock.write().unwrap_or_else(|e| panic!("{e}"));
            pair.0 += 1;
            compute(salt / 3 + i);
            pair.1 += 1;
        }
    };
    let (there, outside) = (shared.clone(), salt.is_multiple_of(2));
    let thread = outside.then(|| os::start("outside".into(), 1 << 20, move || one(&there, n)));
    let thread = thread.and_then(Result::ok);
    let more = u32::from(thread.is_some());
    runtime(rng, procs).run(|| {
        let handles: Vec<_> = (0..n)
            .map(|i| {
                let shared = shared.clone();
                go(move || one(&shared, i))
            })
            .collect();
        handles.into_iter().for_each(|handle| assert!(handle.join().is_ok()));
    });
    thread.into_iter().for_each(|thread| drop(thread.join()));
    let all = (n + more) * rounds;
    assert_eq!(*shared.mutex.lock().unwrap_or_else(|e| panic!("{e}")), all);
    assert_eq!(*shared.rwlock.read().unwrap_or_else(|e| panic!("{e}")), (all, all));
}

/// A buffer of a few places between producers and consumers, with a mutex and two
/// condition variables; some wait with a timeout.
pub(super) fn condvar(rng: &Rng, procs: usize) {
    const ROOM: usize = 2;
    #[derive(Default)]
    struct Buffer {
        items: Mutex<Vec<u32>>,
        not_empty: Condvar,
        not_full: Condvar,
    }
    let (sides, each, salt) = (1 + rng.next() % 3, 1 + rng.next() % 5, rng.next() >> 8);
    let broadcast = rng.next().is_multiple_of(3);
    runtime(rng, procs).run(|| {
        let buffer = Arc::new(Buffer::default());
        let wake = move |condvar: &Condvar| match broadcast {
            true => condvar.notify_all(),
            false => condvar.notify_one(),
        };
        let producers: Vec<_> = (0..sides)
            .map(|i| {
                let buffer = buffer.clone();
                go(move || {
                    for item in 0..each {
                        compute(salt + i);
                        let mut items = buffer.items.lock().unwrap_or_else(|e| panic!("{e}"));
                        while items.len() == ROOM {
                            items = buffer.not_full.wait(items).unwrap_or_else(|e| panic!("{e}"));
                        }
                        items.push(item);
                        wake(&buffer.not_empty);
                    }
                })
            })
            .collect();
        let consumers: Vec<_> = (0..sides)
            .map(|i| {
                let buffer = buffer.clone();
                go(move || {
                    let mut sum = 0;
                    for _ in 0..each {
                        let mut items = buffer.items.lock().unwrap_or_else(|e| panic!("{e}"));
                        while items.is_empty() {
                            let soon = Duration::from_nanos(u64::from(salt % 30_000));
                            items = match (salt + i).is_multiple_of(2) {
                                true => {
                                    buffer.not_empty.wait(items).unwrap_or_else(|e| panic!("{e}"))
                                }
                                false => {
                                    let waited = buffer.not_empty.wait_timeout(items, soon);
                                    waited.unwrap_or_else(|e| panic!("{e}")).0
                                }
                            };
                        }
                        sum += items.pop().unwrap_or(1_000_000);
                        // One that gave up may have been the one that was woken.
                        wake(&buffer.not_empty);
                        wake(&buffer.not_full);
                    }
                    sum
                })
            })
            .collect();
        producers.into_iter().for_each(|producer| assert!(producer.join().is_ok()));
        let sum: u32 = consumers.into_iter().map(|c| c.join().unwrap_or(1_000_000)).sum();
        assert_eq!(sum, sides * each * (each - 1) / 2);
    });
}

/// Selects that send or receive, time out, or find everything closed: what is sent
/// arrives once.
pub(super) fn select(rng: &Rng, procs: usize) {
    let (n, rounds, salt) = (1 + rng.next() % 3, 1 + rng.next() as usize % 6, rng.next() >> 8);
    let sent = Arc::new(AtomicUsize::new(0));
    let received = Arc::new(AtomicUsize::new(0));
    runtime(rng, procs).run(|| {
        let (left, from_left) = chan::bounded::<usize>(0);
        let (right, from_right) = chan::bounded::<usize>(1);
        let both: Vec<_> = (0..2 * n)
            .map(|i| {
                let (left, right) = (left.clone(), right.clone());
                let (from_left, from_right) = (from_left.clone(), from_right.clone());
                let (sent, received) = (sent.clone(), received.clone());
                // Every one of them sends to one side and receives from the other.
                go(move || {
                    let (to, from) =
                        if i % 2 == 0 { (&left, &from_right) } else { (&right, &from_left) };
                    for round in 0..rounds {
                        let late = chan::after(Duration::from_nanos(u64::from(
                            (salt >> (i % 8)) % 20_000,
                        )));
                        compute(salt + i + round as u32);
                        let mut select = chan::Select::new();
                        let sends = select.send(to);
                        let receives = select.recv(from);
                        let times_out = select.recv(&late);
                        let ready = select.select();
                        match ready.index() {
                            index if index == sends => {
                                assert!(ready.send(to, 1).is_ok());
                                sent.fetch_add(1, Ordering::Relaxed);
                            }
                            index if index == receives => {
                                let n = ready.recv(from).unwrap_or(1_000_000);
                                received.fetch_add(n, Ordering::Relaxed);
                            }
                            index => {
                                assert_eq!(index, times_out);
                                assert!(ready.recv(&late).is_ok());
                            }
                        }
                    }
                })
            })
            .collect();
        both.into_iter().for_each(|one| assert!(one.join().is_ok()));
        drop((left, right));
        // What lies in the one that has room, and then the end.
        let rest = from_right.iter().count();
        assert_eq!(received.load(Ordering::Relaxed) + rest, sent.load(Ordering::Relaxed));
        assert!(from_left.recv().is_err());
    });
}

/// Barriers, once, permits, groups and timeouts.
pub(super) fn the_rest(rng: &Rng, procs: usize) {
    let (n, rounds, salt) = (1 + rng.next() % 4, 1 + rng.next() % 3, rng.next() >> 8);
    struct Shared {
        barrier: Barrier,
        once: Once,
        permits: Semaphore,
        calls: AtomicUsize,
        inside: AtomicUsize,
        arrived: AtomicUsize,
    }
    runtime(rng, procs).run(|| {
        let shared = Arc::new(Shared {
            barrier: Barrier::new(n as usize),
            once: Once::new(),
            permits: Semaphore::new(2),
            calls: AtomicUsize::new(0),
            inside: AtomicUsize::new(0),
            arrived: AtomicUsize::new(0),
        });
        let group = WaitGroup::new();
        for i in 0..n {
            let shared = shared.clone();
            group.go(move || {
                shared.once.call_once(|| {
                    compute(salt);
                    shared.calls.fetch_add(1, Ordering::Relaxed);
                });
                assert_eq!(shared.calls.load(Ordering::Relaxed), 1, "called once, and done");
                for round in 1..=rounds {
                    shared.arrived.fetch_add(1, Ordering::Relaxed);
                    shared.barrier.wait();
                    let arrived = shared.arrived.load(Ordering::Relaxed);
                    assert!(arrived >= (n * round) as usize, "nobody passes before all are there");
                    let permit = shared.permits.acquire();
                    assert!(shared.inside.fetch_add(1, Ordering::Relaxed) < 2, "two permits");
                    compute(salt + i);
                    time::sleep(Duration::from_nanos(u64::from(salt % 3_000)));
                    shared.inside.fetch_sub(1, Ordering::Relaxed);
                    drop(permit);
                }
            });
        }
        group.wait();
        assert_eq!(shared.arrived.load(Ordering::Relaxed), (n * rounds) as usize);
    });
}
