//! The guard of thread-locals.

use crate::common::{Drops, in_a_process, stderr, until, watched};
use heist::{Runtime, chan, sync, thread};
use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn runtime(procs: usize, guard: bool) -> Runtime {
    heist::Builder::new().max_procs(procs).tls_guard(guard).build().unwrap()
}

fn here() -> std::thread::ThreadId {
    std::thread::current().id()
}

thread_local! {
    static STACK: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static WORD: Cell<usize> = const { Cell::new(0) };
}

/// Whoever borrows has its thread to itself.
#[test]
fn borrows_may_be_held_across_waits() {
    watched(|| {
        let runtime = runtime(4, true);
        runtime.run(|| {
            let (send, receive) = chan::bounded::<u64>(0);
            let goroutines: Vec<_> = (0..40u64)
                .map(|id| {
                    let (send, receive) = (send.clone(), receive.clone());
                    heist::go(move || {
                        for round in 0..10 {
                            STACK.with_borrow_mut(|stack| {
                                let thread = here();
                                stack.push(id);
                                match round % 4 {
                                    0 => thread::yield_now(),
                                    1 => thread::sleep(Duration::from_micros(10)),
                                    2 if id % 2 == 0 => send.send(id).unwrap(),
                                    2 => drop(receive.recv().unwrap()),
                                    _ => heist::go(thread::yield_now).join().unwrap(),
                                }
                                assert_eq!(here(), thread);
                                assert_eq!(stack.pop(), Some(id));
                            });
                        }
                    })
                })
                .collect();
            goroutines.into_iter().for_each(|g| g.join().unwrap());
        });
        let stats = runtime.stats();
        assert!(stats.tls_holds >= 40, "{stats:?}");
    });
}

/// A reference in a frame far away, on another segment of the stack.
#[test]
fn all_segments_of_a_stack_are_searched() {
    watched(|| {
        let runtime = runtime(1, true);
        runtime.run(|| {
            let before = heist::runtime::stats().tls_holds;
            WORD.with(|word| {
                let word = black_box(word);
                heist::stack::ensure(1 << 20, || {
                    heist::stack::ensure(4 << 20, thread::yield_now);
                });
                word.set(1);
            });
            assert!(heist::runtime::stats().tls_holds > before);
        });
    });
}

/// Work that touches no thread-local: those leave their addresses on the stack, where
/// the hole of a later frame may be.
fn ordinary_work(id: u64) {
    let text = format!("{id} {}", black_box(id) * 2);
    assert!(text.len() >= 3);
}

#[test]
fn without_thread_locals_few_are_held() {
    watched(|| {
        {
            let runtime = runtime(3, true);
            runtime.run(|| {
                let (send, receive) = chan::bounded(2);
                let (say, said) = chan::bounded(0);
                let total = Arc::new(sync::Mutex::new(0));
                let wait_group = sync::WaitGroup::new();
                for id in 0..40u64 {
                    let (send, receive) = (send.clone(), receive.clone());
                    let (say, said) = (say.clone(), said.clone());
                    let total = total.clone();
                    wait_group.go(move || {
                        for _ in 0..10 {
                            ordinary_work(id);
                            thread::yield_now();
                            *total.lock().unwrap() += 1;
                            if id % 2 == 0 {
                                send.send(id).unwrap();
                                say.send(id).unwrap();
                            } else {
                                receive.recv().unwrap();
                                chan::select! {
                                    recv(said) -> id => assert!(id.is_ok()),
                                    default(Duration::from_secs(100)) => unreachable!(),
                                }
                            }
                            ordinary_work(id);
                            thread::sleep(Duration::from_micros(20));
                            heist::go(move || ordinary_work(id)).join().unwrap();
                            let scoped = thread::scope(|s| s.spawn(|| id).join().unwrap());
                            assert_eq!(scoped, id);
                        }
                    });
                }
                wait_group.wait();
                assert_eq!(*total.lock().unwrap(), 400);
            });
            let stats = runtime.stats();
            assert!(stats.tls_searches > 10, "{stats:?}");
            // Frames have holes, in which earlier calls left something: few if they
            // are optimised, though one may stay for as long as its goroutine lives.
            // An address that the compiler keeps across waits, which a library
            // function that was inlined brings about, holds nearly everybody.
            if !cfg!(debug_assertions) {
                assert!(stats.tls_holds * 2 <= stats.tls_searches, "{stats:?}");
            }
        }
    });
}

#[test]
fn switched_off_it_looks_at_nothing() {
    watched(|| {
        let runtime = runtime(4, false);
        runtime.run(|| {
            let goroutines: Vec<_> =
                (0..100).map(|_| heist::go(|| (0..20).for_each(|_| thread::yield_now()))).collect();
            goroutines.into_iter().for_each(|g| g.join().unwrap());
        });
        assert_eq!(runtime.stats().tls_searches, 0);
    });
}

struct EndsHere(std::thread::ThreadId, #[allow(dead_code)] crate::common::Droplet);

impl Drop for EndsHere {
    fn drop(&mut self) {
        assert_eq!(here(), self.0);
    }
}

/// In a shutdown they are unwound on their own threads.
#[test]
fn a_shutdown_unwinds_holders_where_they_are() {
    watched(|| {
        {
            let drops = Drops::default();
            let started = Arc::new(AtomicUsize::new(0));
            let runtime = heist::Builder::new()
                .max_procs(3)
                .tls_guard(true)
                .shutdown_timeout(Duration::from_secs(60))
                .build()
                .unwrap();
            let (keep, never) = chan::bounded::<()>(0);
            for _ in 0..20 {
                let (value, started, never) = (drops.value(), started.clone(), never.clone());
                drop(runtime.go(move || {
                    WORD.with(|word| {
                        let _value = EndsHere(here(), value);
                        let word = black_box(word);
                        started.fetch_add(1, Ordering::SeqCst);
                        let _ = never.recv();
                        word.set(0);
                    });
                }));
            }
            until(|| started.load(Ordering::SeqCst) == 20);
            // All of them wait.
            until(|| heist::debug::dump().matches("[chan receive").count() >= 20);
            drop(runtime);
            assert_eq!(drops.count(), 20);
            drop(keep);
        }
    });
}

/// Debug builds say what they found, once for each place that spawns.
#[test]
fn debug_builds_say_where() {
    let Some(child) = in_a_process() else {
        return runtime(2, true).run(|| {
            let spawned: Vec<_> = (0..10)
                .map(|_| {
                    heist::go(|| {
                        WORD.with(|word| {
                            let word = black_box(word);
                            thread::sleep(Duration::from_micros(10));
                            word.set(1);
                        });
                    })
                })
                .collect();
            spawned.into_iter().for_each(|g| g.join().unwrap());
        });
    };
    assert!(child.status.success(), "{}", stderr(&child));
    let said = stderr(&child);
    // Others than those that sleep may only seem to.
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("across sleep at")).collect();
    assert_eq!(lines.len(), usize::from(cfg!(debug_assertions)), "{said}");
    if let Some(line) = lines.first() {
        let expected = "seems to refer to a thread-local";
        assert!(line.contains(expected) && line.contains("guard.rs"), "{said}");
    }
}
