//! A heap with four children to a node: half as deep as one with two, and the
//! four lie in two or three cache lines.

use super::steps;
use crate::prim::hint;
use std::ops::Range;

/// Something that is due at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<T> {
    pub(crate) when: u64,
    pub(crate) item: T,
}

/// Entries, the earliest first.
#[derive(Debug)]
pub(crate) struct Heap<T> {
    entries: Vec<Entry<T>>,
}

const CHILDREN: usize = 4;

#[inline(always)]
const fn parent(i: usize) -> usize {
    (i - 1) / CHILDREN
}

impl<T: Copy> Heap<T> {
    pub(crate) const fn new() -> Self {
        Heap { entries: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// When the earliest is due.
    pub(crate) fn first(&self) -> Option<u64> {
        self.entries.first().map(|entry| entry.when)
    }

    #[inline]
    pub(crate) fn push(&mut self, when: u64, item: T) {
        self.entries.push(Entry { when, item });
        let last = self.entries.len() - 1;
        if last > 0 && self.entries[parent(last)].when > when {
            self.sift_up(last);
        }
    }

    /// How many are due at `by`, and when the last of them is (0 if there is none); or that of
    /// those that it has seen, once there are more than `N`. Looks at no more than those and
    /// their children.
    pub(crate) fn count_due<const N: usize>(&self, by: u64) -> (usize, u64) {
        let mut found = [0; N];
        let first = self.first().filter(|first| *first <= by);
        let mut count = usize::from(first.is_some());
        let (mut looked, mut last) = (0, first.unwrap_or(0));
        while looked < count {
            let first = CHILDREN * found[looked] + 1;
            for child in first..(first + CHILDREN).min(self.entries.len()) {
                let when = self.entries[child].when;
                if when > by {
                    continue;
                }
                last = last.max(when);
                if count == N {
                    return (N + 1, last);
                }
                found[count] = child;
                count += 1;
            }
            looked += 1;
        }
        (count, last)
    }

    /// Drops the earliest while they are not `alive`.
    pub(crate) fn drop_first_dead(&mut self, mut alive: impl FnMut(&T) -> bool) {
        while self.entries.first().is_some_and(|first| !alive(&first.item)) {
            let _ = self.pop_due(u64::MAX);
        }
    }

    /// Takes the earliest, if it is due at `now`.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<T> {
        if self.first()? > now {
            return None;
        }
        let entry = self.entries.swap_remove(0);
        if !self.entries.is_empty() {
            self.sift_down(0);
        }
        Some(entry.item)
    }

    /// Keeps those entries only, in linear time.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.entries.retain(|entry| keep(&entry.item));
        self.entries.shrink_to(2 * self.entries.len());
        let parents = self.entries.len().div_ceil(CHILDREN);
        (0..parents).rev().for_each(|i| self.sift_down(i));
    }

    /// Empties it: when and what.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (u64, T)> + use<T> {
        std::mem::take(&mut self.entries).into_iter().map(|entry| (entry.when, entry.item))
    }

    /// The entry at `i` goes up to where it belongs; what it passes moves down.
    fn sift_up(&mut self, mut i: usize) {
        let entry = self.entries[i];
        while i > 0 && self.entries[parent(i)].when > entry.when {
            steps::step();
            self.entries[i] = self.entries[parent(i)];
            i = parent(i);
        }
        self.entries[i] = entry;
    }

    /// The entry at `i` goes down to where it belongs; what it passes moves up.
    fn sift_down(&mut self, mut i: usize) {
        let entry = self.entries[i];
        loop {
            steps::step();
            let first = CHILDREN * i + 1;
            let children = first..(first + CHILDREN).min(self.entries.len());
            self.prefetch_children(children.clone());
            let Some(least) = children.min_by_key(|child| self.entries[*child].when) else {
                break;
            };
            if entry.when <= self.entries[least].when {
                break;
            }
            self.entries[i] = self.entries[least];
            i = least;
        }
        self.entries[i] = entry;
    }

    /// Asks for the children of some entries, before it is known which of them will be
    /// looked at: in a large heap those far down are in no cache.
    #[inline(always)]
    fn prefetch_children(&self, of: Range<usize>) {
        of.for_each(|i| hint::prefetch(self.entries.as_ptr().wrapping_add(CHILDREN * i + 1)));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Heap;
    use crate::prim::rng::Rng;

    fn drain(heap: &mut Heap<u64>) -> Vec<u64> {
        std::iter::from_fn(|| heap.pop_due(u64::MAX)).collect()
    }

    #[test]
    fn comes_out_in_order_whatever_went_in() {
        for seed in 0..100 {
            let rng = Rng::new(seed);
            let mut heap = Heap::new();
            let mut all: Vec<u64> =
                (0..rng.next() % 300).map(|_| (rng.next() % 50).into()).collect();
            all.iter().for_each(|when| heap.push(*when, *when));
            all.sort_unstable();
            assert_eq!(heap.first(), all.first().copied());
            assert_eq!(drain(&mut heap), all);
        }
    }

    #[test]
    fn nothing_comes_out_early() {
        let mut heap = Heap::new();
        heap.push(10, 'a');
        assert_eq!(heap.pop_due(9), None);
        assert_eq!(heap.pop_due(10), Some('a'));
        assert_eq!(heap.pop_due(u64::MAX), None);
    }

    #[test]
    fn dead_ones_go_if_they_are_first() {
        let mut heap = Heap::new();
        for (when, alive) in [(1, false), (2, false), (3, true), (4, false)] {
            heap.push(when, alive);
        }
        heap.drop_first_dead(|alive| *alive);
        assert_eq!((heap.first(), heap.len()), (Some(3), 2));
    }

    #[test]
    fn those_that_are_due_are_counted() {
        let rng = Rng::new(7);
        let mut heap = Heap::new();
        for due in 0..200usize {
            for by in [100, 150, 999] {
                let (count, last) = heap.count_due::<64>(by);
                assert_eq!(count, if by < 150 { 0 } else { due.min(65) }, "{due} by {by}");
                assert!(count == 0 || (101..=150).contains(&last), "{last:?}");
            }
            heap.push(101 + u64::from(rng.next()) % 50, due);
            heap.push(1000 + u64::from(rng.next()) % 50, due);
        }
    }

    #[test]
    fn what_is_kept_stays_in_order() {
        let mut heap = Heap::new();
        (0..1000u64).rev().for_each(|when| heap.push(when, when));
        heap.retain(|when| when % 3 == 0);
        assert_eq!(drain(&mut heap), (0..1000).filter(|when| when % 3 == 0).collect::<Vec<_>>());
    }
}
