//! The life of a runtime: what `run` returns, what dropping it does to its
//! goroutines and to those who wait for them, and that nothing stays behind.

#[path = "../common/mod.rs"]
mod common;
mod dropping;
mod in_place;
mod leaks;
mod polling;
mod run;
mod spawning;
mod stubborn;
mod waiters;
mod where_dropped;

use common::*;
use heist::{Runtime, thread};
use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Counts the bytes that are allocated and not freed, for the test of leaks.
struct Counting;

static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Goroutines that sleep for ever, with a droplet each on their stacks.
fn sleepers(runtime: &Runtime, n: usize, drops: &Drops) -> Vec<thread::JoinHandle<()>> {
    let asleep = Arc::new(AtomicUsize::new(0));
    let handles = (0..n)
        .map(|_| {
            let (droplet, asleep) = (drops.value(), asleep.clone());
            runtime.go(move || {
                let _droplet = droplet;
                asleep.fetch_add(1, Ordering::SeqCst);
                loop {
                    thread::park();
                }
            })
        })
        .collect();
    until(|| asleep.load(Ordering::SeqCst) == n);
    handles
}

fn is_stopped<T>(joined: thread::Result<T>) -> bool {
    joined.is_err_and(|payload| text(&*payload).contains("shut down"))
}

/// Computes until its runtime closes: then nothing can be spawned any more.
fn compute_until_closed() -> std::io::Error {
    loop {
        match thread::Builder::new().name("probe".into()).spawn(|| ()) {
            Ok(handle) => drop(handle),
            Err(error) => return error,
        }
        (0..1000).for_each(|_| std::hint::spin_loop());
    }
}
