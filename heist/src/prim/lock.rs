//! The runtime's own locks, ranked.
//!
//! A thread that holds a lock takes only locks of a higher [`Rank`]; debug
//! builds check that on every acquisition. With one global order no set of
//! runtime locks can deadlock, whatever the paths are.

use super::mutex::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

/// The order in which locks are taken, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// A runtime's shutdown, which may take any other lock.
    Shutdown,
    /// The list of runtimes in the process.
    Runtimes,
    /// A runtime's threads, and how far their shutdown is.
    Threads,
    /// `Sched`: the global queue and the lists of idle Ps and Ms.
    Sched,
    /// Where a descriptor is registered.
    Poll,
    /// The timers of a P.
    Timers,
    /// The names of goroutines that have one.
    Names,
    /// The pool of stacks.
    Stacks,
    /// The pool of control blocks.
    Gs,
    /// Small leaf locks that take nothing further.
    Leaf,
}

/// A mutual exclusion lock with a rank.
///
/// std's futex mutex underneath: two atomic operations when uncontended. It is
/// never poisoned: code that holds one does not run user code, and a panic of
/// the runtime's own is fatal.
#[derive(Debug)]
pub(crate) struct Lock<T> {
    rank: Rank,
    inner: Mutex<T>,
}

impl<T> Lock<T> {
    pub(crate) const fn new(rank: Rank, value: T) -> Self {
        Lock { rank, inner: Mutex::new(value) }
    }

    #[inline]
    #[cfg_attr(sim, track_caller)] // the simulator's report names who locks
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        order::acquiring(self.rank);
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Guard { rank: self.rank, inner }
    }

    /// The lock if nobody has it. For reports from a broken process, which must
    /// not wait for the thread that broke it.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        let inner = match self.inner.try_lock() {
            Ok(guard) => guard,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        order::acquired_out_of_order(self.rank);
        Some(Guard { rank: self.rank, inner })
    }
}

/// Holds a [`Lock`].
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    rank: Rank,
    inner: MutexGuard<'a, T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        order::released(self.rank);
    }
}

#[cfg(any(debug_assertions, sim))]
mod order {
    use super::Rank;
    #[cfg(sim)]
    use crate::prim::thread::{held, set_held};
    #[cfg(not(sim))]
    use native::{held, set_held};

    #[cfg(not(sim))]
    mod native {
        use std::cell::Cell;

        thread_local! {
            /// One bit for each rank that this thread holds.
            static HELD: Cell<u32> = const { Cell::new(0) };
        }

        pub(super) fn held() -> u32 {
            HELD.with(Cell::get)
        }

        pub(super) fn set_held(ranks: u32) {
            HELD.with(|h| h.set(ranks));
        }
    }

    fn bit(rank: Rank) -> u32 {
        1 << rank as u32
    }

    #[inline(never)]
    pub(super) fn acquiring(rank: Rank) {
        let held = held();
        if held >= bit(rank) {
            // Released first, or the report could not take any lock itself.
            set_held(0);
            panic!(
                "heist: lock order: acquiring {rank:?} while holding ranks {held:#b}; \
                 locks are taken in the order of `Rank`"
            );
        }
        acquired_out_of_order(rank);
    }

    #[inline(never)]
    pub(super) fn acquired_out_of_order(rank: Rank) {
        set_held(held() | bit(rank));
    }

    #[inline(never)]
    pub(super) fn released(rank: Rank) {
        set_held(held() & !bit(rank));
    }
}

#[cfg(not(any(debug_assertions, sim)))]
mod order {
    use super::Rank;
    #[inline(always)]
    pub(super) fn acquiring(_: Rank) {}
    #[inline(always)]
    pub(super) fn acquired_out_of_order(_: Rank) {}
    #[inline(always)]
    pub(super) fn released(_: Rank) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_is_fine() {
        let low = Lock::new(Rank::Threads, 1);
        let high = Lock::new(Rank::Leaf, 2);
        let (a, b) = (low.lock(), high.lock());
        assert_eq!(*a + *b, 3);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock order: acquiring Threads")]
    fn out_of_order_is_caught() {
        let low = Lock::new(Rank::Threads, ());
        let high = Lock::new(Rank::Leaf, ());
        let _high = high.lock();
        let _low = low.lock();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock order: acquiring Leaf")]
    fn the_same_rank_twice_is_caught() {
        let (one, two) = (Lock::new(Rank::Leaf, ()), Lock::new(Rank::Leaf, ()));
        let _one = one.lock();
        let _two = two.lock();
    }
}
