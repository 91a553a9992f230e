//! A runnext whose waker computes on.

use super::*;

/// A's side: makes B ready, through runnext, and computes until B has run.
fn wake_and_compute(b: &thread::Thread, asked: &AtomicUsize, answered: &AtomicUsize) {
    let n = asked.fetch_add(1, Ordering::SeqCst) + 1;
    b.unpark();
    spin_until(|| answered.load(Ordering::SeqCst) >= n);
}

/// B's side: answers until it has been asked `times`.
fn answer(asked: &AtomicUsize, answered: &AtomicUsize, a: Option<&thread::Thread>, times: usize) {
    while answered.load(Ordering::SeqCst) < times {
        if answered.load(Ordering::SeqCst) < asked.load(Ordering::SeqCst) {
            answered.fetch_add(1, Ordering::SeqCst);
            if let Some(a) = a {
                a.unpark();
            }
        } else {
            thread::park();
        }
    }
}

#[test]
fn a_goroutine_made_ready_runs_elsewhere_while_its_waker_computes() {
    const TIMES: usize = 50;
    let _alone = alone();
    watched(|| {
        let (asked, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let runtime = runtime(2);
        runtime.run(|| {
            thread::scope(|s| {
                let b = s.spawn(|| answer(&asked, &answered, None, TIMES));
                for _ in 0..TIMES {
                    wake_and_compute(b.thread(), &asked, &answered);
                }
            });
        });
        assert_eq!(answered.load(Ordering::SeqCst), TIMES);
    });
}

#[test]
fn a_goroutine_made_ready_runs_elsewhere_even_if_its_waker_never_computed_before() {
    const QUICK: usize = 1000;
    let _alone = alone();
    watched(|| {
        let runtime = runtime(2);
        for _ in 0..5 {
            let (asked, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
            runtime.run(|| {
                let a = thread::current();
                thread::scope(|s| {
                    let b = s.spawn(|| answer(&asked, &answered, Some(&a), QUICK + 1));
                    // A thousand times, the waker leaves at once.
                    for n in 1..=QUICK {
                        asked.fetch_add(1, Ordering::SeqCst);
                        b.thread().unpark();
                        while answered.load(Ordering::SeqCst) < n {
                            thread::park();
                        }
                    }
                    wake_and_compute(b.thread(), &asked, &answered);
                });
            });
            assert_eq!(answered.load(Ordering::SeqCst), QUICK + 1);
        }
    });
}

#[test]
fn a_spawned_goroutine_runs_elsewhere_while_its_spawner_computes() {
    let _alone = alone();
    watched(|| {
        runtime(2).run(|| {
            for round in 0..50 {
                // Spawners that leave at once teach that no help is needed.
                for _ in 0..round * 4 {
                    thread::spawn(|| ()).join().unwrap();
                }
                let ran = Arc::new(AtomicBool::new(false));
                let child = thread::spawn({
                    let ran = ran.clone();
                    move || ran.store(true, Ordering::SeqCst)
                });
                spin_until(|| ran.load(Ordering::SeqCst));
                child.join().unwrap();
            }
        });
    });
}
