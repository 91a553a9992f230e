//! The limit of threads.

use crate::common::watched;
use crate::process::{case_of, child};
use heist::thread;
use std::panic::resume_unwind;

#[test]
fn too_many_threads_end_the_program_with_a_message() {
    const TEST: &str = "too_many_threads_end_the_program_with_a_message";
    /// Keeps its thread: a goroutine that unwinds does not leave it.
    struct Stays;
    impl Drop for Stays {
        fn drop(&mut self) {
            loop {
                thread::park();
            }
        }
    }
    if case_of(TEST).is_some() {
        let runtime = heist::Builder::new().max_procs(1).max_threads(4).build().unwrap();
        runtime.run(|| {
            for _ in 0..10 {
                drop(thread::spawn(|| {
                    let _stays = Stays;
                    resume_unwind(Box::new(()))
                }));
            }
            loop {
                thread::yield_now();
            }
        });
    }
    let ended = child(TEST, "");
    ended.assert_killed_by(libc::SIGABRT);
    ended.assert_says(&["4-thread limit", "max_threads"]);
    // The scheduler's state, and the goroutines.
    ended.assert_says(&["SCHED ", "gomaxprocs=1", "  P0: status=", "  M0: p=", "goroutine 1 "]);
}

#[test]
fn a_limit_of_fewer_threads_than_ps_is_no_end_for_goroutines_that_do_not_block() {
    const TEST: &str =
        "a_limit_of_fewer_threads_than_ps_is_no_end_for_goroutines_that_do_not_block";
    if case_of(TEST).is_some() {
        let built = heist::Builder::new().max_procs(4).max_threads(2).build();
        // An error that says so would be good as well.
        if let Ok(runtime) = built {
            let sum: u64 = watched(|| {
                runtime.run(|| {
                    let handles: Vec<_> = (0..10_000u64)
                        .map(|i| {
                            thread::spawn(move || {
                                thread::yield_now();
                                i
                            })
                        })
                        .collect();
                    handles.into_iter().map(|handle| handle.join().unwrap()).sum()
                })
            });
            assert_eq!(sum, 49_995_000);
        }
        return;
    }
    child(TEST, "").assert_exit(0);
}
