//! Goroutines that are stopped while they hold the allocator's lock. Everybody
//! needs it, the runtime and its sysmon included.

use super::{SLOW, common};
use heist::{Builder, go, runtime};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn others_get_on(procs: usize, runners: usize) {
    common::watched(|| {
        let runtime = Builder::new().max_procs(procs).max_runners(runners).build().unwrap();
        runtime.run(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let slow: Vec<_> = (0..8)
                .map(|_| {
                    let stop = stop.clone();
                    go(move || {
                        while !stop.load(Ordering::Relaxed) {
                            drop(black_box(Vec::<u8>::with_capacity(SLOW)));
                            // Others want the lock, too, and it is not fair.
                            (0..5).for_each(|_| super::spin());
                        }
                    })
                })
                .collect();
            let done = Arc::new(AtomicUsize::new(0));
            while done.load(Ordering::Relaxed) < 10 || runtime::stats().freezes < 30 {
                let done = done.clone();
                go(move || done.fetch_add(*black_box(Box::new(1)), Ordering::Relaxed))
                    .join()
                    .unwrap();
            }
            stop.store(true, Ordering::Relaxed);
            slow.into_iter().for_each(|g| g.join().unwrap());
        });
    });
}

#[test]
fn on_one_p() {
    others_get_on(1, 0);
}

#[test]
fn on_two_ps() {
    others_get_on(2, 1);
}
