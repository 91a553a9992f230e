//! Panics of branches.

use super::{fib, pool};
use heist::par::{join, scope, scope_fifo};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

fn text(payload: &(dyn std::any::Any + Send)) -> &str {
    payload.downcast_ref::<&str>().copied().unwrap_or("?")
}

/// Panics in every node of a tree, one after the other: the others all run.
#[test]
fn panics_in_every_position() {
    const DEPTH: u32 = 4;
    fn node(depth: u32, number: usize, bad: usize, ran: &AtomicUsize) {
        if depth == 0 {
            ran.fetch_add(1, Ordering::Relaxed);
            assert_ne!(number, bad, "it is the bad one");
            return;
        }
        join(
            || node(depth - 1, 2 * number, bad, ran),
            || node(depth - 1, 2 * number + 1, bad, ran),
        );
    }
    for procs in [1, 3] {
        let pool = pool(procs);
        for bad in 0..1 << DEPTH {
            let ran = AtomicUsize::new(0);
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.install(|| node(DEPTH, 0, bad, &ran));
            }));
            assert!(result.is_err());
            assert_eq!(ran.into_inner(), 1 << DEPTH, "all leaves ran");
        }
    }
}

/// The same in scopes within scopes: the panic of a job, of the closure that a scope was
/// given, or of an inner scope comes out, and all the other jobs run.
#[test]
fn panics_in_every_position_of_nested_scopes() {
    const JOBS: usize = 3;
    fn position(number: usize, bad: usize, ran: &AtomicUsize) {
        ran.fetch_add(1, Ordering::Relaxed);
        if number == bad {
            panic!("it is the bad one");
        }
    }
    fn outer(bad: usize, ran: &AtomicUsize) {
        scope(|s| {
            for job in 0..JOBS {
                s.spawn(move |_| {
                    let first = 1 + job * (JOBS + 1);
                    scope_fifo(|s| {
                        for i in 1..=JOBS {
                            s.spawn_fifo(move |_| position(first + i, bad, ran));
                        }
                        position(first, bad, ran);
                    });
                });
            }
            position(0, bad, ran);
        });
    }
    let positions = 1 + JOBS * (JOBS + 1);
    for procs in [1, 3] {
        let pool = pool(procs);
        for bad in 0..=positions {
            let ran = AtomicUsize::new(0);
            let result = catch_unwind(AssertUnwindSafe(|| pool.install(|| outer(bad, &ran))));
            match result {
                Ok(()) => assert_eq!(bad, positions, "nobody panics"),
                Err(payload) => assert_eq!(text(&*payload), "it is the bad one"),
            }
            assert_eq!(ran.into_inner(), positions, "everybody ran");
        }
    }
}

#[test]
fn the_first_panic_wins_and_the_second_branch_runs() {
    for procs in [1, 2] {
        let pool = pool(procs);
        let both =
            catch_unwind(AssertUnwindSafe(|| pool.join(|| panic!("first"), || panic!("second"))));
        assert_eq!(text(&*both.unwrap_err()), "first");
        let second = catch_unwind(AssertUnwindSafe(|| pool.join(|| 1, || panic!("second"))));
        assert_eq!(text(&*second.unwrap_err()), "second");
    }
}

/// The first branch panics while the second runs elsewhere: it is waited for.
#[test]
fn a_panic_waits_for_a_branch_that_was_taken() {
    let pool = pool(2);
    for _ in 0..50 {
        let mut value = 0;
        let (sender, receiver) = heist::chan::bounded(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.join(
                || {
                    receiver.recv().unwrap();
                    panic!("first");
                },
                || {
                    sender.send(()).unwrap();
                    value = fib(15);
                },
            )
        }));
        assert_eq!(text(&*result.unwrap_err()), "first");
        assert_eq!(value, 610);
    }
}

/// Both panic, and the second one on another goroutine, before the first or after it.
#[test]
fn the_first_panic_wins_over_that_of_a_branch_that_was_taken() {
    let pool = pool(2);
    for round in 0..50 {
        let (sender, receiver) = heist::chan::bounded(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.join(
                || {
                    receiver.recv().unwrap();
                    if round % 2 == 0 {
                        heist::thread::yield_now();
                    }
                    panic!("first");
                },
                || {
                    sender.send(()).unwrap();
                    panic!("second");
                },
            )
        }));
        assert_eq!(text(&*result.unwrap_err()), "first");
    }
}

/// Values of both branches are dropped once, whoever panics.
#[test]
fn results_are_dropped_once() {
    struct Counted<'a>(&'a AtomicUsize);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let drops = AtomicUsize::new(0);
    let pool = pool(2);
    drop(pool.join(|| Counted(&drops), || Counted(&drops)));
    assert_eq!(drops.swap(0, Ordering::Relaxed), 2);
    let _ = catch_unwind(AssertUnwindSafe(|| pool.join(|| Counted(&drops), || panic!("b"))));
    assert_eq!(drops.swap(0, Ordering::Relaxed), 1);
    let _ =
        catch_unwind(AssertUnwindSafe(|| pool.join(|| -> u32 { panic!("a") }, || Counted(&drops))));
    assert_eq!(drops.into_inner(), 1);
}

/// A runtime that is dropped while a goroutine waits inside of a fork.
#[test]
fn a_shutdown_unwinds_through_forks() {
    let runtime = heist::Builder::new().max_procs(2).build().unwrap();
    let (sender, receiver) = heist::chan::bounded::<()>(0);
    let (started, begun) = heist::chan::bounded(1);
    let handle = runtime.go(move || {
        join(
            || {
                started.send(()).unwrap();
                let _ = receiver.recv();
            },
            || fib(10),
        )
    });
    begun.recv().unwrap();
    drop(runtime);
    assert!(handle.join().is_err());
    drop(sender);
}
