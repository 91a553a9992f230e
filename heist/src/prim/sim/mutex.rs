//! std's futex mutex, on the machine's atomics and futex: it spins a little,
//! then it sleeps.

use super::atomic::{AtomicU32, Ordering};
use super::futex::Futex;
use super::machine::{now, with};
use super::world::hint;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::{LockResult, TryLockError, TryLockResult};

const FREE: u32 = 0;
const LOCKED: u32 = 1;
/// Somebody may sleep on it.
const CONTENDED: u32 = 2;

/// As std.
const SPINS: u32 = 100;

/// A mutual exclusion lock with std's interface. It is never poisoned.
#[derive(Debug)]
pub(crate) struct Mutex<T> {
    futex: Futex,
    value: UnsafeCell<T>,
}

// SAFETY: the word gives the value to one thread at a time.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Mutex { futex: Futex::new(FREE), value: UnsafeCell::new(value) }
    }

    fn word(&self) -> &AtomicU32 {
        self.futex.word()
    }

    #[track_caller]
    fn take(&self) -> bool {
        self.word().compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        if !self.take() {
            self.wait();
        }
        Ok(MutexGuard { mutex: self })
    }

    #[track_caller]
    pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        if self.take() { Ok(MutexGuard { mutex: self }) } else { Err(TryLockError::WouldBlock) }
    }

    #[track_caller]
    fn wait(&self) {
        let since = now();
        self.wait_until_taken();
        let site = Location::caller();
        with(|m| {
            let waited = m.time().saturating_sub(since);
            m.counts.lock_wait += waited;
            *m.waits_at.entry(site).or_default() += waited;
        });
    }

    #[track_caller]
    fn wait_until_taken(&self) {
        let mut state = self.spin();
        if state == FREE {
            let taken =
                self.word().compare_exchange(FREE, LOCKED, Ordering::Acquire, Ordering::Relaxed);
            match taken {
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
        loop {
            // Who takes it here leaves it marked: there may be more who sleep.
            if state != CONTENDED && self.word().swap(CONTENDED, Ordering::Acquire) == FREE {
                return;
            }
            self.futex.wait(CONTENDED, None);
            state = self.spin();
        }
    }

    /// Until it is free or somebody sleeps on it, for a while.
    #[track_caller]
    fn spin(&self) -> u32 {
        // A run that explores has no use for a hundred equal steps.
        let spins = if with(|m| m.timed()).unwrap_or(false) { SPINS } else { 2 };
        for _ in 0..spins {
            let state = self.word().load(Ordering::Relaxed);
            if state != LOCKED {
                return state;
            }
            hint::spin_loop();
        }
        self.word().load(Ordering::Relaxed)
    }
}

/// Holds a [`Mutex`].
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard's thread has the lock.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed exclusively.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.mutex.word().swap(FREE, Ordering::Release) == CONTENDED {
            self.mutex.futex.wake_one();
        }
    }
}
