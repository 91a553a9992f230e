//! Every message is dropped once.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn messages_that_nobody_received() {
    everywhere(|| {
        for capacity in [Some(1), Some(10), Some(100), None] {
            let drops = Drops::default();
            let (s, r) = capacity.map_or_else(unbounded, bounded);
            let sent = capacity.unwrap_or(1000);
            (0..sent).for_each(|_| s.send(drops.value()).unwrap());
            drop(r.recv());
            assert_eq!(drops.count(), 1);
            drop(s);
            assert_eq!(drops.count(), 1);
            drop(r);
            assert_eq!(drops.count(), sent);
        }
    });
}

#[test]
fn a_million_queued_values() {
    watched(|| {
        let drops = Drops::default();
        let (s, r) = unbounded();
        (0..1_000_000).for_each(|_| s.send(drops.value()).unwrap());
        assert_eq!(r.len(), 1_000_000);
        drop((s, r));
        assert_eq!(drops.count(), 1_000_000);
    });
}

/// Without a bound, messages go when nobody can receive them any more, even if
/// senders are left.
#[test]
fn the_last_receiver_takes_the_messages_along() {
    let drops = Drops::default();
    let (s, r) = unbounded();
    (0..100).for_each(|_| s.send(drops.value()).unwrap());
    drop(r);
    assert_eq!(drops.count(), 100);
    assert_eq!(s.len(), 0);
}

#[test]
fn a_destructor_that_panics() {
    struct Bomb(Arc<AtomicUsize>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic!("a bomb");
        }
    }
    for capacity in [Some(2), None] {
        let drops = Arc::new(AtomicUsize::new(0));
        let (s, r) = capacity.map_or_else(unbounded, bounded);
        (0..2).for_each(|_| s.send(Bomb(drops.clone())).unwrap());
        drop(s);
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(r)));
        assert_eq!(text(&*dropped.unwrap_err()), "a bomb");
        assert_eq!(drops.load(Ordering::SeqCst), 1, "the one behind is leaked");
    }
}

/// A value that was on its way when the other side went comes back or arrives,
/// and is dropped once.
#[test]
fn a_channel_that_ends_while_it_is_used() {
    watched(|| {
        runtime(4).run(|| {
            for round in 0..many(2000) {
                let drops = Drops::default();
                let (s, r) = bounded(round % 3);
                let sender = {
                    let drops = drops.clone();
                    go(move || (0..10).filter(|_| s.send(drops.value()).is_ok()).count())
                };
                let receiver = go(move || r.iter().take(round % 7).count());
                let (sent, received) = (sender.join().unwrap(), receiver.join().unwrap());
                assert!(sent >= received && received == round % 7);
                assert_eq!(drops.count(), 10);
            }
        });
    });
}
