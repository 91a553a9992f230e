//! Detached, and dropped exactly once.

use super::*;

#[test]
fn a_dropped_handle_lets_its_goroutine_go_on() {
    let check = || {
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..100 {
            let ran = ran.clone();
            drop(thread::spawn(move || {
                thread::yield_now();
                ran.fetch_add(1, Ordering::SeqCst);
            }));
        }
        until(|| ran.load(Ordering::SeqCst) == 100);
    };
    watched(|| {
        check();
        heist::run(check);
    });
}

/// What a goroutine may leave behind.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    Small,
    Boxed,
    Panic,
    Slow,
}

const LEAVES: [Leaves; 4] = [Leaves::Small, Leaves::Boxed, Leaves::Panic, Leaves::Slow];

/// A result whose drop needs the scheduler.
struct Slow(#[allow(dead_code)] Droplet);

impl Drop for Slow {
    fn drop(&mut self) {
        thread::yield_now();
    }
}

/// A handle whatever it is of.
trait Handle: Send {
    fn join(self: Box<Self>);
    fn is_finished(&self) -> bool;
}

impl<T: Send> Handle for thread::JoinHandle<T> {
    fn join(self: Box<Self>) {
        drop((*self).join());
    }

    fn is_finished(&self) -> bool {
        thread::JoinHandle::is_finished(self)
    }
}

fn leaving(what: Leaves, drops: &Drops, runs_for: usize) -> Box<dyn Handle> {
    let droplet = drops.value();
    let run = move || (0..runs_for).for_each(|_| std::hint::spin_loop());
    match what {
        Leaves::Small => Box::new(thread::spawn(move || {
            run();
            droplet
        })),
        Leaves::Boxed => Box::new(thread::spawn(move || {
            run();
            (droplet, [0u8; 500])
        })),
        // Without a message: there are thousands.
        Leaves::Panic => Box::new(thread::spawn(move || {
            run();
            resume_unwind(Box::new(droplet))
        })),
        Leaves::Slow => Box::new(thread::spawn(move || {
            run();
            Slow(droplet)
        })),
    }
}

/// Calls `f` on a runtime and ends it: then everything has been dropped that
/// ever will be.
fn on_a_runtime(procs: usize, f: impl FnOnce() + Send) {
    let runtime = runtime(procs);
    runtime.run(|| {
        f();
        until(|| heist::runtime::num_goroutines() == 1);
    });
}

#[test]
fn a_result_is_dropped_once_if_the_handle_goes_before_the_start() {
    watched(|| {
        for leaves in LEAVES {
            let drops = Drops::default();
            // One P: what is spawned starts when the spawner leaves.
            on_a_runtime(1, || (0..200).for_each(|_| drop(leaving(leaves, &drops, 0))));
            assert_eq!(drops.count(), 200, "{leaves:?}");
        }
    });
}

#[test]
fn a_result_is_dropped_once_if_the_handle_goes_after_the_end() {
    watched(|| {
        for (procs, leaves) in [1, CROWDED].into_iter().flat_map(|n| LEAVES.map(|l| (n, l))) {
            let drops = Drops::default();
            on_a_runtime(procs, || {
                for i in 0..100 {
                    let handle = leaving(leaves, &drops, 0);
                    until(|| handle.is_finished());
                    assert_eq!(drops.count(), i, "{leaves:?}: the handle keeps it");
                    drop(handle);
                    assert_eq!(drops.count(), i + 1, "{leaves:?}: and drops it itself");
                }
            });
            assert_eq!(drops.count(), 100, "{leaves:?} on {procs}");
        }
    });
}

#[test]
fn a_result_is_dropped_once_if_it_is_joined() {
    watched(|| {
        for (procs, leaves) in [1, CROWDED].into_iter().flat_map(|n| LEAVES.map(|l| (n, l))) {
            let drops = Drops::default();
            on_a_runtime(procs, || {
                for i in 0..many(2000) {
                    leaving(leaves, &drops, i % 50).join();
                    assert_eq!(drops.count(), i + 1, "{leaves:?}");
                }
            });
            assert_eq!(drops.count(), many(2000), "{leaves:?} on {procs}");
        }
    });
}

#[test]
fn a_result_is_dropped_once_if_the_handle_goes_at_any_moment() {
    let repetitions = many(10_000);
    watched(|| {
        for (procs, leaves) in [1, 2, CROWDED].into_iter().flat_map(|n| LEAVES.map(|l| (n, l))) {
            let drops = Drops::default();
            on_a_runtime(procs, || {
                for i in 0..repetitions {
                    let handle = leaving(leaves, &drops, i % 97);
                    // Sweeps over the end of the goroutine on another P.
                    for _ in 0..i % 331 {
                        std::hint::spin_loop();
                    }
                    if i % 13 == 0 {
                        thread::yield_now();
                    }
                    drop(handle);
                }
            });
            assert_eq!(drops.count(), repetitions, "{leaves:?} on {procs}");
        }
    });
}

#[test]
fn a_result_is_dropped_once_if_the_handle_goes_on_a_plain_thread() {
    let repetitions = many(10_000);
    watched(|| {
        for leaves in LEAVES {
            let drops = Drops::default();
            let (send, receive) = mpsc::channel::<Box<dyn Handle>>();
            let dropper = std::thread::spawn(move || {
                for (i, handle) in receive.into_iter().enumerate() {
                    match i % 3 {
                        0 => handle.join(),
                        _ => drop(handle),
                    }
                }
            });
            on_a_runtime(CROWDED, || {
                for i in 0..repetitions {
                    send.send(leaving(leaves, &drops, i % 97)).unwrap();
                }
                drop(send);
            });
            dropper.join().unwrap();
            assert_eq!(drops.count(), repetitions, "{leaves:?}");
        }
    });
}

#[test]
fn captures_are_dropped_when_the_goroutine_is_done_with_them() {
    watched(|| {
        let drops = Drops::default();
        let (kept, moved) = (drops.value(), drops.value());
        let handle = thread::spawn(move || {
            drop(moved);
            let _kept = &kept;
        });
        handle.join().unwrap();
        assert_eq!(drops.count(), 2);
        let unwound = drops.value();
        let handle = thread::spawn(move || {
            let _unwound = unwound;
            resume_unwind(Box::new(()))
        });
        assert!(handle.join().is_err());
        assert_eq!(drops.count(), 3);
    });
}
