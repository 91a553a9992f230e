//! A lock that its owner may take again: for the standard streams.

use super::raw_mutex::RawMutex;
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::sched::waiter::Waiter;
use std::marker::PhantomData;
use std::panic::Location;

/// The lock. It belongs to a goroutine, or to a plain thread.
pub(crate) struct Reentrant {
    raw: RawMutex,
    /// How often its owner has taken it. For the owner, so that nothing is ordered.
    depth: AtomicUsize,
}

impl Reentrant {
    pub(crate) const fn new() -> Reentrant {
        Reentrant { raw: RawMutex::new(), depth: AtomicUsize::new(0) }
    }

    pub(crate) fn lock(&'static self, site: &'static Location<'static>) -> ReentrantGuard {
        // Nobody but the caller can make the caller the owner, or stop it being that.
        if self.raw.owner() != Some(Waiter::current()) {
            self.raw.lock(site);
        }
        self.depth.store(self.depth.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        ReentrantGuard { lock: self, for_its_owner: PhantomData }
    }
}

/// Holds the lock. Guards may be dropped in any order.
pub(crate) struct ReentrantGuard {
    lock: &'static Reentrant,
    /// Not `Send`.
    for_its_owner: PhantomData<*const ()>,
}

impl Drop for ReentrantGuard {
    fn drop(&mut self) {
        let depth = self.lock.depth.load(Ordering::Relaxed) - 1;
        self.lock.depth.store(depth, Ordering::Relaxed);
        if depth == 0 {
            self.lock.raw.unlock();
        }
    }
}
