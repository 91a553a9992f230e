//! Parallelism.

use super::*;

/// One of `n` that pass a counter on, each without ever leaving its P.
fn pass_on(counter: &AtomicUsize, i: usize, n: usize, laps: usize) {
    for lap in 0..laps {
        spin_until(|| counter.load(Ordering::Acquire) == lap * n + i);
        counter.store(lap * n + i + 1, Ordering::Release);
    }
}

/// Laps: with more Ps than cores each pass may take the kernel a time slice.
const LAPS: [(usize, usize); 2] = [(2, 500), (4, 15)];

#[test]
fn as_many_goroutines_as_ps_run_at_the_same_time() {
    let _alone = alone();
    watched(|| {
        for (n, laps) in LAPS {
            let counter = Arc::new(AtomicUsize::new(0));
            // Spawned by one of them, which needs a P itself.
            runtime(n).run(|| {
                let others: Vec<_> = (1..n)
                    .map(|i| {
                        let counter = counter.clone();
                        thread::spawn(move || pass_on(&counter, i, n, laps))
                    })
                    .collect();
                pass_on(&counter, 0, n, laps);
                others.into_iter().for_each(|handle| handle.join().unwrap());
            });
            assert_eq!(counter.load(Ordering::SeqCst), n * laps);
        }
    });
}

#[test]
fn as_many_goroutines_as_ps_run_at_the_same_time_when_each_spawns_the_next() {
    fn chain(counter: &'static AtomicUsize, i: usize, n: usize, laps: usize) {
        let next = (i + 1 < n).then(|| thread::spawn(move || chain(counter, i + 1, n, laps)));
        pass_on(counter, i, n, laps);
        if let Some(next) = next {
            next.join().unwrap();
        }
    }
    let _alone = alone();
    watched(|| {
        for (n, laps) in LAPS {
            let counter: &'static AtomicUsize = Box::leak(Box::default());
            runtime(n).run(|| chain(counter, 0, n, laps));
            assert_eq!(counter.load(Ordering::SeqCst), n * laps);
        }
    });
}

#[test]
fn as_many_goroutines_as_ps_run_at_the_same_time_when_they_come_from_outside() {
    let _alone = alone();
    watched(|| {
        for (n, laps) in LAPS {
            let runtime = runtime(n);
            let counter = Arc::new(AtomicUsize::new(0));
            let all: Vec<_> = (0..n)
                .map(|i| {
                    let counter = counter.clone();
                    runtime.go(move || pass_on(&counter, i, n, laps))
                })
                .collect();
            all.into_iter().for_each(|handle| handle.join().unwrap());
            assert_eq!(counter.load(Ordering::SeqCst), n * laps);
        }
    });
}

#[test]
fn as_many_goroutines_as_ps_run_at_the_same_time_after_they_were_parked() {
    let _alone = alone();
    watched(|| {
        for (n, laps) in LAPS {
            let counter = AtomicUsize::new(0);
            let counter = &counter;
            runtime(n).run(|| {
                thread::scope(|s| {
                    let others: Vec<_> = (1..n)
                        .map(|i| {
                            s.spawn(move || {
                                thread::park();
                                pass_on(counter, i, n, laps);
                            })
                        })
                        .collect();
                    others.iter().for_each(|handle| handle.thread().unpark());
                    pass_on(counter, 0, n, laps);
                });
            });
            assert_eq!(counter.load(Ordering::SeqCst), n * laps);
        }
    });
}

#[test]
fn an_idle_p_steals_from_a_loaded_one() {
    let _alone = alone();
    watched(|| {
        let runtime = runtime(2);
        runtime.run(|| {
            // A batch could be done before the second thread gets a core.
            while heist::runtime::stats().steals == 0 {
                thread::scope(|s| {
                    for _ in 0..200 {
                        s.spawn(|| (0..5000).for_each(|_| std::hint::spin_loop()));
                    }
                });
            }
        });
        let stats = runtime.stats();
        assert!(stats.stolen >= stats.steals, "{stats:?}");
    });
}
