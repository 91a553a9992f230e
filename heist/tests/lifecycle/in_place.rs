//! Goroutines that wait with their threads when their runtime ends: pinned ones, and those
//! that unwind. What one of them needs another may be the only one to give.

use super::*;
use heist::chan::{TryRecvError, bounded};
use heist::runtime::pin;
use std::time::Instant;

const PATIENT: Duration = Duration::from_secs(60);

fn patient(procs: usize) -> Runtime {
    heist::Builder::new().max_procs(procs).shutdown_timeout(PATIENT).build().unwrap()
}

/// Drops a runtime after a while; nobody is waited for until the deadline.
fn drop_after(runtime: Runtime, millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
    let begin = Instant::now();
    drop(runtime);
    assert!(begin.elapsed() < PATIENT / 2, "{:?}", begin.elapsed());
}

fn compute(millis: u64) {
    let end = Instant::now() + Duration::from_millis(millis);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// A sender without a P has chosen its receiver, and waits for a P in order to wake it; the
/// receiver, which is told to unwind, waits for that.
#[test]
fn who_is_woken_by_one_that_is_queued_ends() {
    watched(|| {
        for round in 0..8 {
            let runtime = patient(1);
            for i in 0..4 {
                let (s, r) = bounded(1);
                drop(runtime.go(move || {
                    let _pin = pin();
                    while r.recv().is_ok() {}
                }));
                drop(runtime.go(move || {
                    loop {
                        compute(12 + i * 3 % 7);
                        if s.send(()).is_err() {
                            return;
                        }
                    }
                }));
            }
            drop_after(runtime, 60 + round * 7 % 40);
        }
    });
}

/// Somebody blocks its thread until a goroutine that is queued with its own has ended.
#[test]
fn one_that_is_queued_goes_on_while_another_blocks_its_thread() {
    watched(|| {
        for _ in 0..10 {
            let runtime = patient(2);
            let (held, gone) = mpsc::channel::<()>();
            drop(runtime.go(move || {
                let (_pin, _held) = (pin(), held);
                loop {
                    thread::yield_now();
                }
            }));
            for _ in 0..3 {
                drop(runtime.go(|| {
                    loop {
                        thread::yield_now();
                    }
                }));
            }
            drop(runtime.go(move || assert!(gone.recv().is_err())));
            drop_after(runtime, 30);
        }
    });
}

/// Calls a function when it is dropped.
struct AtTheEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtTheEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Unwinds on its own thread, and looks again and again for the end of one that must be
/// unwound, too.
#[test]
fn a_destructor_may_poll_for_another_that_ends() {
    let polls: [fn(); 3] = [
        || {
            let other = heist::go(thread::park);
            let _end = AtTheEnd(|| while !other.is_finished() {});
            thread::park();
        },
        || {
            let other = heist::go(thread::park);
            let _end = AtTheEnd(|| {
                while !other.is_finished() {
                    thread::yield_now();
                }
            });
            thread::park();
        },
        || {
            let (s, r) = bounded::<()>(0);
            drop(heist::go(move || {
                let _s = s;
                thread::park();
            }));
            let _end = AtTheEnd(|| while r.try_recv() != Err(TryRecvError::Disconnected) {});
            thread::park();
        },
    ];
    watched(|| {
        for poll in polls {
            for pinned in [false, true] {
                let runtime = patient(2);
                drop(runtime.go(move || {
                    let _pin = pinned.then(pin);
                    poll();
                }));
                drop_after(runtime, 20);
            }
        }
    });
}

/// A wait for a time, in a destructor, that began before the runtime closes.
#[test]
fn a_destructor_that_waits_for_a_time_ends() {
    const TIME: Duration = Duration::from_millis(50);
    let waits: [fn(); 4] = [
        || thread::sleep(TIME),
        || thread::park_timeout(TIME),
        || {
            let (_s, r) = bounded::<()>(0);
            assert!(r.recv_timeout(TIME).is_err());
        },
        || {
            let lock = heist::sync::Mutex::new(());
            let guard = lock.lock().unwrap();
            let waited = heist::sync::Condvar::new().wait_timeout(guard, TIME).unwrap();
            assert!(waited.1.timed_out());
        },
    ];
    watched(|| {
        for wait in waits {
            let (runtime, done) = (patient(2), Arc::new(AtomicBool::new(false)));
            let says = done.clone();
            drop(runtime.go(move || {
                let _end = AtTheEnd(|| {
                    wait();
                    says.store(true, Ordering::SeqCst);
                });
                resume_unwind(Box::new("an ordinary panic, without a report"));
            }));
            drop_after(runtime, 20);
            assert!(done.load(Ordering::SeqCst));
        }
    });
}
