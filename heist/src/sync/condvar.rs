//! [`Condvar`]: waiting, without a lock, for what is guarded by it.

use super::mutex::MutexGuard;
use super::queue::{Wait, WaitQueue, Waited};
use crate::prim::clock;
use crate::sched::g::WaitReason;
use crate::sched::park;
use crate::sched::protocol::condvar::{CondvarWord, Notify};
use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::LockResult;
use std::time::Duration;

/// A condition variable, as `std::sync::Condvar`.
///
/// Those who wait are woken in the order in which they came. There are no
/// spurious wake-ups here; code that is to run with std's as well allows for them.
///
/// ```
/// use heist::sync::{Arc, Condvar, Mutex};
///
/// let pair = Arc::new((Mutex::new(false), Condvar::new()));
/// let other = Arc::clone(&pair);
/// let _ = heist::go(move || {
///     *other.0.lock().unwrap() = true;
///     other.1.notify_one();
/// });
/// let ready = pair.1.wait_while(pair.0.lock().unwrap(), |ready| !*ready).unwrap();
/// assert!(*ready);
/// ```
pub struct Condvar {
    queue: WaitQueue,
    word: CondvarWord,
}

/// Whether a wait ended because its time was up.
#[derive(Debug, PartialEq, Eq, Copy, Clone)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether it did.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl UnwindSafe for Condvar {}
impl RefUnwindSafe for Condvar {}

impl Condvar {
    /// A condition that nobody waits for.
    #[must_use]
    #[inline]
    pub const fn new() -> Condvar {
        Condvar { queue: WaitQueue::new(()), word: CondvarWord::new() }
    }

    /// Releases the mutex, waits until it is notified, and takes the mutex again.
    /// No notification is lost in between.
    ///
    /// # Errors
    ///
    /// If the mutex is poisoned when it is taken again.
    #[track_caller]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.wait_until(guard, None, Location::caller()).0
    }

    /// Waits as long as the condition holds.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    #[track_caller]
    pub fn wait_while<'a, T, F>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: F,
    ) -> LockResult<MutexGuard<'a, T>>
    where
        F: FnMut(&mut T) -> bool,
    {
        while condition(&mut *guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// Waits for so many milliseconds at most. Returns also whether it was
    /// notified.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    #[deprecated(note = "replaced by `heist::sync::Condvar::wait_timeout`")]
    #[track_caller]
    pub fn wait_timeout_ms<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        ms: u32,
    ) -> LockResult<(MutexGuard<'a, T>, bool)> {
        match self.wait_timeout(guard, Duration::from_millis(u64::from(ms))) {
            Ok((guard, result)) => Ok((guard, !result.timed_out())),
            Err(poisoned) => {
                let (guard, result) = poisoned.into_inner();
                Err(std::sync::PoisonError::new((guard, !result.timed_out())))
            }
        }
    }

    /// Like [`wait`](Self::wait), for at most so long. [`Duration::MAX`] is
    /// without a limit.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    ///
    /// ```
    /// use heist::sync::{Condvar, Mutex};
    /// use std::time::Duration;
    ///
    /// let (mutex, never) = (Mutex::new(()), Condvar::new());
    /// let guard = mutex.lock().unwrap();
    /// let (_guard, result) = never.wait_timeout(guard, Duration::from_millis(1)).unwrap();
    /// assert!(result.timed_out());
    /// ```
    #[track_caller]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let deadline = clock::after(timeout);
        let (guard, result) = self.wait_until(guard, Some(deadline), Location::caller());
        match guard {
            Ok(guard) => Ok((guard, result)),
            Err(poisoned) => Err(std::sync::PoisonError::new((poisoned.into_inner(), result))),
        }
    }

    /// Waits as long as the condition holds, and for at most so long. It timed
    /// out if the condition holds still.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    ///
    /// ```
    /// use heist::sync::{Condvar, Mutex};
    /// use std::time::Duration;
    ///
    /// let (count, changed) = (Mutex::new(0), Condvar::new());
    /// let (count, result) = changed
    ///     .wait_timeout_while(count.lock().unwrap(), Duration::from_millis(1), |n| *n == 0)
    ///     .unwrap();
    /// assert!(result.timed_out() && *count == 0);
    /// ```
    #[track_caller]
    pub fn wait_timeout_while<'a, T, F>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
        mut condition: F,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)>
    where
        F: FnMut(&mut T) -> bool,
    {
        let begin = clock::instant();
        loop {
            if !condition(&mut *guard) {
                return Ok((guard, WaitTimeoutResult(false)));
            }
            let Some(left) = timeout.checked_sub(begin.elapsed()) else {
                return Ok((guard, WaitTimeoutResult(true)));
            };
            guard = self.wait_timeout(guard, left)?.0;
        }
    }

    /// Wakes the one who has waited longest, if anybody waits.
    pub fn notify_one(&self) {
        let _after = park::SafePointAfter;
        if self.word.notify() == Notify::Nobody {
            return;
        }
        let mut queue = self.queue.lock();
        let first = queue.pop(0);
        self.word.left(!queue.is_empty(0));
        drop(queue);
        if let Some(first) = first {
            first.wake();
        }
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        let _after = park::SafePointAfter;
        if self.word.notify() == Notify::Nobody {
            return;
        }
        let mut queue = self.queue.lock();
        let all = queue.pop_all(0);
        self.word.left(false);
        drop(queue);
        drop(all);
    }

    #[inline]
    fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Option<u64>,
        site: &'static Location<'static>,
    ) -> (LockResult<MutexGuard<'a, T>>, WaitTimeoutResult) {
        let (mutex, poison) = guard.parts();
        // It keeps what it knows, but not the lock: nobody drops it meanwhile.
        let guard = ManuallyDrop::new(guard);
        let queue = self.queue.lock();
        self.word.joined();
        let wait = Wait { deadline, ..Wait::new(WaitReason::Condvar, site) };
        let waited = queue.wait(0, wait, || mutex.unlock());
        let timed_out = matches!(waited, Waited::Expired(_));
        let unwind = matches!(waited, Waited::Unwind(_));
        if let Waited::Expired(queue) | Waited::Unwind(queue) = waited {
            self.word.left(!queue.is_empty(0));
            drop(queue);
            if unwind {
                park::unwind();
            }
        }
        mutex.lock(site);
        let guard = poison.check(ManuallyDrop::into_inner(guard));
        (guard, WaitTimeoutResult(timed_out))
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}
