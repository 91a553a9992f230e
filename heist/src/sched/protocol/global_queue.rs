//! The global run queue: goroutines in the order of their arrival.
//!
//! A ring of pointers and not a list through the goroutines: a batch moves
//! without touching the control blocks, which, when a million are queued, are
//! in no cache.

use std::collections::VecDeque;

/// Kept when the queue is empty; more goes back to the allocator.
const KEEP: usize = 1 << 16;

/// A queue under its owner's lock.
pub(crate) struct GlobalQueue<T: 'static> {
    items: VecDeque<&'static T>,
}

impl<T> GlobalQueue<T> {
    pub(crate) const fn new() -> Self {
        GlobalQueue { items: VecDeque::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// The simulator: all items.
    #[cfg(sim)]
    pub(crate) fn each(&self, visit: impl FnMut(&'static T)) {
        self.items.iter().copied().for_each(visit);
    }

    /// Adds at the tail.
    pub(crate) fn append(&mut self, items: impl IntoIterator<Item = &'static T>) {
        self.items.extend(items);
    }

    /// Takes from the head.
    pub(crate) fn pop(&mut self) -> Option<&'static T> {
        let item = self.items.pop_front();
        self.shrink_if_empty();
        item
    }

    /// How many a P would take (see [`take_batch`](Self::take_batch)).
    #[cfg(not(loom))]
    pub(crate) fn batch(&self, procs: usize, room: usize) -> usize {
        batch_size(self.items.len(), procs, room)
    }

    /// Takes the share of one of `procs` Ps that has `room` for it.
    pub(crate) fn take_batch(
        &mut self,
        procs: usize,
        room: usize,
        mut take: impl FnMut(&'static T),
    ) {
        let n = batch_size(self.items.len(), procs, room);
        self.items.drain(..n).for_each(&mut take);
        self.shrink_if_empty();
    }

    pub(crate) fn clear(&mut self) {
        self.items = VecDeque::new();
    }

    fn shrink_if_empty(&mut self) {
        if self.items.is_empty() && self.items.capacity() > KEEP {
            self.items.shrink_to(KEEP);
        }
    }
}

/// How many goroutines a P takes from a global queue of `size`: its share of
/// them and one more, but no more than it has room for (Go's `globrunqget`;
/// the caller's room is at most half a ring).
fn batch_size(size: usize, procs: usize, room: usize) -> usize {
    (size / procs + 1).min(size).min(room)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn first_in_first_out_across_batches() {
        let items: &'static [u32] = Box::leak((0..10).collect());
        let mut queue = GlobalQueue::new();
        queue.append(&items[..4]);
        queue.append([]);
        queue.append(&items[4..]);
        assert_eq!(queue.len(), 10);
        let mut seen = vec![*queue.pop().unwrap()];
        while queue.len() > 0 {
            queue.take_batch(2, 128, |item| seen.push(*item));
        }
        assert_eq!(seen, items);
        assert!(queue.pop().is_none());
    }

    #[test]
    fn a_batch_is_a_fair_share_and_at_most_the_room() {
        assert_eq!(batch_size(0, 4, 128), 0);
        assert_eq!(batch_size(1, 4, 128), 1);
        assert_eq!(batch_size(10, 4, 128), 3);
        assert_eq!(batch_size(10, 1, 128), 10);
        assert_eq!(batch_size(100_000, 4, 128), 128);
        assert_eq!(batch_size(100_000, 4, 5), 5);
    }

    #[test]
    fn memory_of_a_burst_is_given_back() {
        let item: &'static u32 = &7;
        let mut queue = GlobalQueue::new();
        queue.append(std::iter::repeat_n(item, 4 * KEEP));
        while queue.pop().is_some() {}
        assert!(queue.items.capacity() <= 2 * KEEP);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::{Arc, Mutex};

    static ITEMS: [u32; 4] = [0, 1, 2, 3];

    /// Batches added by two threads against a batch taken by a third.
    #[test]
    fn submitters_against_a_taker() {
        loom::model(|| {
            let queue = Arc::new(Mutex::new(GlobalQueue::<u32>::new()));
            let submitters: Vec<_> = (0..2)
                .map(|t| {
                    let queue = queue.clone();
                    loom::thread::spawn(move || {
                        queue.lock().unwrap().append(&ITEMS[2 * t..2 * t + 2]);
                    })
                })
                .collect();
            let mut seen = Vec::new();
            queue.lock().unwrap().take_batch(2, 2, |item| seen.push(*item));
            submitters.into_iter().for_each(|t| t.join().unwrap());
            let mut queue = queue.lock().unwrap();
            seen.extend(std::iter::from_fn(|| queue.pop()));
            for pair in [[0, 1], [2, 3]] {
                let at = |v| seen.iter().position(|s| *s == v).expect("none is lost");
                assert!(at(pair[0]) < at(pair[1]), "order within a batch");
            }
            assert_eq!(seen.len(), 4);
        });
    }
}
