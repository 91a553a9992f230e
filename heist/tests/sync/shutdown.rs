//! Goroutines that wait when their runtime ends leave nothing behind.

use super::*;

/// Runs `wait` on goroutines of a runtime that ends while they wait.
fn abandoned(wait: impl Fn() + Send + Sync + 'static) {
    let (wait, began) = (Arc::new(wait), Arc::new(AtomicUsize::new(0)));
    let runtime = runtime(2);
    for _ in 0..10 {
        let (wait, began) = (Arc::clone(&wait), Arc::clone(&began));
        let _ = runtime.go(move || {
            began.fetch_add(1, Ordering::SeqCst);
            wait();
        });
    }
    until(|| began.load(Ordering::SeqCst) == 10);
    drop(runtime);
}

#[test]
fn waiters_for_a_mutex_leave_its_queue() {
    watched(|| {
        let mutex = Arc::new(Mutex::new(()));
        let held = mutex.lock();
        abandoned({
            let mutex = Arc::clone(&mutex);
            move || drop(mutex.lock())
        });
        drop(held);
        drop(mutex.lock());
        assert_eq!(Arc::strong_count(&mutex), 1);
    });
}

#[test]
fn readers_and_writers_leave_the_queue() {
    watched(|| {
        for writing in [false, true] {
            let lock = Arc::new(RwLock::new(()));
            let (writer, reader) = match writing {
                true => (Some(lock.write().unwrap()), None),
                false => (None, Some(lock.read().unwrap())),
            };
            abandoned({
                let (lock, n) = (Arc::clone(&lock), AtomicUsize::new(0));
                move || {
                    if n.fetch_add(1, Ordering::SeqCst) % 2 == 0 {
                        drop(lock.write());
                    } else {
                        drop(lock.read());
                    }
                }
            });
            if reader.is_some() {
                drop(lock.try_read().expect("no writer waits any more"));
            }
            drop((writer, reader));
            // A writer that got the lock while it unwound has poisoned it.
            drop(lock.write());
            drop(lock.read());
        }
    });
}

#[test]
fn waiters_for_a_condition_leave_its_queue_and_not_the_mutex_locked() {
    watched(|| {
        let pair = Arc::new((Mutex::new(()), Condvar::new()));
        abandoned({
            let pair = Arc::clone(&pair);
            move || {
                let guard = pair.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                drop(pair.1.wait(guard));
            }
        });
        pair.1.notify_all();
        drop(pair.0.lock());
    });
}

#[test]
fn one_who_waits_at_a_barrier_no_longer_counts() {
    watched(|| {
        let barrier = Arc::new(Barrier::new(11));
        abandoned({
            let barrier = Arc::clone(&barrier);
            move || assert!(!barrier.wait().is_leader())
        });
        // If the ten still counted, this would be the eleventh.
        let gone = Arc::new(AtomicBool::new(false));
        let other = std::thread::spawn({
            let (barrier, gone) = (Arc::clone(&barrier), Arc::clone(&gone));
            move || {
                barrier.wait();
                gone.store(true, Ordering::SeqCst);
            }
        });
        std::thread::sleep(Duration::from_millis(5));
        assert!(!gone.load(Ordering::SeqCst));
        std::thread::scope(|s| {
            (0..10).for_each(|_| {
                s.spawn(|| barrier.wait());
            });
        });
        other.join().unwrap();
    });
}

#[test]
fn waiters_for_permits_and_groups_leave_their_queues() {
    watched(|| {
        let (semaphore, group) = (Arc::new(Semaphore::new(1)), WaitGroup::new());
        group.add(1);
        abandoned({
            let (semaphore, n) = (Arc::clone(&semaphore), AtomicUsize::new(0));
            let group = group.clone();
            move || {
                if n.fetch_add(1, Ordering::SeqCst) % 2 == 0 {
                    drop(semaphore.acquire_many(2));
                } else {
                    group.wait();
                }
            }
        });
        assert!(semaphore.try_acquire().is_some());
        group.done();
        group.wait();
    });
}

/// Many runtimes that end while their goroutines hand a mutex to each other.
#[test]
fn runtimes_end_in_the_middle_of_things() {
    watched(|| {
        for round in 0..many(300) {
            let shared = Arc::new((Mutex::new(0u64), Condvar::new(), RwLock::new(0u64)));
            let runtime = runtime(1 + round % 4);
            for i in 0..8 {
                let shared = Arc::clone(&shared);
                let _ = runtime.go(move || {
                    loop {
                        let guard = shared.0.lock().unwrap_or_else(|p| p.into_inner());
                        if i % 4 == 0 {
                            let short = Duration::from_micros(20);
                            drop(shared.1.wait_timeout(guard, short));
                        } else {
                            drop(guard);
                        }
                        shared.1.notify_one();
                        if i % 2 == 0 {
                            drop(shared.2.write());
                        } else {
                            drop(shared.2.read());
                        }
                        thread::yield_now();
                    }
                });
            }
            std::thread::sleep(Duration::from_micros(50 * (round as u64 % 10)));
            drop(runtime);
            drop(shared.0.lock());
            drop(shared.2.write());
            assert_eq!(Arc::strong_count(&shared), 1);
        }
    });
}
