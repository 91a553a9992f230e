//! How many threads there are.

use super::common::{Hogs, in_a_process, stderr, watched};
use heist::{Builder, blocking, go, runtime, syscall};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

fn exceed_the_limit(call: fn(&dyn Fn())) {
    watched(|| {
        Builder::new().max_procs(2).max_threads(8).build().unwrap().run(|| {
            let never = Arc::new(Barrier::new(1000));
            let all: Vec<_> = (0..20)
                .map(|_| {
                    let never = never.clone();
                    go(move || {
                        call(&|| {
                            never.wait();
                        });
                    })
                })
                .collect();
            all.into_iter().for_each(|g| g.join().unwrap());
        });
    });
}

/// Runs the rest of the test in a process of its own, which is to end with Go's
/// message.
macro_rules! exceeds {
    ($call:expr) => {
        match in_a_process() {
            None => exceed_the_limit($call),
            Some(output) => {
                let said = stderr(&output);
                assert!(said.contains("program exceeds 8-thread limit"), "{said}");
                assert!(!said.contains("hangs"), "{said}");
            }
        }
    };
}

#[test]
fn too_many_declared_calls_are_an_error() {
    exceeds!(|f| syscall(f));
}

#[test]
fn too_many_blocking_calls_are_an_error() {
    exceeds!(|f| blocking(f));
}

#[test]
fn too_many_undeclared_calls_are_an_error() {
    exceeds!(|f| f());
}

/// Hogs need a thread each to be stopped on. Without, those that run go on, and the
/// others wait: that is no error.
#[test]
fn too_many_hogs_are_none() {
    watched(|| {
        const LIMIT: usize = 6;
        let runtime = Builder::new().max_procs(2).max_threads(LIMIT).build().unwrap();
        let hogs = runtime.run(|| Hogs::start(20, || ()));
        // From a plain thread: a goroutine may be one of those that wait.
        let (mut samples, mut at_limit) = (0, 0);
        while samples < 300 || at_limit < 100 {
            let threads = runtime.stats().threads;
            assert!(threads <= LIMIT, "{threads} threads");
            samples += 1;
            at_limit += usize::from(threads == LIMIT);
            std::thread::sleep(Duration::from_millis(1));
        }
        let idle = hogs.work().iter().filter(|work| **work == 0).count();
        assert!(idle >= 20 - LIMIT, "{idle} of 20 have waited");
        hogs.flag().store(true, Ordering::Relaxed);
        runtime.run(|| hogs.join());
    });
}

#[test]
fn threads_that_nobody_needs_end() {
    watched(|| {
        let keep = Duration::from_millis(20);
        Builder::new().max_procs(2).thread_keep_alive(keep).build().unwrap().run(|| {
            let all_here = Arc::new(Barrier::new(12));
            let all: Vec<_> = (0..12)
                .map(|_| {
                    let all_here = all_here.clone();
                    go(move || {
                        blocking(|| all_here.wait());
                    })
                })
                .collect();
            all.into_iter().for_each(|g| g.join().unwrap());
            // There were twelve, or the barrier would not have opened.
            while runtime::stats().threads > 2 {
                heist::time::sleep(Duration::from_millis(5));
            }
        });
    });
}

/// Threads that wait for work are taken last in, first out: few of many are used when
/// few are needed, and the others can end.
#[test]
fn the_thread_that_went_idle_last_is_the_next() {
    const MANY: usize = 24;
    watched(|| {
        let keep = Duration::from_secs(600);
        Builder::new().max_procs(1).thread_keep_alive(keep).build().unwrap().run(|| {
            let all_here = Arc::new(Barrier::new(MANY));
            let all: Vec<_> = (0..MANY)
                .map(|_| {
                    let all_here = all_here.clone();
                    go(move || {
                        blocking(|| all_here.wait());
                    })
                })
                .collect();
            all.into_iter().for_each(|g| g.join().unwrap());
            assert!(runtime::stats().threads >= MANY);
            // The only P has always something to run, so each call needs a thread for it,
            // and its own is left over when it returns.
            let stop = Arc::new(AtomicBool::new(false));
            let flag = stop.clone();
            let busy = go(move || {
                while !flag.load(Ordering::Relaxed) {
                    heist::thread::yield_now();
                }
            });
            let mut used = BTreeSet::new();
            for _ in 0..10 * MANY {
                // SAFETY: takes nothing and always succeeds.
                used.insert(blocking(|| unsafe { libc::gettid() }));
            }
            stop.store(true, Ordering::Relaxed);
            busy.join().unwrap();
            assert!(used.len() <= MANY / 4, "{} of {MANY} threads were used", used.len());
        });
    });
}
