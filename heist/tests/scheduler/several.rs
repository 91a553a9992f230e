//! Several runtimes, and threads that are not ours.

use super::*;

#[test]
fn plain_threads_spawn_onto_a_runtime() {
    const THREADS: usize = 4;
    const EACH: usize = 2000;
    watched(|| {
        for procs in [1, 2, 4] {
            let runtime = runtime(procs);
            let sum = AtomicUsize::new(0);
            std::thread::scope(|s| {
                for t in 0..THREADS {
                    let (runtime, sum) = (&runtime, &sum);
                    s.spawn(move || {
                        let handles: Vec<_> =
                            (0..EACH).map(|i| runtime.go(move || t * EACH + i)).collect();
                        for handle in handles {
                            sum.fetch_add(handle.join().unwrap(), Ordering::SeqCst);
                        }
                    });
                }
            });
            let n = THREADS * EACH;
            assert_eq!(sum.load(Ordering::SeqCst), n * (n - 1) / 2);
            assert_eq!(runtime.num_goroutines(), 0);
            assert_eq!(runtime.stats().spawned, n as u64);
        }
    });
}

#[test]
fn a_message_goes_round_two_runtimes_and_a_plain_thread() {
    const LAPS: usize = 2000;
    watched(|| {
        let (one, two) = (runtime(1), runtime(2));
        let place = Arc::new(AtomicUsize::new(0));
        let members: Arc<[OnceLock<thread::Thread>; 4]> = Arc::default();
        let member = |i: usize| {
            let (place, members) = (place.clone(), members.clone());
            move || {
                members[i].set(thread::current()).unwrap();
                until(|| members.iter().all(|member| member.get().is_some()));
                let next = members[(i + 1) % 4].get().unwrap();
                for lap in 0..LAPS {
                    while place.load(Ordering::Acquire) != lap * 4 + i {
                        thread::park();
                    }
                    place.fetch_add(1, Ordering::Release);
                    next.unpark();
                }
            }
        };
        let goroutines = [one.go(member(0)), two.go(member(1)), two.go(member(3))];
        std::thread::spawn(member(2)).join().unwrap();
        goroutines.into_iter().for_each(|handle| handle.join().unwrap());
        assert_eq!(place.load(Ordering::SeqCst), 4 * LAPS);
    });
}

#[test]
fn a_goroutine_belongs_to_the_runtime_that_it_was_spawned_on() {
    watched(|| {
        let (three, five) = (runtime(3), runtime(5));
        let procs = heist::runtime::max_procs;
        assert_eq!((three.max_procs(), five.max_procs()), (3, 5));
        assert_eq!(three.run(procs), 3);
        assert_eq!(three.go(procs).join().unwrap(), 3);
        assert_eq!(three.run(|| thread::spawn(procs).join().unwrap()), 3);
        assert_eq!(three.run(|| thread::scope(|s| s.spawn(procs).join().unwrap())), 3);
        assert_eq!(three.run(|| heist::go_idle(procs).join().unwrap()), 3);
        // Across: it is the runtime that is named, not the caller's.
        three.run(|| {
            assert_eq!(five.run(procs), 5);
            assert_eq!(five.go(procs).join().unwrap(), 5);
            assert_eq!(procs(), 3);
        });
        let default = heist::run(procs);
        assert_eq!(three.run(|| heist::run(procs)), default);
        assert_eq!(heist::go(procs).join().unwrap(), default);
    });
}

#[test]
fn the_number_of_ps_is_what_was_asked_for() {
    for procs in [1, 2, 3, 64, 1024] {
        let runtime = runtime(procs);
        assert_eq!(runtime.max_procs(), procs);
        assert_eq!(runtime.run(heist::runtime::max_procs), procs);
    }
    for procs in [0, 1025, usize::MAX] {
        let error = heist::Builder::new().max_procs(procs).build().unwrap_err();
        assert!(error.to_string().contains(&procs.to_string()), "{error}");
    }
}

#[test]
fn a_run_inside_a_run_waits_for_the_inner_one() {
    watched(|| {
        let (one, two) = (runtime(1), runtime(1));
        let value = one.run(|| two.run(|| one.run(|| two.run(|| heist::run(|| 1) + 1) + 1) + 1));
        assert_eq!(value, 4);
    });
}

#[test]
fn plain_threads_run_on_one_runtime_at_the_same_time() {
    watched(|| {
        let runtime = runtime(2);
        let barrier = Barrier::new(8);
        std::thread::scope(|s| {
            for i in 0..8 {
                let (runtime, barrier) = (&runtime, &barrier);
                s.spawn(move || {
                    barrier.wait();
                    for n in 0..200 {
                        assert_eq!(runtime.run(|| i * 1000 + n), i * 1000 + n);
                    }
                });
            }
        });
        assert_eq!(runtime.num_goroutines(), 0);
    });
}

#[test]
fn what_is_spawned_is_what_ends() {
    watched(|| {
        let runtime = runtime(4);
        runtime.run(|| {
            let handles: Vec<_> = (0..3000).map(|i| thread::spawn(move || i)).collect();
            handles.into_iter().for_each(|handle| assert!(handle.join().is_ok()));
        });
        let stats = runtime.stats();
        assert_eq!((stats.spawned, stats.finished), (3001, 3001));
        assert_eq!(runtime.num_goroutines(), 0);
    });
}
