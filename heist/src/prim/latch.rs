//! A latch: the lock around a few instructions.
//!
//! For what many goroutines share and hold for some nanoseconds, such as the
//! state of a channel. Taking it is one read-modify-write, giving it back a plain
//! store: half of what a lock costs that knows who sleeps at it. Nobody sleeps at
//! a latch. Who finds it taken spins, and if that lasts, because the kernel has
//! stopped the holder's thread, gives the CPU away.
//!
//! Whoever holds a latch runs no user code, does not block, and takes no other
//! lock; several latches only in the order of their addresses.

use super::atomic::{AtomicU32, Ordering};
use super::hint;
use std::ops::{Deref, DerefMut};

#[cfg(loom)]
use loom::cell::UnsafeCell;
#[cfg(not(loom))]
use std::cell::UnsafeCell;

const FREE: u32 = 0;
const HELD: u32 = 1;

/// How often it is looked at before the CPU is given away.
const SPINS: u32 = 100;

/// The word of a latch.
#[derive(Debug)]
struct Word(AtomicU32);

impl Word {
    fn new() -> Self {
        Word(AtomicU32::new(FREE))
    }

    #[inline(always)]
    fn try_take(&self) -> bool {
        // Acquire: pairs with the release in `give_back`.
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline(always)]
    fn give_back(&self) {
        // Release: pairs with the acquire of whoever takes it next.
        self.0.store(FREE, Ordering::Release);
    }

    #[inline(always)]
    fn take(&self) {
        if !self.try_take() {
            self.wait();
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let mut looks = 0;
        while !self.try_take() {
            // Looking does not take the cache line away from the holder.
            while self.0.load(Ordering::Relaxed) != FREE {
                looks += 1;
                if looks < SPINS {
                    hint::spin_loop();
                } else {
                    hint::give_way();
                }
            }
        }
    }
}

/// A value that one thread at a time sees.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Latch<T> {
    word: Word,
    /// Models of what uses latches do not spin: those who wait would keep each
    /// other busy forever.
    #[cfg(loom)]
    turnstile: loom::sync::Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder touches the value, and holders come one after the
// other, each seeing what the last one did.
unsafe impl<T: Send> Sync for Latch<T> {}

impl<T> Latch<T> {
    pub(crate) fn new(value: T) -> Self {
        Latch {
            word: Word::new(),
            #[cfg(loom)]
            turnstile: loom::sync::Mutex::new(()),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes it.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn lock(&self) -> Held<'_, T> {
        self.acquire();
        // SAFETY: just taken, and given back by `Held` alone.
        unsafe { self.held() }
    }

    /// Takes it.
    #[cfg(loom)]
    pub(crate) fn lock(&self) -> Held<'_, T> {
        let turnstile = self.turnstile.lock().unwrap();
        self.word.take();
        Held { latch: self, value: Some(self.value.get_mut()), _turnstile: turnstile }
    }

    /// Takes it without a guard: [`held`](Self::held) makes one.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn acquire(&self) {
        self.word.take();
    }

    /// A guard of a latch that was taken without one.
    ///
    /// # Safety
    ///
    /// The caller has called [`acquire`](Self::acquire), and has no other guard.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) unsafe fn held(&self) -> Held<'_, T> {
        Held { latch: self }
    }
}

/// The right to the value of a [`Latch`].
pub(crate) struct Held<'a, T> {
    latch: &'a Latch<T>,
    #[cfg(loom)]
    value: Option<loom::cell::MutPtr<T>>,
    #[cfg(loom)]
    _turnstile: loom::sync::MutexGuard<'a, ()>,
}

#[cfg(not(loom))]
impl<T> Held<'_, T> {
    /// Keeps the latch taken, for a later [`Latch::held`].
    #[inline(always)]
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }

    #[inline(always)]
    fn value(&self) -> *mut T {
        self.latch.value.get()
    }
}

#[cfg(loom)]
impl<T> Held<'_, T> {
    fn value(&self) -> *mut T {
        match &self.value {
            // SAFETY: the latch is held.
            Some(value) => unsafe { value.deref() },
            None => unreachable!("taken by drop alone"),
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the latch is held.
        unsafe { &*self.value() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the latch is held.
        unsafe { &mut *self.value() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(loom)]
        drop(self.value.take());
        self.latch.word.give_back();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let latch = Latch::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *latch.lock() += 1));
            }
        });
        assert_eq!(*latch.lock(), 40_000);
    }

    #[test]
    fn kept_and_taken_up_again() {
        let latch = Latch::new(1);
        let mut held = latch.lock();
        *held = 2;
        held.keep();
        // SAFETY: kept above.
        assert_eq!(*unsafe { latch.held() }, 2);
        assert_eq!(*latch.lock(), 2);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::prim::cell::Plain;
    use loom::sync::Arc;

    #[test]
    fn one_at_a_time() {
        loom::model(|| {
            let shared = Arc::new((Word::new(), Plain::new(0)));
            let add = |shared: &(Word, Plain<u32>)| {
                // As `wait`, without the looks: a model's may be stale for ever.
                while !shared.0.try_take() {
                    loom::thread::yield_now();
                }
                shared.1.set(shared.1.get() + 1);
                shared.0.give_back();
            };
            let other = {
                let shared = shared.clone();
                loom::thread::spawn(move || add(&shared))
            };
            add(&shared);
            other.join().unwrap();
            add(&shared);
            assert_eq!(shared.1.get(), 3);
        });
    }
}
