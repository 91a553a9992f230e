//! The rest of a loop: the items that its runner has not begun.
//!
//! A goroutine runs the items of a range one after the other. The items after the one
//! that it is at are the second branch of one fork (`protocol::forks`), which stays linked
//! from item to item; what the branch consists of is decided when it is claimed: the range
//! is *cut* there, with the list's latch.
//!
//! | word | written by | meaning |
//! |---|---|---|
//! | `next` | the runner, before each item | the item after the one that it begins |
//! | `limit` | the runner before it links; whoever cuts | where its own items end; `CUTTING` meanwhile |
//!
//! # Why an item runs once
//!
//! The runner stores `next`, passes a light barrier, and loads `limit`: an item below it is
//! the runner's. Whoever claims for a runner that does not run ([`Rest::cut`]) stores
//! `limit = next`. A raider ([`Rest::cut_running`]) stores `CUTTING`, below which there is
//! no item, passes a heavy barrier, loads `next` and stores it as the limit. The barriers
//! forbid that both miss the other: an item that its runner began without having seen
//! `CUTTING` is below the `next` that the raider loads. A runner that has seen it waits for
//! the latch and looks again. By then the limit says whose the item is, and it stays as it is
//! until the runner has unlinked the fork.

use crate::prim::atomic::{AtomicUsize, Ordering, heavy_barrier, trusting_barrier};

/// No item is below this one.
const CUTTING: usize = 0;

/// The words.
#[derive(Debug)]
pub(crate) struct Rest {
    next: AtomicUsize,
    limit: AtomicUsize,
}

impl Rest {
    /// The runner is at `first`, and its items end at `limit` if nobody claims the rest.
    #[inline]
    pub(crate) fn new(first: usize, limit: usize) -> Self {
        Rest { next: AtomicUsize::new(first + 1), limit: AtomicUsize::new(limit) }
    }

    /// Whether an item is the runner's. If not, or not yet, it waits for the list's latch,
    /// and asks [`limit`](Self::limit).
    #[inline(always)]
    #[must_use]
    pub(crate) fn begin(&self, item: usize) -> bool {
        // Relaxed, both: the barriers are the pair. What items do is ordered by nothing.
        self.next.store(item + 1, Ordering::Relaxed);
        trusting_barrier();
        item < self.limit.load(Ordering::Relaxed)
    }

    /// Where the runner's items end, and the rest begins. With the latch, or after it.
    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Claims the rest. With the latch; the runner does not run, or is the caller.
    pub(crate) fn cut(&self) {
        self.limit.store(self.next.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Claims the rest. With the latch; the runner may run.
    pub(crate) fn cut_running(&self) {
        self.limit.store(CUTTING, Ordering::Relaxed);
        heavy_barrier();
        self.cut();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_rest_begins_after_the_item_that_runs() {
        let rest = Rest::new(3, 9);
        assert!(rest.begin(3) && rest.begin(4));
        rest.cut();
        assert!(!rest.begin(5));
        assert_eq!(rest.limit(), 5);
        let rest = Rest::new(0, 9);
        rest.cut_running();
        assert_eq!(rest.limit(), 1, "the first item is the runner's before it has begun it");
        assert!(rest.begin(0) && !rest.begin(1));
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::super::forks::{Forks, Link, Unlinked};
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;

    const ITEMS: usize = 3;

    #[repr(C)]
    struct Loop {
        link: Link,
        rest: Rest,
        ran: [AtomicU32; ITEMS],
    }

    impl Loop {
        fn run(&self, item: usize) {
            self.ran[item].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A raider takes the rest while the runner goes on; the last item is always of the rest.
    #[test]
    fn a_raid_against_the_items() {
        loom::model(|| {
            let forks: &'static Forks = Box::leak(Box::new(Forks::new()));
            let ran = std::array::from_fn(|_| AtomicU32::new(0));
            let frame = Loop { link: Link::new(), rest: Rest::new(0, ITEMS - 1), ran };
            let frame: &'static Loop = Box::leak(Box::new(frame));
            // SAFETY: unlinked below.
            unsafe { forks.link(&frame.link) };
            let raided = Arc::new(AtomicU32::new(0));
            let raider = {
                let raided = raided.clone();
                loom::thread::spawn(move || {
                    let cut = |_| {
                        frame.rest.cut_running();
                        (frame.rest.limit()..ITEMS).for_each(|item| frame.run(item));
                    };
                    raided.store(forks.raid(|| true, cut).into(), Ordering::Relaxed);
                })
            };
            for item in 0..ITEMS - 1 {
                if !frame.rest.begin(item) && item >= forks.with_latch(|| frame.rest.limit()) {
                    break;
                }
                frame.run(item);
            }
            let claimed = match forks.unlink(&frame.link) {
                Unlinked::Mine => {
                    frame.run(ITEMS - 1);
                    0
                }
                Unlinked::Claimed => 1,
            };
            raider.join().unwrap();
            assert_eq!(raided.load(Ordering::Relaxed), claimed);
            assert!(frame.ran.iter().all(|ran| ran.load(Ordering::Relaxed) == 1), "each once");
        });
    }
}
