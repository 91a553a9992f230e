//! The ring of a run queue: one producer, many consumers.
//!
//! A bounded queue; the algorithm is Go's. `tail` is written
//! by the owner alone. `head` moves by compare-and-swap: the owner takes one, a
//! thief takes half. A consumer reads the slots first and commits with the
//! exchange; if `head` moved meanwhile, what it read may be stale and it starts
//! over. Slots are atomic since such a stale read races with the owner that refills
//! them. Positions are 64 bits and never wrap, so an old `head` cannot come back.

use crate::prim::atomic::{AtomicPtr, AtomicU64, Ordering};
use crate::prim::fatal::fatal;
use crate::prim::mutant::{Mutant, is};
use crossbeam_utils::CachePadded;
use std::array;
use std::ptr;

/// A ring with so many is full for those that did not yield.
pub(crate) const CAPACITY: usize = 256;

/// The most that moves at a time, to a thief or to the global queue.
pub(crate) const HALF: usize = CAPACITY / 2;

/// Slots of a ring.
pub(super) const SLOTS: usize = 4 * CAPACITY;

/// The ring is full; the item comes back.
#[derive(Debug)]
#[must_use]
pub(crate) struct Full;

/// Items of a ring, on their way to the global queue.
pub(crate) struct Batch<T: 'static> {
    items: [Option<&'static T>; HALF],
    len: usize,
}

impl<T> Batch<T> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static T> {
        self.items[..self.len].iter().flatten().copied()
    }
}

/// A bounded queue: one producer, many consumers.
pub(crate) struct Ring<T: 'static, const N: usize = SLOTS> {
    /// Next slot to take. Consumers.
    head: CachePadded<AtomicU64>,
    /// Next slot to fill. The owner.
    tail: CachePadded<AtomicU64>,
    slots: [AtomicPtr<T>; N],
}

impl<T, const N: usize> Ring<T, N> {
    pub(super) fn new() -> Self {
        const { assert!(N.is_power_of_two()) };
        Ring {
            head: CachePadded::new(AtomicU64::new(0)),
            tail: CachePadded::new(AtomicU64::new(0)),
            slots: array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        }
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> &AtomicPtr<T> {
        &self.slots[position as usize % N]
    }

    /// The item in a slot. Stale unless the caller then moves `head` past it.
    #[inline(always)]
    fn read(&self, position: u64) -> &'static T {
        let item = self.slot(position).load(Ordering::Relaxed);
        // SAFETY: consumers read only positions below a `tail` that they
        // loaded with acquire, so the slot has been filled at least once, and
        // `push` fills it from `&'static T` only.
        unsafe { &*item }
    }

    /// How many items there are: exact for the owner if nobody steals.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Head first: the tail only grows, so the difference is never negative.
        let head = self.head.load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Acquire);
        (tail - head) as usize
    }

    /// The simulator, between two steps: all items.
    #[cfg(sim)]
    pub(super) fn each(&self, visit: impl FnMut(&'static T)) {
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed));
        (head..tail).map(|position| self.read(position)).for_each(visit);
    }

    /// Owner: adds at the tail, if there are fewer than `limit`.
    #[inline(always)]
    pub(super) fn push(&self, item: &'static T, limit: usize) -> Result<(), Full> {
        debug_assert!(limit <= N);
        let tail = self.tail.load(Ordering::Relaxed);
        // Acquire: pairs with the release of a consumer's commit; its reads of
        // the slot are over before we fill it again.
        if tail - self.head.load(Ordering::Acquire) >= limit as u64 {
            return Err(Full);
        }
        self.slot(tail).store(ptr::from_ref(item).cast_mut(), Ordering::Relaxed);
        // Release: whoever sees the new tail sees the slot.
        self.tail.store(tail + 1, Ordering::Release);
        Ok(())
    }

    /// Owner: takes from the head. `alone` says that no thief can exist.
    #[inline]
    pub(super) fn pop(&self, alone: bool) -> Option<&'static T> {
        self.pop_if(alone, |_| true)
    }

    /// Owner: takes from the head if that one `suits`. It may be asked of one that
    /// a thief then is faster to take.
    #[inline(always)]
    pub(super) fn pop_if(
        &self,
        alone: bool,
        suits: impl Fn(&'static T) -> bool,
    ) -> Option<&'static T> {
        let tail = self.tail.load(Ordering::Relaxed);
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            if head == tail {
                return None;
            }
            let item = self.read(head);
            // The one after the next: a queue that was filled long ago is not
            // in the cache. A stale or null pointer does no harm.
            crate::prim::hint::prefetch(self.slot(head + 2).load(Ordering::Relaxed));
            if !suits(item) {
                return None;
            }
            if alone {
                self.head.store(head + 1, Ordering::Release);
                return Some(item);
            }
            match self.commit(head, 1) {
                Ok(()) => return Some(item),
                Err(now) => head = now,
            }
        }
    }

    /// Moves the head over `n` items that were read.
    #[inline(always)]
    fn commit(&self, head: u64, n: u64) -> Result<(), u64> {
        // Release: the reads before it are over when the owner sees the slots
        // free. Acquire on failure: the next read must not be older.
        if is(Mutant::NoCommit) {
            self.head.store(head + n, Ordering::Release);
            return Ok(());
        }
        self.head.compare_exchange(head, head + n, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
    }

    /// Owner: takes the oldest items out, `of(len)` of them but at most [`HALF`].
    /// `None` if there are none, or thieves were faster.
    pub(super) fn take(&self, of: impl FnOnce(usize) -> usize) -> Option<Batch<T>> {
        let head = self.head.load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Relaxed);
        let len = of((tail - head) as usize).min(HALF);
        if len == 0 {
            return None;
        }
        let mut batch = Batch { items: [None; HALF], len };
        for (i, item) in batch.items[..len].iter_mut().enumerate() {
            *item = Some(self.read(head + i as u64));
        }
        self.commit(head, len as u64).ok().map(|()| batch)
    }

    /// Thief: moves half of this ring, rounded up and at most [`HALF`], to the
    /// thief's own, and returns the last of them to run at once.
    pub(super) fn steal_into(&self, own: &Ring<T, N>) -> Option<&'static T> {
        let own_tail = own.tail.load(Ordering::Relaxed);
        loop {
            let head = self.head.load(Ordering::Acquire);
            // Acquire: pairs with the release in `push`.
            let tail = self.tail.load(Ordering::Acquire);
            let len = tail.wrapping_sub(head);
            let n = len - len / if is(Mutant::StealTwoThirds) { 3 } else { 2 };
            if n == 0 {
                return None;
            }
            if n > N as u64 / 2 {
                // Head and tail belong to different moments: look again.
                crate::prim::hint::spin_loop();
                continue;
            }
            let n = n.min(HALF as u64);
            for i in 0..n {
                let item = self.slot(head + i).load(Ordering::Relaxed);
                own.slot(own_tail + i).store(item, Ordering::Relaxed);
            }
            if self.commit(head, n).is_err() {
                continue;
            }
            let last = own.read(own_tail + n - 1);
            let room = N as u64 - (own_tail - own.head.load(Ordering::Acquire));
            if n > room {
                fatal!("runqsteal: runq overflow: {n} stolen into room for {room}");
            }
            own.tail.store(own_tail + n - 1, Ordering::Release);
            return Some(last);
        }
    }
}
