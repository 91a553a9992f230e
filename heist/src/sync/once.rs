//! [`Once`]: what is to run one time only.

use super::queue::{Wait, WaitQueue, Waited};
use crate::sched::g::WaitReason;
use crate::sched::park;
use crate::sched::protocol::once::{Begin, OnceWord, Outcome, Until};
use crate::sched::waiter::Waiter;
use std::fmt;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};

/// One-time initialization, as `std::sync::Once`.
///
/// ```
/// use heist::sync::Once;
///
/// static START: Once = Once::new();
/// let mut runs = 0;
/// START.call_once(|| runs += 1);
/// START.call_once(|| runs += 1);
/// assert_eq!(runs, 1);
/// ```
pub struct Once {
    word: OnceWord,
    queue: WaitQueue,
}

/// What [`Once::call_once_force`] tells of the runs before.
pub struct OnceState {
    poisoned: bool,
}

/// A [`Once`] that has not run.
#[deprecated(note = "the `Once::new()` function is now preferred")]
#[allow(clippy::declare_interior_mutable_const)] // as in std: each use is a new one
pub const ONCE_INIT: Once = Once::new();

impl UnwindSafe for Once {}
impl RefUnwindSafe for Once {}

#[allow(clippy::new_without_default)] // as std's
impl Once {
    /// One that has not run.
    #[inline]
    #[must_use]
    pub const fn new() -> Once {
        Once { word: OnceWord::new(), queue: WaitQueue::new(()) }
    }

    /// One that has.
    pub(super) const fn completed() -> Once {
        Once { word: OnceWord::completed(), queue: WaitQueue::new(()) }
    }

    /// Runs `f` if nothing ran before; if something runs, waits for its end. When
    /// it returns, what ran is done and visible.
    ///
    /// # Panics
    ///
    /// If a run before panicked, or if `f` itself comes here again.
    #[inline]
    #[track_caller]
    pub fn call_once<F>(&self, f: F)
    where
        F: FnOnce(),
    {
        park::wait_point();
        if !self.is_completed() {
            self.call(false, |_| f(), Location::caller());
        }
    }

    /// Like [`call_once`](Self::call_once), but runs also if a run before
    /// panicked.
    ///
    /// # Panics
    ///
    /// If `f` comes here again.
    ///
    /// ```
    /// use heist::sync::Once;
    ///
    /// let once = Once::new();
    /// let first = std::panic::catch_unwind(|| once.call_once(|| panic!("no")));
    /// assert!(first.is_err());
    /// once.call_once_force(|state| assert!(state.is_poisoned()));
    /// assert!(once.is_completed());
    /// ```
    #[inline]
    #[track_caller]
    pub fn call_once_force<F>(&self, f: F)
    where
        F: FnOnce(&OnceState),
    {
        park::wait_point();
        if !self.is_completed() {
            self.call(true, f, Location::caller());
        }
    }

    /// Whether something has run to its end.
    // No safe point, nor is reading an initialized `OnceLock` or `LazyLock`: that is a
    // load, which people do while they hold what must not cross a yield.
    #[inline]
    pub fn is_completed(&self) -> bool {
        self.word.is_complete()
    }

    /// Waits until something has run to its end, also if nothing has begun.
    ///
    /// # Panics
    ///
    /// If the last run panicked.
    ///
    /// ```
    /// use heist::sync::{Arc, Once};
    ///
    /// let ready = Arc::new(Once::new());
    /// let set_up = Arc::clone(&ready);
    /// let _ = heist::go(move || set_up.call_once(|| ()));
    /// ready.wait();
    /// ```
    #[track_caller]
    pub fn wait(&self) {
        park::wait_point();
        while !self.is_completed() {
            if self.word.is_poisoned() {
                poisoned();
            }
            self.sleep(Until::CompleteOrPoisoned, Location::caller());
        }
    }

    /// Like [`wait`](Self::wait), but goes on waiting if a run panics.
    #[track_caller]
    pub fn wait_force(&self) {
        park::wait_point();
        while !self.is_completed() {
            self.sleep(Until::Complete, Location::caller());
        }
    }

    #[cold]
    #[track_caller]
    fn call(
        &self,
        ignore_poison: bool,
        f: impl FnOnce(&OnceState),
        site: &'static Location<'static>,
    ) {
        loop {
            match self.word.begin(Waiter::current().word(), ignore_poison) {
                Begin::Complete => return,
                Begin::Poisoned => poisoned(),
                Begin::Wait => self.sleep(Until::NotRunning, site),
                Begin::Recursive => panic!(
                    "deadlock: the one-time initialization that is to be run at {site} is being \
                     run by the caller itself, which would wait for itself forever"
                ),
                Begin::Run { poisoned } => {
                    let mut finish = Finish { once: self, outcome: Outcome::Poisoned };
                    f(&OnceState { poisoned });
                    finish.outcome = Outcome::Complete;
                    return;
                }
            }
        }
    }

    /// Sleeps until a run ends.
    fn sleep(&self, until: Until, site: &'static Location<'static>) {
        let queue = self.queue.lock();
        if !self.word.enqueue(until) {
            return;
        }
        let wait = Wait::new(WaitReason::Once, site);
        if let Waited::Expired(queue) | Waited::Unwind(queue) = queue.wait(0, wait, || ()) {
            drop(queue);
            park::unwind();
        }
    }

    /// How the last run ended. Nothing can be running.
    pub(super) fn outcome(&mut self) -> Outcome {
        self.word.outcome()
    }
}

/// Says how a run ended, also when it panics.
struct Finish<'a> {
    once: &'a Once,
    outcome: Outcome,
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        if self.once.word.finish(self.outcome) {
            let mut queue = self.once.queue.lock();
            let all = queue.pop_all(0);
            drop(queue);
            drop(all);
        }
    }
}

#[cold]
#[track_caller]
fn poisoned() -> ! {
    panic!("Once instance has previously been poisoned")
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").finish_non_exhaustive()
    }
}

impl OnceState {
    /// Whether the run before panicked.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }
}

impl fmt::Debug for OnceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceState").field("poisoned", &self.is_poisoned()).finish()
    }
}
