//! Who waits elsewhere.

use super::*;

#[test]
fn those_who_join_from_elsewhere_get_an_error() {
    watched(|| {
        let (doomed, other, drops) = (runtime(2), runtime(1), Drops::default());
        let mut handles = sleepers(&doomed, 20, &drops);
        let on_threads: Vec<_> = handles
            .split_off(10)
            .into_iter()
            .map(|handle| std::thread::spawn(move || is_stopped(handle.join())))
            .collect();
        let on_goroutines: Vec<_> =
            handles.into_iter().map(|handle| other.go(move || is_stopped(handle.join()))).collect();
        until(|| heist::debug::dump().matches("[join]").count() >= 10);
        drop(doomed);
        assert!(on_threads.into_iter().all(|handle| handle.join().unwrap()));
        assert!(on_goroutines.into_iter().all(|handle| handle.join().unwrap()));
        assert_eq!(drops.count(), 20);
    });
}

#[test]
fn unparks_race_with_the_end_of_the_runtime() {
    let repetitions = if cfg!(debug_assertions) { 100 } else { 300 };
    watched(|| {
        for i in 0..repetitions {
            let (runtime, drops) = (runtime(1 + i % 3), Drops::default());
            let handles = sleepers(&runtime, 20, &drops);
            let threads: Vec<_> = handles.iter().map(|handle| handle.thread().clone()).collect();
            let over = AtomicBool::new(false);
            std::thread::scope(|s| {
                s.spawn(|| {
                    while !over.load(Ordering::SeqCst) {
                        threads.iter().for_each(thread::Thread::unpark);
                    }
                });
                (0..i * 10).for_each(|_| std::hint::spin_loop());
                drop(runtime);
                assert_eq!(drops.count(), 20);
                over.store(true, Ordering::SeqCst);
            });
            assert!(handles.into_iter().all(|handle| handle.join().is_err()));
        }
    });
}

#[test]
fn spawns_race_with_the_end_of_the_runtime() {
    let repetitions = if cfg!(debug_assertions) { 100 } else { 300 };
    watched(|| {
        for i in 0..repetitions {
            let (runtime, drops) = (runtime(1 + i % 3), Drops::default());
            let spawned = Arc::new(AtomicUsize::new(0));
            // Each spawns and detaches until it is refused.
            let spawners: Vec<_> = (0..3)
                .map(|_| {
                    let (drops, spawned) = (drops.clone(), spawned.clone());
                    runtime.go(move || {
                        loop {
                            let droplet = drops.value();
                            spawned.fetch_add(1, Ordering::SeqCst);
                            let builder = thread::Builder::new();
                            match builder.spawn(move || drop(droplet)) {
                                Ok(handle) => drop(handle),
                                Err(error) => return error.to_string(),
                            }
                            thread::yield_now();
                        }
                    })
                })
                .collect();
            until(|| spawned.load(Ordering::SeqCst) > 10 + i);
            drop(runtime);
            assert_eq!(drops.count(), spawned.load(Ordering::SeqCst), "round {i}");
            for handle in spawners {
                // Refused, or unwound at its yield.
                if let Ok(error) = handle.join() {
                    assert!(error.contains("shut down"), "{error}");
                }
            }
        }
    });
}

#[test]
fn ends_of_goroutines_race_with_the_end_of_the_runtime() {
    let repetitions = if cfg!(debug_assertions) { 200 } else { 1000 };
    watched(|| {
        for i in 0..repetitions {
            let (runtime, drops) = (runtime(1 + i % 4), Drops::default());
            let handles: Vec<_> = (0..50)
                .map(|n| {
                    let droplet = drops.value();
                    let handle = runtime.go(move || {
                        if n % 3 == 0 {
                            thread::yield_now();
                        }
                        droplet
                    });
                    // Some are detached, some kept.
                    if n % 2 == 0 {
                        Some(handle)
                    } else {
                        drop::<thread::JoinHandle<_>>(handle);
                        None
                    }
                })
                .collect();
            (0..i * 5).for_each(|_| std::hint::spin_loop());
            drop(runtime);
            handles.into_iter().flatten().for_each(|handle| drop(handle.join()));
            assert_eq!(drops.count(), 50, "round {i}");
        }
    });
}

#[test]
fn joins_on_other_runtimes_race_with_the_end_of_both() {
    let repetitions = if cfg!(debug_assertions) { 50 } else { 300 };
    watched(|| {
        for i in 0..repetitions {
            let (a, b, drops) = (runtime(1), runtime(2), Drops::default());
            let sleeping = sleepers(&a, 10, &drops);
            let joining: Vec<_> = sleeping
                .into_iter()
                .map(|handle| {
                    let droplet = drops.value();
                    b.go(move || {
                        let _droplet = droplet;
                        drop(handle.join());
                    })
                })
                .collect();
            let first = std::thread::spawn(move || drop(a));
            (0..i * 10).for_each(|_| std::hint::spin_loop());
            drop(b);
            first.join().unwrap();
            assert!(joining.iter().all(|handle| handle.is_finished()));
            drop(joining);
            assert_eq!(drops.count(), 20, "round {i}");
        }
    });
}
