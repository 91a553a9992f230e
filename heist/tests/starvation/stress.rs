//! All at once, on more Ps than there are cores: goroutines that compute, allocate,
//! panic, use thread-locals and talk to each other, while some are stopped.

use super::common::{Hogs, watched};
use super::signals::check_state;
use heist::{Builder, chan, go, runtime, time};
use std::cell::Cell;
use std::hint::black_box;
use std::panic::{catch_unwind, panic_any, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

thread_local! {
    static HERE: Cell<u64> = const { Cell::new(0) };
}

/// In the middle of this the goroutine may be stopped, but not moved.
///
/// Not inlined: the compiler would look the thread-local up once and for all rounds,
/// and a goroutine is moved between two of them (the one rule of heist).
#[inline(never)]
fn count_on_this_thread() {
    HERE.with(|here| {
        let before = here.get();
        let mut x = 1u64;
        for _ in 0..10_000 {
            x = black_box(x.rotate_left(7) ^ 0x9e37_79b9);
        }
        assert_eq!(here.get(), before, "somebody else was here");
        here.set(before + 1);
    });
}

fn allocate(seed: usize) {
    let lists: Vec<Vec<usize>> = (0..20).map(|i| vec![seed ^ i; 1 + (seed + i) % 300]).collect();
    for (i, list) in lists.iter().enumerate() {
        assert!(list.iter().all(|x| *x == seed ^ i));
    }
}

fn panic_and_recover(seed: usize) {
    let caught = catch_unwind(|| {
        let _unwound = black_box(vec![seed; 10]);
        panic_any(seed)
    });
    assert_eq!(caught.unwrap_err().downcast_ref(), Some(&seed));
}

/// Without a word on standard error.
fn unwind_and_recover(seed: usize) {
    /// Computes while its goroutine unwinds.
    struct Slow(usize);
    impl Drop for Slow {
        fn drop(&mut self) {
            count_on_this_thread();
            assert!(std::thread::panicking());
            allocate(self.0);
        }
    }
    let caught = catch_unwind(|| {
        let _unwound = black_box(Slow(seed));
        resume_unwind(Box::new(seed))
    });
    assert_eq!(caught.unwrap_err().downcast_ref(), Some(&seed));
    assert!(!std::thread::panicking());
}

fn stress(procs: usize, runners: usize) {
    watched(|| {
        let runtime = Builder::new().max_procs(procs).max_runners(runners).build().unwrap();
        runtime.run(|| {
            let steps = Arc::new(AtomicUsize::new(0));
            let hogs = Hogs::start(2 * procs, move || {
                let step = steps.fetch_add(1, Ordering::Relaxed);
                count_on_this_thread();
                allocate(step);
                unwind_and_recover(step);
                check_state(step as u32 % 4);
            });
            let (send, receive) = chan::bounded(3);
            let all: Vec<_> = (0..2 * procs)
                .map(|i| {
                    let (send, receive) = (send.clone(), receive.clone());
                    go(move || {
                        for round in 0..100 {
                            count_on_this_thread();
                            allocate(i * 1000 + round);
                            if round % 10 == 0 {
                                panic_and_recover(round);
                            }
                            match i % 2 {
                                0 => send.send(round).unwrap(),
                                _ => drop(receive.recv().unwrap()),
                            }
                        }
                    })
                })
                .collect();
            all.into_iter().for_each(|g| g.join().unwrap());
            // One that panics ends, and then there may be too few to be stopped.
            while runtime::stats().freezes < 20 && hogs.running() == 2 * procs {
                time::sleep(Duration::from_millis(1));
            }
            hogs.stop();
        });
    });
}

#[test]
fn on_four_ps() {
    stress(4, 0);
}

#[test]
fn on_eight_ps_with_runners() {
    stress(8, 2);
}
