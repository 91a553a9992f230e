//! Nothing in the handler that stops a goroutine allocates.

use super::common;
use heist::{Builder, go, runtime};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What sigaltstack(2) tells.
#[repr(C)]
struct Stack {
    low: *mut u8,
    flags: i32,
    size: usize,
}

const ON_STACK: i32 = 1;

unsafe extern "C" {
    fn sigaltstack(new: *const Stack, old: *mut Stack) -> i32;
}

/// Ends the process if the caller runs in a signal handler: those of the runtime
/// have a stack of their own.
pub(crate) fn abort_inside() {
    let mut old = Stack { low: std::ptr::null_mut(), flags: 0, size: 0 };
    // SAFETY: asks only; the pointer is to a live local.
    unsafe { sigaltstack(std::ptr::null(), &mut old) };
    if old.flags & ON_STACK != 0 {
        std::process::abort();
    }
}

#[test]
fn nothing_in_it_allocates() {
    common::watched(|| {
        let runtime = Builder::new().max_procs(2).max_runners(0).build().unwrap();
        runtime.run(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let hogs: Vec<_> = (0..6)
                .map(|i| {
                    let stop = stop.clone();
                    go(move || {
                        let mut kept = Vec::new();
                        while !stop.load(Ordering::Relaxed) {
                            kept.push(black_box(Box::new(i)));
                            kept.truncate(100);
                        }
                    })
                })
                .collect();
            while runtime::stats().freezes < 50 {
                heist::time::sleep(std::time::Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
            hogs.into_iter().for_each(|g| g.join().unwrap());
        });
    });
}
