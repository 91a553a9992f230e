//! The messages that a channel holds.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;

/// The first ring of a channel without a bound.
const FIRST: usize = 32;

/// No ring of such a channel is larger than so many bytes, if more than one
/// message fits: a ring that is drained is freed, and none is ever copied.
const LARGEST: usize = 32 << 10;

/// A queue: one ring, and if that is full, more of them behind it.
///
/// A bounded channel has one ring, allocated once. A channel without a bound
/// begins with a small one and keeps to it as long as it suffices.
#[derive(Debug)]
pub(crate) struct Buffer<T> {
    ring: VecDeque<T>,
    /// How many messages are in the rings behind.
    behind: usize,
    rings_behind: VecDeque<VecDeque<T>>,
}

impl<T> Buffer<T> {
    /// With room for so many messages from the start.
    pub(crate) fn with_room(messages: usize) -> Self {
        Buffer { ring: VecDeque::with_capacity(messages), behind: 0, rings_behind: VecDeque::new() }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.ring.len() + self.behind
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, message: T) {
        if self.behind == 0 && self.ring.len() < self.ring.capacity() {
            self.ring.push_back(message);
        } else {
            self.push_behind(message);
        }
    }

    #[cold]
    #[inline(never)]
    fn push_behind(&mut self, message: T) {
        let last = self.rings_behind.back_mut();
        if let Some(last) = last
            && last.len() < last.capacity()
        {
            last.push_back(message);
            self.behind += 1;
            return;
        }
        let largest = (LARGEST / size_of::<T>().max(1)).max(1);
        let room = self.rings_behind.back().unwrap_or(&self.ring).capacity();
        let mut ring = VecDeque::with_capacity((room * 2).clamp(FIRST.min(largest), largest));
        ring.push_back(message);
        if self.ring.capacity() == 0 {
            self.ring = ring;
        } else {
            self.rings_behind.push_back(ring);
            self.behind += 1;
        }
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let message = self.ring.pop_front();
        if self.behind != 0 && self.ring.is_empty() {
            self.next_ring();
        }
        message
    }

    #[cold]
    #[inline(never)]
    fn next_ring(&mut self) {
        if let Some(ring) = self.rings_behind.pop_front() {
            self.behind -= ring.len();
            self.ring = ring;
        }
    }
}

/// A message whose destructor panics ends it: those behind are leaked, as in
/// crossbeam. Going on would end the process if another one panics, too.
impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        if self.is_empty() || !std::mem::needs_drop::<T>() {
            return;
        }
        let mut ring = ManuallyDrop::new(std::mem::take(&mut self.ring));
        let mut behind = ManuallyDrop::new(std::mem::take(&mut self.rings_behind));
        loop {
            while let Some(message) = ring.pop_front() {
                drop(message);
            }
            // It is empty: only its memory is dropped.
            drop(ManuallyDrop::into_inner(ring));
            match behind.pop_front() {
                Some(next) => ring = ManuallyDrop::new(next),
                None => break,
            }
        }
        drop(ManuallyDrop::into_inner(behind));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn first_in_first_out_whatever_the_rings() {
        for burst in [1, 31, 32, 33, 100, 20_000] {
            let mut buffer = Buffer::with_room(0);
            let (mut next_in, mut next_out) = (0u64, 0u64);
            for _ in 0..5 {
                for _ in 0..burst {
                    buffer.push(next_in);
                    next_in += 1;
                }
                for _ in 0..burst / 2 + 1 {
                    assert_eq!(buffer.pop(), Some(next_out));
                    next_out += 1;
                }
                assert_eq!(buffer.len() as u64, next_in - next_out);
            }
            while let Some(message) = buffer.pop() {
                assert_eq!(message, next_out);
                next_out += 1;
            }
            assert_eq!(next_in, next_out);
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn a_drained_buffer_keeps_little() {
        let mut buffer = Buffer::with_room(0);
        (0..1_000_000u64).for_each(|i| buffer.push(i));
        while buffer.pop().is_some() {}
        assert!(buffer.ring.capacity() * size_of::<u64>() <= LARGEST);
        assert!(buffer.rings_behind.is_empty());
    }

    #[test]
    fn messages_of_no_size_and_of_a_large_one() {
        let mut none = Buffer::with_room(0);
        (0..1000).for_each(|_| none.push(()));
        assert_eq!(std::iter::from_fn(|| none.pop()).count(), 1000);
        let mut large = Buffer::with_room(0);
        (0..5u8).for_each(|i| large.push([i; 100_000]));
        assert_eq!(
            std::iter::from_fn(|| large.pop().map(|m| m[0])).collect::<Vec<_>>(),
            [0, 1, 2, 3, 4]
        );
    }
}
