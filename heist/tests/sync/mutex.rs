//! Mutual exclusion.

use super::*;

#[test]
fn one_at_a_time() {
    for procs in [1, 4, CROWDED] {
        let counter = Mutex::new(0);
        let inside = AtomicBool::new(false);
        watched(|| {
            runtime(procs).run(|| {
                all(20, |i| {
                    for round in 0..many(2000) {
                        let mut guard = counter.lock().unwrap();
                        assert!(!inside.swap(true, Ordering::SeqCst));
                        *guard += 1;
                        if (i + round) % 50 == 0 {
                            thread::yield_now();
                        }
                        inside.store(false, Ordering::SeqCst);
                    }
                })
            });
        });
        assert_eq!(counter.into_inner().unwrap(), 20 * many(2000));
    }
}

#[test]
fn a_holder_may_sleep() {
    everywhere(|| {
        let counter = Mutex::new(0);
        all(10, |_| {
            let mut guard = counter.lock().unwrap();
            let before = *guard;
            thread::sleep(Duration::from_micros(100));
            *guard = before + 1;
        });
        assert_eq!(*counter.lock().unwrap(), 10);
    });
}

/// Go's test of starvation mode: a holder that locks again at once leaves the
/// mutex to others nevertheless.
#[test]
fn a_rival_gets_its_turn_from_a_greedy_holder() {
    for procs in [1, 2, 4] {
        watched(|| {
            runtime(procs).run(|| {
                let (mutex, stop) = (Mutex::new(()), AtomicBool::new(false));
                thread::scope(|s| {
                    s.spawn(|| {
                        while !stop.load(Ordering::SeqCst) {
                            let _held = mutex.lock();
                            thread::sleep(Duration::from_micros(100));
                        }
                    });
                    let begin = Instant::now();
                    for _ in 0..10 {
                        thread::sleep(Duration::from_micros(100));
                        drop(mutex.lock());
                    }
                    stop.store(true, Ordering::SeqCst);
                    assert!(begin.elapsed() < Duration::from_secs(10));
                });
            });
        });
    }
}

/// The same with a holder that never sleeps: on one P, the rival runs only if the
/// holder lets it.
#[test]
fn a_rival_gets_its_turn_from_a_busy_holder() {
    for procs in [1, 2] {
        watched(|| {
            runtime(procs).run(|| {
                let (mutex, done) = (Mutex::new(()), AtomicBool::new(false));
                thread::scope(|s| {
                    let held = mutex.lock();
                    s.spawn(|| {
                        drop(mutex.lock());
                        done.store(true, Ordering::SeqCst);
                    });
                    thread::yield_now(); // it waits
                    drop(held);
                    let mut rounds = 0u64;
                    while !done.load(Ordering::SeqCst) {
                        drop(mutex.lock());
                        rounds += 1;
                        assert!(rounds < 1_000_000_000, "the rival starves");
                    }
                });
            });
        });
    }
}

#[test]
fn two_that_poll_do_not_keep_a_third_from_running() {
    watched(|| {
        runtime(1).run(|| {
            let mutex = Mutex::new(());
            let stop = AtomicBool::new(false);
            thread::scope(|s| {
                let held = mutex.lock();
                for _ in 0..2 {
                    s.spawn(|| {
                        while !stop.load(Ordering::SeqCst) {
                            let _ = mutex.try_lock();
                        }
                    });
                }
                thread::yield_now(); // they run from here on
                stop.store(true, Ordering::SeqCst);
                drop(held);
            });
        });
    });
}

#[test]
fn try_lock_says_whether_it_would_block() {
    everywhere(|| {
        let mutex = Mutex::new(1);
        *mutex.try_lock().unwrap() += 1;
        let held = mutex.lock().unwrap();
        let others = all(1, |_| matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
        assert_eq!(others, [true]);
        assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
        drop(held);
        assert_eq!(*mutex.try_lock().unwrap(), 2);
    });
}

#[test]
fn a_panic_poisons_and_the_poison_can_be_cleared() {
    everywhere(|| {
        let mut mutex = Mutex::new(1);
        let panicked = thread::scope(|s| {
            let task = s.spawn(|| {
                let _held = mutex.lock().unwrap();
                panic!("while it is held");
            });
            task.join().is_err()
        });
        assert!(panicked && mutex.is_poisoned());
        assert_eq!(**mutex.lock().unwrap_err().get_ref(), 1);
        assert!(matches!(mutex.try_lock(), Err(TryLockError::Poisoned(_))));
        assert_eq!(**mutex.get_mut().unwrap_err().get_ref(), 1);
        mutex.clear_poison();
        *mutex.lock().unwrap() = 2;
        assert_eq!(mutex.into_inner().unwrap(), 2);
    });
}

#[test]
fn a_lock_taken_while_panicking_is_not_poisoned_by_that() {
    struct InDrop(Arc<Mutex<u32>>);
    impl Drop for InDrop {
        fn drop(&mut self) {
            *self.0.lock().unwrap() += 1;
        }
    }
    everywhere(|| {
        let mutex = Arc::new(Mutex::new(0));
        // Held by another for a while, so that the destructor has to wait.
        let held = mutex.lock();
        let task = thread::spawn({
            let mutex = Arc::clone(&mutex);
            move || {
                let _in_drop = InDrop(mutex);
                panic!("and lock on the way out");
            }
        });
        thread::sleep(Duration::from_millis(1));
        drop(held);
        assert!(task.join().is_err());
        assert_eq!(*mutex.lock().unwrap(), 1);
    });
}

#[test]
fn locking_twice_is_a_panic_that_says_why() {
    everywhere(|| {
        let mutex = Mutex::new(());
        let _held = mutex.lock();
        let panicked = catch_unwind(AssertUnwindSafe(|| drop(mutex.lock()))).unwrap_err();
        assert!(text(&*panicked).contains("held by the caller itself"), "{}", text(&*panicked));
        assert!(text(&*panicked).contains("mutex.rs"), "the place is named");
    });
}

#[test]
fn a_second_release_is_a_panic_that_says_why() {
    everywhere(|| {
        let mutex = Mutex::new(());
        let guard = mutex.lock().unwrap();
        // SAFETY: not at all sound, which is what is tested: both are dropped.
        let copy = unsafe { std::ptr::read(&guard) };
        drop(guard);
        let panicked = catch_unwind(AssertUnwindSafe(|| drop(copy))).unwrap_err();
        assert!(text(&*panicked).contains("unlock of unlocked mutex"));
        drop(mutex.lock());
    });
}

#[test]
fn a_forgotten_guard_leaves_it_locked() {
    everywhere(|| {
        let mutex = Mutex::new(());
        std::mem::forget(mutex.lock());
        assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
    });
}

#[test]
fn unsized_data() {
    let mutex: &Mutex<[i32]> = &Mutex::new([1, 2, 3]);
    mutex.lock().unwrap()[1] = 5;
    assert_eq!(&*mutex.lock().unwrap(), [1, 5, 3]);
    let boxed: Arc<Mutex<dyn FnMut() -> u32 + Send>> = Arc::new(Mutex::new(|| 7));
    assert_eq!((boxed.lock().unwrap())(), 7);
}

#[test]
fn waiters_are_dropped_with_their_data() {
    let drops = Drops::default();
    let mutex = Mutex::new(drops.value());
    drop(mutex.lock());
    drop(mutex);
    assert_eq!(drops.count(), 1);
}

/// Many waiters, one of them for long: in starvation mode and out of it again.
#[test]
fn starvation_mode_comes_and_goes() {
    for procs in [1, 2, CROWDED] {
        watched(|| {
            runtime(procs).run(|| {
                let (counter, rounds) = (Mutex::new(0), many(300));
                all(8, |i| {
                    for round in 0..rounds {
                        let mut guard = counter.lock().unwrap();
                        *guard += 1;
                        if (i + round) % 16 == 0 {
                            thread::sleep(Duration::from_micros(300));
                        }
                    }
                });
                assert_eq!(*counter.lock().unwrap(), 8 * rounds);
            });
        });
    }
}
