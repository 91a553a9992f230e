//! Idle priority.

use super::*;

#[test]
fn an_idle_goroutine_runs_only_when_nothing_else_can() {
    const YIELDS: usize = 1000;
    watched(|| {
        runtime(1).run(|| {
            let steps = Arc::new(AtomicUsize::new(0));
            let seen = steps.clone();
            let idle = heist::go_idle(move || seen.load(Ordering::SeqCst));
            let busy: Vec<_> = (0..3)
                .map(|_| {
                    let steps = steps.clone();
                    thread::spawn(move || {
                        for _ in 0..YIELDS {
                            steps.fetch_add(1, Ordering::SeqCst);
                            thread::yield_now();
                        }
                    })
                })
                .collect();
            // This one is always runnable, too.
            until(|| busy.iter().all(|handle| handle.is_finished()));
            assert!(!idle.is_finished());
            assert_eq!(idle.join().unwrap(), 3 * YIELDS);
        });
    });
}

#[test]
fn an_idle_goroutine_that_yields_waits_until_nothing_else_can_run_again() {
    watched(|| {
        runtime(1).run(|| {
            let idle = heist::go_idle(|| {
                for _ in 0..20 {
                    let steps = Arc::new(AtomicUsize::new(0));
                    let counted = steps.clone();
                    let normal = thread::spawn(move || {
                        for _ in 0..100 {
                            counted.fetch_add(1, Ordering::SeqCst);
                            thread::yield_now();
                        }
                    });
                    thread::yield_now();
                    assert_eq!(steps.load(Ordering::SeqCst), 100);
                    normal.join().unwrap();
                }
            });
            idle.join().unwrap();
        });
    });
}

#[test]
fn an_idle_goroutine_that_is_unparked_waits_until_nothing_else_can_run() {
    watched(|| {
        runtime(1).run(|| {
            let steps = Arc::new(AtomicUsize::new(0));
            let asleep = Arc::new(AtomicBool::new(false));
            let (seen, says) = (steps.clone(), asleep.clone());
            let idle = heist::go_idle(move || {
                says.store(true, Ordering::SeqCst);
                thread::park();
                seen.load(Ordering::SeqCst)
            });
            let waker = idle.thread().clone();
            let normal = thread::spawn(move || {
                waker.unpark();
                for _ in 0..100 {
                    steps.fetch_add(1, Ordering::SeqCst);
                    thread::yield_now();
                }
            });
            // Both wait now: the normal one ran first, then the idle one began.
            normal.join().unwrap();
            assert_eq!(idle.join().unwrap(), 100);
            assert!(asleep.load(Ordering::SeqCst));

            // And once more with the park before the unpark.
            let steps = Arc::new(AtomicUsize::new(0));
            let asleep = Arc::new(AtomicBool::new(false));
            let (seen, says) = (steps.clone(), asleep.clone());
            let idle = heist::go_idle(move || {
                says.store(true, Ordering::SeqCst);
                thread::park();
                seen.load(Ordering::SeqCst)
            });
            // The idle one runs when all normal ones sleep: one that a plain
            // thread wakes when it has seen it asleep.
            let main = thread::current();
            let seen_asleep = asleep.clone();
            let outside = std::thread::spawn(move || {
                while !seen_asleep.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                main.unpark();
            });
            while !asleep.load(Ordering::SeqCst) {
                thread::park();
            }
            idle.thread().unpark();
            for _ in 0..100 {
                steps.fetch_add(1, Ordering::SeqCst);
                thread::yield_now();
            }
            assert_eq!(idle.join().unwrap(), 100);
            outside.join().unwrap();
        });
    });
}

#[test]
fn an_idle_goroutine_runs_on_an_idle_p() {
    let _alone = alone();
    watched(|| {
        runtime(2).run(|| {
            for _ in 0..20 {
                let ran = Arc::new(AtomicBool::new(false));
                let idle = heist::go_idle({
                    let ran = ran.clone();
                    move || ran.store(true, Ordering::SeqCst)
                });
                spin_until(|| ran.load(Ordering::SeqCst));
                idle.join().unwrap();
            }
        });
    });
}

#[test]
fn many_idle_goroutines_all_run() {
    watched(|| {
        for procs in [1, 4] {
            let ran = Arc::new(AtomicUsize::new(0));
            runtime(procs).run(|| {
                let idle: Vec<_> = (0..500)
                    .map(|_| {
                        let ran = ran.clone();
                        heist::go_idle(move || {
                            thread::yield_now();
                            ran.fetch_add(1, Ordering::SeqCst);
                        })
                    })
                    .collect();
                idle.into_iter().for_each(|handle| handle.join().unwrap());
            });
            assert_eq!(ran.load(Ordering::SeqCst), 500);
        }
        // From a plain thread too.
        assert_eq!(heist::go_idle(|| 7).join().unwrap(), 7);
    });
}
