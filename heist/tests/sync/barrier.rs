//! Barriers.

use super::*;

#[test]
fn nobody_goes_on_before_all_are_there() {
    for procs in [1, 4, CROWDED] {
        watched(|| {
            runtime(procs).run(|| {
                const N: usize = 8;
                let (barrier, come) = (Barrier::new(N), AtomicUsize::new(0));
                let leads = all(N, |_| {
                    let mut leads = 0;
                    for round in 1..=many(200) {
                        come.fetch_add(1, Ordering::SeqCst);
                        leads += usize::from(barrier.wait().is_leader());
                        assert!(come.load(Ordering::SeqCst) >= round * N);
                        barrier.wait();
                    }
                    leads
                });
                assert_eq!(leads.iter().sum::<usize>(), many(200), "one leader a round");
            });
        });
    }
}

#[test]
fn a_barrier_for_none_or_one_stops_nobody() {
    everywhere(|| {
        assert!(Barrier::new(0).wait().is_leader());
        assert!(Barrier::new(1).wait().is_leader());
    });
}
