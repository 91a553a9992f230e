//! Branches may block, also on each other.

use super::{fib, pool};
use heist::par::{FnContext, join, join_context};
use std::time::Duration;

#[test]
fn the_first_branch_waits_for_the_second() {
    for procs in [1, 2, 4] {
        let got = pool(procs).install(|| {
            let (sender, receiver) = heist::chan::bounded(0);
            join(move || receiver.recv().unwrap(), move || sender.send(7).unwrap()).0
        });
        assert_eq!(got, 7);
    }
}

#[test]
fn the_second_branch_waits_for_the_first() {
    for procs in [1, 2, 4] {
        let got = pool(procs).install(|| {
            let (sender, receiver) = heist::chan::bounded(0);
            join(move || sender.send(7).unwrap(), move || receiver.recv().unwrap()).1
        });
        assert_eq!(got, 7);
    }
}

/// A branch that was taken is told so.
#[test]
fn the_branch_that_another_runs_has_migrated() {
    let (sender, receiver) = heist::chan::bounded(0);
    let migrated = pool(1).install(|| {
        let first = |context: FnContext| receiver.recv().map(|()| context.migrated());
        join_context(first, |context| sender.send(()).map(|()| context.migrated()))
    });
    assert_eq!(migrated, (Ok(false), Ok(true)));
}

/// An outer fork that is the only one that can wake the innermost branch.
#[test]
fn a_branch_deep_down_waits_for_the_first_fork() {
    fn down(depth: u32, receiver: &heist::chan::Receiver<u32>) -> u32 {
        if depth == 0 {
            return receiver.recv().unwrap();
        }
        join(|| down(depth - 1, receiver), || 1).0
    }
    for procs in [1, 2] {
        let (sender, receiver) = heist::chan::bounded(0);
        let got =
            pool(procs).install(|| join(|| down(50, &receiver), || sender.send(9).unwrap()).0);
        assert_eq!(got, 9);
    }
}

#[test]
fn a_branch_that_yields_lets_the_other_run() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let flag = AtomicBool::new(false);
    pool(1).install(|| {
        join(
            || {
                while !flag.load(Ordering::SeqCst) {
                    heist::thread::yield_now();
                }
            },
            || flag.store(true, Ordering::SeqCst),
        )
    });
}

/// In rayon a waiter may run another's branch, which wants the mutex that it holds.
#[test]
fn a_join_with_a_mutex_held_does_not_deadlock() {
    let mutex = heist::sync::Mutex::new(0u64);
    let task = || {
        for _ in 0..20 {
            let mut guard = mutex.lock().unwrap();
            *guard += fib(12);
        }
    };
    pool(4).install(|| {
        join(|| join(task, task), || join(task, task));
    });
    assert_eq!(mutex.into_inner().unwrap(), 4 * 20 * 144);
}

/// The same with one of std's, whose waiters block their threads: those that hold it get on
/// all the same, and whoever of them waits for a branch does.
#[test]
fn a_join_with_a_mutex_of_stds_held_does_not_deadlock() {
    let mutex = std::sync::Mutex::new(0u64);
    let task = || {
        for _ in 0..5 {
            let mut guard = mutex.lock().unwrap();
            *guard += fib(12);
        }
    };
    for procs in [1, 3] {
        pool(procs).install(|| {
            join(|| join(task, task), || join(task, task));
        });
    }
    assert_eq!(mutex.into_inner().unwrap(), 2 * 4 * 5 * 144);
}

/// The first branch blocks its thread: the second is shared before, or raided if nobody
/// declares the call. On one P that goes with another thread.
#[test]
fn a_branch_that_blocks_its_thread_has_its_forks_taken() {
    type Call = fn(&dyn Fn() -> u32) -> u32;
    let calls: [(&str, Call); 3] = [
        ("syscall", |call| heist::syscall(call)),
        ("blocking", |call| heist::blocking(call)),
        ("undeclared", |call| call()),
    ];
    for (name, call) in calls {
        for procs in [1, 2] {
            let (sender, receiver) = std::sync::mpsc::channel();
            let got = pool(procs).install(move || {
                let receive =
                    move || call(&|| receiver.recv_timeout(Duration::from_secs(60)).unwrap());
                join(receive, move || sender.send(11).unwrap()).0
            });
            assert_eq!(got, 11, "{name} on {procs}");
        }
    }
}

/// A computation that does not fork any more does not keep its forks from others.
#[test]
fn a_branch_that_computes_is_raided() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let done = AtomicUsize::new(0);
    pool(3).install(|| {
        let compute = || {
            while done.load(Ordering::Relaxed) < 2 {
                std::hint::spin_loop();
            }
        };
        let count = || {
            done.fetch_add(1, Ordering::Relaxed);
        };
        join(|| join(compute, count), count);
    });
    assert_eq!(done.into_inner(), 2);
}

#[test]
fn sleepers_in_branches_sleep_at_the_same_time() {
    let ran = pool(1).install(|| {
        let nap = || heist::time::sleep(Duration::from_millis(5));
        join(|| join(nap, nap), || join(nap, nap));
        heist::runtime::num_goroutines()
    });
    assert_eq!(ran, 1, "branches that have ended are gone");
}
