//! Semaphores.

use super::*;

#[test]
fn never_more_than_there_are_permits() {
    for procs in [1, 4, CROWDED] {
        watched(|| {
            runtime(procs).run(|| {
                let (semaphore, used) = (Semaphore::new(5), AtomicUsize::new(0));
                all(20, |i| {
                    for round in 0..many(300) {
                        let n = 1 + (i + round) % 5;
                        let permit = match round % 3 {
                            0 => semaphore.acquire_many_timeout(n, Duration::from_micros(50)),
                            _ => Some(semaphore.acquire_many(n)),
                        };
                        let Some(permit) = permit else { continue };
                        assert_eq!(permit.permits(), n);
                        assert!(used.fetch_add(n, Ordering::SeqCst) + n <= 5);
                        if round % 7 == 0 {
                            thread::yield_now();
                        }
                        used.fetch_sub(n, Ordering::SeqCst);
                    }
                });
                assert_eq!(semaphore.available_permits(), 5);
            });
        });
    }
}

#[test]
fn whoever_wants_many_is_not_passed() {
    everywhere(|| {
        let (semaphore, got) = (Semaphore::new(2), Mutex::new(Vec::new()));
        thread::scope(|s| {
            let held = semaphore.acquire();
            s.spawn(|| {
                let _both = semaphore.acquire_many(2);
                got.lock().unwrap().push("many");
            });
            // It waits, so that the free one is not for others.
            until(|| semaphore.try_acquire().is_none());
            s.spawn(|| {
                let _one = semaphore.acquire();
                got.lock().unwrap().push("few");
            });
            drop(held);
        });
        assert_eq!(*got.lock().unwrap(), ["many", "few"]);
    });
}

#[test]
fn one_who_gives_up_lets_those_behind_it_through() {
    everywhere(|| {
        let semaphore = Semaphore::new(1);
        thread::scope(|s| {
            let many =
                s.spawn(|| semaphore.acquire_many_timeout(2, Duration::from_millis(20)).is_some());
            until(|| semaphore.try_acquire().is_none());
            // Behind it; there would be one permit for this.
            drop(semaphore.acquire());
            assert!(!many.join().unwrap());
        });
    });
}

#[test]
fn permits_are_owned_added_and_forgotten() {
    everywhere(|| {
        let semaphore = Arc::new(Semaphore::new(0));
        assert!(semaphore.try_acquire().is_none());
        assert!(semaphore.acquire_timeout(Duration::ZERO).is_none());
        semaphore.add_permits(2);
        let owned = Arc::clone(&semaphore).acquire_owned();
        heist::go(move || drop(owned)).join().unwrap();
        assert_eq!(semaphore.available_permits(), 2);
        semaphore.acquire().forget();
        assert_eq!(semaphore.available_permits(), 1);
        let timed = semaphore.acquire_timeout(Duration::MAX).unwrap();
        assert!(Arc::clone(&semaphore).try_acquire_owned().is_none());
        drop(timed);
        assert!(Arc::clone(&semaphore).acquire_owned_timeout(Duration::ZERO).is_some());
        let overflow = catch_unwind(AssertUnwindSafe(|| semaphore.add_permits(usize::MAX)));
        assert_eq!(text(&*overflow.unwrap_err()), "sync: a Semaphore has too many permits");
    });
}
