//! The two kinds of counted references to a channel.

use super::channel::Channel;
use super::protocol::state::Side;
use crate::prim::atomic::{AtomicU64, Ordering};
use crate::prim::fatal::fatal;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

/// A channel and how many refer to it: senders in the lower half of the word,
/// receivers in the upper one.
struct Counted<T> {
    counts: AtomicU64,
    channel: Channel<T>,
}

const BITS: u32 = 32;
const LOW: u64 = (1 << BITS) - 1;

/// More of one side than that, and the program does nothing but clone.
const MOST: u64 = LOW / 2;

/// A reference from one side.
pub(super) struct Handle<T, const SENDER: bool> {
    counted: NonNull<Counted<T>>,
}

// SAFETY: handles share a latch and a counter; messages go from thread to thread.
unsafe impl<T: Send, const SENDER: bool> Send for Handle<T, SENDER> {}
// SAFETY: as above.
unsafe impl<T: Send, const SENDER: bool> Sync for Handle<T, SENDER> {}

/// A new channel: both sides.
pub(super) fn new<T>(capacity: usize) -> (Handle<T, true>, Handle<T, false>) {
    let counts = AtomicU64::new(1 | 1 << BITS);
    let counted = Box::new(Counted { counts, channel: Channel::new(capacity) });
    let counted = NonNull::from(Box::leak(counted));
    (Handle { counted }, Handle { counted })
}

impl<T, const SENDER: bool> Handle<T, SENDER> {
    const SHIFT: u32 = if SENDER { 0 } else { BITS };
    const ONE: u64 = 1 << Self::SHIFT;
    const SIDE: Side = if SENDER { Side::Sender } else { Side::Receiver };

    /// How many of this side a word counts.
    fn of_this_side(counts: u64) -> u64 {
        counts >> Self::SHIFT & LOW
    }

    #[inline(always)]
    fn counted(&self) -> &Counted<T> {
        // SAFETY: alive while a handle is.
        unsafe { self.counted.as_ref() }
    }

    /// Whether it is the only one of its side. If so it stays that until it is cloned.
    pub(super) fn is_only_one(&self) -> bool {
        // Relaxed: a hint about others, and nothing of theirs is read.
        Self::of_this_side(self.counted().counts.load(Ordering::Relaxed)) == 1
    }

    /// Goes, and leaves the channel connected.
    pub(super) fn forsake(self) {
        ManuallyDrop::new(self).release();
    }

    /// It counts no more.
    fn release(&self) {
        // AcqRel: pairs with the other releases.
        if self.counted().counts.fetch_sub(Self::ONE, Ordering::AcqRel) == Self::ONE {
            // SAFETY: made by `Box::leak`, and this was the last handle.
            drop(unsafe { Box::from_raw(self.counted.as_ptr()) });
        }
    }

    /// Whether both refer to the same channel.
    pub(super) fn same<const OTHER: bool>(&self, other: &Handle<T, OTHER>) -> bool {
        self.counted == other.counted
    }
}

impl<T, const SENDER: bool> Deref for Handle<T, SENDER> {
    type Target = Channel<T>;

    #[inline(always)]
    fn deref(&self) -> &Channel<T> {
        &self.counted().channel
    }
}

impl<T, const SENDER: bool> Clone for Handle<T, SENDER> {
    fn clone(&self) -> Self {
        // Relaxed: who has a handle keeps the channel alive.
        let before = self.counted().counts.fetch_add(Self::ONE, Ordering::Relaxed);
        if Self::of_this_side(before) > MOST {
            fatal!("a channel has more than {MOST} senders or receivers");
        }
        Handle { counted: self.counted }
    }
}

impl<T, const SENDER: bool> Drop for Handle<T, SENDER> {
    fn drop(&mut self) {
        let counts = &self.counted().counts;
        let mut now = counts.load(Ordering::Relaxed);
        while Self::of_this_side(now) > 1 {
            // Release: pairs with the acquire of whoever frees the channel.
            let fewer = now - Self::ONE;
            match counts.compare_exchange_weak(now, fewer, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(counts) => now = counts,
            }
        }
        // The last of its side, and nobody can clone it: the channel is told
        // before the count is, since it may be gone afterwards.
        let leftover = self.counted().channel.disconnect(Self::SIDE);
        self.release();
        drop(leftover);
    }
}
