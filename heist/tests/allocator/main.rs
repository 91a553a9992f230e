//! An allocator that is not the C library's: its lock is held wherever a goroutine
//! is stopped in it, and it notices if a signal handler calls it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Mutex;

#[path = "../common/mod.rs"]
mod common;

mod frozen;
mod handler;

/// A request of this size keeps the lock for long.
const SLOW: usize = 12_345;

/// One lock for all, and code of this program around it.
struct Slow;

static LOCK: Mutex<()> = Mutex::new(());

#[global_allocator]
static ALLOCATOR: Slow = Slow;

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Slow {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        handler::abort_inside();
        let _held = LOCK.lock();
        if layout.size() == SLOW {
            spin();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        handler::abort_inside();
        let _held = LOCK.lock();
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

/// About a slice of 10 ms, in registers.
fn spin() {
    let mut x = 1u64;
    for _ in 0..if cfg!(debug_assertions) { 1_000_000 } else { 20_000_000 } {
        x = black_box(x.rotate_left(7) ^ 0x9e37_79b9);
    }
}
