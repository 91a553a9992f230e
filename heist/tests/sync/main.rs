//! `heist::sync` keeps the promises of `std::sync`'s documentation, and Go's
//! where std has nothing: on goroutines, on plain OS threads and between both.

mod barrier;
#[path = "../common/mod.rs"]
mod common;
mod condvar;
mod context;
mod mixed;
mod mpsc;
mod mutex;
mod once;
mod polling;
mod rwlock;
mod semaphore;
mod shutdown;
mod texts;
mod wait_group;

use common::*;
use heist::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use heist::sync::{
    Arc, Barrier, Condvar, Context, ContextError, LazyLock, Mutex, Once, OnceLock, RwLock,
    RwLockWriteGuard, Semaphore, TryLockError, WaitGroup,
};
use heist::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Runs `f(i)` for each i, on goroutines, until all are done.
fn all<T: Send>(n: usize, f: impl Fn(usize) -> T + Sync) -> Vec<T> {
    thread::scope(|s| {
        let f = &f;
        let tasks: Vec<_> = (0..n).map(|i| s.spawn(move || f(i))).collect();
        tasks.into_iter().map(|task| task.join().unwrap()).collect()
    })
}

/// Runs `f(i)` for each i, on as many goroutines as plain threads.
fn all_mixed(n: usize, f: impl Fn(usize) + Sync) {
    std::thread::scope(|threads| {
        thread::scope(|goroutines| {
            let f = &f;
            for i in 0..n {
                if i % 2 == 0 {
                    goroutines.spawn(move || f(i));
                } else {
                    threads.spawn(move || f(i));
                }
            }
        });
    });
}
