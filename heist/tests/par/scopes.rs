//! Scopes.

use super::{fib, pool};
use heist::par::{in_place_scope, join, scope, scope_fifo};
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn nested_scopes_and_joins() {
    let sum = AtomicU64::new(0);
    let add = |n| {
        sum.fetch_add(n, Ordering::Relaxed);
    };
    for procs in [1, 3] {
        sum.store(0, Ordering::Relaxed);
        pool(procs).install(|| {
            scope(|s| {
                for i in 0..10 {
                    let add = &add;
                    s.spawn(move |s| {
                        scope_fifo(|inner| {
                            inner.spawn_fifo(move |_| add(i));
                            join(|| inner.spawn_fifo(move |_| add(i)), || add(fib(10)));
                        });
                        s.spawn(move |_| add(i));
                    });
                }
            });
        });
        assert_eq!(sum.load(Ordering::Relaxed), 3 * 45 + 10 * 55);
    }
}

#[test]
fn jobs_of_a_scope_block_on_each_other() {
    let pool = pool(1);
    let (sender, receiver) = heist::chan::bounded(0);
    pool.install(|| {
        scope(|s| {
            s.spawn(|_| assert_eq!(receiver.recv(), Ok(5)));
            s.spawn(|_| sender.send(5).unwrap());
        });
    });
}

#[test]
fn a_shutdown_does_not_leave_a_scope_waiting() {
    let runtime = heist::Builder::new().max_procs(1).build().unwrap();
    let (sender, receiver) = heist::chan::bounded::<()>(0);
    let (started, begun) = heist::chan::bounded(1);
    let handle = runtime.go(move || {
        scope(|s| {
            for _ in 0..3 {
                s.spawn(|_| {
                    let _ = receiver.recv();
                });
            }
            started.send(()).unwrap();
        });
    });
    begun.recv().unwrap();
    drop(runtime);
    assert!(handle.join().is_err());
    drop(sender);
}

#[test]
fn the_first_panic_of_a_scope_comes_out() {
    let ran = AtomicU64::new(0);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        in_place_scope(|s| {
            s.spawn(|_| panic!("job"));
            s.spawn(|_| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
        });
    }));
    assert_eq!(result.unwrap_err().downcast_ref::<&str>(), Some(&"job"));
    assert_eq!(ran.into_inner(), 1);
}
