//! [`WaitGroup`]: waiting until others are done.

use super::queue::{Wait, WaitQueue, Waited};
use crate::prim::atomic::{AtomicUsize, Ordering};
use crate::sched::g::WaitReason;
use crate::sched::park;
use crate::thread;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// Go's `sync.WaitGroup`: a count of what is to be done, and those who wait for
/// zero.
///
/// A clone is the same group, for closures that `move`. It can be used again when
/// the count was zero.
///
/// ```
/// use heist::sync::WaitGroup;
/// use heist::sync::atomic::{AtomicU32, Ordering};
///
/// static SUM: AtomicU32 = AtomicU32::new(0);
/// let group = WaitGroup::new();
/// for i in 1..=10 {
///     group.go(move || {
///         SUM.fetch_add(i, Ordering::Relaxed);
///     });
/// }
/// group.wait();
/// assert_eq!(SUM.load(Ordering::Relaxed), 55);
/// ```
#[derive(Clone, Default)]
pub struct WaitGroup {
    shared: Arc<Shared>,
}

struct Shared {
    /// The count, times two; the lowest bit says that somebody waits. That bit
    /// is set with the queue's lock held, in a step that sees a count above
    /// zero; with it set, the count gets to zero only with the lock held, too.
    word: AtomicUsize,
    queue: WaitQueue,
}

const WAITED_FOR: usize = 1;
const ONE: usize = 2;

impl Default for Shared {
    fn default() -> Shared {
        Shared { word: AtomicUsize::new(0), queue: WaitQueue::new(()) }
    }
}

impl WaitGroup {
    /// A group with nothing to be done.
    #[must_use]
    pub fn new() -> WaitGroup {
        WaitGroup::default()
    }

    /// So much more is to be done. Called before the goroutine that does it is
    /// spawned, so that [`wait`](Self::wait) cannot come first.
    ///
    /// # Panics
    ///
    /// If the count overflows.
    ///
    /// ```
    /// use heist::sync::WaitGroup;
    ///
    /// let group = WaitGroup::new();
    /// group.add(2);
    /// for _ in 0..2 {
    ///     let group = group.clone();
    ///     let _ = heist::go(move || group.done());
    /// }
    /// group.wait();
    /// ```
    #[track_caller]
    pub fn add(&self, n: usize) {
        park::safe_point();
        let more = n.checked_mul(ONE);
        // Relaxed: who adds and who waits are ordered by the caller, or not.
        let before = self.shared.word.fetch_add(more.unwrap_or(0), Ordering::Relaxed);
        if more.and_then(|more| before.checked_add(more)).is_none() {
            if let Some(more) = more {
                self.shared.word.fetch_sub(more, Ordering::Relaxed);
            }
            panic!("sync: WaitGroup counter overflow");
        }
    }

    /// One less is to be done.
    ///
    /// # Panics
    ///
    /// If nothing was.
    #[track_caller]
    pub fn done(&self) {
        let _after = park::SafePointAfter;
        if !self.shared.done() {
            panic!("sync: negative WaitGroup counter");
        }
    }

    /// Waits until nothing is to be done.
    #[track_caller]
    pub fn wait(&self) {
        self.shared.wait(Location::caller());
    }

    /// Runs `f` on a goroutine of its own that the group waits for, also if it
    /// panics.
    #[track_caller]
    pub fn go<F>(&self, f: F)
    where
        F: FnOnce() + Send + 'static,
    {
        self.add(1);
        // If there is no goroutine, the closure is dropped, and this with it.
        let done = Done(self.clone());
        drop(thread::spawn(move || {
            let _done = done;
            f();
        }));
    }
}

/// Calls [`WaitGroup::done`], whatever happens.
struct Done(WaitGroup);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.done();
    }
}

impl Shared {
    /// Returns whether there was something to be done.
    fn done(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word < ONE {
                return false;
            }
            if word == ONE | WAITED_FOR {
                return self.last_done();
            }
            // Release: pairs with the acquire of those who wait, by way of the
            // others who are done.
            match self.word.compare_exchange_weak(
                word,
                word - ONE,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    #[cold]
    fn last_done(&self) -> bool {
        let mut queue = self.queue.lock();
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word < ONE {
                return false;
            }
            let reaches_zero = word == ONE | WAITED_FOR;
            let to = if reaches_zero { 0 } else { word - ONE };
            // AcqRel: those who are woken see what all have done.
            match self.word.compare_exchange_weak(word, to, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if reaches_zero => break,
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        let all = queue.pop_all(0);
        drop(queue);
        drop(all);
        true
    }

    fn wait(&self, site: &'static Location<'static>) {
        park::wait_point();
        // Acquire: pairs with the releases in `done`.
        if self.word.load(Ordering::Acquire) < ONE {
            return;
        }
        let queue = self.queue.lock();
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word < ONE {
                return;
            }
            match self.word.compare_exchange_weak(
                word,
                word | WAITED_FOR,
                Ordering::Relaxed,
                Ordering::Acquire,
            ) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        let wait = Wait::new(WaitReason::WaitGroup, site);
        if let Waited::Expired(queue) | Waited::Unwind(queue) = queue.wait(0, wait, || ()) {
            // The bit stays, and whoever is done last finds nobody.
            drop(queue);
            park::unwind();
        }
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.shared.word.load(Ordering::Relaxed) / ONE;
        f.debug_struct("WaitGroup").field("count", &count).finish_non_exhaustive()
    }
}
