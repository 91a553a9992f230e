//! Room for a value of any type inside something that is used again and again.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

/// Room for so many words: a value that does not fit is boxed. Whoever takes a
/// value out knows its type.
#[repr(C, align(16))]
pub(crate) struct Storage<const WORDS: usize>(UnsafeCell<MaybeUninit<[u64; WORDS]>>);

// SAFETY: who may touch a storage is ordered by what it is part of: the life of a
// goroutine (its spawner, its M, then whoever the join word gives it to), or the word
// of an alarm. What is stored is `Send`, or never leaves the thread that waits (see
// `spawn`).
unsafe impl<const WORDS: usize> Sync for Storage<WORDS> {}

impl<const WORDS: usize> Storage<WORDS> {
    /// Holds nothing.
    pub(crate) const fn new() -> Self {
        Storage(UnsafeCell::new(MaybeUninit::uninit()))
    }

    const fn fits<V>() -> bool {
        size_of::<V>() <= size_of::<Self>() && align_of::<V>() <= align_of::<Self>()
    }

    /// Where a value is that fits.
    #[inline]
    pub(crate) fn slot<V>(&self) -> *mut V {
        const { assert!(Self::fits::<V>()) };
        self.0.get().cast()
    }

    /// Stores a value, boxed if it does not fit.
    ///
    /// # Safety
    ///
    /// The caller has the storage, and it holds nothing.
    #[inline]
    pub(crate) unsafe fn put<V>(&self, value: V) {
        if const { Self::fits::<V>() } {
            // SAFETY: large and aligned enough, and ours.
            unsafe { self.0.get().cast::<V>().write(value) };
        } else {
            // SAFETY: a pointer always fits.
            unsafe { self.0.get().cast::<Box<V>>().write(Box::new(value)) };
        }
    }

    /// Takes the value out.
    ///
    /// # Safety
    ///
    /// The caller has the storage, and it holds a `V`.
    #[inline]
    pub(crate) unsafe fn take<V>(&self) -> V {
        if const { Self::fits::<V>() } {
            // SAFETY: the caller's promise.
            unsafe { self.0.get().cast::<V>().read() }
        } else {
            // SAFETY: the caller's promise.
            *unsafe { self.0.get().cast::<Box<V>>().read() }
        }
    }
}
