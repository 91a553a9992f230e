//! The runtime's own locks, ranked.
//!
//! A thread that holds a lock takes only locks of a higher [`Rank`]; debug
//! builds check that on every acquisition. With one global order no set of
//! runtime locks can deadlock, whatever the paths are. In all builds a thread knows
//! whether it holds one ([`any_held`]).

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
    /// The right to take Ps from their Ms.
    Taking,
    /// A runtime's threads, and how far their shutdown is.
    Threads,
    /// `Sched`: the global queue and the lists of idle Ps and Ms.
    Sched,
    /// Where a descriptor is registered.
    Poll,
    /// The names of goroutines that have one.
    Names,
    /// The pool of stacks.
    Stacks,
    /// Control blocks for some neighbouring Ps.
    Shelf,
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
        let held = order::acquiring(self.rank);
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Guard { inner, _held: held }
    }

    /// The lock if nobody has it. For reports from a broken process, which must
    /// not wait for the thread that broke it.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        let before = order::held();
        let held = order::acquiring_out_of_order(self.rank);
        let inner = match self.inner.try_lock() {
            Ok(guard) => guard,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => {
                // It may be this thread's own: that is still held.
                drop(held);
                order::set_held(before);
                return None;
            }
        };
        Some(Guard { inner, _held: held })
    }
}

/// Holds a [`Lock`].
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    inner: MutexGuard<'a, T>,
    /// Dropped last: until the lock is free, the thread counts as holding it.
    _held: order::Held,
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

/// Whether the calling thread holds one of the runtime's locks, or is about to: it
/// must not be stopped then, since others would wait for it. Safe to call from a
/// signal handler.
pub(crate) fn any_held() -> bool {
    order::held() & !order::FORBIDDEN != 0
}

/// While it lives, the calling thread takes no lock: it is in a signal handler, and
/// whom that has interrupted may hold any of them. Debug builds check it.
#[must_use]
pub(crate) fn forbid() -> Forbidden {
    let before = order::held();
    if order::CHECKED {
        order::set_held(before | order::FORBIDDEN);
    }
    Forbidden(before & order::FORBIDDEN == 0)
}

/// See [`forbid`]: whether it was allowed before, which a handler in a handler changes
/// nothing about.
pub(crate) struct Forbidden(bool);

impl Drop for Forbidden {
    fn drop(&mut self) {
        if order::CHECKED && self.0 {
            order::set_held(order::held() & !order::FORBIDDEN);
        }
    }
}

/// Panics in debug builds where locks are [forbidden](forbid). For what is as good as
/// a lock.
#[inline(always)]
pub(crate) fn check_allowed() {
    if order::CHECKED {
        order::check_allowed();
    }
}

/// Which ranks a thread holds.
mod order {
    use super::Rank;
    #[cfg(sim)]
    pub(super) use crate::prim::thread::{held, set_held};
    #[cfg(not(sim))]
    pub(super) use native::{held, set_held};

    #[cfg(not(sim))]
    mod native {
        use std::cell::Cell;

        thread_local! {
            /// One bit for each rank that this thread holds.
            static HELD: Cell<u32> = const { Cell::new(0) };
        }

        /// Not inlined, like all that reads a thread-local here: see
        /// `prim::thread::slot`.
        #[inline(never)]
        pub(in super::super) fn held() -> u32 {
            HELD.with(Cell::get)
        }

        #[inline(never)]
        pub(in super::super) fn set_held(ranks: u32) {
            HELD.with(|h| h.set(ranks));
        }
    }

    /// Whether this build looks for mistakes.
    pub(super) const CHECKED: bool = cfg!(any(debug_assertions, sim));

    /// Above all ranks: none may be taken.
    pub(super) const FORBIDDEN: u32 = 1 << 31;

    #[inline(never)]
    pub(super) fn check_allowed() {
        if held() & FORBIDDEN != 0 {
            set_held(0);
            panic!("heist: a signal handler takes a lock, which it may have interrupted");
        }
    }

    /// A rank that the thread holds.
    #[derive(Debug)]
    pub(super) struct Held(Rank);

    impl Drop for Held {
        #[inline]
        fn drop(&mut self) {
            set_held(held() & !bit(self.0));
        }
    }

    fn bit(rank: Rank) -> u32 {
        1 << rank as u32
    }

    #[inline]
    pub(super) fn acquiring(rank: Rank) -> Held {
        if CHECKED {
            check_allowed();
            check(rank);
        }
        acquiring_out_of_order(rank)
    }

    #[inline(never)]
    fn check(rank: Rank) {
        let held = held();
        if held >= bit(rank) {
            // Released first, or the report could not take any lock itself.
            set_held(0);
            panic!(
                "heist: lock order: acquiring {rank:?} while holding ranks {held:#b}; \
                 locks are taken in the order of `Rank`"
            );
        }
    }

    #[inline]
    pub(super) fn acquiring_out_of_order(rank: Rank) -> Held {
        set_held(held() | bit(rank));
        Held(rank)
    }
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
    #[should_panic(expected = "a signal handler takes a lock")]
    fn one_in_a_handler_is_caught() {
        let lock = Lock::new(Rank::Leaf, 1);
        drop(forbid());
        assert_eq!(*lock.lock(), 1, "allowed again");
        let _handler = forbid();
        assert!(!any_held());
        drop(lock.lock());
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
