//! Much of it.

use crate::common::{runtime, text, until, watched};
use crate::process::{case_of, child};
use heist::thread;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[test]
fn a_million_spawns_without_a_yield_all_run() {
    const MILLION: usize = 1_000_000;
    watched(|| {
        for procs in [1, 2] {
            let ran = Arc::new(AtomicUsize::new(0));
            let runtime = runtime(procs);
            runtime.run(|| {
                for _ in 0..MILLION {
                    let ran = ran.clone();
                    drop(thread::spawn(move || ran.fetch_add(1, Ordering::Relaxed)));
                }
                until(|| ran.load(Ordering::Relaxed) == MILLION);
            });
            assert_eq!(ran.load(Ordering::SeqCst), MILLION);
        }
    });
}

/// The result of a goroutine is there, and its local values are being dropped,
/// when its handle goes: nobody will ask for the result any more.
mod between_the_result_and_the_end {
    use super::*;

    static INSIDE: AtomicBool = AtomicBool::new(false);
    static GO_ON: AtomicBool = AtomicBool::new(false);
    static DROPPED: AtomicUsize = AtomicUsize::new(0);

    /// Holds its goroutine at its end.
    struct Holds;
    impl Drop for Holds {
        fn drop(&mut self) {
            INSIDE.store(true, Ordering::SeqCst);
            until(|| GO_ON.load(Ordering::SeqCst));
        }
    }

    heist::goroutine_local! {
        static HOLDS: Holds = Holds;
    }

    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            thread::yield_now();
            DROPPED.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_handle_that_goes_leaves_a_result_that_is_dropped_once_and_counted_once() {
        watched(|| {
            for procs in [1, 2, 8] {
                INSIDE.store(false, Ordering::SeqCst);
                GO_ON.store(false, Ordering::SeqCst);
                DROPPED.store(0, Ordering::SeqCst);
                let runtime = runtime(procs);
                let handle = runtime.go(|| {
                    HOLDS.with(|_| ());
                    Counted
                });
                until(|| INSIDE.load(Ordering::SeqCst));
                assert!(!handle.is_finished());
                drop(handle);
                assert_eq!(DROPPED.load(Ordering::SeqCst), 0);
                GO_ON.store(true, Ordering::SeqCst);
                until(|| DROPPED.load(Ordering::SeqCst) == 1 && runtime.num_goroutines() == 0);
                let stats = runtime.stats();
                assert_eq!((stats.spawned, stats.finished), (1, 1), "{procs} Ps");
                drop(runtime);
                assert_eq!(DROPPED.load(Ordering::SeqCst), 1, "{procs} Ps");
            }
        });
    }
}

#[test]
fn a_hundred_thousand_goroutines_sleep_at_the_same_time() {
    const MANY: usize = 100_000;
    watched(|| {
        let runtime = runtime(2);
        runtime.run(|| {
            let asleep = Arc::new(AtomicUsize::new(0));
            let handles: Vec<_> = (0..MANY)
                .map(|i| {
                    let asleep = asleep.clone();
                    thread::spawn(move || {
                        asleep.fetch_add(1, Ordering::Relaxed);
                        thread::park();
                        i
                    })
                })
                .collect();
            until(|| asleep.load(Ordering::Relaxed) == MANY);
            assert_eq!(heist::runtime::num_goroutines(), MANY + 1);
            handles.iter().for_each(|handle| handle.thread().unpark());
            let sum: usize = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
            assert_eq!(sum, MANY * (MANY - 1) / 2);
        });
    });
}

#[test]
fn memory_that_the_kernel_refuses_is_an_error() {
    const TEST: &str = "memory_that_the_kernel_refuses_is_an_error";
    if case_of(TEST).is_some() {
        watched(|| {
            let runtime = runtime(2);
            let limit = libc::rlimit { rlim_cur: 8 << 30, rlim_max: 8 << 30 };
            // SAFETY: the pointer is to a live local.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
            runtime.run(|| {
                let large = thread::Builder::new().stack_size(16 << 30);
                let error = large.spawn(|| ()).map(drop).unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
                assert!(error.to_string().contains("ulimit -v"), "{error}");
                let panic = catch_unwind(|| heist::stack::ensure(16 << 30, || ())).unwrap_err();
                assert!(text(&*panic).contains("ulimit -v"), "{}", text(&*panic));
                assert_eq!(thread::spawn(|| 5).join().unwrap(), 5);
            });
            let error = heist::Builder::new().stack_size(1 << 40).build().unwrap_err();
            assert!(error.to_string().contains("stack"), "{error}");
        });
        return;
    }
    child(TEST, "").assert_exit(0);
}
