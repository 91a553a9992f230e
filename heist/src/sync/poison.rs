//! Poisoning: a lock remembers that somebody panicked while it held it.

use crate::prim::atomic::{AtomicBool, Ordering};
use crate::prim::thread;
use std::sync::{LockResult, PoisonError};

/// Whether a lock is poisoned.
pub(super) struct Flag(AtomicBool);

/// Whether a holder was panicking when it got the lock: a panic that began
/// before says nothing about the data.
#[derive(Clone, Copy)]
pub(super) struct Before {
    panicking: bool,
}

impl Flag {
    pub(super) const fn new() -> Flag {
        Flag(AtomicBool::new(false))
    }

    #[inline]
    pub(super) fn get(&self) -> bool {
        // Relaxed, here and below: the lock itself orders it.
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Somebody got the lock.
    #[inline]
    pub(super) fn enter(&self) -> Before {
        Before { panicking: thread::panicking() }
    }

    /// And releases it.
    #[inline]
    pub(super) fn leave(&self, before: Before) {
        if !before.panicking && thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// A guard, or the error that has it.
    #[inline]
    pub(super) fn check<G>(&self, guard: G) -> LockResult<G> {
        if self.get() { Err(PoisonError::new(guard)) } else { Ok(guard) }
    }
}
