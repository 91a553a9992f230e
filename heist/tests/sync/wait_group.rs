//! Wait groups.

use super::*;

#[test]
fn it_waits_for_all() {
    everywhere(|| {
        let group = WaitGroup::new();
        group.wait();
        for round in 0..3 {
            let done = Arc::new(AtomicUsize::new(0));
            for _ in 0..20 {
                let done = Arc::clone(&done);
                group.go(move || {
                    thread::yield_now();
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }
            group.wait();
            assert_eq!(done.load(Ordering::Relaxed), 20, "in round {round}");
        }
    });
}

#[test]
fn several_wait_for_one_group() {
    everywhere(|| {
        let (group, came_back) = (WaitGroup::new(), AtomicUsize::new(0));
        group.add(1);
        thread::scope(|s| {
            for _ in 0..5 {
                s.spawn(|| {
                    group.wait();
                    came_back.fetch_add(1, Ordering::SeqCst);
                });
            }
            thread::yield_now();
            assert_eq!(came_back.load(Ordering::SeqCst), 0);
            group.done();
        });
        assert_eq!(came_back.load(Ordering::SeqCst), 5);
    });
}

#[test]
fn below_zero_is_a_panic() {
    everywhere(|| {
        let group = WaitGroup::new();
        group.add(1);
        group.done();
        let panicked = catch_unwind(AssertUnwindSafe(|| group.done())).unwrap_err();
        assert_eq!(text(&*panicked), "sync: negative WaitGroup counter");
        let panicked = catch_unwind(AssertUnwindSafe(|| group.add(usize::MAX))).unwrap_err();
        assert_eq!(text(&*panicked), "sync: WaitGroup counter overflow");
        group.wait();
    });
}

#[test]
fn a_panic_is_done_too() {
    everywhere(|| {
        let group = WaitGroup::new();
        for _ in 0..3 {
            group.go(|| panic!("early"));
        }
        group.wait();
    });
}

#[test]
fn it_is_used_again_and_again_under_load() {
    for procs in [1, CROWDED] {
        watched(|| {
            runtime(procs).run(|| {
                let (group, done) = (WaitGroup::new(), Arc::new(AtomicUsize::new(0)));
                for round in 1..=many(2000) {
                    group.add(3);
                    for _ in 0..3 {
                        let (group, done) = (group.clone(), Arc::clone(&done));
                        drop(heist::go(move || {
                            done.fetch_add(1, Ordering::Relaxed);
                            group.done();
                        }));
                    }
                    group.wait();
                    assert_eq!(done.load(Ordering::Relaxed), 3 * round);
                }
            });
        });
    }
}
